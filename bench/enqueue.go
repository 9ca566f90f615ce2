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
	if err := w.call(ctx, s, 0, min(each, 10), batch, nil); err != nil { // prepares statements
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	all := make([]waits, callers)
	errs := make([]error, callers)
	var done sync.WaitGroup
	for c := range callers {
		all[c] = make(waits, 0, each)
		done.Go(func() { errs[c] = w.call(ctx, s, c*each*batch, each, batch, &all[c]) })
	}
	done.Wait()
	if err := t.stop(callers * each * batch); err != nil {
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
	left, err := s.Left(ctx)
	if want := callers*each*batch + min(each, 10)*batch; err == nil && left != want {
		err = fmt.Errorf("%d jobs are there: want %d", left, want)
	}
	return err
}

// call is one caller, who enqueues times batches of jobs.
func (w enqueue) call(ctx context.Context, s system, from, times, batch int, took *waits) error {
	for i := range times {
		begun := time.Now()
		var err error
		if all := jobs(from+i*batch, batch, smallPad); batch == 1 {
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
