package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// viewTries is how often a read begins anew if the files change while it begins.
const viewTries = 8

// view is what a Store with ReadOnly reads through. Each read opens a connection of
// its own and closes it, so that nothing is held between reads: a connection that
// stays would keep the last process which closes the file from deleting its log.
type view struct {
	path string
	opts Options
	// Set by tests: called before a connection is opened, and after a read.
	before, after func()
}

// sight is how the files were found at a moment.
type sight struct {
	db os.FileInfo
	// alone: the database has no log, or an empty one that nobody uses, so that all
	// that there is to read is in the database. It is read without a lock, and must not
	// change meanwhile.
	alone bool
}

// look returns how the files are found. It returns [storage.ErrNeedsRecovery] if only
// a process that may write can read what is there.
func (v *view) look() (s sight, err error) {
	if err := checkSQLites(v.path); err != nil { // before what is there is taken for a log
		return s, err
	}
	log, errLog := os.Stat(v.path + "-wal") // before the database, which has its header when it gets a log
	left := errLog == nil && log.Size() > 0
	if s.db, err = os.Stat(v.path); err != nil {
		return s, notFound(v.path, err)
	}
	switch {
	case !s.db.Mode().IsRegular():
		return s, fmt.Errorf("%w: path %q is a %s: must be a regular file", storage.ErrUnsupportedDB, v.path, host.KindOf(s.db))
	case left && s.db.Size() < headerSize: // SQLite would delete the log
		return s, fmt.Errorf("%w: path %q is empty, and its log %s-wal is there: put the database back", storage.ErrCorrupt, v.path, v.path)
	case s.db.Size() == 0:
		return s, v.foreign("it is empty")
	case s.db.Size() < headerSize:
		return s, v.foreign(fmt.Sprintf("it has %d bytes, a database has at least %d", s.db.Size(), headerSize))
	}
	if journal, err := os.Stat(v.path + "-journal"); err == nil && journal.Size() > 0 {
		return s, v.unrecovered("its rollback journal is there")
	}
	_, errIndex := os.Stat(v.path + "-shm")
	if err := checkWhole(v.path, s.db); err != nil {
		return s, err
	}
	switch {
	case errLog == nil && errIndex == nil: // with a log of any size it may be in use
	case left:
		return s, v.unrecovered("its log is there without an index")
	default: // without a log SQLite would make one
		s.alone = true
	}
	return s, nil
}

func (v *view) unrecovered(why string) error {
	return fmt.Errorf("%w: path %q: %s; open it once for writing", storage.ErrNeedsRecovery, v.path, why)
}

func (v *view) foreign(why string) error {
	return fmt.Errorf("%w: path %q: %s: must have the tables of errand", storage.ErrUnsupportedDB, v.path, why)
}

// changed reports whether the files are not as they were found, so that what was read
// without a lock may be of two moments.
func (v *view) changed(s sight) bool {
	now, err := v.look()
	return err != nil || !now.alone || !os.SameFile(now.db, s.db) || now.db.Size() != s.db.Size() || !now.db.ModTime().Equal(s.db.ModTime())
}

