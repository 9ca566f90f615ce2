package engine

import (
	"context"
	"time"
)

// chore is a call of the store that is no exchange, such as Reclaim. It is not
// what a worker is for: one that fails or takes long holds up nothing else.
type chore struct {
	due     wallTime  // zero: nothing is to be done
	pause   time.Time // nothing is done before
	backoff time.Duration
	failed  bool // the last time
	// idle reports whether the chore has to wait, although it is due, for
	// something that wakes the loop. If nil, it never has.
	idle func() bool
	// prepare returns what to ask of the store, or nil if that is nothing after
	// all. The chore is no longer due then, unless prepare says so.
	prepare func(now time.Time) task
}

// task calls the store for a chore, beside the loop. If it returns no error the
// loop runs apply.
type task func(ctx context.Context) (apply func(now time.Time), err error)

// chores are those of one engine.
type chores struct {
	all      []*chore
	turn     int       // of all, whose it is
	failedAt time.Time // the last one that did

	purge     *chore
	unserved  *unserved
	schedules *schedules
}

// addChores makes the chores, in the order of their turns. Schedules come after
// the clock, which may have to catch up before anything is fired by it.
func (l *loop) addChores(now time.Time) {
	l.chores.all = []*chore{
		l.newReclaim(now),
		l.newUnserved(now),
		l.newPurge(now),
		l.newAskClock(now),
		l.newReadSchedules(now),
		l.newFire(),
		l.newShift(),
	}
}

// at returns when the chore is to be done, or zero.
func (c *chore) at() time.Time {
	if c.idle != nil && c.idle() {
		return time.Time{}
	}
	return latest(c.due.mono, c.pause)
}

// failing reports whether the last call of any chore failed, as far as no
// exchange has shown since that the store works.
func (s *chores) failing() bool {
	for _, c := range s.all {
		if c.failed {
			return true
		}
	}
	return false
}

// worked takes note of an exchange that went well: what fails from now on is
// another streak.
func (s *chores) worked(sent time.Time) {
	if !sent.After(s.failedAt) {
		return
	}
	for _, c := range s.all {
		c.failed = false
	}
}

// sendChore does the next chore, if one is due. They take turns, so that one
// which is always due again keeps no other waiting.
func (l *loop) sendChore(now time.Time) {
	s := &l.chores
	if !l.shutdown.working() {
		return
	}
	for i := range s.all {
		turn := (s.turn + i) % len(s.all)
		c := s.all[turn]
		if !reached(c.at(), now) || !c.due.reached(now, l.clock) {
			continue
		}
		if t := c.prepare(now); t != nil {
			s.turn = turn + 1
			l.side.do(func(ctx context.Context) func(time.Time) {
				apply, err := t(ctx)
				return func(now time.Time) { l.choreDone(c, apply, err, now) }
			})
			return
		}
	}
}

// choreDone takes the result of a chore. One that failed is due again, after
// the longer a time the more often it did.
func (l *loop) choreDone(c *chore, apply func(now time.Time), err error, now time.Time) {
	if err == nil {
		c.backoff, c.failed = 0, false
		apply(now)
		return
	}
	c.backoff = longer(c.backoff)
	c.due, c.pause = soon(now), now.Add(c.backoff)
	if !l.endsWork(err, true, now) {
		l.complain(err)
		c.failed, l.chores.failedAt = true, now
	}
}
