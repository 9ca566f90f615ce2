package errand

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/internal/bulk"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// bulkPolicy is that of bulk jobs. What fails is the store, and it is tried again until it
// is well.
var bulkPolicy = policy.Policy{MinDelay: time.Second, MaxDelay: 30 * time.Second, Retries: 1_000_000, MinDelayRetries: 10, MaxDelayRetries: 999_990}

// bulkEngine is what a worker does about bulk jobs.
type bulkEngine struct {
	once sync.Once
	stop context.CancelFunc // nil before
	done chan struct{}      // closed when what once has begun has ended; nil before
	err  error              // that a bulk job is stuck; set before that
}

// servesBulk reports whether w works for bulk jobs alone.
func (w *Worker) servesBulk() bool { return slices.Equal(w.opts.Queues, []string{storage.BulkQueue}) }

// configOf returns the configuration of the engine of w.
func (w *Worker) configOf() engine.Config {
	if w.servesBulk() {
		return w.bulkConfig()
	}
	return w.config()
}

// run runs the engine of w, and beside it one for bulk jobs while there are any.
func (w *Worker) run(ctx context.Context) error {
	e := w.get()
	if w.servesBulk() {
		return e.Run(ctx)
	}
	var done chan struct{}
	w.bulk.once.Do(func() {
		inner, stop := context.WithCancel(ctx)
		done = make(chan struct{})
		w.mu.Lock()
		w.bulk.stop, w.bulk.done = stop, done
		w.mu.Unlock()
		go func() {
			defer close(done)
			w.bulk.err = bulk.Watch(inner, w.queue.store, w.bulkConfig)
		}()
	})
	err := e.Run(ctx)
	if done != nil {
		w.bulk.stop()
		<-done
		err = cmp.Or(err, w.bulk.err)
	}
	return err
}

// stop stops the engines of w, and returns when both have ended.
func (w *Worker) stop(ctx context.Context) error {
	e := w.get()
	now := func() (context.CancelFunc, chan struct{}) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.bulk.stop, w.bulk.done
	}
	if stop, _ := now(); stop != nil {
		stop()
	}
	err := e.Shutdown(ctx)
	if _, done := now(); done != nil { // Run may have begun meanwhile
		<-done
		err = cmp.Or(err, w.bulk.err)
	}
	return err
}

// bulkConfig is that of an engine for bulk jobs: nothing that an application has set is for
// them but the length of leases.
func (w *Worker) bulkConfig() engine.Config {
	q := w.queue
	return engine.Config{
		Store:         q.store,
		Owner:         q,
		Queues:        []string{storage.BulkQueue},
		Handlers:      map[string]engine.Handler{storage.BulkQueue: {Run: q.bulkWorker().Run}},
		Concurrency:   1,
		LeaseDuration: cmp.Or(w.opts.LeaseDuration, defaultLease),
		StuckAfter:    cmp.Or(w.opts.StuckAfter, defaultStuckAfter),
		MaxCrashes:    engine.NoCrashes, // what it does to jobs may kill a process each time, and it gets on
		MaxSnoozes:    defaultMaxSnoozes,
		MaxRetryAfter: defaultMaxRetryAfter,
		MaxDeaths:     -1,
		Retention: storage.Retention{ // an exchange also ends jobs of others, at their StartBy
			Default: q.opts.Retention, Lanes: map[Lane]time.Duration{{Queue: storage.BulkQueue, Kind: storage.BulkQueue}: bulkKept},
		},
		Policy: bulkPolicy.Delivery(),
		Lanes:  &q.lanes,
		Events: &q.events,
		Clock:  q.clock,
		Bulk:   true,
		Logger: w.opts.Logger,
	}
}

// bulkWorker returns what does the work of bulk jobs.
func (q *Queue) bulkWorker() *bulk.Worker {
	return &bulk.Worker{All: q.stepper(q.clock.read), Held: q.bulkPaused, Stepped: q.awaits.changed}
}

// stepper returns what does an order, whose steps have the time that now returns.
func (q *Queue) stepper(now func(context.Context) (time.Time, bool)) bulk.Stepper {
	return bulk.Stepper{Store: q.store, Now: now, Keep: storage.Retention{Default: q.opts.Retention}, MaxArgs: q.opts.MaxArgs}
}

// order checks a filter of a call that does something to jobs, and returns what is to be done.
func (q *Queue) order(f *faults, do BulkAction, filter JobFilter) *bulk.Order {
	sel := q.selection(f, filter, do.States()...)
	if len(sel.IDs) == 0 && len(sel.Filter.States) == 0 {
		sel.Filter.States = do.States()
	}
	return &bulk.Order{Do: bulk.Action(do), IDs: sel.IDs, Filter: sel.Filter}
}

// perform does an order at once, and calls each with what a step has done. All steps have the
// time of the call, but those of a redrive, so that the earliest death stays the first.
func (q *Queue) perform(ctx context.Context, o *bulk.Order, each func(*storage.Step)) error {
	now, believed := q.clock.read(ctx)
	defer q.awaits.changed()
	s := q.stepper(func(context.Context) (time.Time, bool) { return now, believed })
	if s.Order = o; o.Do == bulk.Redrive {
		s.Now = q.clock.read
	}
	err := s.Begin(ctx)
	for err == nil && !s.Over() {
		var step storage.Step
		step, err = s.Step(ctx, 0)
		each(&step)
	}
	return err
}
