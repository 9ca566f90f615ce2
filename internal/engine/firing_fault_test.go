package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// secondly returns the seconds of the ticks that were run.
func secondly(runs []run) []int {
	var s []int
	for _, run := range runs {
		s = append(s, run.tick.Second())
	}
	slices.Sort(s)
	return s
}

func from(a, b int) []int {
	var s []int
	for ; a <= b; a++ {
		s = append(s, a)
	}
	return s
}

// What a store cannot take for a while comes on time after all.
func TestFiring_StoreThatFails(t *testing.T) {
	for _, op := range []string{"fire", "schedules", "exchange"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.store.alone = true
				rec := r.record()
				if op == "schedules" {
					r.cfg.Store = deaf{r.store}
				}
				r.declare(storage.Schedule{Name: "s", Spec: "@every 1s"})
				r.store.failing(func(called string) error {
					if called == op {
						return storage.ErrBusy
					}
					return nil
				})
				r.start()
				pass(4*time.Second + time.Second/2)
				if runs := rec.take("s"); len(runs) > 0 {
					t.Errorf("runs %v", runs)
				}
				r.store.failing(nil)
				pass(26 * time.Second)
				if got := secondly(rec.take("s")); !slices.Equal(got, from(1, 30)) {
					t.Errorf("ticks %v", got)
				}
				if n := len(r.logs.with("the store failed")); n != 1 {
					t.Errorf("logged %d times", n)
				}
			})
		})
	}
}

// Schedules for which there is no room together are fired in smaller numbers, and one for which there
// is none keeps no others from it.
func TestFiring_WithoutRoom(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		rec := r.record()
		for _, name := range names {
			r.declare(storage.Schedule{Name: name, Spec: "@every 1h"})
		}
		r.store.failing(func(op string) error {
			last := r.store.calls[len(r.store.calls)-1].firings
			large := func(f storage.Firing) bool { return f.Name == "a" || f.Name == "b" }
			if op == "fire" && (len(last) > 2 || slices.ContainsFunc(last, large)) {
				return storage.ErrFull
			}
			return nil
		})
		r.start()
		pass(time.Hour + 10*time.Minute)
		for i, name := range names {
			if n := len(rec.take(name)); n != min(max(i-1, 0), 1) {
				t.Errorf("schedule %s has run %d times", name, n)
			}
		}
		r.store.failing(nil)
		pass(5 * time.Minute)
		if n := len(rec.take("a")) + len(rec.take("b")); n != 2 {
			t.Errorf("with room there were %d runs of those that were left, want 2", n)
		}
	})
}

// An every-second schedule over a store that hangs for a minute: what is missed
// then is not made up for, but once.
func TestFiring_StoreThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := &slowFire{spy: r.store}
		r.cfg.Store = slow
		rec := r.record()
		r.declare(storage.Schedule{Name: "s", Spec: "@every 1s"})
		r.start()
		pass(5*time.Second + time.Second/2)
		slow.takes.Store(int64(time.Minute))
		pass(time.Second)
		slow.takes.Store(0)
		pass(70 * time.Second)
		var ticks []int
		for _, run := range rec.take("s") {
			ticks = append(ticks, int(run.tick.Sub(run.at.Truncate(24*time.Hour))/time.Second))
		}
		slices.Sort(ticks)
		// The sixth was on its way; after it the latest stands for all.
		if want := append(from(1, 6), from(66, 76)...); !slices.Equal(ticks, want) {
			t.Errorf("ticks %v, want %v", ticks, want)
		}
	})
}

func TestFiring_FatalErrorEndsRun(t *testing.T) {
	for _, op := range []string{"fire", "schedules", "clock"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.declare(storage.Schedule{Name: "s"})
				r.store.failing(func(called string) error {
					if called == op {
						return fmt.Errorf("while testing: %w", storage.ErrCorrupt)
					}
					return nil
				})
				r.start()
				pass(time.Minute)
				<-r.ended
				if !errors.Is(r.err, storage.ErrCorrupt) {
					t.Errorf("Run gave %v", r.err)
				}
			})
		})
	}
}

// forgetful fires and does not know whether it has.
type forgetful struct{ *spy }

func (f forgetful) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	if _, err := f.spy.Fire(ctx, now, firings); err != nil {
		return nil, err
	}
	return nil, storage.ErrUnknownOutcome
}

func TestFiring_OutcomeThatIsNotKnown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.declare(storage.Schedule{Name: "s", Missed: "all(10)"})
		r.cfg.Store = forgetful{r.store}
		r.start()
		pass(time.Minute)
		<-r.ended
		if !errors.Is(r.err, storage.ErrUnknownOutcome) {
			t.Errorf("Run gave %v", r.err)
		}
		again := r.another()
		rec := again.record()
		again.start()
		pass(time.Minute)
		if got := len(rec.take("s")); got != 2 {
			t.Errorf("%d runs of two ticks", got)
		}
	})
}

// Nothing is fired during a stop: what comes of it would have nobody to run it.
func TestFiring_EndsWithTheStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("long", work(grace/2))
		r.declare(storage.Schedule{Name: "s", Spec: "@every 1s"})
		r.start()
		pass(2*time.Second + time.Second/2)
		r.enqueue("long", 1)
		r.cancel()
		<-r.ended
		if r.err != nil {
			t.Error(r.err)
		}
		r.wantHistory("s", "00:00:01 1 fired", "00:00:02 1 fired")
	})
}
