package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/errandq/errand"
)

// mostForm is how many bytes a form may have.
const mostForm = 64 << 10

// deed is something that can be done. It is asked for twice: the first time a page says what it
// would come to, and asks back.
type deed struct {
	name string
	role Role
	// What it does, as a button says it.
	title string
	// plan returns what the deed would do, and does it.
	plan func(x *request, f url.Values) (*plan, error)
}

// plan is a deed about to be done.
type plan struct {
	text string // what it does to what, with the number
	n    int64  // of jobs; 0 for a deed that is about something else
	jobs []errand.ID
	// do does it and returns what has come of it, and where that is to be seen.
	do func(q *errand.Queue) (told, at string, err error)
}

var deeds = map[string]*deed{}

func init() {
	for _, d := range []*deed{
		{"redrive", Operator, "Redrive", many(errand.BulkRedrive)},
		{"run", Operator, "Run now", many(errand.BulkRunNow)},
		{"cancel", Operator, "Cancel", many(errand.BulkCancel)},
		{"delete", Admin, "Delete", many(errand.BulkDelete)},
		{"hold", Operator, "Hold", hold},
		{"release", Operator, "Release", release},
		{"skip", Operator, "Skip the head", skip},
		{"stop", Operator, "Stop", stop},
		{"pause", Operator, "Pause", ofSchedule((*errand.Schedules).Pause, "paused")},
		{"resume", Operator, "Resume", ofSchedule((*errand.Schedules).Resume, "resumed")},
	} {
		deeds[d.name] = d
	}
}

// act does what a form asks for, or asks back.
func act(x *request) (*content, error) {
	f := x.PostForm
	d := deeds[f.Get("do")]
	switch {
	case d == nil:
		return nil, &errand.FieldError{Field: "do", Value: f.Get("do"), Limit: "must be one of " + strings.Join(sortedKeys(deeds), ", ")}
	case x.who.Role < d.role:
		return nil, &refusal{status: http.StatusForbidden, text: "You may not do that.", remedy: "It takes the role " + d.role.String() + "; yours is " + x.who.Role.String() + "."}
	}
	p, err := d.plan(x, f)
	if err != nil {
		return nil, err
	}
	sure, asked := f.Get("sure"), int64(0)
	if sure != "" {
		if asked, err = strconv.ParseInt(sure, 10, 64); err != nil {
			return nil, &errand.FieldError{Field: "sure", Value: sure, Limit: "must be a number"}
		}
	}
	if sure == "" || p.n > asked {
		f.Set("sure", strconv.FormatInt(p.n, 10))
		return &content{title: d.title, data: map[string]any{"Title": d.title, "Text": p.text, "Jobs": p.jobs, "Form": f, "Were": asked, "More": sure != "" && p.n > asked, "None": p.n == 0 && p.jobs != nil}}, nil
	}
	to := x.b.q
	if x.b.o.Writer != nil {
		if to, err = x.b.o.Writer(x.Context()); err != nil {
			return nil, err
		}
	}
	told, at, err := p.do(to)
	log := x.b.o.Logger.With("by", x.who.Name, "role", x.who.Role.String(), "do", d.name, "what", p.text)
	if err != nil {
		log.Error("errand: an action on the dashboard has failed", "error", err)
		return nil, err
	}
	log.Info("errand: an action on the dashboard")
	return &content{title: d.title, data: map[string]any{"Title": d.title, "Told": told, "At": at}}, nil
}

// by is who acts, for what an action leaves.
func (x *request) by() string { return cut(x.who.Name, 255) }

