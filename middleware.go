package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// HandlerFunc is called with a job whose args are not decoded; see [Middleware] and
// [HandleRaw].
type HandlerFunc func(ctx context.Context, job *Job[RawArgs]) error

// Middleware wraps the way of a job: to its handler, see [WorkerOptions] and
// [HandlerOptions], or into the queue, see [Options]. It is called once for each handler,
// and returns the function that is called for each job. That function can look at the
// job, pass on another context, change or replace the error that next returns, call next
// again or not at all. It must be safe for concurrent use. The first of several is the
// outermost: it sees the job first and the error last.
//
// On the way to the handler, next calls the rest of the way. The error that the outermost
// returns is the verdict. Headers and Args.JSON can be changed for the handler; what is
// stored stays. A panic is a failed attempt, as that of a handler.
//
// On the way into the queue, ID, Attempt and the times are zero. next adds the job to the
// call that enqueues it, with the changed Headers and Args.JSON. If these are not valid,
// next returns a [FieldError], and so does the call unless next is called again with
// valid ones. The job exists when the call has returned nil: EnqueueMany writes its jobs
// at once, after each has gone its way. An error refuses the whole call, which returns
// it; EnqueueMany wraps it with the place of the job. [AfterEnqueue] tells middleware what has
// become of the job, and [Declaring] that it is the job of a schedule.
type Middleware func(next HandlerFunc) HandlerFunc

// through returns last behind all middleware, which has been checked to be not nil. It
// panics if one of them returns nil.
func through(all []Middleware, last HandlerFunc) HandlerFunc {
	for i := len(all) - 1; i >= 0; i-- {
		if last = all[i](last); last == nil {
			panic(fmt.Sprintf("errand: middleware[%d] returns nil", i))
		}
	}
	return last
}

func (f *faults) middleware(field string, all []Middleware) {
	for i, m := range all {
		if m == nil {
			f.field(fmt.Sprintf("%s[%d]", field, i), nil, "must not be nil")
		}
	}
}

// wrapped returns h behind middleware, as the engine calls it.
func (w *Worker) wrapped(all []Middleware, h HandlerFunc) func(context.Context, *storage.Leased) error {
	h = through(all, h)
	return func(ctx context.Context, l *storage.Leased) error {
		job := leasedJob[RawArgs](l)
		job.Args = RawArgs{OfKind: l.Kind, JSON: l.Args}
		if l.Headers != nil {
			if err := json.Unmarshal(l.Headers, &job.Headers); err != nil {
				return &engine.DecodeError{Err: fmt.Errorf("headers: %w", err)}
			}
		}
		job.attempt = engine.AttemptOf(ctx)
		job.Phase = w.engine.Phase(l)
		return h(ctx, job)
	}
}

// decoded returns fn as the last of what middleware wraps.
func decoded[A Args](fn func(context.Context, *Job[A]) error) HandlerFunc {
	return func(ctx context.Context, raw *Job[RawArgs]) error {
		if job, ok := any(raw).(*Job[A]); ok {
			job.ctx = ctx
			return fn(ctx, job)
		}
		job := &Job[A]{
			ID: raw.ID, Queue: raw.Queue, Kind: raw.Kind, Headers: raw.Headers, Priority: raw.Priority, Group: raw.Group, Origin: raw.Origin,
			Attempt: raw.Attempt, Retry: raw.Retry, Crashes: raw.Crashes, Snoozes: raw.Snoozes, Phase: raw.Phase,
			CreatedAt: raw.CreatedAt, DueAt: raw.DueAt, Deadline: raw.Deadline, attempt: raw.attempt, ctx: ctx, checkpoint: raw.checkpoint,
		}
		if err := json.Unmarshal(raw.Args.JSON, &job.Args); err != nil {
			return &engine.DecodeError{Err: argsError[A](err)}
		}
		return fn(ctx, job)
	}
}

// entering is a job on its way through the middleware of a queue.
type entering struct {
	queue   *Queue
	place   string // before the names of fields in faults
	options string // after place, before those of options
	record  *storage.NewJob
	taken   bool
	fault   error   // of what was taken last
	n       int     // its place in the call
	after   *afters // those of the call; nil: a schedule is being declared
}

type enteringKey struct{}

// Declaring reports whether middleware of [Options] is called with ctx because a [Schedule]
// is being declared. All ticks have the args and headers that result, and declaring the
// schedule again writes if they have changed. So when Declaring is true, middleware should
// add nothing that differs from call to call, such as the ID of a trace.
func Declaring(ctx context.Context) bool {
	e, _ := ctx.Value(enteringKey{}).(*entering)
	return e != nil && e.after == nil
}

