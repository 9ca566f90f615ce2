package engine_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// hurrying notes what the engine makes ready.
type hurrying struct {
	*spy
	mu    sync.Mutex
	steps []storage.Selection
	n     []int
	err   error
}

func (s *hurrying) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return storage.Step{}, s.err
	}
	step, err := s.Store.RunNow(ctx, now, sel, which)
	s.steps, s.n = append(s.steps, sel), append(s.n, step.N)
	return step, err
}

// took returns how many jobs each step made ready since the last call.
func (s *hurrying) took() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.n, s.steps = nil, nil }()
	return s.n
}

// link is the other side: what attempts end with.
type link struct {
	mu  sync.Mutex
	err func(job *storage.Leased) error // nil: they end well
	// takes is how long an attempt takes; zero: 10 ms.
	takes time.Duration
}

func (l *link) set(err error) { l.each(func(*storage.Leased) error { return err }) }

func (l *link) each(err func(*storage.Leased) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *link) run(_ context.Context, job *storage.Leased) error {
	l.mu.Lock()
	takes := cmp.Or(l.takes, 10*time.Millisecond)
	l.mu.Unlock()
	time.Sleep(takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return nil
	}
	return l.err(job)
}

var errRefused = errors.New("refused")

// offline runs a test with n jobs of a kind behind a gate. All have failed, wait for
// an hour, and the gate has been closed for ten minutes.
func offline(t *testing.T, n int, test func(t *testing.T, r *rig, s *hurrying, l *link, g *latch, ids []storage.ID)) {
	t.Helper()
	bubble(t, func(t *testing.T, r *rig) {
		s := &hurrying{spy: r.store}
		s.alone = true
		r.cfg.Store, r.cfg.Policy = s, hourly.Delivery()
		l, g := &link{}, &latch{}
		l.set(errRefused)
		r.handle("k", l.run)
		r.gate("k", g)
		ids := r.enqueue("k", n)
		r.start()
		pass(10 * time.Second)
		r.shut(g, n)
		pass(10 * time.Minute)
		l.set(nil)
		test(t, r, s, l, g, ids)
	})
}

