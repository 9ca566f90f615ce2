package storage

import "time"

// ConflictMode says what Enqueue does if the unique key of a job is held, see [Conflict].
type ConflictMode uint8

// The modes.
const (
	// Keep keeps what there is: the answer is a duplicate that names the holder.
	Keep ConflictMode = iota
	// Replace has the args, headers and priority of the new job take the place of those
	// of the waiting job.
	Replace
	// Debounce is Replace, and puts the waiting job off.
	Debounce
	// After is Replace for a job of which no attempt has begun.
	After
	// Fail refuses the call with a [DuplicateError].
	Fail
)

// Conflict is what Enqueue does with a job whose unique key is held.
//
// The waiting job is the holder of the key while it is scheduled, ready or blocked; for
// After, only if no attempt of it has begun. A job that is leased does not wait, also if
// its handler was not called yet: it may have been read. Then these three modes insert
// the new job behind the holder, and from then on it is the waiting job: it is [Blocked]
// until the holder has ended as done, cancelled, expired or dead, or was deleted, however
// often that one is put back, and then holds the key in its place, in the same
// transaction. It is ready then if it was due when it was inserted or changed last, else
// scheduled. A holder that has died and is redriven finds its key held. If there is a
// waiting job, Replace, Debounce and After change it. Its ID, its place, its queue, its policy, its
// timeout, its tags, its counters and its history stay, and nothing is added to its
// history; the answer is a duplicate with Replaced that names it. A ready job goes to the
// place that it would have had with its new priority from the start. The StartWithin and
// FinishWithin of the waiting job stay. They count on, unless it is due at another time:
// then they count anew, as of a NewJob, but for the StartWithin of one that has begun.
//
// If only the UniqueFor of a job that has ended holds the key, these three modes insert
// the new job, due when that is over at the earliest; so is one that waits behind a holder
// with a UniqueFor. In all other cases the holder is kept: so it is if it has the key for
// ever and does not wait, or if the new job has a Group and none waits.
type Conflict struct {
	Mode ConflictMode
	// Quiet is how long after now a job is due that Debounce inserts: then it has no
	// DueAt and no Delay. A waiting job is due that long after now, but not before it
	// was, and not later than MaxWait after it was enqueued unless it was. If MaxWait is
	// zero, there is no such limit.
	Quiet, MaxWait time.Duration
	// Fresh begins the retries, crashes and snoozes of a waiting job at zero. One that
	// was scheduled since an attempt of it is due now, or as Debounce says.
	Fresh bool
	// Merge, if not nil, says what the args were made of.
	Merge *Merge
}

// Replaces reports whether c changes a job that waits.
func (c *Conflict) Replaces() bool {
	return c != nil && (c.Mode == Replace || c.Mode == Debounce || c.Mode == After)
}

// Due returns when a waiting job is due that was due at due and was enqueued at created.
func (c *Conflict) Due(now, created, due time.Time) time.Time {
	if c.Mode != Debounce {
		return due
	}
	next := now.Add(c.Quiet)
	if last := created.Add(c.MaxWait); c.MaxWait > 0 && last.Before(next) {
		next = last
	}
	if next.After(due) {
		return next
	}
	return due
}

// Merge has a job replaced only by one that was made of it. If the args of the waiting
// job are not Old, or if one waits though Old is nil, or none though it is not, nothing
// is changed for the job: Again is set, Found are the args of the waiting job, nil if
// there is none, and the answer is a duplicate, that names the holder if there is one.
type Merge struct {
	Old   []byte
	Again bool
	Found []byte
}

// DuplicateError refuses a call of Enqueue: the unique key of one of the jobs, whose
// Conflict says Fail, is held. Nothing was written. It unwraps to [ErrDuplicate].
type DuplicateError struct {
	Index int  // of the job in the call
	ID    ID   // of the holder
	Gone  bool // as in [Enqueued]
}

// Error names the holder.
func (e *DuplicateError) Error() string { return ErrDuplicate.Error() + " by job " + e.ID.String() }

// Unwrap returns [ErrDuplicate].
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }
