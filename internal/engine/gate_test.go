package engine_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// latch is a gate that counts how often it is asked.
type latch struct {
	mu      sync.Mutex
	closed  string // the reason; empty: it is open
	changed chan struct{}
	asked   int
	panics  bool
	eager   bool // it returns channels that are closed already
}

func (g *latch) State() (open bool, reason string, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if g.panics {
		panic("out of order")
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	if g.eager {
		close(g.changed)
		defer func() { g.changed = nil }()
	}
	return g.closed == "", g.closed, g.changed
}

// close closes the gate, or opens it if there is no reason.
func (g *latch) close(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = reason
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func (g *latch) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// gate puts a gate before the jobs of a kind that has a handler.
func (r *rig) gate(kind string, g engine.Gate) {
	h := r.cfg.Handlers[kind]
	h.Gate = g
	r.cfg.Handlers[kind] = h
}

// Behind a closed gate nothing is leased, nothing is asked of the store, and the
// order stays.
//
//errand:shows closed gates | | nothing is leased behind a gate that is closed, and what has not started goes back unspent; a gate that panics is closed
func TestGate_Closed(t *testing.T) {
	for _, local := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.store.alone = true
			if local {
				r.handOver()
			}
			g := &latch{closed: "no carrier"}
			var order []storage.ID
			var at time.Time
			r.cfg.Concurrency = 1
			r.handle("upload", func(_ context.Context, job *storage.Leased) error {
				at = time.Now()
				order = append(order, job.ID)
				return nil
			})
			r.handle("other", work(time.Millisecond))
			r.gate("upload", g)
			want := r.enqueue("upload", 3)
			r.start()
			want = append(want, r.enqueue("upload", 3)...)
			want = append(want, r.add(storage.NewJob{Queue: "q", Kind: "upload", DueAt: r.now().Add(time.Hour)})...)
			other := r.enqueue("other", 1)
			pass(time.Minute) // of which others take notice
			r.wantState(other[0], storage.Done, storage.Counters{Attempt: 1})
			calls, asked := r.store.count(), g.count()
			pass(12 * time.Hour)
			// One makes the job ready that comes due, for those behind no gate.
			if n := len(r.store.of("exchange", calls)); n > 1 || g.count() != asked {
				t.Errorf("%d exchanges behind a closed gate, which was asked %d times", n, g.count()-asked)
			}
			for _, id := range want[:6] {
				r.wantState(id, storage.Ready, storage.Counters{})
			}
			began := time.Now()
			g.close("")
			pass(time.Minute)
			if !reflect.DeepEqual(order, want) || at.Sub(began) > 100*time.Millisecond {
				t.Errorf("%v after the gate opened, the order is\n%v, want\n%v", at.Sub(began), order, want)
			}
			if n, m := len(r.logs.with("gate is closed")), len(r.logs.with("gate is open")); n != 1 || m != 1 {
				t.Errorf("logged %d times that it is closed, %d times that it is open", n, m)
			}
		})
	}
}

// The log has the reason for which a gate is closed, also if that changes, but not all
// numbers of a reason that counts.
func TestGate_OtherReasons(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &latch{closed: "no carrier"}
		r.handle("k", work(time.Millisecond))
		r.gate("k", g)
		r.enqueue("k", 1)
		r.start()
		pass(time.Second)
		for _, reason := range []string{"no address", "no address", "captive portal"} {
			g.close(reason)
			pass(time.Second)
		}
		others := r.logs.with("gate stays closed for another reason")
		if len(others) != 2 || !strings.Contains(others[0], `kind=k reason="no address"`) || !strings.Contains(others[1], "captive portal") {
			t.Errorf("logged %q, want a line with each of the two other reasons", others)
		}
		for i := range 360 {
			g.close(fmt.Sprintf("%d s left", 3600-10*i))
			pass(10 * time.Second)
		}
		if n := len(r.logs.with("another reason")); n < 50 || n > 65 {
			t.Errorf("%d lines in an hour in which the reason changed every 10 s", n)
		}
		if n := len(r.logs.with("gate is closed")); n != 1 {
			t.Errorf("logged %d times that it is closed", n)
		}
		g.close("")
		pass(time.Second)
		g.close("10 s left")
		r.enqueue("k", 1)
		pass(time.Second)
		if n := len(r.logs.with("gate is closed")); n != 2 {
			t.Errorf("logged %d times that it is closed, want 2", n)
		}
	})
}

