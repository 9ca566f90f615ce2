package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

func TestFault_NoOutcomeIsLostWhileTheStoreFails(t *testing.T) {
	for _, fault := range []error{storage.ErrFull, storage.ErrBusy, storage.ErrIO, errors.New("unheard of")} {
		t.Run(fault.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				runs := map[storage.ID]int{}
				r.cfg.Concurrency = 1
				r.handle("k", func(_ context.Context, job *storage.Leased) error {
					runs[job.ID]++
					r.store.failing(func(string) error { return fmt.Errorf("while testing: %w", fault) })
					return nil
				})
				ids := r.enqueue("k", 3)
				r.start()
				for range ids {
					pass(20 * time.Second)
					r.store.failing(nil)
					pass(5 * time.Second)
				}
				for _, id := range ids {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
					if runs[id] != 1 {
						t.Errorf("job ran %d times", runs[id])
					}
				}
				if n := len(r.logs.with("the store failed")); n != 3 {
					t.Errorf("3 streaks of errors logged %d times", n)
				}
			})
		})
	}
}

func TestFault_BacksOffBetween50MillisecondsAnd5Seconds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		n := r.store.count()
		r.store.failing(func(string) error { return storage.ErrBusy })
		r.enqueue("k", 1)
		pass(time.Minute)
		calls := r.store.of("exchange", n)
		want := 50 * time.Millisecond
		for i := 1; i < len(calls); i++ {
			if d := calls[i].at.Sub(calls[i-1].at); d != want {
				t.Errorf("call %d came %v after the one before, want %v", i, d, want)
			}
			want = min(2*want, 5*time.Second)
		}
		if len(calls) < 15 {
			t.Errorf("%d calls in a minute", len(calls))
		}
	})
}

func TestFault_DelayRunsFromTheFailureNotFromItsRecord(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var at []time.Duration
		began := time.Now()
		r.cfg.Policy.Retry.NoDelayRetries = 0 // then all after 10 s
		r.handle("k", func(context.Context, *storage.Leased) error {
			at = append(at, time.Since(began))
			if len(at) > 1 {
				return nil
			}
			r.store.failing(func(string) error { return storage.ErrFull })
			return errOops
		})
		r.enqueue("k", 1)
		r.start()
		pass(5 * time.Second)
		r.store.failing(nil)
		pass(time.Minute)
		if len(at) != 2 || at[1] != 10*time.Second {
			t.Errorf("started at %v, want 10s after the failure", at)
		}
	})
}

func TestFault_FatalErrorsEndRun(t *testing.T) {
	for _, fault := range []error{
		storage.ErrClosed, storage.ErrCorrupt, storage.ErrTooNew, storage.ErrUnknownOutcome,
	} {
		t.Run(fault.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var cause causes
				r.handle("k", untilDone(&cause))
				r.enqueue("k", 1)
				r.start()
				began := time.Now()
				r.store.failing(func(string) error { return fmt.Errorf("while testing: %w", fault) })
				<-r.ended
				if !errors.Is(r.err, fault) || errors.Is(r.err, engine.ErrStuck) {
					t.Errorf("Run gave %v", r.err)
				}
				if !errors.Is(cause.err(), engine.ErrLeaseLost) {
					t.Errorf("handler ended by %v", cause.err())
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("that took %v", d)
				}
			})
		})
	}
}

func TestFault_FatalErrorWithAStuckHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.handle("mule", untilClosed(release))
		r.enqueue("mule", 1)
		r.start()
		r.store.failing(func(string) error { return storage.ErrCorrupt })
		<-r.ended
		if !errors.Is(r.err, storage.ErrCorrupt) || !errors.Is(r.err, engine.ErrStuck) {
			t.Errorf("Run gave %v", r.err)
		}
		close(release)
	})
}

func TestFault_StopWaitsForTheStoreToRecover(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return nil })
		id := r.enqueue("k", 1)[0]
		r.start()
		r.store.failing(func(string) error { return storage.ErrFull })
		r.cancel()
		pass(grace + lease/2)
		select {
		case <-r.ended:
			t.Fatalf("Run has ended with %v", r.err)
		default:
		}
		r.store.failing(nil)
		if err := r.stop(); err != nil {
			t.Errorf("Run gave %v", err)
		}
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

func TestFault_StopGivesUpOnTheStoreButNotOnTheOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return nil })
		id := r.enqueue("k", 1)[0]
		r.start()
		r.store.failing(func(string) error { return storage.ErrFull })
		began := time.Now()
		if err := r.stop(); !errors.Is(err, storage.ErrFull) {
			t.Errorf("Run gave %v, want ErrFull", err)
		}
		if d := time.Since(began); d != grace+lease {
			t.Errorf("that took %v, want %v", d, grace+lease)
		}
		r.store.failing(nil)
		pass(10 * time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

func TestFault_EachCallMayFailByItself(t *testing.T) {
	for _, broken := range []string{"reclaim", "counts", "purge", "schedules", "fire", "clock", "step"} {
		t.Run(broken, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handle("k", func(context.Context, *storage.Leased) error { return nil })
				r.store.failing(func(op string) error {
					if op == broken {
						return storage.ErrBusy
					}
					return nil
				})
				ids := r.enqueue("k", 20)
				r.declare(storage.Schedule{Name: "s", Spec: "@every 10s"})
				var w wall
				r.cfg.Clock = engine.Wall(w.now)
				r.start()
				w.set(-time.Hour)
				pass(time.Minute)
				for _, id := range ids {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
				}
			})
		})
	}
}

func TestFault_StopDoesNotWaitForAStoreThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := &slowStore{spy: r.store}
		r.cfg.Store = slow
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		goOn := slow.keepBack()
		id := r.enqueue("k", 1)[0]
		began := time.Now()
		if err := r.stop(); err == nil || !strings.Contains(err.Error(), "the store does not answer") {
			t.Errorf("Run gave %v", err)
		}
		if d := time.Since(began); d != lease {
			t.Errorf("that took %v, want %v", d, lease)
		}
		goOn()
		synctest.Wait()
		r.wantState(id, storage.Ready, storage.Counters{}) // given back after all
	})
}

// A store that is full may still take outcomes and heartbeats. They go alone,
// and what is to be leased is asked for by itself until there is space again.
func TestFault_FullStoreTakesOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var once sync.Once
		r.cfg.Concurrency = 2
		r.handle("k", func(context.Context, *storage.Leased) error {
			time.Sleep(3 * lease)
			once.Do(func() { r.store.full.Store(true) })
			return nil
		})
		ids := r.enqueue("k", 5)
		r.start()
		pass(7 * lease)
		done := 0
		for _, id := range ids {
			if r.job(id).State == storage.Done {
				done++
			}
		}
		if done != 2 {
			t.Errorf("%d of the jobs that ran are done, want 2", done)
		}
		if n := len(r.logs.with("the store failed")); n != 1 {
			t.Errorf("one streak of errors logged %d times", n)
		}
		r.store.full.Store(false)
		pass(20 * lease)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
	})
}
