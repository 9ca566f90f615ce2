package errand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// maxGroup is how long the name of a group may be.
const maxGroup = 256

// mostGroup bounds GroupLimit: so many jobs are counted when some of them end.
const mostGroup = 1000

// DeadHead says whether a dead job keeps back the others of its group: see [Settings].
type DeadHead = storage.DeadHead

const (
	// BlockDead keeps back the jobs of the group that were enqueued after the dead one.
	BlockDead = storage.BlockDead
	// PassDead lets these jobs pass the dead one.
	PassDead = storage.PassDead
)

func aGroupLimit(value int64) string {
	if value < 0 || value > mostGroup {
		return fmt.Sprintf("must be between 0 and %d", mostGroup)
	}
	return ""
}

func aDeadHead(value int64) string {
	if value < 0 || value > int64(PassDead) {
		return fmt.Sprintf("must be BlockDead (%d) or PassDead (%d)", BlockDead, PassDead)
	}
	return ""
}

// BlockedGroup is a group with a job that keeps the others back.
type BlockedGroup struct {
	Queue string `json:"queue"`
	Group string `json:"group"`
	// Head is the job that the others wait for, the first enqueued if there are several. It
	// is dead, or with GroupOptions.Waiting may live. Kind and State are those of Head.
	Head  ID     `json:"head"`
	Kind  string `json:"kind"`
	State State  `json:"state"`
	// Reason, Error and DiedAt say why and when a dead Head died. Cause is for
	// JobFilter.Cause. If Head lives they are zero.
	Reason Reason    `json:"reason,omitempty"`
	Error  string    `json:"error,omitempty"`
	Cause  int64     `json:"cause,omitempty"`
	DiedAt time.Time `json:"died_at,omitzero"`
	// Blocked is how many jobs wait, counted up to 1,000.
	Blocked int `json:"blocked"`
}

// GroupOptions select a page of groups. Nil and the zero value mean defaults.
type GroupOptions struct {
	// Queue is the queue of the groups. If empty, all.
	Queue string
	// Waiting is true for all groups in which jobs wait, also those whose head lives. If
	// false, only groups that a dead job keeps back.
	Waiting bool
	// Limit is how many groups a page has at most, up to 1,000. If zero, 100.
	Limit int
	// After is GroupPage.Next of the page before, of the same Queue and Waiting. If
	// empty, the first page.
	After string
}

// GroupPage is a part of a list of groups.
type GroupPage struct {
	Groups []BlockedGroup `json:"groups"`
	// Next is where the next page begins, for [GroupOptions].After. It is empty on the
	// last page.
	Next string `json:"next,omitempty"`
}

// Groups returns a page of the groups that a dead job keeps back, sorted by queue and
// name. For that job, [DeadLetters.Redrive] runs it before all others of its group,
// [DeadLetters.Purge] deletes it, and [Queue.SkipHead] lets the others pass it. With
// GroupOptions.Waiting, Groups returns all groups in which jobs wait, also behind a job
// that lives. [Queue.Jobs] lists the jobs of a group. Groups costs the same however many
// other groups there are, and however many jobs of a group wait.
func (q *Queue) Groups(ctx context.Context, o *GroupOptions) (GroupPage, error) {
	o = cmp.Or(o, &GroupOptions{})
	var f faults
	if o.Queue != "" {
		f.add(checkName("queue", o.Queue))
	}
	f.between("limit", o.Limit, maxPage)
	of := JobFilter{Queue: o.Queue}.hash(nil) + 1 // which is of no list of jobs
	if o.Waiting {
		of++
	}
	after := readCursor(&f, "after", o.After, of)
	if err := f.err(); err != nil {
		return GroupPage{}, err
	}
	got, err := q.store.Groups(ctx, storage.GroupFilter{Queue: o.Queue, Waiting: o.Waiting}, after, cmp.Or(o.Limit, defaultPage))
	if err != nil {
		return GroupPage{}, err
	}
	page := GroupPage{Groups: []BlockedGroup{}, Next: cursor(got.Next, of)}
	for _, g := range got.Groups {
		page.Groups = append(page.Groups, BlockedGroup(g))
	}
	return page, nil
}