// shut closes the gate of kind k, and has the engine ask the gate. It checks that n
// jobs wait for a retry.
func (r *rig) shut(g *latch, n int) {
	r.t.Helper()
	g.close("no carrier")
	r.enqueue("k", 1)
	pass(time.Second)
	counts, err := r.app.Counts(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range counts {
		if c.State == storage.Scheduled && c.N != int64(n) {
			r.t.Fatalf("%d jobs wait for a retry, want %d", c.N, n)
		}
	}
}

// What failed before the gate closed runs soon after it opens, in steps that grow up
// to those of the store, which are of 100 jobs here.
//
//errand:shows closed gates | | jobs that failed before a gate closed run within seconds after it opens, in steps that grow as attempts end well; a link that fails again costs no more than the first step
func TestKick(t *testing.T) {
	offline(t, 1000, func(t *testing.T, r *rig, s *hurrying, l *link, g *latch, ids []storage.ID) {
		if n := s.took(); len(n) > 0 {
			t.Errorf("made %v ready behind a closed gate", n)
		}
		g.close("")
		pass(10 * time.Second)
		if n := r.states(ids...); n[storage.Done] != 1000 {
			t.Errorf("10 s after the gate has opened: %v", n)
		}
		if n, want := s.took(), []int{8, 16, 32, 64, 100, 100, 100, 100, 100, 100, 100, 100, 80}; !slices.Equal(n, want) {
			t.Errorf("steps of %v, want %v", n, want)
		}
		r.wantState(ids[0], storage.Done, storage.Counters{Attempt: 2, Retry: 1})
		if lines := r.logs.with("were made ready"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		asked := g.count()
		for range 3 {
			g.close("") // as one does that wants to know whether somebody waits
			pass(time.Minute)
		}
		if n := g.count() - asked; n > 0 {
			t.Errorf("the gate was asked %d times after all", n)
		}
	})
}

// The gate opens, and the link still fails: two jobs for each runner have tried that,
// and then one each time.
//
//errand:shows closed gates
func TestKick_Flapping(t *testing.T) {
	for _, err := range []error{errRefused, errUnreached} {
		offline(t, 500, func(t *testing.T, r *rig, s *hurrying, l *link, g *latch, ids []storage.ID) {
			l.set(err)
			for _, c := range []struct {
				want   []int
				closed time.Duration // after that
			}{{[]int{8}, 20 * time.Second}, {[]int{1}, 20 * time.Second}, {[]int{1}, 10 * time.Second}, {nil, 20 * time.Second}} {
				g.close("")
				pass(time.Second)
				if n := s.took(); !slices.Equal(n, c.want) {
					t.Errorf("steps of %v with a link that is down, want %v", n, c.want)
				}
				g.close("no carrier")
				r.enqueue("k", 1)
				pass(c.closed)
			}
			l.set(nil)
			g.close("")
			pass(30 * time.Second)
			if n := r.states(ids...); n[storage.Done] != 500 {
				t.Errorf("30 s after the link is back: %v", n)
			}
		})
	}
}

// A step is followed by the next one although some jobs fail on their own account,
// or cannot reach a host of theirs; but not if most of them cannot.
//
//errand:shows closed gates
func TestKick_SomeFail(t *testing.T) {
	for _, c := range []struct {
		err   error
		fails func(i int) bool
		done  bool
	}{
		{errRefused, func(i int) bool { return i%3 > 0 }, true},
		{errUnreached, func(i int) bool { return i%3 == 0 }, true},
		{errUnreached, func(i int) bool { return i%3 > 0 }, false},
	} {
		offline(t, 200, func(t *testing.T, r *rig, s *hurrying, l *link, g *latch, ids []storage.ID) {
			l.each(func(job *storage.Leased) error {
				if c.fails(slices.Index(ids, job.ID)) {
					return c.err
				}
				return nil
			})
			g.close("")
			pass(5 * time.Second)
			n := 0
			for _, x := range s.took() {
				n += x
			}
			if c.done != (n == 200) {
				t.Errorf("%d of 200 were made ready while some ended with %v", n, c.err)
			}
		})
	}
}

// A kick rests while the gate is closed, and goes on.
func TestKick_GateCloses(t *testing.T) {
	offline(t, 200, func(t *testing.T, r *rig, s *hurrying, l *link, g *latch, ids []storage.ID) {
		l.mu.Lock()
		l.takes = 50 * time.Millisecond
		l.mu.Unlock()
		g.close("")
		pass(80 * time.Millisecond) // the second half of the first step runs
		g.close("no carrier")
		pass(5 * time.Second)
		if n := s.took(); !slices.Equal(n, []int{8}) {
			t.Errorf("steps of %v, want one of 8", n)
		}
		g.close("")
		pass(5 * time.Second)
		if n := r.states(ids...); n[storage.Done] != 200 {
			t.Errorf("5 s after the gate is open for good: %v", n)
		}
	})
}

// Only what waits since it failed is kicked: not what its handler asked for.
//
//errand:shows closed gates
func TestKick_LeavesChosenDelays(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = hourly.Delivery()
		g := &latch{}
		errs := []error{
			errRefused, errUnreached, &engine.SnoozeError{For: time.Hour}, &engine.RetryAfterError{After: time.Hour, Err: errRefused},
		}
		var ids []storage.ID
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			if i := slices.Index(ids, job.ID); i >= 0 && job.Attempt == 1 {
				return errs[i]
			}
			return nil
		})
		r.gate("k", g)
		ids = r.enqueue("k", 4)
		first := r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: r.now().Add(time.Hour)})[0]
		r.start()
		pass(500 * time.Millisecond)
		r.shut(g, 5)
		pass(20 * time.Second)
		g.close("")
		pass(time.Second)
		for i, want := range []storage.State{storage.Done, storage.Done, storage.Scheduled, storage.Scheduled} {
			if got := r.job(ids[i]).State; got != want {
				t.Errorf("the job that ended with %v is %s, want %s", errs[i], got, want)
			}
		}
		r.wantState(first, storage.Scheduled, storage.Counters{})
	})
}

// A worker that starts behind a closed gate knows of no failure, and looks. One that
// starts with the gate open leaves due times as they are.
//
//errand:shows closed gates
func TestKick_AtTheStart(t *testing.T) {
	for _, c := range []struct {
		closed time.Duration
		kicked bool
	}{{0, false}, {10 * time.Second, false}, {20 * time.Second, true}} {
		offline(t, 20, func(t *testing.T, r *rig, _ *hurrying, l *link, _ *latch, ids []storage.ID) {
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			next, g := r.another(), &latch{}
			next.cfg.Policy = hourly.Delivery()
			next.handle("k", l.run)
			next.gate("k", g)
			if c.closed > 0 {
				g.close("no carrier")
			}
			next.start()
			pass(c.closed)
			g.close("")
			pass(time.Second)
			if n := next.states(ids...); (n[storage.Done] == 20) != c.kicked || !c.kicked && n[storage.Scheduled] != 20 {
				t.Errorf("a worker that has started with the gate closed for %v leaves %v", c.closed, n)
			}
		})
	}
}

