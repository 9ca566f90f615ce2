package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// all registers a handler of all kinds of queue q. Each kind has its own levels.
func (r *rig) all(run handle, kinds ...string) map[string]*levels {
	by := map[string]*levels{}
	for _, kind := range kinds {
		by[kind] = &levels{}
		by[kind].begin()
	}
	r.cfg.QueueHandlers = map[string]engine.Handler{"q": {Run: func(ctx context.Context, job *storage.Leased) error {
		return by[job.Kind].take(run)(ctx, job)
	}}}
	return by
}

// A hold, and the gentle opening after it, are of the kind alone that was held; those of the queue
// are of all kinds together.
func TestAnyKind_OpensGently(t *testing.T) {
	for _, local := range []bool{true, false} {
		for what, c := range map[string]struct {
			hold       storage.Lane
			held, free []int
		}{
			"lane":  {storage.Lane{Queue: "q", Kind: "a"}, []int{1, 2, 4, 8}, nil},
			"kind":  {storage.Lane{Kind: "a"}, []int{1, 2, 4, 8}, nil},
			"queue": {storage.Lane{Queue: "q"}, []int{1, 2, 4, 8}, []int{0, 0, 0, 0}},
		} {
			t.Run(fmt.Sprint(what, " ", local), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.store.alone = true
					r.cfg.Concurrency = 16
					if local {
						r.handOver()
					}
					by := r.all(work(time.Second), "a", "b")
					r.start()
					h := storage.Hold{Lane: c.hold, Reason: "night"}
					r.hold(h)
					r.enqueue("a", 200)
					pass(time.Minute + time.Second)
					if n := by["a"].of(1); n[0] != 0 {
						t.Errorf("%v of the kind that is held have begun", n)
					}
					r.enqueue("b", 2)
					pass(5 * time.Second)
					if n := r.count(storage.Done); (n == 2) != (c.free == nil) {
						t.Errorf("%d of another kind are done", n)
					}
					by["a"].begin()
					r.release(h)
					pass(4*time.Second - time.Second/2)
					by["a"].check(t, c.held...)
				})
			})
		}
	}
}

// An outage is one of the kind alone whose attempts have met it.
func TestAnyKind_OutageOfOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Rand = func() float64 { return 0 }
		r.all(func(_ context.Context, job *storage.Leased) error {
			if job.Kind == "away" {
				return &engine.UnavailableError{Err: errUnreached}
			}
			return nil
		}, "away", "here")
		r.enqueue("away", 100)
		r.start()
		r.enqueue("here", 50)
		pass(10 * time.Second)
		if n := r.count(storage.Done); n != 50 {
			t.Errorf("%d of 50 jobs of the other kind are done", n)
		}
		all, err := r.app.Holds(t.Context(), r.now())
		if err != nil || len(all) != 1 || all[0].Lane != (storage.Lane{Queue: "q", Kind: "away"}) || all[0].Reason != storage.HoldUnavailable {
			t.Errorf("the holds are %+v, %v", all, err)
		}
	})
}

// Calls that were leased ahead go back if a kind among their jobs is held, so that the others run
// without those.
func TestAnyKind_HoldInACall(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency, r.cfg.Store = 1, slowAnswers{r.store}
		var held atomic.Bool
		var calls, late atomic.Int64
		b := engine.Batch{Max: 2, Run: func(_ context.Context, items []engine.Item) {
			calls.Add(1)
			for _, i := range items {
				if held.Load() && i.Job.Kind == "b" {
					late.Add(1)
				}
			}
			time.Sleep(time.Millisecond)
		}}
		r.cfg.QueueHandlers = map[string]engine.Handler{"q": {Batch: &b}}
		var jobs []storage.NewJob
		for range 1000 {
			jobs = append(jobs, storage.NewJob{Queue: "q", Kind: "a"}, storage.NewJob{Queue: "q", Kind: "b"})
		}
		r.add(jobs...)
		r.start()
		for calls.Load() < 150 || r.count(storage.Running) < 10 { // the first leases were few
			pass(time.Millisecond)
		}
		r.hold(storage.Hold{Lane: storage.Lane{Queue: "q", Kind: "b"}, Reason: "night"})
		held.Store(true)
		pass(time.Hour)
		if n := r.count(storage.Ready); late.Load() > 0 || n < 200 || r.count(storage.Running) > 0 {
			t.Errorf("%d jobs ran though they are held, and %d of 1000 wait", late.Load(), n)
		}
	})
}

