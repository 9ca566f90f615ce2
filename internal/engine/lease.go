package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// admit takes over leases that were granted.
func (l *loop) admit(ans answer, safe time.Time) {
	jobs, sent := ans.res.Leased, ans.sent
	if len(jobs) == 0 {
		return
	}
	attempts := make([]attempt, len(jobs))
	for i := range jobs {
		a := &attempts[i]
		a.cfg, a.job, a.safe, a.throttle = l.cfg, &jobs[i], safe, ans.from.throttle
		a.leased = sent
		suspect := a.job.Crashes >= suspectCrashes
		switch {
		case !l.shutdown.working():
			l.giveBack(a, time.Time{})
		case a.job.Crashes > 0 && l.buryCrashed(a):
		case suspect && len(l.suspects) >= l.cfg.Concurrency:
			l.turnBack(a)
		case suspect:
			l.reportSuspect(a.job)
			l.hold(a, sent)
			a.suspect = true
			l.suspects = append(l.suspects, a)
			l.startReady(time.Now())
		default:
			l.hold(a, sent)
			l.queue = append(l.queue, a)
		}
	}
}

// buryCrashed ends a job that has crashed and may not be run again: whoever
// recovered it did not know the policy of its kind.
func (l *loop) buryCrashed(a *attempt) bool {
	d := l.cfg.effective(a.job)
	if a.job.Crashes < l.cfg.maxCrashes(a.job.Kind) && d.For(policy.Retryable).Retries > 0 {
		return false
	}
	a.refund()
	f := storage.Finish{Lease: a.job.Lease, ID: a.job.ID, Keep: l.cfg.Keep}
	text := fmt.Sprintf("its process died %d times in a row while the handler ran", a.job.Crashes)
	f = dead(f, a.job, d, storage.ReasonCrashed, text)
	l.outcomes = append(l.outcomes, f)
	l.reportDead(a.job, &f)
	return true
}

// giveBack returns a lease unspent, its handler not having been called.
func (l *loop) giveBack(a *attempt, due time.Time) {
	a.refund()
	l.outcomes = append(l.outcomes, storage.Finish{
		Lease: a.job.Lease, ID: a.job.ID, Outcome: storage.OutcomeReturned, DueAt: due, Keep: l.cfg.Keep,
	})
}

func (l *loop) hold(a *attempt, sent time.Time) {
	a.slot = len(l.held)
	l.held = append(l.held, a)
	if l.beatAt.IsZero() {
		l.beatAt = sent.Add(l.cfg.Lease / 3)
	}
}

func (l *loop) release(a *attempt) {
	last := len(l.held) - 1
	l.held[a.slot] = l.held[last]
	l.held[a.slot].slot = a.slot
	l.held[last] = nil
	l.held = l.held[:last]
	a.gone = true
	if last == 0 {
		l.beatAt, l.loseAt, l.stuckAt = time.Time{}, time.Time{}, time.Time{}
	}
}

// startReady starts what waits, as far as there are runners. What may have
// lost its lease waits for the next extension.
func (l *loop) startReady(now time.Time) {
	if !l.shutdown.working() {
		return
	}
	l.startSuspects(now)
	n := 0
	for n < len(l.queue) && l.runners.free() > 0 && now.Before(l.queue[n].safe) {
		l.start(l.queue[n], now)
		n++
	}
	if n > 0 {
		rest := copy(l.queue, l.queue[n:])
		clear(l.queue[rest:])
		l.queue = l.queue[:rest]
	}
}

// start hands an attempt to a runner, unless the budget for retries is empty.
func (l *loop) start(a *attempt, now time.Time) bool {
	a.handler = l.cfg.Handlers[a.job.Kind]
	if !l.pay(a, now) {
		return false
	}
	a.throttle = nil
	ctx, cancel := context.WithCancelCause(l.handlers)
	a.ctx, a.cancel = ctx, cancel
	if a.timeout = cmp.Or(a.job.Timeout, a.handler.Timeout, l.cfg.Timeout); a.timeout > 0 {
		ctx, stop := context.WithTimeout(ctx, a.timeout)
		a.ctx = ctx
		a.cancel = func(cause error) {
			cancel(cause)
			stop()
		}
		l.expectEnd(a, now.Add(a.timeout))
	}
	l.loseAt = sooner(l.loseAt, a.safe)
	l.runners.hand(a)
	return true
}

