package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/schedule"
	"github.com/errandq/errand/storage"
)

func TestFiring_MissedOverDowntime(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, tt := range []struct {
		spec, missed string
		down         time.Duration
		runs         int
		skipped      int64
	}{
		{"@every 5s", "skip", 2 * week, 0, 241920},
		{"@every 5s", "one", 2 * week, 1, 241919},
		{"@every 5s", "all(100)", 2 * week, 100, 241820},
		{"@every 5s", "skip", 10 * time.Second, 2, 0}, // on time
		{"0 * * * *", "skip", 3*time.Hour + 10*time.Second, 1, 2},
		{"0 * * * *", "one", 3*time.Hour + 10*time.Second, 1, 2},
		{"0 * * * *", "one", 3*time.Hour + 11*time.Second, 1, 2},
		{"0 * * * *", "skip", 3*time.Hour + 11*time.Second, 0, 3},
		{"0 * * * *", "all(2)", 3*time.Hour + 10*time.Second, 2, 1},
		{"0 * * * *", "all(1000)", 3*time.Hour + time.Minute, 3, 0},
	} {
		t.Run(fmt.Sprintf("%s %s %v", tt.spec, tt.missed, tt.down), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				rec := r.record()
				r.store.alone = true
				r.declare(storage.Schedule{Name: "s", Spec: tt.spec, Missed: tt.missed})
				pass(tt.down)
				r.start()
				runs := rec.take("s")
				if len(runs) != tt.runs {
					t.Errorf("%d runs, want %d", len(runs), tt.runs)
				}
				if calls := r.store.of("fire", 0); len(calls) != 1 {
					t.Errorf("%d calls of Fire, want one", len(calls))
				}
				skipped := int64(0)
				for _, tick := range r.store.of("fire", 0)[0].firings[0].Ticks {
					if tick.Taken == storage.TickMissed {
						skipped += tick.N
					}
				}
				if lines := r.logs.with("ticks of a schedule were missed"); skipped != tt.skipped || len(lines) != min(1, int(skipped)) {
					t.Errorf("%d ticks were skipped, want %d: %q", skipped, tt.skipped, lines)
				}
				pass(time.Hour)
				if len(rec.take("s")) == 0 {
					t.Error("no runs afterwards")
				}
			})
		})
	}
}

func TestFiring_RestartNeitherDoublesNorMisses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.record()
		r.declare(storage.Schedule{Name: "s"})
		began := time.Now()
		for range 30 {
			r.start()
			pass(20 * time.Second)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second) // ticks that come meanwhile are on time
		}
		runs := rec.take("s")
		if want := int(time.Since(began) / time.Minute); len(runs) != want {
			t.Errorf("%d runs in %v", len(runs), time.Since(began))
		}
		for i, run := range runs {
			if want := began.Add(time.Duration(i+1) * time.Minute); !run.tick.Equal(want) || run.at.Sub(want) > 5*time.Second {
				t.Errorf("run %d is of %v, at %v; want %v", i, run.tick, run.at, want)
			}
		}
	})
}

func TestFiring_Overlap(t *testing.T) {
	for _, skip := range []bool{true, false} {
		t.Run(fmt.Sprintf("skip=%v", skip), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var runs moments
				busy := work(150 * time.Second)
				r.handle("k", func(ctx context.Context, job *storage.Leased) error {
					runs.add()
					return busy(ctx, job)
				})
				r.declare(storage.Schedule{Name: "s", SkipOverlap: skip})
				r.start()
				pass(4*time.Minute + time.Second)
				if skip {
					r.wantHistory("s", "00:01:00 1 fired", "00:02:00 1 overlap", "00:03:00 1 overlap", "00:04:00 1 fired")
				} else {
					r.wantHistory("s", "00:01:00 1 fired", "00:02:00 1 fired", "00:03:00 1 fired", "00:04:00 1 fired")
				}
				if n, want := len(runs.all()), map[bool]int{true: 2, false: 4}[skip]; n != want {
					t.Errorf("%d runs, want %d", n, want)
				}
			})
		})
	}
}

func TestFiring_UniqueKeyThatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := storage.Schedule{Name: "s"}
		s.Job.Unique = "k key"
		r.declare(s)
		r.start() // nobody handles k
		pass(2*time.Minute + time.Second)
		r.wantHistory("s", "00:01:00 1 fired", "00:02:00 1 duplicate")
	})
}

func TestFiring_Jitter(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const jitter = 40 * time.Second
		rec := r.record()
		r.declare(storage.Schedule{Name: "s", Jitter: jitter})
		r.start()
		pass(time.Hour + time.Minute)
		runs := rec.take("s")
		if len(runs) != 60 {
			t.Fatalf("%d runs", len(runs))
		}
		offsets := map[time.Duration]bool{}
		for _, run := range runs {
			d := schedule.JitterFor("s", run.tick, jitter)
			offsets[d] = true
			if d < 0 || d >= jitter || !run.at.Equal(run.tick.Add(d)) || !run.due.Equal(run.at) {
				t.Errorf("tick %v was run at %v and due at %v, want %v after", run.tick, run.at, run.due, d)
			}
		}
		if len(offsets) < 50 {
			t.Errorf("60 ticks are spread over %d offsets", len(offsets))
		}
	})
}

