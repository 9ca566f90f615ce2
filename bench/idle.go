package main

import (
	"context"
	"time"
)

// idle measures a worker that has nothing to do, after it has settled.
type idle struct {
	settle, during time.Duration
	queues         []string // as in setup
}

func (w idle) run(ctx context.Context, t *trial) error {
	s, err := t.openAt(ctx, setup{path: t.path(), queues: w.queues})
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Work(work, workers, func(context.Context, *job) error { return nil })
	}()
	time.Sleep(t.scaled(w.settle))
	if err := t.start(); err != nil {
		return err
	}
	time.Sleep(t.scaled(w.during))
	if err := t.stop(1); err != nil {
		return err
	}
	t.only(figCPU, figBytes, figCalls, figPeak)
	t.sample.Jobs = 0
	stop()
	return <-ended
}
