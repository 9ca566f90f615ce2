package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// starting is a Store without notes whose exchanges that write a start can be kept back, and
// can lose their answers.
type starting struct {
	*spy
	before, after atomic.Pointer[chan struct{}] // wait for it before, or after, such an exchange
	lose          atomic.Int32                  // the answers to as many are lost
	holds         atomic.Pointer[chan struct{}] // wait for it before holds are read
}

func (s *starting) Holds(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
	if c := s.holds.Load(); c != nil {
		<-*c
	}
	return s.spy.Holds(ctx, now)
}

func (s *starting) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if len(x.Start) == 0 {
		return s.spy.Exchange(ctx, now, x)
	}
	if c := s.before.Load(); c != nil {
		<-*c
	}
	res, err := s.spy.Exchange(ctx, now, x)
	if c := s.after.Load(); c != nil {
		<-*c
	}
	if s.lose.Add(-1) >= 0 {
		return storage.ExchangeResult{}, errors.New("answer lost")
	}
	return res, err
}

// hiding hides all of a Store but what each has.
type hiding struct{ storage.Store }

// unmarked has the engine work on a store without notes.
func (r *rig) unmarked() *starting {
	r.store.Store = r.db.OpenBare()
	s := &starting{spy: r.store}
	r.cfg.Store = hiding{s}
	return s
}

// cutOff enqueues jobs of which a process without notes has died.
func (r *rig) cutOff(kind string, n int) []storage.ID {
	r.t.Helper()
	ids := r.enqueue(kind, n)
	r.diesWith(kind, n, false)
	return ids
}

// diesWith has a process without notes die of jobs, whose start it has written or not.
func (r *rig) diesWith(kind string, n int, written bool) {
	r.t.Helper()
	victim := r.db.OpenBare()
	x := storage.Exchange{LeaseDuration: lease, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{kind}, N: n}}}
	res, err := victim.Exchange(r.t.Context(), time.Now(), x)
	if err != nil || len(res.Leased) != n {
		r.t.Fatalf("leased %d jobs (%v), want %d", len(res.Leased), err, n)
	}
	if written {
		x = storage.Exchange{LeaseDuration: lease}
		for _, l := range res.Leased {
			x.Start = append(x.Start, l.Lease)
		}
		if _, err := victim.Exchange(r.t.Context(), time.Now(), x); err != nil {
			r.t.Fatal(err)
		}
	}
	r.db.Kill(victim)
	gone, err := r.app.Reclaim(r.t.Context(), time.Now(), 0, lease, n)
	if err != nil || len(gone) != n {
		r.t.Fatalf("reclaimed %d jobs (%v), want %d", len(gone), err, n)
	}
	x = storage.Exchange{LeaseDuration: lease}
	for _, g := range gone {
		outcome := map[storage.Fate]storage.Outcome{storage.Cut: storage.OutcomeInterrupted, storage.Crashed: storage.OutcomeCrashed}[g.Fate]
		x.Finish = append(x.Finish, storage.Finish{Lease: g.Lease, Outcome: outcome})
	}
	if _, err := r.app.Exchange(r.t.Context(), time.Now(), x); err != nil {
		r.t.Fatal(err)
	}
}

// starts returns how many starts were written.
func (r *rig) starts() (n int) {
	for _, c := range r.store.of("exchange", 0) {
		n += len(c.x.Start)
	}
	return n
}

// gate closes c for as long as the result was not called.
func gate(c *atomic.Pointer[chan struct{}]) (open func()) {
	ch := make(chan struct{})
	c.Store(&ch)
	return sync.OnceFunc(func() {
		c.Store(nil)
		close(ch)
	})
}