// A call of Fire is bounded, and the exchanges go on between two of them.
func TestFiring_Bounds(t *testing.T) {
	for _, tt := range []struct {
		missed                string
		schedules, most, jobs int
		args                  int
	}{
		{"one", 250, 100, 100, 2},
		{"all(300)", 20, 3, 900, 2},
		{"all(1000)", 3, 1, 1000, 2},
		{"one", 10, 8, 8, 8 << 20},
	} {
		t.Run(fmt.Sprintf("%s of %d bytes", tt.missed, tt.args), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.store.alone = true
				args := make([]byte, tt.args)
				for i := range tt.schedules {
					s := r.declare(storage.Schedule{Name: fmt.Sprintf("s%03d", i), Missed: tt.missed})
					s.Job.Args = args
					r.put(s)
				}
				pass(24 * time.Hour)
				r.start() // nobody handles k
				total := 0
				for _, c := range r.store.of("fire", 0) {
					jobs := 0
					for _, f := range c.firings {
						for _, tick := range f.Ticks {
							if tick.Job != nil {
								jobs++
							}
						}
					}
					if len(c.firings) > tt.most || jobs > tt.jobs {
						t.Errorf("one call has %d firings and %d jobs", len(c.firings), jobs)
					}
					total += len(c.firings)
				}
				if total != tt.schedules {
					t.Errorf("%d firings for %d schedules", total, tt.schedules)
				}
			})
		})
	}
}

// With more due than a slow store can take none is left out for ever.
func TestFiring_FairOverASlowStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := &slowFire{spy: r.store}
		slow.takes.Store(int64(3 * time.Second))
		r.cfg.Store = slow
		for i := range 250 {
			r.declare(storage.Schedule{Name: fmt.Sprintf("s%03d", i), Spec: "@every 1s"})
		}
		r.start()
		pass(time.Minute)
		for i := range 250 {
			if n := len(r.history(fmt.Sprintf("s%03d", i))); n < 5 {
				t.Errorf("schedule %d has %d entries", i, n)
			}
		}
	})
}

// slowFire takes its time to fire.
type slowFire struct {
	*spy
	takes atomic.Int64
}

func (s *slowFire) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	time.Sleep(time.Duration(s.takes.Load()))
	return s.spy.Fire(ctx, now, firings)
}

func TestFiring_WaitsForTheClock(t *testing.T) {
	for _, wait := range []bool{true, false} {
		t.Run(fmt.Sprintf("wait=%v", wait), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				rec := r.record()
				var plausible atomic.Bool
				r.cfg.WaitForClock = wait
				r.cfg.Clock = unsure{time.Now, &plausible}
				r.declare(storage.Schedule{Name: "before"})
				// Declared while nobody knew the time.
				late := r.declare(storage.Schedule{Name: "late"})
				late.Plan = storage.Plan{Revision: late.Revision}
				r.put(late)
				r.store.alone = true
				r.start()
				pass(10*time.Minute + time.Second)
				if n := len(rec.take("before")) + len(rec.take("late")); n != map[bool]int{true: 0, false: 20}[wait] {
					t.Errorf("%d runs while the clock was implausible", n)
				}
				if n := len(r.store.of("fire", 0)); wait && n > 0 {
					t.Errorf("%d calls of Fire", n)
				}
				if !wait {
					return
				}
				plausible.Store(true)
				pass(15 * time.Second)
				if runs := rec.take("before"); len(runs) != 1 || runs[0].tick.Minute() != 10 {
					t.Errorf("%d runs when the clock became plausible: %v", len(runs), runs)
				}
				if runs := rec.take("late"); len(runs) != 0 {
					t.Errorf("the schedule that was never planned ran for %v", runs)
				}
				pass(time.Minute)
				for _, name := range []string{"before", "late"} {
					if runs := rec.take(name); len(runs) != 1 || !runs[0].at.Equal(runs[0].tick) {
						t.Errorf("schedule %q ran for %v", name, runs)
					}
				}
			})
		})
	}
}

// slowChores takes a second for each chore.
type slowChores struct{ *spy }

func (s slowChores) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	time.Sleep(time.Second)
	return s.spy.Reclaim(ctx, now, mono, lease, limit)
}

func (s slowChores) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	time.Sleep(time.Second)
	return s.spy.Fire(ctx, now, firings)
}

func (s slowChores) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	time.Sleep(time.Second)
	return s.spy.PurgeFinished(ctx, now)
}

// With a store so slow that more than one chore is always due again, none of
// them keeps the others waiting.
func TestChore_TheyTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = slowChores{r.store}
		r.cfg.Retention.Default = time.Second
		r.record()
		r.declare(storage.Schedule{Name: "s", Spec: "@every 1s"})
		r.start()
		pass(time.Minute)
		for _, op := range []string{"reclaim", "fire", "purge"} {
			if n := len(r.store.of(op, 0)); n < 15 || n > 25 {
				t.Errorf("%d calls of %s in a minute", n, op)
			}
		}
	})
}
