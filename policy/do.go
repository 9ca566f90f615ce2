package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Errors that end the repetition of a call. They are wrapped together with the last
// error of the call.
var (
	// ErrExhausted: the policy has no retry left.
	ErrExhausted = errors.New("policy: retries exhausted")
	// ErrNoBudget: the retry budget has no tokens left.
	ErrNoBudget = errors.New("policy: retry budget is empty")
)

// Do calls fn until it succeeds, by a policy; it is Retrier{Policy: p}.Do. Use it for
// calls inside a handler or without a queue. A call that has to survive the process
// belongs into a job.
func Do(ctx context.Context, p Policy, fn func(context.Context) error) error {
	return (&Retrier{Policy: p}).Do(ctx, fn)
}

// Retrier repeats calls by a policy. The zero Retrier calls once. It is safe for
// concurrent use as long as its fields are not changed.
//
// Its loop is the one that AWS describes for throttled clients of SNS: wait for a
// send token, call, do the bookkeeping, stop if the error is not retryable, stop at
// the last attempt, stop without retry quota, back off.
type Retrier struct {
	Policy Policy
	// ThrottledPolicy replaces Policy after errors that are Throttled; the retry
	// index goes on counting.
	// If nil, Policy.
	ThrottledPolicy *Policy
	// Classify returns the class of an error, which decides whether to try again.
	// If nil, the function Classify.
	Classify func(error) Class
	// Limiter delays every attempt.
	// If nil, attempts are not limited.
	Limiter Limiter
	// Budget pays for retries; share one among all Retriers for the same
	// other side. If nil, retries are free.
	Budget *Budget
	// Observe is called after every attempt with its error, nil for success;
	// to log it, or to adjust the rate of Limiter.
	// If nil, nothing is called.
	Observe func(retry int, err error)
	// Now is the clock for Budget and for dates.
	// If nil, time.Now.
	Now func() time.Time
	// Sleep waits, or returns the cause as soon as the context ends.
	// If nil, a timer.
	Sleep func(context.Context, time.Duration) error
	// Rand returns random numbers in [0, 1) for the jitter.
	// If nil, rand.Float64.
	Rand func() float64
}

// Limiter limits the rate of attempts; [golang.org/x/time/rate.Limiter] is one.
type Limiter interface {
	// Wait blocks until an attempt may be made. It returns an error if that will not
	// be before ctx ends.
	Wait(ctx context.Context) error
}

// Do calls fn until it succeeds, and then returns nil. It gives up when there is no
// point in another attempt:
//
//   - The error is Permanent. Do returns it as it is. Errors of all other classes are
//     repeated, those that are Unavailable by the same policy as Retryable ones.
//   - No retry or no token is left. Do returns an error that wraps the last one of
//     fn and ErrExhausted or ErrNoBudget. If the policy has no retries at all, Do
//     returns fn's error as it is.
//   - The policy has retries that [Policy.Validate] refuses, as all would be made at once.
//     Do returns that error, and does not call fn.
//   - ctx has ended, or would end before the delay does. Do returns an error that
//     wraps the cause, or [context.DeadlineExceeded], and the last error of fn.
//
// The delay runs from the end of the attempt. It is not shorter than the hint of the
// error, see [RetryAfter].
func (r *Retrier) Do(ctx context.Context, fn func(context.Context) error) error {
	r = r.withDefaults()
	for _, p := range []*Policy{&r.Policy, r.ThrottledPolicy} {
		if p != nil && len(p.checkHaste()) > 0 {
			return p.Validate()
		}
	}
	var last error
	var cost Cost
	for retry := 0; ; retry++ {
		if err := r.admit(ctx); err != nil {
			r.giveBack(cost)
			return ended(err, last, retry)
		}
		last = fn(ctx)
		r.Observe(retry, last)
		if last == nil {
			if r.Budget != nil {
				r.Budget.Succeeded(cost)
			}
			return nil
		}
		class := r.Classify(last)
		if class == Permanent {
			return last
		}
		p := r.Policy
		if class == Throttled && r.ThrottledPolicy != nil {
			p = *r.ThrottledPolicy
		}
		phase, delay, ok := p.Next(retry)
		if !ok {
			if retry == 0 {
				return last
			}
			return ended(ErrExhausted, last, retry+1)
		}
		if cost, ok = r.take(last); !ok {
			return ended(ErrNoBudget, last, retry+1)
		}
		delay = p.Jitter.Apply(phase, delay, r.Rand())
		if hint, ok := RetryAfter(last); ok {
			delay = Floor(delay, hint, r.Rand())
		}
		if err := r.wait(ctx, delay); err != nil {
			r.giveBack(cost)
			return ended(err, last, retry+1)
		}
	}
}

func (r *Retrier) withDefaults() *Retrier {
	c := *r
	if c.Classify == nil {
		c.Classify = Classify
	}
	if c.Observe == nil {
		c.Observe = func(int, error) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return &c
}

// admit waits until an attempt may be made.
func (r *Retrier) admit(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.Limiter == nil {
		return nil
	}
	return r.Limiter.Wait(ctx)
}

// take pays for the retry after err.
func (r *Retrier) take(err error) (Cost, bool) {
	if r.Budget == nil {
		return 0, true
	}
	return r.Budget.Take(r.Now(), isTimeout(err))
}

func (r *Retrier) giveBack(cost Cost) {
	if r.Budget != nil {
		r.Budget.Return(cost)
	}
}

// wait sleeps, unless ctx would end before.
func (r *Retrier) wait(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(r.Now()) < d {
		return context.DeadlineExceeded
	}
	if d <= 0 {
		return nil
	}
	return r.Sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isTimeout reports whether err is the end of a deadline, of whatever kind.
func isTimeout(err error) bool {
	type timeout interface {
		error
		Timeout() bool
	}
	e, ok := errors.AsType[timeout](err)
	return ok && e.Timeout()
}

// ended returns the error that says why there is no further attempt.
func ended(why, last error, attempts int) error {
	if last == nil {
		return why
	}
	return fmt.Errorf("%w after %d attempts: %w", why, attempts, last)
}
