package errand

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	minPriority, maxPriority = -100, 100
	maxName                  = 128
	maxUnique                = 1024
	minTimeout               = time.Millisecond
	minWindow, maxWindow     = time.Second, 100 * 365 * 24 * time.Hour
	windowLimit              = "between 1s and 876000h (100 years)"
	// maxEnqueue and maxEnqueueBytes bound how long one call holds the writer.
	maxEnqueue      = 10_000
	maxEnqueueBytes = 64 << 20
)

// Enqueue adds a job. When it returns nil the job is durable, see
// [SQLiteOptions].Durability. If another job holds the unique key that the options
// ask for, nothing is added, and Enqueue returns the ID of that job with
// Enqueued.Duplicate set. Enqueued.Gone is set too if that job was deleted since.
// With [JobOptions].OnConflict the job may be changed instead, wait behind that one, or be
// refused with a [DuplicateError].
//
// If the queue or the file is full, see [Settings], Enqueue returns a [QueueFullError],
// or deletes jobs that wait to make room.
//
// For bad input it returns a [FieldError] for each fault, joined, and writes
// nothing.
func (q *Queue) Enqueue(ctx context.Context, args Args, o *JobOptions) (Enqueued, error) {
	return q.enqueueOne(ctx, args, o, q.write)
}

// Tx runs fn in a write transaction on the queue's file, and commits it if fn
// returns nil. It rolls it back if fn returns an error or panics, or if an EnqueueTx,
// EnqueueManyTx or CancelTx in it failed in the database, or a [Job.CompleteTx] at all. Jobs
// that fn enqueues with [Queue.EnqueueTx] or [Queue.EnqueueManyTx] exist if the transaction
// commits; workers learn of them at once.
//
// Nobody else can write meanwhile, this queue included: do in fn only what the
// transaction is about. fn may call EnqueueTx, EnqueueManyTx, CancelTx, CompleteTx, and methods
// of the queue that read; those see what was committed before. All other methods that write
// return [ErrBusy] at once, but Close never returns.
//
// Tx returns [ErrUnsupportedDB] if the store has no transactions for the
// application.
func (q *Queue) Tx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if fn == nil {
		return &FieldError{Field: "fn", Limit: "must not be nil"}
	}
	s, err := q.txStore()
	if err != nil {
		return err
	}
	defer q.awaits.changed()
	return s.Tx(ctx, plainTx(s, fn))
}

// EnqueueMany adds jobs in one transaction, all or none of them. It takes at most
// 10,000 jobs, with at most 64 MiB of args and headers, and returns their results
// in the same order. A duplicate is a result, not an error; see [Queue.Enqueue].
func (q *Queue) EnqueueMany(ctx context.Context, jobs []NewJob) ([]Enqueued, error) {
	return q.enqueueMany(ctx, jobs, q.write)
}

func (q *Queue) enqueueMany(ctx context.Context, jobs []NewJob, write writeFunc) ([]Enqueued, error) {
	if len(jobs) == 0 {
		return nil, ctx.Err()
	}
	if len(jobs) > maxEnqueue {
		return nil, tooMany(len(jobs))
	}
	jobs, err := q.withDefaults(jobs)
	if err != nil {
		return nil, err
	}
	return q.enqueue(ctx, jobs, indexed, write)
}

func (q *Queue) write(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]Enqueued, error) {
	added, err := q.store.Enqueue(ctx, now, jobs)
	if err == nil {
		q.events.tellEnqueued(now, jobs, added)
	}
	return added, err
}

// only and indexed return the text before the names of a job's fields in faults.
func only(int) string      { return "" }
func indexed(i int) string { return "jobs[" + strconv.Itoa(i) + "]." }

func first(e []Enqueued, err error) (Enqueued, error) {
	if err != nil {
		return Enqueued{}, err
	}
	return e[0], nil
}

func (q *Queue) enqueue(ctx context.Context, jobs []NewJob, place func(int) string, write writeFunc) ([]Enqueued, error) {
	added, all, err := q.pass(ctx, jobs, place, write)
	all.tell(added, err)
	return added, err
}

// newJobs checks the jobs of a call and has them go through the middleware. It returns them as
// the store takes them at now, and who is to be told. more, if not nil, checks them as well.
func (q *Queue) newJobs(ctx context.Context, f *faults, jobs []NewJob, place func(int) string, more func([]storage.NewJob)) (now time.Time, records []storage.NewJob, all afters, err error) {
	records = make([]storage.NewJob, len(jobs))
	for i, j := range jobs {
		n := f.n()
		records[i] = q.newJob(f, "", j)
		if merges(j.Options) && place(i) != "" {
			f.field(mergeField, "a function", notMany)
		}
		if f.n() > n { // a place is made for faults alone
			f.ofJob(n, i, place(i))
		}
	}
	if more != nil {
		more(records)
	}
	if f.n() == 0 {
		if all, err = q.enterAll(ctx, jobs, place, records); err != nil {
			return now, nil, nil, err
		}
	}
	size := 0
	for i := range records {
		size += len(records[i].Args) + len(records[i].Headers)
	}
	if len(jobs) > 1 && size > maxEnqueueBytes {
		f.field("jobs", fmt.Sprintf("%d bytes of args and headers", size), fmt.Sprintf("must be at most %d in one call", maxEnqueueBytes))
	}
	if err := f.err(); err != nil {
		all.tell(nil, err)
		return now, nil, nil, err
	}
	now, believed := q.clock.read(ctx)
	for i := range records {
		records[i].Doubtful = !believed
	}
	return now, records, all, nil
}

// mergeField is what EnqueueMany refuses, as notMany says.
const (
	mergeField = "unique.on_conflict.merge"
	notMany    = "must be nil with EnqueueMany"
)

// newJob checks a job and returns it as the store takes it. options goes before the names of the
// fields of its options in faults.
func (q *Queue) newJob(f *faults, options string, j NewJob) storage.NewJob {
	o := cmp.Or(j.Options, &JobOptions{})
	r := storage.NewJob{
		Queue: cmp.Or(o.Queue, defaultQueue), Priority: o.Priority, DueAt: o.DueAt, Delay: o.Delay,
		Timeout: o.Timeout, StartWithin: o.StartWithin, FinishWithin: o.FinishWithin, OnExpire: o.OnExpire, Group: o.Group,
	}
	if isNil(j.Args) {
		f.field("args", nil, "must not be nil")
	} else {
		r.Kind = f.kind("", j.Args, &q.types)
		r.Args = f.args("args", j.Args, q.opts.MaxArgs)
	}
	q.checkOptions(f, options, o, &r)
	if o.Unique != nil {
		o.Unique.set(&r, q.types.keyOf(j.Args))
	}
	return r
}

// uniqueKey returns the key as it is stored. No kind contains a space, so the
// keys of different kinds differ.
func uniqueKey(kind, key string) string { return kind + " " + key }