// AfterEnqueue has fn called once when the call has ended that enqueues the job, for middleware
// on the way into the queue with its context ctx. Middleware calls it before it returns. fn gets
// the result and the error of the call, also if the job or another one of the call was refused.
// It runs before the call returns, in the goroutine of the caller, and must not enqueue. The
// handler of the job may have begun before it runs.
//
//   - After Enqueue and EnqueueMany the job is durable if there is no error.
//   - After EnqueueTx and EnqueueManyTx the transaction is not committed yet.
//   - After [Job.Then] fn runs when the handler has returned. The result is zero: the job exists
//     if that of the handler is done. The error is [ErrDropped] if it is known not to be.
//   - With a Merge in [OnConflict] a job can go through the middleware again, with other args.
//     The fn of the last time gets the result, those before it ErrDropped.
//
// If ctx is another one, or if [Declaring] is true, AfterEnqueue does nothing.
func AfterEnqueue(ctx context.Context, fn func(Enqueued, error)) {
	if e, _ := ctx.Value(enteringKey{}).(*entering); e != nil && e.after != nil && fn != nil {
		*e.after = append(*e.after, after{e.n, fn})
	}
}

// after is a function of AfterEnqueue, and the place of its job in the call.
type after struct {
	n  int
	fn func(Enqueued, error)
}

type afters []after

// tell calls the functions with the results of the call, of which there are none if err is not nil.
func (a afters) tell(added []Enqueued, err error) {
	for _, f := range a {
		var e Enqueued
		if err == nil && f.n < len(added) {
			e = added[f.n]
		}
		f.fn(e, err)
	}
}

var (
	errPanicked  = errors.New("errand: the call has panicked")
	errNotTaken  = errors.New("errand: middleware returned nil without a call of next: only an error refuses a job")
	errNoContext = errors.New("errand: middleware must pass on its context, or one made from it")
)

// pass has the jobs of a call go through the middleware, and writes them. after is to be told
// the result, unless it is of a call that goes on.
func (q *Queue) pass(ctx context.Context, jobs []NewJob, place func(int) string, write writeFunc) (added []Enqueued, all afters, err error) {
	now, records, all, err := q.newJobs(ctx, &faults{}, jobs, place, nil)
	if err != nil {
		return nil, nil, err
	}
	added, err = write(ctx, now, records)
	tellKeys(records, added, err)
	return added, all, err
}

// enterAll has all jobs of a call go through the middleware of the queue, if it has any. If one
// is refused, those before it have been told.
func (q *Queue) enterAll(ctx context.Context, jobs []NewJob, place func(int) string, records []storage.NewJob) (_ afters, err error) {
	if q.entry == nil {
		return nil, nil
	}
	var all afters
	entered := false
	defer func() {
		if !entered {
			all.tell(nil, cmp.Or(err, errPanicked))
		}
	}()
	for i, j := range jobs {
		if err = q.enter(ctx, &entering{place: place(i), record: &records[i], n: i, after: &all}, j.Options); err != nil {
			return nil, err
		}
	}
	entered = true
	return all, nil
}

// enter has a job go through the middleware of the queue, which must have some.
func (q *Queue) enter(ctx context.Context, e *entering, o *JobOptions) error {
	e.queue = q
	r, place := e.record, e.place
	job := &Job[RawArgs]{Queue: r.Queue, Kind: r.Kind, Priority: r.Priority, Args: RawArgs{OfKind: r.Kind, JSON: r.Args}}
	if o != nil {
		job.Headers = maps.Clone(o.Headers)
	}
	err := q.entry(context.WithValue(ctx, enteringKey{}, e), job)
	switch {
	case err != nil:
	case !e.taken:
		err = errNotTaken
	default:
		return e.fault // which the middleware may have passed over
	}
	if place == "" || e.fault != nil && errors.Is(err, e.fault) {
		return err
	}
	return &door.JobError{Job: e.n, Place: strings.TrimSuffix(place, "."), Err: err}
}

// take ends the way of a job into the queue.
func take(ctx context.Context, job *Job[RawArgs]) error {
	e, _ := ctx.Value(enteringKey{}).(*entering)
	if e == nil {
		return errNoContext
	}
	var f faults
	e.record.Args = f.args("args", job.Args, e.queue.opts.MaxArgs)
	e.record.Headers = nil
	if len(job.Headers) > 0 {
		e.record.Headers = f.headers(e.options+"headers", job.Headers, e.queue.opts.MaxHeaders)
	}
	f.ofJob(0, e.n, e.place)
	e.taken, e.fault = true, f.err()
	return e.fault
}
