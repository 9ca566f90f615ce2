package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"maragu.dev/goqite"
)

// goqiteSchema is schema_sqlite.sql of goqite 0.4.0, which has the application make the table.
//
//go:embed goqite.sql
var goqiteSchema string

// goqiteQueue is goqite with one connection and the pragmas of its README.
// Workers call Receive and Delete themselves: its runner takes a job only once
// in 100 ms, and with a short interval does the same with more around it.
type goqiteQueue struct {
	db    *sql.DB
	queue *goqite.Queue
}

// goqitePoll is how long a worker waits after it has found nothing.
const goqitePoll = time.Millisecond

func openGoqite(ctx context.Context, s setup) (system, error) {
	db, err := s.open("busy_timeout(5000)", "foreign_keys(1)", "journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	var n int
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name = 'goqite'`).Scan(&n)
	if err == nil && n == 0 {
		_, err = db.ExecContext(ctx, goqiteSchema)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &goqiteQueue{db: db, queue: goqite.New(goqite.NewOpts{DB: db, Name: "work", MaxReceive: s.retries + 1, Timeout: time.Minute})}, nil
}

func (q *goqiteQueue) Enqueue(ctx context.Context, j newJob) error {
	return q.queue.Send(ctx, goqite.Message{Body: encoded(&j)})
}

func (q *goqiteQueue) EnqueueMany(ctx context.Context, jobs []newJob) error {
	return inTx(ctx, q.db, func(tx *sql.Tx) error {
		for i := range jobs {
			if err := q.queue.SendTx(ctx, tx, goqite.Message{Body: encoded(&jobs[i])}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *goqiteQueue) EnqueueTx(ctx context.Context, j newJob, note string) error {
	return inTx(ctx, q.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sqlOrder, note); err != nil {
			return err
		}
		return q.queue.SendTx(ctx, tx, goqite.Message{Body: encoded(&j)})
	})
}

func (q *goqiteQueue) Work(ctx context.Context, n int, handle func(context.Context, *job) error) error {
	return q.work(ctx, n, func(ctx context.Context, id goqite.ID, j *job) error {
		if err := handle(ctx, j); err != nil {
			return err
		}
		return q.queue.Delete(ctx, id)
	})
}

// work has handle do and delete each message.
func (q *goqiteQueue) work(ctx context.Context, n int, handle func(context.Context, goqite.ID, *job) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = q.next(context.WithoutCancel(ctx), handle)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (q *goqiteQueue) next(ctx context.Context, handle func(context.Context, goqite.ID, *job) error) error {
	m, err := q.queue.Receive(ctx)
	if err != nil {
		return err
	}
	if m == nil {
		time.Sleep(goqitePoll)
		return nil
	}
	j := job{Attempt: 1}
	if err := json.Unmarshal(m.Body, &j.payload); err != nil {
		return err
	}
	return handle(ctx, m.ID, &j)
}

func (q *goqiteQueue) Left(ctx context.Context) (n int, err error) {
	err = q.db.QueryRowContext(ctx, `SELECT count(*) FROM goqite`).Scan(&n)
	return n, err
}

func (q *goqiteQueue) Durability(ctx context.Context) (string, error) { return durability(ctx, q.db) }

func (q *goqiteQueue) Close() error { return q.db.Close() }
