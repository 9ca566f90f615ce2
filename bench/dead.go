package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// failAll works until n jobs have failed, and none of them waits or runs: in a system where what
// fails while it stops counts for nothing, the last one would run again.
func failAll(ctx context.Context, s system, n int) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var failed atomic.Int64
	all, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		select {
		case <-all:
		case <-work.Done():
		}
		left, err := s.Left(work)
		for err == nil && left > 0 {
			time.Sleep(time.Millisecond)
			left, err = s.Left(work)
		}
		stop()
		ended <- err
	}()
	err := s.Work(work, workers, func(context.Context, *job) error {
		if failed.Add(1) == int64(n) {
			close(all)
		}
		return errFails
	})
	stop()
	if e := <-ended; err == nil && ctx.Err() == nil {
		err = e
	}
	return err
}

// dead measures jobs that fail for good, and their redrive.
type dead struct{ n int }

func (w dead) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	d, ok := s.(redriver)
	if !ok {
		return fmt.Errorf("%T cannot redrive", s)
	}
	n := t.n(w.n)
	if err := fill(ctx, s, n, smallPad); err != nil {
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	if err := failAll(ctx, s, n); err != nil {
		return err
	}
	back, err := d.Redrive(ctx)
	if err != nil {
		return err
	}
	if err := t.stop(n); err != nil {
		return err
	}
	left, err := s.Left(ctx)
	if err == nil && (back != n || left != n) {
		err = fmt.Errorf("%d jobs were redriven, %d are there: want %d", back, left, n)
	}
	return err
}
