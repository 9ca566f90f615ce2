package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"syscall"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// translate puts the contract's sentinel before an error of the driver, found
// by its code, or by that of the system. Other errors pass unchanged.
func translate(err error) error {
	if err == nil { // before e, which takes memory
		return nil
	}
	var e *driver.Error
	if !errors.As(err, &e) {
		if errors.Is(err, sql.ErrNoRows) { // where there must be one
			return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		if errors.Is(err, sql.ErrConnDone) {
			return fmt.Errorf("%w: %w", storage.ErrClosed, err)
		}
		return ofSystem(err)
	}
	if e.Code() == lib.SQLITE_BUSY_SNAPSHOT && !errors.Is(err, storage.ErrBusy) {
		err = fmt.Errorf("the transaction had read before another one committed, so it cannot write; "+
			"write _txlock=immediate in the DSN"+orOpenDB+": %w", err)
	}
	if errors.Is(err, storage.ErrFull) { // see asFull
		return err
	}
	var sentinel error
	hint := ""
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		sentinel, hint = storage.ErrBusy, " (is a transaction of this program still open?)"
	case lib.SQLITE_FULL:
		sentinel = storage.ErrFull
	case lib.SQLITE_READONLY, lib.SQLITE_PERM:
		sentinel = storage.ErrReadOnly
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		sentinel = storage.ErrCorrupt
	case lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN:
		sentinel = storage.ErrIO
	default:
		return err
	}
	if e.Code() == lib.SQLITE_IOERR_IN_PAGE { // a page fault in the index, which only SQLite makes shorter
		hint = ": its index was cut off: " + otherLibrary
	}
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w%s", sentinel, err, hint)
}

// storeError is an [storage.ErrFull], [storage.ErrBusy] or [storage.ErrIO] of a Store, which
// knows it again.
type storeError struct {
	error
	of   *Store
	open context.Context // of the Tx that was open when it was made; nil: of none
}

func (e *storeError) Unwrap() error { return e.error }

// Is has errors.Is find the error of the Store of target, which takes its open.
func (e *storeError) Is(target error) bool {
	t, ok := target.(*storeError)
	if !ok || t.of != e.of {
		return false
	}
	t.open = e.open
	return true
}

// Trouble implements [storage.Troubled].
func (s *Store) Trouble(err error) (is bool, open context.Context) {
	found := &storeError{of: s}
	is = errors.Is(err, found)
	return is, found.open
}

// ours has Trouble know an error of a call.
func (s *Store) ours(err error) error {
	if err == nil || errors.Is(err, errInTx) { // which is the caller's own
		return err
	}
	if errors.Is(err, storage.ErrCorrupt) || isCode(err, lib.SQLITE_IOERR) {
		err = s.because(err)
	}
	busy := errors.Is(err, storage.ErrBusy)
	if !busy && !errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrIO) || errors.Is(err, &storeError{of: s}) {
		return err
	}
	e := &storeError{error: err, of: s}
	if tx := s.own.Load(); busy && tx != nil {
		e.open = tx.ctx
	}
	return e
}

// because puts before an error that two libraries may cause that there are two.
func (s *Store) because(err error) error {
	cause := checkLibraries(s.path)
	if cause == nil || errors.Is(err, storage.ErrUnsupportedDB) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// oursIn is ours for what was refused in a transaction, if that is of Tx.
func (s *Store) oursIn(in any, err error) error {
	if own := s.own.Load(); own != nil && own.tx == in {
		return s.ours(err)
	}
	return err
}

// oursOf is ours for what the function of a Tx has returned. It is only of errors of the driver
// that are of no other Store: those of statements in the transaction. One of another database of
// the application looks the same; that it is full counts only if this Store lacks room too.
func (s *Store) oursOf(err error) error {
	if known := new(storeError); errors.As(err, &known) {
		return err
	}
	if isCode(err, lib.SQLITE_FULL) && s.lacksRoom(err) || isCode(err, lib.SQLITE_IOERR) {
		return s.ours(translate(s.asFull(err)))
	}
	return err
}

// unread puts [storage.ErrCorrupt] before an error of Scan about a value that does
// not fit: STRICT tables have no such values, unless the file is damaged. These
// errors have no type, but database/sql begins all of them alike. Other errors are
// not damage.
func unread(err error) error {
	if err == nil || !strings.HasPrefix(err.Error(), "sql: Scan error") || errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
}

// misfit puts [storage.ErrCorrupt] before the error of a statement of errand that
// does not fit the schema: it has no fault, so the schema has one.
func misfit(err error) error {
	if isCode(err, lib.SQLITE_ERROR) {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return err
}

// scanError returns what the error of a Scan means. If rows were closed because a
// context ended, Scan does not return the reason, and rows does.
func scanError(rows *sql.Rows, err error) error {
	if e := rows.Err(); e != nil {
		return e
	}
	return unread(err)
}

// ended returns the error of ctx in place of err if ctx has ended: database/sql then
// closes rows and transactions that are in use, and the errors of that say nothing.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// endedTx reports whether err says that a transaction is over, or its context.
func endedTx(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// isCode reports whether err is of the driver and has this primary code.
func isCode(err error, code int) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == code
}

// ofSystem puts the sentinel before an error of the files beside the database.
func ofSystem(err error) error {
	if err == nil {
		return nil
	}
	sentinel := storage.ErrIO
	switch {
	case host.IsFull(err):
		sentinel = storage.ErrFull
	case !errors.Is(err, syscall.EIO):
		return err
	}
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// ofFile reports whether an error concerns the database as a whole, rather than the
// request that met it.
func ofFile(err error) bool {
	for _, code := range []int{lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CORRUPT, lib.SQLITE_READONLY, lib.SQLITE_NOMEM} {
		if isCode(err, code) {
			return true
		}
	}
	return errors.Is(err, storage.ErrTooNew)
}

// commitFailed returns what a failed COMMIT means. After an I/O error, above all of
// fsync, the kernel may have dropped dirty pages and call them clean: a second
// COMMIT would acknowledge what is not on the disk. So the Store ends.
func (s *Store) commitFailed(err error) error {
	err = s.asFull(err)
	if !isCode(err, lib.SQLITE_IOERR) || errors.Is(err, storage.ErrFull) {
		return translate(err)
	}
	s.fail(err, "commit")
	return fmt.Errorf("%w: %w", storage.ErrUnknownOutcome, err)
}

// fail ends the Store: its writes could not be relied upon from now on.
func (s *Store) fail(err error, of string) {
	s.failure.Store(&err)
	s.opts.Logger.Error("errand: "+of+" failed, the store is closed; open it again to see what was written", "error", err)
	s.listeners.notify(storage.Event{}) // so that idle workers learn of it
}
