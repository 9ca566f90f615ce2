package errandtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// New opens a queue on a file in a directory of its own, and closes it when the test ends.
// Then it examines the file as errand doctor --full does; each error that is found fails the
// test. Stop workers before the test ends.
//
// o is as for [errand.Open], with these exceptions. The durability is always Relaxed, as
// nobody cuts the power of a test, and there is no ballast unless SQLite.Ballast sets one, as
// nobody fills its disk. A nil Logger logs warnings and errors to the output of the
// test. Clock is asked for the time to which [Drain] adds what it has moved on. Nil and the
// zero value mean defaults.
//
// In a bubble of testing/synctest, New must be called in the bubble.
func New(t testing.TB, o *errand.Options) *errand.Queue {
	t.Helper()
	r := newRig(o)
	r.sqlite, r.options.SQLite = r.options.SQLite, errand.SQLiteOptions{}
	path := filepath.Join(t.TempDir(), "jobs.db")
	if empty := empty(); len(empty) > 0 && !r.sqlite.Existing && !r.sqlite.ReadOnly {
		if err := os.WriteFile(path, empty, 0o600); err != nil {
			t.Fatalf("errandtest: %v", err)
		}
	}
	return r.openFile(t, path)
}

// empty returns a file without jobs, for New to copy: to make its tables takes twice as long as all
// else that New does. It returns nil if there can be none: then New says why.
var empty = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "errandtest-")
	if err != nil {
		return nil
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "jobs.db")
	s, err := sqlite.Open(path, &sqlite.Options{Durability: errand.Relaxed, Logger: slog.New(slog.DiscardHandler)})
	if err != nil || s.Close() != nil {
		return nil
	}
	file, _ := os.ReadFile(path) // nil on an error
	return file
})

// NewOn is [New] for a queue on a store that is open: mostly one on the application's own
// database, opened by [sqlite.New]. When the test ends the store is closed with the queue, and
// its file is examined. The test may use the database before and after that, and closes it.
//
// o is as for [errand.New], with the exceptions that [New] names for Logger and Clock. The
// store's own options, such as its durability, are set where it is opened. The test ends if
// the store is nil, closed, or that of another queue of this package that is open.
//
// In a bubble of testing/synctest, open the database and the store in the bubble too.
func NewOn(t testing.TB, store storage.Store, o *errand.Options) *errand.Queue {
	t.Helper()
	if s, ok := store.(*sqlite.Store); store == nil || ok && s == nil {
		t.Fatal("errandtest: NewOn: the store is nil: the error of the call that opens it says why")
	}
	rigs.Range(func(_, other any) bool {
		if other.(*rig).store == store {
			t.Fatal("errandtest: NewOn: the store is that of another queue: open one for each queue")
		}
		return true
	})
	return newRig(o).open(t, func(*slog.Logger) (storage.Store, error) { return store, nil })
}

// rig is what New and NewOn know of a queue.
type rig struct {
	store   storage.Store
	path    string // of its file; empty: it has none
	options errand.Options
	sqlite  errand.SQLiteOptions // of files that are opened here
	clock   *clock
}

func newRig(o *errand.Options) *rig {
	r := &rig{options: *cmp.Or(o, &errand.Options{}), clock: &clock{}}
	if !inBubble() {
		r.clock.wall = r.options.Clock
		if r.clock.wall == nil {
			r.clock.wall = time.Now
		}
		r.options.Clock = r.clock.now
	}
	return r
}

// rigs are those of the queues that are open, a *rig by its *errand.Queue.
var rigs sync.Map

func rigOf(q *errand.Queue) *rig {
	r, _ := rigs.Load(q)
	own, _ := r.(*rig)
	return own
}

// openFile opens a file until the test ends.
func (r *rig) openFile(t testing.TB, path string) *errand.Queue {
	t.Helper()
	return r.open(t, func(log *slog.Logger) (storage.Store, error) {
		o := r.sqlite
		o.Durability, o.Ballast, o.Logger = errand.Relaxed, cmp.Or(o.Ballast, -1), cmp.Or(o.Logger, log)
		return sqlite.Open(path, &o)
	})
}

// open opens a store and a queue on it, until the test ends.
func (r *rig) open(t testing.TB, openStore func(*slog.Logger) (storage.Store, error)) *errand.Queue {
	t.Helper()
	o, out := r.options, &output{to: t}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	store, err := openStore(o.Logger)
	if err != nil {
		t.Fatalf("errandtest: %v", err)
	}
	q, err := errand.New(context.Background(), store, &o)
	if err != nil {
		t.Fatalf("errandtest: %v", errors.Join(err, store.Close()))
	}
	r.store = store
	if s, ok := store.(*sqlite.Store); ok {
		r.path = s.Path()
	}
	rigs.Store(q, r)
	t.Cleanup(func() {
		defer out.end()
		rigs.Delete(q)
		now := q.Clock().Now
		if err := q.Close(); err != nil {
			t.Errorf("errandtest: the queue is closed: %v", err)
		}
		if r.path != "" {
			examine(t, r.path, now)
		}
	})
	return q
}

// examine fails the test for each error that is found in a file, which must be closed.
func examine(t testing.TB, path string, now time.Time) {
	found, err := sqlite.Examine(context.Background(), path, true, now)
	if err != nil {
		t.Errorf("errandtest: the file cannot be examined: %v", err)
	}
	for _, f := range found {
		if f.Severity == sqlite.SeverityError {
			t.Errorf("errandtest: the file is damaged: %s: %s", f.Check, f.Text)
		}
	}
}

// clock is a wall clock that can be moved on.
type clock struct {
	wall  func() time.Time // nil in a bubble, where time itself moves on
	moved atomic.Int64     // nanoseconds
}

func (c *clock) now() time.Time { return c.wall().Add(time.Duration(c.moved.Load())) }

// jumped is in what the log says when Drain has moved the clock on, which is no news in a test.
var jumped = []byte("the wall clock has jumped")

// output passes the log on until the test ends, when nobody may write any more.
type output struct {
	mu sync.Mutex
	to testing.TB // nil: the test has ended
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to != nil && !bytes.Contains(b, jumped) {
		return o.to.Output().Write(bytes.Clone(b))
	}
	return len(b), nil
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = nil
}

// inBubble reports whether the caller is in a bubble. If so, it returns when all other
// goroutines of the bubble wait.
func inBubble() (is bool) {
	defer func() {
		if text, ok := recover().(string); ok {
			is = strings.Contains(text, "already in progress") // another goroutine of the bubble waits
		}
	}()
	synctest.Wait()
	return true
}
