package engine

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const jobExpired = "errand: job was not started in time"

// EventExpired is that a job was finished since it was not started in time.
const EventExpired = "expired"

// pastWindow reports whether it is too late for a job to begin. The store ends it then,
// once its lease is returned.
func pastWindow(job *storage.Leased, clock Clock) bool {
	if job.StartBy.IsZero() && job.Deadline.IsZero() {
		return false
	}
	now := clock.Now()
	return reached(job.StartBy, now) || reached(job.Deadline, now)
}

// timeoutOf returns the timeout of an attempt, 0 for none: that of its job, its handler or the Config,
// or what is left to the deadline of the job if that is less.
func (l *loop) timeoutOf(a *attempt) time.Duration {
	timeout := cmp.Or(a.job.Timeout, a.handler.Timeout, l.cfg.Timeout)
	switch {
	case a.handler.MaxCrashes == NoCrashes:
		return 0
	case a.job.Deadline.IsZero():
		return timeout
	}
	left := max(a.job.Deadline.Sub(l.clock()), 1)
	if timeout > 0 {
		left = min(left, timeout)
	}
	return left
}

// past makes f the death of a job if its deadline has come before the attempt that f
// would have begin. Of a deadline in doubt, and of a lease whose handler was not called,
// the store decides.
func (c *Config) past(f storage.Finish, job *storage.Leased, now time.Time, text string) storage.Finish {
	if job.Unsettled || f.Effect(false).State != storage.Ready || f.Outcome == storage.OutcomeReturned {
		return f
	}
	if f.Spent != nil {
		spent := c.past(*f.Spent, job, now, text)
		f.Spent = &spent
	}
	next := f.DueAt
	if next.Before(now) {
		next = now
	}
	if next.Before(job.Deadline) {
		return f
	}
	late := storage.Finish{Lease: f.Lease, Failure: f.Failure}
	return dead(late, job, c.effective(job), storage.ReasonDeadline, cmp.Or(text, storage.ErrorDeadline))
}

// expired takes what an exchange has ended as it was too late for it.
func (l *loop) expired(ended []storage.ExpiredJob, now time.Time) {
	if len(ended) == 0 {
		return
	}
	clock, tells := l.clock(), l.cfg.listens()
	for i := range ended {
		e := &ended[i]
		job := &storage.Leased{ID: e.ID, Queue: e.Queue, Kind: e.Kind, Counters: e.Counters}
		event := jobEvent(EventExpired, clock, job)
		event.Reason, event.Error = string(e.Reason), e.Error
		if e.State == storage.Dead {
			event.Type = outcomeEvents[storage.OutcomeDead]
			l.reports.dead(job, &storage.Finish{Reason: e.Reason, Error: e.Error})
		} else {
			l.reports.job(slog.LevelInfo, jobExpired, job, "")
			l.purgeAfter(e.Queue, e.Kind, now, clock)
		}
		if tells {
			l.cfg.Events.Tell(event)
		}
	}
}

// followsExpired returns what is enqueued with a job that dies without a lease.
func (c *Config) followsExpired(at time.Time) func(*storage.ExpiredJob) *storage.NewJob {
	if c.OnDeath == nil {
		return nil
	}
	return func(e *storage.ExpiredJob) *storage.NewJob {
		job := &storage.Leased{ID: e.ID, Queue: e.Queue, Kind: e.Kind, Counters: e.Counters, CreatedAt: e.CreatedAt}
		f := dead(storage.Finish{}, job, policy.Document{}, e.Reason, e.Error)
		return c.OnDeath(job, &f, at)
	}
}
