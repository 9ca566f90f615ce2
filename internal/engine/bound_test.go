package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// gauges counts what runs at a time, by queue and by kind.
type gauges struct {
	mu        sync.Mutex
	now, most map[string]int
	total     int
}

func (g *gauges) add(job *storage.Leased, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil {
		g.now, g.most = map[string]int{}, map[string]int{}
	}
	for _, name := range []string{job.Queue, job.Kind} {
		g.now[name] += n
		g.most[name] = max(g.most[name], g.now[name])
	}
	g.total += max(n, 0)
}

// counted is a handler that shows in g.
func (g *gauges) counted(run handle) handle {
	return func(ctx context.Context, job *storage.Leased) error {
		g.add(job, 1)
		defer g.add(job, -1)
		return run(ctx, job)
	}
}

// begun returns how many jobs have begun.
func (g *gauges) begun() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// running returns how many jobs of a queue or kind run, and how many did at most.
func (g *gauges) running(name string) (now, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now[name], g.most[name]
}

// limit bounds the jobs of a kind that has a handler.
func (r *rig) limit(kind string, n int) {
	h := r.cfg.Handlers[kind]
	h.Concurrency = n
	r.cfg.Handlers[kind] = h
}

// limitQueues bounds the jobs of queues.
func (r *rig) limitQueues(most map[string]int) {
	r.cfg.Settings = map[string]engine.QueueSettings{}
	for queue, n := range most {
		r.cfg.Settings[queue] = engine.QueueSettings{Concurrency: n}
	}
}

// Jobs of a kind and of its other names count together.
func TestBound_OfAliases(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 10
		var g gauges
		one := engine.Handler{Run: func(ctx context.Context, job *storage.Leased) error {
			all := *job
			all.Kind = "any"
			return g.counted(work(time.Second))(ctx, &all)
		}, Concurrency: 3}
		r.cfg.Handlers["new"] = one
		one.AliasOf = "new"
		r.cfg.Handlers["old"], r.cfg.Handlers["older"] = one, one
		r.start()
		for _, kind := range []string{"old", "new", "older"} {
			r.enqueue(kind, 20)
		}
		pass(time.Minute)
		if _, most := g.running("any"); most != 3 || g.begun() != 60 {
			t.Errorf("%d jobs were run, %d at a time: want 60 and 3", g.begun(), most)
		}
	})
}

// Whatever comes how, no bound is exceeded, each is made use of, and nothing is
// leased that could not run.
//
//errand:shows limits of queues and kinds | | at no time run more jobs than the limit says; an alarm does not wait for long jobs that have one
func TestBound_IsNeverExceeded(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				random := rand.New(rand.NewPCG(seed, 1))
				r.handOver()
				r.cfg.Concurrency, r.cfg.Queues = 8, []string{"q", "p", "free"}
				r.limitQueues(map[string]int{"q": 4, "p": 3})
				var g gauges
				for _, kind := range []string{"a", "b", "c"} {
					r.handle(kind, g.counted(func(ctx context.Context, job *storage.Leased) error {
						return work(time.Duration(job.Key*7919%50)*time.Millisecond)(ctx, job)
					}))
				}
				r.limit("a", 2)
				r.limit("b", 5)
				r.start()
				const rounds, each = 100, 6
				here, away := r.app, r.db.Open()
				for range rounds {
					r.app = here
					if random.IntN(3) == 0 {
						r.app = away
					}
					var jobs []storage.NewJob
					for range each {
						jobs = append(jobs, storage.NewJob{
							Queue: r.cfg.Queues[random.IntN(3)], Kind: string(rune('a' + random.IntN(3))),
						})
					}
					r.add(jobs...)
					pass(time.Duration(random.IntN(60)) * time.Millisecond)
				}
				pass(time.Minute)
				if g.begun() != rounds*each {
					t.Errorf("%d of %d jobs were run", g.begun(), rounds*each)
				}
				for name, want := range map[string]int{"q": 4, "p": 3, "a": 2, "b": 5} {
					if _, most := g.running(name); most != want {
						t.Errorf("%d of %s ran at a time, want %d", most, name, want)
					}
				}
			})
		})
	}
}

