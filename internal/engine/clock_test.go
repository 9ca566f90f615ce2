package engine_test

import (
	"context"
	"errors"

	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const day = 24 * time.Hour

// wall is a clock that can be set wrong.
type wall struct{ off atomic.Int64 }

func (w *wall) set(off time.Duration) { w.off.Store(int64(off)) }
func (w *wall) now() time.Time        { return time.Now().Add(time.Duration(w.off.Load())) }

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
				r.cfg.Clock = w.now
				back := notice // until a step back is believed
				if patient {
					r.cfg.Clock = clock.New(clock.Options{Wall: w.now, Built: time.Now().Add(-year)}).Now
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
				var tries []time.Time
				r.handle("flaky", func(context.Context, *storage.Leased) error {
					tries = append(tries, time.Now())
					return errOops
				})
				long, flaky := r.enqueue("long", 1)[0], r.enqueue("flaky", 1)[0]
				date := began.Add(40 * day)
				dated := r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: date})[0]
				r.start()
				other := r.another() // would take leases
				other.cfg.Clock = r.cfg.Clock
				other.cfg.Handlers, other.cfg.Policy = r.cfg.Handlers, r.cfg.Policy
				other.start()
				pass(90 * time.Minute)
				oncePerHour(t, &w, rec.take("hourly"), 1)

				w.set(-3 * day)
				pass(12 * time.Hour) // until half past one, three days ago
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
				pause := time.Duration(0)
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
				if len(tries) != n+1 {
					t.Errorf("%d retries on arrival", len(tries)-n)
				}
				pass(20 * time.Minute)

				w.set(0)
				pass(back)
				right, n := time.Now(), len(tries)
				if runs := append(rec.take("hourly"), rec.take("nine")...); len(runs) > 1 || !patient && len(runs) > 0 {
					t.Errorf("on the way back: %v", runs)
				}
				pass(time.Hour)
				if len(tries) != n+1 || tries[n].Sub(right) > time.Hour {
					t.Errorf("tried at %v, an hour after %v", tries[n:], right)
				}
				oncePerHour(t, &w, rec.take("hourly"), 1)
				if err := other.stop(); err != nil {
					t.Error(err)
				}
				begun := int(time.Since(began) / time.Hour)
				pass(began.Add(day + 9*time.Hour + time.Minute).Sub(time.Now()))
				oncePerHour(t, &w, rec.take("hourly"), 24+9-begun)
				if runs := rec.take("nine"); len(runs) != 1 || runs[0].tick.Sub(began) != day+9*time.Hour || !runs[0].at.Equal(runs[0].tick) {
					t.Errorf("nine o'clock: %v", runs)
				}
				r.wantState(long, storage.Running, storage.Counters{Attempt: 1})
				close(release)
				synctest.Wait()
				r.wantState(long, storage.Done, storage.Counters{Attempt: 1})
				r.wantState(flaky, storage.Scheduled, storage.Counters{Attempt: len(tries), Retry: len(tries)})
				if rec := r.wantState(dated, storage.Scheduled, storage.Counters{}); !rec.DueAt.Equal(date) {
					t.Errorf("a job for %v is due %v", date, rec.DueAt)
				}
				for _, r := range []*rig{r, other} {
					if lines := append(r.logs.with("lease"), r.logs.with("recovered")...); len(lines) > 0 {
						t.Errorf("leases were lost: %q", lines)
					}
				}
			})
		})
	}
}

const year = 365 * day

func TestClock_ForwardJumpIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = w.now
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

// An outcome that could not be written while the clock was wrong is corrected.
func TestClock_OutcomesThatWait(t *testing.T) {
	for _, inFlight := range []bool{false, true} {
		t.Run(fmt.Sprintf("inFlight=%v", inFlight), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var w wall
				r.cfg.Clock = w.now
				r.cfg.Policy = hourly.Delivery()
				r.store.alone = true
				stuck := &stuckStore{spy: r.store}
				if inFlight {
					r.cfg.Store = stuck
				}
				var tries []time.Time
				r.handle("k", func(context.Context, *storage.Leased) error {
					if tries = append(tries, time.Now()); len(tries) > 1 {
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
					stuck.fail(storage.ErrBusy)
				} else {
					r.store.failing(nil)
				}
				pass(2 * time.Hour)
				if len(tries) != 2 || tries[1].Sub(tries[0]) != time.Hour {
					t.Errorf("tried at %v", tries)
				}
			})
		})
	}
}

// stuckStore can hold exchanges up, and then fail them.
type stuckStore struct {
	*spy
	failure chan error
}

func (s *stuckStore) stall()         { s.failure = make(chan error) }
func (s *stuckStore) fail(err error) { s.failure <- err }

func (s *stuckStore) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if s.failure != nil {
		err := <-s.failure
		s.failure = nil
		return storage.ExchangeResult{}, err
	}
	return s.spy.Exchange(ctx, now, x)
}

// delayed adds n jobs with an hour's delay, more than one step deals with.
func (r *rig) delayed(n int) []storage.ID {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = storage.NewJob{Queue: "q", Kind: "k", Delay: time.Hour}
	}
	return r.add(jobs...)
}

// wantDone checks that jobs were done by a time from now, and not before.
func (r *rig) wantDone(ids []storage.ID, after time.Duration) {
	r.t.Helper()
	pass(after - time.Second)
	r.wantState(ids[0], storage.Scheduled, storage.Counters{})
	pass(2 * time.Second)
	for _, id := range ids {
		if rec, err := r.app.Job(r.t.Context(), id); err == nil && rec.State != storage.Done {
			r.t.Fatalf("job is %s, due %v, at %v", rec.State, rec.DueAt, r.now())
		}
	}
}

