package main

import (
	"context"
	"time"

	"github.com/errandq/errand"
)

// batch measures workers whose handler makes a request to another side: one for each
// job, or one for many jobs.
type batch struct {
	n       int
	perCall int           // jobs of a request; 1 has handlers of one job
	request time.Duration // how long the other side takes for a request of any size
}

// batcher is a system of which one call of a handler does many jobs.
type batcher interface {
	// WorkBatches is Work, with up to perCall jobs a call.
	WorkBatches(ctx context.Context, n, perCall int, handle func(context.Context, []*job) error) error
}

func (w batch) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	return t.drain(ctx, s, t.n(w.n), func(ctx context.Context, done func(*job)) error {
		request := func(jobs ...*job) error {
			if w.request > 0 {
				<-time.After(w.request)
			}
			for _, j := range jobs {
				done(j)
			}
			return nil
		}
		if w.perCall == 1 {
			return s.Work(ctx, workers, func(_ context.Context, j *job) error { return request(j) })
		}
		return s.(batcher).WorkBatches(ctx, workers, w.perCall, func(_ context.Context, jobs []*job) error { return request(jobs...) })
	})
}

func (e *errandQueue) WorkBatches(ctx context.Context, n, perCall int, handle func(context.Context, []*job) error) error {
	w := errand.NewWorker(e.q, &errand.WorkerOptions{Concurrency: n})
	errand.HandleMany(w, func(ctx context.Context, all []*errand.Job[work]) error {
		jobs := make([]*job, len(all))
		for i, j := range all {
			jobs[i] = &job{payload: payload(j.Args), Attempt: j.Attempt}
		}
		return handle(ctx, jobs)
	}, errand.BatchOptions{Max: perCall})
	return w.Run(ctx)
}
