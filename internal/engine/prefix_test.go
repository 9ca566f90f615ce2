package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// in returns n jobs of kind k in a queue.
func in(queue string, n int) []storage.NewJob {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = storage.NewJob{Queue: queue, Kind: "k"}
	}
	return jobs
}

// started notes which jobs were started.
type started struct {
	mu     sync.Mutex
	queues []string
}

func (s *started) take(run handle) handle {
	return func(ctx context.Context, job *storage.Leased) error {
		s.mu.Lock()
		s.queues = append(s.queues, job.Queue)
		s.mu.Unlock()
		return run(ctx, job)
	}
}

// taken returns the queues of the jobs that were started since the last call, sorted.
func (s *started) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.queues)
	all := fmt.Sprint(s.queues)
	s.queues = nil
	return all
}

// Queues that come later are worked for, by all engines on the file, and without asking
// for them: an idle worker calls the store no more often than one of a single queue.
func TestPrefix_FollowsQueues(t *testing.T) {
	for _, local := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.store.alone = true
			r.cfg.Queues = []string{"web/*"}
			var s started
			r.handle("k", s.take(work(0)))
			if local {
				r.handOver()
			}
			r.start()
			r.add(slices.Concat(in("web/a", 2), in("webs", 1), in("web/b/c", 1))...)
			if got := s.taken(); got != "[web/a web/a web/b/c]" {
				t.Errorf("started %s", got)
			}
			pass(5 * time.Minute) // the log says that nobody serves webs
			n := r.store.count()
			pass(time.Hour)
			if calls := r.store.since(n); len(calls) > 0 {
				t.Errorf("%d calls of the store in an idle hour, first %q", len(calls), calls[0].op)
			}
			r.add(in("web/later", 1)...)
			if got := s.taken(); got != "[web/later]" {
				t.Errorf("started %s", got)
			}
			if lines := r.logs.with("queue=web/"); len(lines) > 0 {
				t.Errorf("logged %q", lines)
			}
			r.wantLine(notServed, "queue=webs", "worker=web/*")
		})
	}
}

// Concurrency is of each queue. A job that waited for it starts as soon as one of its
// queue has ended, also while other queues have work.
func TestPrefix_ConcurrencyOfEach(t *testing.T) {
	for _, local := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Concurrency, r.cfg.Queues = 30, []string{"web/*", "other"}
			r.cfg.Settings = map[string]engine.QueueSettings{"web/*": {Concurrency: 2}}
			var g gauges
			r.handle("k", g.counted(work(time.Second)))
			if local {
				r.handOver()
			}
			r.start()
			r.add(slices.Concat(in("web/a", 6), in("web/b", 1), in("web/c", 6), in("other", 20))...)
			for i := range 5 {
				a, _ := g.running("web/a")
				c, _ := g.running("web/c")
				want := 2
				if i > 2 {
					want = 0
				}
				if a != want || c != want {
					t.Errorf("after %d s %d of a and %d of c run, want %d", i, a, c, want)
				}
				pass(time.Second)
			}
			pass(time.Second)
			if g.begun() != 33 {
				t.Errorf("%d have begun, want 33", g.begun())
			}
			r.add(in("web/new", 3)...)
			pass(10 * time.Second)
			if _, most := g.running("web/new"); most != 2 || g.begun() != 36 {
				t.Errorf("%d of a new queue ran at a time, %d have begun in all", most, g.begun())
			}
		})
	}
}

// A queue that is listed, or of a longer prefix, has settings of its own.
func TestPrefix_Longest(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency, r.cfg.Queues = 100, []string{"web/eu/*", "web/*", "web/eu/vip", "web/vip", "web/us"}
		r.cfg.Settings = map[string]engine.QueueSettings{"web/*": {Concurrency: 1}, "web/eu/*": {Concurrency: 2}, "web/vip": {Concurrency: 3}}
		var g gauges
		r.handle("k", g.counted(work(time.Second)))
		r.start()
		want := map[string]int{"web/a": 1, "web/eu/a": 2, "web/eu/b": 2, "web/vip": 3, "web/us": 5, "web/eu/vip": 5}
		for queue := range want {
			r.add(in(queue, 5)...)
		}
		pass(10 * time.Second)
		for queue, n := range want {
			if _, most := g.running(queue); most != n {
				t.Errorf("%d jobs of %s ran at a time, want %d", most, queue, n)
			}
		}
		if n := r.count(storage.Done); n != 30 {
			t.Errorf("%d jobs are done", n)
		}
	})
}

