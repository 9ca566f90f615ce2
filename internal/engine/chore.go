package engine

import (
	"context"
	"time"
)

// chore is a call of the store beside the exchanges, such as Reclaim. One that
// fails or takes long holds up nothing but other chores.
type chore struct {
	due wallTime // zero: the chore is not due
	// pause: the chore is not done before. An event that makes the chore due
	// does not shorten the pause.
	pause   time.Time
	backoff time.Duration
	failed  bool // the last call failed
	// idle reports whether the chore must wait although it is due. The loop
	// looks again whenever it wakes. If nil, the chore need not wait.
	idle func() bool
	// last: the chore is done while the worker stops too.
	last bool
	// prepare returns what to ask of the store, or nil if there is nothing to
	// ask. The chore is not due after the call, unless prepare sets due.
	prepare func(now time.Time) task
}

// task calls the store for a chore, beside the loop. If it returns no error the
// loop runs apply.
type task func(ctx context.Context) (apply func(now time.Time), err error)

// chores are all chores of an engine, and by name those that other parts of the
// loop speak to.
type chores struct {
	all      []*chore
	turn     int       // the index of the chore that is tried first
	failedAt time.Time // a chore last failed

	purge     *chore
	unserved  *unserved
	schedules *schedules
	promote   promote
	peek      *chore
	kicks     kicks
	show      *show
}

// addChores makes the chores, in the order of their turns. The clock may have to
// catch up before a schedule is fired by it.
func (l *loop) addChores(now time.Time) {
	l.chores.all = []*chore{
		l.newConfigure(now),
		l.newReadHolds(now),
		l.newReclaim(now),
		l.newUnserved(now),
		l.newPurge(now),
		l.newAskClock(now),
		l.newReadSchedules(now),
		l.newFire(),
		l.newShift(),
		l.newPeek(),
		l.newKick(),
		l.newRamps(),
		l.newShow(),
		l.newDigest(now),
	}
	l.chores.all = append(l.chores.all, l.newPromote(now)...)
}

// at returns when the chore is to be done, or zero if nothing is to be done or it
// must wait.
func (c *chore) at() time.Time {
	if c.due.mono.IsZero() || c.idle != nil && c.idle() {
		return time.Time{}
	}
	return latest(c.due.mono, c.pause)
}

// failing reports whether a chore has failed, and neither the chore nor an
// exchange has succeeded since.
func (s *chores) failing() bool {
	for _, c := range s.all {
		if c.failed {
			return true
		}
	}
	return false
}

// worked notes that an exchange sent at sent has succeeded. A chore that fails
// after that begins another streak.
func (s *chores) worked(sent time.Time) {
	if !sent.After(s.failedAt) {
		return
	}
	for _, c := range s.all {
		c.failed = false
	}
}

// sendChore calls the store for the next chore that is due. Chores take turns, so
// that one that is always due again keeps no other waiting.
func (l *loop) sendChore(now time.Time) {
	s := &l.chores
	for i := range s.all {
		turn := (s.turn + i) % len(s.all)
		c := s.all[turn]
		if !c.last && !l.shutdown.working() || !reached(c.at(), now) || !c.due.reached(now, l.clock) {
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

// choreDone takes the answer of a chore. A chore that failed is due again, after
// a time that grows with each failure.
func (l *loop) choreDone(c *chore, apply func(now time.Time), err error, now time.Time) {
	if err == nil {
		c.backoff, c.failed = 0, false
		apply(now)
		return
	}
	c.backoff = longer(c.backoff)
	c.due, c.pause = onMono(now), now.Add(c.backoff)
	if !l.endsWork(err, true, now) {
		l.complain(err)
		c.failed, l.chores.failedAt = true, now
	}
}
