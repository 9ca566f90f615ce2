package errand_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// printWhy prints why a job does not run.
func printWhy(ctx context.Context, q *errand.Queue, id errand.ID) {
	why := must(q.Why(ctx, id))
	for _, r := range why.Reasons {
		fmt.Println(r.Code+":", r.Text)
	}
}

func ExampleQueue_Why() {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	q, remove := tempQueue(&errand.Options{Clock: func() time.Time { return start }})
	defer remove()
	ctx := context.Background()

	first := must(q.Enqueue(ctx, SendEmail{}, nil))
	second := must(q.Enqueue(ctx, SendEmail{}, nil))
	later := must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Delay: time.Hour}))
	check(q.Hold(ctx, errand.Lane{Kind: "send_email"}, &errand.HoldOptions{Reason: "roaming", By: "modem", For: time.Hour}))
	for i, id := range []errand.ID{first.ID, second.ID, later.ID} {
		fmt.Println("job", i+1)
		printWhy(ctx, q, id)
	}
	// Output:
	// job 1
	// no_worker: no worker runs
	// held: kind send_email is held for "roaming" by modem since 2026-03-01T12:00:00Z until 2026-03-01T13:00:00Z
	// behind: it is the next of its queue and kind
	// job 2
	// no_worker: no worker runs
	// held: kind send_email is held for "roaming" by modem since 2026-03-01T12:00:00Z until 2026-03-01T13:00:00Z
	// behind: 1 ready job of its queue and kind goes before it
	// job 3
	// not_due: it was enqueued for later, or put off: it is due at 2026-03-01T13:00:00Z
	// no_worker: no worker runs
	// held: kind send_email is held for "roaming" by modem since 2026-03-01T12:00:00Z until 2026-03-01T13:00:00Z
}

func ExampleQueue_Workers() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "mail"}, Concurrency: 4})
	running := make(chan struct{})
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error { close(running); return nil })
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	must(q.Enqueue(ctx, SendEmail{}, nil))
	<-running
	for _, i := range must(q.Workers(ctx)) {
		fmt.Println("queues", i.Queues, "kinds", i.Kinds, "concurrency", i.Concurrency)
	}
	check(w.Shutdown(ctx))
	check(<-ended)
	// Output: queues [default mail] kinds [send_email] concurrency 4
}

// Which retries a job still has is told by the worker that has its handler, unless it
// brings its own.
func ExampleQueue_PolicyOf() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	retries := policy.Policy{Retries: 3, MinDelay: time.Minute, MaxDelay: time.Minute}
	for _, o := range []*errand.JobOptions{nil, {Policy: retries}} {
		e := must(q.Enqueue(ctx, SendEmail{}, o))
		d, known, err := q.PolicyOf(ctx, must(q.Job(ctx, e.ID)))
		check(err)
		fmt.Println(d.For(policy.Retryable).Retries, known)
	}
	// Output:
	// 27 false
	// 3 true
}
