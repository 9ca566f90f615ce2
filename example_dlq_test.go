package errand_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// refuse works on the jobs of q until n attempts have ended with this error.
func refuse(q *errand.Queue, n int, err error) {
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error { return err })
	workOff(q, w, n)
}

// What is dead is looked at, put back to work when the cause is gone, and runs
// as if it were new, but for its attempts and its history.
func ExampleDeadLetters_Redrive() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{Policy: &policy.Policy{Retries: 1, NoDelayRetries: 1}})
	defer remove()

	e := must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))
	refuse(q, 2, errors.New("connection refused"))

	dead := q.DeadLetters()
	for _, j := range must(dead.List(ctx, errand.JobFilter{Kind: "send_email", Error: "refused"}, nil)).Jobs {
		fmt.Println(j.Kind, j.Reason, "after", j.Attempt, "attempts:", j.Error)
	}
	j := must(dead.Get(ctx, e.ID))
	fmt.Println(string(j.Args))
	for _, f := range j.History {
		fmt.Println("attempt", f.Attempt, f.Phase, f.Error)
	}

	fmt.Println("redriven:", must(dead.Redrive(ctx, errand.JobFilter{Error: "refused"}, nil)).Redriven)
	refuse(q, 1, nil)
	j = must(q.Job(ctx, e.ID))
	fmt.Println(j.State, "after", j.Attempt, "attempts")
	// Output:
	// send_email exhausted after 2 attempts: connection refused
	// {"To":"ada@example.org","Subject":""}
	// attempt 1 first connection refused
	// attempt 2 immediate connection refused
	// redriven: 1
	// done after 3 attempts
}

// A release has sent what the other side refuses, and jobs have died. The brake has
// held the others since, also over the start of the next release, which is right.
func Example_brake() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{"default": {MaxDeaths: 1}}})
	defer remove()

	for range 3 {
		must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))
	}
	refuse(q, 2, errand.Permanent(errors.New("subject missing")))
	for _, h := range must(q.Holds(ctx)) {
		fmt.Printf("%s after %q, %d waits\n", h.Reason, h.Detail, h.Waiting)
	}
	must(q.Release(ctx, errand.Lane{Queue: "default", Kind: "send_email"}, "brake"))
	refuse(q, 1, nil)
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.N, c.State)
	}
	// Output:
	// brake after "subject missing", 1 waits
	// 2 dead
	// 1 done
}

func ExampleDeadLetters_List() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	for range 5 {
		must(q.Enqueue(ctx, SendEmail{}, nil))
	}
	refuse(q, 5, errand.Permanent(errNoAddress))
	o := &errand.ListOptions{Limit: 2}
	for {
		page := must(q.DeadLetters().List(ctx, errand.JobFilter{Reason: errand.ReasonPermanent}, o))
		fmt.Println(len(page.Jobs))
		if page.Next == "" {
			break
		}
		o.After = page.Next
	}
	// Output:
	// 2
	// 2
	// 1
}

func ExampleDeadLetters_Purge() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	must(q.Enqueue(ctx, SendEmail{}, nil))
	must(q.Enqueue(ctx, SendEmail{}, nil))
	refuse(q, 2, errand.Permanent(errNoAddress))

	dead := q.DeadLetters()
	_, err := dead.Purge(ctx, errand.JobFilter{})
	fmt.Println(errors.Is(err, errand.ErrPurgeAll))
	fmt.Println(must(dead.Purge(ctx, errand.JobFilter{Error: "timeout"})))
	fmt.Println(must(dead.Purge(ctx, errand.JobFilter{All: true})))
	// Output:
	// true
	// 0
	// 2
}

// Errors that differ in a number or a name have one cause. It is looked at through one
// of its jobs, and then all of them are dealt with at once.
func ExampleDeadLetters_Causes() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	for _, to := range []string{"ada@example.org", "grace@example.com", "nobody"} {
		must(q.Enqueue(ctx, SendEmail{To: to}, nil))
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		if job.Args.To == "nobody" {
			return errand.Permanent(errNoAddress)
		}
		return errand.Permanent(fmt.Errorf("550 5.1.1 <%s>: user unknown", job.Args.To))
	})
	workOff(q, w, 3)

	dead := q.DeadLetters()
	causes := must(dead.Causes(ctx, nil))
	for _, c := range causes {
		fmt.Println(c.N, c.Kind, c.Reason, c.Text)
	}
	fmt.Println("for example:", must(dead.Get(ctx, causes[0].Job)).Error)
	fmt.Println("deleted:", must(dead.Purge(ctx, errand.JobFilter{Cause: causes[0].ID})))
	// Output:
	// 2 send_email permanent # # <#>: user unknown
	// 1 send_email permanent no such address
	// for example: 550 5.1.1 <grace@example.com>: user unknown
	// deleted: 2
}

// Many dead letters are put back at a rate, in the background. Here it is the work of a
// worker that does nothing else.
func ExampleQueue_StartBulk() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(&errand.Options{Policy: &policy.Policy{}})
	defer remove()
	for range 3 {
		must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))
	}
	refuse(q, 3, errors.New("connection refused"))

	bulk := must(q.StartBulk(ctx, errand.Bulk{
		Do: errand.BulkRedrive, Filter: errand.JobFilter{Kind: "send_email"}, Rate: 500, By: "ada",
	}))
	fmt.Println("nobody runs it:", bulk.Unserved)

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"errand.bulk"}})
	go func() {
		_, err := errand.Await[any](ctx, q, bulk.ID)
		fmt.Println("no result:", errors.Is(err, errand.ErrNoResult))
		stop()
	}()
	check(w.Run(ctx))
	for _, b := range must(q.Bulks(context.Background())) {
		fmt.Println(b.Do, b.State, b.Changed, "of", b.Total, "for", b.By)
	}
	// Output:
	// nobody runs it: true
	// no result: true
	// redrive done 3 of 3 for ada
}
