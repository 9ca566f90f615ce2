package errand

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
)

// BudgetState is what a retry budget holds.
type BudgetState struct {
	// Queue or Kind says whose it is; the other one is empty.
	Queue, Kind string
	// Tokens of Capacity are in the bucket.
	Tokens, Capacity float64
	// Deferred is how many times a retry was put off for lack of tokens.
	Deferred int64
}

// Budgets gives the state of the retry budgets in this process: those of
// queues, see [QueueOptions], and of kinds that a worker of q has a handler
// for, see [HandlerOptions]; sorted by queue, then kind.
func (q *Queue) Budgets() []BudgetState {
	now := time.Now()
	q.limits.mu.Lock()
	defer q.limits.mu.Unlock()
	var all []BudgetState
	for o, b := range q.limits.budgets {
		s := BudgetState{Queue: o.queue, Kind: o.kind, Capacity: b.Options().Capacity}
		s.Tokens, s.Deferred = b.State(now)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b BudgetState) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// owner is the queue or the kind that a limit is for; the other one is empty.
type owner struct{ queue, kind string }

// limits are what the workers of a queue share, so that a limit is one for the
// whole process.
type limits struct {
	mu        sync.Mutex
	budgets   map[owner]*engine.Budget
	throttles map[owner]*engine.Throttle
}

// budget gives the budget of o, or nil if it has none. Whoever comes with
// other figures than those before gets a new one, as after a change of mind.
func (l *limits) budget(o owner, options *policy.BudgetOptions) *engine.Budget {
	if options == nil {
		return nil
	}
	fresh := engine.NewBudget(*options)
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.budgets[o]; b != nil && b.Options() == fresh.Options() {
		return b
	}
	if l.budgets == nil {
		l.budgets = map[owner]*engine.Budget{}
	}
	l.budgets[o] = fresh
	return fresh
}

// throttle gives the throttle of o by the section of its policy, or nil if it
// has none; otherwise as budget does.
func (l *limits) throttle(o owner, section *policy.Throttle) *engine.Throttle {
	if section == nil || section.MaxReceivesPerSecond == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.throttles[o]; t != nil && t.Rate() == section.MaxReceivesPerSecond {
		return t
	}
	if l.throttles == nil {
		l.throttles = map[owner]*engine.Throttle{}
	}
	t := engine.NewThrottle(section.MaxReceivesPerSecond)
	l.throttles[o] = t
	return t
}
