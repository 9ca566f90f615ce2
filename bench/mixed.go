package main

import (
	"context"
	"errors"
	"sync"
)

// mixed measures producers and workers at the same time.
type mixed struct{ producers, n int }

func (w mixed) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
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
	err := drainAll(ctx, s, n, 0, 0)
	producers.Wait()
	return errors.Join(append(errs, err)...)
}