func TestClock_ShiftsInSteps(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = w.now
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		w.set(30 * day)
		pass(notice)
		ids := r.delayed(450)
		n := r.store.count()
		w.set(0)
		fails := 3
		r.store.failing(func(op string) error {
			if op == "step" && fails > 0 {
				fails--
				return storage.ErrBusy
			}
			return nil
		})
		pass(notice + time.Second)
		var steps, others int
		for _, c := range r.store.since(n) {
			switch c.op {
			case "step":
				steps++
			case "exchange":
				others++
			}
		}
		if steps != 5+3 || others < 5 {
			t.Errorf("%d steps for 450 jobs, and %d exchanges", steps, others)
		}
		r.store.failing(nil)
		r.wantDone(ids, time.Hour-time.Second)
	})
}

// After a step jobs are looked for, though nobody says that they are due.
func TestClock_LooksForWhatWasShifted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = w.now
		r.cfg.Store = mum{r.store}
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		w.set(30 * day)
		ids := r.delayed(450)
		r.start()
		w.set(0)
		pass(notice)
		r.wantDone(ids, time.Hour)
	})
}

// mum tells nobody anything.
type mum struct{ *spy }

func (mum) Notify(func(storage.Event)) func() { return func() {} }

// A step back during the pass begins it anew.
func TestClock_StepsBackTwice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = w.now
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		w.set(60 * day)
		pass(notice)
		ids := r.delayed(450)
		w.set(30 * day)
		steps := 0
		r.store.failing(func(op string) error {
			if op != "step" {
				return nil
			}
			if steps++; steps == 3 {
				w.set(0)
			}
			return nil
		})
		pass(2 * notice)
		if steps != 3+5 {
			t.Errorf("%d steps, want 3 and 5", steps)
		}
		r.wantDone(ids, time.Hour-notice)
	})
}

func TestClock_FinishesThePassOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = w.now
		w.set(30 * day)
		ids := r.delayed(450)
		w.set(0)
		keeper := r.app.(storage.Timekeeper)
		if next, err := keeper.StepClock(t.Context(), r.now(), 0); err != nil || next == 0 {
			t.Fatal(next, err)
		}
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		if _, shifting, err := keeper.Clock(t.Context()); err != nil || shifting {
			t.Errorf("shifting: %v, %v", shifting, err)
		}
		r.wantDone(ids, time.Hour)
	})
}

// Who writes at a time to come may be gone before it notices.
func TestClock_OthersWriteAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var other wall
		r.cfg.Keep = 0
		plausible := true
		r.cfg.Plausible = func() bool { return plausible }
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		pass(time.Hour)
		write := func(s storage.Store) storage.ID {
			r.cfg.Clock = other.now
			defer func(app storage.Store) { r.app, r.cfg.Clock = app, nil }(r.app)
			r.app = s
			return r.delayed(1)[0]
		}

		other.set(clock.Slack)
		write(r.app)
		if n := len(r.store.of("step", 0)); n > 0 {
			t.Errorf("%d passes for what is within the slack", n)
		}

		other.set(30 * day)
		id := write(r.app)
		if n := len(r.store.of("step", 0)); n != 1 {
			t.Errorf("%d passes", n)
		}
		r.wantDone([]storage.ID{id}, time.Hour)

		// Nobody tells of what this process writes; it is found afterwards.
		n := r.store.count()
		write(r.app)
		pass(time.Second)
		id = write(r.store.Store)
		pass(shiftEvery)
		if n := len(r.store.of("step", n)); n != 2 {
			t.Errorf("%d passes", n)
		}
		r.wantDone([]storage.ID{id}, time.Hour-time.Second) // a second was left of the minute

		n = r.store.count()
		for range 50 {
			write(r.app)
			pass(12 * time.Second)
		}
		if n := len(r.store.of("step", n)); n < 9 || n > 11 {
			t.Errorf("%d passes in ten minutes", n)
		}
		pass(2 * time.Hour)

		// Whose own clock cannot be right does not judge.
		plausible = false
		n = r.store.count()
		id = write(r.app)
		pass(time.Hour)
		if n := len(r.store.of("step", n)); n > 0 {
			t.Errorf("%d passes by an implausible clock", n)
		}
		plausible = true
		pass(notice)
		if n := len(r.store.of("step", n)); n != 1 {
			t.Errorf("%d passes since the clock is plausible", n)
		}
		pass(time.Hour)
		if _, err := r.app.Job(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the job is not over: %v", err)
		}
	})
}

const shiftEvery = time.Minute

// Small steps back are no reason for anything, but no tick comes twice.
func TestClock_SmallStepsBack(t *testing.T) {
	for _, by := range []time.Duration{clock.Slack - time.Second, 9 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var w wall
				r.cfg.Clock = w.now
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
		looks := 0
		r.cfg.Clock = func() time.Time { looks++; return time.Now() }
		r.store.alone = true
		r.cfg.Keep = time.Hour
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.declare(storage.Schedule{Name: "s", Spec: "@yearly"})
		r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: time.Now().Add(year)})
		r.start()
		pass(time.Hour)
		n := r.store.count()
		looks = 0
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		pass(10 * day)
		runtime.ReadMemStats(&after)
		if calls := r.store.since(n); len(calls) > 0 {
			t.Errorf("%d calls of the store, first %q", len(calls), calls[0].op)
		}
		const want = int(10 * day / notice)
		if looks < want || looks > want+1 {
			t.Errorf("%d looks at the clock in ten days, want %d", looks, want)
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
		r.cfg.Clock = w.now
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