// One call counts once for the outage of each of its kinds.
func TestAnyKind_CallsOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 1
		n := 0
		b := engine.Batch{Max: 10, Run: func(_ context.Context, items []engine.Item) {
			n++
			for i := range items {
				items[i].Err, items[i].Shared = &engine.UnavailableError{Err: errUnreached}, true
			}
		}}
		r.cfg.QueueHandlers = map[string]engine.Handler{"q": {Batch: &b, Run: func(context.Context, *storage.Leased) error {
			n++
			return &engine.UnavailableError{Err: errUnreached}
		}}}
		var jobs []storage.NewJob
		for range 100 {
			jobs = append(jobs, storage.NewJob{Queue: "q", Kind: "a"}, storage.NewJob{Queue: "q", Kind: "b"})
		}
		r.add(jobs...)
		r.start()
		all, err := r.app.Holds(t.Context(), r.now())
		if err != nil || len(all) != 2 || n != 5 {
			t.Errorf("after %d calls, want 5, the holds are %+v, %v", n, all, err)
		}
	})
}

// Nobody is told that a kind which waits has no handler. In another queue it has none.
func TestAnyKind_Served(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues, r.cfg.Concurrency = []string{"q", "own"}, 1
		r.handle("k", work(0))
		by := r.all(work(10*time.Minute), "long", "new")
		r.start()
		r.enqueue("long", 1)
		r.enqueue("new", 1)
		r.add(storage.NewJob{Queue: "own", Kind: "new"})
		pass(5 * time.Minute)
		if lines := r.logs.with("queue=q"); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
		r.wantLine("does not have", "queue=own", "kind=new")
		pass(10 * time.Minute)
		if by["new"].total != 1 {
			t.Errorf("%d have begun, want 1", by["new"].total)
		}
	})
}

// Failures before a gate of the queue closed run soon after it opens, of all kinds.
func TestAnyKind_Kick(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g, l := &latch{}, &link{}
		hourly := policy.Policy{MinDelay: time.Hour, MaxDelay: time.Hour, Retries: 3, MinDelayRetries: 3, Jitter: policy.NoJitter}
		r.cfg.Policy = hourly.Delivery()
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {Gate: g}}
		l.set(errRefused)
		r.all(l.run, "a", "b")
		r.enqueue("a", 20)
		r.enqueue("b", 20)
		r.start()
		pass(10 * time.Second)
		if n := r.count(storage.Scheduled); n != 40 {
			t.Fatalf("%d wait for a retry, want 40", n)
		}
		g.close("no carrier")
		r.enqueue("a", 1)
		pass(time.Minute)
		l.set(nil)
		g.close("")
		pass(30 * time.Second)
		if n := r.count(storage.Done); n != 41 {
			t.Errorf("%d are done 30 s after the gate has opened, want 41", n)
		}
	})
}

// A worker of another queue that handles the kind leaves it to one of the queue whether a job of which
// the process has died is dead: the kind's own MaxCrashes and OnDead do not apply there.
func TestAnyKind_CrashSeenByOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		id := r.enqueue("k", 1)[0]
		passes := r.another()
		passes.cfg.QueueHandlers = map[string]engine.Handler{"q": {Run: untilDone(&cause), MaxCrashes: 10}}
		passes.start()
		other := r.another()
		other.cfg.Queues = []string{"own"}
		other.cfg.Handlers = map[string]engine.Handler{"k": {Run: work(0), MaxCrashes: 1}}
		other.cfg.OnDeath = func(job *storage.Leased, _ *storage.Finish, _ time.Time) *storage.NewJob {
			t.Errorf("the OnDead of kind %s follows a job of queue %s", job.Kind, job.Queue)
			return nil
		}
		other.start()
		pass(5 * time.Second)
		passes.crash()
		pass(time.Minute)
		r.wantState(id, storage.Ready, storage.Counters{Attempt: 1, Crashes: 1})
	})
}

// The longest name of a queue counts also for whether somebody handles its jobs.
func TestAnyKind_UnservedWithin(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues, r.cfg.Concurrency = []string{"x/*", "x/own"}, 1
		r.handle("k", work(0))
		r.cfg.QueueHandlers = map[string]engine.Handler{"x/*": {Run: work(0)}}
		r.start()
		r.add(storage.NewJob{Queue: "x/own", Kind: "new"})
		pass(5 * time.Minute)
		if n := r.count(storage.Ready); n != 1 {
			t.Fatalf("%d ready", n)
		}
		r.wantLine("does not have", "queue=x/own", "kind=new")
	})
}
