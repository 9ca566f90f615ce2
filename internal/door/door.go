// Package door is how the packages topic, webhook and relay keep what is theirs in the file of a
// queue: messages, which jobs deliver, and entries, which are small documents such as a
// subscription or an endpoint. Applications use those packages instead. By it the packages of
// stores offer transactions that are no [database/sql.Tx], see [Tx], and package errandtest
// reads jobs in a transaction.
//
// The root installs what opens the door of a queue. So the door is no part of its API. Names
// of options and errors are those of the root.
package door

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// Topics is the door of a queue. It is narrow on purpose, and does not know what is in
// messages and entries. It is safe for concurrent use. J is the root's NewJob.
//
// A message stays while one of its jobs is there, live, finished or dead, and until its
// KeepUntil. Classes match [a-z][a-z0-9_-]{0,31}; names, families and topics match
// [A-Za-z0-9][A-Za-z0-9._:/-]{0,199}, the IDs of messages [A-Za-z0-9._:-]{1,128}. A body
// has at most 256 KiB, attributes 320 KiB and documents 64 KiB.
type Topics[J any] interface {
	// CheckQueue returns a FieldError for a field with the name of a queue that Publish would refuse in
	// jobs: it is malformed, or Options.Strict is set and Options.Queues does not list it.
	CheckQueue(field, queue string) error
	// Configure sets settings of a queue, which are valid. One that is zero is not set any more.
	Configure(ctx context.Context, queue string, set storage.Settings) error
	// PutEntries writes entries in one transaction, or deletes those with Delete set, all of
	// them or none. It takes at most 1,000. An entry with a Revision of zero must not be
	// there; one with another Revision must be there with that one. Else PutEntries returns
	// ErrStale. It returns the Revision that the entries and their families have then. It is
	// higher than any before. An entry keeps the Family that it was first written with.
	PutEntries(ctx context.Context, entries []storage.Entry) (revision int64, err error)
	// Entry returns an entry, or ErrNotFound.
	Entry(ctx context.Context, class, name string) (storage.Entry, error)
	// Entries returns the entries of a class whose names are greater than after, at most limit
	// of them, which is from 1 to 10,000, sorted by name. If family is not empty it returns
	// those of the family, with the revision of that as of the same moment: zero if it has
	// never had an entry.
	Entries(ctx context.Context, class, family, after string, limit int) (entries []storage.Entry, revision int64, err error)
	// Publish stores messages and enqueues their jobs in one transaction, all or nothing. The
	// jobs are checked, go through Options.Middleware and are told of as events as those of
	// Queue.EnqueueMany are. It takes at most 1,000 publications, with at most 10,000 jobs
	// and 64 MiB together. A duplicate is a result, not an error.
	Publish(ctx context.Context, publications []Publication[J]) ([]storage.PublishResult, error)
	// Message returns a message, or ErrNotFound.
	Message(ctx context.Context, id string) (storage.Message, error)
	// MessageWith returns a message, or ErrNotFound, and the revisions of up to four entries as
	// of the same moment, in the order of their names: zero for one that is not there. So a
	// caller that remembers entries reads only those again that have changed.
	MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error)
	// Messages returns the messages of a topic that were published at since or later, without
	// their bodies, in the order of their publication, at most limit of them, which is from 1
	// to 1,000. after is the next of the page before, of the same topic and since, or empty.
	// next is empty on the last page.
	Messages(ctx context.Context, topic string, since time.Time, after string, limit int) (messages []storage.Message, next string, err error)
}

