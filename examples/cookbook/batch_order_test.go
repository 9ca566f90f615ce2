package cookbook_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// One call has the readings of one device, in order. The second is refused once: those
// behind it wait for it.
func Example_batchOptionsByGroup() {
	soon := policy.Policy{Retries: 3, MinDelay: 10 * time.Millisecond, MaxDelay: time.Second}
	q, remove := tempQueue(&errand.Options{Policy: soon})
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	send := func(job *errand.Job[Reading]) error {
		fmt.Println(job.Group, job.Args.Value, "attempt", job.Attempt)
		if job.Args.Value == 2 && job.Attempt == 1 {
			return errors.New("busy")
		}
		return nil
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.HandleMany(w, func(ctx context.Context, jobs []*errand.Job[Reading]) error {
		failed := errand.BatchError{}
		for i, job := range jobs {
			if err := send(job); err != nil {
				for _, unsent := range jobs[i:] {
					failed[unsent.ID] = err
				}
				break
			}
		}
		return failed // those before are done
	}, errand.BatchOptions{Max: 500, ByGroup: true})

	ended := must(q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventDone}}, 10))
	jobs := make([]errand.NewJob, 3)
	for i := range jobs {
		jobs[i] = errand.NewJob{Args: Reading{Sensor: "boiler", Value: float64(i + 1)}, Options: &errand.JobOptions{Group: "boiler"}}
	}
	must(q.EnqueueMany(ctx, jobs))
	go func() {
		for range jobs {
			<-ended.Events()
		}
		stop()
	}()
	check(w.Run(ctx))
	// Output:
	// boiler 1 attempt 1
	// boiler 2 attempt 1
	// boiler 2 attempt 2
	// boiler 3 attempt 1
}
