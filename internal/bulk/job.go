package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

const (
	// mostStep is how many jobs a step takes at most, and mostSteps how many steps there are
	// in a second while the rate allows it: the writes of others wait for one step at most.
	mostStep  = 500
	mostSteps = 400
	// mostAhead is how far the work may be ahead of its rate. Steps follow each other until it
	// is, and then there is a pause which is long enough for the store to need no longer one,
	// for writers outside of errand. A rate that cannot be reached leaves none.
	mostAhead = 25 * time.Millisecond
	// mostRest bounds the pause between two steps without a rate. It is as long as the step.
	mostRest = 50 * time.Millisecond
	// mostBehind is how far the work may be behind its rate and catch up.
	mostBehind = time.Second
	// lookEvery is how often is looked at what no event tells of.
	lookEvery = time.Second
)

// Worker does the work of bulk jobs.
type Worker struct {
	// All is what the steppers of all of them have: not Order, Lease and At.
	All Stepper
	// Held reports whether bulk jobs are held.
	Held func(context.Context) (bool, error)
	// Stepped is called after each step.
	Stepped func()
}

// run is an attempt of a bulk job.
type run struct {
	Stepper
	w       *Worker
	attempt *engine.Attempt
	held    chan struct{} // holds one: a hold may have changed
	begun   time.Time     // of the pace
	paced   int64         // jobs since then
}

// Run is the handler of bulk jobs.
func (w *Worker) Run(ctx context.Context, l *storage.Leased) error {
	r := &run{Stepper: w.All, w: w, attempt: engine.AttemptOf(ctx), held: make(chan struct{}, 1)}
	r.Order, r.Lease = &Order{}, &l.Lease
	if err := r.Order.Read(l.Args); err != nil { // of another version
		return &engine.PermanentError{Err: fmt.Errorf("args: %w", err)}
	}
	if l.Checkpoint != nil {
		if err := r.At.read(l.Checkpoint, r.Order); err != nil {
			return &engine.PermanentError{Err: fmt.Errorf("checkpoint: %w", err)}
		}
	}
	ring(r.held)
	if n, ok := r.Store.(storage.Notifier); ok {
		defer n.Notify(func(e storage.Event) {
			if slices.ContainsFunc(e.Holds, func(h storage.Lane) bool { return h.Includes(storage.BulkQueue, storage.BulkQueue) }) {
				ring(r.held)
			}
		})()
	}
	err := r.work(ctx, l.Checkpoint == nil)
	if errors.Is(err, engine.ErrCancelled) && ctx.Err() == nil { // a step has found out
		return &engine.CancelError{Err: err}
	}
	return err
}

// work takes step after step.
func (r *run) work(ctx context.Context, begins bool) error {
	if begins {
		c, err := r.Order.Count(ctx, r.Store, 0)
		if err != nil {
			return err
		}
		r.At.Total, r.At.More = c.N, c.More
		if err := r.Begin(ctx); err != nil {
			return err
		}
	}
	for r.say(); !r.Over(); {
		if err := r.await(ctx); err != nil {
			return err
		}
		began := time.Now()
		step, err := r.Step(ctx, r.limit())
		if err != nil {
			return err
		}
		r.say()
		r.w.Stepped()
		if r.Over() {
			continue
		}
		if err := r.pace(ctx, step.Taken, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// say shows how far the work is.
func (r *run) say() {
	p := r.At.progress(time.Time{})
	r.attempt.Progress(p.Done, p.Total, p.Note)
}

// limit returns how many jobs a step takes.
func (r *run) limit() int {
	if r.Order.Rate == 0 {
		return mostStep
	}
	return min(max(r.Order.Rate/mostSteps, 1), mostStep)
}

// pace waits until the next step is due, after one that has taken n jobs. Steps are due by
// how many jobs there were since the pace began, so that what is late does not add up.
func (r *run) pace(ctx context.Context, n int, took time.Duration) error {
	wait := min(took, mostRest)
	if r.Order.Rate > 0 {
		r.paced += int64(n)
		due := r.begun.Add(time.Duration(float64(r.paced) / float64(r.Order.Rate) * float64(time.Second)))
		switch wait = time.Until(due); {
		case wait < -mostBehind:
			r.begun = time.Time{} // as fast as it can be, and not faster later
		case wait < mostAhead:
			wait = 0
		}
	}
	if wait > 0 && !sleep(ctx, wait) {
		return ended(ctx)
	}
	return nil
}

// await waits while bulk jobs are held. It looks when an event says so, and now and then.
func (r *run) await(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	_, told := r.Store.(storage.Notifier)
	for waits := false; ; waits = true {
		select {
		case <-r.held:
		default:
			if told && !waits {
				r.keepPace()
				return nil
			}
		}
		held, err := r.w.Held(ctx)
		if err != nil {
			return err
		}
		if !held {
			r.keepPace()
			return nil
		}
		r.begun = time.Time{}
		t := time.NewTimer(lookEvery)
		select {
		case <-r.held:
			ring(r.held)
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ended(ctx)
		}
		t.Stop()
	}
}

// keepPace begins the pace, unless it has begun.
func (r *run) keepPace() {
	if r.begun.IsZero() {
		r.begun, r.paced = time.Now(), 0
	}
}

// ended returns why an attempt has to end, so that the engine knows it.
func ended(ctx context.Context) error { return fmt.Errorf("%w: %w", context.Cause(ctx), ctx.Err()) }

// ring notes that there is news.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Watch runs an engine for bulk jobs while there are any, until ctx ends. It looks when it begins,
// and when the store tells of one. It returns an error if one is stuck at the end.
func Watch(ctx context.Context, store storage.Store, config func() engine.Config) error {
	news, poll := make(chan struct{}, 1), (<-chan time.Time)(nil)
	if n, ok := store.(storage.Notifier); ok {
		defer n.Notify(func(e storage.Event) {
			if e.Schedules {
				ring(news)
			}
		})()
	} else {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		poll = ticker.C
	}
	for {
		live, err := anyLive(ctx, store)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !sleep(ctx, lookEvery) {
				return nil
			}
			continue
		case live:
			// The engine of the worker meets a store that has failed for good, and ctx ends.
			// Another error, such as that of a disk that stood still, passes.
			if err := serve(ctx, store, config()); err != nil && !sleep(ctx, lookEvery) {
				if errors.Is(err, engine.ErrStuck) {
					return err
				}
				return nil
			}
			continue
		}
		select {
		case <-news:
		case <-poll:
		case <-ctx.Done():
			return nil
		}
	}
}

// serve runs an engine for bulk jobs until there is none, or ctx ends.
func serve(ctx context.Context, store storage.Store, config engine.Config) error {
	e := engine.New(config)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
		}
		if live, err := anyLive(ctx, store); err == nil && !live {
			return e.Shutdown(ctx)
		}
	}
}

// anyLive reports whether a bulk job has not ended.
func anyLive(ctx context.Context, store storage.Store) (bool, error) {
	live := []storage.State{storage.Scheduled, storage.Ready, storage.Blocked, storage.Running}
	page, err := store.Jobs(ctx, storage.Filter{Queue: storage.BulkQueue, States: live}, "", 1)
	return len(page.Jobs) > 0, err
}
