package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

func TestEngine_RunsJobsOnceAndFinishesThem(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		runs := make(chan storage.ID, 100)
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			runs <- job.ID
			return nil
		})
		before := r.enqueue("k", 10)
		r.start()
		ids := append(before, r.enqueue("k", 10)...)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		close(runs)
		var ran []storage.ID
		for id := range runs {
			ran = append(ran, id)
		}
		if len(ran) != len(ids) {
			t.Errorf("%d runs of %d jobs", len(ran), len(ids))
		}
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
	})
}

func TestEngine_BoundsConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		running, most := 0, 0
		turn := make(chan struct{}, 1) // guards the two
		turn <- struct{}{}
		r.handle("k", func(context.Context, *storage.Leased) error {
			<-turn
			running++
			most = max(most, running)
			turn <- struct{}{}
			time.Sleep(time.Second)
			<-turn
			running--
			turn <- struct{}{}
			return nil
		})
		r.enqueue("k", 30)
		r.start()
		pass(4500 * time.Millisecond)
		if most != r.cfg.Concurrency {
			t.Errorf("%d handlers at a time, want %d", most, r.cfg.Concurrency)
		}
		counts, err := r.app.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []storage.Count{
			{Queue: "q", Kind: "k", State: storage.Done, N: 16},
			{Queue: "q", Kind: "k", State: storage.Ready, N: 10},
			{Queue: "q", Kind: "k", State: storage.Running, N: 4},
		}
		if !slices.Equal(counts, want) {
			t.Errorf("after 4.5 s of jobs that take 1 s: %v, want %v", counts, want)
		}
	})
}

func TestEngine_ServesItsQueuesOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues = []string{"a", "b"}
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		ids := r.add(storage.NewJob{Queue: "a", Kind: "k"}, storage.NewJob{Queue: "b", Kind: "k"},
			storage.NewJob{Queue: "c", Kind: "k"})
		r.start()
		pass(time.Hour)
		r.wantState(ids[0], storage.Done, storage.Counters{Attempt: 1})
		r.wantState(ids[1], storage.Done, storage.Counters{Attempt: 1})
		r.wantState(ids[2], storage.Ready, storage.Counters{})
	})
}

func TestEngine_StartsInOrderOfPriority(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 1
		var order []int
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			order = append(order, job.Priority)
			return nil
		})
		r.add(storage.NewJob{Queue: "q", Kind: "k", Priority: -1}, storage.NewJob{Queue: "q", Kind: "k", Priority: 5},
			storage.NewJob{Queue: "q", Kind: "k"})
		r.start()
		if want := []int{5, 0, -1}; !slices.Equal(order, want) {
			t.Errorf("priorities ran as %v, want %v", order, want)
		}
	})
}

func TestEngine_HandlerContextHasValuesAndOutlivesRunsContext(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			if ctx.Value(ctxKey{}) != "value" {
				t.Error("value of Run's context is missing")
			}
			if _, ok := ctx.Deadline(); ok {
				t.Error("deadline without a timeout")
			}
			time.Sleep(grace / 2)
			return ctx.Err()
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

func TestEngine_HandlerContextEndsWithTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var kept context.Context
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			kept = ctx
			return nil
		})
		r.start()
		r.enqueue("k", 1)
		if kept.Err() == nil {
			t.Error("context goes on after the handler has returned")
		}
	})
}

func TestEngine_WakesUpByNotification(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var at time.Time
		r.handle("k", func(context.Context, *storage.Leased) error {
			at = time.Now()
			return nil
		})
		r.start()
		pass(time.Hour)
		enqueued := time.Now()
		r.enqueue("k", 1)
		if !at.Equal(enqueued) {
			t.Errorf("started %v after it was enqueued", at.Sub(enqueued))
		}
	})
}

func TestEngine_StartsDelayedJobsWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var at []time.Duration
		began := time.Now()
		r.handle("k", func(context.Context, *storage.Leased) error {
			at = append(at, time.Since(began))
			return nil
		})
		r.start()
		due := func(d time.Duration) storage.NewJob {
			return storage.NewJob{Queue: "q", Kind: "k", DueAt: began.Add(d)}
		}
		r.add(due(3*time.Hour), due(90*time.Second))
		r.add(due(time.Millisecond))
		pass(4 * time.Hour)
		want := []time.Duration{time.Millisecond, 90 * time.Second, 3 * time.Hour}
		if !slices.Equal(at, want) {
			t.Errorf("started at %v, want %v", at, want)
		}
	})
}

func TestEngine_LooksAgainWhenTheClockIsSetForward(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ahead atomic.Int64
		r.cfg.Clock = engine.Wall(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		id := r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: time.Now().Add(time.Hour)})[0]
		pass(time.Second)
		ahead.Store(int64(2 * time.Hour))
		pass(time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

// silent is a store without Notifier and without Alone.
type silent struct{ storage.Store }

func TestEngine_AsksEverySecondWithoutNotifier(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = silent{r.store}
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		pass(10500 * time.Millisecond)
		id := r.enqueue("k", 1)[0]
		r.wantState(id, storage.Ready, storage.Counters{})
		pass(time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

func TestEngine_IdleMakesNoCalls(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Retention.Default = 0
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.enqueue("k", 10)
		r.start()
		pass(2 * time.Minute)
		n := r.store.count()
		pass(time.Hour)
		if calls := r.store.since(n); len(calls) > 0 {
			t.Errorf("idle engine made %d calls in an hour, first %q", len(calls), calls[0].op)
		}
	})
}

func TestEngine_IdleLooksForDeadHoldersUnlessAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		n := r.store.count()
		pass(time.Minute)
		calls := r.store.since(n)
		reclaims := 0
		for _, c := range calls {
			if c.op == "reclaim" {
				reclaims++
			} else {
				t.Errorf("call of %s without a reason", c.op)
			}
		}
		if reclaims != 240 {
			t.Errorf("%d calls of reclaim in a minute, want 240", reclaims)
		}
	})
}