// Publication is a message with the jobs that deliver it.
type Publication[J any] struct {
	// Family, if not empty, must be at Revision, or Publish returns ErrStale.
	Family   string
	Revision int64
	// Message is stored; its PublishedAt is the time of the call. If there is a message of
	// the same Topic with its ID, the publication is a duplicate of that one. With the ID of
	// a message of another Topic, Publish returns a FieldError that is ErrMessageID.
	Message storage.Message
	// Dedup, if not empty, makes the publication a duplicate of a message of the same Topic
	// that was published with the same Dedup less than its DedupFor ago. Such a message is
	// kept for that long. DedupFor is at least a second.
	Dedup    string
	DedupFor time.Duration
	// Existing says that the message must be there, or Publish returns ErrNotFound; of
	// Message only ID counts then. If From or To is set, the message's Cursor must be From,
	// or Publish returns ErrStale, and becomes To.
	Existing bool
	From, To string
	// Jobs deliver the message. They get the tag that [storage.MessageTag] returns. Their
	// OnConflict, if any, is Keep or Fail.
	Jobs []J
}

// Place is what the names of fields of a job begin with in the errors of Publish.
func Place(publication, job int) string {
	return fmt.Sprintf("publications[%d].jobs[%d].", publication, job)
}

// JobError is the error of middleware about one job of a call with several.
type JobError struct {
	// Job is the index of the job in the call. Publish counts the jobs of all publications.
	Job int
	// Place names the job: "jobs[3]".
	Place string
	Err   error
}

// Error says which job Err is about.
func (e *JobError) Error() string { return e.Place + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *JobError) Unwrap() error { return e.Err }

// Tx is a queue inside a transaction of the application on its database: what the calls write is
// there if the transaction commits. The transaction is of the type that the queue's store takes. The
// methods of the root that take a [database/sql.Tx] are these. J is the root's NewJob.
type Tx[J any] interface {
	// Enqueue is Queue.EnqueueTx.
	Enqueue(ctx context.Context, job J) (storage.Enqueued, error)
	// Cancel is Queue.CancelTx.
	Cancel(ctx context.Context, id storage.ID) (storage.State, error)
	// Complete and Checkpoint are Job.CompleteTx and Job.CheckpointTx, of the job that Within was
	// given. Given a queue, they return ErrNoAttempt. Complete also completes the jobs of others,
	// which are of the same queue and in the same transaction. Together they cost less: each group
	// looks once what may run next.
	Complete(ctx context.Context, others ...Tx[J]) error
	// Held returns the error that Complete would return because the job has lost its lease, was
	// cancelled, or has ended. The transaction can go on after it, which it cannot after that of
	// Complete.
	Held(ctx context.Context) error
	Checkpoint(ctx context.Context, v any) error
	// Topics returns the door of the queue as it is inside the transaction: its Entry, Entries,
	// PutEntries, Configure and Publish read and write there. From the first call of one of the
	// former four on, nobody else writes until the transaction has ended. What was read must not be
	// remembered for longer than that: a revision is given again if the transaction does not
	// commit. Topics returns ErrUnsupportedDB if the queue's store keeps no messages.
	Topics() (Topics[J], error)
}

// root is how the root opens its doors.
var root struct {
	open   func(queue any) (any, error)
	within func(of, tx any) (any, error)
}

// Install says how the door of a queue is opened, and that of a queue or of a job inside a
// transaction. The root calls it as it is initialized.
func Install(open func(queue any) (any, error), within func(of, tx any) (any, error)) {
	root.open, root.within = open, within
}

// Open returns the door of a queue of the root, or of that of a worker. It returns ErrUnsupportedDB if the queue's
// store keeps no messages.
func Open[J any](queue any) (Topics[J], error) {
	if root.open == nil {
		return nil, errNoRoot(queue)
	}
	return as[Topics[J]](root.open(queue))
}

// Within returns a queue of the root inside a transaction; of is the queue, or a job that a worker of the
// queue runs. It returns a FieldError for a nil tx, and ErrUnsupportedDB if the queue's store
// takes part in no transactions. A tx of a type that the store does not take is for its calls a
// transaction on another database.
func Within[J any](of, tx any) (Tx[J], error) {
	if root.within == nil {
		return nil, errNoRoot(of)
	}
	return as[Tx[J]](root.within(of, tx))
}

