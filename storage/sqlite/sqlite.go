// Package sqlite keeps jobs in a SQLite file, through modernc.org/sqlite.
//
// One goroutine of each Store, the writer, runs all requests that have queued up while it
// was busy in one transaction, and answers them after its one commit: that makes a commit
// with fsync affordable. A request that comes alone runs on its caller's goroutine. Tx
// writes on a connection of its own. A few read-only connections serve everything else.
// The writer, Tx and processes that share the file take turns at writing.
//
// Beside a database jobs.db there may be jobs.db-turn (whose turn it is to write),
// jobs.db-wake (written to wake the workers of other processes), a jobs.db-instance-N for
// each process that leases jobs, jobs.db-workers-N (what its workers do), jobs.db-ballast
// (given up when the disk is full), jobs.db-check (a check is due, or has found damage),
// and for moments jobs.db-room (is there room?). They hold no data that a restart needs.
// A jobs.db-saved-* does: it is a copy that was saved when a file was taken away.
//
// What the Store needs of operating systems is in internal/host.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/internal/logs"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// Durability says what an acknowledged write survives.
type Durability uint8

const (
	// Full syncs the file with each commit: what is acknowledged survives a
	// crash of the process or the system and a power cut.
	Full Durability = iota
	// Relaxed does not sync on commit: what is acknowledged survives a crash
	// of the process; the last commits before a crash of the system or a power
	// cut may be lost, never the integrity of the file.
	Relaxed
)

// Options of [Open] and [New]. Nil means all defaults.
type Options struct {
	// Durability of writes. If zero, Full.
	Durability Durability
	// SingleProcess promises that no other process opens the file, and locks
	// them out while the Store is open. Then there are no turns, no wake-ups
	// between processes and no watch for their commits. If false, several processes
	// may have the file open.
	SingleProcess bool
	// BusyTimeout is how long to wait for the turn, and then for the write lock,
	// before returning [storage.ErrBusy]. If zero, 5 s.
	BusyTimeout time.Duration
	// Ballast is how many bytes are kept beside the database, in a file that is
	// emptied when the disk is full, so that work in progress can be finished.
	// If zero, 4 MiB; if negative, there is none.
	Ballast int64
	// AnyFileSystem allows file systems that other machines may share. There only one
	// process may ever open the file, and the file system must keep what fsync says: else
	// jobs can be lost and the file be damaged. It also allows a file with two names: a
	// hard link, or a mount of the file alone. All processes must use one of the names,
	// and its folder keep the files beside it: else jobs are lost. If false, both are
	// refused.
	AnyFileSystem bool
	// ReadOnly opens an existing file for reading alone, even if this user may not write
	// it, or its file system is mounted read-only. Nothing is created, migrated or
	// written, and no lock is held between calls. Calls that would write return
	// [storage.ErrReadOnly]. Only Open takes it. If false, the file can be written.
	ReadOnly bool
	// Existing opens a file only if it is there and has the tables of errand: Open
	// returns fs.ErrNotExist if there is none, and [storage.ErrUnsupportedDB] for an
	// empty one and for the database of another program, which is left as it is. Only
	// Open takes it. If false, a file without tables of errand gets them.
	Existing bool
	// Own opens a file only if it is a queue or can become nothing else: Open makes one
	// that is not there, and takes over one that is empty, or that a first start was cut off
	// in, which has no table, no user_version and no application_id. It returns
	// [storage.ErrUnsupportedDB] for the database of another program, which gets nothing but
	// the recovery that SQLite makes for whoever opens it. Only Open takes it. If false, a
	// file without tables of errand gets them.
	Own bool
	// Logger receives what no caller can be told. It is called by a goroutine of its
	// own: it may enqueue, but must not close the Store. While it is slow, at most 64
	// records wait; further ones are counted and dropped. If nil, slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.BusyTimeout = cmp.Or(c.BusyTimeout, 5*time.Second)
	c.Ballast = max(cmp.Or(c.Ballast, defaultBallast), 0)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = logs.New(c.Logger)
	return c
}

func (o *Options) validate() error {
	var errs []error
	if o.Durability > Relaxed {
		errs = append(errs, fmt.Errorf("errand: durability %d: must be Full (0) or Relaxed (1)", o.Durability))
	}
	if o.BusyTimeout < time.Millisecond || o.BusyTimeout > time.Hour {
		errs = append(errs, fmt.Errorf("errand: busy timeout %v: must be 1ms to 1h", o.BusyTimeout))
	}
	if o.Ballast > maxBallast {
		errs = append(errs, fmt.Errorf("errand: ballast of %d bytes: must be at most %d", o.Ballast, int64(maxBallast)))
	}
	return errors.Join(errs...)
}

