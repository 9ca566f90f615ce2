package errand_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// Edit is a change of a document to send to some other place.
type Edit struct {
	Document int
	Text     string
}

// Kind names the type of job.
func (Edit) Kind() string { return "edit" }

// The edits of a document are sent in the order in which they were made, also if one has to
// be tried again.
func ExampleJobOptions_group() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(&errand.Options{Policy: &policy.Policy{Retries: 3, NoDelayRetries: 3}})
	defer remove()

	check(q.Tx(ctx, func(tx *sql.Tx) error {
		must(q.EnqueueTx(ctx, tx, Edit{Document: 17, Text: "first"}, &errand.JobOptions{Group: "document 17"}))
		must(q.EnqueueTx(ctx, tx, Edit{Document: 17, Text: "second"}, &errand.JobOptions{Group: "document 17"}))
		return nil
	}))
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[Edit]) error {
		if job.Args.Text == "first" && job.Attempt == 1 {
			return errors.New("timeout")
		}
		fmt.Println(job.Group, "-", job.Args.Text)
		if job.Args.Text == "second" {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// document 17 - first
	// document 17 - second
}

// A dead job keeps those of its group back that were enqueued after it.
func ExampleQueue_Groups() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	for range 3 {
		must(q.Enqueue(ctx, SendEmail{To: "ada@example,org"}, &errand.JobOptions{Group: "ada"}))
	}
	refuse(q, 1, errand.Permanent(errors.New("no such address")))

	for _, g := range must(q.Groups(ctx, nil)).Groups {
		fmt.Printf("%s: %d wait for a job that died of %q\n", g.Group, g.Blocked, g.Error)
	}
	must(q.SkipHead(ctx, "default", "ada"))
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.N, c.State)
	}
	// Output:
	// ada: 2 wait for a job that died of "no such address"
	// 1 blocked
	// 1 dead
	// 1 ready
}

// How many jobs wait behind dead ones: those that nobody runs until somebody decides.
func ExampleQueue_Health_deadHead() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	for range 3 {
		must(q.Enqueue(ctx, SendEmail{To: "ada@example,org"}, &errand.JobOptions{Group: "ada"}))
	}
	refuse(q, 1, errand.Permanent(errors.New("no such address")))

	for _, r := range q.Health(ctx, nil).Reasons {
		fmt.Println(r.Code, "in", r.Queue, "jobs:", r.Jobs, "groups:", r.Groups)
	}
	// Output:
	// dead_head in default jobs: 2 groups: 1
}

// What a group has: its head first, then those that wait for it.
func ExampleJobFilter_group() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	for i := range 4 {
		document := 17 + i%2
		must(q.Enqueue(ctx, Edit{Document: document}, &errand.JobOptions{Queue: "edits", Group: fmt.Sprint("document ", document)}))
	}

	page := must(q.Jobs(ctx, errand.JobFilter{Queue: "edits", Group: "document 17"}, nil))
	for _, job := range page.Jobs {
		fmt.Println(job.Group, "-", job.State)
	}
	for _, g := range must(q.Groups(ctx, &errand.GroupOptions{Queue: "edits", Waiting: true})).Groups {
		fmt.Printf("%s: %d wait for a job that is %s\n", g.Group, g.Blocked, g.State)
	}
	// Output:
	// document 17 - blocked
	// document 17 - ready
	// document 17: 1 wait for a job that is ready
	// document 18: 1 wait for a job that is ready
}

// Of each customer one job starts in 100 ms, and two at once after a rest.
func ExampleGroupThrottle() {
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"sync": {GroupThrottle: errand.GroupThrottle{Starts: 600, Per: time.Minute, Burst: 2}},
	}})
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	const jobs = 5
	for i := range jobs {
		must(q.Enqueue(ctx, Edit{Document: i}, &errand.JobOptions{Queue: "sync", Group: "customer 17"}))
	}
	must(q.Enqueue(ctx, Edit{Document: 99}, &errand.JobOptions{Queue: "sync", Group: "customer 18"}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"sync"}, Concurrency: 1})
	n, began := 0, time.Now()
	errand.Handle(w, func(_ context.Context, job *errand.Job[Edit]) error {
		fmt.Println(job.Group, job.Args.Document)
		if n++; n == jobs+1 {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))
	fmt.Println("no faster than allowed:", time.Since(began) > 290*time.Millisecond)
	// Unordered output:
	// customer 17 0
	// customer 17 1
	// customer 18 99
	// customer 17 2
	// customer 17 3
	// customer 17 4
	// no faster than allowed: true
}

// Two jobs of a customer run at a time, in all processes together.
func ExampleSettings_groupLimit() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{Queue: "sync"}, errand.Settings{GroupLimit: new(2)}))
	for range 5 {
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "sync", Group: "customer 17"}))
	}
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.N, c.State)
	}
	// Output:
	// 3 blocked
	// 2 ready
}

// Three readings of one device came before one of another: the devices take turns.
func ExampleOrder_turns() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{Queue: "devices"}, errand.Settings{Order: new(errand.Turns)}))
	for range 3 {
		must(q.Enqueue(ctx, Reading{Sensor: "a"}, &errand.JobOptions{Queue: "devices", Group: "device a"}))
	}
	must(q.Enqueue(ctx, Reading{Sensor: "b"}, &errand.JobOptions{Queue: "devices", Group: "device b"}))

	n := 0
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"devices"}, Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Reading]) error {
		fmt.Println(job.Args.Sensor)
		if n++; n == 4 {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// a
	// b
	// a
	// a
}
