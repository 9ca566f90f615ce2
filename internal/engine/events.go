package engine

import (
	"log/slog"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// Events takes what the engine tells of jobs and lanes. It must not block, and must be
// safe for concurrent use.
type Events interface {
	// Wanted reports whether anybody listens. The engine asks once for a batch.
	Wanted() bool
	Tell(Event)
}

// Event is what has happened to a job or a lane. errand.Event explains the fields.
type Event struct {
	Type           string
	At             time.Time
	ID             storage.ID
	Queue, Kind    string
	Attempt, Retry int
	Reason, Error  string
	Due            time.Time
	Used           int
	Unique         string // the key as the job has it
	Duplicates     []Duplicate
}

// Duplicate is a job that was not enqueued, as another one, ID, held its unique key.
type Duplicate struct {
	ID           storage.ID
	Kind, Unique string
}

// The types of events that come from here. Those of outcomes are the names of these but
// for a few.
const (
	EventStarted     = "started"
	EventRetriesUsed = "retries used"
	EventLeaseLost   = "lease lost"
	EventHeld        = "held"
	EventReleased    = "released"
	EventEnqueued    = "enqueued"
	EventReplaced    = "replaced"
)

// outcomeEvents are the types of events by outcome; empty: none, as nothing was tried.
var outcomeEvents = [...]string{
	storage.OutcomeDone: "done", storage.OutcomeCancelled: "cancelled", storage.OutcomeRetry: "retried",
	storage.OutcomeSnooze: "snoozed", storage.OutcomeCrashed: "crashed", storage.OutcomeInterrupted: "interrupted",
	storage.OutcomeDead: "dead", storage.OutcomeUnavailable: "unavailable",
}

// listens reports whether anybody wants events.
func (c *Config) listens() bool { return c.Events != nil && c.Events.Wanted() }

// jobEvent returns an event about a job.
func jobEvent(what string, at time.Time, job *storage.Leased) Event {
	return Event{Type: what, At: at, ID: job.ID, Queue: job.Queue, Kind: job.Kind, Attempt: job.Attempt, Retry: job.Retry}
}

// tellJob tells of a job, if anybody listens.
func (l *loop) tellJob(what string, job *storage.Leased) {
	if l.cfg.listens() {
		l.cfg.Events.Tell(jobEvent(what, l.clock(), job))
	}
}

// tellStarted tells that the handler is about to be called.
func (a *attempt) tellStarted() {
	if a.watched {
		a.cfg.Events.Tell(jobEvent(EventStarted, a.cfg.Clock.Now(), a.job))
	}
}

// tellWritten tells of the outcomes that were written.
func (l *loop) tellWritten(all []outcome, results []storage.ItemResult, then map[int][]storage.Enqueued) {
	if !l.cfg.listens() {
		return
	}
	now := l.clock()
	for i := range all {
		o := &all[i]
		f := &o.Finish
		switch results[i] {
		case storage.Applied:
		case storage.Spent:
			f = f.Spent
		case storage.Lost:
			if !o.feared {
				l.cfg.Events.Tell(jobEvent(EventLeaseLost, now, o.job))
			}
			continue
		default:
			continue
		}
		e := jobEvent(outcomeEvents[f.Outcome], now, o.job)
		if f.Outcome == storage.OutcomeReturned && f.Error != "" {
			e.Type = outcomeEvents[storage.OutcomeCancelled]
		}
		if e.Type == "" {
			continue
		}
		c := f.Effect(false).Counters(o.job.Counters)
		e.Attempt, e.Retry, e.Error, e.Reason = c.Attempt, c.Retry, f.Error, string(f.Reason)
		if f.Failure != nil && e.Error == "" {
			e.Error = f.Failure.Error
		}
		if e.Due = f.DueAt; e.Due.IsZero() && f.Effect(false).State == storage.Ready {
			e.Due = now
		}
		if added := then[i]; added != nil {
			e.Duplicates = l.tellFollowed(f.Then, added, now)
		}
		l.cfg.Events.Tell(e)
		if o.used > 0 && f.Outcome == storage.OutcomeRetry {
			e.Type, e.Used = EventRetriesUsed, o.used
			l.cfg.Events.Tell(e)
		}
	}
}

// tellRulings tells of the rulings that were written.
func (l *loop) tellRulings() {
	if !l.cfg.listens() {
		return
	}
	now := l.clock()
	for _, r := range l.ready.holds.rulings.flight {
		e := Event{Type: EventHeld, At: now, Queue: r.Queue, Kind: r.Kind, Reason: r.Reason, Error: r.Detail, Due: r.end}
		if r.ends {
			e.Type = EventReleased
		}
		if !r.again {
			l.cfg.Events.Tell(e)
		}
	}
}

// tellFired tells of jobs that a schedule has enqueued.
func (l *loop) tellFired(p *plan, ticks []storage.Tick) {
	if !l.cfg.listens() {
		return
	}
	for _, t := range ticks {
		if t.Taken == storage.TickFired {
			l.cfg.Events.Tell(Event{Type: EventEnqueued, At: l.clock(), ID: t.ID, Queue: p.Job.Queue, Kind: p.Job.Kind, Due: t.At, Unique: p.Job.Unique})
		}
	}
}

const retriesUsed = "errand: job has used much of its retries"

// marks are the parts of its retries, in percent, of which a job is told that it has
// used them.
var marks = [...]int{50, 70, 90}

// mark returns the highest mark that is reached with the retry after this many, of all
// that a policy has; zero if none is. A policy with so few that two marks fall together
// has none.
func mark(retry, all int) (reached int) {
	last := 0
	for _, percent := range marks {
		n := (all*percent + 99) / 100
		if n == last {
			return 0
		}
		if last = n; n == retry+1 {
			reached = percent
		}
	}
	return reached
}

// used returns the mark that a job reaches with the retry of f; zero if it reaches none.
func (c *Config) used(a *attempt, f *storage.Finish) int {
	class := a.verdict.class
	if f.Outcome == storage.OutcomeUnavailable {
		f, class = f.Spent, policy.Retryable
	}
	if f == nil || f.Outcome != storage.OutcomeRetry {
		return 0
	}
	d, _ := c.policyOf(a.job)
	return mark(a.job.Retry, a.verdict.policyOr(d).For(class).Retries)
}

// warnUsed logs that a job has reached a mark.
func (r *reports) warnUsed(o *outcome, result storage.ItemResult) {
	if o.used > 0 && (result == storage.Applied && o.Outcome == storage.OutcomeRetry || result == storage.Spent) {
		r.job(slog.LevelInfo, retriesUsed, o.job, "", "used_percent", o.used)
	}
}
