package clock_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/clock"
)

// wall is a wall clock that can be set wrong.
type wall struct{ off time.Duration }

func (w *wall) now() time.Time { return time.Now().Add(w.off) }

const (
	day  = 24 * time.Hour
	year = 365 * day
)

type step struct{ from, to time.Time }

type rig struct {
	*testing.T
	wall  wall
	clock *clock.Clock
	jumps []time.Duration
	steps []step
}

// bubble returns a clock whose wall clock is that of the bubble, which begins in
// the year 2000, and a floor of so much before or after it. Built says how far
// in the past the program was built.
func bubble(t *testing.T, floor, built time.Duration, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t}
		r.clock = clock.New(clock.Options{
			Wall: r.wall.now, Floor: time.Now().Add(floor), Built: time.Now().Add(-built),
			OnJump: func(by time.Duration) { r.jumps = append(r.jumps, by) },
			OnStep: func(from, to time.Time) { r.steps = append(r.steps, step{from, to}) },
		})
		test(r)
	})
}

// ahead checks by how much the queue's time is ahead of the true time.
func (r *rig) ahead(want time.Duration) {
	r.Helper()
	if got := time.Until(r.clock.Now()); got != want {
		r.Errorf("the queue's time is %v ahead, want %v", got, want)
	}
}

func TestClock_FollowsTheWallClock(t *testing.T) {
	bubble(t, -day, year, func(r *rig) {
		r.ahead(0)
		time.Sleep(time.Hour)
		r.ahead(0)
		r.wall.off = day
		r.ahead(day)
		if len(r.jumps) != 1 || r.jumps[0] != day {
			r.Errorf("jumps %v, want one of a day", r.jumps)
		}
	})
}

func TestClock_SmallStepBackStandsStill(t *testing.T) {
	bubble(t, -day, year, func(r *rig) {
		before := r.clock.Now()
		r.wall.off = -clock.Slack
		for range 5 {
			if now := r.clock.Now(); !now.Equal(before) {
				r.Fatalf("%v after the step, want %v", now, before)
			}
			time.Sleep(clock.Slack / 5)
		}
		time.Sleep(time.Second)
		r.ahead(-clock.Slack)
		if len(r.jumps)+len(r.steps) > 0 {
			r.Errorf("jumps %v, steps %v: want none", r.jumps, r.steps)
		}
	})
}

func TestClock_ImplausibleWallClockGoesOnFromTheFloor(t *testing.T) {
	// A board that boots in 1970, three hours after it was switched off.
	bubble(t, -3*time.Hour, day, func(r *rig) {
		r.wall.off = -30 * year
		r.ahead(-3 * time.Hour)
		time.Sleep(day)
		r.ahead(-3 * time.Hour)
		r.wall.off = 0 // the network has told it the time
		r.ahead(0)
		if len(r.steps) > 0 {
			r.Errorf("steps %v, want none", r.steps)
		}
	})
}

func TestClock_PlausibleWallClockWinsInTheEnd(t *testing.T) {
	// The floor is of a visit to a wrong month.
	bubble(t, 30*day, year, func(r *rig) {
		r.ahead(30 * day)
		time.Sleep(clock.Patience - time.Second)
		r.ahead(30 * day)
		time.Sleep(time.Second)
		r.ahead(0)
		if len(r.steps) != 1 || r.steps[0].from.Sub(r.steps[0].to) != 30*day {
			r.Errorf("steps %v, want one by 30 days", r.steps)
		}
		time.Sleep(time.Hour)
		r.ahead(0)
	})
}

func TestClock_DoubtBeginsAnew(t *testing.T) {
	bubble(t, 30*day, year, func(r *rig) {
		r.ahead(30 * day)
		time.Sleep(clock.Patience / 2)
		r.wall.off = 31 * day // ahead of the floor: nothing to doubt
		r.ahead(31 * day)
		r.wall.off = 0
		r.ahead(31 * day)
		time.Sleep(clock.Patience - time.Second)
		r.ahead(31 * day)
		time.Sleep(time.Second)
		r.ahead(0)
	})
}

func TestClock_Plausible(t *testing.T) {
	bubble(t, 0, day, func(r *rig) {
		for off, want := range map[time.Duration]bool{0: true, -day: true, -day - 1: false, -30 * year: false, year: true} {
			r.wall.off = off
			if got := r.clock.Plausible(); got != want {
				t.Errorf("off by %v, built a day ago: %v", off, got)
			}
		}
	})
}

func TestClock_CatchUp(t *testing.T) {
	bubble(t, -3*time.Hour, day, func(r *rig) {
		r.wall.off = -30 * year
		r.ahead(-3 * time.Hour)
		time.Sleep(time.Minute)
		r.clock.CatchUp(time.Now().Add(-time.Hour))
		r.ahead(-time.Hour)
		r.clock.CatchUp(time.Now().Add(-2 * time.Hour)) // no news
		time.Sleep(time.Minute)
		r.ahead(-time.Hour)
		r.wall.off = 0
		r.clock.CatchUp(time.Now().Add(time.Hour)) // by the wall clock it is later than anybody can know
		r.ahead(0)
		if len(r.steps) > 0 {
			r.Errorf("steps %v, want none", r.steps)
		}
	})
}

