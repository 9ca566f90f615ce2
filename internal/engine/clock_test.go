package engine_test

import (
	"context"

	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const day = 24 * time.Hour

// wall is a clock that can be set wrong.
type wall struct{ off atomic.Int64 }

func (w *wall) set(off time.Duration) { w.off.Store(int64(off)) }
func (w *wall) now() time.Time        { return time.Now().Add(time.Duration(w.off.Load())) }

// unsure is a clock whose wall clock may be implausible.
type unsure struct {
	engine.Wall
	plausible *atomic.Bool
}

func (u unsure) Plausible() bool { return u.plausible.Load() }

// notice is by when a change of the clock must have been noticed.
const notice = 15 * time.Second

// hourly is a policy without an end.
var hourly = policy.Policy{MinDelay: time.Hour, MaxDelay: time.Hour, Retries: 1000, Jitter: policy.NoJitter}

// oncePerHour checks the runs of an hourly schedule: each at its tick, one per
// hour, without a hole.
func oncePerHour(t *testing.T, w *wall, runs []run, n int) {
	t.Helper()
	if len(runs) != n {
		t.Errorf("%d runs, want %d", len(runs), n)
	}
	for i, run := range runs {
		at := run.at.Add(time.Duration(w.off.Load()))
		if !run.tick.Equal(at) || run.tick.Minute() != 0 || i > 0 && run.tick.Sub(runs[i-1].tick) != time.Hour {
			t.Errorf("run %d is of %v, at %v", i, run.tick, at)
		}
	}
}

// The clock is set back 3 days, forward 30, and is right again, while jobs run,
// wait for their retry, for a date and for schedules.
func TestClock_BackAndForth(t *testing.T) {
	for _, patient := range []bool{false, true} {
		t.Run(fmt.Sprintf("patient=%v", patient), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var w wall
				r.cfg.Clock = engine.Wall(w.now)
				back := notice // until a step back is believed
				if patient {
					r.cfg.Clock = engine.Wall(clock.New(clock.Options{Wall: w.now, Built: time.Now().Add(-year)}).Now)
					back += clock.Patience
				}
				r.store.alone = true
				r.cfg.Policy = hourly.Delivery()
				began := time.Now()
				rec := r.record()
				r.declare(storage.Schedule{Name: "hourly", Spec: "0 * * * *"})
				r.declare(storage.Schedule{Name: "nine", Spec: "0 9 * * *"})
				release := make(chan struct{})
				r.handle("long", func(ctx context.Context, _ *storage.Leased) error {
					select {
					case <-release:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
				var tried moments
				r.handle("flaky", func(context.Context, *storage.Leased) error {
					tried.add()
					return errOops
				})
				long, flaky := r.enqueue("long", 1)[0], r.enqueue("flaky", 1)[0]
				date := began.Add(40 * day)
				dated := r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: date})[0]
				r.start()
				// beside lets another look on for a while: would it take a lease?
				beside := func(d time.Duration) {
					o := r.another()
					o.cfg.Clock, o.cfg.Handlers, o.cfg.Policy = r.cfg.Clock, r.cfg.Handlers, r.cfg.Policy
					o.start()
					pass(d)
					if err := o.stop(); err != nil {
						t.Error(err)
					}
					if lines := append(o.logs.with("lease"), o.logs.with("recovered")...); len(lines) > 0 {
						t.Errorf("leases were lost: %q", lines)
					}
				}
				beside(90 * time.Minute)
				oncePerHour(t, &w, rec.take("hourly"), 1)

				w.set(-3 * day)
				beside(2 * time.Hour)
				pass(10 * time.Hour) // until half past one, three days ago
				if patient {
					if first := rec.take("hourly"); len(first) != 12 {
						t.Errorf("%d runs since", len(first))
					}
				} else {
					oncePerHour(t, &w, rec.take("hourly"), 12)
				}
				if runs := rec.take("nine"); len(runs) != 1 || !runs[0].tick.Equal(began.Add(-3*day+9*time.Hour)) || runs[0].at.Sub(began) != 9*time.Hour {
					t.Errorf("nine o'clock three days ago: %v", runs)
				}
				tries, pause := tried.all(), time.Duration(0)
				for i, at := range tries[1:] {
					pause = max(pause, at.Sub(tries[i]))
				}
				// Half of the delay had passed, and is counted anew.
				if len(tries) < 13 || pause > 90*time.Minute+back {
					t.Errorf("%d tries, with at most %v between them", len(tries), pause)
				}

				w.set(27 * day)
				n := len(tries)
				pass(notice)
				if runs := rec.take("hourly"); len(runs) != 1 || runs[0].tick.Sub(began) != 27*day+13*time.Hour {
					t.Errorf("on arrival in the wrong month: %v", runs)
				}
				if runs := rec.take("nine"); len(runs) != 1 {
					t.Errorf("on arrival in the wrong month: %v", runs)
				}
				if tries = tried.all(); len(tries) != n+1 {
					t.Errorf("%d retries on arrival", len(tries)-n)
				}
				beside(20 * time.Minute)

				w.set(0)
				beside(back)
				right, n := time.Now(), len(tried.all())
				if runs := append(rec.take("hourly"), rec.take("nine")...); len(runs) > 1 || !patient && len(runs) > 0 {
					t.Errorf("on the way back: %v", runs)
				}
				beside(time.Hour)
				if tries = tried.all(); len(tries) != n+1 || tries[n].Sub(right) > time.Hour {
					t.Errorf("tried at %v, an hour after %v", tries[n:], right)
				}
				oncePerHour(t, &w, rec.take("hourly"), 1)
				begun := int(time.Since(began) / time.Hour)
				pass(time.Until(began.Add(day + 9*time.Hour + time.Minute)))
				oncePerHour(t, &w, rec.take("hourly"), 24+9-begun)
				if runs := rec.take("nine"); len(runs) != 1 || runs[0].tick.Sub(began) != day+9*time.Hour || !runs[0].at.Equal(runs[0].tick) {
					t.Errorf("nine o'clock: %v", runs)
				}
				r.wantState(long, storage.Running, storage.Counters{Attempt: 1})
				close(release)
				synctest.Wait()
				r.wantState(long, storage.Done, storage.Counters{Attempt: 1})
				n = len(tried.all())
				r.wantState(flaky, storage.Scheduled, storage.Counters{Attempt: n, Retry: n})
				if rec := r.wantState(dated, storage.Scheduled, storage.Counters{}); !rec.DueAt.Equal(date) {
					t.Errorf("a job for %v is due %v", date, rec.DueAt)
				}
				if lines := r.logs.with("lease"); len(lines) > 0 {
					t.Errorf("leases were lost: %q", lines)
				}
			})
		})
	}
}

