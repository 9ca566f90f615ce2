package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
)

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

func hold(x *request, f url.Values) (*plan, error) {
	lane, err := laneOf(f)
	if err != nil {
		return nil, err
	}
	reason := input{Name: "reason", Label: "Reason", Value: cmp.Or(strings.TrimSpace(f.Get("reason")), "held"), Hint: "a name: letters, digits and . _ : / -, no spaces; holds of a lane for other reasons stay"}
	lasts := input{Name: "for", Label: "For", Value: strings.TrimSpace(f.Get("for")), Hint: "as 30m or 2h; until it is released, if empty"}
	note := input{Name: "note", Label: "Note", Value: strings.TrimSpace(f.Get("note")), Hint: "why it is held, for people: up to 1,000 bytes; lists and why a job waits may show its beginning"}
	o := errand.HoldOptions{Reason: reason.Value, By: x.by(), Detail: note.Value, DryRun: true}
	if lasts.Value != "" {
		if o.For, err = time.ParseDuration(lasts.Value); err != nil || o.For <= 0 {
			o.For, lasts.Err = 0, "for "+strconv.Quote(lasts.Value)+": must be a time above zero, as 30m or 2h"
		}
	}
	inputs := []input{note, lasts, reason}
	if err := x.b.q.Hold(x.Context(), lane, &o); err != nil && !blame(inputs, err) {
		return nil, err
	}
	is, err := x.holdOf(lane, reason.Value)
	if err != nil {
		return nil, err
	}
	p := &plan{text: laneText(lane), yes: "Hold " + laneText(lane), at: laneAt(lane), inputs: inputs, facts: x.holdFacts(is), why: note.Value}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	waits := l.under(&errand.HoldState{Lane: lane, Reason: reason.Value})
	p.note = "None of its jobs starts until the hold ends: " + waits.n(waits.free+waits.unserved+waits.others) + " due now. Jobs that run go on."
	if is != nil {
		p.note += "\nIt is held for this reason since " + short(is.Since, x.b.q.Clock().Now) + " by " + cmp.Or(x.text(is.By), "nobody who is named") + noted(x.text(is.Detail)) + ": the new hold takes the place of that."
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		o.DryRun = false
		err := q.Hold(ctx, lane, &o)
		if err == nil {
			out.Told = "Held: " + laneText(lane) + ", for the reason " + o.Reason
			if o.For > 0 {
				out.Told += ", for " + took(o.For)
			}
			out.Told += "."
		}
		return err
	}
	return p, nil
}

// noted returns the end of a text about a hold: its note or its last error, if it has one.
func noted(detail string) string {
	if detail == "" {
		return ""
	}
	return " (" + note(detail) + ")"
}

// heldJobs are the jobs that are due under a hold, by what happens to them when it ends.
type heldJobs struct {
	free     int64 // they start
	unserved int64 // they wait for a worker
	others   int64 // other holds keep them
	least    bool  // there may be more
}

// under returns what is due under a hold.
func (l *look) under(h *errand.HoldState) (all heldJobs) {
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		n := due(s)
		if n == 0 || !h.Includes(s.Queue, s.Kind) {
			continue
		}
		all.least = all.least || s.Ready == 0
		switch {
		case slices.ContainsFunc(s.Holds, func(o errand.HoldState) bool { return (o.Lane != h.Lane || o.Reason != h.Reason) && !l.over(o) }):
			all.others += n
		case l.unshown || l.served(s.Queue, s.Kind):
			all.free += n
		default:
			all.unserved += n
		}
	}
	return all
}

// n says how many jobs are.
func (j *heldJobs) n(n int64) string {
	if j.least {
		return "at least " + are(n, "job")
	}
	return are(n, "job")
}

// text says what happens when the hold ends.
func (j *heldJobs) text() (text string) {
	switch {
	case j.least:
		text = "The jobs that are due start, if a worker takes them and no other hold keeps them."
	case j.free == 1:
		text = "1 job starts."
	case j.free > 0:
		text = count(j.free) + " jobs start, as workers have places for them."
	default:
		text = "No job starts now."
	}
	if j.unserved > 0 && !j.least {
		text += " No running worker takes " + plural(j.unserved, "job") + " of those that are due."
	}
	if j.others > 0 && !j.least {
		text += " Other holds keep " + plural(j.others, "job") + " back."
	}
	return text
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
	p := &plan{text: what + ", held: " + reason, at: laneAt(lane), facts: x.holdFacts(is)}
	if is == nil {
		p.idle = "There is no such hold any more: " + p.text + "."
		return p, nil
	}
	by := ""
	p.text = what + ", which was held"
	if is.By != "" {
		by = " by " + x.text(is.By)
		p.text = what + ", which " + x.text(is.By) + " held"
	}
	p.text += " since " + is.Since.UTC().Format(time.RFC3339) + " for the reason " + reason
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	starts := l.under(is)
	p.question, p.yes, p.note = "Release "+what+"?", "Release "+what, starts.text()+"\nThe reason of the hold is "+reason+", since "+short(is.Since, l.clock.Now)+by+noted(x.text(is.Detail))+"."
	if starts.free > 0 && !starts.least {
		p.text += "; " + plural(starts.free, "job") + " could start"
	}
	if p.n, p.more, p.flow = starts.free+starts.unserved, starts.least, true; p.n > 0 && !p.more {
		p.yes = "Release " + plural(p.n, "job")
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		out.n = 0 // it is done to a hold
		was, err := q.Release(ctx, lane, reason)
		switch {
		case err != nil:
			return err
		case !was:
			return declined("There is no such hold any more.")
		}
		out.Told = "Released: " + what + ". " + starts.text()
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
	p.text, p.jobs, p.facts = "the head of group "+group+" in "+queue+", "+head.String(), []errand.JobInfo{info}, append(x.jobFacts(&info), fact{"head", head.String(), ""})
	b, err := x.behind(queue, group)
	if err != nil && !errors.Is(err, errand.ErrNotFound) { // it has moved on
		return nil, err
	}
	if p.note = "It stays dead. The others of the group go on without it."; b != nil {
		p.note = "It stays dead. " + b.others() + " of the group " + goes(int64(len(b.Jobs))) + " on without it."
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		is, err := headOf(ctx, q, queue, group)
		switch {
		case err != nil:
			return err
		case is != head:
			return declined("The head of the group is another job now, or none.")
		}
		id, err := q.SkipHead(ctx, queue, group)
		if err != nil {
			return err
		}
		out.Told, out.At = "The group goes on without "+id.String()+".", "job/"+id.String()
		if out.job = id; id != head {
			return declined("Somebody else has skipped %v at the same moment.", head)
		}
		return nil
	}
	return p, nil
}
