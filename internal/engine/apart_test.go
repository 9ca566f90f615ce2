package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
)

// countsFor bounds how long attempts of a kind that has a handler count.
func (r *rig) countsFor(kind string, d time.Duration) {
	h := r.cfg.Handlers[kind]
	h.CountsFor = d
	r.cfg.Handlers[kind] = h
}

// An attempt that has run for the CountsFor of its kind leaves its place to one of any
// kind, up to 1,000 of them. One of another kind keeps its place.
func TestEngine_CountsFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handle("waits", g.counted(work(time.Minute)))
		r.handle("works", g.counted(work(time.Minute)))
		r.countsFor("waits", 100*time.Millisecond)
		r.start()
		runners := countRunners()
		r.enqueue("waits", 1600)
		for _, step := range []struct {
			after   time.Duration
			running int
		}{{0, 4}, {90 * time.Millisecond, 4}, {20 * time.Millisecond, 8}, {100 * time.Millisecond, 12}, {50 * time.Second, 1004}} {
			pass(step.after)
			if now, _ := g.running("waits"); now != step.running {
				t.Errorf("%v later %d run, want %d", step.after, now, step.running)
			}
		}
		r.enqueue("works", 6)
		pass(20 * time.Second) // the first of those that wait have ended, and others have their places
		if now, most := g.running("waits"); most > 1004 || now < 1000 {
			t.Errorf("%d run, at most %d at a time: want 1,000 to 1,004", now, most)
		}
		pass(2 * time.Minute)
		if now, most := g.running("works"); now != 2 || most != 4 {
			t.Errorf("of those that count %d run, at most %d at a time: want 2 and 4", now, most)
		}
		pass(2 * time.Minute)
		if g.begun() != 1606 {
			t.Errorf("%d have begun, want 1606", g.begun())
		}
		if n := countRunners(); n != runners {
			t.Errorf("%d runners at the end, and %d at the start", n, runners)
		}
	})
}

// Limits of kinds and queues count the attempts that the concurrency does not, also
// where they are above it.
func TestEngine_CountsFor_KeepsToBounds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handle("a", g.counted(work(time.Minute)))
		r.handle("b", g.counted(work(time.Minute)))
		r.countsFor("a", 100*time.Millisecond)
		r.countsFor("b", 100*time.Millisecond)
		r.limit("a", 6)
		r.limitQueues(map[string]int{"q": 10})
		r.start()
		r.enqueue("a", 20)
		r.enqueue("b", 20)
		pass(30 * time.Second)
		a, _ := g.running("a")
		if q, _ := g.running("q"); a != 6 || q != 10 {
			t.Errorf("%d of the kind run and %d of the queue, want 6 and 10", a, q)
		}
	})
}

// Another concurrency changes how many count: of 8 that run 4 do when it becomes 2, and those
// beside are not disturbed.
func TestEngine_CountsFor_SetConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handle("a", g.counted(work(time.Minute)))
		r.countsFor("a", 10*time.Second)
		r.start()
		r.enqueue("a", 100)
		for _, step := range []struct{ n, running int }{{4, 4}, {2, 8}, {10, 18}, {1, 28}} {
			r.engine.SetConcurrency(step.n)
			synctest.Wait()
			if now, _ := g.running("a"); now != step.running {
				t.Errorf("with a concurrency of %d there run %d, want %d", step.n, now, step.running)
			}
			pass(11 * time.Second)
		}
	})
}

// A stop ends attempts that do not count as it ends others.
func TestEngine_CountsFor_Stop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handle("a", g.counted(work(time.Hour)))
		r.countsFor("a", time.Second)
		r.start()
		r.enqueue("a", 100)
		pass(5 * time.Second)
		if now, _ := g.running("a"); now < 20 {
			t.Errorf("%d run, want 20 at least", now)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if now, _ := g.running("a"); now != 0 {
			t.Errorf("%d run after the stop", now)
		}
	})
}

// Calls of batches count until they end, and so does a job of a batch that runs alone since it
// has crashed.
func TestEngine_CountsFor_Batch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.many("a", engine.Batch{Max: 1}, lasting(time.Hour))
		h := r.cfg.Handlers["a"]
		h.Run = g.counted(work(time.Hour))
		r.cfg.Handlers["a"] = h
		r.countsFor("a", 100*time.Millisecond)
		r.handle("b", g.counted(work(time.Hour)))
		ids := r.enqueue("a", 1)
		r.crashTwice("a", ids)
		r.start()
		pass(time.Second)
		r.enqueue("b", 8)
		pass(time.Minute)
		a, _ := g.running("a")
		if b, _ := g.running("b"); a != 1 || b != 3 {
			t.Errorf("%d of the batch run and %d beside, want 1 and 3", a, b)
		}
	})
}

// A limit above the concurrency that counts is shown, so that others know why jobs wait.
func TestShow_CountsFor(t *testing.T) {
	shows(t, func(t *testing.T, r *rig, s *showcase) {
		r.countsFor("a", 100*time.Millisecond)
		r.limit("a", 6)
		r.start()
		r.enqueue("a", 20)
		pass(time.Minute)
		s.wants(t, "later", `"kinds":["a"],"limits":[{"concurrency":6,"full":true,"kind":"a"}],`)
	})
}
