package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// holdUp has what is handed over held up before the worker gets it, until goOn
// is called. under is closed once there is something.
func (s *handing) holdUp() (under <-chan struct{}, goOn func()) {
	began, end := make(chan struct{}), make(chan struct{})
	s.passing = func() {
		close(began)
		<-end
	}
	return began, func() { close(end) }
}

// enqueueHeldUp enqueues a job that is held up on its way to the worker, and
// returns a function that waits for the end of the call and returns the job.
func (r *rig) enqueueHeldUp(under <-chan struct{}) func() storage.ID {
	ids := make(chan storage.ID, 1)
	go func() {
		out, err := r.app.Enqueue(context.Background(), time.Now(), []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}})
		if err != nil || len(out) != 1 {
			r.t.Error(err)
			out = make([]storage.Enqueued, 1)
		}
		ids <- out[0].ID
	}()
	<-under
	return func() storage.ID {
		id := <-ids
		synctest.Wait()
		return id
	}
}

func TestOffer_HandedOverDuringAStopGoesBack(t *testing.T) {
	for name, stop := range map[string]func(r *rig){
		"context":  func(r *rig) { r.cancel() },
		"Shutdown": func(r *rig) { go func() { _ = r.engine.Shutdown(context.Background()) }() },
		"Shutdown in a hurry": func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			go func() { _ = r.engine.Shutdown(ctx) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.handOver()
				under, goOn := s.holdUp()
				runs := 0
				r.handle("k", func(context.Context, *storage.Leased) error { runs++; return nil })
				r.start()
				id := r.enqueueHeldUp(under)
				stop(r)
				pass(time.Second)
				select {
				case <-r.ended:
					t.Fatal("Run ended while a job was being handed over")
				default:
				}
				goOn()
				r.wantState(id(), storage.Ready, storage.Counters{})
				<-r.ended
				if r.err != nil || runs != 0 || s.count() != 1 || s.open() != 0 {
					t.Errorf("Run gave %v after %d runs; %d were handed over, %d offers are open", r.err, runs, s.count(), s.open())
				}
				if got := r.states(r.enqueue("k", 1)...); got[storage.Ready] != 1 {
					t.Errorf("a job after the end is %v, want ready", got)
				}
			})
		})
	}
}

// A stop that comes right after Enqueue finds the job in the mailbox or with a
// runner.
func TestOffer_StopRightAfter(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, r *rig) {
			r.handOver()
			runs := 0
			r.handle("k", func(context.Context, *storage.Leased) error { runs++; return nil })
			r.start()
			out, err := r.app.Enqueue(t.Context(), time.Now(), []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			if runs == 0 {
				r.wantState(out[0].ID, storage.Ready, storage.Counters{})
			} else {
				r.wantState(out[0].ID, storage.Done, storage.Counters{Attempt: 1})
			}
		})
	}
}

func TestOffer_WithdrawnWhileAHandlerRunsOn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		goOn := make(chan struct{})
		r.handle("k", untilClosed(goOn))
		r.start()
		first := r.enqueue("k", 1)[0]
		r.cancel()
		synctest.Wait()
		if s.open() != 0 {
			t.Errorf("%d offers are open during the grace", s.open())
		}
		second := r.enqueue("k", 1)[0]
		r.wantState(second, storage.Ready, storage.Counters{})
		close(goOn)
		<-r.ended
		r.wantState(first, storage.Done, storage.Counters{Attempt: 1})
		r.wantState(second, storage.Ready, storage.Counters{})
	})
}

func TestOffer_FatalErrorWithdraws(t *testing.T) {
	for _, fault := range []error{storage.ErrClosed, storage.ErrUnknownOutcome} {
		t.Run(fault.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.handOver()
				var cause causes
				r.handle("k", untilDone(&cause))
				r.start()
				r.enqueue("k", 1)
				r.store.failing(func(string) error { return fault })
				<-r.ended
				if !errors.Is(r.err, fault) || !errors.Is(cause.err(), engine.ErrLeaseLost) || s.open() != 0 {
					t.Errorf("Run gave %v, the handler ended by %v, %d offers are open", r.err, cause.err(), s.open())
				}
				if n := r.states(r.enqueue("k", 1)...); n[storage.Ready] != 1 {
					t.Errorf("a job after the end is %v, want ready", n)
				}
			})
		})
	}
}

func TestOffer_NoRoomWhileTheStoreFails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.store.failing(func(string) error { return storage.ErrFull })
		first := r.enqueue("k", 1)[0] // whose end cannot be written
		r.wantState(first, storage.Running, storage.Counters{Attempt: 1})
		second := r.enqueue("k", 1)[0]
		r.wantState(second, storage.Ready, storage.Counters{})
		if s.capacity() != 0 {
			t.Errorf("there is capacity for %d", s.capacity())
		}
		r.store.failing(nil)
		pass(5 * time.Second)
		r.wantState(first, storage.Done, storage.Counters{Attempt: 1})
		r.wantState(second, storage.Done, storage.Counters{Attempt: 1})
		if s.capacity() != r.cfg.Concurrency {
			t.Errorf("there is capacity for %d afterwards", s.capacity())
		}
	})
}

