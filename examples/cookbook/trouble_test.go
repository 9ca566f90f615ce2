package cookbook_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// look prints what a job that does not run should be asked.
func look(ctx context.Context, q *errand.Queue, id errand.ID) {
	j := must(q.Job(ctx, id))
	due := !j.DueAt.After(q.Clock().Now) // the queue's clock, not time.Now
	fmt.Printf("%s, queue %s, kind %s, due %t, retry %d, error %q\n", j.State, j.Queue, j.Kind, due, j.Retry, j.Error)
}

// Six jobs that do not run, each for a reason of its own.
func Example_notRunning() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Pause(ctx, "reports"))
	hourly := policy.Policy{Retries: 5, MinDelay: time.Hour, MaxDelay: time.Hour}
	jobs := []errand.Enqueued{
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "reports"})),        // which is paused
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "report"})),         // a name that no worker has
		must(q.Enqueue(ctx, Fetch{}, nil)),                                             // a kind without a handler
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Delay: time.Hour})),        // not due
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Policy: hourly})),          // waits for its retry
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Policy: policy.Policy{}})), // is dead
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "reports"}, Concurrency: 1})
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error { return errors.New("connection refused") })
	errand.Handle(w, func(context.Context, *errand.Job[Last]) error { stop(); return nil })
	must(q.Enqueue(ctx, Last{}, nil))
	check(w.Run(ctx))

	ctx = context.Background()
	for _, e := range jobs {
		look(ctx, q, e.ID)
	}
	fmt.Println("paused:", must(q.Paused(ctx)))
	// Output:
	// ready, queue reports, kind send_email, due true, retry 0, error ""
	// ready, queue report, kind send_email, due true, retry 0, error ""
	// ready, queue default, kind fetch, due true, retry 0, error ""
	// scheduled, queue default, kind send_email, due false, retry 0, error ""
	// scheduled, queue default, kind send_email, due false, retry 1, error "connection refused"
	// dead, queue default, kind send_email, due true, retry 0, error "connection refused"
	// paused: [reports]
}
