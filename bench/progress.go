package main

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// progress measures handlers that say how far their job has got.
type progress struct {
	n     int
	steps int           // of a handler
	step  time.Duration // how long each of them takes
	say   bool          // after each step; else the handlers only take their time
}

// progresser is a system whose handlers can say how far their job has got.
type progresser interface {
	// WorkProgress is Work, whose handlers can say that so much of their job is done.
	WorkProgress(ctx context.Context, n int, handle func(j *job, say func(done, total int64)) error) error
}

func (w progress) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	x, ok := s.(progresser)
	if !ok {
		return fmt.Errorf("%T has no progress of jobs", s)
	}
	return t.drain(ctx, s, t.n(w.n), func(ctx context.Context, done func(*job)) error {
		return x.WorkProgress(ctx, workers, func(j *job, say func(done, total int64)) error {
			w.handle(say)
			done(j)
			return nil
		})
	})
}

// handle takes the time of all steps. A step that the clock has passed already is over at
// once, so that a handler which is called late or sleeps too long says as much as any.
func (w progress) handle(say func(done, total int64)) {
	begun := time.Now()
	for i := range w.steps {
		time.Sleep(time.Until(begun.Add(time.Duration(i+1) * w.step)))
		if w.say {
			say(int64(i+1), int64(w.steps))
		}
	}
}

func (e *errandQueue) WorkProgress(ctx context.Context, n int, handle func(*job, func(done, total int64)) error) error {
	w := errand.NewWorker(e.q, &errand.WorkerOptions{Concurrency: n})
	errand.Handle(w, func(_ context.Context, j *errand.Job[work]) error {
		return handle(&job{payload: payload(j.Args), Attempt: j.Attempt}, func(done, total int64) { j.Progress(done, total, "") })
	})
	return w.Run(ctx)
}
