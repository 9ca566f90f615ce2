package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// The devices of a fleet lose and get back their network together. Each waits for its
// own part of ten minutes after an outage of more than one; a short one costs nothing.
func Example_queueOptionsOpenJitter() {
	carrier := new(errand.Switch)
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"uploads": {Gate: carrier, OpenJitter: 10 * time.Minute},
	}})
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"uploads"}})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Upload]) error {
		fmt.Println("upload of document", job.Args.Document)
		stop()
		return nil
	})
	carrier.Close("no carrier")
	must(q.Enqueue(ctx, Upload{Document: 7}, &errand.JobOptions{Queue: "uploads"}))
	time.AfterFunc(50*time.Millisecond, carrier.Open)
	check(w.Run(ctx))
	// Output:
	// upload of document 7
}
