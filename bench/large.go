package main

import (
	"context"
	"time"
)

// large measures jobs with payloads of a size, enqueued by 16 in a call and then
// done.
type large struct{ n, size int }

func (w large) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	n := t.n(w.n)
	pad := padFor(w.size)
	if err := t.start(); err != nil {
		return err
	}
	begun := time.Now()
	for from := 0; from < n; from += 16 {
		if err := s.EnqueueMany(ctx, jobs(from, min(16, n-from), pad)); err != nil {
			return err
		}
	}
	enqueued := time.Since(begun)
	if err := drainAll(ctx, s, n, 0, 0); err != nil {
		return err
	}
	if err := t.stop(n); err != nil {
		return err
	}
	t.sample.Figures[figEnqueueShare] = enqueued.Seconds() / t.sample.Seconds
	return nil
}
