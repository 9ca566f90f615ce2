package engine

import (
	"log/slog"
	"time"

	"github.com/errandq/errand/storage"
)

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

// want is how many jobs to lease now: as many as can start at once, and some
// ahead.
func (l *loop) want() int {
	if !l.shutdown.working() {
		return 0
	}
	n := l.runners.free() - len(l.queue)
	switch {
	case l.health.err != nil:
		n = min(n, 1) // enough to see whether it works again
	case !l.yielded:
		n += l.pace.ahead(l.cfg.Concurrency)
	}
	return max(n, 0)
}

// send makes the next calls of the store, if there is anything to call it for.
func (l *loop) send(now time.Time) {
	if l.shutdown.fatal != nil {
		return
	}
	if !l.shutdown.working() && l.offering && !l.exchanges.busy {
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
	if len(l.held) == 0 {
		l.beatAt = time.Time{}
	}
	from := l.pick(now, false)
	// On a disk that is full outcomes may go through where a lease does not.
	alone := l.health.cannotLease && (len(l.outcomes) > 0 || reached(l.beatAt, now))
	if alone {
		from = nil
	}
	if len(l.outcomes) == 0 && !reached(l.beatAt, now) && from == nil {
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
		l.leasing = r.x.Want > 0
	}
	c.requests <- r
}

// exchange puts the next exchange together, which leases from a source unless
// that is nil.
func (l *loop) exchange(from *source, now time.Time) request {
	r := request{op: opExchange, clock: l.clock(), setBack: l.watch.setBack, from: from}
	l.flight, l.outcomes = l.outcomes, l.flight[:0]
	x := storage.Exchange{Length: l.cfg.Lease, Finish: l.flight}
	if reached(l.beatAt, now) {
		l.leases = l.leases[:0]
		for _, a := range l.held {
			if !a.lost {
				l.extending = append(l.extending, a)
				l.leases = append(l.leases, a.job.Lease)
			}
		}
		x.Extend = l.leases
		l.beatAt = now.Add(l.cfg.Lease / 3)
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
		l.leasing = false
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
		l.offering = false
		l.read() // what was handed over before
	}
}

func (l *loop) exchanged(a answer, now time.Time) {
	l.pace.exchanged(now.Sub(a.sent))
	safe := a.sent.Add(l.cfg.Lease - l.cfg.Lease/6)
	l.extended(a.res.Extended, safe, now)
	l.finished(a, now)
	if want := a.x.Want; want > 0 {
		a.refund(want - len(a.res.Leased))
		if bytes := l.pace.weighed(a.res.Leased); len(a.res.Leased) == want || bytes >= storage.LeaseBytes {
			a.from.hungry = true
		}
		if !a.res.NextDue.IsZero() {
			l.nextDue.sooner(a.res.NextDue, now, l.clock())
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

// extended takes the results of a heartbeat.
func (l *loop) extended(results []storage.ItemResult, safe, now time.Time) {
	if len(l.extending) == 0 {
		return
	}
	for i, a := range l.extending {
		if a.gone {
			continue // ended meanwhile
		}
		switch results[i] {
		case storage.Applied:
			a.safe = latest(a.safe, safe)
		case storage.Cancelling:
			a.safe = latest(a.safe, safe)
			l.cancelJob(a, now)
		default:
			l.lose(a, now)
		}
	}
	clear(l.extending)
	l.extending = l.extending[:0]
	l.watchLeases()
}

// finished takes the results of the outcomes.
func (l *loop) finished(a answer, now time.Time) {
	for i := range l.flight {
		f := &l.flight[i]
		switch r := a.res.Finished[i]; {
		case r == storage.Lost:
			l.logOutcome(slog.LevelWarn, tooLate, f)
		case r != storage.Applied:
			l.logOutcome(slog.LevelError, notTaken, f)
		case f.Outcome == storage.OutcomeDone || f.Outcome == storage.OutcomeCancelled:
			if f.Keep > 0 {
				clock := l.clock()
				l.purge.sooner(clock.Add(f.Keep), now, clock)
			}
		}
	}
	clear(l.flight)
	l.flight = l.flight[:0]
}

// failed keeps what the store could not take, to try again later.
func (l *loop) failed(a answer, now time.Time) {
	switch a.op {
	case opExchange:
		earlier(l.flight, l.watch.setBack-a.setBack)
		l.flight = append(l.flight, l.outcomes...)
		clear(l.outcomes)
		l.flight, l.outcomes = l.outcomes[:0], l.flight
		if len(l.extending) > 0 {
			clear(l.extending)
			l.extending = l.extending[:0]
			l.beatAt = now
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
