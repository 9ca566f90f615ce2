package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

type Deliver struct{ Event string }

func (Deliver) Kind() string { return "deliver" }

// Each customer has a queue, and there are more of them all the time. One worker serves
// them all. No more than two jobs of a customer run at a time; one has a policy of its own.
func Example_workerOptionsPrefix() {
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"webhook/*":    {Policy: policy.SNSHTTP(), Concurrency: 2},
		"webhook/acme": {Policy: policy.Forever(time.Hour)},
	}})
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"webhook/*"}, Concurrency: 1})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Deliver]) error {
		fmt.Println(job.Queue, job.Args.Event)
		if job.Queue == "webhook/acme" { // which nobody has heard of before
			must(q.Enqueue(ctx, Deliver{Event: "welcome"}, &errand.JobOptions{Queue: "webhook/new"}))
		}
		if job.Args.Event == "welcome" {
			stop()
		}
		return nil
	})
	must(q.Enqueue(ctx, Deliver{Event: "paid"}, &errand.JobOptions{Queue: "webhook/42"}))
	must(q.Enqueue(ctx, Deliver{Event: "shipped"}, &errand.JobOptions{Queue: "webhook/acme"}))
	check(w.Run(ctx))
	// Output:
	// webhook/42 paid
	// webhook/acme shipped
	// webhook/new welcome
}
