package sqlite

import (
	"bytes"
	"context"
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

	// watchEvery is the pace of the backstop that looks for commits of others.
	watchEvery = time.Second
)

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
