package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	// longClosed is for how long a lane may be closed and open again as if it had
	// not been.
	longClosed = time.Minute
	// mostRamps is how many lanes open gently at a time; each is a source of its own.
	// Further ones open at once: with so many, the runners are the limit anyway.
	mostRamps = 256
	// divideEvery is how long the sources stay as they are at least, so that many
	// lanes which end their ramps do not keep the loop busy.
	divideEvery = 100 * time.Millisecond
)

// ramp bounds a lane that was closed for long: behind a gate, or by a hold. It is
// made while the lane is closed, so that no job of it is leased without. It counts
// what is leased from then on, and not what has run on while the lane was closed.
// A job that is leased before the opening is noticed goes back if it is too early.
type ramp struct {
	bound
	full    int           // the limit at which the ramp is over
	jitter  time.Duration // the first start is put off by a random part of it
	closed  bool          // the lane is
	startAt time.Time     // until when the first start is put off; zero: it is not
	starts  time.Time     // the same, on the Config's clock
	busy    settled       // as many jobs run as may, see [show]
	began   time.Time     // an attempt that was leased before changes nothing
	well    int           // attempts that ended well since the limit has changed
}

// ramps are the ramps of an engine, and what it knows of lanes that are closed. A
// ramp is one more bound of its lane. So the lane becomes a source of its own, which
// is asked for as many jobs as may run, and which takes turns with the others. To
// lease the jobs of all and keep some back would have been simpler; but where the
// backlog of the lane comes first in the order, none but such jobs would be leased.
type ramps struct {
	bounds *bounds // which have the ramps
	look   *chore  // looks at the lanes, and divides the sources
	stale  bool    // the sources are not yet divided by the ramps there are
	// divideAt is when they can be divided again.
	divideAt time.Time

	closed map[storage.Lane]time.Time // since when, of each lane that is closed
	held   map[storage.Lane]closure   // of which a name may be empty
	known  bool                       // the holds were read
}

// closure is what all holds of the same lane come to.
type closure struct {
	since time.Time // on the monotonic clock
	until time.Time // on the Config's; zero: until they are released
}

// newRamps makes the chore that looks at the lanes when one has been closed for long,
// may have opened, or may start. It divides the sources while no exchange is under
// way, which would be about others.
func (l *loop) newRamps() *chore {
	rs := &l.sources.ramps
	rs.look = &chore{idle: l.asking}
	rs.look.prepare = func(now time.Time) task {
		l.lookAtLanes(now)
		switch {
		case !rs.stale || now.Before(rs.divideAt):
		case l.sources.offering: // which is about the lanes as they are
			return func(context.Context) (func(time.Time), error) {
				l.withdraw()
				return func(time.Time) {
					l.sources.offering = false
					l.read() // what was handed over before
				}, nil
			}
		default:
			l.divideAnew()
			rs.divideAt = now.Add(divideEvery)
		}
		return nil
	}
	return rs.look
}

// divideAnew divides all lanes into sources again, of which as much is known as of
// the old ones. An attempt goes on to count for the bounds of its old source, which
// the new ones share.
func (l *loop) divideAnew() {
	s, old := &l.sources, l.sources
	s.all = divide(l.cfg, s.ramps.bounds)
	s.lanes = lanesOf(s.all)
	lanes := maps.Clone(s.lanes)
	maps.Copy(lanes, old.lanes) // one of a prefix may be listed no more, or only now
	for lane := range lanes {
		o, was := s.find(lane), old.find(lane)
		o.mayHaveWork, o.waits, o.weight = o.mayHaveWork || was.mayHaveWork, o.waits || was.waits, was.weight
		o.sizing = was.sizing
		o.shutAt, o.failedAt = sooner(o.shutAt, was.shutAt), latest(cmp.Or(o.failedAt, was.failedAt), was.failedAt)
	}
	for _, k := range l.chores.kicks.all {
		k.from = s.find(k.lane)
	}
	s.ramps.stale = false
	l.makeOffers()
}