// end takes an attempt back from its runner.
func (l *loop) end(a *attempt) {
	l.runners.takeBack(a)
	l.pace.handled(a.took)
	l.yielded = false
	l.release(a)
	l.acquit(a)
	if a.stuck {
		l.cfg.Logger.Warn("errand: stuck handler ended", l.attrs(a)...)
	}
	if a.budget != nil {
		a.settle()
	}
	if a.noteErr != nil {
		l.cfg.Logger.Warn("errand: end of a handler could not be noted", l.attrs(a, "error", a.noteErr)...)
	}
	if a.lost { // the outcome would be refused
		l.reportEnd(a, &storage.Finish{})
		return
	}
	var now time.Time
	if a.verdict.kind != verdictDone {
		now = l.clock()
	}
	f := l.cfg.outcome(a.job, a.verdict, a.took, now)
	l.outcomes = append(l.outcomes, f)
	if a.verdict.kind != verdictUnstarted && l.health.atStart {
		l.recovered()
	}
	defer a.drop()
	if f.Outcome == storage.OutcomeReturned {
		l.trouble(a.startErr, true, false, time.Now())
	}
	if a.verdict.kind != verdictDone {
		l.reportEnd(a, &f)
	}
}

// drop lets go of what is large: the jobs of one exchange lie in one slice,
// which lives as long as the longest of their handlers.
func (a *attempt) drop() { a.job.Args, a.job.Headers, a.job.Policy = nil, nil, nil }

// cancelFor ends the context of a running attempt. The first cause counts.
func (l *loop) cancelFor(a *attempt, cause error, now time.Time) {
	if !a.running || a.cause != nil {
		return
	}
	a.cause = cause
	a.cancel(cause)
	l.expectEnd(a, now)
}

// cancelJob does what somebody asked for who cancelled the job.
func (l *loop) cancelJob(a *attempt, now time.Time) {
	if a.running {
		l.cancelFor(a, ErrCancelled, now)
		return
	}
	l.unqueue(a)
	l.outcomes = append(l.outcomes, l.cfg.outcome(a.job, verdict{kind: verdictCancelled, text: ErrCancelled.Error()}, 0, now))
}

// lose notes that a lease is no longer held.
func (l *loop) lose(a *attempt, now time.Time) {
	if a.lost {
		return
	}
	a.lost = true
	l.logJob(slog.LevelWarn, leaseLost, a.job, "")
	if a.running {
		l.cancelFor(a, ErrLeaseLost, now)
	} else {
		l.unqueue(a)
	}
}

// unqueue forgets a lease whose attempt has not started.
func (l *loop) unqueue(a *attempt) {
	l.release(a)
	a.refund()
	l.queue = slices.DeleteFunc(l.queue, func(q *attempt) bool { return q == a })
	l.suspects = slices.DeleteFunc(l.suspects, func(q *attempt) bool { return q == a })
}

// loseUnsafe cancels the handlers whose leases could not be extended, while
// they are still held for certain. Extending goes on: as long as nobody else
// took the lease it may succeed after all, and keeps the job from being run
// twice at a time.
func (l *loop) loseUnsafe(now time.Time) {
	l.keepLeases(now)
	for _, a := range l.held {
		if a.running && a.cause == nil && !now.Before(a.safe) {
			l.logJob(slog.LevelWarn, notExtended, a.job, "")
			l.cancelFor(a, ErrLeaseLost, now)
		}
	}
	l.watchLeases()
}

// keepLeases keeps the leases that cannot be extended because nobody can write,
// as while another program has a transaction open: then nobody could have taken
// them either, and by a pulse others are kept from it for another lease.
func (l *loop) keepLeases(now time.Time) {
	p, ok := l.cfg.Store.(storage.Pulser)
	waiting := l.health.err == nil && l.exchanges.busy || errors.Is(l.health.err, storage.ErrBusy)
	if !ok || !waiting {
		return
	}
	if err := p.Pulse(); err != nil {
		l.cfg.Logger.Warn("errand: leases cannot be kept without the database", "error", err)
		return
	}
	late := time.Now().Add(-l.cfg.Lease / 12) // half of what is left of a lease when it is no longer safe
	for _, a := range l.held {
		if !a.lost && a.safe.After(late) {
			a.safe = latest(a.safe, now.Add(l.cfg.Lease-l.cfg.Lease/6))
		}
	}
}

// watchLeases sets when loseUnsafe must look again.
func (l *loop) watchLeases() {
	l.loseAt = time.Time{}
	for _, a := range l.held {
		if a.running && a.cause == nil {
			l.loseAt = sooner(l.loseAt, a.safe)
		}
	}
}

// sooner gives the earlier of two times, zero meaning never.
func sooner(t, u time.Time) time.Time {
	if t.IsZero() || u.Before(t) {
		return u
	}
	return t
}

// attrs gives the log attributes that name an attempt, and more.
func (l *loop) attrs(a *attempt, more ...any) []any {
	return append(jobAttrs(a.job), more...)
}
