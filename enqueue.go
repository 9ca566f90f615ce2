package errand

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	minPriority, maxPriority = -100, 100
	maxName                  = 128
	maxUnique                = 1024
	minTimeout               = time.Millisecond
	// maxEnqueue and maxEnqueueBytes bound how long one call holds the writer.
	maxEnqueue      = 10_000
	maxEnqueueBytes = 64 << 20
)

// Enqueue adds a job. When it returns nil the job is durable, see
// [SQLiteOptions].Durability. If the options ask for a unique key that another job
// holds, nothing is added and the answer is a duplicate with that job's ID, which
// is said to be gone if the job was deleted since.
//
// Bad input gives a [FieldError] for each fault, joined, and nothing is
// written.
func (q *Queue) Enqueue(ctx context.Context, args Args, o *JobOptions) (Enqueued, error) {
	return first(q.enqueue(ctx, []NewJob{{args, o}}, only, q.store.Enqueue))
}

// EnqueueTx is [Queue.Enqueue] inside a transaction of the application on the
// queue's file: the job exists if tx commits. Transactions begun by [Queue.Tx]
// are best; for others, workers see the job within 50 ms of the commit, and its
// durability is that of the transaction's connection.
//
// It gives [ErrWrongDatabase] for a transaction on another database.
func (q *Queue) EnqueueTx(ctx context.Context, tx *sql.Tx, args Args, o *JobOptions) (Enqueued, error) {
	if tx == nil {
		return Enqueued{}, &FieldError{Field: "tx", Limit: "must not be nil"}
	}
	s, err := q.txStore()
	if err != nil {
		return Enqueued{}, err
	}
	write := func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]Enqueued, error) {
		return s.EnqueueTx(ctx, tx, now, jobs)
	}
	return first(q.enqueue(ctx, []NewJob{{args, o}}, only, write))
}

// ReleaseUnique ends the hold of a unique key of a kind with the life of the job
// that holds it, as if [Unique].Forever had not been set. If that job has ended,
// the key is free at once, and the zero ID is returned; if not, its ID is, and the key is free once it
// has ended. It returns [ErrNotFound] if no job holds the key.
func (q *Queue) ReleaseUnique(ctx context.Context, kind, key string) (ID, error) {
	var f faults
	f.add(checkName("kind", kind))
	f.unique("key", key)
	if err := f.err(); err != nil {
		return ID{}, err
	}
	return q.store.ReleaseUnique(ctx, uniqueKey(kind, key))
}

// EnqueueMany adds jobs, at most 10,000 with at most 64 MiB of args and headers,
// all or none of them, in one transaction, and answers for each in the same
// order. Duplicates do not count
// as a fault; see [Queue.Enqueue].
func (q *Queue) EnqueueMany(ctx context.Context, jobs []NewJob) ([]Enqueued, error) {
	if len(jobs) == 0 {
		return nil, ctx.Err()
	}
	if len(jobs) > maxEnqueue {
		return nil, &FieldError{Field: "jobs", Value: len(jobs), Limit: fmt.Sprintf("must be at most %d in one call", maxEnqueue)}
	}
	return q.enqueue(ctx, jobs, indexed, q.store.Enqueue)
}

// only and indexed put the place of a job before the names of its fields.
func only(int) string      { return "" }
func indexed(i int) string { return fmt.Sprintf("jobs[%d].", i) }

func first(e []Enqueued, err error) (Enqueued, error) {
	if err != nil {
		return Enqueued{}, err
	}
	return e[0], nil
}

func (q *Queue) enqueue(ctx context.Context, jobs []NewJob, place func(int) string,
	write func(context.Context, time.Time, []storage.NewJob) ([]Enqueued, error),
) ([]Enqueued, error) {
	records := make([]storage.NewJob, len(jobs))
	var f faults
	size := 0
	for i, j := range jobs {
		records[i] = q.newJob(&f, place(i), place(i), j)
		size += len(records[i].Args) + len(records[i].Headers)
	}
	if len(jobs) > 1 && size > maxEnqueueBytes {
		f.field("jobs", fmt.Sprintf("%d bytes of args and headers", size), fmt.Sprintf("must be at most %d in one call", maxEnqueueBytes))
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return write(ctx, q.clock.current(ctx), records)
}

// newJob checks a job at the door and puts it into the words of the store. Its
// faults are named after the place of the job and that of its options.
func (q *Queue) newJob(f *faults, place, options string, j NewJob) storage.NewJob {
	o := cmp.Or(j.Options, &JobOptions{})
	r := storage.NewJob{
		Queue: cmp.Or(o.Queue, defaultQueue), Priority: o.Priority, DueAt: o.DueAt, Delay: o.Delay,
		Timeout: o.Timeout,
	}
	if isNil(j.Args) {
		f.field(place+"args", nil, "must not be nil")
	} else {
		r.Kind = f.kind(place, j.Args, &q.types)
		r.Args = f.args(place+"args", j.Args, q.opts.MaxArgs)
	}
	f.add(checkName(options+"queue", r.Queue))
	f.jobOptions(options, o)
	if !isNil(o.Policy) {
		// A document without sections says nothing and is not kept.
		if d := f.override(options+"policy", o.Policy); d != (policy.Document{}) {
			r.Policy = f.json(options+"policy", d)
		}
	}
	if o.Unique != nil {
		r.Unique = uniqueKey(r.Kind, o.Unique.Key)
		if o.Unique.Forever {
			r.UniqueScope = storage.UniqueForever
		}
	}
	if len(o.Headers) > 0 {
		r.Headers = f.headers(options+"headers", o.Headers, q.opts.MaxHeaders)
	}
	return r
}

// uniqueKey makes keys of different kinds differ: no kind contains a space.
func uniqueKey(kind, key string) string { return kind + " " + key }
