package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/errandq/errand/storage"
)

const (
	sqlDataVersion = `PRAGMA data_version`

	// wakeEvery is how often the Store asks whether other processes have committed.
	// It is the backstop of the wake file.
	wakeEvery = time.Second
)

// wake notifies the listeners of commits of other processes, and other processes
// of commits of this one. After a commit that concerns others a process writes to
// the wake file, which the others watch. Besides, each asks SQLite once a second
// whether anything has changed.
type wake struct {
	store *Store
	once  sync.Once
	clock atomic.Int64 // the counter of the clock, as this process last wrote it

	mu   sync.Mutex
	file *os.File // opened when first needed
}

// start begins to watch for commits of other processes.
func (w *wake) start() {
	if w.store.opts.SingleProcess || w.store.view != nil || inBubble() {
		return
	}
	w.once.Do(func() {
		s := w.store
		s.gate.RLock()
		defer s.gate.RUnlock()
		if !s.closed {
			s.joined.Go(w.run)
		}
	})
}

// inBubble reports whether the caller runs in a bubble of testing/synctest. There
// time stands still while a goroutine waits for the system, as fsnotify does, and
// there is no other process to watch for. Only the name of a goroutine in its
// stack says so; if a later Go changed that, time would stand still.
func inBubble() bool {
	var b [128]byte
	name, _, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte(":"))
	return bytes.Contains(name, []byte("synctest bubble"))
}

func (w *wake) run() {
	s := w.store
	events, stop := w.subscribe()
	defer stop()
	// Other processes write to the wake file only while others are registered.
	if err := s.submit(context.Background(), &request{run: func(t *tx) error {
		_, err := t.register(0)
		return err
	}}); err != nil && !errors.Is(err, storage.ErrClosed) {
		s.opts.Logger.Warn("errand: other processes cannot wake this one, it looks every second", "error", err)
	}
	conn, err := s.inner.Conn(context.Background())
	if err != nil {
		s.opts.Logger.Error("errand: cannot watch for commits of other processes", "error", translate(err))
		return
	}
	defer conn.Close()
	version, err := conn.PrepareContext(context.Background(), sqlDataVersion)
	if err != nil {
		s.opts.Logger.Error("errand: cannot watch for commits of other processes", "error", translate(err))
		return
	}
	defer func() { _ = version.Close() }() // else the connection stays open
	tick := time.NewTicker(wakeEvery)
	defer tick.Stop()
	var last commit
	for s.usable() == nil { // else the workers end
		w.look(version, &last)
		_ = s.look() // the next call says what it has found
		select {
		case <-events:
		case <-tick.C:
		case <-s.gone: // its connection has to be closed
			return
		case <-s.stop:
			return
		}
	}
}

// commit is what is known of the last commit of another process.
type commit struct {
	version int64 // of the data, as SQLite counts commits
	clock   int64 // the counter
}

// versions is what Version asks.
type versions struct {
	mu    sync.Mutex
	conn  *sql.Conn // on which the data versions of all calls are asked; nil: none yet
	query *sql.Stmt
	seen  [2]os.FileInfo // of a Store that only reads: the database and its log
	n     int64
}

// Version implements [storage.Versioner]. A Store that only reads holds no connection. It
// looks at when the files were written, and takes what was written a moment ago for written
// since, as the clock of a file system has steps.
func (s *Store) Version(ctx context.Context) (n int64, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	v := &s.versions
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.view != nil {
		n, err = v.ofFiles(s.path)
		return n, translate(err)
	}
	if v.query == nil {
		if v.conn, err = s.inner.Conn(ctx); err != nil {
			return 0, translate(err)
		}
		if v.query, err = v.conn.PrepareContext(ctx, sqlDataVersion); err != nil {
			return 0, translate(errors.Join(err, v.conn.Close()))
		}
	}
	err = v.query.QueryRowContext(ctx).Scan(&n)
	return n, ended(ctx, translate(err))
}

// steps is more than the steps of the clock of any file system.
const steps = 3 * time.Second

func (v *versions) ofFiles(path string) (int64, error) {
	var now [2]os.FileInfo
	for i, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return 0, err
		}
		if err == nil {
			now[i] = info
		}
	}
	for i, was := range v.seen {
		if is := now[i]; (is == nil) != (was == nil) || is != nil &&
			(!os.SameFile(is, was) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime()) || time.Since(is.ModTime()) < steps) {
			v.n++
			break
		}
	}
	v.seen = now
	return v.n, nil
}

// close closes the connection, so that its pool can be closed.
func (v *versions) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.query == nil {
		return nil
	}
	err := errors.Join(v.query.Close(), v.conn.Close())
	v.query = nil
	return err
}

