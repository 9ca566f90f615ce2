package errandtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// PerformOptions configure [Perform]. Nil and the zero value mean defaults.
type PerformOptions struct {
	// Job are the options of the job. If nil, defaults.
	Job *errand.JobOptions
	// Worker are the options of the worker, such as its Middleware; Queues has no effect. If
	// nil, defaults.
	Worker *errand.WorkerOptions
	// Handler are the options of the handler, such as its policy. If nil, defaults.
	Handler *errand.HandlerOptions
	// Failures is how many attempts fail before this one, without a call of the handler and
	// without their delays. Each uses up a retry and has an entry in the history. If zero,
	// this is the first attempt.
	Failures int
	// Checkpoint is what the job has kept before this attempt, see [errand.Job.Checkpoint]: the
	// last of the attempts that fail before keeps it. If Failures is zero, one fails for it. If
	// nil, there is none.
	Checkpoint any
	// Timeout is how long the attempt may take before the test fails. If zero, 30 s; in a
	// bubble 24 h of its time.
	Timeout time.Duration
}

// Attempt is an attempt that has ended, as [Perform] returns it. It shares nothing with the queue.
type Attempt struct {
	// Err is what the handler returned, as the middleware passed it on: what counts. After a
	// panic it has the text of the panic.
	Err error
	// Verdict is that of Err, see [errand.VerdictOf]. Its Kind is empty if there is none.
	Verdict errand.Verdict
	// Event says how the attempt ended, and when. Its Duplicates are jobs that held the unique
	// keys of jobs of [errand.Job.Then].
	Event errand.Event
	// Job is the job after the attempt, with its checkpoint, result and progress as far as they
	// are kept. A finished job that is not kept has only its ID, Queue and Kind.
	Job errand.JobInfo
	// Delay is how long after the end of the attempt the job is due again. It is zero for a job
	// that has ended.
	Delay time.Duration
	// NextPhase is the phase of the retry that comes next, by the retry section of the policy in
	// effect. It is PhaseFirst if none comes.
	NextPhase policy.Phase
	// Then are the jobs that were enqueued with the end of the job, see [errand.Job.Then].
	Then []errand.JobInfo
}

// Perform enqueues a job in q, has a worker run one attempt of it with handler, and returns
// what becomes of it. The args go through JSON, as those of each job. The attempt begins at
// once, also if the job has a delay; holds, gates and throttles do not keep it back.
//
// Meanwhile no other job of the kind starts: Perform holds the kind, and releases it at the
// end. No other worker of the kind may run, and no other Perform of the kind on q. Jobs that
// the handler enqueues stay as they are.
// The test fails if the job is not added, cannot run or takes longer than Timeout, or if the
// policy allows fewer retries than Failures.
func Perform[A errand.Args](t testing.TB, q *errand.Queue, handler func(ctx context.Context, job *errand.Job[A]) error, args A, o *PerformOptions) Attempt {
	t.Helper()
	p := &performance{PerformOptions: *cmp.Or(o, &PerformOptions{}), returned: make(chan error, 1)}
	if p.Failures < 0 {
		t.Fatal(&errand.FieldError{Field: "failures", Value: p.Failures, Limit: "must not be negative"})
	}
	if p.Checkpoint != nil {
		p.Failures = max(p.Failures, 1)
	}
	lane := errand.Lane{Kind: args.Kind()}
	held := false
	// end undoes what was begun, and fails the test if there is an error.
	end := func(err error) {
		t.Helper()
		if p.run != nil {
			err = errors.Join(err, p.stop(true))
		}
		if held {
			_, e := q.Release(context.Background(), lane, holdReason)
			err = errors.Join(err, e)
		}
		if err != nil {
			t.Fatalf("errandtest: Perform: %v", err)
		}
	}
	ctx := context.Background()
	if err := q.Hold(ctx, lane, &errand.HoldOptions{Reason: holdReason, By: "errandtest"}); err != nil {
		end(err)
	}
	held = true
	job, err := p.enqueue(q, args)
	if err != nil {
		end(err)
	}
	w := errand.NewWorker(q, p.worker(job.Queue))
	var all []errand.HandlerOptions
	if p.Handler != nil {
		all = append(all, *p.Handler)
	}
	if raw, ok := any(handler).(func(context.Context, *errand.Job[errand.RawArgs]) error); ok {
		errand.HandleRaw(w, args.Kind(), raw, all...)
	} else {
		errand.Handle(w, handler, all...)
	}
	p.run = begin(t, q, w, errand.EventFilter{ID: job.ID}, p.Timeout)
	a, err := p.perform(job)
	if err == nil {
		err = p.stop(false)
		p.run = nil
	}
	end(err)
	return a
}

