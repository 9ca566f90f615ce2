package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/storage"
)

const (
	// lookAgain is how often the loop reads the Config's clock at least: the
	// clock may be set, and the machine may sleep.
	lookAgain = 15 * time.Second
	// shiftEvery is how often a pass of StepClock may begin because of times
	// that others have written, and how long after a pass they are asked for.
	shiftEvery = time.Minute
)

// Clock is the clock that due times are about. It is safe for concurrent use.
type Clock interface {
	// Now returns the time.
	Now() time.Time
	// Read is Now, and reports whether the time is believed: not if the wall clock is
	// implausible, or behind what the store has seen.
	Read() (now time.Time, believed bool)
	// Plausible reports whether the wall clock that Now goes by can be right.
	Plausible() bool
	// Doubtful reports whether Now may soon be set back, as the wall clock was.
	Doubtful() bool
	// CatchUp takes a time that another process has written at. It matters to a
	// Clock that does not go by a wall clock.
	CatchUp(seen time.Time)
}

// Wall is a Clock that is always believed.
type Wall func() time.Time

// Now returns the time.
func (w Wall) Now() time.Time { return w() }

// Read returns the time, and true.
func (w Wall) Read() (time.Time, bool) { return w(), true }

// Plausible returns true.
func (Wall) Plausible() bool { return true }

// Doubtful returns false.
func (Wall) Doubtful() bool { return false }

// CatchUp does nothing.
func (Wall) CatchUp(time.Time) {}

// watch is what the loop knows of the Config's clock.
type watch struct {
	keeper   storage.Timekeeper // nil: the Store is none, or its clock is followed
	followed bool               // the Store has a clock of its own, which all go by

	seen   time.Time // the last reading
	seenAt time.Time // when the clock was last read
	lookAt time.Time // read the clock again
	// doubtful is true if the last reading was not believed.
	doubtful bool
	// setBack is by how much the clock was set back in all. A time that was
	// computed from an earlier reading is corrected by the difference.
	setBack time.Duration

	// A pass of StepClock.
	shift      *chore    // does its next step; not due: there is no pass
	shiftAfter int64     // the next step begins after this key
	shiftAnew  bool      // the pass began while a step of the one before was under way
	shiftedAt  time.Time // the last pass ended

	// ahead is the latest time at which another process is known to have
	// written, if that is ahead of the clock. It is zero once a pass is done.
	ahead time.Time
	ask   *chore // asks the store for ahead
}

// clock reads the Config's clock. The loop reads it only here: if the clock
// stepped back, times computed from the old reading are corrected before the new
// one is returned.
func (l *loop) clock() time.Time {
	w := &l.watch
	before := time.Now()
	t, believed := l.cfg.Clock.Read()
	t = t.Round(0)
	now := time.Now()
	// The time between the two readings is taken as short as it can be: a delay
	// during a reading may hide a step back, and does not feign one.
	back := w.seen.Add(before.Sub(w.seenAt)).Sub(t)
	first := w.seenAt.IsZero()
	w.seen, w.seenAt, w.doubtful = t, now, !believed
	if !first && back > clock.Slack {
		l.steppedBack(back, now, t)
	}
	return t
}

// look reads the clock and adjusts all times to it that the loop waits for.
func (l *loop) look(now time.Time) {
	t := l.clock()
	l.watch.lookAt = now.Add(lookAgain)
	l.sources.nextDue.look(now, t)
	for _, c := range l.chores.all {
		c.due.look(now, t)
	}
	l.doubt(now, t)
}

// steppedBack corrects the times that were computed from a wrong reading: those
// of the loop at once, those in the store by a pass of StepClock.
func (l *loop) steppedBack(by time.Duration, now, t time.Time) {
	l.cfg.Logger.Info("errand: the clock was set back, delays are counted anew", "by_s", by.Seconds(), "now", t)
	l.watch.setBack += by
	earlier(l.outcomes.waiting, by)
	l.setNextFiring(now, t)
	l.shift(now)
}

// earlier makes jobs that are put back due earlier.
func earlier(outcomes []outcome, by time.Duration) {
	for i := range outcomes {
		if f := &outcomes[i]; by > 0 && !f.DueAt.IsZero() {
			f.DueAt = f.DueAt.Add(-by)
			if f.Spent != nil && !f.Spent.DueAt.IsZero() {
				f.Spent.DueAt = f.Spent.DueAt.Add(-by)
			}
		}
	}
}

