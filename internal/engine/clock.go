package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/storage"
)

const (
	// lookAgain is how often the loop looks at the Config's clock at least: it
	// may be set, and the machine may sleep.
	lookAgain = 15 * time.Second
	// shiftEvery is how often a pass of StepClock may begin because of what
	// others have written; and how long after one that is asked for.
	shiftEvery = time.Minute
)

// watch is how the loop keeps an eye on the Config's clock.
type watch struct {
	keeper storage.Timekeeper // nil: the Store is none

	seen   time.Time // on the clock, when it was last looked at
	seenAt time.Time // when that was
	lookAt time.Time // look again
	// setBack is by how much it was, in all. What was counted from an earlier
	// reading is corrected by the difference.
	setBack time.Duration

	// A pass of StepClock.
	shift      *chore    // its next step; not due: there is no pass
	shiftAfter int64     // is over what is after this key
	shiftAnew  bool      // began after the step that is in flight
	shiftedAt  time.Time // the last one ended

	// ahead is the latest time ahead of the clock that another process is
	// known to have written at, until a pass has dealt with it; zero: none.
	ahead time.Time
	ask   *chore // asks the store for it
}

// clock looks at the Config's clock. All looks of the loop are by it, so that
// none is used after one that was found wrong, and before that was mended.
func (l *loop) clock() time.Time {
	w := &l.watch
	before := time.Now()
	t := l.cfg.Clock().Round(0)
	now := time.Now()
	// From after the last look to before this one: time lost in either, while
	// the clock's jump is logged for example, hides a step back and does not
	// feign one.
	back := w.seen.Add(before.Sub(w.seenAt)).Sub(t)
	first := w.seenAt.IsZero()
	w.seen, w.seenAt = t, now
	if !first && back > clock.Slack {
		l.steppedBack(back, now, t)
	}
	return t
}

// look is a look at the clock because it is time to have one. All that waits
// for the clock is adjusted to it.
func (l *loop) look(now time.Time) {
	t := l.clock()
	l.watch.lookAt = now.Add(lookAgain)
	l.sources.nextDue.look(now, t)
	for _, c := range l.chores.all {
		c.due.look(now, t)
	}
	l.doubt(now, t)
}

// steppedBack mends what was counted from times that have turned out to be
// wrong: here, and in the store by a pass of StepClock.
func (l *loop) steppedBack(by time.Duration, now, t time.Time) {
	l.cfg.Logger.Info("errand: the clock was set back, delays are counted anew", "by", by, "to", t)
	l.watch.setBack += by
	earlier(l.outcomes.waiting, by)
	l.setNextFiring(now, t)
	l.shift(now)
}

// earlier has jobs that are put back be due earlier.
func earlier(outcomes []storage.Finish, by time.Duration) {
	for i := range outcomes {
		if f := &outcomes[i]; by > 0 && !f.DueAt.IsZero() {
			f.DueAt = f.DueAt.Add(-by)
		}
	}
}

// newAskClock makes the chore that asks at which time others have written, and
// whether one of them was in the middle of a pass.
func (l *loop) newAskClock(now time.Time) *chore {
	w := &l.watch
	w.ask = &chore{}
	if w.keeper != nil {
		w.ask.due = soon(now)
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

// newShift makes the chore that does the steps of a pass. Outcomes under way may
// have due times by the clock as it was: they are to be in the store before the
// pass, which corrects them.
func (l *loop) newShift() *chore {
	w := &l.watch
	w.shift = &chore{idle: func() bool { return l.exchanges.busy }}
	w.shift.prepare = func(now time.Time) task {
		after := w.shiftAfter
		w.shift.due, w.shiftAnew = soon(now), false
		clock := l.clock()
		return func(ctx context.Context) (func(time.Time), error) {
			sent := time.Now()
			next, err := w.keeper.StepClock(ctx, clock, after)
			return func(now time.Time) { l.shifted(sent, next, now) }, err
		}
	}
	return w.shift
}

// shift begins a pass of StepClock at a time, from the beginning.
func (l *loop) shift(at time.Time) {
	if w := &l.watch; w.keeper != nil {
		w.shift.due = soon(sooner(w.shift.due.mono, at))
		w.shiftAfter, w.shiftAnew = 0, true
	}
}

// shifted goes on with the pass, or ends it. What others wrote before they
// noticed too is looked for a while later.
func (l *loop) shifted(sent time.Time, after int64, now time.Time) {
	w := &l.watch
	l.sources.wake()
	switch {
	case w.shiftAnew:
	case after != 0:
		w.shiftAfter = after
		w.shift.due = soon(now.Add(now.Sub(sent))) // leave the writer to others for as long
	default:
		w.shift.due, w.ahead = wallTime{}, time.Time{}
		w.shiftedAt, w.ask.due = now, soon(now.Add(shiftEvery))
	}
}

// heard takes note of a time that another process has written at.
func (l *loop) heard(mark, now time.Time) {
	if mark.After(l.watch.ahead) {
		l.watch.ahead = mark
	}
	l.cfg.CatchUp(mark)
	l.watch.lookAt = now // it may have
	l.doubt(now, l.clock())
}

// doubt begins a pass if somebody has written at a time that is yet to come,
// and may have been unable to mend it. Whose own clock is implausible is in no
// position to judge, and asks again later.
func (l *loop) doubt(now, t time.Time) {
	w := &l.watch
	switch {
	case w.ahead.IsZero() || !w.shift.due.mono.IsZero():
	case !w.ahead.After(t.Add(clock.Slack)):
		w.ahead = time.Time{}
	case l.cfg.Plausible():
		l.cfg.Logger.Info("errand: somebody wrote at a time to come, delays are counted anew", "written", w.ahead, "now", t)
		at := now
		if !w.shiftedAt.IsZero() {
			at = latest(now, w.shiftedAt.Add(shiftEvery))
		}
		l.shift(at)
	}
}

// wallTime is a moment on the Config's clock that the loop waits for, with the
// moment on the monotonic clock when it should look again.
type wallTime struct {
	wall time.Time // zero: mono alone counts
	mono time.Time // zero: the loop waits for nothing
}

// soon returns a moment on the monotonic clock.
func soon(mono time.Time) wallTime { return wallTime{mono: mono} }

func (w *wallTime) at(t, now, clock time.Time) {
	*w = wallTime{wall: t, mono: now.Add(min(max(t.Sub(clock), 0), lookAgain))}
}

// look adjusts w to the Config's clock as it is now.
func (w *wallTime) look(now, clock time.Time) {
	if !w.wall.IsZero() {
		w.at(w.wall, now, clock)
	}
}

// sooner makes w t, unless it is earlier already.
func (w *wallTime) sooner(t, now, clock time.Time) {
	if w.mono.IsZero() || t.Before(w.wall) {
		w.at(t, now, clock)
	}
}

// reached tells whether the moment has come, and if so clears it.
func (w *wallTime) reached(now time.Time, clock func() time.Time) bool {
	if !reached(w.mono, now) {
		return false
	}
	if !w.wall.IsZero() {
		if t := clock(); t.Before(w.wall) {
			w.at(w.wall, now, t)
			// It may stand still for seconds, a moment before.
			w.mono = latest(w.mono, now.Add(time.Millisecond))
			return false
		}
	}
	*w = wallTime{}
	return true
}