// look notifies the listeners if another process has committed since last.
func (w *wake) look(query *sql.Stmt, last *commit) {
	s := w.store
	var version int64
	if err := query.QueryRow().Scan(&version); err != nil || version == last.version {
		return
	}
	last.version = version
	var e storage.Event
	m, err := s.refresh(context.Background())
	if err != nil {
		s.opts.Logger.Error("errand: what another process has changed could not be read", "error", translate(err))
	} else if m.clock != last.clock {
		if last.clock = m.clock; m.clock > w.clock.Load() {
			e.Clock = time.UnixMicro(m.clock)
		}
	}
	s.listeners.notify(e)
}

// subscribe returns the writes to the wake file. If the system refuses to watch
// the file, as beyond its limit of watchers, only the tick is left.
func (w *wake) subscribe() (<-chan fsnotify.Event, func()) {
	n, err := w.watcher()
	if err != nil {
		w.store.opts.Logger.Warn("errand: jobs of other processes may begin up to a second late: their wake-ups cannot be heard", "error", err)
		return nil, func() {}
	}
	go func() {
		for range n.Errors { // an overflow loses wake-ups, which the tick makes up for
		}
	}()
	return n.Events, func() { letGo(func() { _ = n.Close() }) }
}

// letGoMost is how long Close of a Store waits for the system to let go of what it watches.
const letGoMost = 5 * time.Millisecond

// letGo calls end and waits for it, on Linux for letGoMost at the most. There the kernel often takes
// 15 ms to close a descriptor of inotify, and nothing depends on that: the watch tells nobody any
// more. To wait for a part of it keeps few of these descriptors open where Stores are opened and
// closed in a row: a user may have 128.
func letGo(end func()) {
	if runtime.GOOS != "linux" {
		end()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end()
	}()
	most := time.NewTimer(letGoMost)
	defer most.Stop()
	select {
	case <-ended:
	case <-most.C:
	}
}

func (w *wake) watcher() (*fsnotify.Watcher, error) {
	if _, err := w.open(); err != nil {
		return nil, err
	}
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := n.Add(w.path()); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (w *wake) path() string { return w.store.path + "-wake" }

func (w *wake) open() (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		f, err := openBeside(w.path(), os.O_WRONLY, w.store.info)
		if err != nil {
			return nil, err
		}
		w.file = f
	}
	return w.file, nil
}

// others wakes the workers of other processes, if any are registered.
func (w *wake) others() {
	if !w.store.others() {
		return
	}
	if f, err := w.open(); err == nil {
		_, _ = f.WriteAt([]byte{1}, 0) // the tick makes up for a failure
	}
}

func (w *wake) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// registry is functions to call until each is withdrawn.
type registry[F any] struct {
	mu   sync.RWMutex
	next int
	all  map[int]F
}

// add registers a function. The result withdraws it.
func (r *registry[F]) add(f F) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[int]F{}
	}
	id := r.next
	r.next++
	r.all[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, id)
	}
}

// listeners are the functions that Notify has registered: the workers of this
// process. Beside them are those about caps.
type listeners struct {
	registry[func(storage.Event)]
	cancel  atomic.Int64 // the counter asked, as of the last Event with Cancel
	telling atomic.Int64 // the generation that a transaction is about to commit, and tells of

	evictions evictions
	caps      capLog
	free      capLog // of SettingMinFree
	dead      capLog // of SettingMaxDead
	spare     spare
}

func (l *listeners) notify(e storage.Event) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.all {
		f(e)
	}
}

// Notify implements [storage.Notifier].
func (s *Store) Notify(f func(storage.Event)) (cancel func()) {
	s.wake.start()
	return s.listeners.add(f)
}

// asked reports whether the listeners have yet to be told that a running job was
// asked to stop, given the counter that each such request raises. It returns true
// once for each value. Of two readers the later may have read the lower value.
func (l *listeners) asked(counter int64) bool {
	for {
		was := l.cancel.Load()
		if counter <= was {
			return false
		}
		if l.cancel.CompareAndSwap(was, counter) {
			return true
		}
	}
}

// refresh reads the counters and brings the cache up to date, without the writer.
func (s *Store) refresh(ctx context.Context) (m meta, err error) {
	db := plain{ctx, s.inner.DB}
	if err := s.readMeta(db, &m); err != nil {
		return m, err
	}
	return m, s.catchUp(db, &m)
}

// catchUp brings the cache up to date with the counters m, and notifies the
// listeners of what the counters say that others have done: other processes, or
// transactions of the application. What a transaction of this Store changes the cache has
// from its commit on, see [tx.committed], which tells of it.
func (s *Store) catchUp(db asker, m *meta) error {
	var e storage.Event
	if s.cache.stale(m.gen) {
		n, err := s.cache.read(db, m.gen)
		if err != nil {
			return err
		}
		held, news := s.cache.take(n)
		if news && s.listeners.telling.Load() != m.gen {
			e.Schedules, e.Holds, e.Urgent = true, held, n.urgent // schedules perhaps
		}
	}
	if e.Cancel = s.listeners.asked(m.asked); e.Cancel || e.Schedules {
		s.listeners.notify(e)
	}
	return nil
}