// newAskClock makes the chore that asks for the latest time at which others have
// written, and whether a pass was begun and not finished.
func (l *loop) newAskClock(now time.Time) *chore {
	w := &l.watch
	w.ask = &chore{}
	if w.keeper != nil {
		w.ask.due = onMono(now)
	}
	w.ask.prepare = func(time.Time) task {
		return func(ctx context.Context) (func(time.Time), error) {
			mark, shifting, err := w.keeper.Clock(ctx)
			return func(now time.Time) {
				if shifting {
					l.shift(now)
				}
				l.heard(mark, now)
			}, err
		}
	}
	return w.ask
}

// newShift makes the chore that does the steps of a pass. Outcomes in flight may
// have due times from a wrong reading, which the pass corrects once they are in
// the store: so it waits until no exchange is under way.
func (l *loop) newShift() *chore {
	w := &l.watch
	w.shift = &chore{idle: l.asking}
	w.shift.prepare = func(now time.Time) task {
		after := w.shiftAfter
		w.shift.due, w.shiftAnew = onMono(now), false
		clock := l.clock()
		return func(ctx context.Context) (func(time.Time), error) {
			sent := time.Now()
			next, err := w.keeper.StepClock(ctx, clock, after)
			return func(now time.Time) { l.shifted(sent, next, now) }, err
		}
	}
	return w.shift
}

// shift begins a pass of StepClock, at a time, from the first key.
func (l *loop) shift(at time.Time) {
	if w := &l.watch; w.keeper != nil {
		w.shift.due = onMono(sooner(w.shift.due.mono, at))
		w.shiftAfter, w.shiftAnew = 0, true
	}
}

// shifted goes on with the pass or ends it. Others may have noticed the step
// later: a while after the pass the store is asked what they have written.
func (l *loop) shifted(sent time.Time, after int64, now time.Time) {
	w := &l.watch
	l.sources.wake()
	switch {
	case w.shiftAnew:
	case after != 0:
		w.shiftAfter = after
		w.shift.due = onMono(now.Add(now.Sub(sent))) // leave the writer to others for as long
	default:
		w.shift.due, w.ahead = wallTime{}, time.Time{}
		w.shiftedAt, w.ask.due = now, onMono(now.Add(shiftEvery))
		l.chores.purge.due = onMono(now) // what is kept may be over earlier
	}
}

// heard notes a time at which another process has written.
func (l *loop) heard(mark, now time.Time) {
	if l.watch.followed {
		return
	}
	if mark.After(l.watch.ahead) {
		l.watch.ahead = mark
	}
	l.cfg.Clock.CatchUp(mark)
	l.watch.lookAt = now // it may have caught up
	l.doubt(now, l.clock())
}

// doubt begins a pass if another process has written at a time that is yet to
// come, as it may have been unable to correct that. If the own clock is
// implausible there is no telling which of the two is wrong: doubt is called
// again later.
func (l *loop) doubt(now, t time.Time) {
	w := &l.watch
	switch {
	case w.ahead.IsZero() || !w.shift.due.mono.IsZero():
	case !w.ahead.After(t.Add(clock.Slack)):
		w.ahead = time.Time{}
	case l.cfg.Clock.Plausible():
		l.cfg.Logger.Info("errand: somebody wrote at a time to come, delays are counted anew", "seen", w.ahead, "now", t)
		at := now
		if !w.shiftedAt.IsZero() {
			at = latest(now, w.shiftedAt.Add(shiftEvery))
		}
		l.shift(at)
	}
}

// wallTime is a moment that the loop waits for. Once mono has come the Config's
// clock is read, which may show that wall has not.
type wallTime struct {
	wall time.Time // on the Config's clock; zero: mono alone counts
	mono time.Time // on the monotonic clock; zero: never
}

// onMono returns a moment on the monotonic clock.
func onMono(mono time.Time) wallTime { return wallTime{mono: mono} }

// at sets w to t on the Config's clock, which shows clock now.
func (w *wallTime) at(t, now, clock time.Time) {
	*w = wallTime{wall: t, mono: now.Add(min(max(t.Sub(clock), 0), lookAgain))}
}

// look adjusts mono to the Config's clock, which shows clock now.
func (w *wallTime) look(now, clock time.Time) {
	if !w.wall.IsZero() {
		w.at(w.wall, now, clock)
	}
}

// sooner sets w to t unless w is earlier.
func (w *wallTime) sooner(t, now, clock time.Time) {
	if w.mono.IsZero() || t.Before(w.wall) {
		w.at(t, now, clock)
	}
}

// reached reports whether the moment has come. If so it is cleared.
func (w *wallTime) reached(now time.Time, clock func() time.Time) bool {
	if !reached(w.mono, now) {
		return false
	}
	if !w.wall.IsZero() {
		if t := clock(); t.Before(w.wall) {
			w.at(w.wall, now, t)
			// The clock may stand still for seconds, just before wall.
			w.mono = latest(w.mono, now.Add(time.Millisecond))
			return false
		}
	}
	*w = wallTime{}
	return true
}