// What was leased ahead goes back as the gate closes; what runs goes on.
//
//errand:shows closed gates
func TestGate_GivesBackWhatHasNotStarted(t *testing.T) {
	for ms := range 11 { // one exchange
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Store = slow{r.store, 10 * time.Millisecond}
			g := &latch{}
			var n gauges
			r.handle("k", n.counted(work(time.Millisecond)))
			r.gate("k", g)
			r.enqueue("k", 1000)
			r.start()
			pass(200*time.Millisecond + time.Duration(ms)*time.Millisecond)
			g.close("captive portal")
			began := n.begun()
			pass(time.Second)
			if n.begun() > began || began < 100 {
				t.Errorf("%d began before the gate closed, %d after that", began, n.begun()-began)
			}
			if m := r.running(); m != 0 {
				t.Errorf("%d are leased behind a closed gate", m)
			}
			back := 0
			for _, c := range r.store.of("exchange", 0) {
				for _, f := range c.x.Finish {
					if f.Outcome == storage.OutcomeReturned {
						back++
					}
				}
			}
			if back == 0 {
				t.Error("none went back")
			}
			g.close("")
			pass(10 * time.Second)
			if n.begun() != 1000 {
				t.Errorf("%d of 1000 were run", n.begun())
			}
		})
	}
}

// Suspects that wait for their turn go back too.
func TestGate_GivesBackSuspects(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &latch{}
		end := make(chan struct{})
		r.handle("k", untilClosed(end))
		r.gate("k", g)
		ids := r.suspects("k", 3)
		r.start()
		pass(time.Second)
		g.close("no")
		pass(time.Second)
		if n := r.states(ids...); n[storage.Running] != 1 || n[storage.Ready] != 2 {
			t.Errorf("states %v, want 1 running and 2 ready", n)
		}
		close(end)
		g.close("")
		pass(time.Minute)
		if n := r.states(ids...); n[storage.Done] != 3 {
			t.Errorf("states %v, want 3 done", n)
		}
	})
}

// The gate closes while jobs are on their way.
func TestGate_ClosesUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		g := &latch{}
		var n gauges
		r.handle("k", n.counted(work(time.Millisecond)))
		r.gate("k", g)
		r.start()
		r.enqueue("k", 1) // so that the gate is asked
		pass(time.Second)
		under, goOn := s.holdUp()
		enqueued := r.enqueueHeldUp(under)
		g.close("gone")
		goOn()
		handed := enqueued()
		r.wantState(handed, storage.Ready, storage.Counters{})
		s.passing = nil

		g.close("")
		pass(time.Second)
		r.wantState(handed, storage.Done, storage.Counters{Attempt: 1})
		back := s.keepBack()
		id := r.elsewhere("k")
		g.close("gone")
		synctest.Wait()
		back()
		pass(time.Second)
		r.wantState(id, storage.Ready, storage.Counters{})
		if n.begun() != 2 {
			t.Errorf("%d were run, want 2", n.begun())
		}
		id = r.enqueue("k", 1)[0]
		r.wantState(id, storage.Ready, storage.Counters{})
		g.close("")
		pass(time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		if n := s.count(); n != 1 {
			t.Errorf("%d were handed over, want 1", n)
		}
		id = r.enqueue("k", 1)[0] // the gate is known to be open
		pass(time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		if n := s.count(); n != 2 {
			t.Errorf("%d were handed over, want 2", n)
		}
	})
}

// The gates of queue and kind both hold. One that several have is asked once.
//
//errand:shows closed gates
func TestGate_BothHold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ofQueue, ofKind := &latch{closed: "closed queue"}, &latch{closed: "closed kind"}
		r.cfg.Queues = []string{"q", "p", "free"}
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {Gate: ofQueue}, "p": {Gate: ofQueue}}
		r.handle("a", work(time.Millisecond))
		r.handle("b", work(time.Millisecond))
		r.gate("a", ofKind)
		ids := map[string]storage.ID{}
		for _, queue := range r.cfg.Queues {
			for _, kind := range []string{"a", "b"} {
				ids[queue+" "+kind] = r.add(storage.NewJob{Queue: queue, Kind: kind})[0]
			}
		}
		r.start()
		check := func(done ...string) {
			t.Helper()
			pass(time.Second)
			for name, id := range ids {
				want := storage.Ready
				for _, d := range done {
					if d == name {
						want = storage.Done
					}
				}
				if got := r.job(id).State; got != want {
					t.Errorf("%s is %s, want %s", name, got, want)
				}
			}
		}
		check("free b")
		for _, reason := range []string{"closed queue", "closed kind"} {
			if n := len(r.logs.with(reason)); n != 1 {
				t.Errorf("%d lines about %q, want 1", n, reason)
			}
		}
		if ofQueue.count() != 1 || ofKind.count() != 1 {
			t.Errorf("asked %d and %d times, want once", ofQueue.count(), ofKind.count())
		}
		ofQueue.close("")
		check("free b", "q b", "p b")
		ofQueue.close("again")
		ofKind.close("")
		check("free b", "q b", "p b", "free a")
		ofQueue.close("")
		check("free b", "q b", "p b", "free a", "q a", "p a")
	})
}

