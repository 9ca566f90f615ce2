// Metrics is a program that Prometheus scrapes: a worker, and a page with its numbers.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/metrics"
)

type Report struct{ Number int }

func (Report) Kind() string { return "report" }

var (
	db   = flag.String("db", "jobs.db", "file of the queue")
	addr = flag.String("addr", "127.0.0.1:9464", "address of the page")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	defer stop()
	if err := run(ctx, *db, *addr); err != nil {
		log.Fatal(err)
	}
}

// run works until ctx ends.
func run(ctx context.Context, db, addr string) error {
	q, err := errand.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(q, &metrics.Options{File: db}))
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "held"}})
	errand.Handle(w, report)
	ctx, stop := context.WithCancel(ctx)
	reported := make(chan error, 1)
	go func() { reported <- enqueue(ctx, q) }()
	err = serve(ctx, addr, mux, w)
	stop()
	return errors.Join(err, <-reported, q.Close())
}

// report fails for some reports, and for some for good.
func report(_ context.Context, job *errand.Job[Report]) error {
	switch job.Args.Number % 5 {
	case 3:
		return errors.New("no paper")
	case 4:
		return errand.Permanent(errors.New("no such report"))
	}
	return nil
}

// enqueue adds reports until ctx ends: to a queue that is worked on, to one that is held, and to
// one without a worker.
func enqueue(ctx context.Context, q *errand.Queue) error {
	if err := q.Pause(ctx, "held"); err != nil {
		return err
	}
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for number := 0; ; number++ {
		for _, queue := range []string{"default", "held", "alone"} {
			_, err := q.Enqueue(ctx, Report{number}, &errand.JobOptions{Queue: queue})
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
}
