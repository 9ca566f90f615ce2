package engine

import (
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// A probe that does not end is waited for no longer than mostWait, or mostTimes as long
// as the first one, whichever is longer.
const (
	mostWait  = mostOutage
	mostTimes = 16
	mostTurns = 99 // which are told apart
)

// ownReasons are those of holds that let probes through.
var ownReasons = [...]string{storage.HoldUnavailable, storage.HoldBrake}

// probing is a probe that a runner has.
type probing struct {
	began time.Time
	until time.Time // it is waited for, if that is less than a lease ahead; else zero
	turn  int       // 1 more than hang before it; zero: not known yet
	last  bool      // it is about to be waited for no more, and has left the ramps
	hangs bool      // it is waited for no more
}

// longest are the lanes of which attempts have ended well here that took longer than half
// a lease, with the longest of them. Shorter ones make no difference, and cost nothing.
type longest map[storage.Lane]time.Duration

// took notes an attempt that has ended well.
func (all *longest) took(a *attempt) {
	if a.took <= a.cfg.LeaseDuration/2 {
		return
	}
	if *all == nil {
		*all = longest{}
	}
	(*all)[a.lane()] = max((*all)[a.lane()], a.took)
}

// lane returns the lane of the job.
func (a *attempt) lane() storage.Lane { return storage.Lane{Queue: a.job.Queue, Kind: a.job.Kind} }

// hangs reports whether the job is a probe that is waited for no more.
func (a *attempt) hangs() bool { return a.probing != nil && a.probing.hangs }

// waitsFor returns the hold of the job's lane for a reason, if the hold waits for the
// job, which is the last one that it has let through. Else it returns nil.
func (l *loop) waitsFor(a *attempt, reason string) *storage.HoldState {
	if !a.job.Probe {
		return nil
	}
	held := l.ready.holds.ownHold(a.lane(), reason)
	if held == nil || held.Through.Lease != a.job.Lease {
		return nil
	}
	return held
}

// isProbe reports whether a hold waits for the job of a.
func (l *loop) isProbe(a *attempt) bool {
	return slices.ContainsFunc(ownReasons[:], func(reason string) bool { return l.waitsFor(a, reason) != nil })
}

// wasProbe reports whether the hold of the job's lane for a reason has let the job
// through, whether or not it has let others through since.
func (l *loop) wasProbe(a *attempt, reason string) bool {
	held := l.ready.holds.ownHold(a.lane(), reason)
	if !a.job.Probe || held == nil || held.Through.Lease == a.job.Lease {
		return a.job.Probe
	}
	return !held.Since.After(l.clock().Add(-a.took))
}

// probes reports whether a probe of a lane is under way here, and waited for.
func (l *loop) probes(lane storage.Lane) bool {
	return slices.ContainsFunc(l.leases.held, func(a *attempt) bool {
		return a.job.Probe && !a.hangs() && a.lane() == lane
	})
}

// endAt moves the end of a hold, and leaves its length as it is. Unless of is zero it does
// so only while the hold waits for that job.
func (l *loop) endAt(held *storage.HoldState, until time.Time, of storage.Lease) {
	l.ready.holds.begin(storage.Hold{Lane: held.Lane, Reason: held.Reason, By: held.By, Until: until, For: held.For, Detail: held.Detail,
		Hanging: held.Hanging, Through: of}, l.clock())
}

// ajar has another job let through soon, in place of a probe that has shown nothing or
// goes back without having started. Else its lane would be closed until the end of the
// lease.
func (l *loop) ajar(probe *storage.Leased) {
	for _, reason := range ownReasons {
		if held := l.ready.holds.ownHold(storage.Lane{Queue: probe.Queue, Kind: probe.Kind}, reason); held != nil {
			l.endAt(held, l.clock().Add(leastOutage), probe.Lease)
		}
	}
}

// extendProbes lets no other job through while a probe runs for longer than its first
// lease, as long as it is waited for. It is called with each heartbeat.
func (l *loop) extendProbes() {
	if len(l.ready.holds.own) == 0 {
		return
	}
	for _, a := range l.leases.held {
		if !a.job.Probe || a.lost || a.hangs() {
			continue
		}
		for _, reason := range ownReasons {
			if held := l.waitsFor(a, reason); held != nil {
				l.extendProbe(a, *held)
			}
		}
	}
}

// extendProbe puts off the end of the hold that waits for a. Before that comes for the
// last time the hold says how many hang then: so the next one is waited for twice as
// long, in whatever process it runs.
func (l *loop) extendProbe(a *attempt, held storage.HoldState) {
	left := l.cfg.LeaseDuration
	if p := a.probing; p != nil {
		if p.turn == 0 {
			p.turn = min(max(held.Hanging, 0), mostTurns) + 1
		}
		if left = l.patience(a) - time.Since(p.began); left <= l.cfg.LeaseDuration {
			held.Hanging = p.turn
			a.leaveRamps()
			p.until = p.began.Add(l.patience(a))
			l.ready.holds.passAt = sooner(l.ready.holds.passAt, p.until)
		}
	}
	until := l.clock().Add(min(max(left, 0), l.cfg.LeaseDuration))
	l.endAt(&held, latest(until, held.Until), a.job.Lease)
}

// passHanging passes over the probes that have been waited for long enough.
func (l *loop) passHanging(now time.Time) {
	h := &l.ready.holds
	h.passAt = time.Time{}
	for _, a := range l.leases.held {
		switch p := a.probing; {
		case p == nil || p.until.IsZero() || a.lost:
		case !reached(p.until, now):
			h.passAt = sooner(h.passAt, p.until)
		default:
			if p.until = (time.Time{}); l.isHeld(a) {
				l.passOver(a)
			}
		}
	}
}

// isHeld reports whether a hold that has let the probe of a through is in force, whether
// or not it has let others through since.
func (l *loop) isHeld(a *attempt) bool {
	began := l.clock().Add(-time.Since(a.probing.began))
	return slices.ContainsFunc(ownReasons[:], func(reason string) bool {
		held := l.ready.holds.ownHold(a.lane(), reason)
		return held != nil && !held.Since.After(began)
	})
}

// passOver has a probe waited for no more.
func (l *loop) passOver(a *attempt) {
	a.probing.hangs = true
	a.leaveRamps()
	attrs := l.attrs(a, "since", a.probing.began, "timeout_s", a.timeout.Seconds())
	if slices.Contains(l.spared(), a.lane()) {
		l.cfg.Logger.Warn("errand: a probe hangs, and this worker has no runner to spare for the next job: set a Timeout, which ends such attempts", attrs...)
		return
	}
	l.cfg.Logger.Warn("errand: a probe hangs, and the next job is let through: set a Timeout, which ends such attempts", attrs...)
}

// spared returns the lanes of which probes hang here, if one more would take the last
// runner that has no such probe. The runner is left to other lanes, if there are any:
// they would lose it for as long as the other side gives no answer. It does not matter
// what the other runners do: if only free ones counted, a worker that is busy with other
// lanes would let no probe through.
func (l *loop) spared() (lanes []storage.Lane) {
	left, least := l.runners.n, 2
	if len(l.sources.lanes) == 1 && !l.sources.open {
		least = 1
	}
	for _, a := range l.leases.held {
		if a.hangs() && !a.apart {
			left--
		}
	}
	if left >= least {
		return nil
	}
	for _, a := range l.leases.held {
		if a.hangs() && !a.apart && l.isHeld(a) && !slices.Contains(lanes, a.lane()) {
			lanes = append(lanes, a.lane())
		}
	}
	slices.SortFunc(lanes, storage.Lane.Compare)
	return lanes
}

// spare notes the lanes of which no further probe is leased, and asks those again that are
// no longer among them.
func (l *loop) spare() {
	h, was := &l.ready.holds, l.ready.holds.spared
	if len(h.own)+len(was) == 0 {
		return
	}
	h.spared = l.spared()
	for _, lane := range was {
		if s := l.sources.find(lane); s != nil && !slices.Contains(h.spared, lane) {
			s.mayHaveWork, l.sources.due = true, true
		}
	}
}

// want returns what to ask for of s: no probe of lanes that are spared. To give it back
// would make the hold forget the one that runs.
func (h *holds) want(s *source) storage.Want {
	want := s.Want
	for _, lane := range h.spared {
		if want.Matches(lane.Queue, lane.Kind) {
			want.Except = append(slices.Clip(want.Except), lane)
		}
	}
	return want
}

// leaveRamps has a probe count no more for the ramp of its lane, which would let no other
// job of it run.
func (a *attempt) leaveRamps() {
	if !a.probing.last {
		a.probing.last = true
		a.onRamps(-1)
	}
}

// onRamps adds to what ramps count of an attempt.
func (a *attempt) onRamps(n int) {
	for _, b := range a.from.bounds {
		if b.ramp {
			b.held += n
		}
	}
}

// patience returns for how long a probe is waited for: a lease, or twice as long as the
// longest attempt of its lane that has ended well here; and twice as long for each one
// before it that hangs. That is bounded while at least half of the runners are left to
// others. Without that an outage in which no attempt ends would soon take all of them.
func (l *loop) patience(a *attempt) time.Duration {
	wait := max(l.cfg.LeaseDuration, times(l.outcomes.longest[a.lane()], 2))
	most := max(mostWait, times(wait, mostTimes))
	hanging := 1
	for _, o := range l.leases.held {
		if o.hangs() {
			hanging++
		}
	}
	if 2*hanging >= l.cfg.Concurrency {
		most = max(most, l.cfg.MaxRetryAfter)
	}
	for range a.probing.turn - 1 {
		if wait >= most/2 {
			return most
		}
		wait *= 2
	}
	return wait
}

// times returns n times d, or the largest Duration.
func times(d, n time.Duration) time.Duration {
	if d > math.MaxInt64/n {
		return math.MaxInt64
	}
	return d * n
}
