package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// All processes on the file together start ten attempts a second for a host, after two at
// once.
func Example_settingsStarts() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	check(q.Configure(ctx, errand.Lane{Queue: "webhook/acme"}, errand.Settings{Starts: new(10)}))
	n := 0
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"webhook/*"}, Concurrency: 1})
	errand.Handle(w, func(context.Context, *errand.Job[Deliver]) error {
		if n++; n == 5 {
			stop()
		}
		return nil
	})
	began := time.Now()
	for range 5 {
		must(q.Enqueue(ctx, Deliver{Event: "paid"}, &errand.JobOptions{Queue: "webhook/acme"}))
	}
	check(w.Run(ctx))
	fmt.Println("5 attempts took at least 0.3 s:", time.Since(began) >= 290*time.Millisecond)
	// Output:
	// 5 attempts took at least 0.3 s: true
}
