// Command errand is a small program with errand.
package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/errandq/errand"
	"github.com/errandq/errand/bench/small"
)

type work struct{}

func (work) Kind() string { return "work" }

type queue struct {
	*errand.Queue
	stop  context.CancelFunc
	ended chan error
}

func main() {
	small.Main(func(ctx context.Context, path string, handled func()) (small.Queue, error) {
		q, err := errand.Open(ctx, path, &errand.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[work]) error {
			handled()
			return nil
		})
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		return queue{q, stop, ended}, nil
	})
}

func (q queue) Enqueue(ctx context.Context) error {
	_, err := q.Queue.Enqueue(ctx, work{}, nil)
	return err
}

func (q queue) Close() error {
	q.stop()
	return errors.Join(<-q.ended, q.Queue.Close())
}