// SkipHead lets the members of a group pass the dead job that they wait for, which is the
// Head that [Queue.Groups] returns, and returns its ID. The job stays a dead letter; if
// it is redriven later, it runs before those that still wait. If another member is dead
// too, the group then waits for that one.
//
// SkipHead returns [ErrNotFound] if no dead job keeps the group back.
func (q *Queue) SkipHead(ctx context.Context, queue, group string) (ID, error) {
	var f faults
	f.add(checkName("queue", queue))
	f.group("group", group)
	if group == "" {
		f.field("group", group, "must not be empty")
	}
	if err := f.err(); err != nil {
		return ID{}, err
	}
	return q.store.SkipHead(ctx, queue, group)
}

// group checks the name of a group, which may be empty.
func (f *faults) group(field, name string) {
	switch {
	case len(name) > maxGroup:
		f.field(field, name, fmt.Sprintf("must be at most %d bytes", maxGroup))
	case !isText(name):
		f.field(field, name, "must be valid UTF-8 without NUL")
	}
}

// GroupThrottle limits the rate at which attempts of each group of a queue start: a group
// may stand for a customer, host or device. Groups do not wait for each other. An attempt
// that would start too early goes back until it may, with nothing used up, and keeps its
// place in its group. Retries count as first attempts do; urgent jobs neither wait nor
// count, see [Queue.RunNow].
//
// The limit is an average, and holds for all workers of a [Queue] together. Other
// processes count by themselves, and a restart begins anew. It is kept for at least the
// 50,000 groups that were slowed down last; jobs of others may start too early. The zero
// value is no limit.
type GroupThrottle struct {
	// Starts is how many attempts of a group may start in Per, at most 1,000,000: one each
	// Per/Starts, which must be between a microsecond and an hour. If zero, any number.
	Starts int
	// Per is the time for Starts. If zero, a second.
	Per time.Duration
	// Burst is how many attempts of a group may start at once after a rest, at most 10,000.
	// If zero, 1: then attempts start at even intervals.
	Burst int
}

const (
	mostGroupStarts                    = 1_000_000
	mostGroupBurst                     = 10_000
	minGroupInterval, maxGroupInterval = time.Microsecond, time.Hour
)

// rate returns the rate with its defaults.
func (t GroupThrottle) rate() engine.GroupRate {
	return engine.GroupRate{Starts: t.Starts, Per: cmp.Or(t.Per, time.Second), Burst: cmp.Or(t.Burst, 1)}
}

// groupThrottle checks a GroupThrottle.
func (f *faults) groupThrottle(place string, t GroupThrottle) {
	before := f.n()
	f.between(place+"starts", t.Starts, mostGroupStarts)
	f.between(place+"burst", t.Burst, mostGroupBurst)
	if t.Per < 0 {
		f.field(place+"per", t.Per, "must not be negative")
	}
	if f.n() > before {
		return
	}
	if t.Starts == 0 {
		const limit = "must be zero without starts"
		if t.Per > 0 {
			f.field(place+"per", t.Per, limit)
		}
		if t.Burst > 0 {
			f.field(place+"burst", t.Burst, limit)
		}
		return
	}
	r := t.rate()
	if one := r.Per / time.Duration(r.Starts); one < minGroupInterval || one > maxGroupInterval {
		f.field(place+"per", r.Per, fmt.Sprintf("must be between %v and %v for each of starts", minGroupInterval, maxGroupInterval))
	}
}

// groupThrottle returns the throttle of the groups of a queue, or nil if there is none.
// Another one than in the call before replaces it.
func (l *limits) groupThrottle(queue string, o GroupThrottle) *engine.GroupThrottle {
	if o.Starts == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.groups[queue]; t != nil && t.Rate() == o.rate() {
		return t
	}
	if l.groups == nil {
		l.groups = map[string]*engine.GroupThrottle{}
	}
	t := engine.NewGroupThrottle(o.rate())
	l.groups[queue] = t
	return t
}

