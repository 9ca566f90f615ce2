package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// causes keeps why the last context ended that was shown to it.
type causes struct{ last atomic.Pointer[error] }

func (c *causes) note(ctx context.Context) {
	err := context.Cause(ctx)
	c.last.Store(&err)
}

// err returns the cause, nil if no context has ended yet.
func (c *causes) err() error {
	if p := c.last.Load(); p != nil {
		return *p
	}
	return nil
}

// untilDone is a handler that waits for its context, and keeps the cause.
func untilDone(cause *causes) handle {
	return func(ctx context.Context, _ *storage.Leased) error {
		<-ctx.Done()
		cause.note(ctx)
		return ctx.Err()
	}
}

// untilClosed is a handler that heeds nothing but a channel.
func untilClosed(c chan struct{}) handle {
	return func(context.Context, *storage.Leased) error {
		<-c
		return nil
	}
}

// heartbeats returns the exchanges that extended n leases.
func heartbeats(calls []call, n int) []call {
	return slices.DeleteFunc(calls, func(c call) bool { return len(c.x.Extend) != n })
}

func TestLease_HeartbeatExtendsAllLeasesEveryThird(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		r.start()
		first := time.Now()
		r.enqueue("k", 1)
		pass(5 * time.Second)
		r.enqueue("k", 2)
		pass(31 * time.Second)
		got := heartbeats(r.store.since(0), 3)
		if len(got) != 3 {
			t.Fatalf("%d heartbeats for 3 leases, want 3", len(got))
		}
		for i, b := range got {
			if want := time.Duration(i+1) * lease / 3; b.at.Sub(first) != want || b.x.LeaseDuration != lease {
				t.Errorf("heartbeat %d after %v for %v, want after %v", i, b.at.Sub(first), b.x.LeaseDuration, want)
			}
		}
		if cause.err() != nil {
			t.Errorf("handler ended by %v", cause.err())
		}
	})
}

func TestLease_NoHeartbeatWithoutLeases(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.enqueue("k", 3)
		n := r.store.count()
		pass(time.Hour)
		for _, c := range r.store.since(n) {
			if c.op == "exchange" {
				t.Fatalf("exchange %+v without a reason", c.x)
			}
		}
	})
}

// Schedules that change are read again, and cost no lease a write.
//
//errand:shows heartbeats that are not needed | | a worker reads schedules again and writes nothing
func TestLease_NoHeartbeatForSchedules(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("long", func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		r.enqueue("long", 3)
		r.start()
		n := len(r.store.since(0))
		r.declare(storage.Schedule{Name: "a", Spec: "@yearly"})
		pass(lease/3 - time.Second)
		read := false
		for _, c := range r.store.since(n) {
			read = read || c.op == "schedules"
			if len(c.x.Extend) > 0 {
				t.Errorf("%d leases were extended after %v", len(c.x.Extend), c.at)
			}
		}
		if !read {
			t.Error("the schedules were not read")
		}
	})
}

func TestLease_CancelReachesTheHandlerAtOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		give  error
		state storage.State
	}{
		{"error", errOops, storage.Cancelled},
		{"nil", nil, storage.Done},
		{"permanent", &engine.PermanentError{Err: errOops}, storage.Cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var cause causes
				var at time.Time
				r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
					<-ctx.Done()
					cause.note(ctx)
					at = time.Now()
					return c.give
				})
				r.start()
				id := r.enqueue("k", 1)[0]
				other := r.enqueue("k", 1)[0]
				pass(time.Second)
				asked := time.Now()
				if _, err := r.app.Cancel(t.Context(), time.Now(), id, storage.Retention{Default: time.Hour}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if !errors.Is(cause.err(), engine.ErrCancelled) || !at.Equal(asked) {
					t.Errorf("context ended %v after the wish, by %v", at.Sub(asked), cause.err())
				}
				r.wantState(id, c.state, storage.Counters{Attempt: 1})
				r.wantState(other, storage.Running, storage.Counters{Attempt: 1})
			})
		})
	}
}

func TestLease_PanicOfACancelledHandlerIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = noRetry.Delivery()
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			panic("boom")
		})
		r.start()
		id := r.enqueue("k", 1)[0]
		if _, err := r.app.Cancel(t.Context(), time.Now(), id, storage.Retention{Default: time.Hour}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.wantState(id, storage.Cancelled, storage.Counters{Attempt: 1})
	})
}

