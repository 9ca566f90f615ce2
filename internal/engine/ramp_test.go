package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// levels notes how many jobs of a kind run at a time, in each second since begin.
type levels struct {
	mu    sync.Mutex
	from  time.Time
	now   int
	most  map[int]int // by second
	first time.Duration
	total int
}

// take is a handler that takes as long as run does.
func (n *levels) take(run handle) handle {
	return func(ctx context.Context, job *storage.Leased) error {
		n.add(1)
		defer n.add(-1)
		return run(ctx, job)
	}
}

// add notes that one more or less runs, and returns how many have begun.
func (n *levels) add(d int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now += d
	if d < 0 || n.from.IsZero() {
		return 0
	}
	at := time.Since(n.from)
	if n.total++; n.total == 1 {
		n.first = at
	}
	second := int(at / time.Second)
	n.most[second] = max(n.most[second], n.now)
	return n.total
}

// begin begins to count.
func (n *levels) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.from, n.most, n.first, n.total = time.Now(), map[int]int{}, -1, 0
}

// of returns how many ran at a time in each of the first seconds.
func (n *levels) of(seconds int) (all []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range seconds {
		all = append(all, n.most[i])
	}
	return all
}

func (n *levels) check(t *testing.T, want ...int) {
	t.Helper()
	if got := n.of(len(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("at a time ran, second by second, %v, want %v", got, want)
	}
}

// closer closes kind k of queue q, and opens it.
type closer struct {
	close, open func()
	gate        bool
}

var closing = map[string]storage.Lane{"queue": {Queue: "q"}, "kind": {Kind: "k"}, "lane": {Queue: "q", Kind: "k"}}

func (r *rig) closer(name string) closer {
	if lane, ok := closing[name]; ok {
		h := storage.Hold{Lane: lane, Reason: "night"}
		return closer{func() { r.hold(h) }, func() { r.release(h) }, false}
	}
	g := &latch{}
	r.gate("k", g)
	return closer{func() { g.close("no carrier") }, func() { g.close("") }, true}
}

// everyWay runs a test for each way in which a lane can be closed.
func everyWay(t *testing.T, test func(t *testing.T, r *rig, c closer)) {
	for _, name := range []string{"gate", "queue", "kind", "lane"} {
		for _, local := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.store.alone = true
					r.cfg.Concurrency = 16
					if local {
						r.handOver()
					}
					r.handle("k", nil)
					test(t, r, r.closer(name))
				})
			})
		}
	}
}

// run sets the handler of a kind, whose other settings stay.
func (r *rig) run(kind string, run handle) {
	h := r.cfg.Handlers[kind]
	h.Run = run
	r.cfg.Handlers[kind] = h
}

// A lane that was closed for more than a minute starts with one job at a time, and
// each full round of successes doubles that.
//
//errand:shows lanes that were closed for long | | more than a minute behind a gate or a hold: one job at a time, doubled by each round of successes, halved only by failures that say that the other side cannot be reached or cannot bear more
func TestRamp_Doubles(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		var n levels
		r.run("k", n.take(work(time.Second)))
		r.start()
		r.enqueue("k", 200)
		pass(3*time.Second + time.Second/2)
		c.close()
		pass(time.Minute + time.Second)
		n.begin()
		c.open()
		pass(8*time.Second + time.Second/2)
		n.check(t, 1, 2, 4, 8, 16, 16, 16, 16)
	})
}

// fail returns a handler whose call number on since begin ends as given.
func (n *levels) fail(on int, how handle) handle {
	return func(ctx context.Context, job *storage.Leased) error {
		defer n.add(-1)
		if n.add(1) == on {
			return how(ctx, job)
		}
		return work(time.Second)(ctx, job)
	}
}

// overdue is an error of a call that was out of time.
type overdue struct{ error }

func (overdue) Timeout() bool { return true }