// putOff adds why a scheduled job is due later that has not been attempted, if the throttle
// of its group has put it off, or may have.
func (q *Queue) putOff(w *Why, j *JobInfo, workers []WorkerInfo, now time.Time) bool {
	if j.Group == "" || j.Attempt > 0 || !j.DueAt.After(now) {
		return false
	}
	q.limits.mu.Lock()
	t := q.limits.groups[j.Queue]
	q.limits.mu.Unlock()
	due := "it is due at " + moment(j.DueAt)
	// The clock of due times may have been corrected a little meanwhile.
	if t != nil && !j.DueAt.After(now.Add(t.Promised(j.Group, time.Now())+time.Second)) {
		text := fmt.Sprintf("queue %s lets %d of a group start in %v, and more of group %q wait: %s", j.Queue, t.Rate().Starts, t.Rate().Per, j.Group, due)
		w.add(WhyReason{Code: WhyThrottle, Queue: j.Queue, Until: j.DueAt, Text: text})
		return true
	}
	for i := range workers {
		if n, _, _ := workers[i].limits(j.Queue, j.Kind); n.GroupThrottled {
			w.add(WhyReason{Code: WhyNotDue, Until: j.DueAt, Text: "it was enqueued for later, or put off by the throttle of its group: " + due})
			return true
		}
	}
	return false
}

// blocked adds what a blocked job waits for.
func (q *Queue) blocked(ctx context.Context, w *Why, j *JobInfo) error {
	r := WhyReason{Code: WhyBlocked, Queue: j.Queue}
	place, err := q.store.Ahead(ctx, j.ID, mostAhead)
	if errors.Is(err, ErrNotFound) || err == nil && place.Head == (ID{}) { // it has moved on
		return nil
	}
	if err != nil {
		return err
	}
	limit, err := q.groupLimit(ctx, j.Queue)
	if err != nil {
		return err
	}
	r.N, r.More, r.Job = place.N+1, place.More, place.Head
	switch {
	case j.Group == "":
		r.Text = fmt.Sprintf("it is behind the job that holds its unique key, %v", r.Job)
	case limit > 1:
		r.N, r.Of = place.N, limit
		r.Text = fmt.Sprintf("%d jobs of its group %q run or are ready, as many as may, and %s before it: the first is %v",
			limit, j.Group, someJobs(place, " waits", " wait"), r.Job)
	default:
		if !place.More {
			place.N++ // the head
		}
		r.Text = fmt.Sprintf("it is behind %s of its group %q, whose head is %v", someJobs(place, "", ""), j.Group, r.Job)
	}
	head, err := q.store.Job(ctx, place.Head)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case head.State == Dead:
		r.Reason, r.Since = string(head.Reason), head.EndedAt
		r.Text += fmt.Sprintf(", dead as %s since %s%s", head.Reason, moment(head.EndedAt), because(head.Error))
	default:
		r.Text += fmt.Sprintf(", which is %s", head.State)
	}
	w.add(r)
	return nil
}

// groupLimit returns how many jobs of a group of a queue run at a time.
func (q *Queue) groupLimit(ctx context.Context, queue string) (int, error) {
	all, err := q.Settings(ctx)
	limit := 1
	for i := range all {
		if l := &all[i]; l.Queue == queue && l.Kind == "" && l.GroupLimit != nil {
			limit = max(limit, *l.GroupLimit)
		}
	}
	return limit, err
}

// someJobs counts jobs in words, before a verb.
func someJobs(a storage.Ahead, verb, verbs string) string {
	switch {
	case a.More:
		return fmt.Sprintf("more than %d jobs%s", a.N, verbs)
	case a.N == 0:
		return "no job" + verb
	case a.N == 1:
		return "1 job" + verb
	}
	return fmt.Sprintf("%d jobs%s", a.N, verbs)
}
