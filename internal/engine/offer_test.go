package engine_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// handing is a slowStore that hands jobs over, and notes for how many it is
// told that there is capacity.
type handing struct {
	*slowStore
	passing func() // before jobs are passed on; nil: nothing

	mu         sync.Mutex
	capacities map[*handingOffer]int
	handed     int
	saying     func(o storage.Offer, n int)
}

type handingOffer struct {
	storage.Offer
	of     *handing
	closed bool // guarded by of.mu
}

func (s *handing) Offer(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
	o := &handingOffer{of: s}
	o.Offer = s.Store.(storage.Handoff).Offer(want, lease, func(jobs []storage.Leased, began time.Time) {
		if s.passing != nil {
			s.passing()
		}
		s.mu.Lock()
		s.handed += len(jobs)
		s.mu.Unlock()
		receive(jobs, began)
	})
	o.Capacity(0)
	return o
}

func (o *handingOffer) Capacity(n int) {
	o.of.mu.Lock()
	saying := o.of.saying
	o.of.mu.Unlock()
	if saying != nil {
		saying(o.Offer, n)
	}
	o.Offer.Capacity(n)
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if !o.closed {
		o.of.capacities[o] = n
	}
}

// onCapacity has f called whenever the store is about to be told a capacity.
func (s *handing) onCapacity(f func(o storage.Offer, n int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saying = f
}

// dawdle lets others go first.
func dawdle() {
	for range 1000 {
		runtime.Gosched()
	}
}

func (o *handingOffer) Close() {
	o.Offer.Close()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.closed = true
	delete(o.of.capacities, o)
}

// capacity returns the capacity of all offers.
func (s *handing) capacity() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.capacities {
		n += c
	}
	return n
}

// open is how many offers there are.
func (s *handing) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.capacities)
}

// count is how many jobs were handed over.
func (s *handing) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handed
}

// handOver has the store of r hand over what r enqueues.
func (r *rig) handOver() *handing {
	s := &handing{slowStore: &slowStore{spy: r.store}, capacities: map[*handingOffer]int{}}
	r.cfg.Store, r.app = s, r.store.Store
	return s
}

// elsewhere enqueues a job in another process.
func (r *rig) elsewhere(kind string) storage.ID {
	r.t.Helper()
	app := r.app
	defer func() { r.app = app }()
	r.app = r.db.Open()
	return r.enqueue(kind, 1)[0]
}

// states counts jobs by state.
func (r *rig) states(ids ...storage.ID) map[storage.State]int {
	n := map[storage.State]int{}
	for _, id := range ids {
		n[r.job(id).State]++
	}
	return n
}

func TestOffer_StartsWithoutAnExchange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		n, before := 0, -1
		r.handle("k", func(context.Context, *storage.Leased) error {
			before = len(r.store.of("exchange", n))
			return nil
		})
		r.start()
		for i := range 3 {
			n = r.store.count()
			id := r.enqueue("k", 1)[0]
			if before != 0 || s.count() != i+1 {
				t.Fatalf("job %d started after %d exchanges; %d were handed over", i, before, s.count())
			}
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
			pass(time.Second)
		}
		if got := r.store.of("exchange", n); len(got) != 1 || len(got[0].x.Finish) != 1 {
			t.Errorf("exchanges %+v, want the one that finishes the job", got)
		}
	})
}

func TestOffer_OfFire(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		rec := r.record()
		r.declare(storage.Schedule{Name: "s"})
		r.start()
		pass(10*time.Minute + time.Second)
		if n := len(rec.take("s")); n != 10 || s.count() != 10 {
			t.Errorf("%d were started, and %d handed over, want 10", n, s.count())
		}
	})
}

