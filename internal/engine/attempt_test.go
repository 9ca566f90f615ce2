package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

var errOops = errors.New("oops")

func TestAttempt_Verdicts(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("outer: %w", errors.Join(errOops, err)) }
	for _, c := range []struct {
		name   string
		give   error
		state  storage.State
		reason storage.Reason
		want   storage.Counters
		due    time.Duration
	}{
		{"nil", nil, storage.Done, "", storage.Counters{Attempt: 1}, 0},
		{"error", errOops, storage.Dead, storage.ReasonExhausted, storage.Counters{Attempt: 1}, 0},
		{"permanent", &engine.PermanentError{Err: errOops}, storage.Dead, storage.ReasonPermanent, storage.Counters{Attempt: 1}, 0},
		{"retry after", &engine.RetryAfterError{After: time.Minute, Err: errOops}, storage.Scheduled, "", storage.Counters{Attempt: 1, Retry: 1}, time.Minute},
		{"snooze", &engine.SnoozeError{For: time.Minute}, storage.Scheduled, "", storage.Counters{Attempt: 1, Snoozes: 1}, time.Minute},
		{"cancel", &engine.CancelError{Err: errOops}, storage.Cancelled, "", storage.Counters{Attempt: 1}, 0},
		{"decode", &engine.DecodeError{Err: errOops}, storage.Dead, storage.ReasonDecode, storage.Counters{Attempt: 1}, 0},
		{"outermost of two", &engine.CancelError{Err: &engine.PermanentError{Err: errOops}}, storage.Cancelled, "", storage.Counters{Attempt: 1}, 0},
	} {
		for _, wrapped := range []bool{false, true} {
			if wrapped && c.give == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s, wrapped %v", c.name, wrapped), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					if c.state == storage.Dead {
						r.cfg.Policy = noRetry.Delivery()
					}
					r.cfg.Rand = func() float64 { return 0 }
					give := c.give
					if wrapped {
						give = wrap(give)
					}
					r.handle("k", func(context.Context, *storage.Leased) error { return give })
					id := r.enqueue("k", 1)[0]
					r.start()
					rec := r.wantState(id, c.state, c.want)
					if rec.Reason != c.reason {
						t.Errorf("reason %q, want %q", rec.Reason, c.reason)
					}
					if due := time.Until(rec.DueAt); c.due != 0 && due != c.due {
						t.Errorf("due in %v, want %v", due, c.due)
					}
					if rec.State == storage.Dead && (rec.Error != give.Error() || rec.Policy == nil) {
						t.Errorf("dead letter has error %q and policy %s", rec.Error, rec.Policy)
					}
				})
			})
		}
	}
}

func TestAttempt_RetriesByPolicyInAllPhases(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = policy.Policy{
			MinDelay: 10 * time.Second, MaxDelay: 40 * time.Second, Retries: 6, Jitter: policy.NoJitter,
			NoDelayRetries: 1, MinDelayRetries: 1, MaxDelayRetries: 1, Backoff: policy.Linear,
		}.Delivery()
		began := time.Now()
		var at []time.Duration
		var phases []string
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			at = append(at, time.Since(began))
			phases = append(phases, r.engine.Phase(job).String())
			time.Sleep(time.Second) // the delay runs from the failure
			return fmt.Errorf("oops %d", job.Attempt)
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Hour)
		s := time.Second
		want := []time.Duration{0, 1 * s, 12 * s, 23 * s, 49 * s, 90 * s, 131 * s}
		if !slices.Equal(at, want) {
			t.Errorf("started at %v, want %v", at, want)
		}
		wantPhases := []string{"first", "immediate", "pre-backoff", "backoff", "backoff", "backoff", "post-backoff"}
		if !slices.Equal(phases, wantPhases) {
			t.Errorf("phases %v, want %v", phases, wantPhases)
		}
		rec := r.wantState(id, storage.Dead, storage.Counters{Attempt: 7, Retry: 6})
		if rec.Reason != storage.ReasonExhausted || rec.Error != "oops 7" {
			t.Errorf("reason %q, error %q", rec.Reason, rec.Error)
		}
		for i, f := range rec.History {
			if f.Phase != wantPhases[i] || f.Attempt != i+1 || f.Error != fmt.Sprintf("oops %d", i+1) || f.Duration != s {
				t.Errorf("history[%d] is %+v, want phase %q", i, f, wantPhases[i])
			}
		}
	})
}

