package storage

import (
	"context"
	"errors"
	"fmt"
)

// What can go wrong in a Store. Errors are matched with [errors.Is]; they are
// told apart by codes of the driver, never by its text.
var (
	// ErrNotFound: no job has this ID, no schedule this name (any more).
	ErrNotFound = errors.New("errand: not found")
	// ErrDuplicate: the unique key of a job is held, and its Conflict says Fail.
	ErrDuplicate = errors.New("errand: unique key is held")
	// ErrMessageID: a message of another topic has this ID.
	ErrMessageID = errors.New("errand: a message of another topic has this ID")
	// ErrStale: what a write was based on has changed since it was read.
	ErrStale = errors.New("errand: changed meanwhile")
	// ErrClosed: the store was closed, or closed itself after an I/O error that left open
	// whether a write took place, or because its database was put back to an earlier
	// moment or taken away while open.
	ErrClosed = errors.New("errand: closed")
	// ErrBusy: somebody else held the database for too long.
	ErrBusy = errors.New("errand: database is busy")
	// ErrFull: no space left. Nothing was written.
	ErrFull = errors.New("errand: no space left for the database")
	// ErrReadOnly: the database cannot be written.
	ErrReadOnly = errors.New("errand: database is read-only")
	// ErrCorrupt: the database is damaged, or is none.
	ErrCorrupt = errors.New("errand: database is damaged")
	// ErrTakenAway: a file of the database was removed, renamed, cut off or replaced while the
	// store was open, so that nobody would find what is written. The store takes no call
	// until it has saved what it had, and then closes; the error says where that is. A store
	// that is opened meanwhile gets it too.
	ErrTakenAway = errors.New("errand: a file of the database was taken away")
	// ErrTooNew: a newer version of errand has changed the database so that
	// this one must not write to it.
	ErrTooNew = errors.New("errand: database needs a newer version of errand")
	// ErrNeedsRecovery: the database is opened for reading alone, but has a log that only
	// a process which may write can apply.
	ErrNeedsRecovery = errors.New("errand: database needs recovery by its owner")
	// ErrUnknownOutcome: the commit failed in a way that leaves open whether it took place.
	// If the error is no [UnknownOutcomeError], the store has closed itself: open it again to
	// see.
	ErrUnknownOutcome = errors.New("errand: outcome of the write is unknown")
	// ErrUnsupportedDB: not a database that this Store can work with. The functions that open
	// a Store say what it needs.
	ErrUnsupportedDB = errors.New("errand: unsupported database")
	// ErrLacking: the Store does not do what was asked for, see [Partial]. It is an
	// ErrUnsupportedDB that names what the Store lacks.
	ErrLacking = fmt.Errorf("%w: the store lacks", ErrUnsupportedDB)
	// ErrWrongDatabase: a transaction of another database.
	ErrWrongDatabase = errors.New("errand: transaction belongs to another database")
	// ErrIO: the database could not be read or written.
	ErrIO = errors.New("errand: input/output error")
)

// Troubled is implemented by a Store that can tell its own errors from others, whatever wraps
// them.
type Troubled interface {
	// Trouble reports whether err comes of an [ErrFull], [ErrBusy] or [ErrIO] that a call of this
	// Store has returned as it could not use its database. It does not of an error of another
	// Store; of the ErrBusy of a call that would have waited for its own caller; of one of a
	// call in a transaction that the application has begun; nor of an error of Backup or
	// Compact, which need room elsewhere. For an ErrBusy open is the ctx of the Tx of this Store that
	// was open then, if one was, else nil.
	Trouble(err error) (is bool, open context.Context)
}

// UnknownOutcomeError is the [ErrUnknownOutcome] of a Store that stays open: the answer to a
// commit was lost, as with a connection, and the Store could not find out whether the commit
// took place. It looks for that itself before it returns this error. If it has found out, the
// call returns the answer, or an error that says that nothing was written.
//
// What its caller may do then depends on the call:
//
//   - An Exchange is repeated, as Exchange.Repeats says, until it is answered: leases that
//     nobody learns of stay with this instance until it ends.
//   - Reclaim may be repeated. The next Reclaim of this instance returns the leases that the
//     lost one took and that are still held, within its limit. If the instance is gone,
//     Reclaim of another one takes them. Until then [Peers].Alone reports false.
//   - Enqueue, PublishMessages, SkipHead and Tx have no name by which the Store knows them
//     again: repeated, they may take effect twice. An Enqueue of a job whose unique key is
//     held is a duplicate of the one that was inserted.
//   - Fire, PutSchedule, DropSchedule and PutEntries may be repeated. One that took effect
//     has changed the revision, or what it is about is gone: then it changes nothing.
//   - RunNow with a Limit may be repeated, and takes up to as many jobs more.
//   - All other calls may be repeated. What has been done is not done again, and the answer
//     is about what was left to do.
//
// What was to be handed over by an [Offer] in a call whose answer was lost is ready, or is
// returned by the next Reclaim of this instance. What it has evicted, see [WhenFull],
// may go untold.
//
// If Tx ends with this error, the committed of a FinishTx in it is not called. Whether the
// lease has ended LookTx says, or an Exchange about it: [Ended] if it has.
type UnknownOutcomeError struct {
	// Call is the number of a lost Exchange, for its Repeats. It is zero for any other call.
	Call int64
	// Err is why the answer was lost; nil: not known.
	Err error
}

// Error says what [ErrUnknownOutcome] says, and Err.
func (e *UnknownOutcomeError) Error() string {
	if e.Err == nil {
		return ErrUnknownOutcome.Error()
	}
	return fmt.Sprintf("%v: %v", ErrUnknownOutcome, e.Err)
}

// Unwrap returns [ErrUnknownOutcome] and Err.
func (e *UnknownOutcomeError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrUnknownOutcome}
	}
	return []error{ErrUnknownOutcome, e.Err}
}