func TestLease_LostToAnotherEndsTheHandlerAndItsOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		var heard listener
		r.cfg.Events, r.cfg.Lanes = &heard, new(engine.Lanes)
		r.start()
		id := r.enqueue("k", 1)[0]
		r.takeOver(1)
		pass(lease / 3)
		if m := r.cfg.Lanes.Meter(storage.Lane{Queue: "q", Kind: "k"}); m.Lost != 1 {
			t.Errorf("%d attempts count as lost", m.Lost)
		}
		if !errors.Is(cause.err(), engine.ErrLeaseLost) {
			t.Errorf("context ended by %v", cause.err())
		}
		if got, want := heard.types(id), []string{"started", "lease lost"}; !slices.Equal(got, want) {
			t.Errorf("told were %q, want %q", got, want)
		}
		r.wantState(id, storage.Running, storage.Counters{Attempt: 1}) // held by the other
		for _, c := range r.store.since(0) {
			if len(c.x.Finish) > 0 {
				t.Errorf("outcome %+v of a lost lease was offered", c.x.Finish)
			}
		}
		if len(r.logs.with("lease lost")) != 1 {
			t.Error("the loss was not logged once")
		}
	})
}

func TestLease_HandlersEndBeforeALeaseThatCannotBeExtended(t *testing.T) {
	for _, before := range []time.Duration{0, lease / 3} { // until the last extension
		bubble(t, func(t *testing.T, r *rig) {
			var cause causes
			var at time.Time
			r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
				<-ctx.Done()
				cause.note(ctx)
				at = time.Now()
				return ctx.Err()
			})
			r.start()
			id := r.enqueue("k", 1)[0]
			pass(before)
			extended := time.Now()
			r.store.failing(func(string) error { return storage.ErrBusy })
			pass(lease)
			if !errors.Is(cause.err(), engine.ErrLeaseLost) {
				t.Fatalf("context ended by %v", cause.err())
			}
			if got, want := at.Sub(extended), lease-lease/6; got != want {
				t.Errorf("context ended %v after the last extension, want %v", got, want)
			}
			// Nobody took the job meanwhile: it is still ours to give back.
			r.store.failing(nil)
			pass(5 * time.Second)
			r.wantState(id, storage.Running, storage.Counters{Attempt: 2})
		})
	}
}

// The loss of a lease is told once, also if it was feared before it was certain.
func TestLease_LossIsToldOnce(t *testing.T) {
	for _, late := range []bool{false, true} { // the handler ends when the loss is certain
		bubble(t, func(t *testing.T, r *rig) {
			end := make(chan struct{})
			r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
				<-ctx.Done()
				if late {
					<-end
				}
				return ctx.Err()
			})
			var heard listener
			r.cfg.Events = &heard
			r.start()
			id := r.enqueue("k", 1)[0]
			r.store.failing(func(string) error { return storage.ErrBusy })
			pass(lease)
			r.takeOver(1)
			r.store.failing(nil)
			pass(lease)
			close(end)
			pass(time.Second)
			if got, want := heard.types(id), []string{"started", "lease lost"}; !slices.Equal(got, want) {
				t.Errorf("late %t: told were %q, want %q", late, got, want)
			}
		})
	}
}

// pulsing is a spy on a store that is a [storage.Pulser]. While hang is set its
// exchanges wait for it to be closed.
type pulsing struct {
	*spy
	hang atomic.Pointer[chan struct{}]
}

func (p *pulsing) Pulse() error { return p.Store.(storage.Pulser).Pulse() }

func (p *pulsing) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if hang := p.hang.Load(); hang != nil {
		<-*hang
	}
	return p.spy.Exchange(ctx, now, x)
}

