// Package clock is the queue's clock: the wall clock, as far as it can be believed.
//
// Boards without a clock battery boot in the past, and any clock can be set wrong
// for a while. So the latest time ever seen is kept as a floor, and a wall clock
// behind the floor is not believed at once:
//
//	wall clock                               the queue's time
//	at or after the floor                    the wall clock
//	behind it by no more than Slack          stands still until the wall clock has caught up
//	behind it, before the program was built  goes on from the floor, by the monotonic clock
//	behind it, but plausible                 the same for Patience, then the wall clock
//	outside of the years 1970 to 9999        goes on from the floor, or from Built without one
//
// In the last case the floor was wrong: one visit to a wrong year must not keep the
// queue there for ever. The queue's time then steps back, and due times that were
// counted from the wrong time have to be shifted along.
//
// A store may have a clock of its own, as a server has. Once that is known it is followed
// instead of the wall clock, so that all machines agree:
//
//	the store's clock                        the queue's time
//	at or after the queue's time             the store's clock
//	behind it by no more than Slack          stands still until the store's clock has caught up
//	behind it by more                        steps back to the store's clock
//
// Such a store is not asked for a floor, and due times stay where a step has left them.
//
// While a clock runs from its floor, each process has its own time, starting at the
// last write it saw. Processes synchronise by [Clock.CatchUp].
package clock

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// Slack is by how much the wall clock may step back, or drift from the
	// monotonic clock between two readings, before that counts as a jump.
	Slack = 5 * time.Second
	// Patience is how long a plausible wall clock must stay behind the floor, on
	// the monotonic clock, before it is believed.
	Patience = 10 * time.Minute
)

// Built is the earliest plausible time of a wall clock: the time of the commit that
// the program was built from if the build knows it, else the day on which this line
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

// Possible reports whether a clock can show t: a time in the years 1970 to 9999. Others are
// damage, and no file and no JSON takes them.
func Possible(t time.Time) bool { return t.Unix() >= 0 && t.Unix() < end }

// end is when the year 10000 begins.
const end = 253_402_300_800

// Options of [New].
type Options struct {
	// Wall is the wall clock. If nil, time.Now.
	Wall func() time.Time
	// Store is the clock of the store, and reports whether it is known yet. It must not go
	// by the wall clock. A time that is not [Possible] counts as not known. If nil, the store has none.
	Store func() (now time.Time, known bool)
	// Floor is the latest time seen before. If zero, or not [Possible], none.
	Floor time.Time
	// Built is the earliest plausible time of the wall clock. If zero, [Built].
	Built time.Time
	// OnJump is called, under the clock's lock, when the clock that is followed has jumped by
	// more than Slack between two readings; by is negative for a jump back. If nil,
	// nothing is called.
	OnJump func(by time.Duration)
	// OnStep is called, under the clock's lock, when the queue's time steps back.
	// If nil, nothing is called.
	OnStep func(from, to time.Time)
}

// Clock is safe for concurrent use.
type Clock struct {
	options Options
	start   time.Time // zero of the monotonic clock

	mu     sync.Mutex
	now    time.Time     // the queue's time at the last reading
	wall   time.Time     // the wall clock at the last reading
	mono   time.Duration // the monotonic clock at the last reading
	doubt  time.Duration // on the monotonic clock, when a plausible wall clock fell behind
	doubts bool          // true if a plausible wall clock is behind: doubt is set
	adrift bool          // true if the time goes on from the floor
	stored bool          // true if wall is that of the store
}

// New makes a clock. Its time begins at the wall clock, or at the floor if that is
// later.
func New(o Options) *Clock {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Built.IsZero() {
		o.Built = Built
	}
	c := &Clock{options: o, start: time.Now()}
	if Possible(o.Floor) {
		c.now = o.Floor.Round(0)
	}
	r := c.read()
	c.wall, c.stored = r.wall, r.stored
	return c
}

// Now returns the queue's time. It goes back only in a step, for which OnStep is
// called.
func (c *Clock) Now() time.Time {
	now, _ := c.Read()
	return now
}