func TestAttempt_JitterComesFromRand(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = policy.Policy{MinDelay: 10 * time.Second, MaxDelay: 10 * time.Second, Retries: 1}.Delivery()
		r.cfg.Rand = func() float64 { return 0.25 }
		r.handle("k", func(context.Context, *storage.Leased) error { return errOops })
		id := r.enqueue("k", 1)[0]
		r.start()
		if got, want := time.Until(r.job(id).DueAt), 6250*time.Millisecond; got != want {
			t.Errorf("retry in %v, want %v", got, want)
		}
	})
}

func TestAttempt_JitterComesFromTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = policy.Policy{MinDelay: 10 * time.Second, MaxDelay: 10 * time.Second, Retries: 1}.Delivery()
		r.cfg.Rand = func() float64 { return 0.75 }
		r.handle("k", func(context.Context, *storage.Leased) error { return errOops })
		id := r.enqueue("k", 1)[0]
		ctx, cancel := context.WithCancel(engine.WithRand(t.Context(), func() float64 { return 0.25 }))
		ended := make(chan error)
		go func() { ended <- engine.New(r.cfg).Run(ctx) }()
		synctest.Wait()
		if got, want := time.Until(r.job(id).DueAt), 6250*time.Millisecond; got != want {
			t.Errorf("retry in %v, want %v", got, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAttempt_SnoozesUntilTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { return &engine.SnoozeError{} })
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Second)
		rec := r.wantState(id, storage.Dead, storage.Counters{Attempt: 4, Snoozes: 4})
		if rec.Reason != storage.ReasonSnoozed {
			t.Errorf("reason %q", rec.Reason)
		}
		if took := rec.EndedAt.Sub(rec.CreatedAt); took != 300*time.Millisecond {
			t.Errorf("3 snoozes took %v, want 100 ms each", took)
		}
	})
}

type badError struct{}

func (badError) Error() string { panic("in Error") }

func TestAttempt_PanicAndGoexitAreFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		run  handle
		want string
	}{
		{"panic", func(context.Context, *storage.Leased) error { explode(); return nil }, "panic: boom"},
		{"panic with nil", func(context.Context, *storage.Leased) error { panic(nil) }, "panic: panic called with nil argument"},
		{"goexit", func(context.Context, *storage.Leased) error { leave(); return nil }, "handler called runtime.Goexit"},
		{"error that panics", func(context.Context, *storage.Leased) error { return badError{} }, "panic: in Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy = noRetry.Delivery()
				r.cfg.Concurrency = 1
				r.handle("bad", c.run)
				r.handle("good", func(context.Context, *storage.Leased) error { return nil })
				bad := r.enqueue("bad", 3)
				good := r.enqueue("good", 1)[0]
				r.start()
				for _, id := range bad {
					rec := r.wantState(id, storage.Dead, storage.Counters{Attempt: 1})
					if !strings.HasPrefix(rec.Error, c.want) {
						t.Errorf("error %q, want %q", rec.Error, c.want)
					}
					if s := rec.History[0].Stack; !strings.Contains(s, "attempt_test.go") || len(s) > 16<<10 {
						t.Errorf("stack of %d bytes does not show the handler:\n%s", len(s), s)
					} else if !strings.HasPrefix(s, "goroutine ") || strings.Contains(s, "engine.stack(") {
						t.Errorf("stack does not begin where the handler ended:\n%s", s)
					}
				}
				r.wantState(good, storage.Done, storage.Counters{Attempt: 1})
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func explode() { panic("boom") }
func leave()   { runtime.Goexit() }

func TestAttempt_LongErrorsAndStacksAreCut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = noRetry.Delivery()
		r.handle("error", func(context.Context, *storage.Leased) error {
			return errors.New(strings.Repeat("é", 100_000))
		})
		var deep func(n int) int
		deep = func(n int) int {
			if n == 0 {
				panic(strings.Repeat("x", 100_000))
			}
			return deep(n-1) + 1
		}
		r.handle("panic", func(context.Context, *storage.Leased) error { deep(1000); return nil })
		e, p := r.enqueue("error", 1)[0], r.enqueue("panic", 1)[0]
		r.start()
		if n := len(r.job(e).Error); n != 8<<10 {
			t.Errorf("error has %d bytes", n)
		}
		rec := r.job(p)
		if n := len(rec.Error); n != 8<<10 {
			t.Errorf("panic text has %d bytes", n)
		}
		if n := len(rec.History[0].Stack); n == 0 || n > 16<<10 {
			t.Errorf("stack has %d bytes", n)
		}
	})
}