// knowHolds takes all holds that are in force. What was held before the engine came
// is held since then by the clock, as nothing else is known of it.
func (l *loop) knowHolds(all []storage.HoldState) {
	rs, now := &l.sources.ramps, time.Now()
	rs.held = map[storage.Lane]closure{}
	for i := range all {
		h := &all[i]
		c := closure{since: now, until: h.Until}
		if h.Probe {
			c.until = time.Time{}
		}
		if !rs.known {
			c.since = now.Add(-max(l.clock().Sub(h.Since), 0))
		}
		if o, ok := rs.held[h.Lane]; ok {
			c.since = sooner(c.since, o.since)
			if o.until.IsZero() || !c.until.IsZero() && o.until.After(c.until) {
				c.until = o.until
			}
		}
		rs.held[h.Lane] = c
	}
	rs.known = true
	l.lookAtLanes(now)
}

// closure reports whether a lane is closed, and if so since when at least.
func (rs *ramps) closure(lane storage.Lane, s *source, now, clock time.Time) (since time.Time, closed bool) {
	for _, of := range [...]storage.Lane{lane, {Queue: lane.Queue}, {Kind: lane.Kind}} {
		if c, ok := rs.held[of]; ok && (c.until.IsZero() || clock.Before(c.until)) {
			since = sooner(since, c.since)
		}
	}
	shut := slices.ContainsFunc(s.bounds, func(b *bound) bool { return b.gate != nil && !b.gate.open })
	return cmp.Or(since, now), shut || !since.IsZero()
}

// lookAtLanes notes which lanes are closed, makes ramps for those that have been for
// long, and begins the ramps of those that have opened.
func (l *loop) lookAtLanes(now time.Time) {
	rs := &l.sources.ramps
	shut := slices.ContainsFunc(l.sources.gates.all, func(g *gate) bool { return !g.open })
	if !shut && !rs.stale && len(rs.held)+len(rs.closed)+len(rs.bounds.ramps) == 0 {
		return
	}
	clock, opened, next := l.clock(), 0, time.Time{}
	for lane, s := range l.closable() {
		since, closed := rs.closure(lane, s, now, clock)
		r := rs.bounds.ramps[lane]
		switch at, was := rs.closed[lane]; {
		case closed && !was:
			rs.close(lane, since)
		case closed:
			since = at
		default:
			delete(rs.closed, lane)
		}
		switch {
		case closed && now.Sub(since) <= longClosed:
			next = sooner(next, since.Add(longClosed+1))
		case closed:
			if r == nil || !r.closed {
				r = l.addRamp(lane, now)
			}
		case r != nil && r.closed:
			opened++
			r.open(now, clock, l.cfg.Rand)
		}
		if r != nil && !r.closed {
			next = sooner(next, r.start(now))
			rs.forget(lane, r, now)
		}
	}
	if opened > 0 {
		l.cfg.Logger.Info("errand: lanes that were closed open gently", "lanes", opened)
	}
	rs.look.due = onMono(next)
	rs.lookAtEnds(now, clock)
	rs.lookSoon(now)
}

// lookSoon has the sources divided if need be.
func (rs *ramps) lookSoon(now time.Time) {
	if rs.stale {
		rs.look.due = onMono(sooner(rs.look.due.mono, latest(now, rs.divideAt)))
	}
}

// lookAtEnds has the lanes looked at when the first hold is over, if not before.
func (rs *ramps) lookAtEnds(now, clock time.Time) {
	var first time.Time
	for _, c := range rs.held {
		if c.until.After(clock) {
			first = sooner(first, c.until)
		}
	}
	due := &rs.look.due
	if !first.IsZero() && (due.mono.IsZero() || now.Add(first.Sub(clock)).Before(due.mono)) {
		due.at(first, now, clock)
	}
}

func (rs *ramps) close(lane storage.Lane, since time.Time) {
	if rs.closed == nil {
		rs.closed = map[storage.Lane]time.Time{}
	}
	rs.closed[lane] = since
}

