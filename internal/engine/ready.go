package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// ready are the attempts that were leased and wait to start.
type ready struct {
	waiting  []*attempt // for a runner, in this order
	suspects suspects   // wait for the turnstile
	starts   starts     // wait until it is written that they start
	pace     pace
	holds    holds
	watched  bool // somebody is to be told of what starts now
	yielded  bool // waiting was given back, and no handler has ended since
}

// want returns how many jobs to lease now: as many as can start at once, and
// some ahead.
func (l *loop) want() int {
	if !l.shutdown.working() {
		return 0
	}
	n := l.runners.free() - len(l.ready.waiting)
	switch {
	case l.health.err != nil:
		n = min(n, 1) // enough to see whether it works again
	case !l.ready.yielded:
		n += l.ready.pace.ahead(l.cfg.Concurrency)
	}
	return max(n, 0)
}

// admit takes over leases that were asked for at sent.
func (l *loop) admit(jobs []storage.Leased, sent time.Time) {
	if len(jobs) == 0 {
		return
	}
	attempts := make([]attempt, len(jobs))
	var many []*attempt
	for i := range jobs {
		a := &attempts[i]
		a.cfg, a.job, a.leased, a.safe = l.cfg, &jobs[i], sent, l.safe(sent)
		a.loop, a.own.of = l, a
		from := l.sources.of(a.job)
		if from == nil {
			l.reports.job(slog.LevelError, notAsked, a.job, "")
			l.giveBack(a, l.clock().Add(backDelay))
			continue
		}
		if a.from = from; !a.job.Urgent { // which takes no token
			a.throttle = from.throttle
		}
		suspect := a.job.Crashes >= suspectCrashes
		switch {
		case !l.shutdown.working():
			l.giveBack(a, time.Time{})
		case !a.job.Urgent && from.left() == 0: // handed over just before an exchange asked for as many
			l.giveBack(a, time.Time{})
		case l.held(a.job):
			l.giveBack(a, time.Time{})
		case a.job.Behind > 0 && (a.job.WriteStart || !a.follows(many)):
			l.giveBack(a, time.Time{})
		case a.job.Crashes > 0 && l.buryCrashed(a):
		case suspect && len(l.ready.suspects.waiting) >= l.cfg.Concurrency:
			l.turnBack(a)
		case suspect:
			l.reports.suspect(a.job)
			l.leases.hold(a, sent, l.cfg.LeaseDuration)
			a.suspect = true
			l.ready.suspects.waiting = append(l.ready.suspects.waiting, a)
			l.startReady(time.Now()) // so that the next suspect finds its place free
		case a.job.Urgent:
			l.admitUrgent(a, sent)
		case from.batch != nil && a.job.Crashes == 0 && !a.job.Probe && !a.job.WriteStart:
			many = append(many, a)
		default:
			l.leases.hold(a, sent, l.cfg.LeaseDuration)
			l.ready.waiting = append(l.ready.waiting, a)
		}
	}
	l.admitMany(many, sent)
}

// buryCrashed makes a job a dead letter if it has crashed too often for the
// MaxCrashes of its kind, or for a policy without retries, and reports whether it
// has. The process that recovered the job may not have known the two.
func (l *loop) buryCrashed(a *attempt) bool {
	d := l.cfg.effective(a.job)
	if !l.cfg.diesOf(a.job.Crashes, a.job, d) {
		return false
	}
	if a.job.Probe {
		l.ajar(a.job)
	}
	a.refund()
	a.from.mayHaveWork = true // others may have been passed over for it
	f := storage.Finish{Lease: a.job.Lease}
	text := fmt.Sprintf("its process died %d times in a row while the handler ran", a.job.Crashes)
	f = dead(f, a.job, d, storage.ReasonCrashed, text)
	l.outcomes.add(a.job, f)
	l.reports.dead(a.job, &f)
	return true
}

// giveBack returns a lease whose handler was not called. The attempt does not
// count, unless there was a call before. That of a job in order does not either.
func (l *loop) giveBack(a *attempt, due time.Time) {
	if a.job.Probe {
		l.ajar(a.job)
	}
	a.refund()
	if a.again {
		a.unpay()
	}
	l.addBack(a, a.repeated(storage.Finish{Lease: a.job.Lease, Outcome: storage.OutcomeReturned, DueAt: due}))
}

// addBack adds the outcome of an attempt that ends without a call, or another one.
func (l *loop) addBack(a *attempt, f storage.Finish) {
	l.outcomes.add(a.job, f)
	l.outcomes.waiting[len(l.outcomes.waiting)-1].open = l.leftOpen(a)
}

// startReady starts attempts that wait, as far as there are runners. An attempt
// whose lease may be lost waits for the next heartbeat.
func (l *loop) startReady(now time.Time) {
	if !l.shutdown.working() || l.health.doubt != nil {
		return
	}
	known := l.knowsHolds(now)
	l.heedGates()
	l.ready.watched = len(l.ready.waiting)+len(l.ready.suspects.waiting) > 0 && l.cfg.listens()
	l.startSuspects(now)
	n, kept, all := 0, 0, l.ready.waiting
	for ; n < len(all) && l.runners.free() > 0 && now.Before(all[n].safe); n++ {
		if !known && l.unread(all[n]) || all[n].awaitsGate() {
			all[kept] = all[n]
			kept++
			continue
		}
		l.start(all[n], now)
	}
	if n > kept {
		rest := kept + copy(all[kept:], all[n:])
		clear(all[rest:])
		l.ready.waiting = all[:rest]
	}
}

