package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// enqueue measures callers that wait until their jobs are durable.
type enqueue struct {
	callers, batch int
	bareBatch      int // what a bare loop has in one commit instead, if not zero
	n              int
	marks          []mark
	// full is how many jobs are there before and may be there, so that each new one evicts the
	// oldest. If zero, the queue is empty before, and has no such limit.
	full int
}

func (w enqueue) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	callers, batch := w.callers, w.batch
	if t.entry.bare && w.bareBatch != 0 {
		callers, batch = 1, w.bareBatch
	}
	each := max(t.n(w.n)/callers/batch, 1)
	n, first := callers*each*batch, min(each, 10)
	added := n + first*batch
	from, most := 0, 0 // the number of the first job, and how many may be there
	if w.full > 0 {
		most = max(t.n(w.full), added)
		from = most - added
		if err := makeFull(ctx, s, most, added); err != nil {
			return err
		}
	}
	if err := w.call(ctx, s, from, first, batch, nil); err != nil { // prepares statements
		return err
	}
	from += first * batch
	if err := t.start(); err != nil {
		return err
	}
	all := make([]waits, callers)
	errs := make([]error, callers)
	var done sync.WaitGroup
	for c := range callers {
		all[c] = make(waits, 0, each)
		done.Go(func() { errs[c] = w.call(ctx, s, from+c*each*batch, each, batch, &all[c]) })
	}
	done.Wait()
	if err := t.stop(n); err != nil {
		return err
	}
	var merged waits
	for c := range callers {
		if errs[c] != nil {
			return errs[c]
		}
		merged = append(merged, all[c]...)
	}
	t.note(figP50, figP99, merged)
	if most > 0 {
		return drainAll(ctx, s, most, 0, 0)
	}
	left, err := s.Left(ctx)
	if err == nil && left != added {
		err = fmt.Errorf("%d jobs are there: want %d", left, added)
	}
	return err
}

// makeFull enqueues as many jobs as may be there, of which so many are going to be evicted.
// These have negative numbers, and those that stay are numbered from zero.
func makeFull(ctx context.Context, s system, most, evicted int) error {
	e, ok := s.(evicter)
	if !ok {
		return fmt.Errorf("%T evicts no jobs", s)
	}
	err := enqueueAll(ctx, s, most, func(i int) newJob {
		return newJob{payload: payload{N: i - evicted, Pad: smallPad}}
	})
	if err != nil {
		return err
	}
	return e.KeepNewest(ctx, most)
}

// call is one caller, who enqueues times batches of jobs.
func (w enqueue) call(ctx context.Context, s system, from, times, batch int, took *waits) error {
	for i := range times {
		begun := time.Now()
		var err error
		if all := jobs(from+i*batch, batch, smallPad, w.marks...); batch == 1 {
			err = s.Enqueue(ctx, all[0])
		} else {
			err = s.EnqueueMany(ctx, all)
		}
		if err != nil {
			return err
		}
		if took != nil {
			took.add(time.Since(begun))
		}
	}
	return nil
}
