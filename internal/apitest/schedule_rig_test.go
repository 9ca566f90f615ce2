package apitest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

// agenda is a queue with schedules in a bubble, where the time is that of the
// year 2000 and goes by at once.
type agenda struct {
	*errand.Queue
	t    *testing.T
	open func() storage.Store // the same database, by another instance
	wall wall
	opts errand.Options
	// lease of the workers: a long one saves a long test the heartbeats.
	lease time.Duration

	mu  sync.Mutex
	ran []ran
}

// ran is a job of a schedule that a worker has run.
type ran struct {
	at   time.Time
	name string // of the schedule
	tick string
	n    int // note.N
}

// wall is a wall clock that can be set wrong.
type wall struct {
	mu   sync.Mutex
	off  time.Duration
	left int // readings until off is next
	next time.Duration
}

func (w *wall) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := time.Now().Add(w.off)
	if w.left--; w.left == 0 {
		w.off = w.next
	}
	return t
}

// setAfter sets w to off once it was read n more times.
func (w *wall) setAfter(n int, off time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.next = n, off
}

func (w *wall) set(off time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = off
}

// agendas runs a test on the store in memory and on SQLite.
func agendas(t *testing.T, test func(t *testing.T, a *agenda)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		db := storagetest.NewMemory()
		bubbled(t, db.Open, test)
	})
	t.Run("sqlite", func(t *testing.T) { bubbled(t, onDisk(t), test) })
}

func onMemory(t *testing.T, test func(t *testing.T, a *agenda)) {
	t.Helper()
	bubbled(t, storagetest.NewMemory().Open, test)
}

// onDisk returns stores on one file. No two are open at a time.
func onDisk(t *testing.T) func() storage.Store {
	path := filepath.Join(t.TempDir(), "jobs.db")
	return func() storage.Store {
		store, err := sqlite.Open(path, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
}

func bubbled(t *testing.T, open func() storage.Store, test func(t *testing.T, a *agenda)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &agenda{t: t, open: open}
		a.opts = errand.Options{Clock: a.wall.now, Logger: quiet, Retention: -1}
		a.start()
		t.Cleanup(func() {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, a)
	})
}

// start opens the queue.
func (a *agenda) start() {
	a.t.Helper()
	var err error
	if a.Queue, err = errand.New(a.t.Context(), a.open(), &a.opts); err != nil {
		a.t.Fatal(err)
	}
}

// restart closes the queue and opens it after a while.
func (a *agenda) restart(after time.Duration) {
	a.t.Helper()
	if err := a.Close(); err != nil {
		a.t.Fatal(err)
	}
	time.Sleep(after)
	a.start()
}

// work has a worker run what is due, until it is stopped.
func (a *agenda) work(do func(ctx context.Context, job *errand.Job[note]) error) (stop func()) {
	w := errand.NewWorker(a.Queue, &errand.WorkerOptions{LeaseDuration: a.lease})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[note]) error {
		a.mu.Lock()
		a.ran = append(a.ran, ran{time.Now(), job.Headers["errand-schedule"], job.Headers["errand-tick"], job.Args.N})
		a.mu.Unlock()
		if do != nil {
			return do(ctx, job)
		}
		return nil
	})
	end := run(a.t, w)
	return func() {
		if err := end(); err != nil {
			a.t.Error(err)
		}
	}
}

// took returns what has run since it was asked last.
func (a *agenda) took() []ran {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.ran
	a.ran = nil
	return all
}

// ticks returns the ticks of a schedule that have run since took was called last.
func (a *agenda) ticks(name string) (all []string) {
	for _, r := range a.took() {
		if r.name == name {
			all = append(all, r.tick)
		}
	}
	return all
}

func (a *agenda) declare(s errand.Schedule) {
	a.t.Helper()
	if s.Args == nil {
		s.Args = note{}
	}
	if err := a.Schedule(a.t.Context(), s); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agenda) get(name string) errand.ScheduleInfo {
	a.t.Helper()
	info, err := a.Schedules().Get(a.t.Context(), name)
	if err != nil {
		a.t.Fatal(err)
	}
	return info
}

// history returns the entries in short, the latest first.
func (a *agenda) history(name string) (lines []string) {
	a.t.Helper()
	ticks, err := a.Schedules().History(a.t.Context(), name)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, t := range ticks {
		s := string(t.Taken) + " " + t.At.Format(time.RFC3339)
		if t.N != 1 || !t.Until.Equal(t.At) {
			s += fmt.Sprintf(" to %s: %d", t.Until.Format(time.RFC3339), t.N)
		}
		lines = append(lines, s)
	}
	return lines
}

func (a *agenda) wantHistory(name string, want ...string) {
	a.t.Helper()
	if got := a.history(name); !slices.Equal(got, want) {
		a.t.Errorf("the history of %s is\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// live counts the jobs that are not over.
func (a *agenda) live() (n int64) {
	a.t.Helper()
	counts, err := a.Counts(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	for _, c := range counts {
		n += c.N
	}
	return n
}

func (a *agenda) revision(name string) int64 {
	a.t.Helper()
	// The tests of New know nothing of a queue's store; another instance shows it.
	all, err := a.open().(storage.Scheduler).Schedules(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s storage.ScheduleRecord) bool { return s.Name == name })
	if i < 0 {
		a.t.Fatalf("no schedule %s in %v", name, all)
	}
	return all[i].Revision
}
