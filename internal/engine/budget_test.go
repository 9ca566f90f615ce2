package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// atOnce is a policy of n retries without delay, so that only the budget keeps
// them apart.
func atOnce(n int) policy.Topic { return policy.Policy{Retries: n, NoDelayRetries: n}.Delivery() }

// single is a budget of one token, or what the retry costs, a second.
func single(perSecond float64) *engine.Budget {
	return engine.NewBudget(policy.BudgetOptions{Capacity: 5, FirstRefund: -1, RetriesPerSecond: perSecond})
}

// returned counts the leases that were given back unspent.
func (s *spy) returned() (n int) {
	for _, c := range s.since(0) {
		for _, f := range c.x.Finish {
			if f.Outcome == storage.OutcomeReturned {
				n++
			}
		}
	}
	return n
}

// With the budget empty nothing dies and nothing is used up; yet what always
// fails gets to the dead letters, at the rate of the refill.
func TestBudget_RetriesAtTheRateOfTheRefill(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const jobs, retries = 20, 3
		r.cfg.Policy = atOnce(retries)
		var s starts // of retries
		r.cfg.Handlers["k"] = engine.Handler{Budget: single(2), Run: func(ctx context.Context, job *storage.Leased) error {
			if job.Retry > 0 {
				_ = s.run(ctx, job)
			}
			return errOops
		}}
		ids := r.enqueue("k", jobs)
		r.start()
		pass(500*time.Millisecond - 1) // the bucket held one retry
		if n := s.n(); n != 1 {
			t.Errorf("%d retries at once, want 1", n)
		}
		for _, id := range ids {
			if rec := r.job(id); rec.State != storage.Scheduled || rec.Attempt != rec.Retry || rec.Retry < 1 || rec.Retry > 2 {
				t.Errorf("job is %s %+v", rec.State, rec.Counters)
			}
		}
		pass(9500 * time.Millisecond)
		if n := s.n(); n < 18 || n > 20 {
			t.Errorf("%d retries after 10 s, want about 20", n)
		}
		pass(22 * time.Second)
		for _, id := range ids {
			r.wantState(id, storage.Dead, storage.Counters{Attempt: retries + 1, Retry: retries})
		}
		if n := s.n(); n != jobs*retries {
			t.Errorf("%d retries, want %d", n, jobs*retries)
		}
		for i, at := range s.at[1:] {
			if d := at.Sub(s.at[i]); d < 500*time.Millisecond {
				t.Errorf("a retry %v after the one before, want at least 500ms", d)
			}
		}
	})
}

// Many retries that wait are not leased again and again, and come within a
// minute once there is something to pay them.
func TestBudget_AHerdWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const jobs = 200
		r.store.alone = true // or it would look for dead holders
		r.cfg.Policy = atOnce(1)
		budget := engine.NewBudget(policy.BudgetOptions{Capacity: 50_000, FirstRefund: 100, RetriesPerSecond: 0.001, RetryCost: 50_000})
		fail := func(_ context.Context, job *storage.Leased) error {
			if job.Retry == 0 {
				return errOops
			}
			return nil
		}
		r.cfg.Handlers["k"] = engine.Handler{Budget: budget, Run: fail}
		r.cfg.Handlers["good"] = engine.Handler{Budget: budget, Run: func(context.Context, *storage.Leased) error { return nil }}
		r.cfg.Handlers["drain"] = engine.Handler{Budget: budget, Run: func(_ context.Context, job *storage.Leased) error { return errOops }}
		r.enqueue("drain", 1)
		r.start() // its retry has taken all there was
		ids := r.enqueue("k", jobs)
		if tokens, deferred := budget.State(time.Now()); tokens > 1 || deferred != jobs {
			t.Errorf("%v tokens, %d put off, want none and %d", tokens, deferred, jobs)
		}
		n := r.store.returned()
		pass(time.Hour)
		n = r.store.returned() - n
		// Refilled after 1,000 s, the first retry pays for the next, and so on.
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 2, Retry: 1})
		}
		if n > 40*jobs {
			t.Errorf("%d leases were given back: every job more than every 30 s", n)
		}
		calls := r.store.count()
		pass(time.Hour)
		if n := r.store.count() - calls; n > 10 {
			t.Errorf("%d calls of the store in an hour of rest", n)
		}
	})
}