const year = 365 * day

// moments are when something happened.
type moments struct {
	mu sync.Mutex
	at []time.Time
}

func (m *moments) add() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Now())
}

func (m *moments) all() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.at)
}

func TestClock_ForwardJumpIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = engine.Wall(w.now)
		r.store.alone = true
		rec := r.record()
		r.handle("due", func(context.Context, *storage.Leased) error { return nil })
		r.declare(storage.Schedule{Name: "s", Spec: "0 0 1 * *"})
		ids := r.add(storage.NewJob{Queue: "q", Kind: "due", DueAt: r.now().Add(40 * day)},
			storage.NewJob{Queue: "q", Kind: "due", Delay: 40 * day})
		r.start()
		pass(time.Hour + 7*time.Second)
		w.set(41 * day) // or the machine has slept
		pass(notice)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		if runs := rec.take("s"); len(runs) != 1 {
			t.Errorf("%d runs", len(runs))
		}
		if n := len(r.store.of("step", 0)); n > 0 {
			t.Errorf("%d calls of StepClock", n)
		}
	})
}

// An outcome that could not be written while the clock was wrong is corrected,
// and so is one that was under way and is written later.
//
//errand:shows slow chores of a worker
func TestClock_OutcomesThatWait(t *testing.T) {
	for _, c := range []struct {
		inFlight bool
		end      error
	}{{false, nil}, {true, storage.ErrBusy}, {true, nil}} {
		inFlight := c.inFlight
		t.Run(fmt.Sprintf("inFlight=%v, %v", inFlight, c.end), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var w wall
				r.cfg.Clock = engine.Wall(w.now)
				r.cfg.Policy = hourly.Delivery()
				r.store.alone = true
				stuck := &stuckStore{spy: r.store, failure: make(chan error)}
				if inFlight {
					r.cfg.Store = stuck
				}
				var tried moments
				r.handle("k", func(context.Context, *storage.Leased) error {
					if tried.add(); len(tried.all()) > 1 {
						return nil
					}
					if inFlight {
						stuck.stall()
					} else {
						r.store.failing(func(string) error { return storage.ErrBusy })
					}
					return errOops
				})
				w.set(30 * day)
				r.enqueue("k", 1)
				r.start()
				pass(time.Minute)
				w.set(0)
				pass(notice)
				if inFlight {
					stuck.fail(c.end)
				} else {
					r.store.failing(nil)
				}
				pass(2 * time.Hour)
				late := time.Duration(0)
				if inFlight && c.end == nil {
					late = time.Minute + notice // it counts from the pass that corrects it
				}
				tries := tried.all()
				if len(tries) != 2 || tries[1].Sub(tries[0]) < time.Hour || tries[1].Sub(tries[0]) > time.Hour+late {
					t.Errorf("tried at %v", tries)
				}
			})
		})
	}
}

