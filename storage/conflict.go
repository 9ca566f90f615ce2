package storage

import (
	"fmt"
	"strings"
	"time"
)

// ConflictMode says what Enqueue does if the unique key of a job is held, see [Conflict].
type ConflictMode uint8

// The modes.
const (
	// Keep keeps the job that holds the key: the answer is a duplicate that names this job.
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
// After, only if no attempt of it has begun. A job that is leased does not wait, even if
// its handler was not called yet: it may have been read.
//
// If there is a waiting job, Replace, Debounce and After change it. Its ID, its place,
// its queue, its policy, its timeout, its tags, its counters and its history stay, and
// nothing is added to its history; the answer is a duplicate with Replaced that names it.
// Its checkpoint is dropped. A ready job goes to the place that it would have had with its
// new priority from the start. Its StartWithin and FinishWithin stay. They count on if its due time stays, and
// else anew, as of a NewJob. Once a job has begun, StartWithin counts no more.
//
// If no job waits and the holder is live, these three modes insert the new job behind the
// holder, as the waiting job. It is [Blocked] until the holder has ended as done,
// cancelled, expired or dead, or was deleted; a holder that is put back has not ended. In
// the same transaction the job then takes over the key. It is ready then if it was due
// when it was inserted or changed last, else scheduled. A holder that has died and is
// redriven finds its key held.
//
// If the holder has ended and only its UniqueFor is left, these three modes insert the
// new job, due at the end of UniqueFor or later. The same holds behind a live holder with
// a UniqueFor. The holder is kept instead if it has the key for ever and does not wait,
// or if it is live, no job waits and the new job has a Group.
type Conflict struct {
	Mode ConflictMode
	// Quiet is how long after now a job that Debounce inserts is due; its DueAt and Delay
	// are zero. A waiting job is put off to Quiet after now, never to an earlier time
	// than it had, and at most to MaxWait after its enqueue. If MaxWait is zero, there is
	// no such limit.
	Quiet, MaxWait time.Duration
	// Fresh begins the retries, crashes and snoozes of a waiting job at zero. If an
	// attempt has put it off, it is due now, or as Debounce says.
	Fresh bool
	// Merge, if not nil, says what the args were made of. The Store does not change it.
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

// Merge has a job replaced only if its args are still those that the new args were made of.
// Old are these; nil if no job waited. Otherwise nothing is changed. The answer is then a
// duplicate that names the holder if there is one, with an [Unmerged].
type Merge struct {
	Old []byte
}

// Unmerged is the part of an answer that says of what the args are to be made now.
type Unmerged struct {
	Found []byte // the args of the waiting job; nil if no job waits
}

// DuplicateError refuses a call of Enqueue: the unique key of one of the jobs, whose
// Conflict says Fail, is held. Nothing was written. It unwraps to [ErrDuplicate].
type DuplicateError struct {
	Index int  // of the job in the call
	ID    ID   // of the holder
	Gone  bool // as in [Enqueued]
	// Key is the unique key, without the kind. Package errand sets it, and a Store leaves it
	// empty.
	Key string
}

// Error names the holder and the key. It leaves out a key that is a hash of args.
func (e *DuplicateError) Error() string {
	s := ErrDuplicate.Error() + " by job " + e.ID.String()
	if e.ID.IsZero() {
		s = ErrDuplicate.Error() + " by another job of the call"
	}
	if e.Gone {
		s += ", which was deleted since"
	}
	if e.Key != "" && !strings.HasPrefix(e.Key, HashedKey) {
		s += fmt.Sprintf(": %.100q", e.Key)
	}
	return s
}

// HashedKey is what a unique key begins with that is a hash of args. Who may not see the args does
// not see the rest of the key, as it can be found by trying.
const HashedKey = "sha256:"

// Unwrap returns [ErrDuplicate].
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }
