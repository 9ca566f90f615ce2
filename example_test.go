package errand_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
	"github.com/errandq/errand/policy"
)

// SendEmail is what the jobs of most examples are about.
type SendEmail struct{ To, Subject string }

// Kind names the type of job.
func (SendEmail) Kind() string { return "send_email" }

// tempQueue opens a queue in a folder of its own, and returns what removes it.
var tempQueue = kit.TempQueue

// workOff runs a worker of a queue until so many attempts have ended, and what became of their jobs
// is written. A worker that is stopped before takes no error for a failure.
var workOff = kit.Work

// must keeps the handling of errors out of the way of the examples.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Printf("to %s: %s, attempt %d\n", job.Args.To, job.Args.Subject, job.Attempt)
		stop() // all this example wants
		return nil
	})

	e, err := q.Enqueue(ctx, SendEmail{To: "ada@example.org", Subject: "Hello"}, nil)
	if err != nil {
		panic(err)
	}
	if err := w.Run(ctx); err != nil {
		panic(err)
	}
	fmt.Println(must(q.Job(context.Background(), e.ID)).State)
	// Output:
	// to ada@example.org: Hello, attempt 1
	// done
}

// Several queues: one worker for mail and reports, with four handlers at a
// time.
func ExampleNewWorker() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "mail"}))
	must(q.Enqueue(ctx, SendEmail{To: "grace@example.org"}, &errand.JobOptions{Queue: "reports"}))
	must(q.Enqueue(ctx, SendEmail{To: "nobody"}, &errand.JobOptions{Queue: "elsewhere"}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail", "reports"}, Concurrency: 4})
	done := make(chan string, 2)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		done <- job.Queue + ": " + job.Args.To
		return nil
	})
	go func() {
		defer stop()
		fmt.Println(<-done)
		fmt.Println(<-done)
	}()
	check(w.Run(ctx))
	// Unordered output:
	// mail: ada@example.org
	// reports: grace@example.org
}

func ExampleQueue_Enqueue_priority() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	must(q.Enqueue(ctx, SendEmail{Subject: "newsletter"}, &errand.JobOptions{Priority: -50}))
	must(q.Enqueue(ctx, SendEmail{Subject: "receipt"}, nil))
	must(q.Enqueue(ctx, SendEmail{Subject: "password"}, &errand.JobOptions{Priority: 50}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println(job.Args.Subject)
		if job.Args.Subject == "newsletter" {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// password
	// receipt
	// newsletter
}

func ExampleQueue_Enqueue_delay() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	soon := must(q.Enqueue(ctx, SendEmail{Subject: "soon"}, &errand.JobOptions{Delay: 20 * time.Millisecond}))
	later := must(q.Enqueue(ctx, SendEmail{Subject: "later"}, &errand.JobOptions{
		DueAt: time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC),
	}))
	j := must(q.Job(ctx, soon.ID))
	fmt.Println("soon is due after", j.DueAt.Sub(j.CreatedAt).Round(time.Millisecond))
	j = must(q.Job(ctx, later.ID))
	fmt.Println("later is", j.State, "for", j.DueAt)

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println(job.Args.Subject, "started too early:", time.Now().Before(job.DueAt))
		stop()
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// soon is due after 20ms
	// later is scheduled for 2100-01-01 09:00:00 +0000 UTC
	// soon started too early: false
}

func ExampleQueue_Enqueue_unique() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	// While a job with the key is live, there is no second one.
	once := &errand.JobOptions{Unique: &errand.Unique{Key: "ada"}}
	first := must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, once))
	second := must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, once))
	fmt.Println("duplicate:", second.Duplicate, "of the first:", second.ID == first.ID)

	// When it has ended the key is free again, unless it is held for ever.
	must(q.Cancel(ctx, first.ID))
	third := must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, once))
	fmt.Println("duplicate:", third.Duplicate)

	ever := &errand.JobOptions{Unique: &errand.Unique{Key: "event 17", Forever: true}}
	event := must(q.Enqueue(ctx, SendEmail{}, ever))
	must(q.Cancel(ctx, event.ID))
	fmt.Println("duplicate:", must(q.Enqueue(ctx, SendEmail{}, ever)).Duplicate)
	// Output:
	// duplicate: true of the first: true
	// duplicate: false
	// duplicate: true
}