// The handler of a job that may have crashed is called once its start is written, which keeps
// a runner free for it. It is written once, and no more when an attempt has ended.
func TestStart_WrittenBeforeTheCall(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.unmarked()
		r.cfg.Concurrency = 1
		called := 0
		r.handle("k", func(context.Context, *storage.Leased) error {
			if called++; called == 1 {
				return errOops
			}
			return nil
		})
		ids := r.cutOff("k", 2)
		open := gate(&s.after)
		r.start()
		other := r.enqueue("k", 1)[0]
		pass(2 * time.Second)
		if called > 0 || r.starts() != 1 {
			t.Fatalf("the handler was called %d times before it was known that its start is written, %d times", called, r.starts())
		}
		r.wantState(ids[0], storage.Running, storage.Counters{Attempt: 2})
		r.wantState(other, storage.Ready, storage.Counters{})
		open()
		pass(time.Minute)
		r.wantState(ids[0], storage.Done, storage.Counters{Attempt: 3, Retry: 1})
		r.wantState(ids[1], storage.Done, storage.Counters{Attempt: 2})
		r.wantState(other, storage.Done, storage.Counters{Attempt: 1})
		if called != 4 || r.starts() != 2 {
			t.Errorf("handlers were called %d times, and %d starts written; want 4 and 2", called, r.starts())
		}
	})
}

// The starts of jobs that can start at a time are written in one exchange.
func TestStart_Many(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.unmarked()
		r.cfg.Concurrency = 20
		r.handle("k", func(context.Context, *storage.Leased) error {
			time.Sleep(time.Second)
			return nil
		})
		ids := r.cutOff("k", 100)
		r.start()
		pass(time.Minute)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
		}
		writes := slices.DeleteFunc(r.store.of("exchange", 0), func(c call) bool { return len(c.x.Start) == 0 })
		if n := len(writes[0].x.Start); r.starts() != 100 || n != 20 {
			t.Errorf("%d starts were written, the first %d in one exchange; want 100 and 20", r.starts(), n)
		}
	})
}

// If the answer is lost, the start is written again, and the handler called once.
func TestStart_LostAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.unmarked()
		called := 0
		r.handle("k", func(context.Context, *storage.Leased) error {
			if called++; s.lose.Load() >= 0 {
				t.Error("the handler is called without an answer")
			}
			return nil
		})
		s.lose.Store(3)
		id := r.cutOff("k", 1)[0]
		r.start()
		pass(time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
		if called != 1 || r.starts() != 4 {
			t.Errorf("the handler was called %d times, and the start written %d times; want 1 and 4", called, r.starts())
		}
	})
}

// A worker that is stopped while starts are written returns the jobs whose handlers were
// not called. It does so also if the answer is lost.
func TestStart_Shutdown(t *testing.T) {
	for name, lost := range map[string]int32{"answered": 0, "lost": 1, "lost before": 1000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.unmarked()
				r.cfg.Concurrency = 3
				r.handle("k", func(context.Context, *storage.Leased) error { t.Error("a handler is called"); return nil })
				ids := r.cutOff("k", 2)
				s.lose.Store(lost)
				open := gate(&s.after)
				if lost > 1 {
					open()
				}
				r.start()
				pass(time.Second)
				r.cancel()
				pass(time.Second)
				open()
				if <-r.ended; r.err != nil {
					t.Errorf("Run returns %v", r.err)
				}
				for _, id := range ids {
					r.wantState(id, storage.Ready, storage.Counters{Attempt: 1})
				}
			})
		})
	}
}

// A job whose process is killed while its worker is being stopped has not crashed, however
// often that happens.
func TestStart_KilledInAStop(t *testing.T) {
	for name, failures := range map[string]int{"the store works": 0, "it fails at first": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.cutOff("k", 1)[0]
				for deploys := range 5 {
					p := r.another()
					p.unmarked()
					p.handle("k", func(ctx context.Context, _ *storage.Leased) error {
						<-ctx.Done()
						return ctx.Err()
					})
					p.start()
					pass(3 * time.Second)
					r.wantState(id, storage.Running, storage.Counters{Attempt: 2 + deploys})
					p.store.failing(func(op string) error {
						if op == "exchange" && len(p.store.calls[len(p.store.calls)-1].x.Stop) > 0 && failures > 0 {
							failures--
							return errOops
						}
						return nil
					})
					p.cancel()
					pass(grace / 2)
					p.db.Kill(p.store.Store)
					gone, err := r.app.Reclaim(t.Context(), time.Now(), 0, lease, 1)
					if err != nil || len(gone) != 1 || gone[0].Fate != storage.Cut {
						t.Fatalf("reclaimed %+v, %v; want the job, cut off", gone, err)
					}
					x := storage.Exchange{LeaseDuration: lease, Finish: []storage.Finish{{Lease: gone[0].Lease, Outcome: storage.OutcomeInterrupted}}}
					if _, err := r.app.Exchange(t.Context(), time.Now(), x); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A start is taken back once, of handlers that run, after the exchange that is under way as
// the stop begins.
func TestStart_TakenBackOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.unmarked()
		r.cfg.Concurrency = 5
		release := make(chan struct{})
		r.handle("k", untilClosed(release))
		r.handle("good", untilClosed(release))
		ids := append(r.cutOff("k", 2), r.enqueue("good", 2)...)
		r.start()
		pass(time.Second)
		open := gate(&s.after)
		late := r.cutOff("k", 1)[0]
		pass(2 * time.Second)
		r.cancel()
		pass(time.Second)
		open()
		pass(grace / 2)
		r.wantState(late, storage.Ready, storage.Counters{Attempt: 1})
		close(release)
		<-r.ended
		stops := slices.DeleteFunc(r.store.of("exchange", 0), func(c call) bool { return len(c.x.Stop) == 0 })
		if len(stops) != 1 || len(stops[0].x.Stop) != 2 {
			t.Errorf("starts are taken back by %d exchanges, want one, of two", len(stops))
		}
		for _, id := range ids {
			if rec := r.job(id); rec.State != storage.Done {
				t.Errorf("job is %s %+v", rec.State, rec.Counters)
			}
		}
	})
}

// A job whose lease is lost or that is cancelled meanwhile is not run, and its runner is free
// for others.
func TestStart_LostMeanwhile(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, r *rig, id storage.ID){
		"lost": func(t *testing.T, r *rig, id storage.ID) {
			for _, mono := range []time.Duration{0, lease} {
				if _, err := r.app.Reclaim(t.Context(), r.now(), mono, lease, 10); err != nil {
					t.Fatal(err)
				}
			}
		},
		"cancelled": func(t *testing.T, r *rig, id storage.ID) {
			if _, err := r.app.Cancel(t.Context(), r.now(), id, storage.Retention{Default: time.Hour}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.unmarked()
				r.cfg.Concurrency = 1
				var mu sync.Mutex
				var called []storage.ID
				r.handle("k", func(_ context.Context, job *storage.Leased) error {
					mu.Lock()
					defer mu.Unlock()
					called = append(called, job.ID)
					return nil
				})
				id := r.cutOff("k", 1)[0]
				open := gate(&s.before)
				r.start()
				pass(time.Second)
				happens(t, r, id)
				open()
				other := r.enqueue("k", 1)[0]
				pass(time.Second)
				if name == "lost" {
					r.wantState(other, storage.Done, storage.Counters{Attempt: 1})
					mu.Lock()
					if !slices.Equal(called, []storage.ID{other}) {
						t.Errorf("the handler was called for %v, want %v", called, other)
					}
					mu.Unlock()
				}
				pass(time.Minute)
				r.wantState(other, storage.Done, storage.Counters{Attempt: 1})
			})
		})
	}
}

// A job whose lane is held meanwhile goes back.
func TestStart_HeldMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.unmarked()
		r.cfg.Concurrency = 1
		r.handle("k", func(context.Context, *storage.Leased) error { t.Error("a handler is called"); return nil })
		r.handle("other", func(context.Context, *storage.Leased) error { return nil })
		id := r.cutOff("k", 1)[0]
		open := gate(&s.after)
		r.start()
		pass(time.Second)
		if err := r.app.Hold(t.Context(), r.now(), storage.Hold{Lane: storage.Lane{Queue: "q", Kind: "k"}, Reason: storage.HoldPaused}); err != nil {
			t.Fatal(err)
		}
		other := r.enqueue("other", 1)[0]
		pass(2 * time.Second) // as it is told of nothing
		open()
		pass(2 * time.Second)
		r.wantState(id, storage.Ready, storage.Counters{Attempt: 1})
		r.wantState(other, storage.Done, storage.Counters{Attempt: 1})
	})
}

