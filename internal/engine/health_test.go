package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// storeError is an error of a store. waits is the context of the transaction that was open.
type storeError struct {
	error
	of    *troubledStore
	waits context.Context
}

func (e *storeError) Unwrap() error { return e.error }

// troubledStore knows its errors.
type troubledStore struct{ *spy }

func (s *troubledStore) Trouble(err error) (bool, context.Context) {
	e, ok := errors.AsType[*storeError](err)
	if !ok || e.of != s {
		return false, nil
	}
	return true, e.waits
}

// What the engine's own store could not do is no failure of the job, whatever wraps it. The lane
// goes on, and the job tries again.
//
//errand:shows a full disk | | an error of the queue's own file that a handler returns, wrapped in nine ways, uses up nothing
func TestHealth_TroubleOfAnAttempt(t *testing.T) {
	for _, trouble := range []error{storage.ErrFull, storage.ErrBusy, storage.ErrIO} {
		for name, fail := range map[string]func(err error) error{
			"plain":       func(err error) error { return err },
			"wrapped":     func(err error) error { return fmt.Errorf("save: %w", err) },
			"joined":      func(err error) error { return errors.Join(errOops, err) },
			"permanent":   func(err error) error { return &engine.PermanentError{Err: err} },
			"retry after": func(err error) error { return &engine.RetryAfterError{After: time.Hour, Err: err} },
			"unavailable": func(err error) error { return &engine.UnavailableError{Err: err} },
			"marked":      func(err error) error { return policy.Mark(err, policy.Permanent) },
			"own policy":  func(err error) error { return &engine.PolicyError{Err: err} },
			"not decoded": func(err error) error { return &engine.DecodeError{Err: err} },
			"panic":       func(err error) error { panic(fmt.Errorf("save: %w", err)) },
		} {
			t.Run(fmt.Sprint(trouble, " ", name), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.cfg.Policy = noRetry.Delivery()
					r.cfg.OnDeath = func(*storage.Leased, *storage.Finish, time.Time) *storage.NewJob { return nil }
					own := &troubledStore{r.store}
					r.cfg.Store = own
					began := time.Now()
					var at []time.Duration
					r.handle("k", func(context.Context, *storage.Leased) error {
						if at = append(at, time.Since(began)); len(at) > 8 {
							return nil
						}
						return fail(&storeError{error: trouble, of: own})
					})
					id := r.enqueue("k", 1)[0]
					r.start()
					if rec := r.job(id); rec.State != storage.Scheduled || rec.Error == "" {
						t.Errorf("the job is %s with the error %q", rec.State, rec.Error)
					}
					pass(10 * time.Minute)
					s := time.Second
					if want := []time.Duration{0, s, 3 * s, 7 * s, 15 * s, 31 * s, 63 * s, 127 * s, 255 * s}; !slices.Equal(at, want) {
						t.Errorf("tried at %v, want %v", at, want)
					}
					if rec := r.wantState(id, storage.Done, storage.Counters{Attempt: 9}); len(rec.History) > 0 {
						t.Errorf("history %v", rec.History)
					}
					if held := r.held(); len(held) > 0 {
						t.Errorf("held: %v", held)
					}
					if len(r.logs.with("could not use the queue's database")) == 0 {
						t.Error("it was not logged")
					}
				})
			})
		}
	}
}

// Another store is as any other side, and to have waited for the own transaction is a mistake of
// the handler.
func TestHealth_TroubleThatCounts(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context, own *troubledStore) error{
		"of another store": func(context.Context, *troubledStore) error {
			return &storeError{error: storage.ErrFull, of: &troubledStore{}}
		},
		"of nobody":           func(context.Context, *troubledStore) error { return storage.ErrFull },
		"its own transaction": func(ctx context.Context, own *troubledStore) error { return &storeError{storage.ErrBusy, own, ctx} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy = noRetry.Delivery()
				own := &troubledStore{r.store}
				r.cfg.Store = own
				r.handle("k", func(ctx context.Context, _ *storage.Leased) error { return fail(ctx, own) })
				id := r.enqueue("k", 1)[0]
				r.start()
				r.wantState(id, storage.Dead, storage.Counters{Attempt: 1})
			})
		})
	}
}

