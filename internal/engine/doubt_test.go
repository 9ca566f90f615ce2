package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// by has the engine go by a clock that begins at the latest time its database
// has seen.
func (r *rig) by(w *wall, built time.Time) *clock.Clock {
	r.t.Helper()
	floor, _, err := r.app.(storage.Timekeeper).Clock(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if floor.IsZero() {
		floor = time.Now()
	}
	c := clock.New(clock.Options{Wall: w.now, Built: built, Floor: floor})
	r.cfg.Clock = c
	r.store.alone = true
	return c
}

// One process was started while the other doubted the clock, and doubts it for
// longer. What it thinks it has missed since the other went back is yet to come.
func TestClock_TwoDoubtForDifferentTimes(t *testing.T) {
	for _, missed := range []string{"one", "all(100)"} {
		t.Run(missed, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var w wall
				built := time.Now().Add(-year)
				r.by(&w, built)
				rec := r.record()
				r.declare(storage.Schedule{Name: "s", Missed: missed})
				r.start()
				pass(2 * time.Hour)
				w.set(30 * day)
				pass(2 * time.Hour)
				w.set(0)
				pass(clock.Patience - time.Minute + 7*time.Second)
				o := r.another()
				o.cfg.Handlers = r.cfg.Handlers
				c := o.by(&w, built)
				o.start()
				pass(time.Minute + notice)
				rec.take("s")
				began := time.Now().Truncate(time.Minute)
				pass(5 * time.Minute)
				if now := c.Now(); time.Until(now) != 30*day || !c.Doubtful() {
					t.Fatalf("the other is at %v", now)
				}
				pass(15 * time.Minute)
				wantEvery(t, rec.take("s"), time.Minute, 20, began.Add(time.Minute))
			})
		})
	}
}

// Of two processes that go on from what the database has seen, since no clock
// tells them, the later one began behind the other.
func TestClock_TwoWithoutABattery(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		began := time.Now()
		w.set(-30 * year)
		r.by(&w, began)
		rec := r.record()
		r.declare(storage.Schedule{Name: "s", Spec: "0 9 * * *"})
		r.start()
		pass(15 * time.Hour)
		opened := func() *rig {
			o := r.another()
			o.cfg.Handlers = r.cfg.Handlers
			if c := o.by(&w, began); time.Since(c.Now()) < 5*time.Hour {
				t.Fatalf("at %v it begins with %v", time.Now(), c.Now())
			}
			return o
		}
		late, soon := opened(), opened()
		soon.start()
		pass(22 * time.Hour)
		late.start() // long after it has asked for the time
		for i, o := range []*rig{soon, late} {
			if now := o.cfg.Clock.Now(); time.Since(now) > 5*time.Hour {
				t.Errorf("process %d is at %v, and it is %v", i, now, time.Now())
			}
		}
		// Something that has all of them read the schedules again.
		if err := r.app.Hold(t.Context(), r.now(), storage.Hold{Lane: storage.Lane{Queue: "other"}, Reason: storage.HoldPaused}); err != nil {
			t.Fatal(err)
		}
		pass(2 * day)
		wantEvery(t, rec.take("s"), day, 4, began.Add(9*time.Hour))
	})
}

// counting counts the looks at a clock.
type counting struct {
	engine.Clock
	looks *atomic.Int64
}

func (c counting) Now() time.Time {
	c.looks.Add(1)
	return c.Clock.Now()
}

// A clock that stands still a moment before a tick is not asked all the time.
func TestClock_StandsStillBeforeATick(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		c := r.by(&w, time.Now().Add(-year))
		var looks atomic.Int64
		r.cfg.Clock = counting{c, &looks}
		rec := r.record()
		r.declare(storage.Schedule{Name: "s"})
		r.start()
		pass(time.Minute - 10*time.Microsecond)
		c.Now()
		w.set(1 - clock.Slack)
		looks.Store(0)
		pass(10 * time.Second)
		if n := looks.Load(); n > 6000 {
			t.Errorf("%d looks in five seconds", n)
		}
		if runs := rec.take("s"); len(runs) != 1 {
			t.Errorf("%d runs", len(runs))
		}
	})
}
