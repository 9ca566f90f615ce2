package errand_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

func ExampleQueue_Change() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	for range 3 {
		must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "bulk"}))
	}
	tonight := errand.JobChange{Delay: 8 * time.Hour, Priority: new(-10)}
	r, err := q.Change(ctx, errand.JobFilter{Queue: "bulk"}, tonight)
	check(err)
	fmt.Println("put off:", r.Changed)

	// Another queue, and a policy that does not give up.
	patient := policy.Policy{Retries: 1000, MinDelay: time.Minute, MaxDelay: time.Hour}
	r, err = q.Change(ctx, errand.JobFilter{Queue: "bulk"}, errand.JobChange{Queue: "slow", Policy: patient})
	check(err)
	fmt.Println("moved:", r.Changed)
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.N, c.State, "in", c.Queue)
	}
	// Output:
	// put off: 3
	// moved: 3
	// 3 scheduled in slow
}

// A dead letter whose args are wrong is mended before it runs again. What it had before
// stays in its history.
func ExampleQueue_Change_args() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	e := must(q.Enqueue(ctx, SendEmail{To: "ada@example,org"}, nil))
	refuse(q, 1, errand.Permanent(errors.New("no such address")))

	named := errand.JobFilter{IDs: []errand.ID{e.ID}}
	mended := errand.JobChange{Args: SendEmail{To: "ada@example.org"}}
	must(q.Change(ctx, named, mended))
	must(q.DeadLetters().Redrive(ctx, named, nil))
	refuse(q, 1, nil)

	j := must(q.Job(ctx, e.ID))
	fmt.Println(j.State, string(j.Args))
	for _, h := range j.History {
		if h.Phase == errand.PhaseEdited {
			fmt.Println("edited, was", string(h.Args))
		} else {
			fmt.Println("attempt", h.Attempt, h.Error)
		}
	}
	// Output:
	// done {"To":"ada@example.org","Subject":""}
	// attempt 1 no such address
	// edited, was {"To":"ada@example,org","Subject":""}
}

func ExampleQueue_CancelAll() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	started := make(chan struct{})
	errand.Handle(w, func(ctx context.Context, _ *errand.Job[SendEmail]) error {
		close(started)
		<-ctx.Done()
		fmt.Println("handler:", context.Cause(ctx))
		stop()
		return ctx.Err()
	})
	must(q.Enqueue(ctx, SendEmail{}, nil))
	go func() {
		<-started
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Delay: time.Hour}))
		r := must(q.CancelAll(ctx, errand.JobFilter{Kind: "send_email"}))
		fmt.Println("cancelled:", r.Changed, "asked to stop:", len(r.Running))
	}()
	check(w.Run(ctx))
	// Unordered output:
	// cancelled: 1 asked to stop: 1
	// handler: errand: job cancelled
}

func ExampleQueue_Delete() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	waits := must(q.Enqueue(ctx, SendEmail{}, nil))
	_, err := q.Delete(ctx, errand.JobFilter{IDs: []errand.ID{waits.ID}})
	fmt.Println(errors.Is(err, errand.ErrLive))

	must(q.Cancel(ctx, waits.ID))
	fmt.Println(must(q.Delete(ctx, errand.JobFilter{States: []errand.State{errand.Cancelled}})))
	// Output:
	// true
	// 1
}