// A queue of which an exchange has left jobs, as it was told of less room than there is at
// its answer, is asked again, also if the exchanges that follow ask for others.
func TestPrefix_EndsMeanwhile(t *testing.T) {
	for range 20 { // the last two jobs that run have to end in one exchange
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Store = slowAnswers{r.store}
			r.cfg.Concurrency, r.cfg.Queues = 100, []string{"web/*", "q"}
			r.cfg.Settings = map[string]engine.QueueSettings{"web/*": {Concurrency: 2}, "q": {Concurrency: 1}}
			var mu sync.Mutex
			left := map[string][]float64{"web/a": {1, 1.5, 3, 1}, "q": {1.5, 2}}
			r.handle("k", func(ctx context.Context, job *storage.Leased) error {
				mu.Lock()
				takes := left[job.Queue][0]
				left[job.Queue] = left[job.Queue][1:]
				mu.Unlock()
				return work(time.Duration(takes*1000)*time.Millisecond)(ctx, job)
			})
			r.add(slices.Concat(in("q", 2), in("web/a", 4))...)
			r.start()
			pass(time.Minute)
			if n := r.count(storage.Done); n != 6 {
				t.Errorf("%d jobs are done", n)
			}
		})
	}
}

// A queue of which a job was leased that has crashed too often is asked again for those behind
// it, also while others have more work.
func TestPrefix_Buried(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency, r.cfg.Queues = 10, []string{"web/*", "q"}
		r.cfg.Settings = map[string]engine.QueueSettings{"web/*": {Concurrency: 1}}
		r.cfg.MaxCrashes = 1
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			if job.Queue == "q" {
				return work(time.Second)(ctx, job)
			}
			return nil
		})
		crashed := r.add(in("web/a", 1)...)[0]
		victim := r.db.Open()
		wants := []storage.Want{{Queues: []string{"web/a"}, Kinds: []string{"k"}, N: 1}}
		res, err := victim.Exchange(t.Context(), r.now(), storage.Exchange{LeaseDuration: lease, Wants: wants})
		if err != nil || len(res.Leased) != 1 {
			t.Fatal(res.Leased, err)
		}
		if err := victim.(storage.Marker).Started(res.Leased[0].Lease, r.now()); err != nil {
			t.Fatal(err)
		}
		r.db.Kill(victim)
		gone, err := r.app.Reclaim(t.Context(), r.now(), 0, lease, 1)
		if err != nil || len(gone) != 1 {
			t.Fatal(gone, err)
		}
		ended := []storage.Finish{{Lease: gone[0].Lease, Outcome: storage.OutcomeCrashed}}
		if _, err := r.app.Exchange(t.Context(), r.now(), storage.Exchange{LeaseDuration: lease, Finish: ended}); err != nil {
			t.Fatal(err)
		}
		behind := r.add(in("web/a", 1)...)[0]
		r.add(in("q", 600)...)
		r.start()
		pass(10 * time.Second)
		if r.job(crashed).State != storage.Dead || r.job(behind).State != storage.Done {
			t.Errorf("the job is %s, that behind it %s", r.job(crashed).State, r.job(behind).State)
		}
	})
}

// Settings are looked up by the queue of the job.
func TestPrefix_SettingsOf(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues, r.cfg.Policy = []string{"*"}, noRetry.Delivery()
		three := thrice.Delivery()
		r.cfg.SettingsOf = func(queue string) engine.QueueSettings {
			if queue == "web/a" {
				return engine.QueueSettings{Policy: &three}
			}
			return engine.QueueSettings{}
		}
		r.handle("k", func(context.Context, *storage.Leased) error { return errRefused })
		r.start()
		ids := r.add(slices.Concat(in("web/a", 1), in("web/b", 1))...)
		pass(time.Hour)
		for i, attempts := range []int{4, 1} {
			if got := r.job(ids[i]).Attempt; got != attempts {
				t.Errorf("%d attempts of job %d, want %d", got, i, attempts)
			}
		}
	})
}

