package errand_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
)

// An order and the job that confirms it exist together or not at all: the
// application's table is in the queue's file.
func ExampleQueue_Tx() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)`)
		return err
	}))
	reserve := func(email string) error {
		if email == "grace@example.org" {
			return errors.New("out of stock")
		}
		return nil
	}
	order := func(email string) error {
		return q.Tx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders (email) VALUES (?1)`, email); err != nil {
				return err
			}
			if _, err := q.EnqueueTx(ctx, tx, SendEmail{To: email}, nil); err != nil {
				return err
			}
			return reserve(email) // an error rolls back both
		})
	}
	fmt.Println(order("ada@example.org"))
	fmt.Println(order("grace@example.org"))

	check(q.Tx(ctx, func(tx *sql.Tx) error {
		var n int
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&n)
		fmt.Println("orders:", n)
		return err
	}))
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println("jobs:", c.N)
	}
	// Output:
	// <nil>
	// out of stock
	// orders: 1
	// jobs: 1
}

// The queue lives in the application's database, and a transaction that the
// application began takes a job along.
func ExampleQueue_EnqueueTx() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "errand-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	db := must(sqlite.OpenDB(filepath.Join(dir, "app.db")))
	defer db.Close()
	must(db.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)`))

	store := must(sqlite.New(db, nil))
	q := must(errand.New(ctx, store, nil))
	defer q.Close()

	tx := must(db.BeginTx(ctx, nil))
	must(tx.ExecContext(ctx, `INSERT INTO orders (email) VALUES (?1)`, "ada@example.org"))
	e := must(q.EnqueueTx(ctx, tx, SendEmail{To: "ada@example.org"}, nil))
	_, err := q.Job(ctx, e.ID)
	fmt.Println("before the commit:", err)
	check(tx.Commit())
	fmt.Println("after it:", must(q.Job(ctx, e.ID)).State)
	// Output:
	// before the commit: errand: not found
	// after it: ready
}

// Many rows and a job for each are one commit. The answers are in the order of the jobs.
func ExampleQueue_EnqueueManyTx() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	lines := []string{"ada@example.org", "grace@example.org", "ada@example.org"}
	var added []errand.Enqueued
	check(q.Tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)`); err != nil {
			return err
		}
		var jobs []errand.NewJob
		for _, email := range lines {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders (email) VALUES (?1)`, email); err != nil {
				return err
			}
			once := &errand.JobOptions{Unique: &errand.Unique{Key: email}}
			jobs = append(jobs, errand.NewJob{Args: SendEmail{To: email}, Options: once})
		}
		var err error
		added, err = q.EnqueueManyTx(ctx, tx, jobs)
		return err
	}))
	for i, e := range added {
		fmt.Println(lines[i], "duplicate:", e.Duplicate)
	}
	fmt.Println("the first again:", added[2].ID == added[0].ID)
	// Output:
	// ada@example.org duplicate: false
	// grace@example.org duplicate: false
	// ada@example.org duplicate: true
	// the first again: true
}

// An order remembers its job, and takes it back with itself. An ID is kept as TEXT.
func ExampleQueue_CancelTx() {
	ctx := context.Background()
	const email = "ada@example.org"
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT, job TEXT)`); err != nil {
			return err
		}
		e, err := q.EnqueueTx(ctx, tx, SendEmail{To: email}, &errand.JobOptions{Delay: 72 * time.Hour})
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO orders (email, job) VALUES (?1, ?2)`, email, e.ID)
		return err
	}))
	check(q.Tx(ctx, func(tx *sql.Tx) error {
		var id errand.ID
		if err := tx.QueryRowContext(ctx, `DELETE FROM orders WHERE email = ?1 RETURNING job`, email).Scan(&id); err != nil {
			return err
		}
		state, err := q.CancelTx(ctx, tx, id)
		fmt.Println(state)
		return err
	}))
	// Output: cancelled
}

// A charge and the end of its job are written together, so that no customer is charged twice
// in the books. The payment service gets the ID of the job: it refuses a second charge with it.
func ExampleJob_Finish() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	check(q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE receipt (customer TEXT, number TEXT)`)
		return err
	}))
	pay := func(ctx context.Context, customer, key string) (receipt string, err error) { return "R-1", nil }

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Charge]) error {
		receipt, err := pay(ctx, job.Args.Customer, job.ID.String())
		if err != nil {
			return err // retried by the policy; nothing is written
		}
		return job.Finish(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO receipt VALUES (?1, ?2)`, job.Args.Customer, receipt)
			return err
		})
	})
	e := must(q.Enqueue(ctx, Charge{Customer: "ada"}, nil))
	runUntilDone(ctx, q, w, 1)

	check(q.Tx(ctx, func(tx *sql.Tx) error {
		var n int
		err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM receipt`).Scan(&n)
		fmt.Println(must(q.Job(ctx, e.ID)).State, "with", n, "receipt")
		return err
	}))
	// Output: done with 1 receipt
}

