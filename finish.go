package errand

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// The errors of [Job.Finish] and [Job.CompleteTx], beside those of [Queue.Tx] and
// [ErrLeaseLost], [ErrCancelled], [ErrWrongDatabase].
var (
	// ErrNoAttempt: the job was not made by a worker that runs it.
	ErrNoAttempt = errors.New("errand: job is not of an attempt")
	// ErrFinished: the attempt has ended, or its job has been completed before.
	ErrFinished = engine.ErrFinished
	// ErrNotCommitted is the failure of an attempt whose handler returned nil, but whose job
	// it had completed in a transaction that was not committed.
	ErrNotCommitted = engine.ErrNotCommitted
)

// Finish runs fn in a write transaction on the queue's file, as [Queue.Tx] does, and completes
// the job in it: what fn writes and the end of the job are committed together, or neither is.
// So what fn writes is written exactly once, however often the job is run.
//
// After a commit the job is done, and what the handler returns is ignored. It is logged if it
// is an error. After an error of Finish nothing was written; the handler decides what becomes
// of the job by what it returns. If it returns nil all the same, the attempt has failed with
// [ErrNotCommitted]. [ErrUnknownOutcome] leaves open whether all or nothing was written; if all
// was, the job is done.
//
// fn is not called if the attempt has lost its lease or the job was cancelled: Finish returns
// [ErrLeaseLost] or [ErrCancelled]. It returns [ErrFinished] if the job was completed before, or
// if the handler has returned, and [ErrNoAttempt] for a job that no worker runs. Inside of
// [Queue.Tx] it returns [ErrBusy]: there, call [Job.CompleteTx].
func (j *Job[A]) Finish(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if fn == nil {
		return &FieldError{Field: "fn", Limit: "must not be nil"}
	}
	q, err := j.owner()
	if err != nil {
		return err
	}
	s, err := q.txStore()
	if err != nil {
		return err
	}
	return j.attempt.Finish(ctx, s, plainTx(s, fn))
}

// Then has a job enqueued if this one is done: in the transaction that ends it, also with
// [Job.Finish] and [Job.CompleteTx]. If the attempt ends otherwise, it is dropped. The job has
// this one as its [JobInfo].Parent.
//
// The args and options are checked at once, and go through [Options].Middleware with the
// context of the handler: that of [HandlerFunc], as middleware around the handler has passed it
// on, also with [HandleMany]. There can be 100 such jobs, with 1 MiB of args and headers. They are
// let in whatever the caps. As this job has ended before, one of them can take its unique key.
// If another job holds the key, a job is not enqueued, or replaces a waiting job, as its
// OnConflict says, which can have no Merge; the [Event] of the end has the IDs of those holders.
// That fails nothing.
//
// Then returns [ErrFinished] if the job was completed before, or if the handler has returned,
// and [ErrNoAttempt] for a job that no worker runs.
func (j *Job[A]) Then(args Args, o *JobOptions) error {
	q, err := j.owner()
	if err != nil {
		return err
	}
	ctx := j.ctx
	if ctx == nil {
		ctx = j.attempt.Context()
	}
	r, all, err := q.follower(ctx, args, o)
	if err != nil {
		return err
	}
	r.Tags = append(r.Tags, storage.ParentTag(j.ID))
	ended := func(dropped bool) {
		if dropped {
			all.tell(nil, ErrDropped)
			return
		}
		all.tell(nil, nil)
	}
	err = j.attempt.Then(r, ended, func(jobs, bytes int) error {
		switch {
		case jobs > maxThen:
			return &FieldError{Field: "then", Value: jobs, Limit: fmt.Sprintf("must be at most %d jobs", maxThen)}
		case bytes > maxThenBytes:
			return &FieldError{Field: "then", Value: fmt.Sprintf("%d bytes of args and headers", bytes), Limit: fmt.Sprintf("must be at most %d", maxThenBytes)}
		}
		return nil
	})
	if err != nil {
		all.tell(nil, err)
	}
	return err
}

const (
	maxThen      = 100
	maxThenBytes = 1 << 20
)

// follower returns a job of Then as the store takes it.
func (q *Queue) follower(ctx context.Context, args Args, o *JobOptions) (storage.NewJob, afters, error) {
	var f faults
	if d, ok := args.(JobDefaulter); ok {
		o = q.defaulted(&f, "", d, o)
	}
	if merges(o) {
		f.field(mergeField, "a function", "must be nil with Then")
	}
	_, records, all, err := q.newJobs(ctx, &f, []NewJob{{args, o}}, only, nil)
	if err != nil {
		return storage.NewJob{}, nil, err
	}
	return records[0], all, nil
}

// CompleteTx is [Job.Finish] for a transaction that is open already: one of [Queue.Tx], or a
// transaction of the application on the queue's file. The job is done if tx commits. Many jobs
// can be completed in one transaction, for example all those of a [HandleMany]. Use a
// transaction of Queue.Tx where possible. With any other it is known only when the handler has
// returned whether the job is done; commit or roll back before.
//
// After an error tx cannot be committed any more: CompleteTx rolls it back, or Queue.Tx does.
func (j *Job[A]) CompleteTx(ctx context.Context, tx *sql.Tx) error {
	in, err := j.inside(tx)
	if err != nil {
		return err
	}
	return in.Complete(ctx)
}