func TestAttempt_Timeout(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = noRetry.Delivery()
		r.cfg.Timeout = 7 * time.Second
		wait := func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return ctx.Err()
		}
		r.handle("worker", wait)
		r.cfg.Handlers["kind"] = engine.Handler{Run: wait, Timeout: 5 * time.Second}
		r.handle("late", func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return nil })
		r.handle("verdict", func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			return &engine.CancelError{Err: ctx.Err()}
		})
		ids := r.add(storage.NewJob{Queue: "q", Kind: "worker"}, storage.NewJob{Queue: "q", Kind: "kind"},
			storage.NewJob{Queue: "q", Kind: "kind", Timeout: 3 * time.Second})
		late, verdict := r.enqueue("late", 1)[0], r.enqueue("verdict", 1)[0]
		r.start()
		pass(20 * time.Second)
		for i, limit := range []string{"7s", "5s", "3s"} {
			rec := r.wantState(ids[i], storage.Dead, storage.Counters{Attempt: 1})
			if want := "timeout of " + limit + " exceeded: context deadline exceeded"; rec.Error != want {
				t.Errorf("error %q, want %q", rec.Error, want)
			}
			if got := rec.History[0].Duration.String(); got != limit {
				t.Errorf("took %v, want %s", got, limit)
			}
		}
		r.wantState(late, storage.Done, storage.Counters{Attempt: 1})
		r.wantState(verdict, storage.Cancelled, storage.Counters{Attempt: 1})
	})
}

func TestAttempt_PolicyPrecedence(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		retries := func(n int) policy.Policy { return policy.Policy{Retries: n, NoDelayRetries: n} }
		r.cfg.Queues = []string{"q", "own"}
		r.cfg.Policy = retries(4).Delivery()
		r.cfg.Settings = map[string]engine.QueueSettings{"own": {Policy: new(retries(3).Delivery())}}
		ofKind := retries(2)
		fail := func(context.Context, *storage.Leased) error { return errOops }
		r.cfg.Handlers["k"] = engine.Handler{Run: fail, Policy: policy.Document{Retry: &ofKind}}
		r.handle("plain", fail)
		ofJob, err := retries(1).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		ids := r.add(
			storage.NewJob{Queue: "own", Kind: "k", Policy: ofJob},
			storage.NewJob{Queue: "own", Kind: "k"},
			storage.NewJob{Queue: "own", Kind: "plain"},
			storage.NewJob{Queue: "q", Kind: "plain"},
		)
		r.start()
		for i, id := range ids {
			r.wantState(id, storage.Dead, storage.Counters{Attempt: i + 2, Retry: i + 1})
		}
	})
}

func TestAttempt_NotRunIfItsStartCannotBeNoted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		broken := true
		r.store.failing(func(op string) error {
			if op == "started" && broken {
				return storage.ErrIO
			}
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Second / 2)
		r.wantState(id, storage.Scheduled, storage.Counters{})
		r.store.failing(nil)
		pass(10 * time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}
