package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
)

const (
	// maxReaders is how many lists and other reads of callers run at a time.
	maxReaders = 4
	// maxInner is one connection that watches for commits of others, one for Version, and
	// two for what workers ask: that never waits for callers.
	maxInner = 4
	// minSQLite has the fix of the WAL-reset bug, by which a checkpoint could
	// lose a commit.
	minSQLite = "3.51.3"
)

// readerPragmas keep the memory of readers small: they look at little, and what
// they look at again the system has at hand.
var readerPragmas = []string{"query_only(1)", "trusted_schema(0)", "cache_size(-512)"}

func writerPragmas(o Options) []string {
	return append(syncPragmas(o), "trusted_schema(0)", "temp_store(MEMORY)")
}

func syncPragmas(o Options) []string {
	level := "synchronous(FULL)"
	if o.Durability == Relaxed {
		level = "synchronous(NORMAL)"
	}
	return []string{level, "wal_autocheckpoint(0)", fmt.Sprintf("journal_size_limit(%d)", logLimit)} // see checkpointer
}

// settings returns the pragmas by which a connection obeys the same rules as
// those of the application, trusted_schema among them: what the schema of the
// application may call in its views and triggers it must be able to call in a Tx
// too. With a nil database nobody has asked for trust, so there is none.
func settings(ctx context.Context, app *sql.DB) (pragmas []string, err error) {
	if app == nil {
		return []string{"trusted_schema(0)"}, nil
	}
	for _, name := range []string{"foreign_keys", "recursive_triggers", "trusted_schema"} {
		var on bool
		if err := app.QueryRowContext(ctx, "PRAGMA "+name).Scan(&on); err != nil {
			return nil, err
		}
		pragmas = append(pragmas, fmt.Sprintf("%s(%t)", name, on))
	}
	return pragmas, nil
}

// checkApp checks a database of the application, which has to have its log and its index
// while a connection is open that has read.
func checkApp(ctx context.Context, app *sql.DB, path string, o Options) error {
	conn, err := app.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var n int
	if err = conn.QueryRowContext(ctx, sqlAnyRead).Scan(&n); err == nil {
		err = checkWAL(ctx, conn)
	}
	if err == nil {
		err = checkAppSync(ctx, conn, o)
	}
	if err == nil {
		err = warnOfTimeout(ctx, conn, o)
	}
	for _, end := range []string{"-wal", "-shm"} {
		if _, e := os.Lstat(path + end); err == nil && errors.Is(e, os.ErrNotExist) && !o.AnyFileSystem {
			err = goneError{lost: fmt.Sprintf("path %q: it is missing, and the application has the database open: close all its connections, and open it anew", path+end)}
		}
	}
	return err
}

func checkWAL(ctx context.Context, db querier) error {
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: journal_mode %q: must be wal: write _pragma=journal_mode(wal) in the DSN%s", storage.ErrUnsupportedDB, mode, orOpenDB)
	}
	return nil
}

const (
	sqlSynchronous = `PRAGMA synchronous`
	sqlBusyTimeout = `PRAGMA busy_timeout`
	sqlPragmaKnown = `SELECT COUNT(*) FROM pragma_pragma_list WHERE name = lower(?1)`
)

// orOpenDB ends what is said of a database that the application has opened by a DSN.
const orOpenDB = ", or open the database by sqlite.OpenDB"

// checkSync refuses a connection of the application that syncs nothing. SQLite
// moves the log into the database on whichever connection it comes to; on this
// one it would do so without a sync, and begin the log anew over what others
// have synced there and acknowledged.
func checkSync(db func(text string, args []any, dest ...any) error) error {
	var level int
	if err := db(sqlSynchronous, nil, &level); err != nil || level != 0 {
		return err
	}
	return fmt.Errorf("%w: synchronous OFF (0) on a connection of the application: must be FULL (2) or NORMAL (1): "+
		"write _pragma=synchronous(full) in the DSN%s", storage.ErrUnsupportedDB, orOpenDB)
}