func TestEngine_ReportsUnknownKindsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("known", func(context.Context, *storage.Leased) error { return nil })
		old := r.enqueue("old", 3)
		r.start()
		r.enqueue("known", 1)
		pass(time.Hour)
		late := r.enqueue("late", 1)
		pass(2 * time.Minute)
		r.enqueue("old", 1)
		pass(time.Hour)
		for _, kind := range []string{"old", "late"} {
			if lines := r.logs.with("kind=" + kind); len(lines) != 1 {
				t.Errorf("kind %q reported %d times: %v", kind, len(lines), lines)
			}
		}
		for _, id := range append(old, late...) {
			r.wantState(id, storage.Ready, storage.Counters{})
		}
	})
}

func TestEngine_WithoutHandlersLeasesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Minute)
		r.wantState(id, storage.Ready, storage.Counters{})
	})
}

func TestEngine_LeavesPausedQueuesAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.hold(pause)
		r.start()
		id := r.enqueue("k", 1)[0]
		pass(time.Hour)
		r.wantState(id, storage.Ready, storage.Counters{})
		r.release(pause)
		synctest.Wait()
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

func TestEngine_PurgesFinishedJobs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Retention.Default = time.Hour
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		id := r.enqueue("k", 250)[0]
		pass(time.Hour - time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		pass(2 * time.Second)
		if counts, err := r.app.Counts(t.Context()); err != nil || len(counts) > 0 {
			t.Errorf("an hour later: %v, %v", counts, err)
		}
	})
}

func TestEngine_PurgesByLane(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Retention = storage.Retention{Lanes: map[storage.Lane]time.Duration{{Queue: "q", Kind: "k"}: time.Second}}
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		pass(time.Minute)
		id := r.enqueue("k", 1)[0]
		pass(900 * time.Millisecond)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		pass(200 * time.Millisecond)
		if _, err := r.app.Job(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("a second after it was done the job gives %v, want ErrNotFound", err)
		}
	})
}

// A store may lease a job of a lane that it was not asked for. The job goes back,
// to an engine that knows it.
func TestEngine_GivesBackWhatItDidNotAskFor(t *testing.T) {
	for name, settings := range map[string]map[string]engine.QueueSettings{
		"one source": nil, "two sources": {"slow": throttled(10)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := &stray{spy: r.store}
				r.store.alone = true
				r.cfg.Store, r.cfg.Queues, r.cfg.Settings = s, []string{"q", "slow"}, settings
				r.handle("k", func(context.Context, *storage.Leased) error { return nil })
				r.start()
				ids := r.enqueue("k", 3)
				r.wantState(ids[0], storage.Scheduled, storage.Counters{})
				r.wantState(ids[1], storage.Done, storage.Counters{Attempt: 1})
				if n := len(r.logs.with("not asked for")); n != 1 {
					t.Errorf("%d lines of the log are about it, want 1", n)
				}
				s.right.Store(true)
				pass(2 * time.Second)
				r.wantState(ids[0], storage.Done, storage.Counters{Attempt: 1})
			})
		})
	}
}

// stray is a store that leases the first job of an answer under another kind.
type stray struct {
	*spy
	right atomic.Bool // not any more
}

func (s *stray) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	res, err := s.spy.Exchange(ctx, now, x)
	if len(res.Leased) > 0 && !s.right.Load() {
		res.Leased[0].Kind = "other"
	}
	return res, err
}

func TestEngine_PurgesAtMostOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Retention.Default = time.Minute
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		for range 1000 { // 10 s of jobs, all of which are over a minute later
			r.enqueue("k", 1)
			pass(10 * time.Millisecond)
		}
		n := r.store.count()
		pass(2 * time.Minute)
		purges := len(slices.DeleteFunc(r.store.since(n), func(c call) bool { return c.op != "purge" }))
		if purges < 5 || purges > 12 {
			t.Errorf("%d purges of jobs that come to their end in 10 s", purges)
		}
		if counts, err := r.app.Counts(t.Context()); err != nil || len(counts) > 0 {
			t.Errorf("left behind: %v, %v", counts, err)
		}
	})
}

func TestEngine_RunsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if err := r.engine.Run(t.Context()); err == nil {
			t.Error("second Run gave no error")
		}
	})
}

func TestEngine_ShutdownBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		id := r.enqueue("k", 1)[0]
		e := engine.New(r.cfg)
		if err := e.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown gave %v", err)
		}
		if err := e.Run(t.Context()); err != nil {
			t.Errorf("Run gave %v", err)
		}
		r.wantState(id, storage.Ready, storage.Counters{})
		if calls := r.store.since(0); len(calls) > 0 {
			t.Errorf("store called: %q", calls[0].op)
		}
	})
}