// Store is a [storage.Store] on a SQLite file. It also implements [storage.Notifier],
// [storage.TxEnqueuer], [storage.Handoff], [storage.Pulser], [storage.Marker],
// [storage.Peers], [storage.Scheduler], [storage.Timekeeper], [storage.Backuper],
// [storage.Publisher], [storage.Topics] and
// [storage.Compacter].
//
// What the contract bounds: an Exchange makes the earliest 1,000 due jobs ready, ends at
// least 250 at their StartBy or Deadline, looks at 1,000 dead letters to make room and deletes
// 100 of them. A call that makes room for jobs looks at 1,000, and for scheduled ones among
// the 10,000 that are due first.
type Store struct {
	path string
	info os.FileInfo // of the database, for the files beside it
	opts Options

	lifetime
	pools
	appTxs
	queue queue                 // of requests for the writer
	turn  *turn                 // to write
	fault func(adds bool) error // set by tests: the error of a commit
	disk
	check     check
	self      instance    // this Store as other processes see it
	observed  observation // of the leases of others
	cache     cache
	floor     floor
	listeners listeners
	offers    offers
	wake      wake
	versions  versions
	commits   commitWatch
}

// disk is what a Store knows of the disk and of its files there, and keeps of it.
type disk struct {
	ballast ballast
	marks   marks
	watch   watch
}

// lifetime is how a Store ends: by Close, or by a failure.
type lifetime struct {
	stop    chan struct{}         // closed when Close begins
	joined  sync.WaitGroup        // everything started by open
	calls   sync.WaitGroup        // under way, except those in the queue
	failure atomic.Pointer[error] // after which the Store takes no request
	taken   atomic.Pointer[loss]  // a file was taken away: it takes none until that is saved, and then fails
	gone    chan struct{}         // closed when taken is set

	gate    sync.RWMutex // held for reading while sending to the queue
	closed  bool         // guarded by gate
	closing sync.Once
	result  error // of Close
}

var (
	_ storage.Store      = (*Store)(nil)
	_ storage.Notifier   = (*Store)(nil)
	_ storage.TxEnqueuer = (*Store)(nil)
	_ storage.Pulser     = (*Store)(nil)
	_ storage.Versioner  = (*Store)(nil)
	_ storage.Handoff    = (*Store)(nil)
	_ storage.Marker     = (*Store)(nil)
	_ storage.Peers      = (*Store)(nil)
	_ storage.Historian  = (*Store)(nil)
	_ storage.Auditor    = (*Store)(nil)
)

// Open opens the SQLite file at path, creating it with mode 0600 and migrating
// it as needed. The file is put into WAL mode.
//
// It returns [storage.ErrUnsupportedDB] for a database in memory, a file with two
// names (a hard link, or a mount of the file alone), triggers on errand's tables, or
// a SQLite older than 3.51.3, [storage.ErrCorrupt] for a file that is not a database,
// [storage.ErrReadOnly], [storage.ErrTooNew], and [storage.ErrBusy] for one
// that a process with SingleProcess has open.
//
// With Options.ReadOnly it returns fs.ErrNotExist for a file that is not there,
// [storage.ErrUnsupportedDB] for one without the tables of errand or with those of an
// older version, and [storage.ErrNeedsRecovery] for one whose log only a process that may
// write can apply. A file that others use can be read, also one of SingleProcess.
//
// If a process that leased jobs has left the file without closing it, or if the
// file is a backup, the tables are checked in the background. Once this or another
// process has found damage, calls that add jobs or lease them return
// [storage.ErrCorrupt], while running jobs can be finished. That lasts over
// restarts, until a check finds the tables sound.
func Open(path string, opts *Options) (*Store, error) {
	full, err := plainPath(path)
	if err != nil {
		return nil, err
	}
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := checkFileSystem(full, o); err != nil {
		return nil, err
	}
	useOFDLocks(o.Logger)
	warnOfLibc(o.Logger)
	if o.ReadOnly {
		return openView(full, o)
	}
	if o.Existing || o.Own {
		if err := checkOwn(full, o); err != nil {
			return nil, err
		}
	}
	full, err = prepareFile(full)
	if err != nil {
		return nil, translate(err)
	}
	return open(full, o, nil)
}