// checkAppSync refuses or warns of a connection of the application whose commits survive
// less than those of the Store.
func checkAppSync(ctx context.Context, conn *sql.Conn, o Options) error {
	var level int
	db := func(text string, _ []any, dest ...any) error { return conn.QueryRowContext(ctx, text).Scan(dest...) }
	switch err := checkSync(db); {
	case err != nil && o.Durability == Full:
		return err
	case err != nil:
		o.Logger.Warn("errand: a crash of the system or a power cut may damage the file", "error", translate(err))
	}
	if err := db(sqlSynchronous, nil, &level); err != nil || level != 1 || o.Durability != Full {
		return err
	}
	o.Logger.Warn("errand: synchronous NORMAL (1) on a connection of the application: a power cut may lose the jobs that its last " +
		"transactions have enqueued; write _pragma=synchronous(full) in the DSN" + orOpenDB)
	return nil
}

// leastAppTimeout is that for which the writes of the application should wait for those of
// the queue, in milliseconds.
const leastAppTimeout = 1000

// warnOfTimeout warns of a connection of the application that does not wait for its turn.
func warnOfTimeout(ctx context.Context, conn *sql.Conn, o Options) error {
	var timeout int
	if err := conn.QueryRowContext(ctx, sqlBusyTimeout).Scan(&timeout); err != nil || timeout >= leastAppTimeout {
		return err
	}
	o.Logger.Warn("errand: busy_timeout below 1,000 ms on a connection of the application: its transactions fail with SQLITE_BUSY " +
		"while the queue or another program writes; write _pragma=busy_timeout(5000) in the DSN" + orOpenDB)
	return nil
}

// beginsDeferred reports whether the application's transactions begin without
// the write lock. It is certain if conn can take the lock beside one. If it
// cannot, another program may have it: then this reports false.
func beginsDeferred(ctx context.Context, app *sql.DB, conn *sql.Conn) (deferred bool) {
	tx, err := app.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	_ = withoutWaiting(ctx, conn, func() error {
		if _, err := conn.ExecContext(ctx, sqlBegin); err != nil {
			return err
		}
		deferred = true
		_, err := conn.ExecContext(ctx, sqlRollback)
		return err
	})
	return deferred
}

// withoutWaiting runs f while conn gives up at once on locks of others.
func withoutWaiting(ctx context.Context, conn *sql.Conn, f func() error) error {
	var timeout int
	if err := conn.QueryRowContext(ctx, sqlBusyTimeout).Scan(&timeout); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	err := f()
	_, back := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", timeout))
	return errors.Join(err, back)
}

// appPragmas are those that OpenDB sets.
var appPragmas = []string{"busy_timeout(5000)", "journal_mode(wal)", "synchronous(full)"}

// onePragma is the name of a pragma and its value.
var onePragma = regexp.MustCompile(`^([A-Za-z_]+)\([A-Za-z0-9_-]+\)$`)