func ExampleQueue_Enqueue_headers() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Headers: map[string]string{"trace": "4bf92f35"}}))
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println("trace", job.Headers["trace"])
		stop()
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// trace 4bf92f35
}

func ExampleQueue_Enqueue_timeout() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{Policy: policy.Policy{Retries: 1, MinDelay: time.Hour, MaxDelay: time.Hour}})
	defer remove()

	e := must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Timeout: 10 * time.Millisecond}))
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, _ *errand.Job[SendEmail]) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	workOff(q, w, 1)
	j := must(q.Job(ctx, e.ID))
	fmt.Println("retry", j.Retry, "after", len(j.History), "failure")
	// Output:
	// retry 1 after 1 failure
}

func ExampleQueue_Enqueue_invalid() {
	q, remove := tempQueue(nil)
	defer remove()

	_, err := q.Enqueue(context.Background(), SendEmail{}, &errand.JobOptions{Queue: "my queue", Priority: 101})
	fmt.Println(err)
	// Output:
	// errand: queue "my queue": must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}
	// errand: priority 101: must be between -100 and 100
}

func ExampleQueue_EnqueueMany() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	var jobs []errand.NewJob
	for _, to := range []string{"ada@example.org", "grace@example.org", "ada@example.org"} {
		jobs = append(jobs, errand.NewJob{
			Args:    SendEmail{To: to},
			Options: &errand.JobOptions{Unique: &errand.Unique{Key: to}},
		})
	}
	for i, e := range must(q.EnqueueMany(ctx, jobs)) {
		fmt.Println(i, "duplicate:", e.Duplicate)
	}
	// Output:
	// 0 duplicate: false
	// 1 duplicate: false
	// 2 duplicate: true
}

func ExampleQueue_Cancel() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	waiting := must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Delay: time.Hour}))
	fmt.Println("waiting:", must(q.Cancel(ctx, waiting.ID)))

	w := errand.NewWorker(q, nil)
	started := make(chan errand.ID)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[SendEmail]) error {
		started <- job.ID
		<-ctx.Done()
		return context.Cause(ctx)
	})
	go func() {
		fmt.Println("running:", must(q.Cancel(ctx, <-started)))
		check(w.Shutdown(ctx))
	}()
	running := must(q.Enqueue(ctx, SendEmail{}, nil))
	check(w.Run(ctx))
	j := must(q.Job(ctx, running.ID))
	fmt.Printf("in the end: %s: %s\n", j.State, j.Error)
	// Output:
	// waiting: cancelled
	// running: running
	// in the end: cancelled: errand: job cancelled
}

func ExampleQueue_Pause() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Pause(ctx, "mail"))
	must(q.Enqueue(ctx, SendEmail{Subject: "first"}, &errand.JobOptions{Queue: "mail"}))
	must(q.Enqueue(ctx, SendEmail{Subject: "second"}, nil))
	fmt.Println("paused:", must(q.Paused(ctx)))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail", "default"}, Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println(job.Args.Subject)
		if job.Queue == "mail" {
			stop()
			return nil
		}
		return q.Resume(ctx, "mail")
	})
	check(w.Run(ctx))
	// Output:
	// paused: [mail]
	// second
	// first
}

func ExampleQueue_Counts() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	must(q.Enqueue(ctx, SendEmail{}, nil))
	must(q.Enqueue(ctx, SendEmail{}, nil))
	must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Delay: time.Hour}))
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.Queue, c.Kind, c.State, c.N)
	}
	// Unordered output:
	// default send_email scheduled 1
	// default send_email ready 2
}

// A key that is held for ever can be given back.
func ExampleQueue_ReleaseUnique() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{Retention: -1}) // what is cancelled is deleted at once
	defer remove()

	once := &errand.JobOptions{Unique: &errand.Unique{Key: "order 17", Forever: true}}
	mail := SendEmail{To: "ada@example.org"}
	first := must(q.Enqueue(ctx, mail, once))
	must(q.Cancel(ctx, first.ID))
	again := must(q.Enqueue(ctx, mail, once))
	fmt.Println("duplicate:", again.Duplicate, "of the first:", again.ID == first.ID, "gone:", again.Gone)
	must(q.ReleaseUnique(ctx, mail.Kind(), "order 17"))
	fmt.Println("duplicate:", must(q.Enqueue(ctx, mail, once)).Duplicate)
	// Output:
	// duplicate: true of the first: true gone: true
	// duplicate: false
}
