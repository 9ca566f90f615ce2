package errand

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	// bulkStep is how many jobs a step takes at most, and bulkSteps how many steps there are
	// in a second while the rate allows it: the writes of others wait for one step at most.
	bulkStep  = 500
	bulkSteps = 400
	// bulkAhead is how far the work may be ahead of its rate. Steps follow each other until it
	// is, and then there is a pause which is long enough for the store to need no longer one,
	// for writers outside of errand. A rate that cannot be reached leaves none.
	bulkAhead = 25 * time.Millisecond
	// bulkRest bounds the pause between two steps without a rate. It is as long as the step.
	bulkRest = 50 * time.Millisecond
	// bulkBehind is how far the work may be behind its rate and catch up.
	bulkBehind = time.Second
	// bulkSave is how often the place is kept, and bulkLook how often is looked at what no
	// event tells of.
	bulkSave = time.Second
	bulkLook = time.Second
	// bulkSetters is how many jobs of a step have their args set at a time: their writes
	// share a commit.
	bulkSetters = 32
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
			w.bulk.err = w.watchBulk(inner)
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

// watchBulk runs an engine for bulk jobs while there are any, until ctx ends. It looks when
// it begins, and when the store tells of one. It returns an error if one is stuck at the end.
func (w *Worker) watchBulk(ctx context.Context) error {
	news, poll := make(chan struct{}, 1), (<-chan time.Time)(nil)
	if n, ok := w.queue.store.(storage.Notifier); ok {
		defer n.Notify(func(e storage.Event) {
			if e.Schedules {
				ring(news)
			}
		})()
	} else {
		ticker := time.NewTicker(bulkLook)
		defer ticker.Stop()
		poll = ticker.C
	}
	for {
		live, err := w.queue.anyBulk(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !sleep(ctx, bulkLook) {
				return nil
			}
			continue
		case live:
			// The engine of w meets a store that has failed for good, and ctx ends. Another
			// error, such as that of a disk that stood still, passes.
			if err := w.serveBulk(ctx); err != nil && !sleep(ctx, bulkLook) {
				if errors.Is(err, ErrStuck) {
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

// serveBulk runs an engine for bulk jobs until there is none, or ctx ends.
func (w *Worker) serveBulk(ctx context.Context) error {
	e := engine.New(w.bulkConfig())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	ticker := time.NewTicker(bulkLook)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
		}
		if live, err := w.queue.anyBulk(ctx); err == nil && !live {
			return e.Shutdown(ctx)
		}
	}
}

// anyBulk reports whether a bulk job has not ended.
func (q *Queue) anyBulk(ctx context.Context) (bool, error) {
	page, err := q.store.Jobs(ctx, storage.Filter{Queue: storage.BulkQueue, States: []State{Scheduled, Ready, Blocked, Running}}, "", 1)
	return len(page.Jobs) > 0, err
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

// bulkConfig is that of an engine for bulk jobs: nothing that an application has set is for
// them but the length of leases.
func (w *Worker) bulkConfig() engine.Config {
	q := w.queue
	return engine.Config{
		Store:         q.store,
		Owner:         q,
		Queues:        []string{storage.BulkQueue},
		Handlers:      map[string]engine.Handler{storage.BulkQueue: {Run: q.runBulk}},
		Concurrency:   1,
		LeaseDuration: cmp.Or(w.opts.LeaseDuration, defaultLease),
		StuckAfter:    cmp.Or(w.opts.StuckAfter, defaultStuckAfter),
		MaxCrashes:    defaultMaxCrashes,
		MaxSnoozes:    defaultMaxSnoozes,
		MaxRetryAfter: defaultMaxRetryAfter,
		MaxDeaths:     -1,
		Retention:     storage.Retention{Default: bulkKept},
		Policy:        bulkPolicy.Delivery(),
		Lanes:         &q.lanes,
		Events:        &q.events,
		Clock:         q.clock,
		Bulk:          true,
		Logger:        w.opts.Logger,
	}
}

// bulkPlace is where a bulk job has got to, as its checkpoint has it.
type bulkPlace struct {
	Pass    int              `json:"pass"`
	IDs     int              `json:"ids,omitempty"` // of those named that were taken
	After   storage.Position `json:"after,omitzero"`
	Page    string           `json:"page,omitempty"` // in a list; in place of After
	Through int64            `json:"through,omitempty"`
	// Before is what the jobs have died before; zero: none was dead.
	Before  time.Time `json:"before,omitzero"`
	Changed int64     `json:"changed"`
	Left    int64     `json:"left"`
	Total   int64     `json:"total"`
	More    bool      `json:"more,omitempty"`
}

// bulkRun is an attempt of a bulk job.
type bulkRun struct {
	q       *Queue
	attempt *engine.Attempt
	args    bulkArgs
	at      bulkPlace
	saved   time.Time
	held    chan struct{} // holds one: a hold may have changed
	begun   time.Time     // of the pace
	paced   int64         // jobs since then
}

// runBulk is the handler of bulk jobs.
func (q *Queue) runBulk(ctx context.Context, l *storage.Leased) error {
	r := &bulkRun{q: q, attempt: engine.AttemptOf(ctx), held: make(chan struct{}, 1)}
	if err := r.args.read(l.Args); err != nil { // of another version
		return &engine.PermanentError{Err: fmt.Errorf("args: %w", err)}
	}
	if l.Checkpoint != nil {
		if err := json.Unmarshal(l.Checkpoint, &r.at); err != nil {
			return &engine.PermanentError{Err: fmt.Errorf("checkpoint: %w", err)}
		}
		r.say()
	} else if err := r.begin(ctx); err != nil {
		return err
	}
	ring(r.held)
	if n, ok := q.store.(storage.Notifier); ok {
		defer n.Notify(func(e storage.Event) {
			if slices.ContainsFunc(e.Holds, func(h Lane) bool { return h.Includes(storage.BulkQueue, storage.BulkQueue) }) {
				ring(r.held)
			}
		})()
	}
	err := r.work(ctx)
	if err != nil && ctx.Err() == nil {
		return err
	}
	// Also when the worker stops: then nothing is done twice.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), bulkSave)
	defer cancel()
	return errors.Join(err, r.save(last))
}

// begin finds out what the work is, and keeps that.
func (r *bulkRun) begin(ctx context.Context) (err error) {
	if r.at.Total, r.at.More, _, err = r.q.countBulk(ctx, &r.args, 0); err != nil {
		return err
	}
	if r.args.Filter.Has(Dead) && len(r.args.IDs) == 0 {
		if r.at.Before, err = r.q.lastDeath(ctx); err != nil {
			return err
		}
	}
	r.say()
	return r.save(ctx)
}

// work takes step after step.
func (r *bulkRun) work(ctx context.Context) error {
	passes := r.args.passes()
	for r.at.Pass < len(passes) {
		if err := r.await(ctx); err != nil {
			return err
		}
		began := time.Now()
		n, over, err := r.step(ctx, passes[r.at.Pass])
		if err != nil {
			return err
		}
		if over {
			r.at = bulkPlace{Pass: r.at.Pass + 1, Before: r.at.Before, Changed: r.at.Changed, Left: r.at.Left, Total: r.at.Total, More: r.at.More}
			continue
		}
		if time.Since(r.saved) >= bulkSave {
			if err := r.save(ctx); err != nil {
				return err
			}
		}
		if err := r.pace(ctx, n, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// limit returns how many jobs a step takes.
func (r *bulkRun) limit() int {
	if r.args.Rate == 0 {
		return bulkStep
	}
	return min(max(r.args.Rate/bulkSteps, 1), bulkStep)
}

// pace waits until the next step is due, after one that has taken n jobs. Steps are due by
// how many jobs there were since the pace began, so that what is late does not add up.
func (r *bulkRun) pace(ctx context.Context, n int, took time.Duration) error {
	wait := min(took, bulkRest)
	if r.args.Rate > 0 {
		r.paced += int64(n)
		due := r.begun.Add(time.Duration(float64(r.paced) / float64(r.args.Rate) * float64(time.Second)))
		switch wait = time.Until(due); {
		case wait < -bulkBehind:
			r.begun = time.Time{} // as fast as it can be, and not faster later
		case wait < bulkAhead:
			wait = 0
		}
	}
	if wait > 0 && !sleep(ctx, wait) {
		return ended(ctx)
	}
	return nil
}

// await waits while bulk jobs are held. It looks when an event says so, and now and then.
func (r *bulkRun) await(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	_, told := r.q.store.(storage.Notifier)
	for waits := false; ; {
		select {
		case <-r.held:
		default:
			if told && !waits {
				r.keepPace()
				return nil
			}
		}
		paused, err := r.q.bulkPaused(ctx)
		if err != nil {
			return err
		}
		if !paused {
			r.keepPace()
			return nil
		}
		if !waits {
			waits, r.begun = true, time.Time{}
			if err := r.save(ctx); err != nil {
				return err
			}
		}
		t := time.NewTimer(bulkLook)
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
func (r *bulkRun) keepPace() {
	if r.begun.IsZero() {
		r.begun, r.paced = time.Now(), 0
	}
}

// ended returns why an attempt has to end, so that the engine knows it.
func ended(ctx context.Context) error { return fmt.Errorf("%w: %w", context.Cause(ctx), ctx.Err()) }

// save keeps the place.
func (r *bulkRun) save(ctx context.Context) error {
	data, err := json.Marshal(&r.at)
	if err != nil {
		return err
	}
	r.saved = time.Now()
	err = r.attempt.Checkpoint(ctx, data)
	if errors.Is(err, ErrCancelled) {
		return &engine.CancelError{Err: err}
	}
	return err
}

// step takes some jobs, and returns how many. It is over if none is left.
func (r *bulkRun) step(ctx context.Context, states []State) (n int, over bool, err error) {
	a, at := &r.args, &r.at
	if len(a.IDs) > 0 {
		ids := a.IDs[min(at.IDs, len(a.IDs)):]
		if ids = ids[:min(len(ids), r.limit(), idStep)]; len(ids) == 0 {
			return 0, true, nil
		}
		step, left, err := r.change(ctx, storage.Selection{IDs: ids})
		if err == nil {
			at.IDs += len(ids)
			r.count(&step, left)
		}
		return len(ids), false, err
	}
	sel := storage.Selection{Filter: a.Filter, After: at.After, Through: at.Through, Limit: r.limit()}
	sel.Filter.States = states
	if slices.Equal(states, []State{Dead}) {
		if at.Before.IsZero() {
			return 0, true, nil
		}
		if before := sel.Filter.EndedBefore; before.IsZero() || at.Before.Before(before) {
			sel.Filter.EndedBefore = at.Before
		}
	}
	if len(a.Set) > 0 {
		return r.setStep(ctx, &sel)
	}
	step, left, err := r.change(ctx, sel)
	if err != nil {
		return 0, false, err
	}
	r.count(&step, left)
	at.After, at.Through = step.Next, step.Through
	return step.N + len(step.Duplicates), step.Next == (storage.Position{}), nil
}

// count counts what a step has done.
func (r *bulkRun) count(step *storage.Step, left int) {
	r.at.Changed += int64(step.N)
	r.at.Left += int64(len(step.Duplicates) + len(step.NotFound) + left)
	r.say()
	r.q.awaits.changed()
}

// say shows how far the work is.
func (r *bulkRun) say() {
	r.attempt.Progress(r.at.Changed, r.at.Total, bulkNote{r.at.Left, r.at.More}.text())
}

// change does what is to be done to the jobs of a step. left is how many of those named were
// left out before.
func (r *bulkRun) change(ctx context.Context, sel storage.Selection) (step storage.Step, left int, err error) {
	a, s := &r.args, r.q.store
	now, believed := r.q.clock.read(ctx)
	sel.Doubtful, sel.FromStart = !believed, a.FromStart
	switch a.Do {
	case BulkRedrive:
		if len(a.Set) > 0 {
			all := len(sel.IDs)
			if sel.IDs, err = r.setAll(ctx, now, sel.IDs); err != nil || len(sel.IDs) == 0 {
				return step, all, err
			}
			left = all - len(sel.IDs)
		}
		step, err = s.Redrive(ctx, now, sel, a.To)
	case BulkRunNow:
		step, err = s.RunNow(ctx, now, sel, storage.Waiting{First: a.First, Failed: a.Failed})
	case BulkChange:
		step, err = s.Change(ctx, now, sel, *a.Edit)
		left = len(step.Live)
	case BulkCancel:
		step, err = s.Change(ctx, now, sel, storage.Edit{Cancel: &storage.Retention{Default: r.q.opts.Retention}})
		step.N += len(step.Live) // which were asked to stop
	case BulkDelete:
		step, err = s.Delete(ctx, sel)
		left = len(step.Live)
	}
	return step, left, err
}

// setStep takes the next dead jobs of a list, and has args set in them before they are
// redriven.
func (r *bulkRun) setStep(ctx context.Context, sel *storage.Selection) (n int, over bool, err error) {
	page, err := r.q.store.Jobs(ctx, sel.Filter, r.at.Page, min(sel.Limit, idStep))
	if err != nil {
		return 0, false, err
	}
	ids := make([]ID, len(page.Jobs))
	for i := range page.Jobs {
		ids[i] = page.Jobs[i].ID
	}
	if len(ids) > 0 {
		step, left, err := r.change(ctx, storage.Selection{IDs: ids})
		if err != nil {
			return 0, false, err
		}
		r.count(&step, left)
	}
	r.at.Page = page.Next
	return len(ids), page.Next == "", nil
}

// setAll puts values into the args of dead jobs, and returns those in which they are.
func (r *bulkRun) setAll(ctx context.Context, now time.Time, ids []ID) (well []ID, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var faults []error
	slots := make(chan struct{}, bulkSetters)
	for _, id := range ids {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ok, err := r.setOne(ctx, now, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				faults = append(faults, err)
			case ok:
				well = append(well, id)
			}
		})
	}
	all.Wait()
	return well, errors.Join(faults...)
}

// setOne reports whether the args of a dead job could be set.
func (r *bulkRun) setOne(ctx context.Context, now time.Time, id ID) (bool, error) {
	job, err := r.q.store.Job(ctx, id)
	if errors.Is(err, ErrNotFound) || err == nil && job.State != Dead {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	args, ok := setArgs(job.Args, r.args.Set)
	if !ok || len(args) > r.q.opts.MaxArgs {
		return false, nil
	}
	step, err := r.q.store.Change(ctx, now, storage.Selection{IDs: []ID{id}}, storage.Edit{Args: args})
	return step.N == 1, err
}

// setArgs returns args with values in them, by the paths of fields. It is not ok if the args
// have no such field: that may be a slip of the pen.
func setArgs(args []byte, values map[string]json.RawMessage) (out []byte, ok bool) {
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if err := d.Decode(&all); err != nil || all == nil {
		return nil, false
	}
	for path, value := range values {
		in, names := all, strings.Split(path, ".")
		last := names[len(names)-1]
		for _, name := range names[:len(names)-1] {
			in, _ = in[name].(map[string]any) // nil if it is none
		}
		if _, ok := in[last]; !ok {
			return nil, false
		}
		in[last] = value
	}
	out, err := json.Marshal(all)
	return out, err == nil
}