// OpenDB opens the SQLite file at path as the database of an application, in which a queue
// is to live: pass it to [New]. It creates the file with mode 0600 if there is none. All that
// New asks for is set:
//
//   - The file is in WAL mode, and commits are synced, as with [Full].
//   - Writes wait for those of others for up to 5 s.
//   - Transactions begin immediate, except those with [sql.TxOptions].ReadOnly, and all of a
//     database with the pragma "query_only(1)", which only reads.
//   - OFD locks are on where there are any, unless the process has used a database before.
//
// pragmas are run on each connection too, for example "foreign_keys(1)" or "cache_size(-20000)".
// One with the name of a pragma above replaces it. All other pragmas have
// SQLite's own defaults: for example, foreign keys are not enforced.
//
// path must be the plain name of a file. OpenDB returns [storage.ErrUnsupportedDB] for a
// database in memory, for a URI, and for a path with parameters of a DSN. It returns an error
// for a pragma that SQLite does not have, and errors as those of [Open] for a file that cannot
// be opened. Close the queue first, then the database.
func OpenDB(path string, pragmas ...string) (*sql.DB, error) {
	full, err := plainPath(path)
	if err != nil {
		return nil, err
	}
	if dsnParameter.MatchString(path) {
		return nil, fmt.Errorf("%w: path %q: must be the plain name of a file, without parameters of a DSN: "+
			"OpenDB sets these, and takes pragmas as arguments", storage.ErrUnsupportedDB, path)
	}
	all := slices.Clone(appPragmas)
	for _, p := range pragmas {
		of := onePragma.FindStringSubmatch(p)
		if of == nil {
			return nil, fmt.Errorf("errand: pragma %q: must be a name and a value, as foreign_keys(1)", p)
		}
		own := func(q string) bool { return strings.EqualFold(of[1], onePragma.FindStringSubmatch(q)[1]) }
		all = append(slices.DeleteFunc(all, own), p)
	}
	_, _ = driver.OFDLocking(true) // New warns if that is too late
	if full, err = prepareFile(full); err != nil {
		return nil, translate(err)
	}
	db := sql.OpenDB(connectorTo(full, all, url.Values{}))
	if err := checkPragmas(context.Background(), db, pragmas); err != nil {
		return nil, errors.Join(translate(err), db.Close())
	}
	return db, nil
}

// readsOnly is the pragma of a connection that only reads.
var readsOnly = regexp.MustCompile(`(?i)^query_only\((1|on|true|yes)\)$`)

// dsnParameter is the first parameter of a DSN.
var dsnParameter = regexp.MustCompile(`\?\w+=`)

// checkPragmas returns an error for a pragma that SQLite does not have, and so ignores.
func checkPragmas(ctx context.Context, db *sql.DB, pragmas []string) error {
	conn, err := firstConn(ctx, db, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, p := range pragmas {
		name := onePragma.FindStringSubmatch(p)[1]
		var known bool
		if err := conn.QueryRowContext(ctx, sqlPragmaKnown, name).Scan(&known); err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("errand: pragma %q: SQLite has no pragma %s", p, name)
		}
	}
	return nil
}

// firstConn opens the first connection of a pool. While two connections give a new file its log SQLite
// does not wait, so firstConn does, for about as long as given.
func firstConn(ctx context.Context, db *sql.DB, most time.Duration) (*sql.Conn, error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		conn, err := db.Conn(ctx)
		if !isCode(err, lib.SQLITE_BUSY) || time.Since(began) >= most {
			return conn, err
		}
	}
}

// openPool makes a pool of at most n connections, kept for good. The file must
// exist: one that was deleted is an error, never a silent new one.
func openPool(path string, n int, o Options, pragmas []string) *sql.DB {
	return openPoolIf(path, n, o, pragmas, func() error { return nil })
}

// openPool is openPool for connections to the database of the Store. Each looks first
// whether the files are there: SQLite would make another log.
func (s *Store) openPool(n int, pragmas []string) *sql.DB {
	return openPoolIf(s.path, n, s.opts, pragmas, s.lookNow)
}

// connector opens connections unless look returns an error.
type connector struct {
	sqldriver.Connector
	look func() error
}

// Connect implements [sqldriver.Connector].
func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if err := c.look(); err != nil {
		return nil, err
	}
	return c.Connector.Connect(ctx)
}

func openPoolIf(path string, n int, o Options, pragmas []string, look func() error) *sql.DB {
	// Defensive: no statement, not even of the application in a Tx, can change the
	// list of tables or a page as such.
	pragmas = append(slices.Clone(pragmas), fmt.Sprintf("busy_timeout(%d)", o.BusyTimeout.Milliseconds()))
	db := sql.OpenDB(connector{connectorTo(path, pragmas, url.Values{"_defensive": {"1"}}), look})
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// connectorTo opens connections to a file that exists, with these pragmas and with what else
// is in q. Transactions begin immediate, but not on a connection that only reads.
func connectorTo(path string, pragmas []string, q url.Values) sqldriver.Connector {
	q.Set("mode", "rw")
	q.Set("_txlock", "immediate")
	if slices.ContainsFunc(pragmas, readsOnly.MatchString) {
		q.Set("_txlock", "deferred")
	}
	q["_pragma"] = pragmas
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}
	c, err := driver.NewConnector(dsn.String())
	if err != nil { // only if the name does not parse, which it does
		panic(err)
	}
	return c
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// databaseFile returns the path of the main database of a connection, and "" for
// one in memory. It is asked by the plain PRAGMA: a SELECT from its table would
// begin to read, and a transaction that reads may not be let write later.
func databaseFile(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (string, error) {
	rows, err := db.QueryContext(ctx, "PRAGMA database_list")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var number int
		var name, path string
		if err := rows.Scan(&number, &name, &path); err != nil {
			return "", scanError(rows, err)
		}
		if name == "main" {
			return path, nil
		}
	}
	return "", rows.Err()
}

func checkVersion(ctx context.Context, db querier) error {
	var v string
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&v); err != nil {
		return err
	}
	return supported(v)
}

// supported refuses versions of SQLite before minSQLite.
func supported(version string) error {
	if slices.Compare(numbers(version), numbers(minSQLite)) < 0 {
		return fmt.Errorf("%w: SQLite %s: must be %s or later", storage.ErrUnsupportedDB, version, minSQLite)
	}
	return nil
}

// The version of modernc.org/sqlite that go.mod names, and the one of modernc.org/libc that the go.mod
// of that version names. A test compares both with what go list says.
const (
	knownSQLite = "v1.62.0"
	knownLibc   = "v1.80.1"
)

// readBuildInfo is replaced by tests.
var readBuildInfo = debug.ReadBuildInfo

// Libraries returns the versions of modernc.org/sqlite and modernc.org/libc that this program was built
// with, "" for what is not known. It returns an error if modernc.org/libc is another version than this
// modernc.org/sqlite names, which its documentation calls fragile. Of versions of modernc.org/sqlite that
// this errand does not know it returns none.
func Libraries() (sqlite, libc string, err error) {
	if info, ok := readBuildInfo(); ok {
		for _, m := range info.Deps {
			version := m.Version
			if m.Replace != nil {
				version = m.Replace.Version
			}
			switch m.Path {
			case "modernc.org/sqlite":
				sqlite = version
			case "modernc.org/libc":
				libc = version
			}
		}
	}
	if sqlite == knownSQLite && libc != "" && libc != knownLibc {
		err = fmt.Errorf("modernc.org/libc %s: must be %s, which modernc.org/sqlite %s names, or SQLite may crash or damage the file: run go get modernc.org/libc@%s",
			libc, knownLibc, sqlite, knownLibc)
	}
	return sqlite, libc, err
}

// warnOfLibc logs what Libraries finds wrong.
func warnOfLibc(log *slog.Logger) {
	if _, _, err := Libraries(); err != nil {
		log.Warn("errand: the program was built with another modernc.org/libc than modernc.org/sqlite names", "error", err)
	}
}

// numbers returns the parts of a version; what is no number counts as 0.
func numbers(version string) (n []int) {
	for part := range strings.SplitSeq(version, ".") {
		v, _ := strconv.Atoi(part)
		n = append(n, v)
	}
	return n
}

// sameFile reports whether two paths name one file.
func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// plain runs SQL through database/sql: in a transaction that the application has
// begun, and on the read-only connections.
type plain struct {
	ctx context.Context
	db  sqlDB
}

// sqlDB is a [sql.Tx] or a [sql.DB].
type sqlDB interface {
	querier
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (p plain) exec(text string, args ...any) (sql.Result, error) {
	res, err := p.db.ExecContext(p.ctx, text, args...)
	return res, misfit(err)
}

// each calls f after each row of a query was scanned into dest.
func (p plain) each(text string, args, dest []any, f func()) error {
	rows, err := p.db.QueryContext(p.ctx, text, args...)
	if err != nil {
		return ended(p.ctx, misfit(err))
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return ended(p.ctx, scanError(rows, err))
		}
		f()
	}
	return ended(p.ctx, rows.Err())
}

func (p plain) row(text string, args []any, dest ...any) error {
	found := false
	err := p.each(text, args, dest, func() { found = true })
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

// pools are the connections to the database. A Store that only reads has the view alone.
type pools struct {
	view  *view
	write *sql.DB  // one connection, the writer's
	read  *sqlx.DB // read-only, for questions of callers, which may take long
	texts sync.Map // of read: prepared statements by text
	inner *sqlx.DB // read-only, for questions of workers and of the Store itself
	apps  *sql.DB  // one connection, which Tx runs on
}

func (p *pools) close() error {
	if p.write == nil { // never opened
		return nil
	}
	return errors.Join(p.apps.Close(), p.read.Close(), p.inner.Close(), p.write.Close())
}

// prepared returns a statement for the connections of p.read, which close it.
func (p *pools) prepared(ctx context.Context, text string) (*sqlx.Stmt, error) {
	if stmt, ok := p.texts.Load(text); ok {
		return stmt.(*sqlx.Stmt), nil
	}
	stmt, err := p.read.PreparexContext(ctx, text)
	if err != nil {
		return nil, err
	}
	first, loaded := p.texts.LoadOrStore(text, stmt)
	if loaded {
		err = stmt.Close()
	}
	return first.(*sqlx.Stmt), err
}

// readOne reads one row into dest for a caller, by one statement, which sees one moment
// without a transaction. It is prepared once in each connection, since that takes longer
// than to run it: for what is read for each job.
func (s *Store) readOne(ctx context.Context, dest []any, text string, args ...any) error {
	if s.view != nil {
		return s.reading(ctx, nil, func(tx *sqlx.Tx) error { return tx.QueryRow(text, args...).Scan(dest...) })
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	stmt, err := s.prepared(ctx, text)
	if err == nil {
		err = stmt.QueryRowContext(ctx, args...).Scan(dest...)
	}
	if e := s.look(); e != nil { // as in reading
		err = e
	}
	return s.ours(ended(ctx, translate(misfit(unread(err)))))
}

// connect opens the connections, has the schema migrated, and returns the
// connection of the writer. The caller has the turn.
func (s *Store) connect(ctx context.Context, app *sql.DB) (conn *sql.Conn, err error) {
	asApp, err := settings(ctx, app)
	if err != nil {
		return nil, err
	}
	s.write = s.openPool(1, append(writerPragmas(s.opts), "journal_mode(WAL)"))
	s.read = sqlx.NewDb(s.openPool(maxReaders, readerPragmas), "sqlite")
	s.inner = sqlx.NewDb(s.openPool(maxInner, readerPragmas), "sqlite")
	s.apps = s.openPool(1, append(syncPragmas(s.opts), asApp...))
	if conn, err = firstConn(ctx, s.write, s.opts.BusyTimeout); err != nil {
		return nil, err
	}
	if err = checkVersion(ctx, conn); err == nil {
		err = cmp.Or(checkWAL(ctx, conn), checkLibraries(s.path)) // of which the first reads, so that the index is open
	}
	if err == nil {
		err = checkpointAtOpen(ctx, conn)
	}
	if err == nil {
		own := ""
		if s.opts.Own {
			own = s.path
		}
		err = migrate(ctx, conn, own)
	}
	if err == nil {
		_, err = s.refresh(ctx)
	}
	if err == nil {
		err = s.know()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.ballast.open()
	if app != nil && beginsDeferred(ctx, app, conn) {
		s.opts.Logger.Warn("errand: transactions of the application begin deferred: one that has read cannot write " +
			"after another commit (SQLITE_BUSY_SNAPSHOT, 517); write _txlock=immediate in the DSN" + orOpenDB)
	}
	return conn, nil
}
