package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

type Download struct{ File string }

func (Download) Kind() string { return "download" }

type Request struct{ URL string }

func (Request) Kind() string { return "request" }

// request waits for an answer until ctx ends.
func request(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

type Alarm struct{ Text string }

func (Alarm) Kind() string { return "alarm" }

// download takes until ctx ends.
func download(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// Two runners are busy with downloads that take for ever. A third one gets to the alarm.
func Example_workerSetConcurrency() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	started := make(chan bool)
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 2, Grace: -1})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Download]) error {
		started <- true
		return download(ctx, job.Args.File)
	})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Alarm]) error {
		fmt.Println("alarm:", job.Args.Text)
		stop()
		return nil
	})
	must(q.Enqueue(ctx, Download{File: "firmware"}, nil))
	must(q.Enqueue(ctx, Download{File: "maps"}, nil))
	must(q.Enqueue(ctx, Alarm{Text: "door open"}, nil))

	go func() {
		<-started
		<-started
		check(w.SetConcurrency(3))
	}()
	check(w.Run(ctx))
	// Output:
	// alarm: door open
}

// A worker of 4 has ten long downloads to do. As only 2 of them run at a time, an
// alarm starts at once.
func Example_handlerOptionsConcurrency() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	for range 10 {
		must(q.Enqueue(ctx, Download{File: "firmware"}, nil))
	}
	must(q.Enqueue(ctx, Alarm{Text: "door open"}, nil))

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 4, Grace: -1})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Download]) error {
		return download(ctx, job.Args.File)
	}, errand.HandlerOptions{Concurrency: 2})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Alarm]) error {
		fmt.Println("alarm:", job.Args.Text)
		stop()
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// alarm: door open
}

// A worker of 1 has three requests to make that wait for their answers. They do not count
// after 100 ms, so that an alarm behind them starts soon.
func Example_handlerOptionsCountsFor() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	for range 3 {
		must(q.Enqueue(ctx, Request{URL: "https://slow.example"}, nil))
	}
	must(q.Enqueue(ctx, Alarm{Text: "door open"}, nil))

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1, Grace: -1})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Request]) error {
		return request(ctx, job.Args.URL)
	}, errand.HandlerOptions{CountsFor: 100 * time.Millisecond})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Alarm]) error {
		fmt.Println("alarm:", job.Args.Text)
		stop()
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// alarm: door open
}
