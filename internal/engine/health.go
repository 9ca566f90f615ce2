package engine

import (
	"context"
	"errors"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// health is what the loop knows of the store from its exchanges and from the
// notes of starts. The first one that fails begins a streak of errors. A streak
// that began with an exchange ends with an exchange that succeeds, one that began
// with a note ends with a note. Chores have a backoff of their own.
type health struct {
	err     error // the last one of the streak; nil: there is no streak
	atStart bool  // the streak began with the note of a start
	// cannotLease: the disk had no space for an exchange that leases.
	cannotLease bool
	backoff     time.Duration
	retryAt     time.Time // the store is not called before
	// doubt is the error of the store that an attempt has met. No handler is called until an
	// exchange has succeeded, or has failed otherwise. If nil, none is doubted.
	doubt error
}

// failed notes an error. The store is left alone for a time that grows with each
// error of the streak.
func (h *health) failed(err error, atStart, leasing bool, now time.Time) {
	if h.err == nil {
		h.atStart = atStart
	}
	h.cannotLease = (leasing || h.cannotLease) && errors.Is(err, storage.ErrFull)
	h.err = err
	h.backoff = longer(h.backoff)
	h.retryAt = now.Add(h.backoff)
}

// later returns t, or when the store may be called again if that is later.
func (h *health) later(t time.Time) time.Time { return latest(t, h.retryAt) }

// longer returns the backoff that follows another failure.
func longer(backoff time.Duration) time.Duration {
	return min(max(2*backoff, minBackoff), maxBackoff)
}

// trouble notes that an exchange or the note of a start failed.
func (l *loop) trouble(err error, atStart, leasing bool, now time.Time) {
	if !errors.Is(err, l.health.doubt) {
		l.health.doubt = nil
	}
	l.complain(err)
	l.health.failed(err, atStart, leasing, now)
}

// complain logs the first error of a streak.
func (l *loop) complain(err error) {
	if l.health.err == nil && !l.chores.failing() {
		l.cfg.Logger.Error("errand: the store failed, trying again", "error", err)
	}
}

// worksAgain ends a streak of errors.
func (l *loop) worksAgain() {
	if l.health.err == nil {
		return
	}
	l.cfg.Logger.Info("errand: the store works again")
	l.health = health{}
}

// heedStore returns v, the verdict on an attempt that ended with err, or one that spares the job
// if err comes of the engine's own store, whatever wraps it. What the attempt has brought upon
// itself is its failure: to wait for its own transaction.
func (a *attempt) heedStore(v verdict, err error) verdict {
	if a.cfg.troubled == nil || err == nil || v.hold > 0 || v.kind != verdictFailed && v.kind != verdictDecode {
		return v
	}
	is, open := a.cfg.troubled.Trouble(err)
	if !is || open != nil && a.calledWith(open) {
		return v
	}
	for _, trouble := range []error{storage.ErrFull, storage.ErrBusy, storage.ErrIO} {
		if errors.Is(err, trouble) {
			return verdict{kind: verdictFailed, class: policy.Unavailable, trouble: trouble, text: v.text, stack: v.stack}
		}
	}
	return v
}

// calledWith reports whether ctx comes of the call of an attempt.
func (a *attempt) calledWith(ctx context.Context) bool {
	if a.batch == nil {
		o := AttemptOf(ctx)
		return o != nil && o.of == a
	}
	if o := AttemptOf(ctx); o != nil && o.of.batch == a.batch { // as that of Finish
		return true
	}
	return ctx.Value(batchKey{}) == a.batch
}

// troubledBy puts a job back that has met an error of the store. It waits for twice as long
// as the last time, which only the attempts that cost it nothing can tell.
func (c *Config) troubledBy(f storage.Finish, job *storage.Leased, v verdict, took time.Duration, now time.Time) storage.Finish {
	if c.outlasts(job, now) && c.troubledLong(job) {
		v.class = policy.Retryable
		return c.tooLong(f, job, v, took, now)
	}
	f.Outcome, f.DueAt, f.Error = storage.OutcomeUnavailable, now.Add(troubleWait(sparedLately(job))), v.text
	return f
}

// troubleWait returns for how long a job waits after n attempts and one that cost it nothing.
func troubleWait(n int) time.Duration { return min(leastOutage<<min(n, 10), mostOutage) }

// troubledLong reports whether the waits of a job after attempts that cost it nothing exceed what it
// may wait: its age alone says nothing of errors of the store, as delays and holds count for it.
func (c *Config) troubledLong(job *storage.Leased) bool {
	h, _ := c.handler(job.Queue, job.Kind)
	most := h.MaxUnavailable
	for n := range sparedLately(job) {
		if most -= troubleWait(n); most <= 0 {
			return true
		}
	}
	return false
}

// doubtStore takes the end of an attempt that has met an error of the store, which shows nothing
// of its lane.
func (l *loop) doubtStore(a *attempt) {
	l.health.doubt = a.verdict.trouble
	if l.isProbe(a) {
		l.ajar(a.job)
	}
	l.countForKick(a, storage.OutcomeInterrupted)
}

// fatalErrors are errors that another try cannot help.
var fatalErrors = []error{
	storage.ErrClosed, storage.ErrCorrupt, storage.ErrTooNew, storage.ErrUnknownOutcome, storage.ErrUnsupportedDB,
}

// endsWork begins to stop if err is fatal, and reports whether it is. An unknown outcome is
// not if the store stays open. forWork is false for an exchange of outcomes and heartbeats
// alone: after any other call a damaged store may still take those.
func (l *loop) endsWork(err error, forWork bool, now time.Time) bool {
	_, open := errors.AsType[*storage.UnknownOutcomeError](err)
	if errors.Is(err, storage.ErrTakenAway) && !errors.Is(err, storage.ErrClosed) {
		return false // until the store has saved what it has
	}
	for _, fatal := range fatalErrors {
		if !errors.Is(err, fatal) || open && errors.Is(fatal, storage.ErrUnknownOutcome) {
			continue
		}
		if errors.Is(fatal, storage.ErrCorrupt) && forWork {
			l.refuse(err, now)
		} else {
			l.die(err, now)
		}
		return true
	}
	return false
}