// An alarm does not wait for a download, nor does telemetry get slower.
//
//errand:shows limits of queues and kinds
func TestBound_AlarmsBesideLongJobs(t *testing.T) {
	for _, local := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.store.alone = true
			r.cfg.Store = slow{r.store, 5 * time.Millisecond}
			if local {
				r.handOver()
			}
			var g gauges
			var began time.Time
			var took time.Duration
			r.handle("alarm", func(context.Context, *storage.Leased) error {
				took = max(took, time.Since(began))
				return nil
			})
			r.handle("download", g.counted(work(time.Hour)))
			r.limit("download", 2)
			r.handle("telemetry", g.counted(work(time.Millisecond)))
			r.enqueue("download", 50)
			r.start()
			for range 20 {
				r.enqueue("telemetry", 100)
				pass(200 * time.Millisecond)
				began = time.Now()
				r.enqueue("alarm", 1)
				pass(time.Second)
			}
			if took > 6*time.Millisecond {
				t.Errorf("an alarm waited for %v", took)
			}
			if n := g.begun() - 2; n != 2000 {
				t.Errorf("%d of 2000 jobs were run beside the downloads", n)
			}
			if n, most := g.running("download"); n != 2 || most != 2 || r.running() != 2 {
				t.Errorf("%d downloads run, at most %d did, %d jobs are leased: want 2", n, most, r.running())
			}
			calls := r.store.count()
			pass(20 * time.Minute)
			for _, c := range r.store.since(calls) {
				if c.op == "exchange" && len(c.x.Extend) == 0 {
					t.Fatalf("exchange %+v while nothing can start", c.x)
				}
			}
		})
	}
}

// Long jobs beside short ones do not keep the latter from being leased ahead.
func TestBound_OthersAreLeasedAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = slow{r.store, 10 * time.Millisecond}
		r.handle("long", work(100*time.Millisecond))
		r.limit("long", 2)
		var g gauges
		r.handle("short", g.counted(work(time.Millisecond)))
		r.enqueue("long", 200)
		r.enqueue("short", 8000)
		r.start()
		pass(3 * time.Second) // 2 runners for up to 1,000 jobs a second each
		if g.begun() < 5400 {
			t.Errorf("%d short jobs were run in 3 s beside long ones, want about 6000", g.begun())
		}
	})
}

// A limit of one does not slow a source down: the next job comes with the
// exchange that writes the outcome of the last one, and none is idle.
func TestBound_OneExchangeForEach(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		var g gauges
		r.handle("k", g.counted(work(time.Second)))
		r.handle("other", work(time.Second))
		r.limit("k", 1)
		r.enqueue("k", 50)
		r.start()
		calls := r.store.count()
		pass(51 * time.Second)
		if _, most := g.running("k"); g.begun() != 50 || most != 1 {
			t.Errorf("%d of 50 were run, %d at a time", g.begun(), most)
		}
		if n := len(r.store.of("exchange", calls)); n > 52 {
			t.Errorf("%d exchanges for 50 jobs", n)
		}
		calls = r.store.count()
		pass(30 * time.Minute)
		if n := r.store.count() - calls; n > 0 {
			t.Errorf("%d calls of the store while there is nothing: %v", n, r.store.since(calls)[0])
		}
	})
}

// Neither suspects nor lost jobs make room before they have ended.
//
//errand:shows limits of queues and kinds
func TestBound_CountsUntilTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		goOn := make(chan struct{})
		r.handle("k", g.counted(untilClosed(goOn))) // heeds no context
		r.limit("k", 2)
		r.start()
		ids := r.enqueue("k", 5)
		other := r.db.Open()
		r.store.failing(func(op string) error {
			if op == "exchange" {
				return storage.ErrIO
			}
			return nil
		})
		for i, mono := range []time.Duration{0, lease} {
			got, err := other.Reclaim(t.Context(), time.Now(), mono, 10*lease, 9)
			if err != nil || len(got) != 2*i {
				t.Fatalf("reclaimed %d, %v", len(got), err)
			}
		}
		r.store.failing(nil)
		pass(2 * lease)
		if len(r.logs.with("lease lost")) == 0 {
			t.Fatal("no lease was lost")
		}
		if n, most := g.running("k"); n != 2 || most != 2 || g.begun() != 2 {
			t.Errorf("%d run, at most %d did, %d began: want 2", n, most, g.begun())
		}
		close(goOn)
		pass(time.Second)
		if n := r.states(ids...); n[storage.Done] != 3 {
			t.Errorf("then the states are %v, want 3 done", n)
		}
	})
}

