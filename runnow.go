package errand

import (
	"cmp"
	"context"
	"slices"

	"github.com/errandq/errand/storage"
)

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
	sel := q.selection(&f, filter, Scheduled)
	f.some(&filter)
	if err := f.err(); err != nil {
		return RunNowResult{}, err
	}
	var r RunNowResult
	now := q.clock.current(ctx)
	err := eachLive(sel, func(sel storage.Selection) (storage.Step, error) {
		step, err := q.store.RunNow(ctx, now, sel, storage.Waiting{First: o.FirstRuns, Failed: o.FailedOnly})
		r.Ready += step.N
		r.NotFound = append(r.NotFound, step.NotFound...)
		return step, err
	})
	return r, err
}

// eachLive calls do for a selection of live jobs step by step, up to the last job
// that there was at the first step.
func eachLive(sel storage.Selection, do func(storage.Selection) (storage.Step, error)) error {
	for ids := range slices.Chunk(sel.IDs, idStep) {
		if _, err := do(storage.Selection{IDs: ids}); err != nil {
			return err
		}
	}
	for len(sel.IDs) == 0 {
		step, err := do(sel)
		if err != nil || step.Next == (storage.Position{}) {
			return err
		}
		sel.After, sel.Through = step.Next, step.Through
	}
	return nil
}
