// Package storage is the contract between errand and what keeps its jobs.
//
// A [Store] is small and semantic: it moves jobs between their states in
// batches, one transaction a call, and knows nothing of handlers or policies.
// Time is always passed in; a store reads no clock, though it may have one that others
// read, see [Clocked]. Of what is bounded here each store says how much it does in a call.
// A store that is being built says what it lacks, see [Partial].
// Package storagetest holds the suite that every Store must pass: each sentence of the
// comments below that can be checked is a case there, in the same words.
package storage

import (
	"context"
	"time"
)

// Store keeps jobs durably. It is safe for concurrent use.
//
// Every method that writes is one transaction: when it returns nil all of it is durable,
// when it returns an error none of it is. [ErrUnknownOutcome] leaves that open. Times are
// kept in whole microseconds; due times are rounded up, so that no job starts early.
// Slices passed in belong to the caller again when the call returns; slices returned
// belong to the caller.
//
// A context that ends before a write has begun withdraws it and returns the
// context's error; once begun the write goes through, and its result counts.
//
// A Store that has been opened is one instance: it registers itself with its
// first lease at the latest, and the registration's lock is dropped with the
// process, by the kernel or the server.
//
// Calls that do not overlap in time get the answers that one after the other gives. A call
// in a transaction of the application lasts until that ends. Between calls that overlap, a
// lease may pass over jobs that another call is deciding about, and a cap may be exceeded by
// what the others insert. The order of a group is that of commits, and a member from a
// transaction of the application may be blocked until the next Exchange. These are exact
// whatever overlaps: holders of unique keys, limits of groups, tokens, and one lease a job.
// On a store with one writer, as that on SQLite, calls that write do not overlap.
//
// Job keys and lease tokens are positive and rise from each call to the calls
// that begin after it; there may be gaps. Neither is ever reused, also not after
// every job was deleted.
type Store interface {
	// Enqueue inserts jobs in order and answers for each in the same order. A
	// job due at or before now becomes ready, one due later scheduled, unless its
	// group blocks it. A job
	// with a Delay is due that long after now. A job whose unique key is held
	// is not inserted; its answer is a duplicate that names the holder. This
	// is so within one call too. A job with a [Conflict] may change the holder.
	Enqueue(ctx context.Context, now time.Time, jobs []NewJob) ([]Enqueued, error)

	// Exchange is one round of a worker: it extends leases, then finishes
	// jobs, then begins and ends holds, then makes due scheduled jobs ready and
	// leases ready ones.
	// Each item has its own result; a bad item never fails its exchange.
	// See [Exchange] for the parts.
	Exchange(ctx context.Context, now time.Time, x Exchange) (ExchangeResult, error)

	// Reclaim takes leases from holders that are gone, at most limit of them, and gives
	// each a new token held by this instance until it is finished: the old holder can
	// neither extend nor finish any more. A holder is gone if its instance is, or if
	// calls of Reclaim on this Store have seen no extension of the lease for as long as
	// the longest lease that the holder has asked for. mono measures that: it is a
	// reading of a monotonic clock with any origin. The wall clock takes nobody's lease.
	// Leases of this instance are never reclaimed, but for those whose answer was lost, see
	// [UnknownOutcomeError]. Leases of a living instance need not
	// be looked at more than four times in the length of one. lease is the length of the
	// new leases.
	Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]Reclaimed, error)

	// Job returns one job, whichever of its three tables it is in, with args,
	// headers and history. It returns [ErrNotFound] if there is none.
	Job(ctx context.Context, id ID) (Record, error)

	// Cancel ends a scheduled, ready or blocked job as cancelled, kept as keep says.
	// For a running job it notes the wish: the holder learns of it with its
	// next extension, and the job is not put back (see [Finish.Effect]). It
	// returns the state of the job after the call: of a job that had ended
	// already, the state in which it ended. It returns [ErrNotFound] if there
	// is no such job.
	Cancel(ctx context.Context, now time.Time, id ID, keep Retention) (State, error)

	// ReleaseUnique makes a unique key free when its holder ends, whatever its
	// scope: at once if the holder is not live. It returns the holder if that
	// has the key until it ends, the zero ID if the key is free now, and
	// [ErrNotFound] if no job held the key.
	ReleaseUnique(ctx context.Context, key string) (ID, error)

	Holder       // holds of lanes
	Settler      // settings of lanes
	Grouper      // groups of jobs that wait for each other
	Examiner     // numbers of lanes, causes of deaths, places of jobs, the condition of the Store
	Checkpointer // where jobs have got to

	// Counts returns the number of jobs by queue, kind and state, without rows
	// for zero, sorted by these three. They are kept, not counted: the cost
	// does not grow with the number of jobs. They are exact, unless the Store
	// documents that they may lag behind, by at most a second.
	Counts(ctx context.Context) ([]Count, error)

	// Jobs lists jobs that match f, at most limit of them. after is the Next of the page
	// before, of a list with the same f, or empty for the first page. See [Page].
	Jobs(ctx context.Context, f Filter, after string, limit int) (Page, error)

	// Redrive puts dead jobs back to work: ready and due now, or blocked by their group.
	// They go to queue, or, if that is empty, to their own. Retry index, crashes and
	// snoozes begin at zero; attempts, token and history are kept. StartBy is gone, and
	// FinishWithin counts from now. A job whose unique key another job holds stays dead
	// and is reported as a duplicate. One call is one bounded step: see [Step].
	Redrive(ctx context.Context, now time.Time, sel Selection, queue string) (Step, error)

	// RunNow makes scheduled jobs ready; [Waiting] says which ones. A job that was due
	// later is due now; its counters, token and history are kept. Jobs that are ready,
	// blocked or running are left as they are. One call is one bounded step, over a
	// filter in the order of keys: see [Step]. A single job that IDs names, and that is
	// scheduled or ready, becomes urgent until it is leased, is put off or ends: see
	// [Exchange].
	RunNow(ctx context.Context, now time.Time, sel Selection, which Waiting) (Step, error)

	// Change changes scheduled, ready and blocked jobs as e says, and dead ones that IDs name.
	// What e leaves out is kept, as are the unique key, the counters, the token and the
	// history. Jobs that run stay as they are, and are reported as Live. One call is
	// one bounded step, over a filter of live jobs in the order of keys: see [Step].
	Change(ctx context.Context, now time.Time, sel Selection, e Edit) (Step, error)

	// Delete deletes dead and finished jobs for good, with all that belongs to them. Live
	// jobs that IDs name stay, and are reported as Live. A filter selects dead jobs. If
	// it has States without Dead, it selects finished ones, in the order of keys. Jobs
	// that IDs name have to be in one of Filter.States, unless that is empty. One call is
	// one bounded step: see [Step].
	Delete(ctx context.Context, sel Selection) (Step, error)

	// PurgeFinished deletes finished jobs whose time to be kept is over, in one bounded
	// step. It returns how many it deleted, and when to call it again: now if the time of
	// more jobs is over, zero if no finished job is kept. It also frees keys held only by
	// a UniqueFor that has passed, and deletes messages whose time is over, see [Topics].
	// The time returned allows for the next of these too.
	PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error)

	// Close ends the instance; calls under way finish first, later ones return
	// [ErrClosed]. Only Stopping and Ended still work. Leases whose handlers have not
	// begun, or have returned, are there for Reclaim at once. The registration stands
	// until the last running handler has returned or the process ends. Until then no
	// lease of such a handler lapses, so that it is not run a second time meanwhile.
	Close() error
}