func TestOffer_HeartbeatsExtendTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		var cause causes
		r.handle("k", untilDone(&cause))
		r.start()
		began := time.Now()
		id := r.enqueue("k", 1)[0]
		pass(5 * lease / 2)
		got := heartbeats(r.store.since(0), 1)
		if len(got) != 7 || got[0].at.Sub(began) != lease/3 || cause.err() != nil {
			t.Fatalf("%d heartbeats, want 7; the handler ended by %v", len(got), cause.err())
		}
		if _, err := r.app.Cancel(t.Context(), time.Now(), id, storage.Retention{Default: time.Hour}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.wantState(id, storage.Cancelled, storage.Counters{Attempt: 1})
		if !errors.Is(cause.err(), engine.ErrCancelled) || s.count() != 1 {
			t.Errorf("the handler ended by %v; %d were handed over", cause.err(), s.count())
		}
	})
}

// The lease is counted from when it began, not from when the worker came to
// know of it.
func TestOffer_HeldUp(t *testing.T) {
	const safe = lease - lease/6
	for _, c := range []struct {
		name string
		late time.Duration
	}{
		{"less than it is safe", safe - time.Second}, {"longer than it is safe", safe + time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.handOver()
				under, goOn := s.holdUp()
				var cause causes
				var startedAt, endedAt time.Time
				exchanges := 0
				r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
					startedAt, exchanges = time.Now(), len(r.store.of("exchange", 0))
					<-ctx.Done()
					cause.note(ctx)
					endedAt = time.Now()
					return ctx.Err()
				})
				r.start()
				began, n := time.Now(), len(r.store.of("exchange", 0))
				enqueued := r.enqueueHeldUp(under)
				time.Sleep(c.late)
				defer r.store.failing(nil)
				r.store.failing(func(op string) error {
					if op == "exchange" {
						return storage.ErrIO
					}
					return nil
				})
				goOn()
				id := enqueued()
				r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
				pass(time.Second)
				if c.late < safe {
					if startedAt.Sub(began) != c.late || endedAt.Sub(began) != safe || !errors.Is(cause.err(), engine.ErrLeaseLost) {
						t.Errorf("started after %v, ended after %v by %v", startedAt.Sub(began), endedAt.Sub(began), cause.err())
					}
					return
				}
				if !startedAt.IsZero() {
					t.Errorf("started after %v, and the lease may have been lost after %v", startedAt.Sub(began), safe)
				}
				r.store.failing(nil)
				pass(10 * time.Second)
				if exchanges <= n || cause.err() != nil {
					t.Errorf("started after %d exchanges, before there had been %d; ended by %v", exchanges, n, cause.err())
				}
				r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
			})
		})
	}
}

// While it was held up somebody else took the job over.
func TestOffer_HeldUpAndLost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		under, goOn := s.holdUp()
		runs := 0
		r.handle("k", func(context.Context, *storage.Leased) error { runs++; return nil })
		r.start()
		enqueued := r.enqueueHeldUp(under)
		other := r.db.Open()
		for _, mono := range []time.Duration{0, lease} {
			got, err := other.Reclaim(t.Context(), time.Now(), mono, 10*lease, 9)
			if err != nil || (len(got) == 1) != (mono == lease) {
				t.Fatalf("reclaimed %v, %v at %v", got, err, mono)
			}
		}
		time.Sleep(lease)
		goOn()
		id := enqueued()
		pass(time.Second)
		r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
		if runs != 0 {
			t.Errorf("it was run %d times by who had lost it", runs)
		}
		r.db.Kill(other)
		pass(time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 2}) // for all that is known it may have begun
	})
}

func TestOffer_SeveralEngines(t *testing.T) {
	bubble(t, func(t *testing.T, a *rig) {
		b := a.another()
		b.store = a.store // of one process
		s, v := a.handOver(), b.handOver()
		goOn := make(chan struct{})
		var at [2]atomic.Int64
		for i, r := range []*rig{a, b} {
			r.cfg.Concurrency = 2
			r.handle("k", func(context.Context, *storage.Leased) error {
				at[i].Add(1)
				<-goOn
				return nil
			})
			r.start()
		}
		ids := a.enqueue("k", 5)
		if n := a.states(ids...); n[storage.Running] != 4 || at[0].Load() != 2 || s.count() != 2 || v.count() != 2 {
			t.Fatalf("states %v; the first has started %d, handed over %d and %d", n, at[0].Load(), s.count(), v.count())
		}
		a.cancel()
		pass(time.Second)
		close(goOn)
		synctest.Wait()
		<-a.ended
		if n := b.states(ids...); n[storage.Done] != 5 || at[0].Load() != 2 || at[1].Load() != 3 {
			t.Errorf("states %v; started %d and %d", n, at[0].Load(), at[1].Load())
		}
		b.enqueue("k", 1)
		if s.open() != 0 || s.count() != 2 || v.count() != 3 {
			t.Errorf("%d offers of the first are open; handed over %d and %d", s.open(), s.count(), v.count())
		}
	})
}