// What says that the other side is not up to it halves the limit, once for all that
// were under way; other failures neither halve nor double it.
//
//errand:shows lanes that were closed for long
func TestRamp_Halves(t *testing.T) {
	after := func(err error) handle {
		return func(context.Context, *storage.Leased) error {
			time.Sleep(9 * time.Second / 10) // before the others, of which it may be any
			return err
		}
	}
	plain := errors.New("plain")
	halved, not := []int{1, 2, 4, 8, 4, 8, 16}, []int{1, 2, 4, 8, 16, 16}
	for name, c := range map[string]struct {
		how  handle
		want []int
	}{
		"unavailable":       {after(&engine.UnavailableError{Err: plain}), halved},
		"throttled":         {after(policy.Mark(plain, policy.Throttled)), halved},
		"timeout of a call": {after(overdue{plain}), halved},
		// The others have begun another job meanwhile.
		"timeout":   {func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return plain }, []int{1, 2, 4, 8, 8, 4, 8, 16}},
		"plain":     {after(plain), not},
		"permanent": {after(&engine.PermanentError{Err: plain}), not},
		"panic":     {func(context.Context, *storage.Leased) error { time.Sleep(9 * time.Second / 10); panic("oops") }, not},
		"cancelled": {after(&engine.CancelError{}), not},
		"snoozed":   {after(&engine.SnoozeError{For: time.Hour}), not},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Concurrency = 16
				r.cfg.Timeout = time.Second + time.Second/5
				var n levels
				r.handle("k", n.fail(8, c.how))
				r.start()
				r.hold(pause)
				r.enqueue("k", 200)
				pass(2 * time.Minute)
				n.begin()
				r.release(pause)
				pass(time.Duration(len(c.want))*time.Second - time.Second/2)
				n.check(t, c.want...)
			})
		})
	}
}

// After several failures in a row one job at a time goes on.
//
//errand:shows lanes that were closed for long
func TestRamp_HalvesToOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 16
		var n levels
		down := time.Time{}
		r.handle("k", n.take(func(ctx context.Context, job *storage.Leased) error {
			time.Sleep(time.Second)
			if s := time.Since(down); s > 3*time.Second && s < 10*time.Second {
				return overdue{errors.New("slow")}
			}
			return nil
		}))
		r.start()
		r.hold(pause)
		r.enqueue("k", 200)
		pass(2 * time.Minute)
		n.begin()
		down = time.Now()
		r.release(pause)
		pass(13*time.Second + time.Second/2)
		n.check(t, 1, 2, 4, 8, 4, 2, 1, 1, 1, 1, 2, 4, 8)
	})
}

// A lane that was closed for up to a minute, as well as one that was not closed, is
// not slowed down, and costs no more.
//
//errand:shows lanes that were closed for long
func TestRamp_ShortClosure(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		var n levels
		r.run("k", n.take(work(time.Second)))
		r.enqueue("k", 500)
		n.begin()
		r.start()
		pass(3*time.Second + time.Second/2)
		n.check(t, 16, 16, 16)
		for range 3 {
			c.close()
			pass(50 * time.Second)
			n.begin()
			c.open()
			pass(3*time.Second + time.Second/2)
			n.check(t, 16, 16, 16)
		}
	})
}

// A hold that is over by itself counts too: a minute is not long, more is.
//
//errand:shows lanes that were closed for long
func TestRamp_HoldIsOver(t *testing.T) {
	for d, want := range map[time.Duration][]int{
		time.Minute:                    {16, 16, 16},
		time.Minute + time.Microsecond: {1, 2, 4},
		5 * time.Hour:                  {1, 2, 4, 8, 16},
	} {
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.store.alone = true
				r.cfg.Concurrency = 16
				var n levels
				r.handle("k", n.take(work(time.Second)))
				r.start()
				r.hold(storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "a", For: d})
				r.enqueue("k", 200)
				calls := r.store.count()
				pass(d - time.Nanosecond)
				if asked := len(r.store.of("exchange", calls)); asked > 1 {
					t.Errorf("%d exchanges while the lane was held", asked)
				}
				n.begin()
				pass(time.Duration(len(want))*time.Second - time.Second/2)
				n.check(t, want...)
			})
		})
	}
}

