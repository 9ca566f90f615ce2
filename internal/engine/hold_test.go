package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// pause is a hold of queue q.
var pause = storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: storage.HoldPaused}

func (r *rig) hold(h storage.Hold) {
	r.t.Helper()
	if err := r.app.Hold(context.Background(), r.now(), h); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) release(h storage.Hold) {
	r.t.Helper()
	if was, err := r.app.Release(context.Background(), r.now(), h.Lane, h.Reason); !was || err != nil {
		r.t.Fatalf("Release returned %v, %v", was, err)
	}
}

// An idle worker starts the jobs when the time of a hold is over, and asks the store
// for nothing before.
//
//errand:shows the end of a hold | | an idle worker starts the jobs when the time of a hold is over, and asks for nothing before
func TestHold_IsOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.hold(storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: "a", For: time.Hour})
		r.hold(storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "b", Until: r.now().Add(2 * time.Hour)})
		r.hold(storage.Hold{Lane: storage.Lane{Kind: "other"}, Reason: "b", For: time.Minute})
		id := r.enqueue("k", 1)[0]
		n := r.store.count()
		pass(2*time.Hour - time.Nanosecond)
		r.wantState(id, storage.Ready, storage.Counters{})
		if asked := r.store.of("exchange", n); len(asked) > 1 { // when the first is over
			t.Errorf("%d exchanges while nothing could be leased: %v", len(asked), asked)
		}
		pass(time.Nanosecond)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

// slowAnswers answers exchanges after a while, so that many jobs are leased ahead.
type slowAnswers struct{ *spy }

func (s slowAnswers) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	res, err := s.spy.Exchange(ctx, now, x)
	time.Sleep(time.Second)
	return res, err
}

// Of the jobs that were leased ahead none starts once Hold has returned, none loses
// anything, and all come later in the order that they had.
//
//errand:shows jobs leased before a hold | | none starts in the process once the call has returned, wherever it was on its way; they go back with nothing spent, and keep their order
func TestHold_LeasedAhead(t *testing.T) {
	for name, h := range map[string]storage.Hold{
		"queue": pause,
		"kind":  {Lane: storage.Lane{Kind: "k"}, Reason: "night", For: time.Hour},
		"lane":  {Lane: storage.Lane{Queue: "q", Kind: "k"}, Reason: "night", For: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Store = slowAnswers{r.store}
				r.cfg.Concurrency = 1 // so that the order is that of the starts
				var mu sync.Mutex
				var all []storage.ID
				started := func() []storage.ID {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(all)
				}
				hold := make(chan struct{})
				r.handle("k", func(_ context.Context, job *storage.Leased) error {
					mu.Lock()
					all = append(all, job.ID)
					n := len(all)
					mu.Unlock()
					if n == 300 { // the first leases were few
						<-hold
					}
					time.Sleep(time.Millisecond)
					return nil
				})
				ids := r.enqueue("k", 1200)
				r.start()
				for len(started()) < 300 {
					pass(time.Millisecond)
				}
				ahead := -1 // one runs
				for _, id := range ids {
					if r.job(id).State == storage.Running {
						ahead++
					}
				}
				if ahead < 100 {
					t.Fatalf("%d jobs are leased ahead, want hundreds", ahead)
				}
				r.hold(h)
				close(hold)
				pass(time.Minute)
				if n := len(started()); n != 300 {
					t.Errorf("%d jobs were started after Hold had returned", n-300)
				}
				for i, id := range ids {
					if i < 300 {
						r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
					} else if rec := r.wantState(id, storage.Ready, storage.Counters{}); len(rec.History) > 0 || rec.Error != "" {
						t.Errorf("job %d has the error %q, and %d entries in its history", i, rec.Error, len(rec.History))
					}
				}
				if h.For == 0 {
					r.release(h)
				}
				pass(2 * time.Hour)
				if got := started(); !slices.Equal(got, ids) {
					t.Errorf("%d jobs were started, not in their order", len(got))
				}
			})
		})
	}
}