// plainPath returns the absolute path of a file that is given by its plain name.
func plainPath(path string) (string, error) {
	if path == "" {
		return "", errors.New("errand: path is empty: must name a file")
	}
	if strings.Contains(path, ":memory:") || strings.HasPrefix(path, "file:") {
		return "", fmt.Errorf("%w: path %q: must be the plain name of a file", storage.ErrUnsupportedDB, path)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("errand: path %q: %w", path, err)
	}
	return full, nil
}

// New opens a Store on the database of the application, beside db: it asks db
// where its file is, opens connections of its own to it, and uses db for
// nothing else. db stays the caller's to close, after the Store.
//
// [OpenDB] opens such a database. If db was opened by a DSN, these rules hold, and errors
// and warnings say what to write:
//
//   - db must be of modernc's driver: two copies of SQLite in one process drop each other's
//     locks. The file must be in WAL mode already. New returns [storage.ErrUnsupportedDB] for
//     anything else, and for synchronous OFF with Full.
//   - New warns of a synchronous that is less than Durability says, of transactions that begin
//     deferred, and of a busy_timeout below a second.
//   - On Linux call modernc.org/sqlite.OFDLocking(true) before db is first used, so that code
//     which opens and closes the database file cannot drop those locks either. New warns if
//     that was missed.
//
// No code of the process may open the -shm file beside the database: nothing protects the
// locks on it.
func New(db *sql.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, errors.New("errand: db is nil: must be an open database")
	}
	if _, ok := db.Driver().(*driver.Driver); !ok {
		return nil, fmt.Errorf("%w: driver %T: must be that of modernc.org/sqlite%s", storage.ErrUnsupportedDB, db.Driver(), orOpenDB)
	}
	o := opts.withDefaults()
	if o.ReadOnly || o.Existing || o.Own {
		return nil, errors.New("errand: read-only, existing and own: must not be set with New: use Open")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	path, err := databaseFile(context.Background(), db)
	if err != nil {
		return nil, translate(err)
	}
	if path == "" {
		return nil, fmt.Errorf("%w: the database is in memory: must be a file", storage.ErrUnsupportedDB)
	}
	if err := checkSQLites(path); err != nil {
		return nil, err
	}
	if err := errors.Join(checkFileSystem(path, o), checkNames(path, o)); err != nil {
		return nil, err
	}
	if err := checkApp(context.Background(), db, path, o); err != nil {
		return nil, translate(err)
	}
	useOFDLocks(o.Logger)
	warnOfLibc(o.Logger)
	return open(path, o, db)
}

// useOFDLocks asks for locks that other code in the process cannot drop by
// opening and closing the file. Where there are none POSIX locks do, and the
// documentation says what not to do.
func useOFDLocks(log *slog.Logger) {
	if _, err := driver.OFDLocking(true); errors.Is(err, driver.ErrOFDLockingTooLate) {
		log.Warn("errand: a database was opened before OFD locks were switched on; " +
			"open it by sqlite.OpenDB, or call modernc.org/sqlite.OFDLocking(true) first thing in main: else a program that opens and closes the file itself drops SQLite's locks")
	}
}

// open opens the Store, on the database of app unless app is nil. If the disk is
// full it tries once more without the ballast: SQLite needs some room for the
// index of its log.
func open(path string, o Options, app *sql.DB) (*Store, error) {
	s, err := openOnce(path, o, app)
	if err == nil || !cramped(path, err) {
		return s, err
	}
	info, e := os.Stat(path)
	if e == nil {
		e = host.EmptyBeside(ballastPath(path), info)
	}
	if e != nil {
		return nil, err
	}
	return openOnce(path, o, app)
}

func openOnce(path string, o Options, app *sql.DB) (_ *Store, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, notFound(path, err)
	}
	if err := errors.Join(checkNames(path, o), checkBeside(path, info)); err != nil {
		return nil, err
	}
	warnOfMemory(path, o.Logger)
	copies, parts := savedCopies(path)
	sweepParts(parts)
	for _, name := range copies {
		o.Logger.Warn("errand: a process has saved a copy of the database, of which a file was taken away: errand doctor says whether the database has all of it", "file", name)
	}
	s := newStore(path, info, o)
	defer logs.Wait(s.opts.Logger)
	defer func() {
		if err != nil {
			err = errors.Join(s.openFailed(err), s.release())
		}
	}()
	if s.turn, err = newTurn(path, info, s.opts.Logger); err != nil {
		return nil, err
	}
	s.turn.gone = s.gone
	if app != nil {
		s.turn.pace.inUse = func() bool { return app.Stats().InUse > 0 }
	}
	if err = s.turn.take(context.Background(), o.BusyTimeout); err != nil {
		return nil, err
	}
	if !o.SingleProcess {
		s.turn.release()
	}
	var conn *sql.Conn
	if err = checkWhole(path, info); err == nil {
		conn, err = s.connect(context.Background(), app)
	}
	if err == nil && o.SingleProcess {
		if err = s.turn.keep(); err != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	s.turn.give()
	if err != nil {
		return nil, err
	}
	s.inUse(true)
	s.queue.writer = newWriter(s, conn)
	s.joined.Go(s.queue.writer.run)
	s.beginCheck()
	s.sweep()
	return s, nil
}