// unread reports whether the holds of the lane of an attempt, or of another one of its call, may
// have changed since they were read.
func (l *loop) unread(a *attempt) bool {
	return !a.job.Urgent && l.runners.holds.sinceOf(l.ready.holds.heeded, a.together())
}

// start hands an attempt to a runner, unless the budget for retries is empty. It
// reports whether it has, or will once it is written that the attempt starts.
func (l *loop) start(a *attempt, now time.Time) bool {
	if a.batch != nil {
		return l.startBatch(a.batch, now)
	}
	a.handler, _ = l.cfg.handler(a.job.Queue, a.job.Kind)
	if !l.pay(a, now) {
		return false
	}
	if a.job.WriteStart && !a.company {
		l.writeStart(a)
	} else {
		l.hand(a, now)
	}
	return true
}

// hand starts an attempt that was paid for on a runner.
func (l *loop) hand(a *attempt, now time.Time) {
	a.heeded, a.watched = l.ready.holds.heeded, l.ready.watched
	ctx, cancel := context.WithCancelCause(l.runners.ctx)
	a.own.Context, a.cancel = ctx, cancel
	if a.timeout = l.timeoutOf(a); a.timeout > 0 {
		ctx, stop := context.WithTimeout(ctx, a.timeout)
		a.own.Context = ctx
		a.cancel = func(cause error) {
			cancel(cause)
			stop()
		}
		l.expectEnd(a, now.Add(a.timeout))
	}
	a.ctx = &a.own
	l.leases.loseAt = sooner(l.leases.loseAt, a.safe)
	if a.job.Probe {
		a.probing = &probing{began: now}
	}
	l.countsFrom(a, now)
	l.runners.hand(a)
}

// end takes an attempt back from its runner.
func (l *loop) end(a *attempt) {
	l.runners.takeBack(a)
	if a.unread && l.lookAgain(a) {
		return
	}
	l.ready.yielded = false
	if a.batch != nil {
		l.endBatch(a.batch)
		return
	}
	l.called(a)
	l.concluded(a)
}

// called takes notice of the end of a call of a handler.
func (l *loop) called(a *attempt) {
	if a.verdict.kind == verdictUnstarted {
		return
	}
	if !a.from.limited() { // of the others too few are leased ahead to matter
		l.ready.pace.handled(a.counted())
	}
	l.sources.ramps.ended(a)
	if l.health.atStart {
		l.worksAgain()
	}
}

// concluded adds the outcome of an attempt that has ended.
func (l *loop) concluded(a *attempt) {
	l.leases.release(a)
	l.ready.suspects.acquit(a)
	if a.stuck {
		l.cfg.Logger.Warn("errand: stuck handler ended", l.attrs(a)...)
	}
	if a.budget != nil {
		a.settle()
	}
	if a.verdict.kind == verdictUnstarted {
		a.refund()
		a.refundGroup()
	}
	if a.noteErr != nil {
		l.cfg.Logger.Error("errand: end of a handler could not be noted", l.attrs(a, "error", a.noteErr)...)
	}
	if a.completed {
		l.endCompleted(a)
		return
	}
	if a.lost { // the outcome would be refused
		if a.began > 0 {
			l.cfg.Lanes.meters.lost(a.job)
		}
		drop(a.job, false)
		l.reports.ended(a, &storage.Finish{})
		return
	}
	if a.notCalled() {
		l.giveBack(a, time.Time{})
		return
	}
	var now time.Time
	if a.verdict.kind != verdictDone {
		now = l.clock()
	}
	f := a.repeated(l.cfg.outcome(a.job, a.verdict, a.took, now))
	if !a.job.Deadline.IsZero() {
		f = l.cfg.past(f, a.job, now, a.verdict.text)
	}
	if a.verdict.trouble != nil {
		l.doubtStore(a)
	} else {
		l.learn(a, &f, now)
		l.countForKick(a, f.Outcome)
	}
	used := 0
	if a.verdict.kind == verdictFailed || a.verdict.kind == verdictDecode {
		used = l.cfg.used(a, &f)
	}
	l.outcomes.add(a.job, a.followed(f))
	o := &l.outcomes.waiting[len(l.outcomes.waiting)-1]
	o.timing, o.used, o.feared, o.open = a.timing, used, a.feared(), l.leftOpen(a)
	if f.Outcome == storage.OutcomeReturned {
		l.trouble(a.startErr, true, false, time.Now())
	}
	if a.verdict.kind != verdictDone {
		l.reports.ended(a, &f)
	}
}

// unqueue forgets the lease of an attempt that has not started.
func (l *loop) unqueue(a *attempt) {
	l.leases.release(a)
	a.refund()
	a.unpay()
	l.stopStarting(a)
	l.leave(a)
	l.ready.suspects.waiting = slices.DeleteFunc(l.ready.suspects.waiting, func(w *attempt) bool { return w == a })
}
