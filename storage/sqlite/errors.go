package sqlite

import (
	"context"
	"database/sql"
	base "database/sql/driver"
	"errors"
	"fmt"
	"syscall"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
)

// translate puts the contract's sentinel before an error of the driver, found
// by its code, or by that of the system. Other errors pass unchanged.
func translate(err error) error {
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
	var sentinel error
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		sentinel = storage.ErrBusy
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
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// unread puts [storage.ErrCorrupt] before an error of a Scan that is about what
// was read: STRICT tables hold nothing that does not fit, unless the file is
// damaged. Such errors have no type; all others have.
func unread(err error) error {
	var e *driver.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	for _, other := range []error{
		sql.ErrNoRows, sql.ErrTxDone, sql.ErrConnDone, base.ErrBadConn, context.Canceled, context.DeadlineExceeded,
		storage.ErrNotFound, storage.ErrCorrupt, storage.ErrClosed,
	} {
		if errors.Is(err, other) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
}

// isCode tells whether err is of the driver and has this primary code.
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
	case isFull(err):
		sentinel = storage.ErrFull
	case !errors.Is(err, syscall.EIO):
		return err
	}
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}
