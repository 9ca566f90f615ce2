package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errandq/errand/storage"
)

var (
	// ErrUnreachable: no server answers. It is a [storage.ErrIO].
	ErrUnreachable = fmt.Errorf("%w: no server answers", storage.ErrIO)
	// ErrAccess: the server refuses the user, the password or the database.
	ErrAccess = errors.New("postgres: the server refuses access")
)

// errMissed is the error of a statement that has not found a row as it was read, see allOf.
var errMissed = fmt.Errorf("%w: a job is not as the transaction has read it", storage.ErrCorrupt)

// kinds are the errors of the server by their code, or by the class of it.
var kinds = map[string]error{
	"08":    storage.ErrIO,
	"22012": errMissed,
	"28":    ErrAccess,
	"3D000": ErrAccess, // no such database
	"42501": ErrAccess, // no privilege
	"25006": storage.ErrReadOnly,
	"53100": storage.ErrFull,
	"53200": storage.ErrBusy, // out of memory
	"53300": storage.ErrBusy, // too many connections
	"40001": storage.ErrBusy,
	"40P01": storage.ErrBusy,
	"55P03": storage.ErrBusy, // a lock was not to be had in time
	"57014": storage.ErrBusy, // a statement took too long
	"57P01": storage.ErrIO,   // the server is being stopped
	"57P02": storage.ErrIO,
	"57P03": ErrUnreachable, // it is starting
	"58030": storage.ErrIO,
	"XX001": storage.ErrCorrupt,
	"XX002": storage.ErrCorrupt,
}

// translate makes an error of the driver one of this package or of package storage, by
// its code.
func translate(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrUnknownOutcome) {
		return err
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		kind := kinds[e.Code]
		if kind == nil {
			kind = kinds[e.Code[:min(2, len(e.Code))]]
		}
		if kind == nil {
			return fmt.Errorf("postgres: %w", err)
		}
		return fmt.Errorf("%w: %w", kind, err)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %w", storage.ErrIO, err)
	}
	return fmt.Errorf("postgres: %w", err)
}

// again reports whether a transaction failed only because of what ran beside it.
func again(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01") || errors.Is(err, errSettings)
}

// lost reports whether an error of a batch with a commit leaves open whether that took
// place. It did not if nothing was sent, or if the server has refused a statement. Any other
// error says nothing about the commit: the connection may have ended before the answer, or
// what reads the rows of a statement may have failed, and the commit comes after the rows.
func lost(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return ends(e)
	}
	return !pgconn.SafeToRetry(err)
}

// cutOff reports whether a connection is of no use after an error.
func cutOff(c *pgx.Conn, err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return ends(e)
	}
	_, ok := errors.AsType[net.Error](err)
	return ok || c.IsClosed()
}

// ends reports whether the server has ended the session with an error.
func ends(e *pgconn.PgError) bool { return e.Severity == "FATAL" || e.Severity == "PANIC" }
