package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// pace is how often a job is enqueued where the time of each counts.
const pace = 15 * time.Millisecond

// latency measures the time from the call of enqueue to the start of the
// handler, on a worker that has nothing else to do. In the middle between two
// jobs a bare loop commits one row to a file of its own, so that both see the
// disk in the same moods.
type latency struct{ n int }

func (w latency) run(ctx context.Context, t *trial) (err error) {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	path := filepath.Join(t.Dir, "raw.db")
	bare, err := openRaw(ctx, setup{path: path, relaxed: t.Relaxed})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	if err := warm(ctx, path); err != nil {
		return err
	}
	n := t.n(w.n)
	work, stop := context.WithCancel(ctx)
	defer stop()
	started := make(chan time.Duration, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Work(work, workers, func(_ context.Context, j *job) error {
			started <- time.Since(time.Unix(0, j.At))
			return nil
		})
	}()
	var took, commits waits
	tick := time.NewTicker(pace / 2)
	defer tick.Stop()
	const before = 20 // jobs that are not counted
	for i := range n + before {
		if i == before {
			if err := t.start(); err != nil {
				return err
			}
		}
		<-tick.C
		j := newJob{payload: payload{N: i, At: time.Now().UnixNano(), Pad: smallPad}}
		if err := s.Enqueue(ctx, j); err != nil {
			return err
		}
		var d time.Duration
		select {
		case d = <-started:
		case err := <-ended:
			return errors.Join(err, fmt.Errorf("the worker stopped before job %d", i))
		}
		<-tick.C
		begun := time.Now()
		if err := bare.Enqueue(ctx, j); err != nil {
			return err
		}
		if i >= before {
			took.add(d)
			commits.add(time.Since(begun))
		}
	}
	if err := t.stop(n); err != nil {
		return err
	}
	t.note(figP50, figP99, took)
	t.note(figCommitP50, figCommitP99, commits)
	delete(t.sample.Figures, figRate) // it is the pace
	stop()
	return <-ended
}