// The start of a retry is written once the budget has paid for it.
func TestStart_PaidBefore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.enqueue("k", 1)[0]
		x := storage.Exchange{LeaseDuration: lease, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}}
		res, err := r.app.Exchange(t.Context(), time.Now(), x)
		if err != nil || len(res.Leased) != 1 {
			t.Fatalf("leased %v, %v", res.Leased, err)
		}
		f := storage.Finish{Lease: res.Leased[0].Lease, Outcome: storage.OutcomeRetry, DueAt: time.Now(), Failure: &storage.NewFailure{Error: "x"}}
		if _, err := r.app.Exchange(t.Context(), time.Now(), storage.Exchange{LeaseDuration: lease, Finish: []storage.Finish{f}}); err != nil {
			t.Fatal(err)
		}
		r.diesWith("k", 1, false)
		budget := single(0.1)
		spends := r.another()
		spends.cfg.Policy = atOnce(1)
		spends.cfg.Handlers["spends"] = engine.Handler{Budget: budget, Run: func(context.Context, *storage.Leased) error { return errOops }}
		spends.enqueue("spends", 1)
		spends.start()

		r.unmarked()
		r.cfg.Handlers["k"] = engine.Handler{Budget: budget, Run: func(context.Context, *storage.Leased) error { return nil }}
		r.start()
		pass(time.Second)
		r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 2, Retry: 1})
		if n := r.starts(); n > 0 {
			t.Errorf("%d starts were written while the budget was empty", n)
		}
		pass(time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 3, Retry: 1})
		if n := r.starts(); n != 1 {
			t.Errorf("%d starts were written, want 1", n)
		}
	})
}

// A job whose start was written does not wait for holds to be read: its process may die
// meanwhile, and its handler was not called.
func TestStart_NoneWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.unmarked()
		r.handle("k", func(context.Context, *storage.Leased) error { t.Error("a handler is called"); return nil })
		id := r.cutOff("k", 1)[0]
		open := gate(&s.after)
		r.start()
		defer gate(&s.holds)()
		pass(2 * time.Second) // holds may have changed by now
		open()
		pass(100 * time.Millisecond)
		r.db.Kill(s.Store)
		gone, err := r.app.Reclaim(t.Context(), time.Now(), 0, lease, 1)
		if err != nil || len(gone) != 1 || gone[0].ID != id || gone[0].Fate != storage.Cut {
			t.Errorf("reclaimed %+v, %v; want the job, cut off", gone, err)
		}
	})
}

// Suspects of a store without notes are written one by one too: each keeps the turnstile while
// its start is written, and leaves it if it does not start.
func TestStart_Suspects(t *testing.T) {
	for name, end := range map[string]func(r *rig, s *starting, open func()){
		"all run": func(_ *rig, _ *starting, open func()) { open() },
		"stopped": func(r *rig, _ *starting, open func()) {
			r.cancel()
			open()
			<-r.ended
		},
		"the store fails for good": func(r *rig, s *starting, open func()) {
			r.store.failing(func(op string) error {
				if op == "reclaim" || op == "exchange" {
					return storage.ErrClosed
				}
				return nil
			})
			pass(time.Second)
			open()
			<-r.ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.unmarked()
				run, most := atATime(time.Second)
				var ids []storage.ID
				for _, kind := range []string{"a", "b", "c"} { // one is not trusted for another
					r.handle(kind, run)
					ids = append(ids, r.cutOff(kind, 1)...)
					r.diesWith(kind, 1, true)
					r.diesWith(kind, 1, true)
				}
				open := gate(&s.after)
				r.start()
				pass(time.Second)
				if n := r.starts(); n != 1 {
					t.Fatalf("%d starts of suspects are written, want one at a time", n)
				}
				end(r, s, open)
				other := r.another()
				other.cfg.Suspects = r.cfg.Suspects
				other.unmarked()
				other.cfg.Handlers = r.cfg.Handlers
				other.start()
				pass(5 * time.Minute)
				for _, id := range ids {
					if rec := r.job(id); rec.State != storage.Done {
						t.Errorf("job is %s %+v", rec.State, rec.Counters)
					}
				}
				if n := most(); n != 1 {
					t.Errorf("%d suspects ran at a time", n)
				}
			})
		})
	}
}

