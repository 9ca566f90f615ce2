package main

import "context"

// beside measures workers on some jobs while many others are there, on which
// nobody works. The stock says which.
type beside struct {
	stock stock
	fresh int // jobs to do that are enqueued first, in place of those that are due or ready
	// queues is as in setup.
	queues []string
}

func (w beside) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{queues: w.queues})
	if err != nil {
		return err
	}
	n := t.n(w.stock.due) + t.n(w.stock.ready)
	if w.fresh > 0 {
		n = t.n(w.fresh)
		if err := fill(ctx, s, n, smallPad); err != nil {
			return err
		}
	}
	if err := t.start(); err != nil {
		return err
	}
	others := t.n(w.stock.scheduled) + t.n(w.stock.others) + t.n(w.stock.held) + t.n(w.stock.behind)
	if err := drainAll(ctx, s, n, 0, others); err != nil {
		return err
	}
	return t.stop(n)
}