// A lane that closes again for long while it opens gently begins anew; one that
// closes for a moment goes on as it was.
func TestRamp_ClosesAgain(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		var n levels
		r.run("k", n.take(work(time.Second)))
		r.start()
		r.enqueue("k", 500)
		pass(time.Second)
		for range 2 {
			c.close()
			pass(2 * time.Minute)
			n.begin()
			c.open()
			pass(3*time.Second + time.Second/2)
			n.check(t, 1, 2, 4, 8)
			c.close()
			pass(10 * time.Second)
			n.begin()
			c.open()
			pass(time.Second + time.Second/2)
			n.check(t, 16) // 8 of the last round ended well
		}
	})
}

// Closures that overlap are one closure.
func TestRamp_OverlappingClosures(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 16
		var n levels
		r.handle("k", n.take(work(time.Second)))
		g := r.closer("gate")
		r.start()
		g.close()
		r.enqueue("k", 2000)
		pass(40 * time.Second)
		r.hold(storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "a", For: 40 * time.Second})
		pass(20 * time.Second)
		g.open()
		pass(20*time.Second - 1)
		n.begin()
		pass(2*time.Second + time.Second/2)
		n.check(t, 1, 2, 4)
		pass(time.Minute)
		// These do not overlap.
		g.close()
		pass(40 * time.Second)
		n.begin()
		g.open()
		pass(time.Second / 2)
		n.check(t, 16)
		r.hold(storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "a", For: 40 * time.Second})
		pass(40*time.Second - 1)
		n.begin()
		pass(time.Second / 2)
		n.check(t, 16)
	})
}

// What is held as the worker starts is held since the hold began.
func TestRamp_HeldBeforeTheStart(t *testing.T) {
	for before, want := range map[time.Duration][]int{
		time.Hour: {1, 2, 4}, 20 * time.Second: {16, 16, 16},
	} {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Concurrency = 16
			var n levels
			r.handle("k", n.take(work(time.Second)))
			r.hold(pause)
			r.enqueue("k", 200)
			pass(before)
			r.start()
			pass(20 * time.Second)
			n.begin()
			r.release(pause)
			pass(2*time.Second + time.Second/2)
			n.check(t, want...)
		})
	}
}

// A job that runs on while its lane is closed does not take the place of the first.
func TestRamp_OldJobRuns(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		old := make(chan struct{})
		r.run("k", func(ctx context.Context, job *storage.Leased) error {
			if job.Key == 1 {
				return untilClosed(old)(ctx, job)
			}
			return work(time.Minute)(ctx, job)
		})
		r.start()
		r.enqueue("k", 1)
		pass(time.Second)
		c.close()
		pass(time.Second)
		r.enqueue("k", 100)
		pass(2 * time.Minute)
		c.open()
		pass(time.Second)
		if m := r.running(); m != 2 {
			t.Errorf("%d jobs run, want the old one and another", m)
		}
		close(old) // which counts for nothing
		pass(time.Second / 2)
		if m := r.running(); m != 1 {
			t.Errorf("%d jobs run, want 1", m)
		}
	})
}

