// Command appdb keeps its queue in the application's own database: a
// transaction of the application takes a job along.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os/signal"

	driver "modernc.org/sqlite" // registers itself as "sqlite"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// Confirm is a job: it tells the customer that the order is there.
type Confirm struct{ Email string }

// Kind names the type of job.
func (Confirm) Kind() string { return "confirm" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	defer stop()
	if err := run(ctx, "app.db", send); err != nil {
		log.Fatal(err)
	}
}

func send(_ context.Context, job *errand.Job[Confirm]) error {
	return log.Output(1, "confirming to "+job.Args.Email)
}

func run(ctx context.Context, path string, send func(context.Context, *errand.Job[Confirm]) error) (err error) {
	// Before the first database is opened. Only Linux has these locks.
	if _, err := driver.OFDLocking(true); err != nil && !errors.Is(err, driver.ErrOFDLockingUnavailable) {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)"+
		"&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }() // last
	const table = `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)`
	if _, err := db.ExecContext(ctx, table); err != nil {
		return err
	}

	store, err := sqlite.New(db, nil)
	if err != nil {
		return err
	}
	q, err := errand.New(ctx, store, nil)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	defer func() { err = errors.Join(err, q.Close()) }() // after the worker; it closes the store

	w := errand.NewWorker(q, nil)
	errand.Handle(w, send)
	if err := order(ctx, db, q, "ada@example.org"); err != nil {
		return err
	}
	return w.Run(ctx)
}

// order writes an order and its job, both or neither.
func order(ctx context.Context, db *sql.DB, q *errand.Queue, email string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after the commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (email) VALUES (?1)`, email); err != nil {
		return err
	}
	if _, err := q.EnqueueTx(ctx, tx, Confirm{email}, nil); err != nil {
		return err
	}
	return tx.Commit()
}
