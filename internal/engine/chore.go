package engine

import "time"

// Chores are the calls of the store that are no exchange: they are not what a
// worker is for, and one that fails or takes long holds up nothing else.
const (
	firstChore = opReclaim
	lastChore  = opShift
)

// chore puts the next chore together, if one is due. They take turns, so that
// one which is always due again keeps no other waiting.
func (l *loop) chore(now time.Time) (request, bool) {
	const n = int(lastChore - firstChore + 1)
	if !l.shutdown.working() {
		return request{}, false
	}
	for i := range n {
		turn := (l.chores + i) % n
		if r, ok := l.choreDue(firstChore+operation(turn), now); ok {
			l.chores = turn + 1
			return r, true
		}
	}
	return request{}, false
}

// choreDue gives the call for a chore if that is due. Then it counts as done.
func (l *loop) choreDue(op operation, now time.Time) (request, bool) {
	s, w := &l.schedules, &l.watch
	r := request{op: op}
	due := false
	switch op {
	case opReclaim:
		if reached(l.reapAt, now) {
			l.reapAt = now.Add(reapEvery)
			// The first time there may be leases of a process that is gone.
			due = !l.reaped || !l.cfg.alone()
		}
	case opCount:
		if due = reached(l.countAt, now); due {
			l.countAt, l.countsAt, l.nudged = time.Time{}, now, false
		}
	case opPurge:
		due = reached(latest(l.purge.mono, l.purgeAt), now) && l.purge.reached(now, l.clock)
	case opSchedules:
		if due = reached(s.readAt, now); due {
			s.readAt, s.readsAt = time.Time{}, now
		}
	case opFire:
		if reached(latest(s.next.mono, s.fireAt), now) && s.next.reached(now, l.clock) {
			return l.fire(now)
		}
	case opClock:
		if due = reached(w.markAt, now); due {
			w.markAt = time.Time{}
		}
	case opShift:
		// Outcomes under way may have due times by the clock as it was: they are
		// to be in the store before the pass, which corrects them.
		if due = reached(w.shiftAt, now) && !l.exchanges.busy; due {
			r.after, w.shiftAnew = w.shiftAfter, false
		}
	}
	if due && op != opCount { // which no time is passed to
		r.clock = l.clock()
	}
	return r, due
}

// postpone has a chore that failed done again, after the longer a time the more
// often it did.
func (l *loop) postpone(op operation, now time.Time) {
	l.choreBackoff[op] = longer(l.choreBackoff[op])
	at := now.Add(l.choreBackoff[op])
	switch op {
	case opReclaim:
		l.reapAt = at
	case opCount:
		l.countAt = at
	case opPurge:
		l.purgeAt = at
		clock := l.clock()
		l.purge.at(clock, now, clock)
	case opSchedules:
		l.schedules.readAt = at
	case opFire:
		l.schedules.fireAt = at
		clear(l.schedules.firing)
	case opClock:
		l.watch.markAt = at
	case opShift:
		l.watch.shiftAt = at
	}
}