// A job that may have crashed is in no call with others.
func TestStart_Batch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.unmarked()
		var sizes []int
		alone := 0
		r.many("k", engine.Batch{Max: 10}, func(_ context.Context, items []engine.Item) {
			if len(items) > 1 {
				sizes = append(sizes, len(items))
			} else {
				alone++
			}
		})
		ids := append(r.cutOff("k", 3), r.enqueue("k", 5)...)
		r.start()
		pass(time.Minute)
		for i, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1 + map[bool]int{true: 1}[i < 3]})
		}
		if alone != 3 || !slices.Equal(sizes, []int{5}) || r.starts() != 3 {
			t.Errorf("%d jobs ran alone, calls had %v, and %d starts were written; want 3, [5], 3", alone, sizes, r.starts())
		}
	})
}

// A job that kills its process without notes is dead after one attempt more than with notes,
// and all others are done. Processes die of it whatever they are doing.
func TestStart_Poison(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.enqueue("good", 20)
		poison := r.enqueue("poison", 1)[0]
		ids = append(ids, r.enqueue("good", 20)...)
		deaths, starts := 0, 0
		for range 20 {
			p := r.another()
			p.unmarked()
			p.handle("good", func(ctx context.Context, _ *storage.Leased) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			})
			killed := make(chan struct{})
			p.handle("poison", func(ctx context.Context, _ *storage.Leased) error {
				p.db.Kill(p.store.Store)
				close(killed)
				<-ctx.Done() // what is left of the process goes on for a moment
				return ctx.Err()
			})
			p.start()
			select {
			case <-killed:
				deaths++
				<-p.ended
			case <-time.After(time.Minute):
			}
			starts += p.starts()
			if r.job(poison).State == storage.Dead {
				break
			}
		}
		rec := r.wantState(poison, storage.Dead, storage.Counters{Attempt: 4, Crashes: 3})
		if rec.Reason != storage.ReasonCrashed || deaths != 4 {
			t.Errorf("reason %q after %d deaths, want 4", rec.Reason, deaths)
		}
		last := r.another()
		last.unmarked()
		last.handle("good", func(context.Context, *storage.Leased) error { return nil })
		last.start()
		pass(5 * time.Minute)
		for _, id := range ids {
			if rec := r.job(id); rec.State != storage.Done {
				t.Errorf("a good job is %s %+v", rec.State, rec.Counters)
			}
		}
		if starts+last.starts() > 3+len(ids) {
			t.Errorf("%d starts were written for %d jobs", starts, len(ids))
		}
		synctest.Wait()
	})
}

// Suspects of a kind that is trusted run together. If their process dies, that counts as a
// crash for none, and they run one by one.
func TestStart_Company(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.cutOff("k", 5)
		for range 2 {
			r.diesWith("k", 5, true)
		}
		p := r.another()
		p.unmarked()
		var calls atomic.Int64
		p.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			if calls.Add(1) <= int64(p.starts()) { // it runs alone
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		p.start()
		pass(time.Second)
		// The turnstile may let one more run alone before the success of the first is noted.
		alone := p.starts()
		if n := int(calls.Load()); n != 5 || alone < 1 || alone > 3 {
			t.Errorf("%d of 5 suspects ran, %d of them alone; want 1 to 3", n, alone)
		}
		p.db.Kill(p.store.Store)
		again := r.another()
		again.unmarked()
		again.handle("other", func(context.Context, *storage.Leased) error { return nil })
		again.start() // recovers them, and runs none
		pass(10 * time.Second)
		_ = again.stop()
		done := 0
		for _, id := range ids {
			if r.job(id).State == storage.Done {
				done++
				continue
			}
			r.wantState(id, storage.Ready, storage.Counters{Attempt: 4, Crashes: 2})
		}
		r.unmarked()
		run, most := atATime(time.Second)
		r.handle("k", run)
		r.start()
		pass(time.Minute)
		for _, id := range ids {
			if rec := r.job(id); rec.State != storage.Done {
				t.Errorf("job is %s %+v", rec.State, rec.Counters)
			}
		}
		if n := most(); done != alone || n != 1 {
			t.Errorf("%d were done before, and then %d ran at a time; want %d and 1", done, n, alone)
		}
	})
}
