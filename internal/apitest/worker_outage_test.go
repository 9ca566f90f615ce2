package apitest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// A token that has expired loses no job. The hook renews it, and all jobs are done.
func TestWorker_OnUnauthorized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		token := make(chan struct{})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			select {
			case <-token:
				return nil
			default:
				return policy.HTTPError(401, nil, time.Now())
			}
		}, errand.HandlerOptions{OnUnauthorized: func(context.Context) error {
			close(token)
			return nil
		}})
		var ids []errand.ID
		for range 100 {
			ids = append(ids, enqueue(t, q, note{}, nil))
		}
		run(t, w)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, id := range ids {
			if j := lookUp(t, q, id); j.State != errand.Done || j.Retry != 0 || len(j.History) > 0 {
				t.Fatalf("a job is %s after %d retries, with the history %v", j.State, j.Retry, j.History)
			}
		}
	})
}

func TestWorker_MaxUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// No program was built in the year 2000, at which a test begins.
		later := func() time.Time { return time.Now().Add(100 * 365 * 24 * time.Hour) }
		q, _ := memoryQueue(t, errand.Options{Clock: later})
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Unavailable(errors.New("no carrier")) },
			errand.HandlerOptions{MaxUnavailable: time.Hour})
		id := enqueue(t, q, note{}, nil)
		run(t, w)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if j := lookUp(t, q, id); j.State != errand.Dead || j.Reason != errand.ReasonUnavailable || j.Error != "no carrier" {
			t.Errorf("the job is %s, %q, %q", j.State, j.Reason, j.Error)
		}
		page, err := q.DeadLetters().List(t.Context(), errand.JobFilter{Reason: errand.ReasonUnavailable}, nil)
		if err != nil || len(page.Jobs) != 1 {
			t.Errorf("listed by its reason are %v, %v", page.Jobs, err)
		}
		defer func() {
			got := fmt.Sprint(recover())
			for _, want := range []string{"max_unavailable -1s: must not be negative", "counts_for -1ns: must not be negative"} {
				if !strings.Contains(got, want) {
					t.Errorf("panic with %q, want %q in it", got, want)
				}
			}
		}()
		errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil },
			errand.HandlerOptions{MaxUnavailable: -time.Second, CountsFor: -1})
	})
}

// The brake keeps a backlog from dying, unless a queue has turned it off.
func TestWorker_MaxDeaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{"off": {MaxDeaths: -1}, "three": {MaxDeaths: 3}}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "off", "three"}, Concurrency: 1})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
		for _, queue := range []string{"default", "off", "three"} {
			for range 100 {
				enqueue(t, q, note{}, &errand.JobOptions{Queue: queue})
			}
		}
		run(t, w)
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		counts, err := q.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dead := map[string]int64{}
		for _, c := range counts {
			if c.State == errand.Dead {
				dead[c.Queue] = c.N
			}
		}
		if fmt.Sprint(dead) != "map[default:21 off:100 three:4]" {
			t.Errorf("dead are %v", dead)
		}
		holds, err := q.Holds(t.Context())
		if err != nil || len(holds) != 2 || holds[0].Reason != "brake" || holds[0].Waiting != 79 || holds[0].Detail != "no" {
			t.Errorf("the holds are %+v, %v", holds, err)
		}
	})
}
