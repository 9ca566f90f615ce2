package main

import (
	"context"
	"fmt"
	"time"
)

// enqueueTx measures jobs in transactions of the application.
type enqueueTx struct{ n int }

func (w enqueueTx) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	x, ok := s.(txEnqueuer)
	if !ok {
		return fmt.Errorf("%T cannot enqueue in a transaction", s)
	}
	if err := makeOrders(ctx, t.path()); err != nil {
		return err
	}
	n := t.n(w.n)
	took := make(waits, 0, n)
	for i := -10; i < n; i++ {
		if i == 0 {
			if err := t.start(); err != nil {
				return err
			}
		}
		begun := time.Now()
		if err := x.EnqueueTx(ctx, newJob{payload: payload{N: i, Pad: smallPad}}, smallPad); err != nil {
			return err
		}
		if i >= 0 {
			took.add(time.Since(begun))
		}
	}
	if err := t.stop(n); err != nil {
		return err
	}
	t.note(figP50, figP99, took)
	return nil
}