// A gate whose methods panic is closed, and asked again now and then.
//
//errand:shows closed gates
func TestGate_Panics(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var none *latch
		g := &latch{panics: true}
		r.handle("nil", work(time.Millisecond))
		r.handle("k", work(time.Millisecond))
		r.gate("nil", none)
		r.gate("k", g)
		ids := append(r.enqueue("nil", 1), r.enqueue("k", 1)...)
		r.start()
		pass(time.Hour)
		if n := r.states(ids...); n[storage.Ready] != 2 {
			t.Errorf("states %v, want 2 ready", n)
		}
		if lines := r.logs.with("the gate panics"); len(lines) != 4 { // an error, and that it is closed
			t.Errorf("logged %q", lines)
		}
		if n := g.count(); n > 400 {
			t.Errorf("asked %d times in an hour", n)
		}
		g.mu.Lock()
		g.panics = false
		g.mu.Unlock()
		pass(time.Minute)
		r.wantState(ids[1], storage.Done, storage.Counters{Attempt: 1})
	})
}

// Nobody asks a gate before which no job waits, open or closed, and never too often.
//
//errand:shows closed gates | | a gate is asked only while jobs wait, and at most each 10 ms
func TestGate_IsNotAskedForNothing(t *testing.T) {
	for _, reason := range []string{"", "no"} {
		bubble(t, func(t *testing.T, r *rig) {
			r.store.alone = true
			g := &latch{closed: reason}
			r.handle("k", work(time.Millisecond))
			r.handle("other", work(time.Millisecond))
			r.gate("k", g)
			r.start()
			rest := func() {
				t.Helper()
				pass(time.Minute)
				asked, calls := g.count(), r.store.count()
				for range 60 {
					g.close(reason) // as one does that wants to know whether somebody waits
					pass(time.Minute)
				}
				if n, m := g.count()-asked, len(r.store.of("counts", calls)); n > 0 || m > 1 {
					t.Errorf("a gate at rest was asked %d times in an hour, with %d looks", n, m)
				}
			}
			rest()
			r.enqueue("other", 1) // an event
			rest()
			late := r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: r.now().Add(5 * time.Hour)})[0]
			r.enqueue("other", 1)
			rest()
			pass(4 * time.Hour)
			if n := g.count(); n != 1 {
				t.Errorf("asked %d times for a job that is due, want once", n)
			}
			g.close("")
			pass(time.Second)
			r.wantState(late, storage.Done, storage.Counters{Attempt: 1})
			rest()
		})
	}
}

// Nor is a gate asked in a loop that says at once that it may have changed.
//
//errand:shows closed gates
func TestGate_IsNotAskedTooOften(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &latch{closed: "no", eager: true}
		for _, kind := range []string{"k", "limited"} { // two sources
			r.handle(kind, work(time.Millisecond))
			r.gate(kind, g)
		}
		r.limit("limited", 1)
		r.start()
		ids := append(r.enqueue("k", 1), r.enqueue("limited", 1)...)
		pass(time.Second)
		if n := g.count(); n < 10 || n > 102 {
			t.Errorf("asked %d times in a second", n)
		}
		g.mu.Lock()
		g.closed = ""
		g.mu.Unlock()
		pass(time.Second)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
	})
}

// Jobs that were due before the start wait behind a gate too, whatever their state.
func TestGate_DueBeforeTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &latch{closed: "no"}
		r.handle("k", work(time.Millisecond))
		r.gate("k", g)
		id := r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: r.now().Add(time.Minute)})[0]
		pass(time.Hour)
		r.start()
		pass(time.Hour)
		g.close("")
		pass(time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}