// All readings of a call are added up and completed in one transaction.
func ExampleJob_CompleteTx() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	check(q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE usage (customer TEXT)`)
		return err
	}))

	w := errand.NewWorker(q, nil)
	errand.HandleMany(w, func(ctx context.Context, jobs []*errand.Job[Charge]) error {
		return q.Tx(ctx, func(tx *sql.Tx) error {
			for _, job := range jobs {
				if _, err := tx.ExecContext(ctx, `INSERT INTO usage VALUES (?1)`, job.Args.Customer); err != nil {
					return err
				}
				if err := job.CompleteTx(ctx, tx); err != nil {
					return err
				}
			}
			return nil
		})
	}, errand.BatchOptions{Max: 100})
	must(q.EnqueueMany(ctx, []errand.NewJob{{Args: Charge{Customer: "ada"}}, {Args: Charge{Customer: "grace"}}}))
	runUntilDone(ctx, q, w, 2)

	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.State, c.N)
	}
	// Output: done 2
}

// The confirmation is enqueued with the end of the charge: neither without it nor twice.
func ExampleJob_Then() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Charge]) error {
		return job.Then(SendEmail{To: job.Args.Customer + "@example.org"}, &errand.JobOptions{Delay: time.Minute})
	})
	e := must(q.Enqueue(ctx, Charge{Customer: "ada"}, nil))
	runUntilDone(ctx, q, w, 1)

	for _, j := range must(q.Jobs(ctx, errand.JobFilter{Parent: e.ID}, nil)).Jobs {
		fmt.Println(j.Kind, j.State)
	}
	// Output: send_email scheduled
}

// Charge is a job that charges a customer.
type Charge struct{ Customer string }

// Kind names the type of job.
func (Charge) Kind() string { return "charge" }

// runUntilDone runs a worker until so many jobs are done.
func runUntilDone(ctx context.Context, q *errand.Queue, w *errand.Worker, n int) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	done := must(q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventDone}}, 100))
	go func() { ended <- w.Run(ctx) }()
	for range n {
		<-done.Events()
	}
	stop()
	check(<-ended)
}

// Download is a job that takes long.
type Download struct{ URL string }

// Kind names the type of job.
func (Download) Kind() string { return "download" }

// A download goes on where it was when the network fails. Its result is its size, for which
// whoever has enqueued it waits.
func ExampleJob_Checkpoint() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{Policy: policy.Policy{Retries: 3, NoDelayRetries: 3}})
	defer remove()
	asked := 0
	fetch := func(_ context.Context, _ string, offset int64) (n int64, err error) {
		if asked++; asked == 3 {
			return 0, errors.New("the network is down")
		}
		fmt.Println("from", offset)
		return min(100, 250-offset), nil
	}

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Download]) error {
		var at struct{ Offset int64 }
		if _, err := job.Resume(&at); err != nil {
			return err
		}
		for {
			n, err := fetch(ctx, job.Args.URL, at.Offset) // 0 at the end
			if err != nil {
				return err
			}
			if n == 0 {
				return job.SetResult(at.Offset)
			}
			at.Offset += n
			job.Progress(at.Offset, 0, "bytes")
			if err := job.Checkpoint(ctx, at); err != nil {
				return err
			}
		}
	})

	added := must(q.Enqueue(ctx, Download{URL: "https://example.org/map"}, nil))
	go func() { check(w.Run(ctx)) }()
	size, err := errand.Await[int64](ctx, q, added.ID)
	fmt.Println(size, err, must(q.Job(ctx, added.ID)).Progress.Done)
	check(w.Shutdown(ctx))
	// Output:
	// from 0
	// from 100
	// from 200
	// from 250
	// 250 <nil> 250
}
