package storage

import (
	"context"
	"time"
)

// Examiner is the part of a [Store] that says how its jobs and the Store itself are.
type Examiner interface {
	// Stats returns what is known of the lanes that have ever had a job, sorted by queue and
	// kind. The cost grows with the lanes and the priorities of their ready jobs, not with
	// jobs.
	Stats(ctx context.Context) ([]LaneStats, error)

	// Causes lists the causes of a lane, at most limit of them: those of most dead jobs
	// first, and of equally many the older one. An empty name of lane stands for any. The
	// cost grows with the number of causes, not of dead jobs.
	Causes(ctx context.Context, lane Lane, limit int) ([]Cause, error)

	// Deaths counts the dead jobs of each of the causes by when they died: in n times that follow
	// each other, of a length each, the first of which begins at from. Of each time it counts at
	// most most. There are none of a cause that is gone. The cost grows with what is counted and
	// with n, not with the number of dead jobs.
	Deaths(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, most int) ([][]int, error)

	// Ahead counts, up to most, the jobs before a job. Of a ready job these are the ready
	// jobs of its lane that an Exchange leases before it; of a blocked job, the blocked
	// members of its group with lower keys; of any other, none. It passes over no more
	// jobs than that. It returns [ErrNotFound] if there is no live job.
	Ahead(ctx context.Context, id ID, most int) (Ahead, error)

	// Check returns the condition of the store. It writes nothing, but waits for its
	// turn as a write does. It returns [ErrClosed] as all calls do.
	Check(ctx context.Context) (Condition, error)

	// NotifyEvicted makes the Store call f after each of its commits that has evicted
	// jobs or dead letters, before the call that evicted them returns. at is the time
	// that the call was given; jobs are in the order of eviction. An EnqueueTx in a
	// transaction that Tx has not begun reports none. f must not block. The result undoes
	// it.
	NotifyEvicted(f func(at time.Time, jobs []Evicted)) (cancel func())
}

// Publisher is implemented by a Store whose instances can show each other what they
// are doing.
type Publisher interface {
	// Publish shows a document to all who have the database open, in place of the one
	// that this instance has shown before. Nil takes it back. Others see it once the
	// instance is registered. It writes nothing to the database, waits for no other
	// write and syncs nothing: the document need not outlive the process.
	Publish(doc []byte) error
	// Published returns the documents of the instances that live, this one included,
	// sorted by when the instances registered. None is a mixture of two. An instance
	// that was closed shows nothing, one whose process is gone is not among them.
	Published(ctx context.Context) ([]Published, error)
}

// Published is what an instance shows.
type Published struct {
	// Instance names it, as in Failure.
	Instance string
	// Doc is what it has published. It is nil if it lives and shows nothing, or nothing
	// that can be read here.
	Doc []byte
	// Running is how many handlers run there, as far as [Marker] was told: of leases it holds
	// that are Started, and neither Ended nor Stopping. It is 0 if that cannot be read, or if
	// the Store is no Marker.
	Running int
}

// Versioner is implemented by a Store that can say whether anything was committed.
type Versioner interface {
	// Version returns a number that changes with every commit, of this process or another.
	// It may also change without a commit. Numbers of other instances have nothing to do
	// with it. It writes nothing, and reads nothing of the jobs.
	Version(ctx context.Context) (int64, error)
}

// Ahead is the place of a job.
type Ahead struct {
	N int
	// More is true if there are more than N.
	More bool
	// OfQueue and OfKind are the buckets of tokens of the queue and of the kind of a
	// ready job, see [Starts]. Without an Interval there is no such bucket.
	OfQueue, OfKind Bucket
	// Urgent is true of a job that goes before all others, see [Exchange].
	Urgent bool
	// Head is what a blocked job waits for: the member of its group that is scheduled,
	// ready or running, or else the dead one with the lowest key that blocks it. If the
	// job waits behind the holder of its unique key, Head is that holder.
	Head ID
}

// Condition is how a store is.
type Condition struct {
	// Write is the error that an Enqueue would return now; nil if it would go through.
	Write error
	// Free is how many bytes may still be written to the file system, or -1 if that is
	// not known. Low is true if that is less than the store should have.
	Free int64
	Low  bool
	// Oldest are the lanes that have ready jobs, each with the earliest due time of
	// these, sorted by queue and kind.
	Oldest []LaneDue
}

// LaneDue is when the first ready job of a lane was due.
type LaneDue struct {
	Lane
	DueAt time.Time
}
