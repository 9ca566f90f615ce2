package errand

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
)

// BudgetState is the state of a retry budget.
type BudgetState struct {
	// Queue or Kind names the owner of the budget; the other one is empty.
	Queue string `json:"queue,omitempty"`
	Kind  string `json:"kind,omitempty"`
	// Tokens is how many tokens are left, and Capacity how many there can be.
	Tokens   float64 `json:"tokens"`
	Capacity float64 `json:"capacity"`
	// Deferred counts the retries that were put off for lack of tokens.
	Deferred int64 `json:"deferred"`
}

// Budgets returns the state of the retry budgets in this process, sorted by
// queue, then kind. They are the budgets of queues, see [QueueOptions], and of
// the kinds that a worker of q handles, see [HandlerOptions].
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

// limits are the budgets and throttles that the workers of a queue share: a limit
// holds for the whole process.
type limits struct {
	mu        sync.Mutex
	budgets   map[owner]*engine.Budget
	throttles map[owner]*engine.Throttle
	groups    map[string]*engine.GroupThrottle // by queue
}

// budget returns the budget of o, or nil if options is nil. Other options than
// in the call before replace the budget by a new one.
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

// throttle returns the throttle of o by a section of its policy, or nil if the
// section sets no rate. Another rate than in the call before replaces it.
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
