package errand_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"time"

	"github.com/errandq/errand"
)

// A program that stops in order on Ctrl-C or SIGTERM.
func ExampleWorker_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	defer stop()
	q, remove := tempQueue(nil)
	defer remove()

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println("to", job.Args.To)
		stop() // as the signal would
		return nil
	})
	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))
	fmt.Println(w.Run(ctx))
	// Output:
	// to ada@example.org
	// <nil>
}

// A handler that does not end in the grace has its context cancelled. Its job
// runs again later, with no retry used up.
func ExampleWorker_Shutdown() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	w := errand.NewWorker(q, &errand.WorkerOptions{Grace: 10 * time.Millisecond})
	started := make(chan errand.ID)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[SendEmail]) error {
		started <- job.ID
		<-ctx.Done()
		fmt.Println("cut:", errors.Is(context.Cause(ctx), errand.ErrShutdown))
		return ctx.Err()
	})
	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	id := <-started
	fmt.Println("Shutdown:", w.Shutdown(ctx))
	fmt.Println("Run:", <-done)
	j := must(q.Job(ctx, id))
	fmt.Println(j.State, "again, retry", j.Retry)
	// Output:
	// cut: true
	// Shutdown: <nil>
	// Run: <nil>
	// ready again, retry 0
}
