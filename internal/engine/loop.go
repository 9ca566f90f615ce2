package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// loop is the state of a running engine. All of it belongs to the goroutine
// that runs run, but for the channels and the mailbox.
type loop struct {
	cfg       *Config
	mail      mailbox
	runners   *runners
	exchanges caller // exchanges, and the end of the offers
	side      caller // chores: one that is slow holds up no heartbeat
	shutdown  shutdown

	sources  sources
	ready    ready
	leases   leases
	outcomes outcomes
	health   health
	watch    watch
	chores   chores
	reports  reports
	alarm    alarm
}

const pollEvery = time.Second

func newLoop(ctx context.Context, cfg *Config, stop, hurry <-chan struct{}) *loop {
	l := &loop{
		cfg:       cfg,
		mail:      mailbox{signal: make(chan struct{}, 1), unlisten: func() {}},
		runners:   newRunners(ctx, stop, cfg.Concurrency, cfg.most()),
		exchanges: newCaller(),
		side:      newCaller(),
		shutdown:  shutdown{ctx: ctx.Done(), stop: stop, hurry: hurry, report: make(chan error, 1)},
		sources:   newSources(cfg),
		outcomes:  outcomes{streaks: streaks{}},
		ready:     ready{suspects: suspects{trusted: map[string]bool{}}},
		reports:   reports{cfg: cfg, lines: map[line]*reported{}, suspected: map[string]bool{}},
		alarm:     alarm{timer: time.NewTimer(time.Hour)},
	}
	if _, l.watch.followed = cfg.Store.(storage.Clocked); !l.watch.followed {
		l.watch.keeper, _ = cfg.Store.(storage.Timekeeper)
	}
	l.addChores(time.Now())
	return l
}

// run is the loop. It outlives Run only while handlers are stuck or outcomes
// cannot be written.
func (l *loop) run() {
	now := time.Now()
	if s, ok := l.cfg.Store.(storage.Notifier); ok {
		l.mail.unlisten = s.Notify(l.hear)
	} else {
		l.mail.pollAt = now.Add(pollEvery)
	}
	gs := l.sources.gates
	gs.wake, gs.post, gs.turned, gs.answered = l.mail.ring, l.mail.post, l.turned, func() { l.chores.kicks.goOn(time.Now()) }
	l.runners.adjust()
	go l.exchanges.run(l.runners.ctx)
	go l.side.run(l.runners.ctx)
	l.sources.begin(now)
	l.watch.lookAt = now.Add(lookAgain)
	l.makeOffers()
	l.cfg.Lanes.serve(l.cfg, 1)
	defer l.cfg.Lanes.serve(l.cfg, -1)
	l.showFirst(now)

	for l.step(time.Now()) {
		select {
		case a := <-l.runners.ended:
			l.end(a)
			l.letOthersEnd()
		case apply := <-l.exchanges.answers:
			l.answered(&l.exchanges, apply)
		case apply := <-l.side.answers:
			l.answered(&l.side, apply)
		case <-l.mail.signal:
			l.read()
		case <-l.alarm.timer.C:
			l.alarm.at = time.Time{}
		case <-l.shutdown.ctx:
			l.beginStop()
		case <-l.shutdown.stop:
			l.beginStop()
		case <-l.shutdown.hurry:
			l.shutdown.hurry, l.shutdown.hurried = nil, true
		}
	}
	l.alarm.timer.Stop()
	l.sources.gates.end()
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

// step does all that can be done at now, and sets the alarm for what can be
// done later. It reports whether there is anything to wait for. Before an attempt starts,
// those that have ended are taken back: they may have been reason to hold its lane.
func (l *loop) step(now time.Time) bool {
	l.drain()
	if reached(l.watch.lookAt, now) {
		l.look(now)
	}
	if l.sources.nextDue.reached(now, l.clock) {
		l.chores.unserved.news(now)
		l.sources.wake()
		l.sources.due = true
	}
	if reached(l.mail.pollAt, now) {
		l.chores.unserved.news(now)
		l.sources.wake()
		l.readSchedules(now)
		l.runners.holds.add(nil) // perhaps
		l.mail.pollAt, l.sources.due, l.sources.urgent = now.Add(pollEvery), true, true
	}
	if reached(l.leases.loseAt, now) {
		l.loseUnsafe(now)
	}
	if reached(l.leases.stuckAt, now) {
		l.findStuck(now)
	}
	if reached(l.ready.holds.passAt, now) {
		l.passHanging(now)
	}
	if reached(l.runners.apartAt, now) {
		l.setApart(now)
	}
	if reached(l.reports.at, now) {
		l.reports.leftOut(now, false)
	}
	l.chores.show.news(now)
	l.startReady(now)
	l.gather(now)
	l.yield(now)
	if !l.advance(now) {
		return false
	}
	l.send(now)
	l.offerCapacity()
	if next := l.next(now); !next.IsZero() {
		l.alarm.set(next, now)
	}
	return true
}

// next returns the earliest of the times ahead at which something can be done,
// or zero.
func (l *loop) next(now time.Time) (next time.Time) {
	earliest := func(times ...time.Time) {
		for _, t := range times {
			next = sooner(next, t)
		}
	}
	working := l.shutdown.working()
	earliest(l.sources.nextDue.mono, l.mail.pollAt, l.leases.loseAt, l.leases.stuckAt, l.shutdown.until, l.reports.at, l.runners.apartAt, l.ready.holds.passAt)
	if working {
		earliest(l.yieldAt(), l.ready.suspects.tryAt, l.watch.lookAt)
	}
	if l.shutdown.fatal != nil {
		return next
	}
	// What needs the store waits for its answer, and for its recovery.
	if !l.exchanges.busy {
		earliest(l.health.later(l.leases.heartbeatAt))
		if working {
			earliest(l.health.later(l.tokenAt(now)))
		}
		if l.health.retryAt.After(now) {
			earliest(l.health.retryAt)
		}
	}
	if !l.side.busy && working {
		for _, c := range l.chores.all {
			earliest(l.health.later(c.at()))
		}
	}
	return next
}

// alarm wakes the loop. One that goes off too early does no harm, so it is set
// again only to go off earlier.
type alarm struct {
	timer *time.Timer
	at    time.Time // zero: it is not set
}

func (a *alarm) set(at, now time.Time) {
	if a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.timer.Reset(at.Sub(now))
	}
}

// sooner returns the earlier of two times; zero stands for never.
func sooner(t, u time.Time) time.Time {
	if t.IsZero() || !u.IsZero() && u.Before(t) {
		return u
	}
	return t
}

// latest returns t, but not before u. It leaves a t of zero, which stands for never,
// as it is.
func latest(t, u time.Time) time.Time {
	if !t.IsZero() && u.After(t) {
		return u
	}
	return t
}

func reached(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
