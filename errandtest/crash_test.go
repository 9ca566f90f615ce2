package errandtest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
)

// receipts returns how many rows a table of the application has.
func receipts(t testing.TB, q *errand.Queue) (n int) {
	t.Helper()
	check(t, q.Tx(context.Background(), func(tx *sql.Tx) error { return tx.QueryRow("SELECT COUNT(*) FROM receipts").Scan(&n) }))
	return n
}

// What the next process finds is what there was when this one died: jobs whose handler ran
// have crashed, tables are as committed, and what this one does later is not seen.
//
//errand:shows tests of users | | Crash returns the queue as the next process finds it: what ran has crashed, what had not begun or had ended has not, and nothing that is done later is seen
func TestCrash(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		check(t, q.Tx(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.Exec("CREATE TABLE receipts (id INTEGER PRIMARY KEY)")
			return err
		}))
		enqueue(t, q, SendEmail{"ada"}, nil)
		other := enqueue(t, q, SendEmail{"not begun"}, nil)
		charge := func(q *errand.Queue, crash func()) *errand.Worker {
			w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
			errand.Handle(w, func(ctx context.Context, job *errand.Job[SendEmail]) error {
				if job.Args.To == "ada" {
					crash()
				}
				return job.Finish(ctx, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO receipts DEFAULT VALUES")
					return err
				})
			})
			return w
		}
		var next *errand.Queue
		errandtest.Drain(t, q, charge(q, func() { next = errandtest.Crash(t, q) }), nil)
		if n := receipts(t, q); n != 2 {
			t.Errorf("the process that went on has %d receipts, want 2", n)
		}
		if n := receipts(t, next); n != 0 {
			t.Errorf("the next process finds %d receipts, want none", n)
		}
		crashes := -1
		got := errandtest.Drain(t, next, charge(next, func() {
			j := errandtest.RequireEnqueued(t, next, to("ada"))[0]
			crashes = j.Crashes
		}), &errandtest.DrainOptions{Scheduled: true})
		if want := (errandtest.Counts{Attempts: 2, Done: 2, Crashed: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if crashes != 1 || receipts(t, next) != 2 {
			t.Errorf("%d crashes, want 1; %d receipts, want 2", crashes, receipts(t, next))
		}
		if j, err := next.Job(t.Context(), other); err != nil || j.Crashes != 0 || j.Attempt != 1 {
			t.Errorf("the job that had not begun: %d crashes, attempt %d, %v", j.Crashes, j.Attempt, err)
		}
	})
}

// A transaction that is open is rolled back, as with a kill.
func TestCrash_inTransaction(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		id := enqueue(t, q, SendEmail{"ada"}, nil)
		var next *errand.Queue
		errandtest.Drain(t, q, worker(q, func(ctx context.Context, job *errand.Job[SendEmail]) error {
			return job.Finish(ctx, func(tx *sql.Tx) error {
				_, err := q.EnqueueTx(ctx, tx, &Audit{"sent"}, nil)
				next = errandtest.Crash(t, q)
				return err
			})
		}), nil)
		errandtest.RequireEnqueued[*Audit](t, q)
		errandtest.RequireNone[*Audit](t, next)
		got := errandtest.Drain(t, next, worker(next, done), &errandtest.DrainOptions{Scheduled: true})
		if j, err := next.Job(t.Context(), id); err != nil || got.Crashed != 1 || j.State != errand.Done || j.Attempt != 2 {
			t.Errorf("%+v, the job is %s after attempt %d, %v", got, j.State, j.Attempt, err)
		}
	})
}

// Each process finds what the one before has left, until the job has crashed too often.
func TestCrash_untilDead(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		id := enqueue(t, q, SendEmail{"ada"}, nil)
		for range 3 {
			var next *errand.Queue
			errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error {
				next = errandtest.Crash(t, q)
				return nil
			}), &errandtest.DrainOptions{Scheduled: true})
			q = next
		}
		got := errandtest.Drain(t, q, worker(q, done), &errandtest.DrainOptions{Scheduled: true})
		if j, err := q.Job(t.Context(), id); err != nil || j.State != errand.Dead || j.Reason != errand.ReasonCrashed || got.Dead != 1 || got.Attempts != 0 {
			t.Errorf("%+v; the job is %s as %s after %d attempts, %v", got, j.State, j.Reason, j.Attempt, err)
		}
	})
}

// A job goes on from its checkpoint in the next process.
func TestCrash_checkpoint(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		enqueue(t, q, SendEmail{"ada"}, nil)
		var next *errand.Queue
		errandtest.Drain(t, q, worker(q, func(ctx context.Context, job *errand.Job[SendEmail]) error {
			check(t, job.Checkpoint(ctx, 17))
			next = errandtest.Crash(t, q)
			return job.Checkpoint(ctx, 18)
		}), nil)
		from := 0
		errandtest.Drain(t, next, worker(next, func(_ context.Context, job *errand.Job[SendEmail]) error {
			_, err := job.Resume(&from)
			return err
		}), &errandtest.DrainOptions{Scheduled: true})
		if from != 17 {
			t.Errorf("the job went on from %d, want 17", from)
		}
	})
}

// A handler that has returned is not to blame for the end of the process.
func TestCrash_afterTheHandler(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		id := enqueue(t, q, SendEmail{"ada"}, nil)
		errandtest.Drain(t, q, worker(q, done), nil)
		next := errandtest.Crash(t, q)
		if got := errandtest.Drain(t, next, worker(next, done), &errandtest.DrainOptions{Scheduled: true}); got != (errandtest.Counts{}) {
			t.Errorf("%+v, want nothing", got)
		}
		if j, err := next.Job(t.Context(), id); err != nil || j.State != errand.Done || j.Crashes != 0 {
			t.Errorf("%+v, %v", j, err)
		}
		// Without a worker, what ran is still running: nobody has recovered it.
		enqueue(t, q, SendEmail{"ben"}, nil)
		errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error {
			next = errandtest.Crash(t, q)
			return nil
		}), &errandtest.DrainOptions{Timeout: time.Minute})
		errandtest.RequireEnqueued(t, next, func(e errandtest.Enqueued[SendEmail]) error {
			if e.State != errand.Running {
				return errDown
			}
			return nil
		})
	})
}
