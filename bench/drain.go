package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// drain measures workers on jobs that are there already.
type drain struct {
	n     int
	keep  bool
	fails int // how often each job fails before it succeeds
}

func (w drain) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{keep: w.keep, retries: w.fails})
	if err != nil {
		return err
	}
	defer s.Close()
	n := t.n(w.n)
	if err := fill(ctx, s, n, smallPad); err != nil {
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	if err := drainAll(ctx, s, n, w.fails); err != nil {
		return err
	}
	return t.stop(n)
}

// dead measures jobs that fail for good, and their redrive.
type dead struct{ n int }

func (w dead) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	defer s.Close()
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
	work, stop := context.WithCancel(ctx)
	defer stop()
	var failed atomic.Int64
	err = s.Work(work, workers, func(context.Context, *job) error {
		if failed.Add(1) == int64(n) {
			stop()
		}
		return errFails
	})
	if err != nil {
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

// mixed measures producers and workers at the same time.
type mixed struct{ producers, n int }

func (w mixed) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	defer s.Close()
	n := max(t.n(w.n)/w.producers, 1) * w.producers
	if err := t.start(); err != nil {
		return err
	}
	if m, ok := s.(mixer); ok {
		seen := newSet(n)
		err = m.Mixed(ctx, w.producers, n, func(_ context.Context, j *job) error {
			seen.add(j)
			return nil
		})
		err = errors.Join(err, seen.err())
	} else {
		err = w.both(ctx, s, n)
	}
	if err != nil {
		return err
	}
	return t.stop(n)
}

func (w mixed) both(ctx context.Context, s system, n int) error {
	errs := make([]error, w.producers)
	var producers sync.WaitGroup
	for p := range w.producers {
		producers.Go(func() {
			for i := p; i < n && errs[p] == nil; i += w.producers {
				errs[p] = s.Enqueue(ctx, newJob{payload: payload{N: i, Pad: smallPad}})
			}
		})
	}
	err := drainAll(ctx, s, n, 0)
	producers.Wait()
	return errors.Join(append(errs, err)...)
}
