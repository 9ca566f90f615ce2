package engine_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// More handlers start at once, and none is disturbed if there are to be fewer.
func TestEngine_SetConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handle("a", g.counted(work(time.Minute)))
		r.start()
		runners := countRunners()
		r.enqueue("a", 60)
		for _, step := range []struct{ n, running int }{
			{4, 4}, {10, 10}, {2, 10}, {12, 12}, {1, 12}, {30, 30}, {30, 30}, {3, 30},
		} {
			r.engine.SetConcurrency(step.n)
			synctest.Wait()
			if now, _ := g.running("a"); now != step.running {
				t.Errorf("with a concurrency of %d there run %d, want %d", step.n, now, step.running)
			}
		}
		pass(time.Minute + time.Second)
		if now, _ := g.running("a"); now != 3 {
			t.Errorf("%d run when the others have ended, want 3", now)
		}
		pass(20 * time.Minute)
		if g.begun() != 60 {
			t.Errorf("%d jobs were run, want 60", g.begun())
		}
		if n := countRunners(); n != runners-1 {
			t.Errorf("%d runners with a concurrency of 3, and %d of 4", n, runners)
		}
		if got := r.logs.with("another concurrency"); len(got) != 6 {
			t.Errorf("the log says %q", got)
		}
	})
}

// countRunners returns how many goroutines of runners there are. Of others some that
// earlier tests have left may just be ending.
func countRunners() int {
	all := make([]byte, 1<<20)
	return strings.Count(string(all[:runtime.Stack(all, true)]), "engine.(*runners).run(")
}

// A queue and a kind keep to their limits as soon as these count, which were too high
// to matter before.
func TestEngine_SetConcurrency_KeepsToBounds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handOver()
		r.handle("a", g.counted(work(time.Minute)))
		r.handle("b", g.counted(work(time.Minute)))
		r.limit("a", 5)
		r.limitQueues(map[string]int{"q": 8})
		r.start()
		r.enqueue("a", 4)
		r.engine.SetConcurrency(16)
		r.enqueue("a", 10)
		r.enqueue("b", 10)
		pass(time.Second)
		a, _ := g.running("a")
		if q, _ := g.running("q"); a != 5 || q != 8 {
			t.Errorf("%d of the kind run and %d of the queue, want 5 and 8", a, q)
		}
		r.engine.SetConcurrency(4)
		pass(90 * time.Second)
		if q, _ := g.running("q"); q != 4 {
			t.Errorf("%d run, want 4", q)
		}
		pass(time.Hour / 4)
		if _, most := g.running("a"); most != 5 || g.begun() != 24 {
			t.Errorf("%d of the kind ran at a time, and %d jobs in all: want 5 and 24", most, g.begun())
		}
	})
}

// However often the number changes, jobs run once, no more at a time than there may be,
// and all goroutines end: the bubble would say so.
func TestEngine_SetConcurrency_AtAnyTime(t *testing.T) {
	for seed := range uint64(4) {
		bubble(t, func(t *testing.T, r *rig) {
			random := rand.New(rand.NewPCG(seed, 1))
			if seed%2 == 0 {
				r.handOver()
			}
			var running, runs atomic.Int64
			r.handle("a", func(ctx context.Context, job *storage.Leased) error {
				running.Add(1)
				defer running.Add(-1)
				runs.Add(1)
				if job.Key%9 == 0 && job.Attempt == 1 {
					runtime.Goexit()
				}
				return work(time.Duration(job.Key*7919%300)*time.Millisecond)(ctx, job)
			})
			r.start()
			var most int64
			for range 80 {
				r.enqueue("a", random.IntN(12))
				n := 1 + random.IntN(4*(1+random.IntN(12)))
				most = max(running.Load(), int64(n))
				r.engine.SetConcurrency(n)
				if random.IntN(3) > 0 {
					pass(time.Duration(random.IntN(80)) * time.Millisecond)
				}
				if now := running.Load(); now > most {
					t.Fatalf("%d run, want at most %d", now, most)
				}
			}
			stopped := seed%3 == 0
			if stopped {
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				r.engine.SetConcurrency(100) // no effect
				return
			}
			pass(time.Minute)
			counts, err := r.app.Counts(t.Context())
			if err != nil || len(counts) != 1 || counts[0].State != storage.Done || runs.Load() != counts[0].N+counts[0].N/9 {
				t.Errorf("%d runs and %+v, error %v", runs.Load(), counts, err)
			}
		})
	}
}

// A lane that opens gently opens up to the number that holds by then.
func TestEngine_SetConcurrency_WhileALaneOpens(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.cfg.Concurrency = 2
		r.handle("a", g.counted(work(time.Second)))
		r.start()
		held := storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: "test"}
		if err := r.app.Hold(t.Context(), r.now(), held); err != nil {
			t.Fatal(err)
		}
		r.enqueue("a", 200)
		pass(2 * time.Minute)
		r.engine.SetConcurrency(16)
		synctest.Wait()
		if _, err := r.app.Release(t.Context(), r.now(), held.Lane, held.Reason); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{2, 4, 8, 16} {
			pass(time.Second + time.Second/4)
			if now, _ := g.running("a"); now > want {
				t.Errorf("%d run in round %d, want at most %d", now, i, want)
			}
		}
		pass(5 * time.Second)
		if now, _ := g.running("a"); now != 16 {
			t.Errorf("%d run in the end, want 16", now)
		}
	})
}

// Before Run the number takes the place of that of the Config.
func TestEngine_SetConcurrency_BeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handle("a", g.counted(work(time.Minute)))
		e := engine.New(r.cfg)
		e.SetConcurrency(7)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		r.enqueue("a", 20)
		if now, _ := g.running("a"); now != 7 {
			t.Errorf("%d run, want 7", now)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