func newStore(path string, info os.FileInfo, o Options) *Store {
	s := &Store{path: path, info: info, opts: o, queue: newQueue()}
	s.stop, s.gone = make(chan struct{}), make(chan struct{})
	s.watch.began = time.Now()
	s.watch.looked.Store(never)
	s.cache.lanes, s.cache.names = map[storage.Lane]int64{}, map[int64]storage.Lane{}
	s.wake.store = s
	s.ballast = ballast{path: ballastPath(path), info: info, size: o.Ballast, log: s.opts.Logger}
	s.check.path, s.check.log = checkPath(path), s.opts.Logger
	return s
}

// openFailed returns the error of a Store that could not be opened.
func (s *Store) openFailed(err error) error {
	if isCode(err, lib.SQLITE_ERROR) { // our statements have no fault
		err = fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	if isCode(err, lib.SQLITE_READONLY) || errors.Is(err, storage.ErrReadOnly) {
		err = readOnlyError(s.path, err)
	}
	return translate(s.asFull(err))
}

// enter begins a call that Close waits for; leave ends it.
func (l *lifetime) enter() error {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed {
		return storage.ErrClosed
	}
	if l.taken.Load() != nil {
		return l.usable()
	}
	l.calls.Add(1)
	return nil
}

func (l *lifetime) leave() { l.calls.Done() }

// usable returns [storage.ErrClosed] with the failure that ended the Store, and
// [storage.ErrTakenAway] while the Store saves what it has. It returns nil if there is none.
func (l *lifetime) usable() error {
	if cause := l.failure.Load(); cause != nil {
		return fmt.Errorf("%w after: %w", storage.ErrClosed, *cause)
	}
	if t := l.taken.Load(); t != nil {
		return t.err()
	}
	return nil
}

// Path returns the path of the database. Links on the way to it may be resolved.
func (s *Store) Path() string { return s.path }

// Durability returns what an acknowledged write survives, as the options of the Store say.
func (s *Store) Durability() Durability { return s.opts.Durability }

// Close implements [storage.Store]. Closing twice is harmless; every call
// returns when all is closed, but for a watch that Linux may take longer to close. It
// waits for calls under way and must not be called by the function of a Tx.
func (s *Store) Close() error {
	s.closing.Do(func() { s.result = s.close() })
	return s.result
}

// idle returns what a call returns that has nothing to do.
func (s *Store) idle(ctx context.Context) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return storage.ErrClosed
	}
	return ctx.Err()
}

func (s *Store) close() error {
	s.offers.shutAll()
	s.gate.Lock()
	s.closed = true
	s.gate.Unlock()
	s.listeners.notify(storage.Event{}) // so that idle workers learn of it
	s.calls.Wait()
	if s.view == nil {
		_ = s.lookNow() // as SQLite would close what it cannot save
	}
	if t := s.taken.Load(); t != nil {
		<-t.tried
		if s.failure.Load() != nil && s.app != nil { // saved while a Tx was open
			s.app.close() // before others may have the database open, see save
		}
	}
	close(s.stop)
	err := s.retire()
	s.queue.close() // the writer answers what is left, then ends
	s.joined.Wait()
	return errors.Join(err, s.release())
}

// release closes what open has opened. After a failed fsync it leaves the
// connections alone: closing the last one would checkpoint, from a log of which
// nobody knows what is on the disk. After a file was taken away they are closed, or are
// left alone for the same reason.
func (s *Store) release() error {
	var errs []error
	s.inUse(false)
	if s.failure.Load() == nil && s.taken.Load() == nil {
		if s.app != nil {
			s.app.close()
		}
		errs = append(errs, s.versions.close(), s.pools.close())
	}
	defer logs.Wait(s.opts.Logger) // the caller of Close may look at the log
	errs = append(errs, s.wake.close())
	if s.turn != nil {
		errs = append(errs, s.turn.close())
	}
	return errors.Join(errs...)
}