func TestBudget_PaysBack(t *testing.T) {
	end := map[string]func() error{
		"done":     func() error { return nil },
		"fails":    func() error { return errOops },
		"panics":   func() error { panic("oops") },
		"is wrong": func() error { return &engine.PermanentError{} },
		"snoozes":  func() error { return &engine.SnoozeError{For: time.Hour} },
		"cancels":  func() error { return &engine.CancelError{} },
	}
	for _, c := range []struct {
		end   string
		retry bool
		want  float64 // of 10 tokens
	}{
		{"done", false, 12}, {"is wrong", false, 10}, {"snoozes", false, 10}, {"cancels", false, 10},
		{"done", true, 10}, {"fails", true, 5}, {"panics", true, 5}, {"is wrong", true, 5}, {"snoozes", true, 10}, {"cancels", true, 10},
	} {
		bubble(t, func(t *testing.T, r *rig) {
			// Nearly no refill by time, so that the figures are round.
			budget := engine.NewBudget(policy.BudgetOptions{Capacity: 20, RetryCost: 5, FirstRefund: 2, RetriesPerSecond: 1e-9})
			r.cfg.Settings = map[string]engine.QueueSettings{"q": {Policy: new(atOnce(1)), Budget: budget}}
			r.handle("spends", func(context.Context, *storage.Leased) error { return errOops })
			r.handle("k", func(_ context.Context, job *storage.Leased) error {
				if c.retry && job.Retry == 0 {
					return errOops
				}
				return end[c.end]()
			})
			r.enqueue("spends", 2)
			r.start()
			r.enqueue("k", 1)
			if got, _ := budget.State(time.Now()); got < c.want-0.01 || got > c.want+0.01 {
				t.Errorf("%s, retry %v: %v tokens are left, want %v", c.end, c.retry, got, c.want)
			}
		})
	}
}

// A kind's budget goes before that of its queue.
func TestBudget_OfTheKindOrTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ofKind, ofQueue := single(1e-9), single(1e-9)
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {Policy: new(atOnce(1)), Budget: ofQueue}}
		fail := func(context.Context, *storage.Leased) error { return errOops }
		r.cfg.Handlers["own"] = engine.Handler{Run: fail, Budget: ofKind}
		r.handle("plain", fail)
		r.enqueue("own", 1)
		r.start()
		for i, b := range []*engine.Budget{ofKind, ofQueue} {
			if tokens, _ := b.State(time.Now()); tokens > 1 != (i == 1) {
				t.Errorf("budget %d has %v tokens after a retry of the kind", i, tokens)
			}
		}
		r.enqueue("plain", 1)
		if tokens, _ := ofQueue.State(time.Now()); tokens > 1 {
			t.Errorf("the queue's budget has %v tokens after a retry of another kind", tokens)
		}
	})
}

func TestBudget_IsSharedByEngines(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		budget := single(1)
		var retries starts
		fail := func(ctx context.Context, job *storage.Leased) error {
			if job.Retry > 0 {
				_ = retries.run(ctx, job)
			}
			return errOops
		}
		other := r.another()
		for _, r := range []*rig{r, other} {
			r.cfg.Policy = atOnce(100)
			r.cfg.Handlers["k"] = engine.Handler{Run: fail, Budget: budget}
			r.enqueue("k", 8)
		}
		r.start()
		other.start()
		pass(time.Minute)
		if n := retries.n(); n < 58 || n > 62 {
			t.Errorf("%d retries in a minute, want 60", n)
		}
	})
}

// A suspect that cannot be paid for leaves the turnstile to the next.
func TestBudget_Suspect(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		done := func(context.Context, *storage.Leased) error { return nil }
		budget := engine.NewBudget(policy.BudgetOptions{Capacity: 5, RetriesPerSecond: 0.1})
		spender := r.another()
		spender.cfg.Policy = atOnce(1)
		spender.cfg.Handlers["spends"] = engine.Handler{Budget: budget, Run: func(context.Context, *storage.Leased) error { return errOops }}
		r.enqueue("spends", 1)
		spender.start()
		r.cfg.Handlers["paid"] = engine.Handler{Budget: budget, Run: done}
		r.handle("free", done)

		paid := r.enqueue("paid", 1)
		res, err := r.app.Exchange(t.Context(), time.Now(), storage.Exchange{
			LeaseDuration: lease, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"paid"}, N: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.app.Exchange(t.Context(), time.Now(), storage.Exchange{
			LeaseDuration: lease, Finish: []storage.Finish{{Lease: res.Leased[0].Lease, Outcome: storage.OutcomeRetry}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.crashTwice("paid", paid)
		free := r.suspects("free", 1)
		r.start()
		pass(5 * time.Second)
		r.wantState(free[0], storage.Done, storage.Counters{Attempt: 3})
		r.wantState(paid[0], storage.Scheduled, storage.Counters{Attempt: 3, Retry: 1, Crashes: 2})
		pass(6 * time.Second)
		r.wantState(paid[0], storage.Done, storage.Counters{Attempt: 4, Retry: 1})
	})
}

// A part of a call that loses its lease while it waits gets the tokens of its attempt back.
func TestBudget_PartLosesItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		budget := engine.NewBudget(policy.BudgetOptions{Capacity: 20, RetryCost: 5, FirstRefund: 2, RetriesPerSecond: 1e-9})
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {Policy: new(atOnce(1)), Budget: budget}}
		calls := r.many("k", engine.Batch{Max: 4}, func(ctx context.Context, items []engine.Item) {
			switch {
			case items[0].Job.Retry == 0:
				for i := range items {
					items[i].Err = errOops
				}
			case len(items) > 1:
				refuseAll(items)
			default:
				r.takeOver(100)
				<-ctx.Done()
				items[0].Err = ctx.Err()
			}
		})
		r.enqueue("k", 2)
		r.start()
		pass(lease / 2) // and not the whole, when it is reclaimed
		calls.want(t, 2, 2, 1)
		if got, _ := budget.State(time.Now()); got < 19.99 {
			t.Errorf("%v tokens are left, want all of 20", got)
		}
	})
}