// A lane of a prefix that was held opens gently, and the others are left alone. So do all
// of a prefix together that were behind a gate.
func TestPrefix_OpensGently(t *testing.T) {
	for _, of := range []string{"lane", "gate"} {
		for _, local := range []bool{true, false} {
			t.Run(of, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.cfg.Concurrency, r.cfg.Queues = 16, []string{"web/*"}
					r.store.alone = true
					if local {
						r.handOver()
					}
					var n, others levels
					r.handle("k", func(ctx context.Context, job *storage.Leased) error {
						if job.Queue == "web/b" {
							return others.take(work(time.Second))(ctx, job)
						}
						return n.take(work(time.Second))(ctx, job)
					})
					g := &latch{}
					if of == "gate" {
						r.cfg.Settings = map[string]engine.QueueSettings{"web/*": {Gate: g}}
					}
					r.start()
					h := storage.Hold{Lane: storage.Lane{Queue: "web/a"}, Reason: "night"}
					if of == "gate" {
						g.close("no carrier")
					} else {
						r.hold(h)
					}
					r.add(in("web/a", 100)...)
					pass(time.Minute + time.Second)
					n.begin()
					others.begin()
					if of == "gate" {
						g.close("")
					} else {
						r.add(in("web/b", 8)...)
						r.release(h)
					}
					pass(4*time.Second + time.Second/2)
					n.check(t, 1, 2, 4)
					if of == "lane" {
						others.check(t, 8, 0)
					}
					pass(time.Minute)
					if waiting := r.count(storage.Ready); waiting != 0 {
						t.Errorf("%d jobs still wait", waiting)
					}
				})
			})
		}
	}
}

// What failed in queues of a prefix before its gate closed runs soon after it opens.
func TestPrefix_Kick(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		l, g := &link{}, &latch{}
		l.set(errRefused)
		r.handle("k", l.run)
		r.cfg.Queues, r.cfg.Policy = []string{"web/*"}, hourly.Delivery()
		r.cfg.Settings = map[string]engine.QueueSettings{"web/*": {Gate: g}}
		r.start()
		ids := r.add(slices.Concat(in("web/a", 3), in("web/b", 20))...)
		pass(10 * time.Second)
		g.close("no carrier")
		r.add(in("web/c", 1)...)
		pass(10 * time.Minute)
		l.set(nil)
		g.close("")
		pass(30 * time.Second)
		if n := r.states(ids...); n[storage.Done] != 23 {
			t.Errorf("half a minute after the gate has opened: %v", n)
		}
	})
}

// The brake is of one queue and kind.
func TestPrefix_Brake(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues, r.cfg.MaxDeaths, r.cfg.Policy = []string{"web/*"}, 5, policy.Policy{}.Delivery()
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			if job.Queue == "web/bad" {
				return errRefused
			}
			return nil
		})
		r.start()
		r.add(slices.Concat(in("web/bad", 100), in("web/good", 100))...)
		pass(time.Second / 2)
		all, err := r.app.Holds(t.Context(), r.now())
		if err != nil || len(all) != 1 || all[0].Lane != (storage.Lane{Queue: "web/bad", Kind: "k"}) || r.count(storage.Done) != 100 {
			t.Errorf("held %v, %v, and %v", all, err, r.counts())
		}
	})
}

// The calls of a batch are of one queue each.
func TestPrefix_Batch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues = []string{"web/*"}
		mixed := 0
		r.many("k", engine.Batch{Max: 10}, func(_ context.Context, items []engine.Item) {
			for _, i := range items {
				if i.Job.Queue != items[0].Job.Queue {
					mixed++
				}
			}
		})
		var jobs []storage.NewJob
		for i := range 60 {
			jobs = append(jobs, in(fmt.Sprint("web/", i%3), 1)...)
		}
		r.add(jobs...)
		r.start()
		pass(time.Second)
		if n := r.count(storage.Done); n != 60 || mixed > 0 {
			t.Errorf("%d are done, %d beside jobs of another queue", n, mixed)
		}
	})
}
