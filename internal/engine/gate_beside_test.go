package engine_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// muteGate is a latch that does not answer while it is told not to.
type muteGate struct {
	latch
	mu    sync.Mutex
	until chan struct{}
	exits bool
}

func (g *muteGate) State() (open bool, reason string, changed <-chan struct{}) {
	g.mu.Lock()
	until, exits := g.until, g.exits
	g.mu.Unlock()
	if until != nil {
		<-until
	}
	if exits {
		runtime.Goexit()
	}
	return g.latch.State()
}

// silence has the gate answer no more, until the function is called that it returns.
func (g *muteGate) silence() (speak func()) {
	until := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = until
	return func() {
		g.mu.Lock()
		g.until = nil
		g.mu.Unlock()
		close(until)
	}
}

// A gate that has not answered counts as closed, and nothing but its jobs waits.
//
//errand:shows calls into the application that block | | until a gate answers its last answer counts, and it is closed before the first; the log names it; a stop waits for it for a second at most
func TestGate_NeverAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &muteGate{}
		speak := g.silence()
		r.handle("k", work(time.Millisecond))
		r.handle("other", work(time.Millisecond))
		r.gate("k", g)
		r.start()
		behind := r.enqueue("k", 1)[0]
		for range 100 {
			other := r.enqueue("other", 1)[0]
			pass(time.Second)
			r.wantState(other, storage.Done, storage.Counters{Attempt: 1})
		}
		r.wantState(behind, storage.Ready, storage.Counters{})
		if lines := r.logs.with("the gate has not answered for 1 s, and counts as closed"); len(lines) != 1 {
			t.Errorf("the log has %d lines about the gate: %q", len(lines), lines)
		}
		speak()
		pass(time.Second)
		r.wantState(behind, storage.Done, storage.Counters{Attempt: 1})
		if lines := r.logs.with("the gate answers again"); len(lines) != 1 {
			t.Errorf("the log has %d lines about its answer: %q", len(lines), lines)
		}
	})
}

// Until it answers, what a gate has said before counts.
//
//errand:shows calls into the application that block
func TestGate_LastAnswerCounts(t *testing.T) {
	for _, closed := range []string{"", "no carrier"} {
		bubble(t, func(t *testing.T, r *rig) {
			g := &muteGate{}
			g.close(closed)
			r.handle("k", work(time.Millisecond))
			r.gate("k", g)
			r.enqueue("k", 1)
			r.start()
			pass(time.Second)
			speak := g.silence()
			g.close(closed) // it has changed, it may say
			want, counters := storage.Done, storage.Counters{Attempt: 1}
			if closed != "" {
				want, counters = storage.Ready, storage.Counters{}
			}
			for range 10 {
				id := r.enqueue("k", 1)[0]
				pass(time.Second)
				r.wantState(id, want, counters)
			}
			speak()
			pass(time.Second)
		})
	}
}

// Run waits for no gate.
//
//errand:shows calls into the application that block
func TestGate_StopWhileItIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &muteGate{}
		speak := g.silence()
		r.handle("k", work(time.Millisecond))
		r.gate("k", g)
		r.enqueue("k", 1)
		r.start()
		pass(time.Minute)
		began := time.Now()
		if err := r.stop(); err != nil || time.Since(began) > time.Second {
			t.Errorf("Run: %v after %v", err, time.Since(began))
		}
		speak()
		synctest.Wait()
	})
}

// A gate that ends its goroutine is closed, as one that panics.
//
//errand:shows calls into the application that block
func TestGate_Goexit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &muteGate{exits: true}
		r.handle("k", work(time.Millisecond))
		r.gate("k", g)
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Minute)
		r.wantState(id, storage.Ready, storage.Counters{})
		if lines := r.logs.with("runtime.Goexit was called"); len(lines) == 0 {
			t.Error("no line about Goexit")
		}
		g.mu.Lock()
		g.exits = false
		g.mu.Unlock()
		pass(time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

// A hook that ends its goroutine is called again, and a stop does not wait for it.
//
//errand:shows calls into the application that block
func TestStreak_OnUnauthorizedGoexit(t *testing.T) {
	withSide(t, &policy.StatusError{Status: 401}, func(t *testing.T, r *rig, s *side) {
		var calls starts
		r.cfg.Handlers["k"] = engine.Handler{Run: s.run, OnUnauthorized: func(ctx context.Context) error {
			_ = calls.run(ctx, nil)
			runtime.Goexit()
			return nil
		}}
		r.enqueue("k", 100)
		r.start()
		pass(8 * time.Second)
		if calls.n() < 3 {
			t.Errorf("%d calls of the hook in 8 s, want one for each probe", calls.n())
		}
		if len(r.logs.with("OnUnauthorized failed")) == 0 {
			t.Error("no line about a hook that failed")
		}
		began := time.Now()
		if err := r.stop(); err != nil || time.Since(began) > time.Second {
			t.Errorf("Run: %v after %v", err, time.Since(began))
		}
	})
}
