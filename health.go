package errand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/logs"
	"github.com/errandq/errand/storage"
)

// HealthOptions configure [Queue.Health]. Nil and the zero value mean defaults.
type HealthOptions struct {
	// MaxAge is how long a job that does not run may have been due, in a lane that is not
	// held. If zero, 1 h; if negative, any time.
	MaxAge time.Duration
}

const (
	defaultMaxAge = time.Hour
	// slowLogger is how long a call of a logger may take.
	slowLogger = time.Second
	// longAway is for how long a lane may be held as unavailable.
	longAway = 7 * 24 * time.Hour
	// mostBehind is of how many queues it is said what waits behind dead jobs.
	mostBehind = 100
)

// Health is how a queue is. It is made to be served as JSON by an application, under
// /healthz for instance.
type Health struct {
	// Live is false if the queue in this process cannot be used any more: it was closed, or
	// closed itself after a failure. It must be opened again.
	Live bool `json:"live"`
	// Ready is true if work can be taken in: an Enqueue would go through, if no cap of its
	// queue or of the file is reached.
	Ready bool `json:"ready"`
	// Reasons are why Live or Ready is false, and what else somebody should look at.
	Reasons []HealthReason `json:"reasons,omitempty"`
}

// HealthCode says in a word what a [HealthReason] is.
type HealthCode string

// The codes. Those from HealthSpace on leave the queue ready.
const (
	// HealthClosed: the queue was closed. It is not live.
	HealthClosed HealthCode = "closed"
	// HealthDamage: the database is damaged. The queue is not ready.
	HealthDamage HealthCode = "damage"
	// HealthFull: there is no space left. The queue is not ready.
	HealthFull HealthCode = "full"
	// HealthWrite: the database cannot be written for another reason, or did not answer
	// in time. The queue is not ready.
	HealthWrite HealthCode = "write"
	// HealthReadOnly: the file is open for reading alone, so it is not known whether it can be
	// written. The queue is not ready.
	HealthReadOnly HealthCode = "read-only"
	// HealthTakenAway: a file of the database was taken away, see [ErrTakenAway], and what the
	// queue had is not saved yet. The queue is not ready.
	HealthTakenAway HealthCode = "taken-away"
	// HealthSpace: the disk is nearly full, or has less free than [Settings].MinFree of Queue
	// or of the whole file.
	HealthSpace HealthCode = "space"
	// HealthClock: the wall clock cannot be right.
	HealthClock HealthCode = "clock"
	// HealthOverdue: a job of Queue and Kind has been due since Since, for longer than
	// HealthOptions.MaxAge.
	HealthOverdue HealthCode = "overdue"
	// HealthBrake: jobs of Queue and Kind are held since Since, as too many died.
	HealthBrake HealthCode = "brake"
	// HealthUnavailable: jobs of Queue and Kind are held since Since, for more than a week,
	// as the other side cannot be reached.
	HealthUnavailable HealthCode = "unavailable"
	// HealthCap: 95 % or more of MaxJobs or MaxBytes of Queue, or of the whole file if that
	// is empty, are in use. New jobs are refused or others deleted soon, or already.
	HealthCap HealthCode = "cap"
	// HealthLog: the application's logger has not returned from a call since Since, which
	// the log cannot say.
	HealthLog HealthCode = "log"
	// HealthDead: there are 80 % or more of MaxDead dead letters of Queue and Kind; an empty
	// name stands for any. With EvictDead, dead letters are deleted soon, or already.
	HealthDead HealthCode = "dead"
	// HealthDeadHead: jobs of Queue wait behind dead jobs of their groups, the first of which
	// died at Since, until somebody redrives, purges or skips the dead ones; see
	// [Queue.Groups]. With a GroupLimit above 1 or PassDead, see [Settings], no job waits
	// behind a dead one.
	HealthDeadHead HealthCode = "dead_head"
	// HealthSchedule: Schedule cannot be read by this process, as its time zone is missing for
	// instance. Workers like this one do not fire it.
	HealthSchedule HealthCode = "schedule"
)

// HealthReason is one reason in a [Health].
type HealthReason struct {
	Code HealthCode `json:"code"`
	// Text is the reason in words, for people.
	Text  string    `json:"text"`
	Queue string    `json:"queue,omitempty"`
	Kind  string    `json:"kind,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Of HealthSchedule: the name.
	Schedule string `json:"schedule,omitempty"`
	// Of HealthCap: the caps, 0 for none, and the use, see [CapUse].
	MaxJobs  int64 `json:"max_jobs,omitempty"`
	MaxBytes int64 `json:"max_bytes,omitempty"`
	Jobs     int64 `json:"jobs,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"`
	// Of HealthDeadHead, of the first 100 queues by name: how many Groups wait, and how many
	// Jobs of theirs. There are at least so many if More is true: 1,000 groups and 2,000 jobs
	// of a queue are counted. If more queues have some, one further reason, without Queue, has
	// the numbers of the next one alone. It has no numbers if it is not known whether more queues
	// have some: of groups in which jobs wait, but none behind a dead one, 50,000 are looked at.
	Groups int64 `json:"groups,omitempty"`
	More   bool  `json:"more,omitempty"`
	// Of HealthDead: the cap, and how many dead letters there are.
	MaxDead int64 `json:"max_dead,omitempty"`
	Dead    int64 `json:"dead,omitempty"`
}

// Health returns how the queue is: whether the store can be written, its disk, the clock,
// loggers, damage, caps, jobs that have been due for long, lanes that stay held, jobs behind
// dead ones, schedules. It writes nothing, but waits for its turn as a write does: give ctx a deadline. What
// cannot be found out before ctx ends makes the queue not ready.
func (q *Queue) Health(ctx context.Context, o *HealthOptions) Health {
	maxAge := cmp.Or(cmp.Or(o, &HealthOptions{}).MaxAge, defaultMaxAge)
	h := Health{Live: true, Ready: true}
	clock := q.Clock()
	c, err := q.store.Check(ctx)
	var holds []HoldState
	if err == nil {
		holds, err = q.store.Holds(ctx, clock.Now)
	}
	oldest := c.Oldest
	if err == nil && maxAge > 0 {
		var late map[Lane]time.Time
		late, err = q.late(ctx, clock.Now.Add(-maxAge))
		for lane, at := range late {
			oldest = append(oldest, storage.LaneDue{Lane: lane, DueAt: at})
		}
		oldest = firstDue(oldest)
	}
	var caps Health
	if err == nil {
		err = caps.caps(ctx, q, c.Free)
	}
	if err == nil {
		err = caps.schedules(ctx, q)
	}
	if err == nil {
		err = caps.behindDead(ctx, q)
	}
	h.fails(cmp.Or(err, c.Write))
	if c.Low {
		h.add(HealthReason{Code: HealthSpace, Text: fmt.Sprintf("the disk is nearly full: %d MiB are free", c.Free>>20)})
	}
	if !clock.Plausible {
		h.add(HealthReason{Code: HealthClock, Text: "the wall clock is before the time at which the program was built"})
	}
	q.loggers.report(&h)
	h.Reasons = append(h.Reasons, caps.Reasons...)
	h.held(holds, clock.Now)
	for _, due := range oldest {
		lane := func(s HoldState) bool { return s.Includes(due.Queue, due.Kind) }
		if age := clock.Now.Sub(due.DueAt); maxAge > 0 && age > maxAge && !slices.ContainsFunc(holds, lane) {
			text := fmt.Sprintf("a job of %s has been due for %v", laneText(due.Queue, due.Kind), age.Round(time.Second))
			h.add(HealthReason{Code: HealthOverdue, Text: text, Queue: due.Queue, Kind: due.Kind, Since: due.DueAt})
		}
	}
	return h
}

// loggers are those that a queue and its workers log to, each as [logs.New] returns it.
type loggers struct {
	mu  sync.Mutex
	all []*slog.Logger
}

// loggers returns the loggers of a queue and of its store.
func (o *Options) loggers() (queue, store *slog.Logger) {
	queue = logs.New(cmp.Or(o.Logger, slog.Default()))
	if own := o.SQLite.Logger; own != nil && logs.Share(own, queue) == nil {
		return queue, logs.New(own)
	}
	return queue, queue
}

// of returns a logger for one of the application's, the same for the same one.
func (ls *loggers) of(log *slog.Logger) *slog.Logger {
	ls.mu.Lock()
	known := logs.Share(log, ls.all...)
	ls.mu.Unlock()
	if known != nil {
		return known
	}
	log = logs.New(log) // without the lock: it calls the application
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = append(ls.all, log)
	return log
}

// list returns the loggers, each once.
func (ls *loggers) list() []*slog.Logger {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := slices.Clone(ls.all)
	return slices.CompactFunc(all, func(a, b *slog.Logger) bool { return a == b })
}

// wait waits until all loggers have taken what was logged, but not for long.
func (ls *loggers) wait() {
	for _, log := range ls.list() {
		logs.Wait(log)
	}
}

// report adds the loggers that do not return from a call.
func (ls *loggers) report(h *Health) {
	for _, log := range ls.list() {
		s := logs.StateOf(log)
		if s.For < slowLogger {
			continue
		}
		text := fmt.Sprintf("the logger has not returned for %v; records that wait: %d, dropped: %d", s.For.Round(time.Second), s.Waiting, s.Dropped)
		h.add(HealthReason{Code: HealthLog, Text: text, Since: time.Now().Add(-s.For)})
	}
}

// firstDue returns the earliest time of each lane, by lane.
func firstDue(all []storage.LaneDue) []storage.LaneDue {
	slices.SortFunc(all, func(a, b storage.LaneDue) int { return cmp.Or(a.Compare(b.Lane), a.DueAt.Compare(b.DueAt)) })
	return slices.CompactFunc(all, func(a, b storage.LaneDue) bool { return a.Lane == b.Lane })
}

func (h *Health) add(r HealthReason) { h.Reasons = append(h.Reasons, r) }

// fails adds why the store cannot be used, if err is not nil.
func (h *Health) fails(err error) {
	if err == nil {
		return
	}
	code := HealthWrite
	switch {
	case errors.Is(err, ErrClosed):
		code, h.Live = HealthClosed, false
	case errors.Is(err, ErrTakenAway):
		code = HealthTakenAway
	case errors.Is(err, ErrCorrupt):
		code = HealthDamage
	case errors.Is(err, ErrFull):
		code = HealthFull
	case errors.Is(err, ErrReadOnly):
		code = HealthReadOnly
	}
	h.Ready = false
	h.add(HealthReason{Code: code, Text: err.Error()})
}

// schedules adds the schedules that are left alone here.
func (h *Health) schedules(ctx context.Context, q *Queue) error {
	store, ok := q.store.(storage.Scheduler)
	if !ok {
		return nil
	}
	all, err := store.Schedules(ctx)
	for i := range all {
		if why := engine.Unreadable(&all[i].Schedule); why != nil {
			text := fmt.Sprintf("schedule %q is not fired here, as it cannot be read: %v; mend that, or declare it anew", all[i].Name, why)
			h.add(HealthReason{Code: HealthSchedule, Text: text, Schedule: all[i].Name})
		}
	}
	return err
}

// behindDead adds the queues in which jobs wait behind dead ones.
func (h *Health) behindDead(ctx context.Context, q *Queue) error {
	all, err := q.store.BehindDead(ctx, "", mostBehind+1)
	for i := range all {
		b, least := &all[i], ""
		if b.Queue == "" {
			text := "there are too many groups with a dead job to look at all: jobs of more queues may wait behind dead jobs of their groups"
			h.add(HealthReason{Code: HealthDeadHead, Text: text, More: true})
			break
		}
		if i == mostBehind {
			text := "jobs of more queues wait behind dead jobs of their groups: redrive or skip these"
			h.add(HealthReason{Code: HealthDeadHead, Text: text, Since: b.Since, Jobs: int64(b.Jobs), Groups: int64(b.Groups), More: true})
			break
		}
		if b.More {
			least = "at least "
		}
		text := fmt.Sprintf("jobs of queue %s wait behind dead jobs of their groups, the first since %s: redrive or skip these; jobs that wait: %s%d, groups: %s%d",
			b.Queue, moment(b.Since), least, b.Jobs, least, b.Groups)
		h.add(HealthReason{Code: HealthDeadHead, Text: text, Queue: b.Queue, Since: b.Since, Jobs: int64(b.Jobs), Groups: int64(b.Groups), More: b.More})
	}
	return err
}

// held adds the lanes that errand holds and that stay held.
func (h *Health) held(holds []HoldState, now time.Time) {
	for _, s := range holds {
		r := HealthReason{Queue: s.Queue, Kind: s.Kind, Since: s.Since}
		switch {
		case s.Reason == storage.HoldBrake:
			r.Code = HealthBrake
			r.Text = fmt.Sprintf("%s is held since %s, as too many jobs died%s", laneText(s.Queue, s.Kind), moment(s.Since), because(s.Detail))
		case s.Reason == storage.HoldUnavailable && now.Sub(s.Since) > longAway:
			r.Code = HealthUnavailable
			r.Text = fmt.Sprintf("%s is held since %s, as the other side cannot be reached%s", laneText(s.Queue, s.Kind), moment(s.Since), because(s.Detail))
		default:
			continue
		}
		h.add(r)
	}
}