// Others have all runners but one beside a lane that opens gently, though it has many long
// jobs, which come first in the order; and nothing is leased that cannot start.
//
//errand:shows lanes that were closed for long | | other lanes have the rest of the worker, nothing is leased that cannot start, a short closure changes nothing, and all jobs are run in the end
func TestRamp_LeavesOthersAlone(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		const most = 15 * 50 // short jobs in half a second, if no runner ever waited for the store
		var k, n gauges
		r.run("k", k.counted(work(time.Hour)))
		r.cfg.Queues = []string{"q", "p"}
		r.handle("other", n.counted(work(10*time.Millisecond)))
		r.cfg.Store = slowly(r.cfg.Store)
		r.start()
		c.close()
		add := func(n int, queue, kind string, priority int) {
			r.add(slices.Repeat([]storage.NewJob{{Queue: queue, Kind: kind, Priority: priority}}, n)...)
		}
		add(200, "q", "k", 50)
		pass(2 * time.Minute)
		c.open()
		pass(time.Second)
		add(most, "q", "other", 0)
		add(most, "p", "other", 0)
		calls := r.store.count()
		pass(time.Second / 2)
		// Which of the things happens first that happen at one moment is chance: it makes out
		// some hundredths.
		if short := n.begun(); short < most*3/4 {
			t.Errorf("%d others were run in half a second, want %d", short, most*3/4)
		}
		pass(10 * time.Second)
		add(3, "q", "k", 50)
		pass(time.Second)
		if m := n.begun(); m != 2*most || k.begun() != 1 {
			t.Errorf("%d of %d others were run, and %d of the long jobs: want 1", m, 2*most, k.begun())
		}
		for _, x := range r.store.of("exchange", calls) {
			for _, f := range x.x.Finish {
				if f.Outcome == storage.OutcomeReturned {
					t.Fatal("a job was given back")
				}
			}
		}
		calls = r.store.count()
		pass(10 * time.Minute)
		for _, x := range r.store.since(calls) {
			if x.op == "exchange" && len(x.x.Extend) == 0 {
				t.Fatalf("exchange %+v while nothing can start", x.x)
			}
		}
	})
}

// slowly has a store take a while for its exchanges.
func slowly(s storage.Store) storage.Store {
	if h, ok := s.(*handing); ok {
		return slowHanding{h}
	}
	return slow{s.(*spy), 5 * time.Millisecond}
}

type slowHanding struct{ *handing }

func (s slowHanding) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	time.Sleep(5 * time.Millisecond)
	return s.handing.Exchange(ctx, now, x)
}

// A ramp costs an exchange for each job at most, and is forgotten at the limit of its
// lane: then the sources are as before.
func TestRamp_IsForgotten(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		var n levels
		r.cfg.Concurrency = 5
		r.run("k", n.take(work(time.Second)))
		r.handle("other", work(time.Second))
		r.start()
		c.close()
		r.enqueue("k", 40)
		r.enqueue("other", 1)
		pass(2 * time.Minute)
		calls := r.store.count()
		wants := func(n int) int {
			all := r.store.of("exchange", n)
			return len(all[len(all)-1].x.Wants)
		}
		n.begin()
		c.open()
		pass(20 * time.Second)
		n.check(t, 1, 2, 4, 5, 5, 5, 5, 5, 5)
		exchanges := 0
		for _, x := range r.store.of("exchange", calls) {
			if x.at.After(n.from) { // until the holds have been read again some jobs go back
				exchanges++
			}
		}
		if exchanges > 44 { // and what a division asks
			t.Errorf("%d exchanges for 40 jobs", exchanges)
		}
		r.enqueue("other", 20) // whose ramp begins with the hold of the queue
		pass(time.Minute)
		r.elsewhere("other")
		pass(time.Minute)
		usual := 1
		if c.gate {
			usual = 2
		}
		if n := wants(0); n != usual {
			t.Errorf("the worker has %d sources, want %d", n, usual)
		}
		calls = r.store.count()
		pass(20 * time.Minute)
		if n := r.store.count() - calls; n > 0 {
			t.Errorf("%d calls of the store while there is nothing: %v", n, r.store.since(calls)[0])
		}
	})
}

