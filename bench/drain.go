package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// drain measures workers on jobs that are there already.
type drain struct {
	n      int
	keep   bool
	fails  int  // how often each job fails before it succeeds
	queues int  // over how many the jobs are spread, and all kinds, if more than one
	keys   bool // each job has a unique key of its own
	// perGroup is how many jobs each group has. If zero, the jobs are in no group.
	perGroup int
}

func (w drain) run(ctx context.Context, t *trial) error {
	o := setup{keep: w.keep, retries: w.fails}
	for i := range w.queues {
		o.queues = append(o.queues, fmt.Sprintf("q%d", i))
	}
	s, err := t.open(ctx, o)
	if err != nil {
		return err
	}
	n := t.n(w.n)
	var marks []mark
	if w.queues > 0 {
		marks = append(marks, inLanes(o.queues))
	}
	if w.keys {
		marks = append(marks, withKey)
	}
	if w.perGroup > 0 {
		marks = append(marks, inGroups(max(n/w.perGroup, 1)))
	}
	if err := fill(ctx, s, n, smallPad, marks...); err != nil {
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	if err := drainAll(ctx, s, n, w.fails, 0); err != nil {
		return err
	}
	return t.stop(n)
}

// drain measures work, which has to do n jobs that are there already.
func (t *trial) drain(ctx context.Context, s system, n int, work func(ctx context.Context, done func(*job)) error) error {
	if err := fill(ctx, s, n, smallPad); err != nil {
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	if err := workAll(ctx, s, n, 0, work); err != nil {
		return err
	}
	return t.stop(n)
}

// fill enqueues n jobs before anything is measured, with these marks.
func fill(ctx context.Context, s system, n int, pad string, marks ...mark) error {
	for from := 0; from < n; from += 5000 {
		if err := s.EnqueueMany(ctx, jobs(from, min(5000, n-from), pad, marks...)); err != nil {
			return err
		}
	}
	return nil
}

// oneGroup is how many jobs a group has if there is no other one.
const oneGroup = math.MaxInt

// workers is how many handlers run at a time.
const workers = 16

// patience is how long a drain may take. Whoever takes longer has lost jobs.
const patience = 4 * time.Minute

var errFails = errors.New("this attempt is to fail")

// drainAll works until n different jobs have succeeded, each after it has
// failed fails times. It fails if any is lost, or if afterwards there are not
// just the others, which nobody handles or which are not due.
func drainAll(ctx context.Context, s system, n, fails, others int) error {
	return workAll(ctx, s, n, others, func(ctx context.Context, done func(*job)) error {
		return s.Work(ctx, workers, func(_ context.Context, j *job) error {
			if j.Attempt <= fails {
				return errFails
			}
			done(j)
			return nil
		})
	})
}

// workAll is drainAll by work, which calls done with each job that is done.
func workAll(ctx context.Context, s system, n, others int, work func(ctx context.Context, done func(*job)) error) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	seen := newSet(n)
	err := work(ctx, func(j *job) {
		if seen.add(j) == n {
			stop()
		}
	})
	if err != nil {
		return err
	}
	left, err := s.Left(context.WithoutCancel(ctx))
	if err == nil && left != others {
		err = fmt.Errorf("%d jobs are left: want %d", left, others)
	}
	return errors.Join(err, seen.err())
}