// A job that a runner has already, and whose handler was not called, goes back too.
//
//errand:shows jobs leased before a hold
func TestHold_RunnerHasIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		runs := 0
		r.handle("k", func(context.Context, *storage.Leased) error { runs++; return nil })
		r.store.failing(func(op string) error {
			if op == "started" {
				r.store.fail = nil // which the caller has locked
				r.hold(pause)      // and the runner goes on when it has returned
			}
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Minute)
		if r.wantState(id, storage.Ready, storage.Counters{}); runs != 0 {
			t.Errorf("%d runs", runs)
		}
		r.release(pause)
		synctest.Wait()
		if r.wantState(id, storage.Done, storage.Counters{Attempt: 1}); runs != 1 {
			t.Errorf("%d runs after the release", runs)
		}
		if lines := r.logs.with("level=WARN"); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
	})
}

// Nor is it called if the holds have been read before the runner returned it.
func TestHold_ReadMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = slowToStart{r.store, time.Second}
		r.handle("k", func(context.Context, *storage.Leased) error {
			t.Error("a handler is called")
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		reads := len(r.store.of("holds", 0))
		r.hold(pause)
		synctest.Wait()
		if n := len(r.store.of("holds", 0)); n != reads+1 {
			t.Fatalf("the holds were read %d times while the runner had the job", n-reads)
		}
		pass(time.Minute)
		r.wantState(id, storage.Ready, storage.Counters{})
	})
}

// A job that was leased before the hold, and comes when the holds have been read, goes
// back as well.
//
//errand:shows jobs leased before a hold
func TestHold_AnswerUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &slowStore{spy: r.store}
		r.cfg.Store = s
		r.handle("k", func(_ context.Context, job *storage.Leased) error { t.Errorf("job %v started", job.ID); return nil })
		r.handle("free", func(context.Context, *storage.Leased) error { return nil })
		ids := append(r.enqueue("k", 2), r.enqueue("free", 2)...)
		goOn := s.keepBack()
		r.start()
		r.wantState(ids[0], storage.Running, storage.Counters{Attempt: 1})
		r.hold(storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "a"})
		pass(time.Second) // the holds are read
		goOn()
		pass(time.Minute)
		for _, id := range ids[:2] {
			r.wantState(id, storage.Ready, storage.Counters{})
		}
		for _, id := range ids[2:] {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
	})
}

// The same for a job that is on its way from the transaction which has enqueued it.
//
//errand:shows jobs leased before a hold
func TestHold_HandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		under, goOn := s.holdUp()
		r.handle("k", func(_ context.Context, job *storage.Leased) error { t.Errorf("job %v started", job.ID); return nil })
		r.start()
		id := r.enqueueHeldUp(under)
		r.hold(pause)
		pass(time.Second)
		goOn()
		got := id()
		pass(time.Minute)
		r.wantState(got, storage.Ready, storage.Counters{})
	})
}

// slowHolds keeps back the answers to exchanges that begin a hold.
type slowHolds struct {
	*spy
	goOn chan struct{}
}

func (s slowHolds) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	res, err := s.spy.Exchange(ctx, now, x)
	if len(x.Hold) > 0 {
		<-s.goOn
	}
	return res, err
}

// A hold that the engine has begun, and that somebody releases before the answer to its
// exchange is back, is over: when the answer comes the holds have been read with both
// changes, and will not be read again.
func TestHold_ReleasedBeforeTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := slowHolds{r.store, make(chan struct{})}
		r.cfg.Store = s
		var runs atomic.Int64
		r.handle("k", func(context.Context, *storage.Leased) error {
			if runs.Add(1) == 1 {
				return &engine.HoldLaneError{For: time.Hour, Err: errOops}
			}
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		n := r.store.count()
		r.release(storage.Hold{Lane: storage.Lane{Queue: "q", Kind: "k"}, Reason: storage.HoldUnavailable})
		synctest.Wait()
		if read := r.store.of("holds", n); len(read) != 1 {
			t.Errorf("holds were read %d times since the release, want once", len(read))
		}
		r.store.failing(func(string) error {
			if len(r.store.calls) > n+100 { // one that takes the lane for held returns its job without end
				return storage.ErrClosed
			}
			return nil
		})
		close(s.goOn)
		pass(time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
	})
}

// While holds cannot be read, no job of a lane starts whose holds may have changed. The
// others do, and the holds are read again.
//
//errand:shows jobs leased before a hold
func TestHold_CannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, kind := range []string{"k", "other"} {
			r.handle(kind, func(context.Context, *storage.Leased) error { return nil })
		}
		var works atomic.Bool
		r.store.failing(func(op string) error {
			if op == "holds" && !works.Load() {
				return storage.ErrBusy
			}
			return nil
		})
		r.start()
		night := storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "night"}
		r.hold(night)
		r.release(night)
		id, other := r.enqueue("k", 1)[0], r.enqueue("other", 1)[0]
		pass(time.Second)
		if s := r.job(id).State; s == storage.Done {
			t.Errorf("the job is %s while holds are not known", s)
		}
		r.wantState(other, storage.Done, storage.Counters{Attempt: 1})
		works.Store(true)
		pass(time.Minute)
		if s := r.job(id).State; s != storage.Done {
			t.Errorf("the job is %s", s)
		}
	})
}

// Holds of other lanes that change whenever the holds are read and whenever a runner has
// an attempt keep neither a probe nor its lane back.
func TestHold_OthersChange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs atomic.Int64
		r.handle("k", func(context.Context, *storage.Leased) error {
			if runs.Add(1) == 1 {
				return &engine.HoldLaneError{For: time.Second, Err: errOops}
			}
			return nil
		})
		var at time.Time
		n := 0 // of the changes in one instant
		r.store.failing(func(op string) error {
			if now := time.Now(); now != at {
				at, n = now, 0
			}
			if n++; n < 100 && (op == "holds" || op == "started") {
				r.hold(storage.Hold{Lane: storage.Lane{Queue: fmt.Sprint("other", n)}, Reason: "a", For: time.Hour})
			}
			return nil
		})
		ids := r.enqueue("k", 20)
		r.start()
		pass(2 * time.Second)
		for _, id := range ids {
			if j := r.job(id); j.State != storage.Done {
				t.Fatalf("a job is %s after %d attempts, %d were returned", j.State, j.Attempt, r.store.returned())
			}
		}
	})
}

// A job whose own lane is held and released while a runner has it starts all the same: it
// does not go back to the store.
func TestHold_LookedAtAgain(t *testing.T) {
	for _, batch := range []*engine.Batch{nil, {Max: 3, Run: func(context.Context, []engine.Item) {}}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Handlers["k"] = engine.Handler{Run: func(context.Context, *storage.Leased) error { return nil }, Batch: batch}
			r.store.failing(func(op string) error {
				if op == "started" {
					r.store.fail = nil // which the caller has locked
					r.hold(pause)
					r.release(pause)
				}
				return nil
			})
			ids := r.enqueue("k", 3)
			r.start()
			pass(time.Millisecond)
			for _, id := range ids {
				r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
			}
			if n := r.store.returned(); n != 0 {
				t.Errorf("%d jobs were returned to the store", n)
			}
		})
	}
}

// A hold for an hour that began while the clock was in the past, as after a start
// without a battery, lasts for an hour from when the clock is right. If the clock stays
// as it is the hold ends by it.
//
//errand:shows a clock that is corrected during a hold | | a hold for an hour that began before the clock was right lasts for an hour from when it is
func TestHold_BegunAtADoubtfulTime(t *testing.T) {
	for _, corrected := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.store.alone = true
			var off atomic.Int64
			wall := func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
			c := clock.New(clock.Options{Wall: wall, Built: time.Now().Add(24 * time.Hour)})
			r.cfg.Clock = c
			var s starts
			r.handle("k", s.run)
			r.start()
			now, believed := c.Read()
			if err := r.app.Hold(t.Context(), now, storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "a", For: time.Hour, Doubtful: !believed}); err != nil {
				t.Fatal(err)
			}
			r.enqueue("k", 1)
			end := time.Now().Add(time.Hour)
			pass(10 * time.Minute)
			if corrected {
				off.Store(int64(30 * 24 * time.Hour))
				end = time.Now().Add(time.Hour)
			}
			pass(time.Until(end) - time.Millisecond)
			if n := s.n(); n > 0 {
				t.Errorf("corrected %v: started before the hold was over", corrected)
			}
			pass(16 * time.Second) // in which the clock is read
			if n := s.n(); n != 1 {
				t.Errorf("corrected %v: %d starts after the hold was over", corrected, n)
			}
		})
	}
}