// The first starts of a fleet are spread over the jitter, and each goes on gently.
//
//errand:shows a fleet that comes back | | with `OpenJitter` the first starts of 50 workers are spread over it
func TestRamp_Jitter(t *testing.T) {
	const fleet, jitter = 50, 10 * time.Minute
	for _, name := range []string{"gate", "queue", "kind", "lane"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, open := make([]*levels, fleet), make([]func(), fleet)
				for i := range all {
					r, n := newRig(t), &levels{}
					r.store.alone = true
					r.cfg.Concurrency = 16
					r.cfg.Rand = rand.New(rand.NewPCG(uint64(i), 1)).Float64
					if i%2 == 0 {
						r.handOver()
					}
					if i%5 < 3 {
						r.cfg.Store = slowly(r.cfg.Store) // slower than the holds are read
					}
					h := engine.Handler{Run: n.take(work(time.Second))}
					if i%3 == 0 {
						h.OpenJitter = jitter
					} else {
						r.cfg.Settings = map[string]engine.QueueSettings{"q": {OpenJitter: jitter}}
					}
					r.cfg.Handlers["k"] = h
					c := r.closer(name)
					c.close()
					r.enqueue("k", 100)
					r.start()
					all[i], open[i] = n, c.open
				}
				pass(time.Hour)
				for i := range all {
					all[i].begin()
					open[i]()
				}
				pass(jitter + 10*time.Second)
				var tenths [10]int
				for _, n := range all {
					first := n.first
					if n.total == 0 || first > jitter {
						t.Fatalf("the first of %d started after %v", n.total, first)
					}
					tenths[min(int(first*10/jitter), 9)]++
					n.mu.Lock()
					at := int(first / time.Second)
					if n.most[at] > 2 || n.most[at+1] > 4 {
						t.Errorf("at a time ran %d, then %d", n.most[at], n.most[at+1])
					}
					n.mu.Unlock()
				}
				for i, n := range tenths {
					if n == 0 || n > fleet/4 {
						t.Errorf("%d of %d started in tenth %d of the jitter", n, fleet, i)
					}
				}
			})
		})
	}
}

// The jitter is for the first start after a long closure alone.
//
//errand:shows a fleet that comes back
func TestRamp_JitterOnlyAfterAClosure(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		h := r.cfg.Handlers["k"]
		h.OpenJitter = time.Hour
		r.cfg.Handlers["k"] = h
		var n levels
		r.run("k", n.take(work(time.Second)))
		n.begin()
		r.start()
		r.enqueue("k", 16)
		pass(time.Second / 2)
		n.check(t, 16)
		pass(time.Second)
		c.close()
		r.enqueue("k", 16)
		pass(30 * time.Second)
		n.begin()
		c.open()
		pass(time.Second / 2)
		n.check(t, 16)
	})
}

// A lane of which one job runs at a time has no ramp, but waits for the jitter.
func TestRamp_OneAtATime(t *testing.T) {
	everyWay(t, func(t *testing.T, r *rig, c closer) {
		r.cfg.Rand = func() float64 { return 0.5 }
		var n levels
		r.run("k", n.take(work(time.Second)))
		r.limit("k", 1)
		h := r.cfg.Handlers["k"]
		h.OpenJitter = time.Hour
		r.cfg.Handlers["k"] = h
		r.start()
		c.close()
		r.enqueue("k", 10)
		pass(2 * time.Minute)
		n.begin()
		c.open()
		pass(time.Hour)
		if n.first != 30*time.Minute || n.total != 10 {
			t.Errorf("the first of %d jobs started after %v", n.total, n.first)
		}
	})
}

// A lane that was held since the other side was away opens gently too, though probes
// of it have run, as soon as one of them has reached the other side.
//
//errand:shows lanes that were closed for long
func TestRamp_AfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 16
		var n levels
		var reached sync.Once
		back := time.Now().Add(10 * time.Minute)
		r.handle("k", func(context.Context, *storage.Leased) error {
			if time.Now().Before(back) {
				return &engine.UnavailableError{Err: errors.New("away")}
			}
			reached.Do(n.begin)
			n.add(1)
			defer n.add(-1)
			time.Sleep(time.Second)
			return nil
		})
		r.start()
		r.enqueue("k", 200)
		pass(time.Hour)
		n.check(t, 1, 1, 2, 4, 8, 16) // the first is the probe
	})
}

