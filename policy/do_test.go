package policy_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/policy"
)

var errDown = errors.New("down")

// caller fails as often as there are errors, and notes when it was called.
type caller struct {
	begin  time.Time
	at     []time.Duration
	errs   []error
	always error
}

func (c *caller) call(context.Context) error {
	if c.begin.IsZero() {
		c.begin = time.Now()
	}
	c.at = append(c.at, time.Since(c.begin))
	if len(c.errs) == 0 {
		return c.always
	}
	err := c.errs[0]
	c.errs = c.errs[1:]
	return err
}

func (c *caller) expect(t *testing.T, at ...time.Duration) {
	t.Helper()
	if !slices.Equal(c.at, at) {
		t.Errorf("called at %v, want %v", c.at, at)
	}
}

var steady = policy.Policy{MinDelay: time.Second, MaxDelay: 4 * time.Second, Retries: 3, Backoff: policy.Doubling, Jitter: policy.NoJitter}

func TestDo(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name   string
		errs   []error
		always error
		at     []time.Duration
		want   []error
	}{
		{"success", nil, nil, []time.Duration{0}, nil},
		{"success at last", []error{errDown, errDown, errDown}, nil, []time.Duration{0, s, 3 * s, 7 * s}, nil},
		{"exhausted", nil, errDown, []time.Duration{0, s, 3 * s, 7 * s}, []error{policy.ErrExhausted, errDown}},
		{"permanent", []error{errDown}, policy.Mark(errors.ErrUnsupported, policy.Permanent), []time.Duration{0, s}, []error{errors.ErrUnsupported}},
		{"unavailable", []error{policy.Mark(errDown, policy.Unavailable)}, nil, []time.Duration{0, s}, nil},
		{"hint", []error{&policy.StatusError{Status: 503, After: 10 * s}}, nil, []time.Duration{0, 10500 * time.Millisecond}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := caller{errs: test.errs, always: test.always}
				r := policy.Retrier{Policy: steady, Rand: func() float64 { return 0.5 }}
				err := r.Do(t.Context(), c.call)
				if (err == nil) != (test.want == nil) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
				}
				c.expect(t, test.at...)
			})
		})
	}
}

func TestDo_WithoutRetriesGivesTheErrorAsItIs(t *testing.T) {
	//nolint:errorlint // the very same error
	if err := policy.Do(t.Context(), policy.Policy{}, (&caller{always: errDown}).call); err != errDown {
		t.Errorf("got %v", err)
	}
}

func TestDo_JitterShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := caller{errs: []error{errDown}}
		r := policy.Retrier{Policy: steady, Rand: func() float64 { return 0.5 }}
		r.Policy.Jitter = policy.FullJitter
		if err := r.Do(t.Context(), c.call); err != nil {
			t.Error(err)
		}
		c.expect(t, 0, time.Second/2)
	})
}

func TestDo_ContextEnds(t *testing.T) {
	cause := errors.New("cause")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(1500*time.Millisecond, func() { cancel(cause) })
		c := caller{always: errDown}
		err := policy.Do(ctx, steady, c.call)
		if !errors.Is(err, cause) || !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
		c.expect(t, 0, time.Second)
		if got := time.Since(c.begin); got != 1500*time.Millisecond {
			t.Errorf("returned after %v", got)
		}

		// Ended before the first attempt: there is none.
		c = caller{}
		if err := policy.Do(ctx, steady, c.call); !errors.Is(err, cause) || len(c.at) != 0 {
			t.Errorf("got %v after calls at %v", err, c.at)
		}
	})
}

// A delay that the deadline would cut is not begun.
func TestDo_DeadlineBeforeTheDelayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		c := caller{always: errDown}
		err := policy.Do(ctx, steady, c.call)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
		c.expect(t, 0, time.Second)
		if got := time.Since(c.begin); got != time.Second {
			t.Errorf("returned after %v", got)
		}
	})
}

func TestRetrier_ThrottledPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := policy.Policy{MinDelay: time.Minute, MaxDelay: time.Minute, Retries: 9, Jitter: policy.NoJitter}
		c := caller{errs: []error{errDown, status(429), errDown}}
		r := policy.Retrier{Policy: steady, ThrottledPolicy: &slow}
		if err := r.Do(t.Context(), c.call); err != nil {
			t.Error(err)
		}
		c.expect(t, 0, time.Second, 61*time.Second, 65*time.Second)
	})
}

func TestRetrier_Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := policy.NewBudget(&policy.BudgetOptions{Capacity: 10, RetriesPerSecond: -1})
		r := policy.Retrier{Policy: steady, Budget: budget}
		c := caller{always: errDown}
		err := r.Do(t.Context(), c.call)
		if !errors.Is(err, policy.ErrNoBudget) || !errors.Is(err, errDown) || len(c.at) != 3 {
			t.Errorf("got %v after calls at %v", err, c.at)
		}
		// First attempts need no tokens, and their successes pay in.
		for range 5 {
			if err := r.Do(t.Context(), (&caller{}).call); err != nil {
				t.Error(err)
			}
		}
		// A retry that succeeds pays back what it cost.
		if err := r.Do(t.Context(), (&caller{errs: []error{errDown}}).call); err != nil {
			t.Error(err)
		}
		if got := budget.Tokens(time.Now()); got != 5 {
			t.Errorf("%v tokens", got)
		}
		// So does one that was not started; a timeout costs double.
		budget.Succeeded(5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := r.Do(ctx, (&caller{always: context.DeadlineExceeded}).call); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if got := budget.Tokens(time.Now()); got != 10 {
			t.Errorf("%v tokens", got)
		}
	})
}

type limiter struct {
	waits int
	err   error // from the second attempt on, if only is set
	only  bool
}

func (l *limiter) Wait(context.Context) error {
	if l.waits++; l.only && l.waits == 1 {
		return nil
	}
	return l.err
}

func TestRetrier_LimiterAndObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{}
		var seen []error
		r := policy.Retrier{Policy: steady, Limiter: l, Observe: func(retry int, err error) {
			if retry != len(seen) {
				t.Errorf("retry %d is observed after %d", retry, len(seen))
			}
			seen = append(seen, err)
		}}
		if err := r.Do(t.Context(), (&caller{errs: []error{errDown}}).call); err != nil {
			t.Error(err)
		}
		if l.waits != 2 || !slices.Equal(seen, []error{errDown, nil}) {
			t.Errorf("waited %d times, observed %v", l.waits, seen)
		}
		// The tokens for a retry that the limiter keeps from starting go back.
		limited := policy.Retrier{
			Policy: steady, Limiter: &limiter{err: errors.ErrUnsupported, only: true},
			Budget: policy.NewBudget(&policy.BudgetOptions{RetriesPerSecond: -1}),
		}
		if err := limited.Do(t.Context(), (&caller{always: errDown}).call); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
		if got := limited.Budget.Tokens(time.Now()); got != 500 {
			t.Errorf("%v tokens", got)
		}
		l.err = errors.New("limited")
		if err := r.Do(t.Context(), (&caller{}).call); !errors.Is(err, l.err) || len(seen) != 2 {
			t.Errorf("got %v", err)
		}
	})
}