// Nobody can take a lease while nobody can write, and whoever can again first
// takes none of a holder that lives.
//
//errand:shows long transactions of others | | running handlers go on while nobody can write, and nobody takes their leases afterwards
func TestLease_KeptWhileNobodyCanWrite(t *testing.T) {
	for name, wait := range map[string]time.Duration{"given up": 10 * lease, "waiting": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var cause causes
				release, hang := make(chan struct{}), make(chan struct{})
				r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
					select {
					case <-release:
					case <-ctx.Done():
						cause.note(ctx)
					}
					return ctx.Err()
				})
				store := &pulsing{spy: r.store}
				r.cfg.Store = store
				r.start()
				id := r.enqueue("k", 1)[0]
				other := r.another()
				other.handle("k", func(context.Context, *storage.Leased) error { return errors.New("a second time") })
				other.start()
				pass(lease / 2)
				busy := func(string) error { return storage.ErrBusy }
				other.store.failing(busy)
				if wait > 0 {
					r.store.failing(busy)
					pass(wait)
				} else {
					store.hang.Store(&hang)
					pass(10 * lease)
				}
				other.store.failing(nil)
				pass(lease / 2)
				if wait > 0 {
					r.store.failing(nil)
				} else {
					close(hang)
				}
				pass(lease)
				if err := cause.err(); err != nil {
					t.Errorf("the handler was ended by %v", err)
				}
				close(release)
				pass(time.Second)
				r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
			})
		})
	}
}

func TestLease_SurvivesFailuresInBetween(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		r.start()
		r.enqueue("k", 1)
		for range 10 {
			r.store.failing(func(string) error { return storage.ErrBusy })
			pass(lease / 2)
			r.store.failing(nil)
			pass(lease / 2)
		}
		if cause.err() != nil {
			t.Errorf("context ended by %v", cause.err())
		}
	})
}

// takeOver has the other instance take all leases, as if it had seen them
// unchanged for their whole length by its clock.
func (r *rig) takeOver(limit int) {
	r.t.Helper()
	for _, mono := range []time.Duration{0, lease} {
		if _, err := r.app.Reclaim(r.t.Context(), time.Now(), mono, lease, limit); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestLease_ThatCameTooLateIsNotStarted(t *testing.T) {
	for name, add := range map[string]func(r *rig) storage.ID{
		"job":     func(r *rig) storage.ID { return r.enqueue("k", 1)[0] },
		"suspect": func(r *rig) storage.ID { return r.suspects("k", 1)[0] },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				slow := &slowStore{spy: r.store}
				r.cfg.Store = slow
				r.handle("k", func(context.Context, *storage.Leased) error {
					t.Error("the handler was called though another has the job")
					return nil
				})
				goOn := slow.keepBack()
				id := add(r)
				r.start()
				pass(lease)
				r.takeOver(1)
				goOn()
				pass(lease / 3)
				if s := r.job(id).State; s != storage.Running {
					t.Errorf("job is %s", s)
				}
			})
		})
	}
}

func TestLease_AttemptThatEndsDuringItsExtension(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := &slowStore{spy: r.store}
		r.cfg.Store = slow
		release := make(chan struct{})
		r.handle("k", untilClosed(release))
		ids := r.enqueue("k", 3)
		r.start()
		goOn := slow.keepBack()
		if _, err := r.app.Cancel(t.Context(), time.Now(), ids[0], storage.Retention{Default: time.Hour}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the extension is under way, and has learned of the wish
		close(release)
		synctest.Wait()
		goOn()
		synctest.Wait()
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		if lines := r.logs.with("too late"); len(lines) > 0 {
			t.Errorf("an outcome was offered twice: %q", lines)
		}
	})
}

func TestLease_WishOfAnotherCostsAnIdleEngineNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		other := r.another()
		var cause causes
		other.handle("k", untilDone(&cause))
		other.start()
		id := r.enqueue("k", 1)[0]
		r.start() // handles no kind
		n := r.store.count()
		if _, err := r.app.Cancel(t.Context(), time.Now(), id, storage.Retention{Default: time.Hour}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !errors.Is(cause.err(), engine.ErrCancelled) {
			t.Errorf("handler ended by %v", cause.err())
		}
		for _, c := range r.store.since(n) {
			if c.op == "exchange" {
				t.Errorf("exchange %+v without a reason", c.x)
			}
		}
	})
}

// The jobs of one exchange lie in one slice, which lives as long as the longest
// of their handlers.
func TestLease_LostFreesTheArgsToo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var job *storage.Leased
		var cause causes
		until := untilDone(&cause)
		r.handle("k", func(ctx context.Context, l *storage.Leased) error {
			job = l
			return until(ctx, l)
		})
		r.start()
		r.enqueue("k", 1)
		r.takeOver(1)
		pass(lease / 3)
		if !errors.Is(cause.err(), engine.ErrLeaseLost) || job.Args != nil {
			t.Errorf("context ended by %v, the args are %q", cause.err(), job.Args)
		}
	})
}