func TestBound_Suspects(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var g gauges
		r.handle("k", g.counted(work(time.Second)))
		r.limit("k", 1)
		ids := r.suspects("k", 3)
		r.start()
		pass(time.Minute)
		if n := r.states(ids...); n[storage.Done] != 3 {
			t.Errorf("states are %v, want 3 done", n)
		}
		if _, most := g.running("k"); most != 1 {
			t.Errorf("%d suspects ran at a time, want 1", most)
		}
	})
}

// A job that is handed over while an exchange takes its place goes back unspent.
//
//errand:shows limits of queues and kinds
func TestBound_HandedOverTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		under, goOn := s.holdUp()
		var g gauges
		end := make(chan struct{})
		r.handle("k", g.counted(untilClosed(end)))
		r.limit("k", 1)
		r.start()
		enqueued := r.enqueueHeldUp(under)
		first := r.elsewhere("k")
		r.wantState(first, storage.Running, storage.Counters{Attempt: 1})
		goOn()
		id := enqueued()
		r.wantState(id, storage.Ready, storage.Counters{})
		pass(time.Minute)
		if n, most := g.running("k"); n != 1 || most != 1 {
			t.Errorf("%d run, at most %d did", n, most)
		}
		close(end)
		synctest.Wait()
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

// Nor does an exchange ask for what was handed over and has not been received.
func TestBound_ExchangeCountsWhatCame(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		goOn := make(chan struct{})
		r.handle("first", untilClosed(goOn))
		r.handle("k", untilClosed(goOn))
		r.limit("k", 2)
		r.cfg.Concurrency = 8
		var busy atomic.Bool
		r.cfg.Clock = engine.Wall(func() time.Time { // which the loop looks at for each exchange
			if busy.CompareAndSwap(true, false) {
				jobs := slices.Repeat([]storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}, 5)
				if _, err := r.app.Enqueue(t.Context(), time.Now(), jobs); err != nil {
					t.Error(err)
				}
			}
			return time.Now()
		})
		r.store.alone = true
		r.start()
		r.enqueue("first", 1)
		busy.Store(true)
		pass(lease) // with a heartbeat
		if n := r.running(); n != 3 || s.count() != 3 || busy.Load() {
			t.Errorf("%d jobs are leased, %d were handed over, want 3", n, s.count())
		}
		for _, c := range r.store.of("exchange", 0) {
			if len(c.x.Finish) > 0 {
				t.Errorf("%d jobs were given back", len(c.x.Finish))
			}
		}
		close(goOn)
	})
}

// Offers leave to others what a bound does not let its source have.
func TestBound_Offers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		goOn := make(chan struct{})
		r.handle("a", untilClosed(goOn))
		r.handle("b", untilClosed(goOn))
		r.limit("b", 1)
		r.start()
		if s.open() != 2 || s.capacity() != 4 {
			t.Fatalf("%d offers with capacity for %d, want 2 and 4", s.open(), s.capacity())
		}
		b := r.enqueue("b", 3)
		if n := r.states(b...); n[storage.Running] != 1 || s.count() != 1 || s.capacity() != 3 {
			t.Errorf("states %v, %d handed over, capacity for %d: want 1, 1, 3", n, s.count(), s.capacity())
		}
		exchanges := len(r.store.of("exchange", 0))
		a := r.enqueue("a", 3)
		if n := r.states(a...); n[storage.Running] != 3 || s.count() != 4 || s.capacity() != 0 {
			t.Errorf("states %v, %d handed over, capacity for %d: want 3, 4, 0", n, s.count(), s.capacity())
		}
		if n := len(r.store.of("exchange", 0)) - exchanges; n > 0 {
			t.Errorf("%d exchanges, want none", n)
		}
		close(goOn)
		pass(time.Second)
		if n := r.states(append(a, b...)...); n[storage.Done] != 6 || s.capacity() != 4 {
			t.Errorf("states %v, capacity for %d", n, s.capacity())
		}
	})
}
