package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// loop is the state of a running engine. All of it belongs to the goroutine
// that runs run, but for the channels and the mailbox.
type loop struct {
	cfg      *Config
	handlers context.Context // parent of the handlers' contexts: values, no end

	runners   *runners
	shutdown  shutdown
	exchanges caller // exchanges, and the end of the offers
	side      caller // the chores: one that is slow holds up no heartbeat

	mail mailbox

	leases   leases
	ready    ready
	sources  sources
	outcomes outcomes
	// nudged: something new came up since unserved lanes were looked for.
	nudged  bool
	waiting map[lane]waiting

	reports reports

	watch     watch
	schedules schedules

	purge    wallTime
	pollAt   time.Time // without a Notifier
	reapAt   time.Time // reclaim
	countAt  time.Time // look for unserved lanes
	countsAt time.Time // that was last done
	purgeAt  time.Time // not before
	reaped   bool      // has been done once
	chores   int       // whose turn it is, of those that are none

	health health
	// choreFailed: the last call of this kind failed, which holds up no others.
	choreFailed  [operations]bool
	choreBackoff [operations]time.Duration
	failedAt     time.Time // the last chore that did

	timer *time.Timer
	armed time.Time
}

// origin is where the monotonic clock that Reclaim gets begins. All engines
// that share a store must mean the same.
var origin = time.Now()

const (
	reapEvery  = 250 * time.Millisecond
	pollEvery  = time.Second
	countEvery = 20 * time.Second
	gateEvery  = 100 * time.Millisecond
	// gatePatience is how long a suspect waits before another process may try.
	gatePatience = 5 * time.Second
)

func newLoop(ctx context.Context, cfg *Config, stop, hurry <-chan struct{}) *loop {
	l := &loop{
		cfg:      cfg,
		handlers: context.WithoutCancel(ctx),
		sources:  sources{all: newSources(cfg)},
		runners:  newRunners(cfg.Concurrency),
		mail:     mailbox{signal: make(chan struct{}, 1), unlisten: func() {}},
		shutdown: shutdown{stop: stop, ctx: ctx.Done(), hurry: hurry, report: make(chan error, 1)},

		ready:     ready{suspects: suspects{trusted: map[string]bool{}}},
		reports:   reports{cfg: cfg, lines: map[line]*reported{}, suspected: map[string]bool{}},
		timer:     time.NewTimer(time.Hour),
		exchanges: newCaller(),
		side:      newCaller(),
	}
	l.watch.keeper, _ = cfg.Store.(storage.Timekeeper)
	l.schedules.store, _ = cfg.Store.(storage.Scheduler)
	l.schedules.refused = map[string]specKey{}
	return l
}

// run is the loop. It outlives Run only while handlers are stuck or outcomes
// cannot be written.
func (l *loop) run() {
	now := time.Now()
	if s, ok := l.cfg.Store.(storage.Notifier); ok {
		l.mail.unlisten = s.Notify(l.mail.put)
	} else {
		l.pollAt = now.Add(pollEvery)
	}
	l.runners.start()
	go l.callStore(l.exchanges)
	go l.callStore(l.side)
	l.hunger()
	l.reapAt, l.countAt = now, now
	clock := l.clock()
	l.purge.at(clock, now, clock)
	l.watch.lookAt = now.Add(lookAgain)
	if l.watch.keeper != nil {
		l.watch.markAt = now
	}
	l.readSchedules(now)
	l.makeOffers()
	l.cfg.Lanes.serve(l.cfg, 1)
	defer l.cfg.Lanes.serve(l.cfg, -1)

	for l.step(time.Now()) {
		select {
		case a := <-l.runners.ended:
			l.end(a)
			l.drain()
		case a := <-l.exchanges.answers:
			l.answer(a)
		case a := <-l.side.answers:
			l.answer(a)
		case <-l.mail.signal:
			l.read()
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-l.shutdown.ctx:
			l.beginStop()
		case <-l.shutdown.stop:
			l.beginStop()
		case <-l.shutdown.hurry:
			l.shutdown.hurry, l.shutdown.hurried = nil, true
		}
	}
	l.timer.Stop()
	l.runners.dismiss()
	l.exchanges.end()
	l.side.end()
	if l.sources.offering { // the store is of no use any more
		l.withdraw()
	}
	l.reports.recovered()
	l.reports.leftOut(time.Now(), true)
	l.tell()
}

