package engine

import (
	"log/slog"
	"time"

	"github.com/errandq/errand/storage"
)

// outcomes are what became of attempts, until the store has written it.
type outcomes struct {
	waiting []storage.Finish
	flight  []storage.Finish // in the exchange under way
}

func (o *outcomes) add(f storage.Finish) { o.waiting = append(o.waiting, f) }

// send returns the outcomes for the next exchange.
func (o *outcomes) send() []storage.Finish {
	o.flight, o.waiting = o.waiting, o.flight[:0]
	return o.flight
}

// written forgets the outcomes of the exchange under way.
func (o *outcomes) written() {
	clear(o.flight)
	o.flight = o.flight[:0]
}

// putBack keeps the outcomes of an exchange that failed for the next one. Since
// it was put together the clock was set back by this much.
func (o *outcomes) putBack(by time.Duration) {
	earlier(o.flight, by)
	o.flight = append(o.flight, o.waiting...)
	clear(o.waiting)
	o.flight, o.waiting = o.waiting[:0], o.flight
}

// request is one call of the store. At most one exchange is under way, so that
// outcomes pile up meanwhile and go in one commit, and beside it one chore.
type request struct {
	op      operation
	clock   time.Time     // that it is put together by
	setBack time.Duration // the loop's then
	x       storage.Exchange
	from    *source // nil if x.Want is zero
	firings []storage.Firing
	after   int64 // of a pass of StepClock; of an answer: the next one
}

type operation uint8

const (
	opExchange operation = iota
	opReclaim
	opCount
	opPurge
	opClock // before anything is fired by a clock that may have to catch up
	opSchedules
	opFire
	opShift
	opWithdraw
	operations
)

type answer struct {
	request
	sent      time.Time
	res       storage.ExchangeResult
	reclaimed []storage.Reclaimed
	counts    []storage.Count
	paused    []string
	next      time.Time // purge again
	schedules []storage.Schedule
	fired     []storage.Fired
	mark      time.Time
	shifting  bool
	err       error
}

// caller leads to a goroutine that calls the store, one call at a time.
type caller struct {
	requests chan request
	answers  chan answer
	busy     bool // a call is under way
}

func newCaller() caller {
	return caller{requests: make(chan request, 1), answers: make(chan answer, 1)}
}

// end waits until the goroutine has ended.
func (c *caller) end() {
	close(c.requests)
	for range c.answers {
	}
}

// callStore calls the store for the loop, which must never wait.
func (l *loop) callStore(c caller) {
	defer close(c.answers)
	for r := range c.requests {
		c.answers <- l.call(r)
	}
}

// caller returns the one by which an operation goes.
func (l *loop) caller(op operation) *caller {
	if op >= firstChore && op <= lastChore {
		return &l.side
	}
	return &l.exchanges
}

func (l *loop) call(r request) answer {
	ctx, store := l.handlers, l.cfg.Store
	a := answer{request: r, sent: time.Now()}
	now := r.clock
	switch r.op {
	case opExchange:
		a.res, a.err = store.Exchange(ctx, now, r.x)
	case opReclaim:
		a.reclaimed, a.err = store.Reclaim(ctx, now, time.Since(origin), l.cfg.Lease, reapMost)
	case opCount:
		if a.counts, a.err = store.Counts(ctx); a.err == nil {
			a.paused, a.err = store.Paused(ctx)
		}
	case opPurge:
		_, a.next, a.err = store.PurgeFinished(ctx, now)
	case opSchedules:
		a.schedules, a.err = l.schedules.store.Schedules(ctx)
	case opFire:
		a.fired, a.err = l.schedules.store.Fire(ctx, now, r.firings)
	case opClock:
		a.mark, a.shifting, a.err = l.watch.keeper.Clock(ctx)
	case opWithdraw:
		l.withdraw()
	case opShift:
		a.after, a.err = l.watch.keeper.StepClock(ctx, now, r.after)
	}
	return a
}

// send makes the next calls of the store, if there is anything to call it for.
func (l *loop) send(now time.Time) {
	if l.shutdown.fatal != nil {
		return
	}
	if !l.shutdown.working() && l.sources.offering && !l.exchanges.busy {
		l.put(request{op: opWithdraw})
		return
	}
	if now.Before(l.health.retryAt) {
		return
	}
	// Chores come first: one of them waits until no exchange is under way.
	if !l.side.busy {
		if r, ok := l.chore(now); ok {
			l.put(r)
		}
	}
	if !l.exchanges.busy {
		l.sendExchange(now)
	}
}

func (l *loop) sendExchange(now time.Time) {
	if len(l.leases.held) == 0 {
		l.leases.heartbeatAt = time.Time{}
	}
	from := l.pick(now, false)
	// On a disk that is full outcomes may go through where a lease does not.
	alone := l.health.cannotLease && (len(l.outcomes.waiting) > 0 || reached(l.leases.heartbeatAt, now))
	if alone {
		from = nil
	}
	if len(l.outcomes.waiting) == 0 && !reached(l.leases.heartbeatAt, now) && from == nil {
		return
	}
	if from == nil && !alone {
		from = l.pick(now, true) // a look costs little more, and saves the next
	}
	l.put(l.exchange(from, now))
}