// QueueOf returns the queue of a worker of the root. Q is the root's *Queue.
func QueueOf[Q any](worker any) (q Q, err error) {
	if root.open == nil {
		return q, errNoRoot(worker)
	}
	in, err := as[interface{ Queue() Q }](root.open(worker))
	if err != nil {
		return q, err
	}
	return in.Queue(), nil
}

// ErrUntouched is what a handler of HandleQueue returns for a job that goes back as if the handler had
// not been called. Unless something keeps the job back, such as a gate, it comes again at once.
var ErrUntouched = engine.ErrUntouched

// Passed returns what a handler of HandleQueue returns for a job that is dead by err, a permanent one, in a queue
// where a dead job passes: those behind it in its group stay in the call.
func Passed(err error) error { return engine.Passed(err) }

// Stopping returns a channel that is closed once the worker begins to stop that has called a handler of HandleQueue with
// ctx. Its context ends later, when the grace is over.
func Stopping(ctx context.Context) <-chan struct{} { return engine.Stopping(ctx) }

// TopicsTx returns the door of a queue inside a transaction, see [Tx].
func TopicsTx[J any](queue, tx any) (Topics[J], error) {
	in, err := Within[J](queue, tx)
	if err != nil {
		return nil, err
	}
	return in.Topics()
}

// Import enqueues jobs that come from other queues, all or none of them, as Queue.EnqueueMany
// does. from has the ID of each in the queue that it comes from, or the zero ID. A job that came
// in before under that ID, and is there, live, finished or dead, is a duplicate with no ID, and
// before is true for it: the jobs get the tag that [storage.ImportTag] returns. J is the root's NewJob.
func Import[J any](ctx context.Context, queue any, jobs []J, from []storage.ID) (added []storage.Enqueued, before []bool, err error) {
	if root.open == nil {
		return nil, nil, errNoRoot(queue)
	}
	in, err := as[interface {
		Import(ctx context.Context, jobs []J, from []storage.ID) (added []storage.Enqueued, before []bool, err error)
	}](root.open(queue))
	if err != nil {
		return nil, nil, err
	}
	return in.Import(ctx, jobs, from)
}

// Relaxed reports whether the last commits of a queue may be lost in a power cut, although they were
// acknowledged: the Durability of its store is Relaxed. It is false for a store that does not say.
func Relaxed(queue any) (bool, error) {
	if root.open == nil {
		return false, errNoRoot(queue)
	}
	in, err := as[interface{ Relaxed() bool }](root.open(queue))
	if err != nil {
		return false, err
	}
	return in.Relaxed(), nil
}

// JobsTx returns the jobs of a kind as a transaction of the application on the queue's file
// sees them, for package errandtest. I is the root's JobInfo.
func JobsTx[I any](ctx context.Context, queue, tx any, kind string) ([]I, error) {
	if root.within == nil {
		return nil, errNoRoot(queue)
	}
	in, err := as[interface {
		Jobs(ctx context.Context, kind string) ([]I, error)
	}](root.within(queue, tx))
	if err != nil {
		return nil, err
	}
	return in.Jobs(ctx, kind)
}

// Live returns what is known of those of some jobs that are live, but for args, headers, checkpoint and
// history. It is for handlers that pass their jobs on. I is the root's JobInfo.
func Live[I any](ctx context.Context, queue any, ids []storage.ID) ([]I, error) {
	if root.open == nil {
		return nil, errNoRoot(queue)
	}
	in, err := as[interface {
		Live(ctx context.Context, ids []storage.ID) ([]I, error)
	}](root.open(queue))
	if err != nil {
		return nil, err
	}
	return in.Live(ctx, ids)
}

func errNoRoot(queue any) error {
	return fmt.Errorf("errand: %T is no queue: package errand is not in this program", queue)
}

// as returns a door of the root as what the caller takes it for.
func as[D any](door any, err error) (D, error) {
	own, ok := door.(D)
	if err == nil && !ok {
		err = fmt.Errorf("errand: %T is no %T", door, &own)
	}
	return own, err
}
