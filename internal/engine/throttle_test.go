package engine_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// throttled is a queue with a throttle, or under that of o.
func throttled(perSecond int) engine.QueueSettings {
	d := policy.Document{Retry: &thrice, Throttle: &policy.Throttle{MaxReceivesPerSecond: perSecond}}
	return engine.QueueSettings{Policy: new(d.Delivery()), Throttle: engine.NewThrottle(perSecond)}
}

// starts notes when attempts start.
type starts struct {
	mu sync.Mutex
	at []time.Time
}

func (s *starts) run(context.Context, *storage.Leased) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	return nil
}

func (s *starts) n() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// within counts the starts from the given moment on, for as long.
func (s *starts) within(from time.Time, d time.Duration) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.at {
		if !t.Before(from) && t.Before(from.Add(d)) {
			n++
		}
	}
	return n
}

func (r *rig) running() (n int64) {
	counts, err := r.app.Counts(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range counts {
		if c.State == storage.Running {
			n += c.N
		}
	}
	return n
}

func TestThrottle_KeepsTheRate(t *testing.T) {
	for _, rate := range []int{1, 7, 50, 100} {
		bubble(t, func(t *testing.T, r *rig) {
			r.store.alone = true
			r.cfg.Settings = map[string]engine.QueueSettings{"q": throttled(rate)}
			var s starts
			r.handle("k", s.run)
			r.enqueue("k", 12*rate)
			began := time.Now()
			r.start()
			for i := range 10 {
				pass(time.Second)
				n := s.within(began.Add(time.Duration(i)*time.Second), time.Second)
				if least, most := rate-max(1, rate/10), rate+max(1, rate/10); n < least || n > most {
					t.Errorf("%d started in second %d, want %d to %d", n, i, least, most)
				}
				if n := r.running(); n > 0 {
					t.Errorf("%d jobs are leased and do not run", n)
				}
			}
			if n, want := s.n(), 10*rate; n < want-1 || n > want+max(1, rate/10) {
				t.Errorf("%d started in 10 s, want %d", n, want)
			}
			if n := r.store.mostWanted(); n > max(1, rate/10) {
				t.Errorf("%d jobs were asked for at a time", n)
			}
			pass(time.Minute)
			if s.n() != 12*rate {
				t.Errorf("%d of %d were started", s.n(), 12*rate)
			}
			calls := r.store.count()
			pass(time.Hour)
			if n := r.store.count() - calls; n > 0 {
				t.Errorf("%d calls of the store in an hour of rest: %v", n, r.store.since(calls)[0])
			}
		})
	}
}

// Neither does a queue under a throttle hold up another one, nor one without
// keep the runners from the other.
func TestThrottle_OtherQueuesGoOn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues = []string{"q", "slow"}
		r.cfg.Settings = map[string]engine.QueueSettings{"slow": throttled(10)}
		var slow, free starts
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			if job.Queue == "slow" {
				return slow.run(ctx, job)
			}
			time.Sleep(10 * time.Millisecond)
			return free.run(ctx, job)
		})
		jobs := make([]storage.NewJob, 100)
		for i := range jobs {
			jobs[i] = storage.NewJob{Queue: "slow", Kind: "k", Priority: 50}
		}
		r.add(jobs...)
		r.enqueue("k", 1000)
		began := time.Now()
		r.start()
		pass(2 * time.Second)
		if n := slow.within(began, 2*time.Second); n < 18 || n > 21 {
			t.Errorf("%d jobs of the slow queue in 2 s, want 20", n)
		}
		// 4 runners, of which the others take nearly nothing.
		if n := free.within(began, 2*time.Second); n < 750 {
			t.Errorf("%d jobs of the free queue in 2 s, want 800", n)
		}
	})
}

