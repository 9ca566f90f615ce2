package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// suspects enqueues jobs of a kind that have crashed twice in a row, each in a
// process of its own.
func (r *rig) suspects(kind string, n int) []storage.ID {
	r.t.Helper()
	ids := r.enqueue(kind, n)
	r.crashTwice(kind, ids)
	return ids
}

func (r *rig) crashTwice(kind string, ids []storage.ID) {
	r.t.Helper()
	n := len(ids)
	want := storage.Want{Queues: []string{"q"}, Kinds: []string{kind}, N: n}
	for range 2 {
		victim := r.db.Open()
		res, err := victim.Exchange(r.t.Context(), time.Now(), storage.Exchange{LeaseDuration: lease, Wants: []storage.Want{want}})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, l := range res.Leased {
			if err := victim.(storage.Marker).Started(l.Lease, time.Now()); err != nil {
				r.t.Fatal(err)
			}
		}
		r.db.Kill(victim)
		gone, err := r.app.Reclaim(r.t.Context(), time.Now(), 0, lease, n)
		if err != nil {
			r.t.Fatal(err)
		}
		x := storage.Exchange{LeaseDuration: lease}
		for _, g := range gone {
			x.Finish = append(x.Finish, storage.Finish{Lease: g.Lease, Outcome: storage.OutcomeCrashed})
		}
		if _, err := r.app.Exchange(r.t.Context(), time.Now(), x); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, id := range ids {
		if c := r.job(id).Crashes; c != 2 {
			r.t.Fatalf("job has crashed %d times", c)
		}
	}
}

// atATime makes a handler that takes its time, and tells how many of them ran
// at a time at most.
func atATime(takes time.Duration) (handle, func() int) {
	running, most := 0, 0
	var mu sync.Mutex
	return func(context.Context, *storage.Leased) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(takes)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			return most
		}
}

//errand:shows jobs that have crashed twice | | they run one at a time until one of their kind has ended, then together. If the process dies while they run together, no crash is counted, and they run one at a time again, in any process. Kind or worker set how many crashes are allowed
func TestSuspect_RunByItselfFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 5)
		run, most := atATime(3 * time.Second)
		r.handle("bad", run)
		r.handle("good", func(context.Context, *storage.Leased) error {
			time.Sleep(time.Second)
			return nil
		})
		r.start()
		good := r.enqueue("good", 6)
		pass(2500 * time.Millisecond) // 3 slots are left for 6 jobs of 1 s
		for _, id := range good {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		if n := most(); n != 1 {
			t.Errorf("%d suspects at a time", n)
		}
		pass(30 * time.Second)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 3})
		}
	})
}

// A turnstile costs no more than a handler: once one has ended the others of its
// kind go together.
//
//errand:shows jobs that have crashed twice
func TestSuspect_TogetherOnceOneHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 100
		ids := r.suspects("bad", 100)
		run, most := atATime(300 * time.Millisecond)
		r.handle("bad", run)
		r.start()
		pass(time.Second)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 3})
		}
		if n := most(); n != 99 {
			t.Errorf("%d suspects at a time, want all but the first", n)
		}
	})
}

// One of those that go together kills the process after all: that is held
// against none of them, and they go one by one until it is found. The others
// are unharmed.
//
//errand:shows jobs that have crashed twice
func TestSuspect_OneOfThoseTogetherIsBad(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 10)
		poison := ids[5]
		for life := range 4 {
			p := r.another()
			p.store.alone = true
			p.cfg.Concurrency = 10
			died := make(chan struct{})
			var once sync.Once
			run, most := atATime(time.Second)
			p.handle("bad", func(ctx context.Context, job *storage.Leased) error {
				if job.ID == poison {
					once.Do(func() { close(died) })
					<-ctx.Done()
					return ctx.Err()
				}
				return run(ctx, job)
			})
			p.start()
			pass(5 * time.Second)
			select {
			case <-died:
				p.crash()
			default:
			}
			if n := most(); life > 0 && n > 1 {
				t.Errorf("life %d: %d suspects at a time", life, n)
			}
		}
		pass(time.Minute)
		for _, id := range ids {
			if rec := r.job(id); (rec.State == storage.Dead) != (id == poison) || rec.State == storage.Running {
				t.Errorf("job %v is %s after %d crashes", id, rec.State, rec.Crashes)
			}
		}
	})
}

// A process that begins anew knows nothing of what killed the last one if
// another has recovered its jobs. It goes by the jobs: those that were cut off
// go one by one.
//
//errand:shows jobs that have crashed twice
func TestSuspect_BadInTheCompanyOfAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 6)
		poison := ids[5]
		r.start() // recovers jobs, and runs none
		deaths := 0
		for range 6 {
			p := r.another()
			p.cfg.Concurrency = 6
			died := make(chan struct{}, 1)
			p.handle("bad", func(ctx context.Context, job *storage.Leased) error {
				if job.ID == poison {
					died <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				time.Sleep(time.Second)
				return nil
			})
			p.start()
			select {
			case <-died:
				deaths++
			case <-time.After(time.Minute):
			}
			p.crash()
			pass(time.Second)
		}
		if deaths != 2 {
			t.Errorf("%d processes died, want one with them together, and one with the bad one by itself", deaths)
		}
		if s := r.job(poison).State; s != storage.Dead {
			t.Errorf("the bad one is %s", s)
		}
	})
}

