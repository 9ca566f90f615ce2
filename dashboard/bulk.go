package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
)

// bulkQueue is the queue of bulk jobs, and their kind.
const bulkQueue = "errand.bulk"

// bulkData is what the page of the bulk jobs, or of one, shows.
type bulkData struct {
	All    []bulkView
	One    *bulkView
	Paused bool // all of them wait
}

// bulkView is a bulk job with what follows from its numbers.
type bulkView struct {
	errand.BulkInfo
	Taken    int64         // changed or left as they were
	Remain   int64         // of Total
	Measured float64       // jobs a second since it was started
	Ends     time.Duration // how long it takes if it goes on so; 0: not known
	Over     bool
	Stopped  bool // by somebody, before it was done
	// Chosen says in words which jobs it takes; empty: that is not known.
	Chosen string
	// Again are the fields of the form that does to the others what it has not done yet, and Title
	// is the button. Both are empty if nothing can.
	Again [][2]string
	Title string
}

func bulkViewOf(b *errand.BulkInfo, now time.Time) bulkView {
	v := bulkView{BulkInfo: *b, Taken: b.Changed + b.Left, Over: !b.EndedAt.IsZero(), Stopped: b.State == errand.Cancelled}
	if v.Stopped { // the error says no more than that
		v.Error = ""
	}
	v.Remain = max(b.Total-v.Taken, 0)
	end := now
	if v.Over {
		end = b.EndedAt
	}
	if spent := end.Sub(b.StartedAt).Seconds(); spent > 0 {
		v.Measured = float64(v.Taken) / spent
	}
	if rest := float64(v.Remain) / v.Measured; !v.Over && !b.Paused && v.Measured > 0 && rest < float64(math.MaxInt32) {
		v.Ends = time.Duration(rest * float64(time.Second))
	}
	return v
}

// Rest says how many jobs are left to be taken.
func (v bulkView) Rest() string {
	switch {
	case v.Total > 0 && v.More:
		return "more than " + count(v.Remain)
	case v.Total > 0 || v.Over:
		return count(v.Remain)
	}
	return "not counted yet"
}

// changedTo are what jobs are that a bulk job has changed.
var changedTo = map[errand.BulkAction]string{errand.BulkRedrive: "redriven", errand.BulkRunNow: "made to run now", errand.BulkCancel: "cancelled", errand.BulkDelete: "deleted", errand.BulkChange: "changed"}

// Says says in words what a bulk job does.
func (v bulkView) Says() string {
	switch {
	case v.Stopped && v.Total == 0:
		return "before it had begun"
	case v.Stopped:
		return "at " + count(v.Taken) + " of " + count(v.Total) + "; the other " + v.Rest() + " are as they were"
	case v.State == errand.Done:
		return count(v.Changed) + " " + changedTo[v.Do]
	case v.Over:
		return ""
	case v.Paused:
		return "waits, as bulk jobs are paused"
	case v.Unserved:
		return "waits for a worker; any worker of the file does it"
	}
	return ""
}

// bulkArgs are the args of bulk jobs, as far as a form of these pages can ask for the same.
type bulkArgs struct {
	Do     errand.BulkAction `json:"do"`
	By     string            `json:"by"`
	Rate   int               `json:"rate"`
	IDs    []errand.ID       `json:"ids"`
	First  bool              `json:"first_runs"`
	Filter struct {
		States        []errand.State `json:"states"`
		Queue         string         `json:"queue"`
		Kind          string         `json:"kind"`
		Group         string         `json:"group"`
		Tag           string         `json:"tag"`
		Error         string         `json:"error"`
		Reason        string         `json:"reason"`
		Cause         int64          `json:"cause"`
		CreatedFrom   time.Time      `json:"created_from"`
		CreatedBefore time.Time      `json:"created_before"`
		DueFrom       time.Time      `json:"due_from"`
		DueBefore     time.Time      `json:"due_before"`
		EndedFrom     time.Time      `json:"ended_from"`
		EndedBefore   time.Time      `json:"ended_before"`
	} `json:"filter"`
}

// mostAgain is how many jobs that are named one by one are named again.
const mostAgain = 200

// readBulk reads the args of a bulk job. It reports whether it does nothing else.
func readBulk(args []byte) (a bulkArgs, plain bool) {
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	err := d.Decode(&a)
	return a, err == nil
}

// chosen says in words which jobs a bulk job takes. Others than an admin see no text of an error that
// they were chosen by.
func (x *request) chosen(a *bulkArgs) string {
	if n := int64(len(a.IDs)); n > 0 {
		return plural(n, "job") + " chosen one by one"
	}
	f := &a.Filter
	in := errand.JobFilter{
		States: f.States, Queue: f.Queue, Kind: f.Kind, Group: f.Group, Tag: f.Tag, Error: f.Error, Reason: errand.Reason(f.Reason), Cause: f.Cause,
		CreatedFrom: f.CreatedFrom, CreatedBefore: f.CreatedBefore, DueFrom: f.DueFrom, DueBefore: f.DueBefore, EndedFrom: f.EndedFrom, EndedBefore: f.EndedBefore,
	}
	if in.Error != "" && x.who.Role < Admin {
		in.Error = "…"
	}
	text := filterText(&in)
	if text == (which{}) {
		text.before = "all"
	}
	return text.jobs("jobs")
}

