package apitest

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// board is a machine without a clock battery, with the file of an application.
type board struct {
	*agenda
	path string
	db   *sql.DB
}

// boot opens the application's file, and a queue on it.
func (b *board) boot() {
	b.t.Helper()
	var err error
	if b.db, err = sqlite.OpenDB(b.path); err != nil {
		b.t.Fatal(err)
	}
	b.Queue = b.process()
}

// process opens another queue on the file.
func (b *board) process() *errand.Queue {
	b.t.Helper()
	store, err := sqlite.New(b.db, &sqlite.Options{Ballast: -1, Logger: quiet})
	if err != nil {
		b.t.Fatal(err)
	}
	q, err := errand.New(b.t.Context(), store, &b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return q
}

// halt closes the queue and the file.
func (b *board) halt() {
	b.t.Helper()
	if err := errors.Join(b.Close(), b.db.Close()); err != nil {
		b.t.Error(err)
	}
}

// cut is a power cut: the next boot finds what is on the disk now.
func (b *board) cut() {
	b.t.Helper()
	was := b.path
	b.path += "-next"
	for _, part := range []string{"", "-wal"} {
		content, err := os.ReadFile(was + part)
		if err == nil {
			err = os.WriteFile(b.path+part, content, 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.t.Fatal(err)
		}
	}
	b.halt()
}

// onBoard runs a test on a board whose clock is right.
func onBoard(t *testing.T, test func(t *testing.T, b *board)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		b := &board{agenda: &agenda{t: t}, path: path}
		b.opts = errand.Options{Clock: b.wall.now, Logger: quiet, Retention: -1}
		b.wall.set(plausibly)
		b.boot()
		defer func() { b.halt() }()
		test(t, b)
	})
}

// order runs what is due within a while, one job at a time, and returns the numbers.
func (b *board) order(within time.Duration) (ns []int) {
	b.t.Helper()
	w := errand.NewWorker(b.Queue, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		ns = append(ns, job.Args.N)
		return nil
	})
	stop := run(b.t, w)
	time.Sleep(within)
	if err := stop(); err != nil {
		b.t.Error(err)
	}
	return ns
}

// A board is switched off within a second of its last writes, and starts in 1970: what
// was enqueued first starts first, and what is due later stays so.
//
//errand:shows the order of jobs on a board without a clock | | jobs of the last second before a power cut or `Close` are due before those after the boot in 1970; two processes date each other's jobs in order
func TestClock_OrderOverAReboot(t *testing.T) {
	ways := []struct {
		name    string
		enqueue func(b *board, n int, o *errand.JobOptions)
	}{
		{"Enqueue", func(b *board, n int, o *errand.JobOptions) { enqueue(b.t, b.Queue, note{N: n}, o) }},
		{"Tx", func(b *board, n int, o *errand.JobOptions) {
			b.t.Helper()
			if err := b.Tx(b.t.Context(), func(tx *sql.Tx) error {
				_, err := b.EnqueueTx(b.t.Context(), tx, note{N: n}, o)
				return err
			}); err != nil {
				b.t.Fatal(err)
			}
		}},
		{"EnqueueTx", func(b *board, n int, o *errand.JobOptions) {
			b.t.Helper()
			tx, err := b.db.Begin()
			if err != nil {
				b.t.Fatal(err)
			}
			_, err = b.EnqueueTx(b.t.Context(), tx, note{N: n}, o)
			if err := errors.Join(err, tx.Commit()); err != nil {
				b.t.Fatal(err)
			}
		}},
	}
	ends := []struct {
		name string
		end  func(b *board)
	}{{"Close", (*board).halt}, {"power cut", (*board).cut}}
	for _, way := range ways {
		for _, end := range ends {
			t.Run(way.name+"/"+end.name, func(t *testing.T) {
				onBoard(t, func(t *testing.T, b *board) {
					if err := b.Pause(t.Context(), "other"); err != nil { // a write, by chance
						t.Fatal(err)
					}
					time.Sleep(300 * time.Millisecond)
					way.enqueue(b, 5, &errand.JobOptions{Delay: 1200 * time.Millisecond})
					time.Sleep(600 * time.Millisecond)
					way.enqueue(b, 1, nil)
					before := b.Clock().Now
					end.end(b)
					time.Sleep(time.Minute)
					b.wall.set(-30 * 365 * day)
					b.boot()
					if now := b.Clock().Now; now.Before(before) {
						t.Errorf("the queue's time begins %v before that of the last job", before.Sub(now))
					}
					way.enqueue(b, 2, nil)
					way.enqueue(b, 3, nil)
					if got := b.order(550 * time.Millisecond); !slices.Equal(got, []int{1, 2, 3}) {
						t.Errorf("order: %v, want 1, 2, 3: 5 is due 600 ms after the first", got)
					}
					if got := b.order(time.Second); !slices.Equal(got, []int{5}) {
						t.Errorf("later: %v, want 5", got)
					}
				})
			})
		}
	}
}

// Two processes of a board that started in 1970 have clocks that differ. Each dates a
// job no earlier than what the other has enqueued before.
//
//errand:shows the order of jobs on a board without a clock
func TestClock_OrderOfTwoProcesses(t *testing.T) {
	onBoard(t, func(t *testing.T, b *board) {
		enqueue(t, b.Queue, note{N: 1}, nil)
		b.halt()
		b.wall.set(-30 * 365 * day)
		b.boot()
		time.Sleep(900 * time.Millisecond)
		other := b.process() // 900 ms behind
		defer func() {
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		}()
		for n := 2; n < 10; n++ {
			q := b.Queue
			if n%2 == 1 {
				q = other
			}
			enqueue(t, q, note{N: n}, nil)
			time.Sleep(50 * time.Millisecond)
		}
		if got := b.order(time.Minute); !slices.IsSorted(got) || len(got) != 9 {
			t.Errorf("order: %v, want 1 to 9", got)
		}
	})
}