//errand:shows jobs that have crashed twice
func TestSuspect_MaxCrashesOfItsKind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		less, more, unknown := r.enqueue("less", 1)[0], r.enqueue("more", 1)[0], r.enqueue("unknown", 1)[0]
		work := func(r *rig, most map[string]int) {
			for kind, n := range most {
				r.cfg.Handlers[kind] = engine.Handler{MaxCrashes: n, Run: func(ctx context.Context, _ *storage.Leased) error {
					<-ctx.Done()
					return ctx.Err()
				}}
			}
			r.start()
			pass(10 * time.Second)
		}
		first, last := r.another(), r.another()
		work(first, map[string]int{"less": 1, "more": 5, "unknown": 5})
		first.crash()
		last.cfg.MaxCrashes = 1
		work(last, map[string]int{"less": 0, "more": 5})
		r.wantState(less, storage.Dead, storage.Counters{Attempt: 1, Crashes: 1})
		r.wantState(more, storage.Running, storage.Counters{Attempt: 2, Crashes: 1})
		r.wantState(unknown, storage.Ready, storage.Counters{Attempt: 1, Crashes: 1}) // for who handles it
	})
}

// A handler that only passes jobs on has no job to blame.
func TestSuspect_NoCrashes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.enqueue("k", 1)[0]
		for attempt := range 4 {
			next := r.another()
			next.cfg.Handlers["k"] = engine.Handler{MaxCrashes: engine.NoCrashes, Run: func(ctx context.Context, _ *storage.Leased) error {
				<-ctx.Done()
				return ctx.Err()
			}}
			next.start()
			pass(10 * time.Second)
			r.wantState(id, storage.Running, storage.Counters{Attempt: attempt + 1})
			next.crash()
		}
	})
}

func TestSuspect_WaitingKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true // else another process might run it
		ids := r.suspects("bad", 2)
		release := make(chan struct{})
		r.handle("bad", untilClosed(release))
		r.start()
		pass(10 * lease)
		for _, id := range ids {
			r.wantState(id, storage.Running, storage.Counters{Attempt: 3, Crashes: 2})
		}
		close(release)
		synctest.Wait()
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 3})
		}
	})
}

func TestSuspect_OfTwoEnginesShareTheGate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 2)
		other := r.another()
		other.cfg.Suspects = r.cfg.Suspects
		began := time.Now()
		var starts []time.Duration // in turn, or the race detector objects
		const takes = 3010 * time.Millisecond
		run := func(context.Context, *storage.Leased) error {
			starts = append(starts, time.Since(began))
			time.Sleep(takes)
			return nil
		}
		r.handle("bad", run)
		other.handle("bad", run)
		r.cfg.Concurrency, other.cfg.Concurrency = 1, 1
		r.start()
		other.start()
		pass(7 * time.Second)
		if len(starts) != 2 || starts[1] < takes || starts[1] > takes+100*time.Millisecond {
			t.Errorf("suspects of %v each started at %v", takes, starts)
		}
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 3})
		}
	})
}

func TestSuspect_CancelWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 2)
		r.cfg.Retention.Default = time.Minute
		release := make(chan struct{})
		r.handle("bad", untilClosed(release))
		r.start()
		if _, err := r.app.Cancel(t.Context(), time.Now(), ids[1], storage.Retention{Default: time.Hour}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if rec := r.wantState(ids[1], storage.Cancelled, storage.Counters{Attempt: 2}); rec.Error != engine.ErrCancelled.Error() {
			t.Errorf("waiting suspect ended with %q", rec.Error)
		}
		pass(2 * time.Minute)
		if _, err := r.app.Job(t.Context(), ids[1]); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the cancelled suspect is kept too long: %v", err)
		}
		close(release)
	})
}

func TestSuspect_WaitingTakesNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 2
		r.suspects("bad", 2)
		release := make(chan struct{})
		r.handle("bad", untilClosed(release))
		r.handle("good", func(context.Context, *storage.Leased) error { return nil })
		good := r.enqueue("good", 1)[0] // behind the suspects
		r.start()
		r.wantState(good, storage.Done, storage.Counters{Attempt: 1})
		close(release)
	})
}

func TestSuspect_WaitingThatIsLostDoesNotStart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.suspects("bad", 2)
		runs := 0
		release := make(chan struct{})
		r.handle("bad", func(context.Context, *storage.Leased) error {
			runs++
			<-release
			return nil
		})
		r.start()
		r.takeOver(2)
		pass(lease / 3)
		close(release)
		pass(lease / 3)
		if runs != 1 {
			t.Errorf("%d suspects ran", runs)
		}
	})
}