func TestClock_Doubtful(t *testing.T) {
	bubble(t, 30*day, year, func(r *rig) {
		doubtful := func(want bool) {
			t.Helper()
			r.clock.Now()
			if got := r.clock.Doubtful(); got != want {
				r.Errorf("doubtful: %v, want %v", got, want)
			}
		}
		doubtful(true)
		r.clock.CatchUp(time.Now().Add(31 * day)) // which changes nothing about what is to be believed
		r.ahead(31 * day)
		time.Sleep(clock.Patience)
		doubtful(false)
		r.ahead(0)
		r.wall.off = -2 * year // before the program was built: there is no doubt that it is wrong
		doubtful(false)
	})
}

func TestClock_Adrift(t *testing.T) {
	bubble(t, 30*day, year, func(r *rig) {
		adrift := func(want bool) {
			t.Helper()
			r.clock.Now()
			if got := r.clock.Adrift(); got != want {
				r.Errorf("adrift: %v, want %v", got, want)
			}
		}
		adrift(true) // in doubt
		time.Sleep(clock.Patience)
		adrift(false)
		r.wall.off = -2 * year // before the program was built
		adrift(true)
		r.wall.off = -clock.Slack / 2 // stands still, after what was added since
		time.Sleep(time.Minute)
		adrift(false)
	})
}

// The clock of a store is followed, whatever the wall clock shows: also back.
func TestClock_FollowsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t}
		store, known := wall{off: time.Hour}, false
		r.clock = clock.New(clock.Options{
			Wall: r.wall.now, Built: time.Now().Add(-year),
			Store:  func() (time.Time, bool) { return store.now(), known },
			OnJump: func(by time.Duration) { r.jumps = append(r.jumps, by) },
			OnStep: func(from, to time.Time) { r.steps = append(r.steps, step{from, to}) },
		})
		r.ahead(0)
		known = true
		r.ahead(time.Hour)
		for _, off := range []time.Duration{-2 * year, 2 * year, 0} {
			r.wall.off = off
			time.Sleep(time.Second)
			r.ahead(time.Hour)
			if _, believed := r.clock.Read(); !believed || !r.clock.Plausible() || r.clock.Doubtful() || r.clock.Adrift() {
				t.Errorf("the store's clock is not believed, with a wall clock that is off by %v", off)
			}
		}
		if len(r.jumps)+len(r.steps) > 0 {
			t.Errorf("jumps %v and steps %v of a wall clock that is not followed", r.jumps, r.steps)
		}
		store.off -= clock.Slack
		before := r.clock.Now()
		time.Sleep(clock.Slack / 2)
		if now := r.clock.Now(); !now.Equal(before) {
			t.Errorf("the time went on from %v to %v, while the store's clock is behind a little", before, now)
		}
		time.Sleep(clock.Slack)
		r.ahead(store.off)
		store.off = -2 * year
		r.ahead(-2 * year)
		if len(r.steps) != 1 || len(r.jumps) != 1 || !r.clock.Plausible() {
			t.Errorf("steps %v and jumps %v, want one back with the store", r.steps, r.jumps)
		}
	})
}

// What no clock can show is never taken over, whatever is known beside it, and ends at once.
func TestClock_ImpossibleReadings(t *testing.T) {
	impossible := []time.Time{
		{}, time.Unix(-1, 0), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.UnixMicro(math.MaxInt64), time.UnixMicro(math.MinInt64),
		time.Unix(1<<62, 0), time.Unix(-1<<62, 0),
	}
	for _, shows := range impossible {
		for name, floor := range map[string]time.Time{
			"a floor": time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), "no floor": {}, "an impossible floor": shows,
		} {
			synctest.Test(t, func(t *testing.T) {
				wall := time.Now
				built := time.Now().Add(-day)
				c := clock.New(clock.Options{Wall: func() time.Time { return wall() }, Floor: floor, Built: built})
				right := wall
				wall = func() time.Time { return shows }
				want := built
				if name == "a floor" {
					want = floor
				}
				for range 3 {
					now, believed := c.Read()
					if !now.Equal(want) || believed || c.Plausible() || c.Doubtful() || !c.Adrift() {
						t.Errorf("with %s and a clock that shows %v: %v, believed %t, plausible %t; want %v", name, shows.UTC(), now, believed, c.Plausible(), want)
					}
					c.CatchUp(shows)
					time.Sleep(time.Hour)
					want = want.Add(time.Hour)
				}
				wall = right
				if name == "a floor" { // which seems to have been right
					time.Sleep(clock.Patience)
					_ = c.Now()
					time.Sleep(clock.Patience)
				}
				if now, believed := c.Read(); !now.Equal(time.Now()) || !believed {
					t.Errorf("with %s, once the clock is right: %v, believed %t", name, now, believed)
				}
			})
		}
	}
}

// A store with such a clock is not followed.
func TestClock_ImpossibleStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shows := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		c := clock.New(clock.Options{Store: func() (time.Time, bool) { return shows, true }, Built: time.Now()})
		if now := c.Now(); !now.Equal(time.Now()) {
			t.Errorf("the queue's time is %v", now)
		}
	})
}
