package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"maragu.dev/goqite"

	"github.com/errandq/errand"
)

// finish measures handlers that write a row of the application and end their job in the
// same transaction.
type finish struct {
	n       int
	perCall int // jobs of a call and a transaction, of systems with batches
}

func (w finish) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	x, ok := s.(txFinisher)
	if !ok {
		return fmt.Errorf("%T cannot end a job in a transaction", s)
	}
	if err := makeOrders(ctx, t.path()); err != nil {
		return err
	}
	n := t.n(w.n)
	err = t.drain(ctx, s, n, func(ctx context.Context, done func(*job)) error {
		return x.WorkTx(ctx, workers, w.perCall, smallPad, done)
	})
	if err != nil {
		return err
	}
	return checkOrders(ctx, t.path(), n)
}

// checkOrders fails unless the application has n rows.
func checkOrders(ctx context.Context, path string, n int) error {
	return withDB(path, func(db *sql.DB) error {
		var got int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM app_order").Scan(&got)
		if err == nil && got != n {
			err = fmt.Errorf("%d rows of the application: want %d, one for each job", got, n)
		}
		return err
	})
}

func (e *errandQueue) WorkTx(ctx context.Context, n, perCall int, note string, done func(*job)) error {
	w := errand.NewWorker(e.q, &errand.WorkerOptions{Concurrency: n})
	row := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, sqlOrder, note)
		return err
	}
	if perCall == 1 {
		errand.Handle(w, func(ctx context.Context, j *errand.Job[work]) error {
			err := j.Finish(ctx, func(tx *sql.Tx) error { return row(ctx, tx) })
			if err == nil {
				done(&job{payload: payload(j.Args), Attempt: j.Attempt})
			}
			return err
		})
		return w.Run(ctx)
	}
	errand.HandleMany(w, func(ctx context.Context, all []*errand.Job[work]) error {
		err := e.q.Tx(ctx, func(tx *sql.Tx) error {
			for _, j := range all {
				if err := row(ctx, tx); err != nil {
					return err
				}
				if err := j.CompleteTx(ctx, tx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, j := range all {
			done(&job{payload: payload(j.Args), Attempt: j.Attempt})
		}
		return nil
	}, errand.BatchOptions{Max: perCall})
	return w.Run(ctx)
}

// WorkTx ignores perCall: the open part of River has no batches on SQLite.
func (q *riverSQLite) WorkTx(ctx context.Context, _, _ int, note string, done func(*job)) error {
	return q.work(ctx, func(ctx context.Context, j *river.Job[riverArgs]) error {
		err := inTx(ctx, q.db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, sqlOrder, note); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riversqlite.Driver](ctx, tx, j)
			return err
		})
		if err == nil {
			done(riverJob(j))
		}
		return err
	})
}

// WorkTx ignores perCall: goqite receives one message at a time.
func (q *goqiteQueue) WorkTx(ctx context.Context, n, _ int, note string, done func(*job)) error {
	return q.work(ctx, n, func(ctx context.Context, id goqite.ID, j *job) error {
		err := inTx(ctx, q.db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, sqlOrder, note); err != nil {
				return err
			}
			return q.queue.DeleteTx(ctx, tx, id)
		})
		if err == nil {
			done(j)
		}
		return err
	})
}