// Peers is implemented by a Store that knows of other instances without looking
// for them. Without it a worker calls Reclaim every
// 250 ms.
type Peers interface {
	// Alone reports whether a further call of Reclaim would find nothing: no
	// other instance was registered, and no lease was left without its instance,
	// when this one last called Reclaim or was told of a commit.
	Alone() bool
}

// Notifier is implemented by a Store that can tell when there may be something
// to do. Without it a worker asks every second.
type Notifier interface {
	// Notify makes the Store call f after each commit, of this process or
	// another, that may concern a worker. f must not block. The result undoes
	// it. One change of holds, of schedules or of an urgent job is one Event with
	// Holds, Schedules or Urgent.
	Notify(f func(Event)) (cancel func())
}

// Event says what a commit changed.
type Event struct {
	// Due is when the earliest job it made available is due; the zero time
	// means at once.
	Due time.Time
	// Cancel is true if a running job may have been asked to stop, so that leases
	// should be extended soon. It is false if only lanes, holds or schedules
	// have changed: extending all leases writes much.
	Cancel bool
	// Schedules is true if schedules should be read again, because they may have
	// changed otherwise than by Fire.
	Schedules bool
	// Holds are the lanes that may have been held or released, as the holds name them. A
	// Hold, Release or Exchange of this Store that does so calls f before it returns.
	Holds []Lane
	// Urgent is true if a job may have become urgent.
	Urgent bool
	// Clock is the latest now that a write of another process was given, if
	// that is known; else zero.
	Clock time.Time
}

// Pulser is implemented by a Store whose instances can show that they live while
// nothing can be written to the database.
type Pulser interface {
	// Pulse makes all later calls of Reclaim take the leases of this instance
	// for extended. It writes nothing to the database and waits for no other
	// write. After an error it has had no effect.
	Pulse() error
}

// Backuper is implemented by a Store that can be copied while it is in use.
type Backuper interface {
	// Backup writes all that is stored, as of one moment during the call, to a
	// new file. It refuses a path that exists, with an error that is
	// fs.ErrExist. After an error there is no file; after nil the file is
	// durable. Others go on writing.
	//
	// A store opened on the file is another life of the database: leases in it are
	// reclaimed as [Cut], even while their holders run in the first life. What these
	// report changes only the original file.
	Backup(ctx context.Context, path string) error
}