func TestOffer_NotWhileAnExchangeLeases(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		var runs atomic.Int64
		r.handle("k", func(context.Context, *storage.Leased) error { runs.Add(1); return nil })
		r.start()
		goOn := s.keepBack()
		r.elsewhere("k") // is found by an exchange
		if n := len(r.store.of("exchange", 0)); n == 0 || s.capacity() != 0 {
			t.Fatalf("%d exchanges, and capacity for %d while one is in flight", n, s.capacity())
		}
		id := r.enqueue("k", 1)[0]
		r.wantState(id, storage.Ready, storage.Counters{})
		goOn()
		synctest.Wait()
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		if n := runs.Load(); n != 2 || s.count() != 0 || s.capacity() != r.cfg.Concurrency {
			t.Errorf("%d runs, %d handed over, capacity for %d", n, s.count(), s.capacity())
		}
	})
}

// capacityAtExchange notes the largest capacity when an exchange comes that
// leases.
type capacityAtExchange struct {
	*handing
	most int
}

func (s *capacityAtExchange) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if x.Wanted() > 0 {
		s.most = max(s.most, s.capacity())
	}
	return s.handing.Exchange(ctx, now, x)
}

func TestOffer_RoomEndsBeforeTheExchange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &capacityAtExchange{handing: r.handOver()}
		r.cfg.Store = s
		s.onCapacity(func(storage.Offer, int) { dawdle() }) // an exchange could overtake the word
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		for range 20 {
			r.elsewhere("k")
		}
		if s.most != 0 {
			t.Errorf("an exchange asked for jobs while there was capacity for %d elsewhere", s.most)
		}
	})
}

func TestOffer_NotBeyondTheFreeRunners(t *testing.T) {
	for _, c := range []struct {
		name   string
		offers int
		change func(r *rig)
	}{
		{"one source", 1, func(*rig) {}},
		{"two sources and one under a throttle", 2, func(r *rig) {
			r.cfg.Queues = []string{"q", "other"}
			queue := engine.QueueSettings{Policy: new(r.cfg.Policy)}
			queue.Policy.DisableSubscriptionOverrides = true
			r.cfg.Settings = map[string]engine.QueueSettings{"q": queue} // where no kind is throttled
			h := r.cfg.Handlers["throttled"]
			h.Policy.Throttle, h.Throttle = &policy.Throttle{MaxReceivesPerSecond: 1000}, engine.NewThrottle(1000)
			r.cfg.Handlers["throttled"] = h
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.handOver()
				goOn := make(chan struct{})
				r.handle("k", untilClosed(goOn))
				r.handle("throttled", untilClosed(goOn))
				c.change(r)
				r.start()
				if s.open() != c.offers || s.capacity() != 4 {
					t.Fatalf("%d offers with capacity for %d, want %d with capacity for 4", s.open(), s.capacity(), c.offers)
				}
				ids := r.enqueue("k", 1)
				if s.capacity() != 3 {
					t.Errorf("capacity for %d beside one, want 3", s.capacity())
				}
				var jobs []storage.NewJob
				for i := range 10 {
					jobs = append(jobs, storage.NewJob{Queue: r.cfg.Queues[i%len(r.cfg.Queues)], Kind: "k"})
				}
				ids = append(ids, r.add(jobs...)...)
				for range 2 {
					if n := r.states(ids...); n[storage.Running] != 4 || n[storage.Ready] != 7 || s.count() != 4 || s.capacity() != 0 {
						t.Errorf("states %v with %d handed over and capacity for %d, want 4 running", n, s.count(), s.capacity())
					}
					pass(time.Minute)
				}
				close(goOn)
				synctest.Wait()
				if n := r.states(ids...); n[storage.Done] != 11 || s.capacity() != 4 {
					t.Errorf("in the end: states %v, and capacity for %d", n, s.capacity())
				}
			})
		})
	}
}

