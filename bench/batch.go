package main

import (
	"context"
	"fmt"
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
	n := t.n(w.n)
	if err := fill(ctx, s, n, smallPad); err != nil {
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	if err := w.drain(ctx, s, n); err != nil {
		return err
	}
	return t.stop(n)
}

// drain works until n different jobs are done. It fails if any is lost or done again.
func (w batch) drain(ctx context.Context, s system, n int) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	seen := newSet(n)
	request := func(jobs ...*job) error {
		if w.request > 0 {
			<-time.After(w.request)
		}
		for _, j := range jobs {
			if seen.add(j) == n {
				stop()
			}
		}
		return nil
	}
	var err error
	if w.perCall == 1 {
		err = s.Work(ctx, workers, func(_ context.Context, j *job) error { return request(j) })
	} else {
		err = s.(batcher).WorkBatches(ctx, workers, w.perCall, func(_ context.Context, jobs []*job) error { return request(jobs...) })
	}
	if err != nil {
		return err
	}
	if left, err := s.Left(context.WithoutCancel(ctx)); err != nil || left != 0 {
		return fmt.Errorf("%d jobs are left, %w", left, err)
	}
	return seen.err()
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
