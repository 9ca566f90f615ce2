package storage

import "errors"

// What can go wrong in a Store. Errors are matched with [errors.Is]; they are
// told apart by codes of the driver, never by its text.
var (
	// ErrNotFound: no job has this ID, no schedule this name (any more).
	ErrNotFound = errors.New("errand: not found")
	// ErrClosed: the store was closed, or closed itself after an I/O error
	// that left the fate of a write open, or because its database went back to
	// an earlier moment while it was open.
	ErrClosed = errors.New("errand: closed")
	// ErrBusy: another connection held the database for too long. An open
	// transaction of the same program is a likely cause.
	ErrBusy = errors.New("errand: database is locked (is a transaction of this program still open?)")
	// ErrFull: no space left. Nothing was written.
	ErrFull = errors.New("errand: no space left for the database")
	// ErrReadOnly: the database or its folder cannot be written.
	ErrReadOnly = errors.New("errand: database is read-only")
	// ErrCorrupt: the file is damaged, or not a database at all.
	ErrCorrupt = errors.New("errand: file is damaged or not a database")
	// ErrTooNew: a newer version of errand has changed the database so that
	// this one must not write to it.
	ErrTooNew = errors.New("errand: database needs a newer version of errand")
	// ErrUnknownOutcome: the commit failed in a way that leaves open whether
	// it took place. The store is closed by it; look after opening it again.
	ErrUnknownOutcome = errors.New("errand: outcome of the write is unknown")
	// ErrUnsupportedDB: not a database this store can work with: without a file, of
	// another driver or a SQLite that is too old, not in WAL mode, on a file system
	// that other machines may share, a file with two names, with triggers on
	// errand's tables, or on a connection with synchronous=OFF. Or a file beside it
	// is not errand's.
	ErrUnsupportedDB = errors.New("errand: unsupported database")
	// ErrWrongDatabase: a transaction of another database.
	ErrWrongDatabase = errors.New("errand: transaction belongs to another database")
	// ErrIO: the operating system failed to read or write the file.
	ErrIO = errors.New("errand: input/output error")
)
