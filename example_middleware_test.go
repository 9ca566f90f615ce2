package errand_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/errandq/errand"
)

// traceID is the key of a context's trace ID.
type traceID struct{}

// A trace ID goes from the context of Enqueue through a header of the job to the context
// of its handler.
func ExampleMiddleware() {
	q, remove := tempQueue(&errand.Options{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			if id, ok := ctx.Value(traceID{}).(string); ok {
				job.Headers = map[string]string{"trace": id}
			}
			return next(ctx, job)
		}
	}}})
	defer remove()
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), traceID{}, "4bf92f35"))

	traced := func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			err := next(context.WithValue(ctx, traceID{}, job.Headers["trace"]), job)
			fmt.Printf("%s, attempt %d: %v\n", job.Kind, job.Attempt, err)
			return err
		}
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{traced}})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println("to", job.Args.To, "in trace", ctx.Value(traceID{}))
		stop()
		return nil
	})
	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))
	check(w.Run(ctx))
	// Output:
	// to ada@example.org in trace 4bf92f35
	// send_email, attempt 1: <nil>
}

// Middleware of the queue can refuse jobs.
func ExampleMiddleware_refuse() {
	errNoStaging := errors.New("no mail from staging")
	q, remove := tempQueue(&errand.Options{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			if job.Kind == "send_email" && !strings.Contains(string(job.Args.JSON), "@example.org") {
				return errNoStaging
			}
			return next(ctx, job)
		}
	}}})
	defer remove()
	_, err := q.Enqueue(context.Background(), SendEmail{To: "customer@example.com"}, nil)
	fmt.Println(err)
	// Output:
	// no mail from staging
}

// Jobs that were enqueued as "mail" go to the handler of "send_email", which is the
// name of the kind now.
func ExampleHandlerOptions_aliases() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	must(q.Enqueue(ctx, errand.RawArgs{OfKind: "mail", JSON: []byte(`{"To":"ada@example.org"}`)}, nil))

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println(job.Kind, "to", job.Args.To)
		stop()
		return nil
	}, errand.HandlerOptions{Aliases: []string{"mail"}})
	check(w.Run(ctx))
	// Output:
	// mail to ada@example.org
}
