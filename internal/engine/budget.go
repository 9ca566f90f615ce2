package engine

import (
	"math"
	"sync"
	"time"

	"github.com/errandq/errand/policy"
)

// Budget is a retry budget that engines share. Retries that it cannot pay for
// are given a time at which to come back, so that they do not all come at once
// for each token that drips in.
type Budget struct {
	bucket   *policy.Budget
	interval time.Duration // in which the refill by time pays for one retry; herd at most

	mu       sync.Mutex
	promised time.Time // the latest of those times
	deferred int64
}

// herd is the time in which retries come back that no token is in sight for. It
// bounds how long they wait once successes have filled the bucket, and how often
// a retry that waits costs a lease.
const herd = time.Minute

// NewBudget returns a full budget. Without a refill by time, retries come back in
// vain as long as nothing succeeds.
func NewBudget(o policy.BudgetOptions) *Budget {
	b := &Budget{bucket: policy.NewBudget(&o), interval: herd}
	if s := 1 / b.bucket.Options().RetriesPerSecond; s < herd.Seconds() {
		b.interval = time.Duration(math.Ceil(s * float64(time.Second)))
	}
	return b
}

// Options returns the options of the budget.
func (b *Budget) Options() policy.BudgetOptions { return b.bucket.Options() }

// State returns the tokens in the bucket, and how often a retry was put off.
func (b *Budget) State(now time.Time) (tokens float64, deferred int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bucket.Tokens(now), b.deferred
}

// empty reports whether the budget cannot pay for a retry.
func (b *Budget) empty(now time.Time) bool {
	at, ok := b.bucket.Ready(now, false)
	return !ok || at.After(now)
}

// take pays for a retry that is about to start, or returns when it should come
// back. All retries cost the same, as the error of the attempt before is not
// known any more.
func (b *Budget) take(now time.Time, random func() float64) (cost policy.Cost, back time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cost, ok = b.bucket.Take(now, false); ok {
		return cost, time.Time{}, true
	}
	b.deferred++
	back, ok = b.bucket.Ready(now, false)
	if !ok {
		back = now.Add(herd)
	}
	end := latest(back, now.Add(herd))
	// One retry for each token, in turn, as far as can be seen.
	if back = latest(back, b.promised.Add(b.interval)); back.After(end) {
		return 0, now.Add(time.Duration((1 + random()) / 2 * float64(end.Sub(now)))), false
	}
	b.promised = back
	return 0, back, false
}

// pay pays for a, or gives it back. It reports whether it has paid.
func (l *loop) pay(a *attempt, now time.Time) bool {
	if a.again {
		return true
	}
	if a.job.Group != "" && !l.payGroup(a, now) {
		return false
	}
	if a.budget = l.cfg.budgetOf(a); a.budget == nil || a.job.Retry == 0 {
		return true
	}
	cost, back, ok := a.budget.take(now, l.cfg.Rand)
	if ok {
		a.cost = cost
		return true
	}
	a.refundGroup()
	due := l.clock().Add(back.Sub(now))
	l.cfg.Logger.Debug("errand: retry put off, the budget is empty", l.attrs(a, "due", due)...)
	l.leases.release(a)
	l.giveBack(a, due)
	return false
}

// unpay takes back what pay has paid for an attempt whose handler was not called.
func (a *attempt) unpay() {
	if a.budget != nil {
		a.settle()
	}
	a.refundGroup()
}

// settle pays in what the end of an attempt is worth. An attempt that neither
// succeeded nor failed gets its tokens back, as does one that could not reach the
// other side: whether it costs a retry is not known yet.
func (a *attempt) settle() {
	switch v := &a.verdict; {
	case v.kind == verdictDone:
		a.budget.bucket.Succeeded(a.cost)
	case v.kind == verdictDecode, v.kind == verdictFailed && v.class != policy.Unavailable:
	default:
		a.budget.bucket.Return(a.cost)
	}
	a.budget, a.cost = nil, 0
}

// budgetOf returns the budget of the kind, else that of the queue.
func (c *Config) budgetOf(a *attempt) *Budget {
	if a.handler.Budget != nil {
		return a.handler.Budget
	}
	return c.settings(a.job.Queue).Budget
}