// One exchange asks for jobs under several throttles and under none, and for no
// more than there are runners.
func TestThrottle_OneExchangeForAll(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Concurrency = 5
		r.cfg.Queues = []string{"q", "fast", "slow"}
		r.cfg.Settings = map[string]engine.QueueSettings{"fast": throttled(1000), "slow": throttled(1)}
		r.handle("k", work(time.Minute))
		for _, queue := range r.cfg.Queues {
			for range 10 {
				r.add(storage.NewJob{Queue: queue, Kind: "k"})
			}
		}
		r.start()
		pass(500 * time.Millisecond)
		if n := r.store.mostWanted(); n != 5 {
			t.Errorf("%d jobs were asked for at a time, want 5", n)
		}
		if n := len(r.store.of("exchange", 0)); n != 1 {
			t.Errorf("%d exchanges, want 1", n)
		}
		counts, err := r.app.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, c := range counts {
			if c.State == storage.Running {
				got[c.Queue] = c.N
			}
		}
		if want := map[string]int64{"q": 2, "fast": 2, "slow": 1}; !maps.Equal(got, want) {
			t.Errorf("running are %v, want %v", got, want)
		}
	})
}

// The first exchange asks for as many jobs as there are runners, although the
// throttles of queues without jobs grant one each.
func TestThrottle_LeavesNoRunnerIdle(t *testing.T) {
	for name, q := range map[string]engine.QueueSettings{"no throttle": {}, "a throttle": throttled(1000)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.store.alone = true
				r.cfg.Concurrency = 16
				r.cfg.Queues = []string{"q", "a", "b", "c"}
				r.cfg.Settings = map[string]engine.QueueSettings{"q": q, "a": throttled(10), "b": throttled(10), "c": throttled(10)}
				r.handle("k", work(time.Minute))
				r.enqueue("k", 100)
				r.start()
				var asked []int
				for _, w := range r.store.of("exchange", 0)[0].x.Wants {
					asked = append(asked, w.N)
				}
				if want := []int{13, 1, 1, 1}; !slices.Equal(asked, want) {
					t.Errorf("the first exchange asks for %v, want %v", asked, want)
				}
			})
		})
	}
}

// Sources for which there was no runner are asked in the exchanges that follow.
func TestThrottle_MoreSourcesThanRunners(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Concurrency = 1
		r.cfg.Queues = []string{"q", "fast", "fast2"}
		r.cfg.Settings = map[string]engine.QueueSettings{"fast": throttled(10_000), "fast2": throttled(10_000)}
		ended := map[string]*starts{}
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			time.Sleep(10 * time.Millisecond)
			return ended[job.Queue].run(ctx, job)
		})
		for _, queue := range r.cfg.Queues {
			ended[queue] = &starts{}
			r.add(slices.Repeat([]storage.NewJob{{Queue: queue, Kind: "k"}}, 20)...)
		}
		r.start()
		pass(95 * time.Millisecond)
		for queue, s := range ended {
			if s.n() != 3 {
				t.Errorf("%d jobs of queue %s have ended, want 3", s.n(), queue)
			}
		}
	})
}

func TestThrottle_IsSharedByEngines(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var s starts
		queue := throttled(20)
		other := r.another()
		for _, r := range []*rig{r, other} {
			r.cfg.Settings = map[string]engine.QueueSettings{"q": queue}
			r.handle("k", s.run)
		}
		r.enqueue("k", 300)
		began := time.Now()
		r.start()
		other.start()
		pass(10 * time.Second)
		if n := s.within(began, 10*time.Second); n < 199 || n > 203 {
			t.Errorf("%d started in 10 s, want 200", n)
		}
	})
}

// late is a Store whose exchanges come some time after they were sent.
type late struct{ *spy }

func (s late) Exchange(ctx context.Context, _ time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	time.Sleep(3 * time.Millisecond)
	return s.spy.Exchange(ctx, time.Now(), x)
}

// A job that gets due while another source is leased from is not overlooked.
func TestThrottle_ScheduledJobs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Store = late{r.store}
		r.cfg.Queues = []string{"q", "slow"}
		r.cfg.Settings = map[string]engine.QueueSettings{"slow": throttled(100)}
		var s starts
		r.handle("busy", func(context.Context, *storage.Leased) error { time.Sleep(time.Millisecond); return nil })
		r.handle("k", s.run)
		var jobs []storage.NewJob
		for i := range 20 {
			due := time.Now().Add(time.Duration(i)*100*time.Millisecond + time.Duration(i)*137*time.Microsecond)
			jobs = append(jobs, storage.NewJob{Queue: "slow", Kind: "k", DueAt: due})
		}
		r.add(jobs...)
		r.enqueue("busy", 1500)
		r.start()
		for i, job := range jobs {
			pass(time.Until(job.DueAt) + 50*time.Millisecond)
			if n := s.n(); n != i+1 {
				t.Fatalf("%d jobs were started when %d had been due for 50 ms", n, i+1)
			}
		}
	})
}

