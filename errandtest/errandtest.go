package errandtest

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// New opens a queue on a file in a directory of its own, and closes it when the test ends.
// Then it examines the file as errand doctor --full does; each error that is found fails the
// test. Stop workers before the test ends.
//
// o is as for [errand.Open], with these exceptions. The durability is always Relaxed, as
// nobody cuts the power of a test. A nil Logger logs warnings and errors to the output of the
// test. Clock is asked for the time to which [Drain] adds what it has moved on. Nil and the
// zero value mean defaults.
//
// In a bubble of testing/synctest, New must be called in the bubble.
func New(t testing.TB, o *errand.Options) *errand.Queue {
	t.Helper()
	r := &rig{path: filepath.Join(t.TempDir(), "jobs.db"), options: *cmp.Or(o, &errand.Options{}), clock: &clock{}}
	r.options.SQLite.Durability = errand.Relaxed
	if !inBubble() {
		r.clock.wall = r.options.Clock
		if r.clock.wall == nil {
			r.clock.wall = time.Now
		}
		r.options.Clock = r.clock.now
	}
	return r.open(t)
}

// rig is what New knows of a queue.
type rig struct {
	path    string
	options errand.Options
	clock   *clock
}

// rigs are those of the queues that are open, a *rig by its *errand.Queue.
var rigs sync.Map

func rigOf(q *errand.Queue) *rig {
	r, _ := rigs.Load(q)
	own, _ := r.(*rig)
	return own
}

// open opens the file until the test ends.
func (r *rig) open(t testing.TB) *errand.Queue {
	t.Helper()
	o, out := r.options, &output{to: t}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	q, err := errand.Open(context.Background(), r.path, &o)
	if err != nil {
		t.Fatalf("errandtest: %v", err)
	}
	rigs.Store(q, r)
	t.Cleanup(func() {
		defer out.end()
		rigs.Delete(q)
		now := q.Clock().Now
		if err := q.Close(); err != nil {
			t.Errorf("errandtest: the queue is closed: %v", err)
		}
		examine(t, r.path, now)
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
