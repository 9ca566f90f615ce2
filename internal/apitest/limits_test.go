package apitest

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

func TestQueue_Budgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		five := &policy.BudgetOptions{Capacity: 5, FirstRefund: -1, RetriesPerSecond: 0.1}
		q, _ := memoryQueue(t, errand.Options{
			Policy: policy.Policy{Retries: 1, NoDelayRetries: 1},
			Queues: map[string]errand.QueueOptions{"mail": {Budget: five}, "other": {Budget: &policy.BudgetOptions{}}},
		})
		var retries []time.Duration
		began := time.Now()
		fail := func(_ context.Context, job *errand.Job[note]) error {
			if job.Retry > 0 {
				retries = append(retries, time.Since(began))
			}
			return errors.New("down")
		}
		// Two workers, one budget.
		for range 2 {
			w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail", "default"}, Concurrency: 1})
			errand.Handle(w, fail)
			errand.Handle(w, func(context.Context, *errand.Job[value]) error { return errors.New("down") },
				errand.HandlerOptions{Budget: &policy.BudgetOptions{Capacity: 7}})
			run(t, w)
		}
		var ids []errand.ID
		for range 3 {
			ids = append(ids, enqueue(t, q, note{}, &errand.JobOptions{Queue: "mail"}))
		}
		synctest.Wait()
		want := []errand.BudgetState{
			{Kind: "value", Tokens: 7, Capacity: 7},
			{Queue: "mail", Tokens: 0, Capacity: 5, Deferred: 2},
			{Queue: "other", Tokens: 500, Capacity: 500},
		}
		if got := q.Budgets(); !reflect.DeepEqual(got, want) {
			t.Errorf("budgets\n%+v, want\n%+v", got, want)
		}
		dead := 0
		for _, id := range ids {
			switch j := lookUp(t, q, id); {
			case j.State == errand.Dead:
				dead++
			case j.Attempt != 1 || j.Retry != 1 || j.State != errand.Scheduled:
				t.Errorf("job is %s after %d attempts and %d failures", j.State, j.Attempt, j.Retry)
			}
		}
		if dead != 1 {
			t.Errorf("%d are dead, want the one that was paid for", dead)
		}
		time.Sleep(21 * time.Second)
		synctest.Wait()
		for i, at := range retries {
			if want := time.Duration(i) * 10 * time.Second; at < want || at > want+time.Millisecond {
				t.Errorf("retry %d started at %v, want %v", i, at, want)
			}
		}
		for _, id := range ids {
			if j := lookUp(t, q, id); j.State != errand.Dead || j.Reason != errand.ReasonExhausted {
				t.Errorf("job is %s %q", j.State, j.Reason)
			}
		}

		// Other figures are another budget.
		errand.Handle(errand.NewWorker(q, nil), fail, errand.HandlerOptions{Budget: five})
		errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[value]) error { return nil },
			errand.HandlerOptions{Budget: &policy.BudgetOptions{Capacity: 8}})
		if got := q.Budgets(); len(got) != 4 || got[0].Kind != "note" || got[1].Capacity != 8 {
			t.Errorf("budgets %+v", got)
		}
	})
}

// A worker with maxReceivesPerSecond 50 and 1,000 ready jobs starts between 45
// and 55 a second over ten seconds; so do several workers of one queue
// together, and leases are held by what runs alone.
func TestWorker_maxReceivesPerSecond(t *testing.T) {
	document, err := policy.Parse([]byte(`{"throttlePolicy":{"maxReceivesPerSecond":50}}`), policy.ProfileSNS)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o       errand.Options
		h       errand.HandlerOptions
		workers int
	}{
		"queue":       {o: errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Policy: document}}}, workers: 1},
		"two workers": {o: errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Policy: document}}}, workers: 2},
		"options":     {o: errand.Options{Policy: document}, workers: 2},
		"kind":        {h: errand.HandlerOptions{Policy: document}, workers: 2},
		"kind instead of queue": {
			o: errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Policy: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 5}}}}},
			h: errand.HandlerOptions{Policy: document}, workers: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := memoryQueue(t, c.o)
				var started atomic.Int64
				for range c.workers {
					w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "mail"}})
					errand.Handle(w, func(context.Context, *errand.Job[note]) error { started.Add(1); return nil }, c.h)
					run(t, w)
				}
				jobs := make([]errand.NewJob, 1000)
				for i := range jobs {
					jobs[i] = errand.NewJob{Args: note{}, Options: &errand.JobOptions{Queue: "mail"}}
				}
				if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
					t.Fatal(err)
				}
				var last int64
				for second := range 10 {
					time.Sleep(time.Second - time.Nanosecond)
					synctest.Wait()
					now := started.Load()
					if n := now - last; n < 45 || n > 55 {
						t.Errorf("%d started in second %d, want 45 to 55", n, second)
					}
					last = now
					counts, err := q.Counts(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, n := range counts {
						if n.State == errand.Running {
							t.Errorf("%d jobs are leased and do not run", n.N)
						}
					}
					time.Sleep(time.Nanosecond)
				}
			})
		})
	}
}
