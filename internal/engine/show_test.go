package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// showcase is a spy that keeps what is published.
type showcase struct {
	*spy
	mu   sync.Mutex
	docs []string
	err  error
}

func (s *showcase) Publish(doc []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs = append(s.docs, string(doc))
	return s.err
}

func (s *showcase) Published(context.Context) ([]storage.Published, error) { return nil, nil }

func (s *showcase) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.docs)
}

// last returns the document that is shown, without policies, times and secrets.
func (s *showcase) last(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var doc struct{ Workers []map[string]any }
	if len(s.docs) == 0 {
		t.Fatal("nothing was published")
	}
	if err := json.Unmarshal([]byte(s.docs[len(s.docs)-1]), &doc); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, w := range doc.Workers {
		delete(w, "policy")
		delete(w, "since")
		delete(w, "secret")
		limits, _ := w["limits"].([]any)
		for _, n := range limits {
			delete(n.(map[string]any), "policy")
			if g, ok := n.(map[string]any)["gate"].(map[string]any); ok {
				delete(g, "since")
			}
		}
		b, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return strings.Join(all, "\n")
}

// wants checks the document that is shown of the usual worker of one kind.
func (s *showcase) wants(t *testing.T, when, rest string) {
	t.Helper()
	want := `{"concurrency":4,` + rest + `"queues":["q"]}`
	if got := s.last(t); got != want {
		t.Errorf("%s: shown is\n%s\nwant\n%s", when, got, want)
	}
}

// shows runs a test of what an engine with a kind "a" shows.
func shows(t *testing.T, test func(t *testing.T, r *rig, s *showcase)) {
	t.Helper()
	bubble(t, func(t *testing.T, r *rig) {
		s := &showcase{spy: r.store}
		r.cfg.Store = s
		r.handle("a", func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		test(t, r, s)
	})
}

// A worker shows what it works for once it runs, and that is all while nothing changes.
func TestShow_Idle(t *testing.T) {
	shows(t, func(t *testing.T, r *rig, s *showcase) {
		r.start()
		s.wants(t, "at the start", `"kinds":["a"],`)
		if doc := s.docs[0]; !strings.Contains(doc, `"numRetries":3`) || !strings.Contains(doc, time.Now().UTC().Format(time.RFC3339)) {
			t.Errorf("shown is %s: want its policy and when it began", doc)
		}
		pass(time.Hour)
		if n := s.count(); n != 1 {
			t.Errorf("published %d times in an idle hour: %v", n, s.docs)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.last(t); got != "" {
			t.Errorf("after Run: %s", got)
		}
	})
}

// All runners are in use: that is shown once it has lasted, and its end too.
func TestShow_Full(t *testing.T) {
	shows(t, func(t *testing.T, r *rig, s *showcase) {
		end := make(chan struct{})
		r.handle("a", func(context.Context, *storage.Leased) error { <-end; return nil })
		h := r.cfg.Handlers["a"]
		h.Concurrency = 2
		r.cfg.Handlers["a"] = h
		r.handle("b", func(context.Context, *storage.Leased) error { <-end; return nil })
		r.start()
		r.enqueue("a", 3)
		r.enqueue("b", 3)
		pass(time.Second)
		s.wants(t, "at once", `"kinds":["a","b"],"limits":[{"concurrency":2,"kind":"a"}],`)
		pass(3 * time.Second)
		s.wants(t, "after some seconds", `"full":true,"kinds":["a","b"],"limits":[{"concurrency":2,"full":true,"kind":"a"}],`)
		n := s.count()
		pass(time.Hour)
		if s.count() != n {
			t.Errorf("published %d times more while that lasted", s.count()-n)
		}
		close(end)
		pass(5 * time.Second)
		s.wants(t, "at the end", `"kinds":["a","b"],"limits":[{"concurrency":2,"kind":"a"}],`)
	})
}

// A worker that is busy with short jobs publishes little.
func TestShow_Busy(t *testing.T) {
	shows(t, func(t *testing.T, r *rig, s *showcase) {
		r.handle("a", func(context.Context, *storage.Leased) error { time.Sleep(30 * time.Millisecond); return nil })
		r.start()
		for range 600 {
			r.enqueue("a", 3)
			pass(100 * time.Millisecond)
		}
		if n := s.count(); n > 5 {
			t.Errorf("published %d times in a minute", n)
		}
	})
}

// What limits a queue or a kind is shown: gates, throttles, budgets.
func TestShow_Limits(t *testing.T) {
	t.Run("gate", func(t *testing.T) {
		shows(t, func(t *testing.T, r *rig, s *showcase) {
			g := &latch{closed: "no carrier"}
			r.gate("a", g)
			r.start()
			s.wants(t, "not asked yet", `"kinds":["a"],"limits":[{"gate":{"open":true},"kind":"a"}],`)
			r.enqueue("a", 1)
			pass(time.Second)
			s.wants(t, "closed", `"kinds":["a"],"limits":[{"gate":{"open":false,"reason":"no carrier"},"kind":"a"}],`)
			if !strings.Contains(s.docs[len(s.docs)-1], `"open":false,"reason":"no carrier","since":"`) {
				t.Errorf("no time: %s", s.docs[len(s.docs)-1])
			}
			n := s.count()
			for i := range 600 {
				g.close(fmt.Sprintf("%d MiB free", i))
				pass(100 * time.Millisecond)
			}
			if got := s.count() - n; got < 1 || got > 10 {
				t.Errorf("published %d times in a minute of other reasons", got)
			}
			g.close("")
			pass(time.Second)
			s.wants(t, "open", `"kinds":["a"],"limits":[{"gate":{"open":true},"kind":"a"}],`)
		})
	})

	t.Run("throttle", func(t *testing.T) {
		shows(t, func(t *testing.T, r *rig, s *showcase) {
			r.cfg.Settings = map[string]engine.QueueSettings{"q": {Throttle: engine.NewThrottle(1)}}
			r.handle("a", func(context.Context, *storage.Leased) error { return nil })
			r.start()
			s.wants(t, "before", `"kinds":["a"],"limits":[{"per_second":1,"queue":"q"}],`)
			r.enqueue("a", 20)
			pass(10 * time.Second)
			s.wants(t, "while jobs wait", `"kinds":["a"],"limits":[{"per_second":1,"queue":"q","throttled":true}],`)
			pass(time.Minute)
			s.wants(t, "after", `"kinds":["a"],"limits":[{"per_second":1,"queue":"q"}],`)
		})
	})

	t.Run("groups", func(t *testing.T) {
		shows(t, func(t *testing.T, r *rig, s *showcase) {
			r.handle("a", func(context.Context, *storage.Leased) error { return nil })
			r.groupRate(1, 20*time.Second, 1, 1)
			r.start()
			s.wants(t, "before", `"kinds":["a"],"limits":[{"queue":"q"}],`)
			job := storage.NewJob{Queue: "q", Kind: "a", Group: "g"}
			r.add(job, job, job)
			pass(30 * time.Second)
			s.wants(t, "while one waits for its turn", `"kinds":["a"],"limits":[{"group_throttled":true,"queue":"q"}],`)
			pass(30 * time.Second)
			s.wants(t, "after", `"kinds":["a"],"limits":[{"queue":"q"}],`)
		})
	})

	t.Run("batch", func(t *testing.T) {
		shows(t, func(t *testing.T, r *rig, s *showcase) {
			for kind, b := range map[string]engine.Batch{"a": {Max: 9}, "b": {Max: 9, Min: 5, Wait: time.Second}} {
				b.Run = func(context.Context, []engine.Item) {}
				r.cfg.Handlers[kind] = engine.Handler{Batch: &b}
			}
			r.start()
			s.wants(t, "at the start", `"kinds":["a","b"],"limits":[{"batch_min":5,"batch_wait":1000000000,"kind":"b"}],`)
		})
	})

	t.Run("opening", func(t *testing.T) {
		shows(t, func(t *testing.T, r *rig, s *showcase) {
			r.cfg.Rand = func() float64 { return 0.5 }
			end := make(chan struct{})
			h := engine.Handler{OpenJitter: 10 * time.Minute, Run: func(context.Context, *storage.Leased) error { <-end; return nil }}
			r.cfg.Handlers["a"] = h
			r.start()
			all := storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: "night"}
			r.hold(all)
			r.enqueue("a", 5)
			pass(2 * time.Minute)
			s.wants(t, "held", `"kinds":["a"],`)
			starts := time.Now().Add(5 * time.Minute).UTC()
			r.release(all)
			pass(time.Second)
			s.wants(t, "put off", `"kinds":["a"],"limits":[{"full":true,"kind":"a","queue":"q","until":"`+starts.Format(time.RFC3339Nano)+`"}],`)
			pass(5*time.Minute + 2*time.Second)
			s.wants(t, "as it opens", `"kinds":["a"],"limits":[{"concurrency":1,"full":true,"kind":"a","queue":"q"}],`)
			n := s.count()
			pass(time.Hour)
			if s.count() != n {
				t.Errorf("published %d times more while that lasted", s.count()-n)
			}
			end <- struct{}{}
			pass(10 * time.Second)
			s.wants(t, "with two", `"kinds":["a"],"limits":[{"concurrency":2,"full":true,"kind":"a","queue":"q"}],`)
			close(end)
			pass(10 * time.Second)
			s.wants(t, "at the end", `"kinds":["a"],`)
		})
	})

	t.Run("budget", func(t *testing.T) {
		shows(t, func(t *testing.T, r *rig, s *showcase) {
			h := engine.Handler{
				Run: func(context.Context, *storage.Leased) error { return errors.New("refused") },
				Budget: engine.NewBudget(policy.BudgetOptions{
					Capacity: 3, RetryCost: 3, RetriesPerSecond: 1. / 120, FirstRefund: 1, TimeoutCost: 3,
				}),
			}
			r.cfg.Handlers["a"] = h
			r.start()
			r.enqueue("a", 3)
			pass(30 * time.Second)
			s.wants(t, "empty", `"kinds":["a"],"limits":[{"budget":true,"budget_empty":true,"kind":"a"}],`)
		})
	})
}

// Workers of a process are in one document. One that stops says so, and is left out at
// its end.
func TestShow_Several(t *testing.T) {
	shows(t, func(t *testing.T, r *rig, s *showcase) {
		r.cfg.Lanes = new(engine.Lanes)
		other := newRigOn(t, r.db, r.app)
		other.cfg.Store, other.cfg.Lanes = s, r.cfg.Lanes
		other.handle("b", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		other.start()
		const b = `{"concurrency":4,"kinds":["b"],"queues":["q"]}`
		if got, want := s.last(t), `{"concurrency":4,"kinds":["a"],"queues":["q"]}`+"\n"+b; got != want {
			t.Errorf("shown is\n%s\nwant\n%s", got, want)
		}
		r.enqueue("a", 1)
		r.cancel()
		synctest.Wait()
		if got, want := s.last(t), b+"\n"+`{"concurrency":4,"kinds":["a"],"queues":["q"],"stopping":true}`; got != want {
			t.Errorf("in its grace shown is\n%s\nwant\n%s", got, want)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.last(t); got != b {
			t.Errorf("after its end shown is\n%s\nwant\n%s", got, b)
		}
	})
}

// A document that cannot be published stops nothing, and is logged once.
func TestShow_Fails(t *testing.T) {
	shows(t, func(t *testing.T, r *rig, s *showcase) {
		s.err = errors.New("no room")
		r.gate("a", &latch{closed: "no carrier"})
		r.start()
		r.enqueue("a", 1)
		pass(time.Minute)
		if lines := r.logs.with("no room"); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") {
			t.Errorf("logged %q, want one warning", lines)
		}
		if lines := r.logs.with("store failed"); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
	})
}