// setOrder sets which jobs a bulk job takes, and how its rest is done if it was stopped.
func (x *request) setOrder(v *bulkView) error {
	j, err := x.b.q.Job(x.Context(), v.ID)
	if err != nil {
		return missing(err, "such bulk job", "It was deleted just now.")
	}
	a, plain := readBulk(j.Args)
	if v.Chosen = x.chosen(&a); !v.Stopped || v.Remain == 0 && v.Total > 0 {
		return nil
	}
	deed := map[errand.BulkAction]string{errand.BulkRedrive: "redrive", errand.BulkRunNow: "run", errand.BulkCancel: "cancel", errand.BulkDelete: "delete"}[v.Do]
	may := deed != "" && x.mayDo(deeds[deed]) == nil
	if !may || !plain || len(a.IDs) > mostAgain || a.First != (a.Do == errand.BulkRunNow) {
		return nil
	}
	add := func(name, value string) {
		if value != "" && value != "0" {
			v.Again = append(v.Again, [2]string{name, value})
		}
	}
	v.Title = deeds[deed].title + " the rest"
	add("do", deed)
	add("rate", itoa(a.Rate))
	if len(a.IDs) > 0 {
		add("which", "marked")
		for _, id := range a.IDs {
			add("id", id.String())
		}
		return nil
	}
	f := &a.Filter
	for _, s := range f.States {
		add("state", string(s))
	}
	add("queue", f.Queue)
	add("kind", f.Kind)
	add("group", f.Group)
	add("tag", f.Tag)
	add("error", f.Error)
	add("reason", f.Reason)
	add("cause", strconv.FormatInt(f.Cause, 10))
	for _, t := range []struct {
		name string
		at   time.Time
	}{
		{"created_from", f.CreatedFrom}, {"created_before", f.CreatedBefore}, {"due_from", f.DueFrom}, {"due_before", f.DueBefore},
		{"ended_from", f.EndedFrom}, {"ended_before", f.EndedBefore},
	} {
		if !t.at.IsZero() {
			add(t.name, t.at.Format(time.RFC3339Nano))
		}
	}
	return nil
}

func bulks(x *request) (*content, error) {
	now := x.b.q.Clock().Now
	if text := x.URL.Query().Get("id"); text != "" {
		id, err := errand.ParseID(text)
		if err != nil {
			return nil, err
		}
		all, err := x.b.q.Bulks(x.Context(), id)
		if err == nil && len(all) == 0 {
			err = errand.ErrNotFound
		}
		if err != nil {
			return nil, missing(err, "such bulk job", "It may have ended and been deleted since, as finished jobs are. The page Bulk jobs has the last 100.")
		}
		one := bulkViewOf(&all[0], now)
		x.bulkUntil(one)
		if err := x.setOrder(&one); err != nil {
			return nil, err
		}
		return &content{title: "Bulk job", data: &bulkData{One: &one, Paused: one.Paused}, json: all[0]}, nil
	}
	all, err := x.b.q.Bulks(x.Context())
	if err != nil {
		return nil, err
	}
	d := &bulkData{}
	for i := range all {
		d.All = append(d.All, bulkViewOf(&all[i], now))
		d.Paused = d.Paused || all[i].Paused
	}
	x.bulkUntil(d.All...)
	return &content{data: d, json: map[string]any{"bulks": all}}, nil
}

// bulkUntil says when a page of bulk jobs may show something else without a commit: once a hold ends,
// or a worker is gone.
func (x *request) bulkUntil(all ...bulkView) {
	if x.settled(); slices.ContainsFunc(all, func(v bulkView) bool { return !v.Over }) {
		x.till(askEach)
		x.unsure = true
	}
}

// auditData is what the page of what was done by hand shows.
type auditData struct {
	All  []auditView
	None bool // the store keeps none
}

// auditView is an entry with the bulk job that does it, if one does.
type auditView struct {
	errand.AuditEntry
	ByBulk bool
	Bulk   *errand.BulkInfo // nil: there is none any more
}

// byBulk ends what an entry says of a bulk job.
const byBulk = ", by a bulk job"

// bulkOf returns the bulk job of an entry: the first one that the same person has begun after the entry,
// as long as an action may take. It is nil if there is none.
func bulkOf(e *errand.AuditEntry, all []errand.BulkInfo) (of *errand.BulkInfo) {
	for i := range all {
		b := &all[i]
		if b.By == e.By && !b.StartedAt.Before(e.At) && b.StartedAt.Sub(e.At) <= actFor && (of == nil || b.StartedAt.Before(of.StartedAt)) {
			of = b
		}
	}
	return of
}

func audit(x *request) (*content, error) {
	x.settled()
	all, err := x.b.q.Audit(x.Context())
	d := &auditData{None: errors.Is(err, errand.ErrUnsupportedDB)}
	if err != nil && !d.None {
		return nil, err
	}
	var begun []errand.BulkInfo
	for i := range all {
		v := auditView{AuditEntry: all[i], ByBulk: strings.HasSuffix(all[i].What, byBulk)}
		if v.ByBulk && begun == nil {
			if begun, err = x.b.q.Bulks(x.Context()); err != nil {
				return nil, err
			}
		}
		if v.ByBulk {
			v.Bulk = bulkOf(&all[i], begun)
		}
		d.All = append(d.All, v)
	}
	return &content{data: d, json: map[string]any{"audit": append([]errand.AuditEntry{}, all...)}}, nil
}