// The worker starts nothing while its own writes fail in the same way, and not for longer.
func TestHealth_TroubleHasTheWorkerWait(t *testing.T) {
	const first = 20 // attempt that meets it
	for _, fails := range []error{storage.ErrFull, nil} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy, r.cfg.Concurrency = noRetry.Delivery(), 1
				own := &troubledStore{r.store}
				r.cfg.Store = own
				var runs atomic.Int32
				r.handle("k", func(context.Context, *storage.Leased) error {
					if runs.Add(1) != first {
						return nil
					}
					r.store.failing(func(string) error { return fails })
					return &storeError{error: storage.ErrFull, of: own}
				})
				r.enqueue("k", 100)
				r.start()
				pass(5 * time.Second)
				if n := runs.Load(); (n == first) != (fails != nil) {
					t.Errorf("%d attempts began, of which number %d could not write", n, first)
				}
				r.store.failing(nil)
				pass(10 * time.Second)
				if n := r.count(storage.Done); n != 100 {
					t.Errorf("%d jobs are done, want 100", n)
				}
			})
		})
	}
}

// MaxUnavailable bounds for how long a job may meet errors of the store: one that waits for a
// transaction of its handler that errand does not know of meets them for ever.
func TestHealth_TroubleForLong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		own := &troubledStore{r.store}
		r.cfg.Store = own
		r.cfg.Handlers["k"] = engine.Handler{MaxUnavailable: time.Hour, Run: func(context.Context, *storage.Leased) error {
			return &storeError{error: storage.ErrBusy, of: own}
		}}
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(50 * time.Minute)
		if rec := r.job(id); rec.State == storage.Dead || rec.Retry > 0 {
			t.Errorf("before it is %s %+v", rec.State, rec.Counters)
		}
		pass(20 * time.Minute)
		if rec := r.job(id); rec.State != storage.Dead || rec.Reason != storage.ReasonUnavailable || rec.Error == "" {
			t.Errorf("after an hour it is %s, %s, %q", rec.State, rec.Reason, rec.Error)
		}
	})
}

// A job that is old for another reason does not die of an error of the store.
func TestHealth_TroubleOfAnOldJob(t *testing.T) {
	for _, trouble := range []error{storage.ErrFull, storage.ErrBusy, storage.ErrIO} {
		bubble(t, func(t *testing.T, r *rig) {
			own := &troubledStore{r.store}
			r.cfg.Store = own
			runs := 0
			r.cfg.Handlers["k"] = engine.Handler{MaxUnavailable: time.Hour, Run: func(context.Context, *storage.Leased) error {
				if runs++; runs > 3 {
					return nil
				}
				return &storeError{error: trouble, of: own}
			}}
			id := r.enqueue("k", 1)[0]
			pass(2 * time.Hour)
			r.start()
			pass(time.Minute)
			r.wantState(id, storage.Done, storage.Counters{Attempt: 4})
		})
	}
}

// The context of a call of many jobs leads to its transactions too.
func TestHealth_TroubleOfABatch(t *testing.T) {
	for name, of := range map[string]func(ctx context.Context, items []engine.Item) context.Context{
		"the call": func(ctx context.Context, _ []engine.Item) context.Context { return ctx },
		"a job":    func(_ context.Context, items []engine.Item) context.Context { return items[1].Ctx },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy = noRetry.Delivery()
				own := &troubledStore{r.store}
				r.cfg.Store = own
				r.many("k", engine.Batch{Max: 3}, func(ctx context.Context, items []engine.Item) {
					for i := range items {
						items[i].Err = &storeError{storage.ErrBusy, own, of(ctx, items)}
					}
				})
				ids := r.enqueue("k", 3)
				r.start()
				for _, id := range ids {
					r.wantState(id, storage.Dead, storage.Counters{Attempt: 1})
				}
			})
		})
	}
}