// reading runs fn once in a read transaction, in which all is of one moment.
func (v *view) reading(ctx context.Context, check bool, fn func(tx *sqlx.Tx) error) error {
	for try := 1; ; try++ {
		s, err := v.look()
		if err != nil {
			return err
		}
		begun, err := v.once(ctx, s, check, fn)
		switch moved := s.alone && v.changed(s); {
		case begun && moved:
			return v.moved()
		case begun && err == nil && !s.alone:
			return v.whole()
		case begun || ctx.Err() != nil || try == viewTries || !moved && !isTransient(err):
			return v.explain(err)
		}
		timer := time.NewTimer(time.Millisecond << try)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// once opens a connection and runs fn. begun is false if it has come to nothing before
// fn was called.
func (v *view) once(ctx context.Context, s sight, check bool, fn func(tx *sqlx.Tx) error) (begun bool, err error) {
	if v.before != nil {
		v.before()
	}
	db := v.open(s)
	defer func() { _ = db.Close() }() // it has only read
	tx, err := sqlx.NewDb(db, "sqlite").BeginTxx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // as well
	if err := v.prime(ctx, tx, check); err != nil {
		return false, err
	}
	err = fn(tx)
	if v.after != nil {
		v.after()
	}
	return true, err
}

func (v *view) open(s sight) *sql.DB {
	how := withItsLog
	if s.alone {
		how = withoutLog
	}
	db, err := sql.Open("sqlite", viewDSN(v.path, how, v.opts.BusyTimeout))
	if err != nil { // only if the driver is not registered
		panic(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

// whole returns [storage.ErrTakenAway] if what was read is of what nobody finds any more.
func (v *view) whole() error {
	info, err := os.Stat(v.path)
	if err != nil {
		return notFound(v.path, err)
	}
	return checkWhole(v.path, info)
}

// with calls fn with a connection, which fn uses in one read transaction.
func (v *view) with(fn func(db *sql.DB) error) error {
	s, err := v.look()
	if err != nil {
		return err
	}
	db := v.open(s)
	defer func() { _ = db.Close() }() // it has only read
	err = fn(db)
	switch {
	case s.alone && v.changed(s):
		return v.moved()
	case err == nil:
		return v.whole()
	}
	return v.explain(err)
}

func (v *view) moved() error {
	return fmt.Errorf("%w: path %q: somebody began to write while it was read without a log: read it again", storage.ErrBusy, v.path)
}

// prime begins to read, and with check makes sure that this program can.
func (v *view) prime(ctx context.Context, tx *sqlx.Tx, check bool) error {
	var n, have int
	if err := tx.GetContext(ctx, &n, sqlHasMigrations); err != nil || !check {
		return unread(err)
	}
	if err := checkVersion(ctx, tx); err != nil {
		return err
	}
	if n > 0 {
		if err := tx.GetContext(ctx, &have, sqlSchemaVersion); err != nil {
			return unread(err)
		}
	}
	switch {
	case have == 0:
		return v.foreign("it is a database of something else")
	case have < schemaVersion:
		return fmt.Errorf("%w: path %q: its tables are of version %d: must be %d; open it once for writing",
			storage.ErrUnsupportedDB, v.path, have, schemaVersion)
	}
	return checkMinWriter(ctx, tx)
}

// isTransient reports whether the beginning of a read can fail so while others open,
// write and close the file. Without the right to write it, SQLite cannot mend the index
// of the log, and takes one that is being written for one that must be mended.
func isTransient(err error) bool {
	return isCode(err, lib.SQLITE_READONLY) || isCode(err, lib.SQLITE_CANTOPEN) || isCode(err, lib.SQLITE_BUSY)
}

// explain returns what an error of reading means.
func (v *view) explain(err error) error {
	switch {
	case isCode(err, lib.SQLITE_READONLY) && !errors.Is(err, storage.ErrReadOnly), isCode(err, lib.SQLITE_PROTOCOL):
		return fmt.Errorf("%w: %w", v.unrecovered("the index of its log cannot be used"), err)
	case isCode(err, lib.SQLITE_CANTOPEN):
		if what, remedy := host.Unreadable(v.path, v.path+"-wal", v.path+"-shm"); what != "" {
			return fmt.Errorf("errand: %s: %s: %w", what, remedy, fs.ErrPermission)
		}
		return fmt.Errorf("%w: path %q, or a file beside it, cannot be read by this user: %w", storage.ErrIO, v.path, err)
	}
	return err
}

// How SQLite is to read a database, as parameters of its name.
const (
	withoutLog  = "immutable"    // without a lock, as a file that does not change
	withItsLog  = "readonly_shm" // by the index of the log, which is not written
	asItsHealer = "rw"           // what was cut off is rolled back, by a process that may write
	asItsWriter = ""             // its index is made as needed, by a process that may write
)

// viewDSN names a database that is only read.
func viewDSN(path, how string, busy time.Duration) string {
	q := url.Values{"mode": {"ro"}, "_defensive": {"1"}, "_pragma": append([]string{
		"busy_timeout(" + strconv.FormatInt(busy.Milliseconds(), 10) + ")",
	}, readerPragmas...)}
	switch how {
	case asItsWriter:
	case asItsHealer:
		q.Set("mode", "rw")
	default:
		q.Set(how, "1")
	}
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}
	return dsn.String()
}

// openView opens a Store that only reads.
func openView(path string, o Options) (*Store, error) {
	if o.SingleProcess {
		return nil, errors.New("errand: single process: must not be set if the file is only read")
	}
	real, err := realPath(path)
	if err != nil {
		return nil, err
	}
	v := &view{path: real, opts: o}
	files, err := v.look()
	if err != nil {
		return nil, err
	}
	if err := checkNames(real, o); err != nil {
		return nil, err
	}
	s := newStore(real, files.db, o)
	s.view = v
	err = s.view.reading(context.Background(), true, func(*sqlx.Tx) error { return nil })
	if err != nil {
		if isCode(err, lib.SQLITE_ERROR) { // our statements have no fault
			err = fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		return nil, translate(err)
	}
	s.queue.writer = &writer{Store: s, mine: make(chan struct{}, 1)}
	s.queue.writer.mine <- struct{}{} // no caller writes by itself
	s.joined.Go(s.refuse)
	return s, nil
}

// checkOwn returns an error unless there is a file at path that has tables of errand, of any
// version. With Own it also returns nil if there is nothing of anybody.
func checkOwn(path string, o Options) error {
	real, err := realPath(path)
	if info, e := os.Stat(path); o.Own && (errors.Is(e, fs.ErrNotExist) || e == nil && info.Mode().IsRegular() && info.Size() == 0) {
		return nil // to be made; prepareFile looks at what is left beside it
	}
	if err != nil {
		return err
	}
	v := &view{path: real, opts: o}
	check := func(tx *sqlx.Tx) error {
		var n int
		err := tx.Get(&n, sqlHasMigrations)
		if err == nil && n == 0 && o.Own {
			err = checkNobodys(context.Background(), tx, v.path)
		} else if err == nil && n == 0 {
			err = v.foreign("it is a database of something else")
		}
		return unread(err)
	}
	for try := 1; ; try++ {
		err := v.reading(context.Background(), false, check)
		if errors.Is(err, storage.ErrNeedsRecovery) {
			err = v.explain(v.recovering(check))
		}
		if try == viewTries || !errors.Is(err, storage.ErrBusy) { // others may begin to write meanwhile
			return translate(err)
		}
	}
}

// recovering runs fn once in a read transaction, for which SQLite makes the index of a log
// that has none, or rolls back what a rollback journal says. The latter is how a database is
// left whose change to a log was cut off; a connection that may only read cannot do it.
func (v *view) recovering(fn func(tx *sqlx.Tx) error) error {
	err := v.recoveringBy(viewDSN(v.path, asItsWriter, v.opts.BusyTimeout), fn)
	if isCode(err, lib.SQLITE_READONLY) {
		err = v.recoveringBy(viewDSN(v.path, asItsHealer, v.opts.BusyTimeout), fn)
	}
	return err
}

func (v *view) recoveringBy(dsn string, fn func(tx *sqlx.Tx) error) error {
	db, err := sqlx.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it has only read
	tx, err := db.Beginx()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // as well
	return fn(tx)
}

var errOnlyRead = fmt.Errorf("%w: it was opened with ReadOnly", storage.ErrReadOnly)

// writable returns [storage.ErrReadOnly] if the Store only reads.
func (s *Store) writable() error {
	if s.view != nil {
		return errOnlyRead
	}
	return nil
}

// refuse answers the requests to write, in place of the writer.
func (s *Store) refuse() {
	urgent, reqs := s.queue.urgent, s.queue.reqs
	for urgent != nil || reqs != nil {
		select {
		case r, ok := <-urgent:
			if !ok {
				urgent = nil
				continue
			}
			r.answer(errOnlyRead)
		case r, ok := <-reqs:
			if !ok {
				reqs = nil
				continue
			}
			r.answer(errOnlyRead)
		}
	}
}

// readView is reading for a Store that only reads.
func (s *Store) readView(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	return s.view.reading(ctx, false, func(tx *sqlx.Tx) error {
		var m meta
		db := plain{ctx, tx}
		if err := s.readMeta(db, &m); err != nil {
			return err
		}
		if err := s.catchUp(db, &m); err != nil {
			return err
		}
		return fn(tx)
	})
}
