package errand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errandq/errand/internal/bulk"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// JobChange is what [Queue.Change] does to jobs. Fields that are zero leave the jobs as
// they are; at least one must be set.
type JobChange struct {
	// DueAt is when the jobs are due, on the queue's clock; a time in the past means
	// at once. At most one of DueAt and Delay may be set.
	DueAt time.Time
	// Delay is how long after now the jobs are due.
	Delay time.Duration
	// Priority is from -100 to 100. If nil, each job keeps its own.
	Priority *int
	// Queue is where the jobs wait from now on.
	Queue string
	// Policy takes the place of the jobs' own policies, see [JobOptions]. A document without
	// sections leaves the jobs without a policy of their own. If nil, each job keeps its own.
	Policy policy.Delivery
	// Args replace those of the jobs that JobFilter.IDs names, and must be of their kind.
	// [RawArgs] will do. The old args are kept in the history, see [Failure].
	// Options.Middleware is not called: do first what it does to args. If nil, the args stay.
	Args Args
}

// ChangeResult is the result of [Queue.Change] and [Queue.CancelAll].
type ChangeResult struct {
	// Changed is how many jobs were changed, or cancelled.
	Changed int `json:"changed"`
	// Running are jobs that run, or that a worker has leased ahead. Change has left them
	// as they are; CancelAll has asked them to stop.
	Running []ID `json:"running,omitempty"`
	// NotFound are those of JobFilter.IDs that name no job, or one that has ended. A dead
	// letter is among them only if the change sets DueAt or Delay.
	NotFound []ID `json:"not_found,omitempty"`
}

// Change changes jobs that do not run: scheduled, ready and blocked ones, and dead letters that
// JobFilter.IDs names. What c leaves out is kept: the counters, the history, the unique
// key. A job that runs is left as it is, and named in the result.
//
// A job that is due later counts its retries as before. One that is due now is taken by
// workers of all processes at once. Dead letters cannot be rescheduled: see
// [DeadLetters.Redrive]. Their new queue, policy or args show when they are redriven.
//
// A filter without a condition must set All. Change works in short transactions,
// between which others write, up to the last job that there was at the call. Beside an
// error the result says what was done before; that stays done.
func (q *Queue) Change(ctx context.Context, filter JobFilter, c JobChange) (ChangeResult, error) {
	var f faults
	o := q.order(&f, BulkChange, filter)
	f.some(&filter)
	q.edit(&f, "", o, &c)
	if err := q.checked(ctx, &f, "", o, &c); err != nil {
		return ChangeResult{}, err
	}
	if len(o.IDs) == 0 && len(filter.States) == 0 {
		o.Filter.States = append(o.Filter.States, Running) // they are named in the result
	}
	return q.change(ctx, o)
}

// CancelAll cancels the jobs that match, as [Queue.Cancel] does: those that wait are
// finished as cancelled, those that run are asked to stop, and named in the result. A
// filter without a condition must set All. Like Change it works in short transactions,
// up to the last job that there was at the call.
func (q *Queue) CancelAll(ctx context.Context, filter JobFilter) (ChangeResult, error) {
	var f faults
	o := q.order(&f, BulkCancel, filter)
	f.some(&filter)
	if err := f.err(); err != nil {
		return ChangeResult{}, err
	}
	return q.change(ctx, o)
}

func (q *Queue) change(ctx context.Context, o *bulk.Order) (r ChangeResult, err error) {
	err = q.perform(ctx, o, func(step *storage.Step) {
		r.Changed += step.N
		r.Running = append(r.Running, step.Live...)
		r.NotFound = append(r.NotFound, step.NotFound...)
	})
	return r, err
}

// isZero reports whether c changes nothing.
func (c *JobChange) isZero() bool {
	return c.DueAt.IsZero() && c.Delay == 0 && c.Priority == nil && c.Queue == "" && isNil(c.Policy) && isNil(c.Args)
}

// edit checks a change, which is at place in what the caller wrote, and puts it into an order as the
// store takes it.
func (q *Queue) edit(f *faults, place string, order *bulk.Order, c *JobChange) {
	if c.isZero() {
		f.field(strings.TrimSuffix(cmp.Or(place, "change"), "."), nil, "must set a field")
	}
	e := &storage.Edit{DueAt: c.DueAt, Delay: c.Delay, Priority: c.Priority, Queue: c.Queue}
	order.Edit = e
	o := JobOptions{DueAt: c.DueAt, Delay: c.Delay}
	if c.Priority != nil {
		o.Priority = *c.Priority
	}
	f.jobOptions(place, &o)
	if c.Queue != "" {
		f.queue(place+"queue", c.Queue, &q.opts)
	}
	if !isNil(c.Policy) {
		e.Policy = []byte{}
		if d := f.override(place+"policy", c.Policy); d != (policy.Document{}) {
			e.Policy = f.json(place+"policy", d)
		}
	}
	if !isNil(c.Args) {
		if len(order.IDs) == 0 {
			f.field(place+"args", c.Args.Kind(), "must be nil unless the jobs are named by IDs")
		}
		f.kind(place, c.Args, &q.types)
		e.Args = f.args(place+"args", c.Args, q.opts.MaxArgs)
	}
}