// Jobs that come while the loop is busy, or just says how much capacity there is,
// are counted.
func TestOffer_CountsWhatComesMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name                       string
		busy, before, while, after int // how many come when, one after the other
	}{
		{"all while it is busy", 5, 0, 0, 0}, {"one by one while it is busy", 1, 4, 0, 0},
		{"just before it says", 1, 0, 0, 4}, {"just when it says", 0, 0, 1, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.handOver()
				goOn, passing := make(chan struct{}), make(chan struct{}, 9)
				s.passing = func() { passing <- struct{}{} }
				r.handle("k", untilClosed(goOn))
				// add has jobs come, and lets them get as far as they do.
				add := func(n int) {
					if n == 0 {
						return
					}
					go func() {
						jobs := slices.Repeat([]storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}, n)
						if _, err := r.app.Enqueue(t.Context(), time.Now(), jobs); err != nil {
							t.Error(err)
						}
						passing <- struct{}{} // or there is no capacity
					}()
					<-passing
					dawdle()
				}
				var busy, saying atomic.Bool
				r.cfg.Clock = engine.Wall(func() time.Time { // which the loop looks at
					if busy.CompareAndSwap(true, false) {
						add(c.busy)
						add(c.before)
						saying.Store(c.while+c.after > 0)
					}
					return time.Now()
				})
				r.start()
				s.onCapacity(func(o storage.Offer, n int) {
					if saying.CompareAndSwap(true, false) {
						add(c.while)
						o.Capacity(n)
						add(c.after)
					}
				})
				busy.Store(true)
				pass(time.Minute)
				// One that came late may have been leased by an exchange instead.
				if n := s.count(); busy.Load() || saying.Load() || n < 1 || n > 4 || r.running() != 4 {
					t.Errorf("%d were handed over, and %d run, want 4", n, r.running())
				}
				close(goOn)
			})
		})
	}
}

// An exchange asks for nothing that has no runner, whatever comes before it.
func TestOffer_ExchangeCountsWhatCame(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		first, goOn := make(chan struct{}), make(chan struct{})
		r.handle("first", untilClosed(first))
		r.handle("k", untilClosed(goOn))
		var busy atomic.Bool
		came := make(chan struct{})
		r.cfg.Clock = engine.Wall(func() time.Time { // which the loop looks at for each exchange
			if busy.CompareAndSwap(true, false) {
				jobs := slices.Repeat([]storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}, 9)
				if _, err := r.app.Enqueue(t.Context(), time.Now(), jobs); err != nil {
					t.Error(err)
				}
				close(came)
			}
			return time.Now()
		})
		r.store.alone = true
		r.start()
		r.enqueue("first", 1)
		busy.Store(true)
		<-came // with a heartbeat
		synctest.Wait()
		if n := r.running(); n != 4 || s.count() != 4 {
			t.Errorf("%d jobs are leased for 4 runners; %d were handed over", n, s.count())
		}
		close(first)
		synctest.Wait()
		if n := r.running(); n != 4 || s.count() != 4 {
			t.Errorf("then %d jobs are leased for 4 runners; %d were handed over", n, s.count())
		}
		close(goOn)
	})
}

func TestOffer_AllRunnersTakenBeforeTheExchange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		enqueue := func(s storage.Store) {
			if _, err := s.Enqueue(t.Context(), time.Now(), []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}); err != nil {
				t.Error(err)
			}
		}
		var asked func() // once, just before an exchange is sent
		r.cfg.Concurrency, r.cfg.Clock = 1, engine.Wall(func() time.Time {
			if f := asked; f != nil {
				asked = nil
				f()
			}
			return time.Now()
		})
		r.handle("k", work(time.Second))
		r.start()
		asked = func() { enqueue(r.app) }
		enqueue(r.db.Open())
		pass(time.Minute)
		for _, c := range s.of("exchange", 0) {
			if len(c.x.Extend)+len(c.x.Finish)+c.x.Wanted() == 0 {
				t.Error("an exchange asked for nothing")
			}
		}
		if s.count() != 1 || asked != nil {
			t.Errorf("%d jobs were handed over", s.count())
		}
	})
}
