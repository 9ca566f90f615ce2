package cookbook_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
)

// Uploads wait for the night, and on a board without a clock battery also for the time.
func Example_nightWindow() {
	night := must(gate.Window("22:00-06:00", "Europe/Berlin"))
	sending := must(gate.All(gate.ClockPlausible(time.Time{}), night))
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"uploads": {Gate: sending},
	}})
	defer remove()
	must(q.Enqueue(context.Background(), Upload{Document: 7}, &errand.JobOptions{Queue: "uploads"}))
	for _, c := range must(q.Counts(context.Background())) {
		fmt.Println(c.Queue, c.State, c.N)
	}
	// Output: uploads ready 1
}

// A technician has repaired the antenna, and does not want to wait until the device
// finds out.
func Example_backOnline() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	running, stop := context.WithCancel(ctx)
	w := errand.NewWorker(q, nil)
	repaired, held := make(chan struct{}), make(chan struct{}, 100)
	errand.Handle(w, func(_ context.Context, job *errand.Job[Upload]) error {
		select {
		case <-repaired:
			stop()
			return nil
		default:
			held <- struct{}{}
			return errand.HoldLane(time.Hour, errors.New("no carrier"))
		}
	})
	must(q.Enqueue(ctx, Upload{Document: 7}, nil))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	<-held
	for len(must(q.Holds(ctx))) == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, h := range must(q.Holds(ctx)) {
		fmt.Printf("held: %s, %d waits\n", h.Detail, h.Waiting)
	}
	close(repaired)
	must(q.Release(ctx, errand.Lane{Queue: "default", Kind: "upload"}, "unavailable"))
	must(q.RunNow(ctx, errand.JobFilter{Kind: "upload"}, nil))
	check(<-ended)
	fmt.Println("sent")
	// Output:
	// held: no carrier, 1 waits
	// sent
}