// holdReason is that of the hold while an attempt is performed.
const holdReason = "errandtest"

// performance is a call of Perform.
type performance struct {
	PerformOptions
	*run
	returned chan error // of the attempt that counts
	kept     error      // that of keeping the checkpoint
}

func (p *performance) enqueue(q *errand.Queue, args errand.Args) (errand.JobInfo, error) {
	ctx := context.Background()
	e, err := q.Enqueue(ctx, args, p.Job)
	if err != nil {
		return errand.JobInfo{}, err
	}
	if e.Duplicate {
		return errand.JobInfo{}, fmt.Errorf("the job was not added: job %v holds its unique key", e.ID)
	}
	j, err := q.Job(ctx, e.ID)
	if err == nil && j.State == errand.Blocked {
		err = errors.New("the job cannot run: " + whyText(q, &j))
	}
	return j, err
}

// worker returns the options of the worker, with what fails the attempts before and notes the
// error of the one that counts around all other middleware.
func (p *performance) worker(queue string) *errand.WorkerOptions {
	o := *cmp.Or(p.Worker, &errand.WorkerOptions{})
	o.Queues = []string{queue}
	o.Middleware = slices.Concat([]errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			if job.Attempt <= p.Failures {
				if job.Attempt == p.Failures && p.Checkpoint != nil {
					p.kept = job.Checkpoint(ctx, p.Checkpoint)
				}
				return errBefore
			}
			err := errPanic
			defer func() {
				select {
				case p.returned <- err:
				default: // it has run twice, as its lease was lost
				}
			}()
			err = next(ctx, job)
			return err
		}
	}}, o.Middleware)
	return &o
}

var (
	errBefore = errors.New("errandtest: an attempt before")
	errPanic  = errors.New("errandtest: the handler has not returned")
)

// perform has the job run until the attempt that counts has ended.
func (p *performance) perform(job errand.JobInfo) (a Attempt, err error) {
	ctx := context.Background()
	for n := 1; ; n++ {
		if _, err := p.queue.RunNow(ctx, errand.JobFilter{IDs: []errand.ID{job.ID}}, nil); err != nil {
			return a, err
		}
		if a.Event, err = p.outcome(&job); err != nil {
			return a, err
		}
		if n > p.Failures {
			break
		}
		if a.Event.Type != errand.EventRetried {
			return a, fmt.Errorf("attempt %d of the %d that fail before ended as %s: the policy must allow as many retries", n, p.Failures, a.Event.Type)
		}
	}
	if p.kept != nil {
		return a, fmt.Errorf("the checkpoint was not kept: %w", p.kept)
	}
	// A job that its handler completes can end before the handler.
	if a.Err, err = await(p.run, p.returned); err != nil {
		return a, p.explain(err, &job)
	}
	if errors.Is(a.Err, errPanic) {
		a.Err = errors.New(a.Event.Error)
	}
	a.Verdict, _ = errand.VerdictOf(a.Err)
	if a.Job, err = p.queue.Job(ctx, job.ID); errors.Is(err, errand.ErrNotFound) {
		a.Job, err = errand.JobInfo{ID: job.ID, Queue: job.Queue, Kind: job.Kind}, nil
	}
	if err != nil {
		return a, err
	}
	if a.Job.State == errand.Scheduled || a.Job.State == errand.Ready {
		a.Delay = max(a.Job.DueAt.Sub(a.Event.At), 0)
	}
	if a.Event.Type == errand.EventRetried {
		if a.NextPhase, err = p.nextPhase(&a.Job); err != nil {
			return a, err
		}
	}
	a.Then, err = list(p.queue, errand.JobFilter{Parent: job.ID})
	slices.Reverse(a.Then)
	return a, err
}

// nextPhase returns the phase of the retry that comes next, by the policy that the worker has.
func (p *performance) nextPhase(j *errand.JobInfo) (policy.Phase, error) {
	d, _, err := p.queue.PolicyOf(context.Background(), *j)
	if err != nil {
		return 0, err
	}
	phase, _, _ := d.For(policy.Retryable).Next(j.Retry - 1)
	return phase, nil
}

// outcome waits for the end of an attempt.
func (p *performance) outcome(job *errand.JobInfo) (errand.Event, error) {
	for {
		e, err := await(p.run, p.events.Events())
		switch e.Type {
		case errand.EventEnqueued, errand.EventReplaced, errand.EventStarted, errand.EventRetriesUsed:
			continue
		}
		return e, p.explain(err, job)
	}
}

func (p *performance) explain(err error, job *errand.JobInfo) error {
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("the attempt has not ended after %v: %s", p.timeout, whyText(p.queue, job))
	}
	return err
}