// With too many lanes the rest opens at once.
func TestRamp_ManyLanes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency, r.cfg.Queues = 16, nil
		var jobs []storage.NewJob
		for i := range 300 {
			queue := fmt.Sprintf("q%d", i)
			r.cfg.Queues = append(r.cfg.Queues, queue)
			jobs = append(jobs, slices.Repeat([]storage.NewJob{{Queue: queue, Kind: "k"}}, 3)...)
		}
		var n gauges
		r.handle("k", n.counted(work(10*time.Millisecond)))
		h := storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "night"}
		r.hold(h)
		r.add(jobs...)
		r.start()
		pass(2 * time.Minute)
		calls := r.store.count()
		r.release(h)
		pass(time.Minute)
		if n.begun() != len(jobs) {
			t.Errorf("%d of %d jobs were run", n.begun(), len(jobs))
		}
		if x := r.store.of("exchange", calls)[0].x; len(x.Wants) != 257 {
			t.Errorf("the worker asks for %d sources, want 256 and one for the others", len(x.Wants))
		}
	})
}

// Whatever closes when, all jobs are run in the end, and no bound is exceeded.
//
//errand:shows lanes that were closed for long
func TestRamp_NothingIsLeft(t *testing.T) {
	for seed := range uint64(8) {
		bubble(t, func(t *testing.T, r *rig) {
			random := rand.New(rand.NewPCG(seed, 2))
			if random.IntN(2) == 0 {
				r.handOver()
			}
			r.cfg.Rand = rand.New(rand.NewPCG(seed, 3)).Float64
			r.cfg.Concurrency, r.cfg.Queues = 8, []string{"q", "p"}
			r.cfg.Settings = map[string]engine.QueueSettings{"p": {Concurrency: 6, OpenJitter: time.Minute}}
			var g gauges
			gates := map[string]*latch{"a": {}, "b": {}}
			for _, kind := range []string{"a", "b", "c"} {
				r.handle(kind, g.counted(work(time.Duration(100+random.IntN(900))*time.Millisecond)))
				if gates[kind] != nil {
					r.gate(kind, gates[kind])
				}
			}
			r.limit("a", 3)
			r.start()
			jobs := 0
			for range 60 {
				switch random.IntN(5) {
				case 0:
					lane := [...]storage.Lane{{Queue: "q"}, {Queue: "p"}, {Kind: "a"}, {Kind: "c"}, {Queue: "p", Kind: "b"}}[random.IntN(5)]
					r.hold(storage.Hold{Lane: lane, Reason: "a", For: time.Duration(1+random.IntN(300)) * time.Second})
				case 1:
					gates[[]string{"a", "b"}[random.IntN(2)]].close([]string{"", "no"}[random.IntN(2)])
				default:
					n := random.IntN(10)
					jobs += n
					r.add(slicesOf(n, func() storage.NewJob {
						return storage.NewJob{Queue: r.cfg.Queues[random.IntN(2)], Kind: string(rune('a' + random.IntN(3)))}
					})...)
				}
				pass(time.Duration(random.IntN(40_000)) * time.Millisecond)
			}
			for _, g := range gates {
				g.close("")
			}
			pass(time.Hour)
			if g.begun() != jobs {
				t.Errorf("seed %d: %d of %d jobs were run", seed, g.begun(), jobs)
			}
			for name, want := range map[string]int{"a": 3, "p": 6} {
				if _, most := g.running(name); most > want {
					t.Errorf("seed %d: %d of %s ran at a time, want %d", seed, most, name, want)
				}
			}
		})
	}
}

func slicesOf[T any](n int, f func() T) (all []T) {
	for range n {
		all = append(all, f())
	}
	return all
}