// EnqueueTx is [Queue.Enqueue] inside a transaction of the application on the
// queue's file: the job exists if tx commits. Use a transaction of [Queue.Tx]
// where possible. With any other, workers see the job within 50 ms of the commit,
// and its durability is that of the transaction's connection.
//
// It returns [ErrWrongDatabase] for a transaction on another database.
func (q *Queue) EnqueueTx(ctx context.Context, tx *sql.Tx, args Args, o *JobOptions) (Enqueued, error) {
	in, err := q.inside(tx)
	if err != nil {
		return Enqueued{}, err
	}
	return in.Enqueue(ctx, NewJob{args, o})
}

// EnqueueManyTx is [Queue.EnqueueMany] inside a transaction of the application, as
// [Queue.EnqueueTx] is Enqueue inside one: all of the jobs exist if tx commits. If a job is
// refused, tx has none of the jobs and can go on.
func (q *Queue) EnqueueManyTx(ctx context.Context, tx *sql.Tx, jobs []NewJob) ([]Enqueued, error) {
	in, err := q.inside(tx)
	if err != nil {
		return nil, err
	}
	return q.enqueueMany(ctx, jobs, in.write)
}

// inside is [door.Tx]: a queue inside a transaction of the application. All methods of the root
// with a transaction are it.
type inside struct {
	queue   *Queue
	store   storage.TxEnqueuer
	tx      any
	attempt *engine.Attempt // of the job that it was opened for; nil: it was for the queue
}

func (q *Queue) inside(tx any) (*inside, error) {
	return newInside(tx, nil, func() (*Queue, error) { return q, nil })
}

func (j *Job[A]) inside(tx any) (*inside, error) { return newInside(tx, j.attempt, j.owner) }

func newInside(tx any, a *engine.Attempt, owner func() (*Queue, error)) (*inside, error) {
	if isNil(tx) {
		return nil, &FieldError{Field: "tx", Limit: "must not be nil"}
	}
	q, err := owner()
	if err != nil {
		return nil, err
	}
	s, err := q.txStore()
	if err != nil {
		return nil, err
	}
	return &inside{q, s, tx, a}, nil
}

// owner returns the queue whose worker runs the job.
func (j *Job[A]) owner() (*Queue, error) {
	if j.attempt == nil {
		return nil, ErrNoAttempt
	}
	return j.attempt.Owner().(*Queue), nil
}

// Enqueue implements [door.Tx].
func (in *inside) Enqueue(ctx context.Context, job NewJob) (Enqueued, error) {
	return in.queue.enqueueOne(ctx, job.Args, job.Options, in.write)
}

func (in *inside) write(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]Enqueued, error) {
	return in.store.EnqueueTx(ctx, in.tx, now, jobs)
}

// Cancel implements [door.Tx].
func (in *inside) Cancel(ctx context.Context, id ID) (State, error) {
	q := in.queue
	return in.store.CancelTx(ctx, in.tx, q.clock.current(ctx), id, storage.Retention{Default: q.opts.Retention})
}

// Complete implements [door.Tx].
func (in *inside) Complete(ctx context.Context, others ...door.Tx[NewJob]) error {
	all := []*engine.Attempt{in.attempt}
	for _, other := range others {
		all = append(all, other.(*inside).attempt)
	}
	if slices.Contains(all, nil) {
		return ErrNoAttempt
	}
	return engine.CompleteTx(ctx, in.store, in.tx, all...)
}

// Held implements [door.Tx].
func (in *inside) Held(ctx context.Context) error {
	if in.attempt == nil {
		return ErrNoAttempt
	}
	return in.attempt.HeldTx(ctx, in.store, in.tx)
}

// Checkpoint implements [door.Tx].
func (in *inside) Checkpoint(ctx context.Context, v any) error {
	if in.attempt == nil {
		return ErrNoAttempt
	}
	data, err := keptJSON("checkpoint", v)
	if err != nil {
		in.store.SpoilTx(in.tx, err)
		return err
	}
	return in.attempt.CheckpointTx(ctx, in.store, in.tx, data)
}

// Topics implements [door.Tx].
func (in *inside) Topics() (door.Topics[NewJob], error) { return in.queue.topics(in) }

// plainTx returns a function that calls fn with the transaction it is given.
func plainTx(s storage.TxEnqueuer, fn func(tx *sql.Tx) error) func(any) error {
	return func(tx any) error {
		own, ok := tx.(*sql.Tx)
		if !ok {
			return fmt.Errorf("%w: the transactions of store %T are %T", ErrUnsupportedDB, s, tx)
		}
		return fn(own)
	}
}

func (q *Queue) txStore() (storage.TxEnqueuer, error) {
	s, ok := q.store.(storage.TxEnqueuer)
	if !ok {
		return nil, fmt.Errorf("%w: store %T has no transactions for the application", ErrUnsupportedDB, q.store)
	}
	return s, nil
}
