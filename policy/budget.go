package policy

import (
	"cmp"
	"math"
	"sync"
	"time"
)

// Cost is the number of tokens that an attempt has taken from a [Budget].
type Cost float64

// Budget is a retry budget: a bucket of tokens that retries take from and
// successes pay into, so that retries stay a small part of all attempts while
// the other side is down. It limits retries only, never first attempts, and
// is meant to be shared by all work for the same other side.
//
// The defaults are those of the standard mode of the AWS SDKs, except for the
// refill by time. In a durable queue every job may be a retry; without a refill by
// time nothing would ever pay in again.
//
// A Budget is safe for concurrent use. It has no clock of its own: the time is
// passed in. A time before the last one counts as the last one.
type Budget struct {
	options BudgetOptions

	mu     sync.Mutex
	tokens float64
	last   time.Time // up to which the refill by time is in tokens
}

// BudgetOptions configure a [Budget].
type BudgetOptions struct {
	// Capacity is the most tokens that the bucket holds. It is full at first. If
	// zero, 500.
	Capacity float64
	// RetryCost is what a retry takes. If zero, 5.
	RetryCost float64
	// TimeoutCost is what a retry after a timeout takes. If zero, 10.
	TimeoutCost float64
	// FirstRefund is what a success at the first attempt pays in. A retry that
	// succeeds pays in what it cost. If zero, 1; if negative, nothing.
	FirstRefund float64
	// RetriesPerSecond is the refill by time, in retries at RetryCost.
	// If zero, 1; if negative, there is none.
	RetriesPerSecond float64
}

// NewBudget returns a full budget. Nil options are zero options. Costs are
// limited to the capacity: a retry that cost more could never start.
func NewBudget(options *BudgetOptions) *Budget {
	var o BudgetOptions
	if options != nil {
		o = *options
	}
	o.Capacity = cmp.Or(o.Capacity, 500)
	o.RetryCost = min(cmp.Or(o.RetryCost, 5), o.Capacity)
	o.TimeoutCost = min(cmp.Or(o.TimeoutCost, 10), o.Capacity)
	o.FirstRefund = max(0, cmp.Or(o.FirstRefund, 1))
	o.RetriesPerSecond = max(0, cmp.Or(o.RetriesPerSecond, 1))
	return &Budget{options: o, tokens: o.Capacity}
}

// Options returns the options of b, with defaults in the place of zeros.
func (b *Budget) Options() BudgetOptions { return b.options }

// Take takes the tokens for a retry that is about to start. Timeout reports whether
// the attempt before it timed out. If there are too few tokens, Take takes none and
// is not ok. The retry must not start then; [Budget.Ready] returns when to ask again.
func (b *Budget) Take(now time.Time, timeout bool) (cost Cost, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	want := b.cost(timeout)
	if b.tokens < want {
		return 0, false
	}
	b.tokens -= want
	return Cost(want), true
}

// Ready returns the earliest time at which Take can be ok if nothing is paid in
// before; that may be now. Ready is not ok if there is no such time, as without a
// refill by time.
func (b *Budget) Ready(now time.Time, timeout bool) (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	missing := b.cost(timeout) - b.tokens
	if missing <= 0 {
		return now, true
	}
	rate := b.options.RetriesPerSecond * b.options.RetryCost
	if rate == 0 {
		return time.Time{}, false
	}
	// Rounded up, so that the tokens are there when the time has come.
	wait := math.Ceil(missing / rate * float64(time.Second))
	return b.last.Add(time.Duration(min(wait+1, math.MaxInt64/2))), true
}

// Succeeded pays in for an attempt that succeeded: what it cost, if it was a
// retry, and FirstRefund if it cost nothing.
func (b *Budget) Succeeded(cost Cost) {
	b.pay(cmp.Or(float64(cost), b.options.FirstRefund))
}

// Return pays back the tokens for a retry that was not started after all.
func (b *Budget) Return(cost Cost) { b.pay(float64(cost)) }

// Tokens returns the number of tokens in the bucket, for display.
func (b *Budget) Tokens(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	return b.tokens
}

func (b *Budget) pay(tokens float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.options.Capacity, b.tokens+tokens)
}

func (b *Budget) cost(timeout bool) float64 {
	if timeout {
		return b.options.TimeoutCost
	}
	return b.options.RetryCost
}

func (b *Budget) refill(now time.Time) {
	if b.last.IsZero() {
		b.last = now
	}
	if d := now.Sub(b.last); d > 0 {
		b.tokens = min(b.options.Capacity, b.tokens+d.Seconds()*b.options.RetriesPerSecond*b.options.RetryCost)
		b.last = now
	}
}