// What was granted and does not start can be granted again.
func TestThrottle_NothingIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Settings = map[string]engine.QueueSettings{"q": throttled(1)}
		var s starts
		r.handle("k", s.run)
		r.start()
		r.add(storage.NewJob{Queue: "other", Kind: "k"}) // wakes it in vain
		r.store.failing(func(op string) error {
			if op == "exchange" {
				return storage.ErrFull
			}
			return nil
		})
		r.enqueue("k", 1)
		r.store.failing(nil)
		pass(100 * time.Millisecond) // of which it waits 50
		if s.n() != 1 {
			t.Errorf("%d jobs were started, want 1", s.n())
		}
	})
}

// A store that works again is not asked before there is a token, nor is the
// time until then spent looking.
func TestThrottle_AfterAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		queue := throttled(1)
		other := r.another()
		for _, r := range []*rig{r, other} {
			r.store.alone = true
			r.cfg.Settings = map[string]engine.QueueSettings{"q": queue}
			r.handle("k", func(context.Context, *storage.Leased) error { return nil })
			r.start()
		}
		broken := true
		r.store.failing(func(op string) error {
			if op == "exchange" && broken {
				broken = false
				return storage.ErrFull
			}
			return nil
		})
		r.enqueue("k", 100) // the other takes the token
		pass(10 * time.Second)
		if n := r.store.count(); n > 100 {
			t.Errorf("%d calls of the store in 10 s", n)
		}
	})
}

// A retry that the budget does not pay for leaves the rate to others.
func TestThrottle_BudgetFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		queue := throttled(10)
		queue.Policy = &policy.Topic{Document: policy.Document{Retry: atOnce(1).Retry, Throttle: queue.Policy.Throttle}}
		queue.Budget = single(0.02)
		r.cfg.Settings = map[string]engine.QueueSettings{"q": queue}
		var bad, good starts
		r.handle("bad", func(ctx context.Context, job *storage.Leased) error {
			_ = bad.run(ctx, job)
			return errOops
		})
		r.handle("good", good.run)
		r.enqueue("bad", 20)
		r.start()
		pass(2500 * time.Millisecond) // 20 first attempts, 1 retry; 19 are put off
		if bad.n() != 21 {
			t.Errorf("%d attempts, want 21", bad.n())
		}
		r.enqueue("good", 1000)
		began := time.Now()
		pass(2 * time.Minute) // in the first of which those 19 come back
		if n := good.within(began, time.Minute); n < 596 {
			t.Errorf("%d started in a minute, want 600", n)
		}
	})
}

// An attempt that a runner has, and whose handler is not called as its lane is held,
// brings its token back.
func TestThrottle_HeldWhileARunnerHasIt(t *testing.T) {
	for jobs, h := range map[int]engine.Handler{1: {}, 2: {Batch: &engine.Batch{Max: 2, Run: func(context.Context, []engine.Item) {}}}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Settings = map[string]engine.QueueSettings{"q": throttled(10 * jobs)}
			h.Run = func(context.Context, *storage.Leased) error { return nil }
			r.cfg.Handlers["k"] = h
			r.store.failing(func(op string) error {
				if op == "started" {
					r.store.fail = nil // which the caller has locked
					r.hold(pause)
				}
				return nil
			})
			ids := r.enqueue("k", jobs)
			r.start()
			synctest.Wait()
			for _, id := range ids {
				r.wantState(id, storage.Ready, storage.Counters{})
			}
			r.release(pause)
			synctest.Wait() // for no new token
			for _, id := range ids {
				r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
			}
		})
	}
}