// checked returns what is wrong with an order, last whether the jobs that get other args are of
// their kind, which they are for ever. The change is at place.
func (q *Queue) checked(ctx context.Context, f *faults, place string, o *bulk.Order, c *JobChange) error {
	e := cmp.Or(o.Edit, o.With)
	if err := f.err(); err != nil || e == nil || e.Args == nil {
		return err
	}
	for _, id := range o.IDs {
		r, err := q.store.Job(ctx, id)
		switch kind := c.Args.Kind(); {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return err
		case r.Kind != kind:
			f.field(place+"args", kind, fmt.Sprintf("must be of the kind of job %v, %s", id, r.Kind))
		}
	}
	return f.err()
}

// Delete deletes jobs that have ended, finished ones and dead letters, and returns their
// number. A filter selects only these; one without a condition must set All. Jobs that
// JobFilter.IDs names and that have not ended stay: then Delete returns [ErrLive] with
// the number of the others. Like Change it works in short transactions, and jobs that end
// while it runs may be left out. With an error it returns how many jobs were deleted
// before.
func (q *Queue) Delete(ctx context.Context, filter JobFilter) (n int, err error) {
	var f faults
	o := q.order(&f, BulkDelete, filter)
	f.some(&filter)
	if err := f.err(); err != nil {
		return 0, err
	}
	var live []ID
	err = q.perform(ctx, o, func(step *storage.Step) {
		n += step.N
		live = append(live, step.Live...)
	})
	if err == nil && len(live) > 0 {
		err = fmt.Errorf("%w: %v", ErrLive, live[0])
		if len(live) > 1 {
			err = fmt.Errorf("%w, the first of %d", err, len(live))
		}
	}
	return n, err
}

// RunNowOptions configure [Queue.RunNow]. Nil and the zero value mean defaults.
type RunNowOptions struct {
	// FirstRuns takes jobs that have not run yet too: those enqueued with a Delay
	// or a DueAt. If false, a filter selects only jobs that have run before. A job
	// named by JobFilter.IDs need not have run.
	FirstRuns bool
	// FailedOnly selects only jobs that wait for the delay of their policy. It leaves out
	// jobs whose handler set the delay by [Snooze] or [RetryAfter], whose last error asked
	// for it, as policyhttp's do for a Retry-After, or whose process died. If false, a
	// filter takes them too. It concerns neither FirstRuns nor jobs named by JobFilter.IDs.
	FailedOnly bool
}

// RunNowResult is the result of [Queue.RunNow].
type RunNowResult struct {
	// Ready is how many jobs were made ready.
	Ready int `json:"ready"`
	// NotFound are those of JobFilter.IDs that name no job, or one that has ended. Ready,
	// running and blocked jobs are neither here nor in Ready.
	NotFound []ID `json:"not_found,omitempty"`
}

// RunNow makes jobs ready that wait for their next attempt: after a failure, a
// snooze or a crash, with RunNowOptions.FirstRuns also after being enqueued. Retry
// index, other counters and history are kept, so that the retry after a further
// failure comes as it would have come. All jobs are due at the time of the call.
// Thus those of one priority run in the order in which they were enqueued, after
// jobs that were due before. Workers of all processes take them at once. Holds,
// gates and throttles apply to them as to other jobs.
//
// A job that JobFilter.IDs names alone is urgent, also if it is ready already: it goes
// before all others as soon as a worker of its queue and kind has a free runner, in
// whatever process. Holds, pauses, gates, throttles and concurrency do not keep it back;
// a retry budget does. If a worker that stops returns the job to the store, it is no
// longer urgent.
//
// Blocked jobs stay blocked, also those that JobFilter.IDs names, and are in neither
// field of the result. Name what they wait for, see [Queue.Why].
//
// A filter selects jobs that are scheduled; one without a condition must set All.
// Jobs that are enqueued, or begin to wait again, while RunNow runs may be left out.
//
// RunNow works in short transactions, between which others write. With an error
// the result says what was done before; that stays done.
func (q *Queue) RunNow(ctx context.Context, filter JobFilter, o *RunNowOptions) (RunNowResult, error) {
	o = cmp.Or(o, &RunNowOptions{})
	var f faults
	order := q.order(&f, BulkRunNow, filter)
	f.some(&filter)
	if err := f.err(); err != nil {
		return RunNowResult{}, err
	}
	order.First, order.Failed = o.FirstRuns, o.FailedOnly
	var r RunNowResult
	err := q.perform(ctx, order, func(step *storage.Step) {
		r.Ready += step.N
		r.NotFound = append(r.NotFound, step.NotFound...)
	})
	return r, err
}
