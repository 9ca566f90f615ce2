package errand

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// What can go wrong with a queue. Errors are matched with [errors.Is].
var (
	// ErrInvalid is what every [FieldError] unwraps to: the input was refused
	// and nothing was written.
	ErrInvalid = errors.New("errand: invalid input")
	// ErrPurgeAll: a purge without any condition must set [JobFilter].All.
	ErrPurgeAll = errors.New("errand: purge without a condition deletes every dead letter; set All to mean that")

	// ErrLive: a job that was to be deleted has not ended. It has to be cancelled first.
	ErrLive = errors.New("errand: job has not ended")

	// ErrDuplicate is what every [DuplicateError] unwraps to: another job holds the unique
	// key, see [Fail].
	ErrDuplicate = storage.ErrDuplicate
	// ErrDropped is what [AfterEnqueue] tells if a job is not enqueued although no call has
	// failed.
	ErrDropped = errors.New("errand: job dropped")
	// ErrNotFound: no job has this ID, or no schedule has this name, or no longer.
	ErrNotFound = storage.ErrNotFound
	// ErrStale: what a write was based on has changed since it was read. Read it again.
	ErrStale = storage.ErrStale
	// ErrMessageID: a message of another topic has this ID. A [FieldError] names the field.
	ErrMessageID = storage.ErrMessageID
	// ErrClosed: the queue was closed, or closed itself: after an I/O error that left open
	// whether a write took place, or because its database went back to an earlier moment
	// or was taken away while it was open.
	ErrClosed = storage.ErrClosed
	// ErrBusy: another connection held the database for too long. An open transaction of the
	// same program is a likely cause. A call inside [Queue.Tx] that would wait for that
	// transaction returns it at once.
	ErrBusy = storage.ErrBusy
	// ErrFull: no space left. Nothing was written.
	ErrFull = storage.ErrFull
	// ErrQueueFull is what every [QueueFullError] is: there is no room for a job below a
	// cap. Nothing was written.
	ErrQueueFull = storage.ErrQueueFull
	// ErrReadOnly: the database or its folder cannot be written.
	ErrReadOnly = storage.ErrReadOnly
	// ErrCorrupt: the file is damaged, or not a database at all.
	ErrCorrupt = storage.ErrCorrupt
	// ErrTakenAway: the database, its log or the index of the log was removed, renamed, cut
	// off or replaced while a process had it open. The text says which file, where the
	// process has saved what it had, and what to do. The call that returns it has written nothing.
	ErrTakenAway = storage.ErrTakenAway
	// ErrTooNew: a newer version of errand has changed the database so that
	// this one must not write to it.
	ErrTooNew = storage.ErrTooNew
	// ErrNeedsRecovery: the database is opened with SQLiteOptions.ReadOnly, but has a log
	// that only a process that may write can take in.
	ErrNeedsRecovery = storage.ErrNeedsRecovery
	// ErrUnknownOutcome: the commit failed in a way that leaves open whether it took place.
	// A queue on SQLite closes itself; open it again to see. Look before you repeat an
	// Enqueue, or give its job a unique key: then it is a duplicate of what was written.
	ErrUnknownOutcome = storage.ErrUnknownOutcome
	// ErrUnsupportedDB: errand cannot work with the database. It has no file, or a
	// file with two names, or one on a file system that other machines may share.
	// It belongs to another driver, or its SQLite is too old. It is not in WAL
	// mode, has triggers on errand's tables, or a connection has synchronous=OFF.
	// Or a file beside it is not errand's. Calls in a transaction of the application
	// return it for temporary triggers on errand's tables too.
	ErrUnsupportedDB = storage.ErrUnsupportedDB
	// ErrWrongDatabase: a transaction of another database.
	ErrWrongDatabase = storage.ErrWrongDatabase
	// ErrIO: the operating system failed to read or write the file.
	ErrIO = storage.ErrIO
)

// The causes of the end of a handler's context, as [context.Cause] returns them;
// [Worker.Run] and [Worker.Shutdown] return the last.
var (
	// ErrLeaseLost: the lease is no longer held, or could not be extended in
	// time. Another worker may run the job; this attempt's outcome is refused.
	ErrLeaseLost = engine.ErrLeaseLost
	// ErrCancelled: somebody cancelled the job while it ran.
	ErrCancelled = engine.ErrCancelled
	// ErrShutdown: the worker stops and the grace is over.
	ErrShutdown = engine.ErrShutdown
	// ErrStuck: a handler was still running long after its context had ended.
	ErrStuck = engine.ErrStuck
)

// FieldError says which input was refused, and why. It unwraps to
// [ErrInvalid]. Several faults of one call come joined, see [errors.Join].
type FieldError struct {
	Field string // "priority", "jobs[3].priority"
	Value any    // the value; for args and headers their size or type
	Limit string // "must be between -100 and 100"
	Err   error  // the error of another package about it, or nil
	// Job is the job of a call with several that the error is about, counted from 1. It is
	// zero if the call has one job, or if the error is about none.
	Job int

	most int // of args that are too large how many bytes they can be; else 0
}

// Error returns field, value and limit in one line.
func (e *FieldError) Error() string {
	var value string
	switch v := e.Value.(type) {
	case nil:
		value = "nil"
	case string:
		value = quote(v)
	case time.Time:
		value = v.Format(time.RFC3339Nano)
	default:
		value = cut(fmt.Sprint(v))
	}
	s := fmt.Sprintf("errand: %s %s: %s", e.Field, value, e.Limit)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns [ErrInvalid] and Err.
func (e *FieldError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrInvalid}
	}
	return []error{ErrInvalid, e.Err}
}

// maxShown is how many bytes of a refused value an error shows: enough to
// recognise it, not enough to fill a log.
const maxShown = 100

func quote(s string) string {
	if len(s) > maxShown {
		return fmt.Sprintf("%q... (%d bytes)", cutAt(s, maxShown), len(s))
	}
	return fmt.Sprintf("%q", s)
}

func cut(s string) string {
	if len(s) > maxShown {
		return cutAt(s, maxShown) + "..."
	}
	return s
}

func cutAt(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
