package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// jobVerb is a deed on jobs.
type jobVerb struct {
	bulk errand.BulkAction
	// about are the states of the jobs of a bulk job, and one those of a job that is named
	// alone.
	about, one []errand.State
	past       string // redriven
	note       string // about a job that is named alone
	do         func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error
}

var redriveVerb = jobVerb{
	bulk: errand.BulkRedrive, about: []errand.State{errand.Dead}, one: []errand.State{errand.Dead}, past: "redriven",
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		r, err := q.DeadLetters().Redrive(ctx, errand.JobFilter{IDs: []errand.ID{id}}, nil)
		switch {
		case len(r.Duplicates) > 0:
			return errors.New("another job holds its unique key: it stays dead")
		case err == nil && r.Redriven == 0:
			return errand.ErrNotFound
		case err == nil:
			out.Told = "The job is ready again."
		}
		return err
	},
}

var runVerb = jobVerb{
	bulk: errand.BulkRunNow, about: []errand.State{errand.Scheduled}, one: []errand.State{errand.Scheduled, errand.Ready}, past: "run now",
	note: "It goes before all others, whatever holds its queue. A retry budget holds it back.",
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		r, err := q.RunNow(ctx, errand.JobFilter{IDs: []errand.ID{id}}, nil)
		switch {
		case err == nil && len(r.NotFound) > 0:
			return errand.ErrNotFound
		case err == nil:
			out.Told = "The job is next, as soon as a worker of its queue and kind has room."
		}
		return err
	},
}

var cancelVerb = jobVerb{
	bulk: errand.BulkCancel, past: "cancelled",
	about: []errand.State{errand.Scheduled, errand.Ready, errand.Blocked, errand.Running}, one: []errand.State{errand.Scheduled, errand.Ready, errand.Blocked, errand.Running},
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		state, err := q.Cancel(ctx, id)
		switch {
		case err != nil:
			return err
		case state == errand.Running:
			out.Told = "The job runs, and is asked to stop."
		case state == errand.Cancelled:
			out.Told = "The job is cancelled."
		default:
			out.Told = "Nothing was done."
			return fmt.Errorf("it had ended before: it is %s", state)
		}
		return nil
	},
}

var deleteVerb = jobVerb{
	bulk: errand.BulkDelete, past: "deleted",
	about: []errand.State{errand.Done, errand.Cancelled, errand.Expired, errand.Dead}, one: []errand.State{errand.Done, errand.Cancelled, errand.Expired, errand.Dead},
	note: "It is gone then, with its history.",
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		n, err := q.Delete(ctx, errand.JobFilter{IDs: []errand.ID{id}})
		if err == nil && n == 0 {
			err = errand.ErrNotFound
		}
		if err == nil {
			out.Told, out.At = "The job is deleted.", "jobs"
		}
		return err
	},
}

// selected reads which jobs a form is about, and says it in words.
func (x *request) selected(f url.Values) (in errand.JobFilter, text string, err error) {
	for _, s := range f["id"] {
		id, err := errand.ParseID(s)
		if err != nil {
			return in, "", err
		}
		if !slices.Contains(in.IDs, id) {
			in.IDs = append(in.IDs, id)
		}
	}
	switch {
	case len(in.IDs) > 0:
		return in, "that you have marked", nil
	case f.Get("which") == "marked":
		return in, "", &errand.FieldError{Field: "id", Limit: "must name a job: mark some first"}
	}
	if _, in, err = filterOf(f); err != nil {
		return in, "", err
	}
	if text = filterText(&in); text == "" {
		in.All = true
		return in, "of all queues", nil
	}
	return in, "with " + text, nil
}

// filterText says in words what a filter selects; empty: all.
func filterText(in *errand.JobFilter) string {
	var all []string
	add := func(name, value string) {
		if value != "" {
			all = append(all, name+" "+value)
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			add(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	add("state", strings.ReplaceAll(words(in.States), ", ", " or "))
	add("queue", in.Queue)
	add("kind", in.Kind)
	add("group", in.Group)
	add("tag", in.Tag)
	if !in.Parent.IsZero() {
		add("parent", in.Parent.String())
	}
	add("reason", string(in.Reason))
	if in.Cause != 0 {
		add("cause", strconv.FormatInt(in.Cause, 10))
	}
	add("error", in.Error)
	at("enqueued from", in.CreatedFrom)
	at("enqueued before", in.CreatedBefore)
	at("due from", in.DueFrom)
	at("due before", in.DueBefore)
	at("ended from", in.EndedFrom)
	at("ended before", in.EndedBefore)
	if in.OlderThan != 0 {
		add("ended longer ago than", took(in.OlderThan))
	}
	return strings.Join(all, ", ")
}

// onJobs returns the plan of a deed on jobs: at once on one, by a bulk job on others.
func onJobs(v *jobVerb) func(*request, url.Values) (*plan, error) {
	return func(x *request, f url.Values) (*plan, error) {
		in, which, err := x.selected(f)
		if err != nil {
			return nil, err
		}
		if len(in.IDs) == 1 {
			p, err := x.planOne(in.IDs[0], v.one, v.past)
			if err == nil && p.idle == "" {
				p.note = v.note
				p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error { return v.do(ctx, q, p.job, out) }
			}
			return p, err
		}
		b := errand.Bulk{Do: v.bulk, Filter: in}
		if v.bulk == errand.BulkRunNow {
			b.RunNow.FirstRuns = true
		}
		return x.planMany(f, b, which, v.about, v.past)
	}
}

// planOne returns the plan of a deed on a job in one of the states, without what it does.
func (x *request) planOne(id errand.ID, about []errand.State, past string) (*plan, error) {
	info, err := x.b.q.Job(x.Context(), id)
	p := &plan{n: 1, job: id, at: "job/" + id.String()}
	switch {
	case errors.Is(err, errand.ErrNotFound):
		return &plan{idle: "There is no job " + id.String() + ". It may have ended and been deleted since.", at: "jobs"}, nil
	case err != nil:
		return nil, err
	case !slices.Contains(about, info.State):
		p.idle = fmt.Sprintf("The job is %s. Only jobs that are %s can be %s.", info.State, strings.ReplaceAll(words(about), ", ", " or "), past)
		return p, nil
	}
	p.text = fmt.Sprintf("job %s, %s in %s, %s", id, info.Kind, info.Queue, info.State)
	p.jobs, p.facts = []errand.JobInfo{info}, x.jobFacts(&info)
	return p, nil
}

// jobFacts are what a deed on a job depends on.
func (x *request) jobFacts(j *errand.JobInfo) []fact {
	due := ""
	if !j.DueAt.IsZero() {
		due = j.DueAt.UTC().Format(time.RFC3339Nano)
	}
	all := []fact{
		{"state", string(j.State), ""},
		{"attempt", strconv.Itoa(j.Attempt), ""},
		{"due", due, ""},
		{"queue", j.Queue, ""},
		{"priority", strconv.Itoa(j.Priority), ""},
	}
	args, note, err := x.args(j.Kind, j.Args)
	if err != nil || note != "" {
		args = "changed"
	}
	all = append(all, fact{"args", x.b.secretWas(j.Args), cmp.Or(args, "changed")})
	own := policyText(j)
	return append(all, fact{"policy", x.b.secretWas([]byte(own)), cmp.Or(own, "none of its own")})
}

// policyText returns the job's own policy as JSON, empty if it has none.
func policyText(j *errand.JobInfo) string {
	if j.Policy == nil {
		return ""
	}
	return asJSON(j.Policy)
}

// planMany returns the plan of a bulk job.
func (x *request) planMany(f url.Values, b errand.Bulk, which string, about []errand.State, past string) (*plan, error) {
	rate := input{Name: "rate", Label: "Jobs a second", Value: strings.TrimSpace(f.Get("rate")), Hint: "as many as the rest of the work leaves room for, if empty"}
	if rate.Value != "" {
		var err error
		if b.Rate, err = strconv.Atoi(rate.Value); err != nil || b.Rate < 0 || b.Rate > 100_000 {
			rate.Err, b.Rate = "rate "+strconv.Quote(rate.Value)+": must be between 0 and 100000", 0
		}
	}
	b.By, b.DryRun = x.by(), true
	p := &plan{inputs: []input{rate}, at: "jobs", jobs: []errand.JobInfo{}}
	if ids := b.Filter.IDs; len(ids) > 0 {
		left, err := x.inStates(&b.Filter, about)
		switch {
		case err != nil:
			return nil, err
		case len(b.Filter.IDs) == 0:
			p.idle = fmt.Sprintf("None of the %s is %s any more.", plural(int64(len(ids)), "marked job"), strings.ReplaceAll(words(about), ", ", " or "))
			return p, nil
		case left > 0:
			p.note = plural(int64(left), "marked job") + " cannot be " + past + ", and will be left as it is."
			if left > 1 {
				p.note = plural(int64(left), "marked job") + " cannot be " + past + ", and will be left as they are."
			}
		}
	}
	dry, err := x.b.q.StartBulk(x.Context(), b)
	if err != nil {
		return nil, err
	}
	if dry.Total == 0 {
		p.idle = "No job matches any more: none " + which + " can be " + past + "."
		return p, nil
	}
	p.n, p.more, p.text = dry.Total, dry.More, plural(dry.Total, "job")+" "+which
	if dry.More {
		p.text = "more than " + p.text
	}
	if len(dry.Sample) > 0 {
		page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{IDs: dry.Sample}, nil)
		if err != nil {
			return nil, err
		}
		p.jobs = page.Jobs
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		b.DryRun = false
		info, err := q.StartBulk(ctx, b)
		if err != nil {
			return err
		}
		out.Told, out.At, out.bulk = "It has begun: "+p.text+".", "bulk?id="+info.ID.String(), info.ID
		if info.Unserved {
			out.Told += " No worker runs that could do it: it waits for one."
		}
		return nil
	}
	return p, nil
}

// inStates leaves in a filter the named jobs that are in one of the states, and returns how many
// others there were.
func (x *request) inStates(in *errand.JobFilter, states []errand.State) (left int, err error) {
	var ids []errand.ID
	for some := range slices.Chunk(in.IDs, 1000) {
		page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{IDs: some}, &errand.ListOptions{Limit: 1000})
		if err != nil {
			return 0, err
		}
		for i := range page.Jobs {
			if j := &page.Jobs[i]; slices.Contains(states, j.State) {
				ids = append(ids, j.ID)
			}
		}
	}
	left, in.IDs = len(in.IDs)-len(ids), ids
	return left, nil
}

func laneOf(f url.Values) (errand.Lane, error) {
	l := errand.Lane{Queue: f.Get("queue"), Kind: f.Get("kind")}
	if l == (errand.Lane{}) {
		return l, &errand.FieldError{Field: "lane", Value: "", Limit: "must name a queue, a kind, or both"}
	}
	return l, nil
}

func laneText(l errand.Lane) string {
	switch {
	case l.Queue == bulkQueue:
		return "all bulk jobs"
	case l.Queue == "":
		return l.Kind + " in all queues"
	case l.Kind == "":
		return l.Queue
	}
	return l.Kind + " in " + l.Queue
}

// laneAt is where a lane is to be seen.
func laneAt(l errand.Lane) string {
	if l.Queue == bulkQueue {
		return "bulk"
	}
	return "lanes" + string(query("search", cmp.Or(l.Queue, l.Kind)))
}

// holdOf returns a hold in force, nil if there is none.
func (x *request) holdOf(lane errand.Lane, reason string) (*errand.HoldState, error) {
	all, err := x.b.q.Holds(x.Context())
	i := slices.IndexFunc(all, func(h errand.HoldState) bool { return h.Lane == lane && h.Reason == reason })
	if err != nil || i < 0 {
		return nil, err
	}
	return &all[i], nil
}

// holdFacts are what a deed on a hold depends on. Of a hold that is not there, there are none.
func holdFacts(h *errand.HoldState) []fact {
	if h == nil {
		return nil
	}
	return []fact{{"held since", h.Since.UTC().Format(time.RFC3339Nano), ""}, {"held by", h.By, ""}}
}

func hold(x *request, f url.Values) (*plan, error) {
	lane, err := laneOf(f)
	if err != nil {
		return nil, err
	}
	reason := input{Name: "reason", Label: "Reason", Value: cmp.Or(strings.TrimSpace(f.Get("reason")), "held"), Hint: "a name: holds of a lane for other reasons stay"}
	lasts := input{Name: "for", Label: "For", Value: strings.TrimSpace(f.Get("for")), Hint: "as 30m or 2h; until it is released, if empty"}
	o := errand.HoldOptions{Reason: reason.Value, By: x.by()}
	if lasts.Value != "" {
		if o.For, err = time.ParseDuration(lasts.Value); err != nil || o.For <= 0 {
			lasts.Err = "for " + strconv.Quote(lasts.Value) + ": must be a time above zero, as 30m or 2h"
		}
	}
	if reason.Value == "unavailable" || reason.Value == "brake" {
		reason.Err = "reason " + strconv.Quote(reason.Value) + ": must not be unavailable or brake: errand begins such holds itself"
	}
	is, err := x.holdOf(lane, reason.Value)
	if err != nil {
		return nil, err
	}
	p := &plan{text: laneText(lane), at: laneAt(lane), inputs: []input{reason, lasts}, facts: holdFacts(is)}
	if is != nil {
		p.note = "It is held for this reason since " + is.Since.UTC().Format(time.RFC3339) + " by " + cmp.Or(is.By, "nobody who is named") + ": the new hold takes the place of that."
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		err := q.Hold(ctx, lane, &o)
		if err == nil {
			out.Told = laneText(lane) + " is held."
		}
		return err
	}
	return p, nil
}

func release(x *request, f url.Values) (*plan, error) {
	lane, err := laneOf(f)
	if err != nil {
		return nil, err
	}
	reason, what := cmp.Or(f.Get("reason"), "held"), laneText(lane)
	is, err := x.holdOf(lane, reason)
	if err != nil {
		return nil, err
	}
	p := &plan{text: what + ", held: " + reason, at: laneAt(lane), facts: holdFacts(is)}
	if is == nil {
		p.idle = "There is no such hold any more: " + p.text + "."
		return p, nil
	}
	p.text += ", since " + is.Since.UTC().Format(time.RFC3339)
	if is.By != "" {
		p.text += " by " + is.By
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		was, err := q.Release(ctx, lane, reason)
		switch {
		case err != nil:
			return err
		case !was:
			return errors.New("there is no such hold any more")
		}
		out.Told = what + " is released."
		return nil
	}
	return p, nil
}

// headOf returns the dead job that keeps a group back, zero if none does.
func headOf(ctx context.Context, q *errand.Queue, queue, group string) (head errand.ID, err error) {
	page, err := q.Jobs(ctx, errand.JobFilter{Queue: queue, Group: group, States: []errand.State{errand.Blocked}}, &errand.ListOptions{Limit: 1})
	if err != nil || len(page.Jobs) == 0 {
		return head, err
	}
	why, err := q.Why(ctx, page.Jobs[0].ID)
	for i := range why.Reasons {
		if r := &why.Reasons[i]; r.Code == errand.WhyBlocked {
			head = r.Job
		}
	}
	if err != nil || head.IsZero() {
		return head, err
	}
	info, err := q.Job(ctx, head)
	if err != nil || info.State != errand.Dead || info.Group != group {
		return errand.ID{}, err
	}
	return head, nil
}

func skip(x *request, f url.Values) (*plan, error) {
	queue, group := f.Get("queue"), f.Get("group")
	head, err := headOf(x.Context(), x.b.q, queue, group)
	if err != nil {
		return nil, err
	}
	p := &plan{at: "groups" + string(query("queue", queue)), job: head, n: 1}
	if head.IsZero() {
		p.idle = "No dead job keeps group " + group + " in " + queue + " back."
		return p, nil
	}
	info, err := x.b.q.Job(x.Context(), head)
	if err != nil {
		return nil, err
	}
	p.text, p.jobs, p.facts = "the head of group "+group+" in "+queue+", "+head.String(), []errand.JobInfo{info}, []fact{{"head", head.String(), ""}}
	p.note = "It stays dead. The others of the group go on without it."
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		is, err := headOf(ctx, q, queue, group)
		switch {
		case err != nil:
			return err
		case is != head:
			return errors.New("the head of the group is another job now, or none")
		}
		id, err := q.SkipHead(ctx, queue, group)
		if err != nil {
			return err
		}
		out.Told, out.At = "The group goes on without "+id.String()+".", "job/"+id.String()
		if out.job = id; id != head {
			return errors.New("somebody else has skipped " + head.String() + " at the same moment")
		}
		return nil
	}
	return p, nil
}

// hooks are the webhooks and topics of a queue. They send nothing.
func (b *board) hooks(q *errand.Queue) (*webhook.Webhooks, *topic.Topics, error) {
	h, err := webhook.New(q, &webhook.Options{
		AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, Logger: b.o.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	t, err := topic.New(q, h, &topic.Options{ConfirmURL: "https://errand.invalid/", Logger: b.o.Logger}) // subscriptions in SNS mode are refused without one
	return h, t, err
}

func replay(x *request, f url.Values) (*plan, error) {
	endpoint, subscription := f.Get("endpoint"), f.Get("subscription")
	if (endpoint == "") == (subscription == "") {
		return nil, &errand.FieldError{Field: "endpoint", Value: endpoint, Limit: "must be set, or subscription, and not both"}
	}
	since := input{Name: "since", Label: "Since", Value: cmp.Or(strings.TrimSpace(f.Get("since")), "1h"), Hint: "how long ago, as 2h, or a time, as 2026-03-01T06:00:00Z"}
	now := x.b.q.Clock().Now
	from, err := readTime(since.Value, now)
	if err != nil || from.After(now) {
		since.Err = "since " + strconv.Quote(since.Value) + ": must be how long ago, as 2h, or a time that is over, as 2026-03-01T06:00:00Z"
	}
	h, topics, err := x.b.hooks(x.b.q)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	p := &plan{at: "topics", inputs: []input{since}, note: "Messages that have arrived are sent again too, with the IDs that they had. How many there are is not known before."}
	if endpoint != "" {
		_, err = h.Endpoint(x.Context(), endpoint)
		p.text = "the messages of endpoint " + endpoint
	} else {
		_, err = topics.Subscription(x.Context(), subscription)
		p.text = "the messages of subscription " + subscription
	}
	switch {
	case errors.Is(err, errand.ErrNotFound):
		p.idle = "It is not there any more: " + strings.TrimPrefix(p.text, "the messages of ") + "."
		return p, nil
	case err != nil:
		return nil, err
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		h, topics, err := x.b.hooks(q)
		if err != nil {
			return err
		}
		defer h.Close()
		var n int
		if endpoint != "" {
			n, err = h.Replay(ctx, endpoint, from)
		} else {
			n, err = topics.Replay(ctx, subscription, from)
		}
		out.What += " since " + from.UTC().Format(time.RFC3339)
		if out.n = int64(n); n > 0 || err == nil {
			out.Told = "Sent again: " + plural(out.n, "message") + "."
		}
		return err
	}
	return p, nil
}

// readTime reads a time, or how long ago it is.
func readTime(s string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time", s)
}

// ofSchedule returns the plan of a deed on a schedule: do, or a run now if that is nil.
func ofSchedule(done string, do func(*errand.Schedules, context.Context, string) error) func(*request, url.Values) (*plan, error) {
	return func(x *request, f url.Values) (*plan, error) {
		name := f.Get("name")
		info, err := x.b.q.Schedules().Get(x.Context(), name)
		p := &plan{text: "the schedule " + name, at: "schedule" + string(query("name", name))}
		switch {
		case errors.Is(err, errand.ErrNotFound):
			p.idle, p.at = "There is no schedule "+name+" any more.", "schedules"
			return p, nil
		case err != nil:
			return nil, err
		case do != nil && info.Paused == (done == "paused"):
			p.idle = "The schedule " + name + " is " + done + " already."
			return p, nil
		}
		p.text += ", " + info.Spec + " " + info.Zone + ", " + info.Kind
		p.facts = scheduleFacts(x.b, &info)
		p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
			if do != nil {
				err := do(q.Schedules(), ctx, name)
				if err == nil {
					out.Told = "The schedule " + name + " is " + done + "."
				}
				return err
			}
			e, err := q.Schedules().Run(ctx, name)
			switch {
			case err != nil:
				return err
			case e.Duplicate:
				out.At, out.job = "job/"+e.ID.String(), e.ID
				return errors.New("job " + e.ID.String() + " holds the unique key of the schedule's jobs")
			}
			out.Told, out.At, out.job, out.n = "Job "+e.ID.String()+" is enqueued.", "job/"+e.ID.String(), e.ID, 1
			return nil
		}
		return p, nil
	}
}

// scheduleFacts are what a deed on a schedule depends on.
func scheduleFacts(b *board, s *errand.ScheduleInfo) []fact {
	options, _ := json.Marshal(map[string]any{"missed": s.Missed, "overlap": s.Overlap, "jitter": s.Jitter, "queue": s.Options.Queue, "priority": s.Options.Priority, "headers": s.Options.Headers})
	return []fact{
		{"spec", s.Spec, ""},
		{"zone", s.Zone, ""},
		{"kind", s.Kind, ""},
		{"paused", strconv.FormatBool(s.Paused), ""},
		{"args", b.secretWas(s.Args), "changed"},
		{"options", b.secretWas(options), "changed"},
	}
}

// stop returns the plan of the end of a bulk job.
func stop(x *request, f url.Values) (*plan, error) {
	id, err := errand.ParseID(f.Get("id"))
	if err != nil {
		return nil, err
	}
	all, err := x.b.q.Bulks(x.Context(), id)
	if err != nil {
		return nil, err
	}
	p := &plan{at: "bulk?id=" + id.String(), job: id}
	switch {
	case len(all) == 0:
		p.idle, p.at = "There is no bulk job "+id.String()+" any more.", "bulk"
	case !all[0].EndedAt.IsZero():
		p.idle = "The bulk job has ended: it is " + string(all[0].State) + "."
	default:
		b := &all[0]
		p.text = fmt.Sprintf("bulk job %s, %s, %s changed so far", id, b.Do, plural(b.Changed, "job"))
		p.note = "What it has done stays done."
		p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error { return cancelVerb.do(ctx, q, id, out) }
	}
	return p, nil
}
