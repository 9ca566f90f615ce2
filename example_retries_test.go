package errand_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// The usual policies, one for a kind and one for a job; and what becomes of a
// job that has no retry left.
func Example_retries() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	w := errand.NewWorker(q, nil)
	send := func(context.Context, *errand.Job[SendEmail]) error {
		return errors.New("the provider is down")
	}

	constant := policy.Policy{Retries: 10, MinDelay: 30 * time.Second, MaxDelay: 30 * time.Second}
	capped := policy.Policy{Retries: 20, MinDelay: time.Second, MaxDelay: 5 * time.Minute, Backoff: policy.Doubling}
	five := policy.Retries(5)            // 15 s, 30 s, and so on: dead after 4 to 8 minutes
	patient := policy.Forever(time.Hour) // for what must not be given up
	never := policy.Policy{}             // the first failure is the end
	errand.Handle(w, send, errand.HandlerOptions{Policy: capped})

	e := must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Policy: never}))
	workOff(q, w, 1)

	page := must(q.DeadLetters().List(ctx, errand.JobFilter{Kind: "send_email"}, nil))
	for _, j := range page.Jobs {
		fmt.Println(j.Reason, "after", j.Attempt, "attempt:", j.Error)
	}
	// Once the provider is up again:
	result := must(q.DeadLetters().Redrive(ctx, errand.JobFilter{Kind: "send_email"}, nil))
	fmt.Println("put back:", result.Redriven)
	fmt.Println("the job is", must(q.Job(ctx, e.ID)).State)

	for _, p := range []policy.Policy{policy.Default(), constant, capped, five, patient, never} {
		fmt.Print(p.Retries, " retries:")
		for step := range p.All() {
			if step.Retry == 5 {
				fmt.Print(" ... in ", p.ShortestTotal(), " to ", p.Total())
				break
			}
			fmt.Print(" ", step.Delay)
		}
		fmt.Println()
	}
	// Output:
	// exhausted after 1 attempt: the provider is down
	// put back: 1
	// the job is ready
	// 27 retries: 0s 1s 1s 1s 2s ... in 6h34m8.5s to 13h8m17s
	// 10 retries: 30s 30s 30s 30s 30s ... in 2m30s to 5m0s
	// 20 retries: 1s 2s 4s 8s 16s ... in 31m45.5s to 1h3m31s
	// 5 retries: 15s 30s 1m0s 2m0s 4m0s
	// 1000000 retries: 0s 1s 1s 1s 2s ... in 499993h4m8.5s to 999986h8m17s
	// 0 retries:
}

// What failed while the network was away need not wait for its retry once the
// network is back.
func ExampleQueue_RunNow() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(&errand.Options{Policy: policy.Policy{Retries: 9, MinDelay: time.Hour, MaxDelay: time.Hour}})
	defer remove()
	for _, to := range []string{"ada", "ben", "cy"} {
		must(q.Enqueue(ctx, SendEmail{To: to}, nil))
	}
	refuse(q, 3, errors.New("no route to host"))

	r := must(q.RunNow(ctx, errand.JobFilter{Queue: "default", Error: "no route"}, nil))
	fmt.Println("made ready:", r.Ready)

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println("sent to", job.Args.To, "by retry", job.Retry)
		if job.Args.To == "cy" {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// made ready: 3
	// sent to ada by retry 1
	// sent to ben by retry 1
	// sent to cy by retry 1
}
