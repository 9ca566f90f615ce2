package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
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
	sqlNextJob     = `SELECT n FROM errand_number WHERE id = 1`

	// watchEvery is the pace of the backstop that looks for commits of others.
	watchEvery = time.Second
	// lookEvery is the pace of looking for the commit of an EnqueueTx.
	lookEvery = 20 * time.Millisecond
	// lookLong is for how long that pace is kept up.
	lookLong = time.Minute
)

// reader runs SQL on the read-only connections.
type reader struct {
	ctx context.Context
	db  *sql.DB
}

func (r reader) each(text string, args, dest []any, f func()) error {
	rows, err := r.db.QueryContext(r.ctx, text, args...)
	return ended(r.ctx, scanEach(rows, err, dest, f))
}

func (r reader) row(text string, args []any, dest ...any) error {
	return ended(r.ctx, unread(r.db.QueryRowContext(r.ctx, text, args...).Scan(dest...)))
}

// refresh brings the cache up to date, without the writer.
func (s *Store) refresh(ctx context.Context) (m meta, err error) {
	db := reader{ctx, s.inner.DB}
	if err := s.readMeta(db, &m); err != nil {
		return m, err
	}
	return m, s.catchUp(db, &m)
}

// catchUp brings the cache up to date, and has the workers told of what the
// counters say that others have done.
func (s *Store) catchUp(db asker, m *meta) error {
	var e storage.Event
	if s.cache.stale(m.gen) {
		if err := s.cache.reload(db, m.gen); err != nil {
			return err
		}
		e.Schedules = true // perhaps
	}
	if e.Cancel = s.heed(m.asked); e.Cancel || e.Schedules {
		s.bells.ring(e)
	}
	return nil
}

// heed reports whether the workers have yet to be told that a running job was
// asked to stop, and takes that as done. A look that began before another one
// may end after it.
func (s *Store) heed(asked int64) bool {
	for {
		was := s.heeded.Load()
		if asked <= was {
			return false
		}
		if s.heeded.CompareAndSwap(was, asked) {
			return true
		}
	}
}

// bells are what Notify has registered.
type bells struct {
	mu   sync.RWMutex
	next int
	all  map[int]func(storage.Event)
}

func (b *bells) ring(e storage.Event) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, f := range b.all {
		f(e)
	}
}

// Notify implements [storage.Notifier].
func (s *Store) Notify(f func(storage.Event)) (cancel func()) {
	s.watch.start()
	b := &s.bells
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[int]func(storage.Event){}
	}
	id := b.next
	b.next++
	b.all[id] = f
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, id)
	}
}

// watch tells workers of commits that other processes make: by a file that
// those write to after a commit that concerns others, and by asking SQLite
// once a second whether anything has changed.
type watch struct {
	store *Store
	once  sync.Once
	mark  atomic.Int64 // the clock of the counters as this process last wrote it
	mu    sync.Mutex
	file  *os.File // to wake others; opened when first needed
}

func (w *watch) init(s *Store) { w.store = s }

// start begins watching, when there is somebody to tell.
func (w *watch) start() {
	if w.store.opts.SingleProcess || inBubble() {
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

// inBubble tells whether the caller runs in a bubble of testing/synctest. There
// time stands still while anybody waits for the system, as fsnotify does, and
// no other process shares it: there is nobody to watch for. Only the name of a
// goroutine in its stack tells; where it did not, time would stand still.
func inBubble() bool {
	var b [128]byte
	name, _, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte(":"))
	return bytes.Contains(name, []byte("synctest bubble"))
}

func (w *watch) run() {
	s := w.store
	events, stop := w.subscribe()
	defer stop()
	// Others wake only those who are registered.
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
	look, err := conn.PrepareContext(context.Background(), sqlDataVersion)
	if err != nil {
		s.opts.Logger.Error("errand: cannot watch for commits of other processes", "error", translate(err))
		return
	}
	defer func() { _ = look.Close() }() // else the connection stays open
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last, clock int64
	for s.usable() == nil { // else nobody works any more whom a commit concerns
		var version int64
		if err := look.QueryRow().Scan(&version); err == nil && version != last {
			last = version
			var e storage.Event
			m, err := s.refresh(context.Background())
			if err != nil {
				s.opts.Logger.Warn("errand: what another process has changed could not be read", "error", translate(err))
			} else if m.clock != clock {
				if clock = m.clock; clock > w.mark.Load() {
					e.Clock = fromMicros(clock)
				}
			}
			s.bells.ring(e)
		}
		select {
		case <-events:
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
}

// subscribe returns the writes to the wake file. Where they cannot be had, as
// past the system's limit of watchers, the tick does alone.
func (w *watch) subscribe() (<-chan fsnotify.Event, func()) {
	n, err := w.watcher()
	if err != nil {
		w.store.opts.Logger.Warn("errand: jobs of other processes may begin up to a second late: their wake-ups cannot be heard", "error", err)
		return nil, func() {}
	}
	go func() {
		for range n.Errors { // an overflow loses wake-ups, which the tick makes up for
		}
	}()
	return n.Events, func() { _ = n.Close() }
}

func (w *watch) watcher() (*fsnotify.Watcher, error) {
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

func (w *watch) path() string { return w.store.path + "-wake" }

func (w *watch) open() (*os.File, error) {
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

// wakeOthers tells the workers of other processes, if there are any.
func (w *watch) wakeOthers() {
	if !w.store.others() {
		return
	}
	if f, err := w.open(); err == nil {
		_, _ = f.WriteAt([]byte{1}, 0) // the tick makes up for a failure
	}
}

func (w *watch) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// lookout waits for transactions of the application that have enqueued jobs:
// SQLite tells nobody of a commit, so it must be looked for.
type lookout struct {
	mu     sync.Mutex
	active bool
	lo, hi int64 // keys taken and not yet seen committed: the counter is to pass lo, and in the end reach hi
	begun  int64 // write transactions begun when the last of them was taken
}

// lookFor has workers told once the transaction that took the keys from lo up
// to hi has committed. That is seen by the counter. That it has ended, one way
// or the other, is also seen by a write transaction of ours that could begin,
// for the other held the write lock.
func (s *Store) lookFor(lo, hi int64) {
	l := &s.pending
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hi, l.begun = hi, s.begun.Load()
	if l.active {
		l.lo = min(l.lo, lo)
		return
	}
	l.lo, l.active = lo, true
	s.joined.Go(s.lookOut) // the caller is in a call that Close waits for
}

func (s *Store) lookOut() {
	began := time.Now()
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.stop:
			return
		}
		found, over := s.look()
		if found {
			s.bells.ring(storage.Event{})
			s.watch.wakeOthers()
			began = time.Now()
		}
		if over {
			return
		}
		if time.Since(began) < lookLong {
			timer.Reset(lookEvery)
			continue
		}
		// A transaction that stays open for long, or was rolled back while
		// nobody else writes. One that begins and writes nothing tells.
		_ = s.submit(context.Background(), &request{ends: true, run: func(*tx) error { return nil }})
		timer.Reset(watchEvery)
	}
}

// look tells whether something was committed that was looked for, and whether
// nothing is left to look for.
func (s *Store) look() (found, over bool) {
	l := &s.pending
	begun := s.begun.Load() // before the counter is read
	var next int64
	err := reader{context.Background(), s.inner.DB}.row(sqlNextJob, nil, &next)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && next > l.lo {
		found, l.lo = true, next
	}
	if over = err == nil && next >= l.hi || begun > l.begun; over {
		found, l.active = true, false
	}
	return found, over
}