// Read is Now, and reports whether the time is that of a wall clock which is plausible.
// Otherwise the wall clock may soon be corrected, and the time be another.
func (c *Clock) Read() (now time.Time, believed bool) {
	r := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.look(r)
	return now, !c.adrift && c.plausible()
}

// reading is what the clocks show.
type reading struct {
	wall   time.Time // or the store's clock
	mono   time.Duration
	stored bool
}

// read reads the clocks, without the lock: the wall clock may keep its reader waiting.
func (c *Clock) read() reading {
	mono := time.Since(c.start)
	if c.options.Store != nil {
		if t, known := c.options.Store(); known && Possible(t) {
			return reading{t.Round(0), mono, true}
		}
	}
	return reading{c.options.Wall().Round(0), mono, false}
}

// plausible reports whether the clock that is followed can be right.
func (c *Clock) plausible() bool {
	return c.stored || !c.wall.Before(c.options.Built) && Possible(c.wall)
}

// look takes a reading, unless a later one was taken meanwhile.
func (c *Clock) look(r reading) time.Time {
	wall, mono := r.wall, r.mono
	if mono < c.mono {
		return c.now
	}
	passed := mono - c.mono
	same := c.stored == r.stored // else it is no jump, but another clock
	if jump := wall.Sub(c.wall) - passed; same && (jump > Slack || jump < -Slack) && c.options.OnJump != nil {
		c.options.OnJump(jump)
	}
	c.wall, c.mono, c.stored = wall, mono, r.stored
	c.now = c.next(wall, mono, passed)
	return c.now
}

// next returns the queue's time for a reading of the wall clock and of the monotonic
// clock, on which passed has gone by since the last reading.
func (c *Clock) next(wall time.Time, mono, passed time.Duration) time.Time {
	behind := c.now.Sub(wall)
	c.adrift = false
	if !Possible(wall) {
		c.doubts, c.adrift = false, true
		return c.goOn(passed)
	}
	if behind <= 0 {
		c.doubts = false
		return wall
	}
	if behind <= Slack {
		c.doubts = false
		return c.now
	}
	if c.stored {
		return c.stepBack(wall, passed)
	}
	if wall.Before(c.options.Built) {
		c.doubts, c.adrift = false, true
		return c.goOn(passed)
	}
	if !c.doubts {
		c.doubts, c.doubt = true, mono
	}
	if mono-c.doubt < Patience {
		c.adrift = true
		return c.goOn(passed)
	}
	return c.stepBack(wall, passed)
}

// goOn returns the queue's time as it goes on by the monotonic clock.
func (c *Clock) goOn(passed time.Duration) time.Time {
	if c.now.IsZero() { // there is no floor
		return c.options.Built
	}
	if t := c.now.Add(passed); Possible(t) {
		return t
	}
	return c.now
}

// stepBack has the queue's time go back to the clock that is followed.
func (c *Clock) stepBack(to time.Time, passed time.Duration) time.Time {
	c.doubts = false
	if c.options.OnStep != nil {
		c.options.OnStep(c.now.Add(passed), to)
	}
	return to
}

// CatchUp takes a time that another process has seen. If c goes on from a floor and
// seen is later than its time, it goes on from seen, if that is [Possible].
func (c *Clock) CatchUp(seen time.Time) {
	r := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.look(r); c.adrift && seen.After(c.now) && Possible(seen) {
		c.now = seen.Round(0)
	}
}

// Adrift reports whether the time went on from a floor at the last reading.
func (c *Clock) Adrift() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adrift
}

// Doubtful reports whether, at the last reading, the wall clock was plausible and
// behind the floor, but not for long enough to be believed.
func (c *Clock) Doubtful() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubts
}

// Plausible reports whether the wall clock is at or after the time at which the
// program was built, or the store's clock is followed. A wall clock that is not plausible is wrong; a plausible one may
// be. It is a reading as Now is: a Now that follows is of a plausible wall clock too, or
// goes on from one.
func (c *Clock) Plausible() bool {
	r := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(r)
	return c.plausible()
}
