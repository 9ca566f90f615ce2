package errand

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/storage"
)

// ClockState is what a [Queue] knows about the time.
type ClockState struct {
	// Now is the queue's time, which due times refer to. It is the wall clock
	// unless the wall clock is behind the latest time that the database has
	// seen. If it is behind by at most 5 s, the queue's time stands still until
	// the wall clock has caught up. If it is behind by more, the queue's time
	// goes on from the latest time seen. That ends when the wall clock is ahead
	// again, or when a plausible wall clock has been behind for ten minutes. A reading
	// outside of the years 1970 to 9999 counts for nothing.
	//
	// A store with a clock of its own, as a server has, is followed instead, see
	// [storage.Clocked]. While its clock is behind by at most 5 s the queue's time stands
	// still; if it is behind by more, it was set back, and the queue's time goes back with it.
	// Then Plausible is true, and Jumps are those of that clock.
	Now time.Time `json:"now"`
	// Plausible is true if the wall clock is not after the year 9999, and not before the time at which the program was
	// built: that of its commit if the build knows it, as go build in a checkout does, else
	// 20 November 2026, when this release was made. A board without a clock battery shows an
	// earlier time after it was switched on.
	Plausible bool `json:"plausible"`
	// Jumps is how often the wall clock has jumped by more than 5 s, forwards or
	// back, since the queue was opened. Sleep and hibernation of the machine
	// count.
	Jumps int64 `json:"jumps"`
}

// Clock returns the state of the queue's clock.
func (q *Queue) Clock() ClockState {
	plausible := q.clock.Plausible() // before the time is read, which may be set right in between
	return ClockState{Now: q.clock.Now(), Plausible: plausible, Jumps: q.clock.jumps.Load()}
}

// queueClock is the one clock of a queue and its workers.
type queueClock struct {
	*clock.Clock
	keeper storage.Timekeeper // nil: the Store does not keep the time
	server bool               // it goes by the clock of the Store
	logger *slog.Logger
	jumps  atomic.Int64
	// jump and step are still to be logged. No logger is called under the lock
	// of the clock: it might ask for the time.
	jump, step atomic.Int64
}

// wallClock returns the wall clock for the option Clock. One of the application is asked
// beside those who read it: a worker does, and must not wait.
func wallClock(own func() time.Time, log *slog.Logger) func() time.Time {
	if own == nil {
		return time.Now
	}
	return clock.Beside(own, func(answers bool) {
		if answers {
			log.Info("errand: the clock answers again")
		} else {
			log.Warn("errand: the clock has not answered for 1 s, the time goes on from its last reading")
		}
	})
}

// newClock returns a clock that follows that of the store, if the store has one. Else it begins
// at the latest time that the store has seen, if the store keeps the time.
func newClock(ctx context.Context, store storage.Store, o *Options) (*queueClock, error) {
	c := &queueClock{logger: o.Logger}
	options := clock.Options{
		Wall: o.Clock,
		OnJump: func(by time.Duration) {
			c.jumps.Add(1)
			c.jump.Store(int64(by))
		},
		OnStep: func(from, to time.Time) { c.step.Store(int64(from.Sub(to))) },
	}
	if s, ok := store.(storage.Clocked); ok {
		c.server, options.Store = true, s.StoreTime
		c.Clock = clock.New(options)
		return c, nil
	}
	c.keeper, _ = store.(storage.Timekeeper)
	var floor time.Time
	if c.keeper != nil {
		var err error
		if floor, _, err = c.keeper.Clock(ctx); err != nil {
			return nil, err
		}
	}
	options.Floor = floor
	c.Clock = clock.New(options)
	if wall := o.Clock(); wall.Before(floor.Add(-clock.Slack)) {
		o.Logger.Warn("errand: the wall clock is behind what the database has seen", "wall", wall, "seen", floor)
	}
	return c, nil
}

// current returns the time for a call of the queue.
func (c *queueClock) current(ctx context.Context) time.Time {
	now, _ := c.read(ctx)
	return now
}

// read is current, and reports whether the time is believed. While the time goes on from
// the latest that the database has seen, other processes may be ahead. Workers
// hear of their time, but this process may have no worker.
func (c *queueClock) read(ctx context.Context) (now time.Time, believed bool) {
	if now, believed = c.Read(); c.keeper == nil || !c.Adrift() {
		return now, believed
	}
	seen, _, err := c.keeper.Clock(ctx)
	if err == nil { // else the call itself will fail and say why
		c.CatchUp(seen)
	}
	return c.Read() // again: asking the store takes time
}

// Now returns the queue's time.
func (c *queueClock) Now() time.Time {
	now, _ := c.Read()
	return now
}

// Read is Now, and reports whether the time is believed. It logs if the clock has
// jumped or stepped back.
func (c *queueClock) Read() (now time.Time, believed bool) {
	now, believed = c.Clock.Read()
	if by := time.Duration(c.jump.Swap(0)); by != 0 && c.server {
		c.logger.Warn("errand: the store's clock has jumped", "by_s", by.Seconds(), "now", now)
	} else if by != 0 {
		c.logger.Warn("errand: the wall clock has jumped", "by_s", by.Seconds(), "now", now)
	}
	if by := time.Duration(c.step.Swap(0)); by != 0 && c.server {
		c.logger.Warn("errand: the queue's time goes back to the store's clock", "by_s", (-by).Seconds(), "now", now)
	} else if by != 0 {
		c.logger.Warn("errand: the queue's time goes back to the wall clock", "by_s", (-by).Seconds(), "now", now)
	}
	return now, believed
}
