// Package clock is the queue's clock: the wall clock, as far as it can be
// believed.
//
// Boards without a clock battery boot in the past, and any clock can be set
// wrong for a while. So the latest time that was ever seen is kept as a floor,
// and a wall clock behind it is not believed at once. What the queue takes for
// the time is then:
//
//	wall clock                               the queue's time
//	at or after the floor                    the wall clock
//	behind it by no more than Slack          stands still until the wall clock has caught up
//	behind it, before the program was built  goes on from the floor, by the monotonic clock
//	behind it, but plausible                 the same for Patience, then the wall clock
//
// In the last case the floor was the error: one visit to a wrong year must not
// keep the queue there for ever. Its time then steps back, and what is due a
// while after that moment has to be shifted along.
//
// Where the time goes on from the floor, each process has its own, which is as
// old as the last write before it began. They are to tell each other, see
// [Clock.CatchUp].
package clock

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// Slack is by how much the wall clock may step back, or drift from the
	// monotonic clock between two looks, without anything being made of it.
	Slack = 5 * time.Second
	// Patience is for how long a plausible wall clock must stay behind the
	// floor, by the monotonic clock, to be believed.
	Patience = 10 * time.Minute
)

// Built is before which no wall clock is plausible: the time of the commit that
// the program was built from if the build knows it, else the day on which this
// was written.
var Built = built()

func built() time.Time {
	t := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return t
	}
	for _, s := range info.Settings {
		if v, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil && v.After(t) {
			t = v
		}
	}
	return t
}

// Options of [New].
type Options struct {
	// Wall is the wall clock. If nil, time.Now.
	Wall func() time.Time
	// Floor is the latest time seen before. If zero, none.
	Floor time.Time
	// Built is before which no wall clock is plausible. If zero, [Built].
	Built time.Time
	// OnJump is called, under the clock's lock, when the wall clock has jumped
	// by more than Slack between two looks: forwards, or back if negative.
	// If nil, nothing is.
	OnJump func(by time.Duration)
	// OnStep is called, under the clock's lock, when the queue's time steps
	// back. If nil, nothing is.
	OnStep func(from, to time.Time)
}

// Clock is safe for concurrent use.
type Clock struct {
	options Options
	start   time.Time // where the monotonic clock is read from

	mu     sync.Mutex
	now    time.Time     // the queue's time at the last look
	wall   time.Time     // and the wall clock
	mono   time.Duration // and the monotonic clock
	doubt  time.Duration // on the monotonic clock: since when a plausible wall clock has been behind
	doubts bool          // doubt holds
	adrift bool          // the time goes on from the floor
}

// New makes a clock. Its time begins at the wall clock or, if that is behind
// it, the floor.
func New(o Options) *Clock {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Built.IsZero() {
		o.Built = Built
	}
	c := &Clock{options: o, start: time.Now(), now: o.Floor.Round(0)}
	c.wall = o.Wall().Round(0)
	return c
}

// Now returns the queue's time. It goes back only in the step that OnStep is
// told of.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look()
}

func (c *Clock) look() time.Time {
	wall, mono := c.options.Wall().Round(0), time.Since(c.start)
	passed := mono - c.mono
	if jump := wall.Sub(c.wall) - passed; (jump > Slack || jump < -Slack) && c.options.OnJump != nil {
		c.options.OnJump(jump)
	}
	c.wall, c.mono = wall, mono
	c.now = c.next(wall, mono, passed)
	return c.now
}

// next returns the queue's time when some time has passed on the monotonic clock
// since it was last looked at.
func (c *Clock) next(wall time.Time, mono, passed time.Duration) time.Time {
	behind := c.now.Sub(wall)
	c.adrift = false
	if behind <= 0 {
		c.doubts = false
		return wall
	}
	if behind <= Slack {
		c.doubts = false
		return c.now
	}
	if wall.Before(c.options.Built) {
		c.doubts, c.adrift = false, true
		return c.now.Add(passed)
	}
	if !c.doubts {
		c.doubts, c.doubt = true, mono
	}
	if mono-c.doubt < Patience {
		c.adrift = true
		return c.now.Add(passed)
	}
	c.doubts = false
	if c.options.OnStep != nil {
		c.options.OnStep(c.now.Add(passed), wall)
	}
	return wall
}

// CatchUp tells the clock of a time that another process has had. If its own
// goes on from a floor, it goes on from there, unless that is earlier.
func (c *Clock) CatchUp(seen time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.look(); c.adrift && seen.After(c.now) {
		c.now = seen.Round(0)
	}
}

// Adrift reports whether the time went on from a floor when it was last looked at.
func (c *Clock) Adrift() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adrift
}

// Doubtful reports whether the wall clock, when it was last looked at, was
// plausible and behind, and had not been so for long enough to be believed.
func (c *Clock) Doubtful() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubts
}

// Plausible reports whether the wall clock is not before the program was built. It
// may still be wrong; if it is not plausible it is.
func (c *Clock) Plausible() bool { return !c.options.Wall().Before(c.options.Built) }