// stuckStore can hold exchanges up, and then fail them or let them go.
type stuckStore struct {
	*spy
	stalled atomic.Bool
	failure chan error
}

func (s *stuckStore) stall()         { s.stalled.Store(true) }
func (s *stuckStore) fail(err error) { s.failure <- err }

func (s *stuckStore) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if s.stalled.Load() {
		err := <-s.failure
		s.stalled.Store(false)
		if err != nil {
			return storage.ExchangeResult{}, err
		}
	}
	return s.spy.Exchange(ctx, now, x)
}

// Small steps back are no reason for anything, but no tick comes twice.
func TestClock_SmallStepsBack(t *testing.T) {
	for _, by := range []time.Duration{clock.Slack - time.Second, 9 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var w wall
				r.cfg.Clock = engine.Wall(w.now)
				r.store.alone = true
				rec := r.record()
				r.declare(storage.Schedule{Name: "s"})
				began := time.Now()
				r.start()
				pass(20*time.Minute + time.Second)
				w.set(-by)
				pass(20 * time.Minute)
				var ticks []time.Duration
				for _, run := range rec.take("s") {
					ticks = append(ticks, run.tick.Sub(began))
				}
				slices.Sort(ticks)
				want := int((time.Since(began) - by) / time.Minute)
				if len(slices.Compact(ticks)) != len(ticks) || len(ticks) != want {
					t.Errorf("ticks %v, want %d", ticks, want)
				}
				steps := len(r.store.of("step", 0))
				if (steps > 0) != (by > clock.Slack) {
					t.Errorf("%d steps", steps)
				}
			})
		})
	}
}

// A look each 15 s is all that an idle engine does, and it costs nothing.
func TestClock_IdleLooksCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var looks atomic.Int64
		r.cfg.Clock = engine.Wall(func() time.Time { looks.Add(1); return time.Now() })
		r.store.alone = true
		r.cfg.Retention.Default = time.Hour
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.declare(storage.Schedule{Name: "s", Spec: "@yearly"})
		r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: time.Now().Add(year)})
		r.start()
		pass(time.Hour)
		n := r.store.count()
		looks.Store(0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		pass(10 * day)
		runtime.ReadMemStats(&after)
		if calls := r.store.since(n); len(calls) > 0 {
			t.Errorf("%d calls of the store, first %q", len(calls), calls[0].op)
		}
		const want = int(10 * day / notice)
		if n := int(looks.Load()); n < want || n > want+1 {
			t.Errorf("%d looks at the clock in ten days, want %d", n, want)
		}
		if n := after.Mallocs - before.Mallocs; n > uint64(want)/10 {
			t.Errorf("%d allocations", n)
		}
	})
}

// A job of a tick in the wrong month whose jitter is not over does not stay there.
func TestClock_JitterOfAWrongMonth(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = engine.Wall(w.now)
		rec := r.record()
		r.declare(storage.Schedule{Name: "s", Spec: "0 * * * *", Jitter: time.Hour, SkipOverlap: true})
		r.start()
		w.set(30 * day)
		pass(notice)
		w.set(0)
		pass(5 * time.Hour)
		if runs := rec.take("s"); len(runs) < 4 {
			t.Errorf("%d runs in five hours", len(runs))
		}
	})
}

// A look at the clock that takes long, since its jump is logged for example, is
// not taken for one that was set back.
func TestClock_SlowLook(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var slow atomic.Int64
		r.cfg.Clock = engine.Wall(func() time.Time {
			now := time.Now()
			time.Sleep(time.Duration(slow.Swap(0)))
			return now
		})
		r.store.alone = true
		r.start()
		pass(time.Minute)
		slow.Store(int64(2 * clock.Slack))
		pass(time.Minute)
		if lines := r.logs.with("set back"); len(lines) > 0 {
			t.Errorf("%q", lines)
		}
	})
}
