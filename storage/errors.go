package storage

import "errors"

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
	// moment while open.
	ErrClosed = errors.New("errand: closed")
	// ErrBusy: somebody else held the database for too long.
	ErrBusy = errors.New("errand: database is busy")
	// ErrFull: no space left. Nothing was written.
	ErrFull = errors.New("errand: no space left for the database")
	// ErrReadOnly: the database cannot be written.
	ErrReadOnly = errors.New("errand: database is read-only")
	// ErrCorrupt: the database is damaged, or is none.
	ErrCorrupt = errors.New("errand: database is damaged")
	// ErrTooNew: a newer version of errand has changed the database so that
	// this one must not write to it.
	ErrTooNew = errors.New("errand: database needs a newer version of errand")
	// ErrNeedsRecovery: the database is opened for reading alone, but has a log that only
	// a process which may write can apply.
	ErrNeedsRecovery = errors.New("errand: database needs recovery by its owner")
	// ErrUnknownOutcome: the commit failed in a way that leaves open whether
	// it took place. The store is closed by it; look after opening it again.
	ErrUnknownOutcome = errors.New("errand: outcome of the write is unknown")
	// ErrUnsupportedDB: not a database that this Store can work with. What it
	// needs is said where it is opened.
	ErrUnsupportedDB = errors.New("errand: unsupported database")
	// ErrWrongDatabase: a transaction of another database.
	ErrWrongDatabase = errors.New("errand: transaction belongs to another database")
	// ErrIO: the database could not be read or written.
	ErrIO = errors.New("errand: input/output error")
)
