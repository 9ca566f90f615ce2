package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River on a database whose driver has transactions of type T.
type riverQueue[T any] struct {
	client *river.Client[T]
	worker *riverWorker
}

// riverSQLite is River on SQLite: one connection, as its documentation says, WAL
// as in its own tests, and the settings of its own benchmark.
type riverSQLite struct {
	riverQueue[*sql.Tx]
	db *sql.DB
}

// riverPragmas leave synchronous as the driver has it.
var riverPragmas = []string{"busy_timeout(5000)", "journal_mode(WAL)"}

// The settings of cmd/river/riverbench.
const (
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	riverWorkers  = 2000
)

func openRiver(ctx context.Context, s setup) (system, error) {
	db, err := s.open(riverPragmas...)
	if err != nil {
		return nil, err
	}
	q := &riverSQLite{db: db}
	if err := q.open(ctx, riversqlite.New(db), &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
		MaxAttempts: s.retries + 1,
		Queues:      map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

// open makes the tables, and a client of cfg with the one worker.
func (q *riverQueue[T]) open(ctx context.Context, driver riverdriver.Driver[T], cfg *river.Config) error {
	silent := slog.New(slog.DiscardHandler)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	q.worker = &riverWorker{}
	workers := river.NewWorkers()
	river.AddWorker(workers, q.worker)
	cfg.Logger, cfg.Workers = silent, workers
	q.client, err = river.NewClient(driver, cfg)
	return err
}

// riverArgs are a payload as River takes it.
type riverArgs payload

func (riverArgs) Kind() string { return "work" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]

	mu     sync.Mutex
	handle func(context.Context, *river.Job[riverArgs]) error
}

func (w *riverWorker) Work(ctx context.Context, j *river.Job[riverArgs]) error {
	w.mu.Lock()
	handle := w.handle
	w.mu.Unlock()
	return handle(ctx, j)
}

func riverJob(j *river.Job[riverArgs]) *job {
	return &job{payload: payload(j.Args), Attempt: j.Attempt}
}

func (q *riverQueue[T]) Enqueue(ctx context.Context, j newJob) error {
	_, err := q.client.Insert(ctx, riverArgs(j.payload), nil)
	return err
}

func (q *riverQueue[T]) EnqueueMany(ctx context.Context, jobs []newJob) error {
	all := make([]river.InsertManyParams, len(jobs))
	for i := range jobs {
		all[i].Args = riverArgs(jobs[i].payload)
	}
	_, err := q.client.InsertMany(ctx, all)
	return err
}

func (q *riverSQLite) EnqueueTx(ctx context.Context, j newJob, note string) error {
	return inTx(ctx, q.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sqlOrder, note); err != nil {
			return err
		}
		_, err := q.client.InsertTx(ctx, tx, riverArgs(j.payload), nil)
		return err
	})
}

// Work ignores n for the number of River's own benchmark.
func (q *riverQueue[T]) Work(ctx context.Context, _ int, handle func(context.Context, *job) error) error {
	return q.work(ctx, func(ctx context.Context, j *river.Job[riverArgs]) error { return handle(ctx, riverJob(j)) })
}

func (q *riverQueue[T]) work(ctx context.Context, handle func(context.Context, *river.Job[riverArgs]) error) error {
	q.worker.mu.Lock()
	q.worker.handle = handle
	q.worker.mu.Unlock()
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := q.client.Start(run); err != nil {
		return err
	}
	<-ctx.Done()
	return q.client.Stop(run)
}

// riverLeft counts the jobs that are not finished.
const riverLeft = `SELECT count(*) FROM river_job WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled')`

func (q *riverSQLite) Left(ctx context.Context) (n int, err error) {
	err = q.db.QueryRowContext(ctx, riverLeft).Scan(&n)
	return n, err
}

func (q *riverSQLite) Durability(ctx context.Context) (string, error) { return durability(ctx, q.db) }

func (q *riverSQLite) Close() error { return q.db.Close() }