// The gate of a queue is that of all its kinds, and the gate of a kind of all its
// queues. A lane of both waits for both.
func TestKick_Lanes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ofQueue, ofKind, l := &latch{}, &latch{}, &link{}
		r.cfg.Policy = hourly.Delivery()
		r.cfg.Queues = []string{"q", "p", "nokick"}
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {Gate: ofQueue}, "nokick": {NoKick: true, Gate: ofQueue}}
		r.handle("a", l.run)
		r.handle("b", l.run)
		r.gate("a", ofKind)
		l.set(errRefused)
		ids := map[string]storage.ID{}
		add := func(queue, kind string) storage.ID { return r.add(storage.NewJob{Queue: queue, Kind: kind})[0] }
		for _, queue := range r.cfg.Queues {
			for _, kind := range []string{"a", "b"} {
				ids[queue+" "+kind] = add(queue, kind)
			}
		}
		r.start()
		pass(time.Second)
		ofQueue.close("no")
		ofKind.close("no")
		add("q", "b")
		add("p", "a")
		pass(20 * time.Second)
		l.set(nil)
		check := func(done ...string) {
			t.Helper()
			pass(time.Second)
			for name, id := range ids {
				want := storage.Scheduled
				if slices.Contains(done, name) {
					want = storage.Done
				}
				if got := r.job(id).State; got != want {
					t.Errorf("%s is %s, want %s", name, got, want)
				}
			}
		}
		check()
		ofQueue.close("")
		check("q b")
		ofKind.close("")
		check("q b", "q a", "p a")
	})
}

// A closed gate is asked while a job behind it waits for a retry, but not if that
// would not be kicked, and not when none is left.
func TestKick_AsksTheGate(t *testing.T) {
	for _, noKick := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Policy = hourly.Delivery()
			r.handle("k", func(context.Context, *storage.Leased) error { return errRefused })
			id := r.enqueue("k", 1)[0]
			r.start()
			pass(time.Second)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			next, g := r.another(), &latch{closed: "no"}
			next.store.alone = true
			next.cfg.Settings, next.cfg.Policy = map[string]engine.QueueSettings{"q": {NoKick: noKick}}, hourly.Delivery()
			next.handle("k", func(context.Context, *storage.Leased) error { return errRefused })
			next.handle("other", work(time.Millisecond))
			next.gate("k", g)
			next.start()
			asked := func() int {
				pass(time.Second)
				was := g.count()
				for range 10 {
					pass(time.Minute)
					g.close("no") // as one does that has asked in vain
				}
				pass(time.Second)
				return g.count() - was
			}
			if n := asked(); noKick && n > 0 || !noKick && n != 10 {
				t.Errorf("the gate was asked %d times in 10 minutes, with NoKick %v", n, noKick)
			}
			if _, err := r.app.Cancel(t.Context(), r.now(), id, storage.Retention{}); err != nil {
				t.Fatal(err)
			}
			g.close("no")
			pass(time.Second)
			r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: r.now().Add(24 * time.Hour)})
			r.enqueue("other", 1)
			if n := asked(); n > 0 {
				t.Errorf("the gate was asked %d times for a job that has not run yet", n)
			}
			g.close("")
			next.enqueue("k", 1)
			pass(time.Second)
			g.close("no")
			last := next.enqueue("k", 1)[0] // for which the gate is asked
			if _, err := r.app.Cancel(t.Context(), r.now(), last, storage.Retention{}); err != nil {
				t.Fatal(err)
			}
			if n := asked(); noKick && n > 0 || !noKick && n != 10 {
				t.Errorf("the gate was asked %d times after a further failure, with NoKick %v", n, noKick)
			}
		})
	}
}

// A worker that starts behind a closed gate takes jobs that have not run yet for
// retries, until it has looked.
func TestKick_KnowsOnceItHasLooked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		g := &latch{closed: "no"}
		r.handle("k", work(time.Millisecond))
		r.gate("k", g)
		r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: r.now().Add(24 * time.Hour)})
		r.start()
		for _, want := range []int{10, 0} {
			pass(time.Second)
			was := g.count()
			for range 10 {
				pass(time.Minute)
				g.close("no")
			}
			pass(time.Second)
			if n := g.count() - was; n != want {
				t.Errorf("the gate was asked %d times, want %d", n, want)
			}
			g.close("")
			pass(time.Second)
			g.close("no")
			last := r.enqueue("k", 1)[0] // for which the gate is asked
			if _, err := r.app.Cancel(t.Context(), r.now(), last, storage.Retention{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A step that fails is made again.
func TestKick_StoreFails(t *testing.T) {
	offline(t, 30, func(t *testing.T, r *rig, s *hurrying, l *link, g *latch, ids []storage.ID) {
		s.mu.Lock()
		s.err = storage.ErrFull
		s.mu.Unlock()
		g.close("")
		pass(5 * time.Second)
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		pass(time.Minute)
		if n := r.states(ids...); n[storage.Done] != 30 {
			t.Errorf("after an error of the store: %v", n)
		}
	})
}