// addRamp makes the ramp of a lane that is closed, in the place of one it has; nil if
// it needs none.
func (l *loop) addRamp(lane storage.Lane, now time.Time) *ramp {
	rs := &l.sources.ramps
	delete(rs.bounds.ramps, lane)
	r := &ramp{bound: bound{most: 1, ramp: true}, full: l.atATime(lane), closed: true, began: now}
	h, _ := l.cfg.handler(lane.Queue, lane.Kind)
	r.jitter = cmp.Or(h.OpenJitter, l.cfg.settings(lane.Queue).OpenJitter)
	if r.full == 1 && r.jitter == 0 || len(rs.bounds.ramps) >= mostRamps {
		return nil
	}
	if rs.bounds.ramps == nil {
		rs.bounds.ramps = map[storage.Lane]*ramp{}
	}
	rs.bounds.ramps[lane], rs.stale = r, true
	return r
}

// atATime returns how many jobs of a lane run at a time, if it does not open gently.
func (l *loop) atATime(lane storage.Lane) int {
	n := l.cfg.Concurrency
	all := l.sources.ramps.bounds
	by := Listed(all.listed, lane.Queue)
	if e := all.each[by]; e != nil && by != lane.Queue {
		n = min(n, e.limit)
	}
	for _, b := range []*bound{all.queues[by], all.ofKind(lane.Queue, lane.Kind)} {
		if b != nil {
			n = min(n, b.most)
		}
	}
	return n
}

// open begins the ramp of a lane that has opened.
func (r *ramp) open(now, clock time.Time, random func() float64) {
	r.closed, r.began = false, now
	if r.jitter > 0 {
		wait := time.Duration(random() * float64(r.jitter))
		r.most, r.startAt, r.starts = 0, now.Add(wait), clock.Add(wait).UTC()
	}
}

// start lets the first job start if it has been put off for long enough, and returns
// until when it is put off, or zero.
func (r *ramp) start(now time.Time) time.Time {
	if reached(r.startAt, now) {
		r.most, r.startAt, r.starts = 1, time.Time{}, time.Time{}
	}
	return r.startAt
}

// mayOpen reports whether a lane of s that opens gently may have opened since the holds were
// read: its jobs could start too early.
func (l *loop) mayOpen(s *source) bool {
	ramps, h := l.sources.ramps.bounds.ramps, &l.ready.holds
	if len(ramps) == 0 || l.runners.holds.n.Load() == h.heeded {
		return false
	}
	for _, queue := range s.Queues {
		for _, kind := range s.Kinds {
			if ramps[storage.Lane{Queue: queue, Kind: kind}] != nil && l.runners.holds.since(h.heeded, queue, kind) {
				return true
			}
		}
	}
	return false
}

// forget ends a ramp that has reached its full limit. The sources are divided without
// it soon; until then it limits nothing.
func (rs *ramps) forget(lane storage.Lane, r *ramp, now time.Time) {
	if r.most < r.full {
		return
	}
	r.most = math.MaxInt
	delete(rs.bounds.ramps, lane)
	rs.stale = true
	rs.lookSoon(now)
}

// ended takes an attempt that has ended. A full round of successes doubles the limit
// of a lane that opens gently; of failures only those halve it that say that the
// other side, or the way there, cannot bear more.
func (rs *ramps) ended(a *attempt) {
	for _, lane := range rs.bounds.rampsOver(a.job.Queue, a.job.Kind) {
		if r := rs.bounds.ramps[lane]; !r.closed && !a.leased.Before(r.began) {
			rs.endedIn(lane, r, a)
		}
	}
}

func (rs *ramps) endedIn(lane storage.Lane, r *ramp, a *attempt) {
	now := time.Now()
	switch v := &a.verdict; {
	case v.kind == verdictDone:
		if r.well++; r.well >= r.most {
			r.most, r.well = min(2*r.most, r.full), 0
			rs.forget(lane, r, now)
		}
	case v.kind == verdictFailed && (v.late || v.class == policy.Unavailable || v.class == policy.Throttled):
		// The others that were leased under the old limit do not halve it again.
		r.most, r.well, r.began = max(r.most/2, 1), 0, now
	}
}

// late reports whether an attempt that failed ran out of time, or a call that it has
// made.
func (a *attempt) late(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout() || errors.Is(context.Cause(a.ctx), context.DeadlineExceeded)
}