// drain takes what has ended meanwhile, so that it goes in one exchange.
func (l *loop) drain() {
	for {
		select {
		case a := <-l.runners.ended:
			l.end(a)
		default:
			return
		}
	}
}

// step does all that can be done at now, and sets the timer for what can be
// done later. It tells whether there is anything to wait for.
func (l *loop) step(now time.Time) bool {
	if reached(l.watch.lookAt, now) {
		l.look(now)
	}
	if l.sources.nextDue.reached(now, l.clock) {
		l.nudged = true
		l.hunger()
	}
	if reached(l.pollAt, now) {
		l.nudged = true
		l.hunger()
		l.readSchedules(now)
		l.pollAt = now.Add(pollEvery)
	}
	if reached(l.leases.loseAt, now) {
		l.loseUnsafe(now)
	}
	if reached(l.leases.stuckAt, now) {
		l.findStuck(now)
	}
	if reached(l.reports.at, now) {
		l.reports.leftOut(now, false)
	}
	if l.nudged && l.countAt.IsZero() { // perhaps what came up is for nobody here
		l.countAt = latest(now, l.countsAt.Add(countEvery))
	}
	l.startReady(now)
	l.yield(now)
	if !l.advance(now) {
		return false
	}
	l.send(now)
	l.setRoom()
	l.arm(now)
	return true
}

// arm sets the timer for the earliest of the times ahead. A timer that fires
// too early does no harm, so it is touched only to be made earlier.
func (l *loop) arm(now time.Time) {
	var next time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	earliest(l.sources.nextDue.mono)
	earliest(l.pollAt)
	earliest(l.leases.loseAt)
	earliest(l.leases.stuckAt)
	earliest(l.shutdown.until)
	earliest(l.reports.at)
	if l.shutdown.working() {
		earliest(l.ready.yieldAt())
		earliest(l.ready.suspects.gateAt)
		earliest(l.watch.lookAt)
	}
	// What needs the store waits for its answer, and for its recovery.
	if l.shutdown.fatal == nil && !l.exchanges.busy {
		earliest(l.health.later(l.leases.heartbeatAt))
		if l.shutdown.working() {
			earliest(l.health.later(l.tokenAt(now)))
		}
	}
	if l.shutdown.fatal == nil && !l.side.busy && l.shutdown.working() {
		if !l.reaped || !l.cfg.alone() {
			earliest(l.health.later(l.reapAt))
		}
		earliest(l.health.later(l.countAt))
		earliest(l.health.later(latest(l.purge.mono, l.purgeAt)))
		earliest(l.health.later(l.schedules.readAt))
		earliest(l.health.later(latest(l.schedules.next.mono, l.schedules.fireAt)))
		earliest(l.health.later(l.watch.markAt))
		if !l.exchanges.busy {
			earliest(l.health.later(l.watch.shiftAt))
		}
	}
	if l.shutdown.fatal == nil && !l.exchanges.busy && l.health.retryAt.After(now) {
		earliest(l.health.retryAt)
	}
	if next.IsZero() || (!l.armed.IsZero() && !next.Before(l.armed)) {
		return
	}
	l.armed = next
	l.timer.Reset(next.Sub(now))
}

// latest gives the later of two times, or zero if the first is.
func latest(t, u time.Time) time.Time {
	if !t.IsZero() && u.After(t) {
		return u
	}
	return t
}

func reached(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
