package errand

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/storage"
)

// ClockState is what a [Queue] knows of the time.
type ClockState struct {
	// Now is the queue's time, which due times are about. It is the wall clock,
	// but where that is behind the latest time that the database has seen: by a
	// little, and the queue's time stands still until it has caught up; by more
	// than 5 s, and it goes on from the latest time seen, until the wall clock
	// is ahead again or, being plausible, has stayed behind for ten minutes.
	Now time.Time
	// Plausible is set unless the wall clock is before the time that the program
	// was built, which a board without a clock battery shows after it was
	// switched on.
	Plausible bool
	// Jumps is how often the wall clock was found to have jumped by more than
	// 5 s, in either direction, since the queue was opened. Sleep and
	// hibernation of the machine count.
	Jumps int64
}

// Clock gives the queue's time, and what is to be thought of it.
func (q *Queue) Clock() ClockState {
	return ClockState{Now: q.clock.Now(), Plausible: q.clock.Plausible(), Jumps: q.clock.jumps.Load()}
}

// queueClock is the one clock of a queue and its workers.
type queueClock struct {
	*clock.Clock
	keeper storage.Timekeeper // nil: the Store is none
	logger *slog.Logger
	jumps  atomic.Int64
	// What is still to be logged: under the lock of the clock no logger is
	// called, as it might ask for the time.
	jump, step atomic.Int64
}

// newClock begins at the latest time that the store was given, if it keeps that.
func newClock(ctx context.Context, store storage.Store, o *Options) (*queueClock, error) {
	c := &queueClock{logger: o.Logger}
	c.keeper, _ = store.(storage.Timekeeper)
	var floor time.Time
	if c.keeper != nil {
		var err error
		if floor, _, err = c.keeper.Clock(ctx); err != nil {
			return nil, err
		}
	}
	c.Clock = clock.New(clock.Options{
		Wall: o.Clock, Floor: floor,
		OnJump: func(by time.Duration) {
			c.jumps.Add(1)
			c.jump.Store(int64(by))
		},
		OnStep: func(from, to time.Time) { c.step.Store(int64(from.Sub(to))) },
	})
	if wall := o.Clock(); wall.Before(floor.Add(-clock.Slack)) {
		o.Logger.Warn("errand: the wall clock is behind what the database has seen", "wall", wall, "seen", floor)
	}
	return c, nil
}

// current is now for a call of the queue. While the time goes on from what the
// database has seen, other processes may be ahead; workers hear of that, but
// there need not be any.
func (c *queueClock) current(ctx context.Context) time.Time {
	now := c.Now()
	if c.keeper == nil || !c.Adrift() {
		return now
	}
	seen, _, err := c.keeper.Clock(ctx)
	if err == nil { // else the call itself will tell
		c.CatchUp(seen)
	}
	return c.Now() // again: that may have taken its time
}

// Now returns the queue's time, and logs if the clock has jumped or stepped back.
func (c *queueClock) Now() time.Time {
	now := c.Clock.Now()
	if by := time.Duration(c.jump.Swap(0)); by != 0 {
		c.logger.Warn("errand: the wall clock has jumped", "by", by, "now", now)
	}
	if by := time.Duration(c.step.Swap(0)); by != 0 {
		c.logger.Warn("errand: the queue's time goes back to the wall clock", "by", -by, "now", now)
	}
	return now
}