func cut(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// selected reads which jobs a form is about.
func (x *request) selected(f url.Values) (in errand.JobFilter, text string, err error) {
	for _, s := range f["id"] {
		id, err := errand.ParseID(s)
		if err != nil {
			return in, "", err
		}
		in.IDs = append(in.IDs, id)
	}
	if len(in.IDs) > 0 {
		return in, "that you have marked", nil
	}
	_, in, err = filterOf(f)
	if err != nil {
		return in, "", err
	}
	var words []string
	for _, name := range filterNames {
		for _, v := range f[name] {
			if v != "" {
				words = append(words, name+" "+v)
			}
		}
	}
	if len(words) == 0 {
		in.All = true
		return in, "of all queues", nil
	}
	return in, "with " + strings.Join(words, ", "), nil
}

// many returns the plan of a deed on jobs: at once on those that are marked, by a bulk job on all
// that match.
func many(what errand.BulkAction) func(*request, url.Values) (*plan, error) {
	return func(x *request, f url.Values) (*plan, error) {
		in, which, err := x.selected(f)
		if err != nil {
			return nil, err
		}
		b := errand.Bulk{Do: what, Filter: in, By: x.by(), RunNow: errand.RunNowOptions{FirstRuns: true}, DryRun: true}
		if what != errand.BulkRunNow {
			b.RunNow = errand.RunNowOptions{}
		}
		if f.Get("rate") != "" {
			if b.Rate, err = strconv.Atoi(f.Get("rate")); err != nil {
				return nil, &errand.FieldError{Field: "rate", Value: f.Get("rate"), Limit: "must be a number"}
			}
		}
		dry, err := x.b.q.StartBulk(x.Context(), b)
		if err != nil {
			return nil, err
		}
		p := &plan{n: dry.Total, jobs: dry.Sample, text: plural(dry.Total, "job") + " " + which}
		if dry.More {
			p.text = "more than " + p.text
		}
		if p.jobs == nil {
			p.jobs = []errand.ID{}
		}
		p.do = func(q *errand.Queue) (string, string, error) {
			b.DryRun = false
			info, err := q.StartBulk(x.Context(), b)
			if err != nil {
				return "", "", err
			}
			return "It has begun: " + p.text + ".", "bulk?id=" + info.ID.String(), nil
		}
		return p, nil
	}
}

func laneOf(f url.Values) errand.Lane { return errand.Lane{Queue: f.Get("queue"), Kind: f.Get("kind")} }

func laneText(l errand.Lane) string {
	switch {
	case l.Queue == "":
		return l.Kind + " in all queues"
	case l.Kind == "":
		return l.Queue
	}
	return l.Kind + " in " + l.Queue
}

func hold(x *request, f url.Values) (*plan, error) {
	lane := laneOf(f)
	return &plan{text: laneText(lane), do: func(q *errand.Queue) (string, string, error) {
		reason := f.Get("reason")
		err := q.Hold(x.Context(), lane, &errand.HoldOptions{Reason: reason, By: x.by()})
		return laneText(lane) + " is held.", "", err
	}}, nil
}

func release(x *request, f url.Values) (*plan, error) {
	lane, reason := laneOf(f), f.Get("reason")
	return &plan{text: laneText(lane) + ", held: " + reason, do: func(q *errand.Queue) (string, string, error) {
		was, err := q.Release(x.Context(), lane, reason)
		if err == nil && !was {
			return "There was no such hold any more.", "", nil
		}
		return laneText(lane) + " is released.", "", err
	}}, nil
}

func skip(x *request, f url.Values) (*plan, error) {
	queue, group := f.Get("queue"), f.Get("group")
	return &plan{text: "the head of group " + group + " in " + queue, do: func(q *errand.Queue) (string, string, error) {
		id, err := q.SkipHead(x.Context(), queue, group)
		if err != nil {
			return "", "", err
		}
		return "The group goes on without " + id.String() + ".", "job/" + id.String(), nil
	}}, nil
}

// ofSchedule returns the plan of a deed on a schedule.
func ofSchedule(do func(*errand.Schedules, context.Context, string) error, done string) func(*request, url.Values) (*plan, error) {
	return func(x *request, f url.Values) (*plan, error) {
		name := f.Get("name")
		return &plan{text: "the schedule " + name, do: func(q *errand.Queue) (string, string, error) {
			err := do(q.Schedules(), x.Context(), name)
			return "The schedule " + name + " is " + done + ".", "schedule" + string(query("name", name)), err
		}}, nil
	}
}