func (l *loop) put(r request) {
	c := l.caller(r.op)
	c.busy = true
	if r.op == opExchange {
		l.sources.leasing = r.x.Want > 0
	}
	c.requests <- r
}

// exchange puts the next exchange together, which leases from a source unless
// that is nil.
func (l *loop) exchange(from *source, now time.Time) request {
	r := request{op: opExchange, clock: l.clock(), setBack: l.watch.setBack, from: from}
	x := storage.Exchange{Length: l.cfg.Lease, Finish: l.outcomes.send()}
	if reached(l.leases.heartbeatAt, now) {
		x.Extend = l.leases.extend()
		l.leases.heartbeatAt = now.Add(l.cfg.Lease / 3)
	}
	if from != nil {
		l.lease(from, now, &x)
	}
	r.x = x
	return r
}

// answer takes what the store said.
func (l *loop) answer(a answer) {
	l.caller(a.op).busy = false
	if a.op == opExchange {
		l.sources.leasing = false
	}
	if l.shutdown.fatal != nil {
		return // from the other call: nothing is known of the leases any more
	}
	now := time.Now()
	if a.err != nil {
		l.failed(a, now)
		return
	}
	l.choreBackoff[a.op] = 0
	if l.choreFailed[a.op] = false; a.op == opExchange && a.sent.After(l.failedAt) {
		l.choreFailed = [operations]bool{} // what fails from now on is another streak
	}
	if a.op == opExchange && !l.health.atStart && (!l.health.cannotLease || a.x.Want > 0 || !l.shutdown.working()) {
		l.recovered()
	}
	switch a.op {
	case opExchange:
		l.exchanged(a, now)
	case opReclaim:
		l.recover(a.reclaimed, now)
	case opCount:
		l.unserved(a.counts, a.paused, now)
	case opPurge:
		l.purged(a, now)
	case opSchedules:
		l.haveRead(a.schedules, now)
	case opFire:
		l.fired(a, now)
	case opClock:
		if a.shifting {
			l.shift(now)
		}
		l.heard(a.mark, now)
	case opShift:
		l.shifted(a, now)
	case opWithdraw:
		l.sources.offering = false
		l.read() // what was handed over before
	}
}

func (l *loop) exchanged(a answer, now time.Time) {
	l.ready.pace.exchanged(now.Sub(a.sent))
	safe := a.sent.Add(l.cfg.Lease - l.cfg.Lease/6)
	l.extended(a.res.Extended, safe, now)
	l.finished(a, now)
	if want := a.x.Want; want > 0 {
		a.refund(want - len(a.res.Leased))
		if bytes := l.ready.pace.weighed(a.res.Leased); len(a.res.Leased) == want || bytes >= storage.LeaseBytes {
			a.from.hungry = true
		}
		if !a.res.NextDue.IsZero() {
			l.sources.nextDue.sooner(a.res.NextDue, now, l.clock())
		}
	}
	l.admit(a, safe)
}

// refund gives back what was granted for jobs that there are not.
func (a *answer) refund(n int) {
	if a.from.throttle != nil {
		a.from.throttle.refund(n)
	}
}

// finished takes the results of the outcomes.
func (l *loop) finished(a answer, now time.Time) {
	for i := range l.outcomes.flight {
		f := &l.outcomes.flight[i]
		switch r := a.res.Finished[i]; {
		case r == storage.Lost:
			l.reports.outcome(slog.LevelWarn, tooLate, f)
		case r != storage.Applied:
			l.reports.outcome(slog.LevelError, notTaken, f)
		case f.Outcome == storage.OutcomeDone || f.Outcome == storage.OutcomeCancelled:
			if f.Keep > 0 {
				clock := l.clock()
				l.purge.sooner(clock.Add(f.Keep), now, clock)
			}
		}
	}
	l.outcomes.written()
}

// failed keeps what the store could not take, to try again later.
func (l *loop) failed(a answer, now time.Time) {
	switch a.op {
	case opExchange:
		l.outcomes.putBack(l.watch.setBack - a.setBack)
		if len(l.leases.extending) > 0 {
			l.leases.extended()
			l.leases.heartbeatAt = now
		}
		if a.x.Want > 0 {
			a.from.hungry = true
			a.refund(a.x.Want)
		}
	default:
		l.postpone(a.op, now)
	}
	switch {
	case l.endsWork(a.err, a.op != opExchange || a.x.Want > 0, now):
	case a.op == opExchange:
		l.trouble(a.err, false, a.x.Want > 0, now)
	default:
		l.complain(a.err)
		l.choreFailed[a.op], l.failedAt = true, now
	}
}
