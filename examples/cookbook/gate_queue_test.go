package cookbook_test

import (
	"context"
	"fmt"

	"github.com/errandq/errand"
)

// While the modem is offline, uploads wait in their order and use up no retry.
func Example_queueOptionsGate() {
	online := new(errand.Switch)
	online.Close("no carrier")
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"uploads": {Gate: online},
	}})
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	must(q.Enqueue(ctx, Upload{Document: 7}, &errand.JobOptions{Queue: "uploads"}))
	must(q.Enqueue(ctx, Alarm{Text: "door open"}, nil))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "uploads"}})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Upload]) error {
		fmt.Println("upload of document", job.Args.Document, "in attempt", job.Attempt)
		stop()
		return nil
	})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Alarm]) error {
		fmt.Println("alarm:", job.Args.Text)
		online.Open() // as the modem says
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// alarm: door open
	// upload of document 7 in attempt 1
}
