package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River on SQLite: one connection, as its documentation says, WAL
// as in its own tests, and the settings of its own benchmark.
type riverQueue struct {
	db     *sql.DB
	client *river.Client[*sql.Tx]
	worker *riverWorker
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
	q := &riverQueue{db: db, worker: &riverWorker{}}
	if err := q.open(ctx, s); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

func (q *riverQueue) open(ctx context.Context, s setup) error {
	driver := riversqlite.New(q.db)
	silent := slog.New(slog.DiscardHandler)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, q.worker)
	q.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
		Logger:      silent,
		MaxAttempts: s.retries + 1,
		Queues:      map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:     workers,
	})
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

func (q *riverQueue) Enqueue(ctx context.Context, j newJob) error {
	_, err := q.client.Insert(ctx, riverArgs(j.payload), nil)
	return err
}

func (q *riverQueue) EnqueueMany(ctx context.Context, jobs []newJob) error {
	all := make([]river.InsertManyParams, len(jobs))
	for i := range jobs {
		all[i].Args = riverArgs(jobs[i].payload)
	}
	_, err := q.client.InsertMany(ctx, all)
	return err
}

func (q *riverQueue) EnqueueTx(ctx context.Context, j newJob, note string) error {
	return inTx(ctx, q.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sqlOrder, note); err != nil {
			return err
		}
		_, err := q.client.InsertTx(ctx, tx, riverArgs(j.payload), nil)
		return err
	})
}

// Work ignores n for the number of River's own benchmark.
func (q *riverQueue) Work(ctx context.Context, _ int, handle func(context.Context, *job) error) error {
	return q.work(ctx, func(ctx context.Context, j *river.Job[riverArgs]) error { return handle(ctx, riverJob(j)) })
}

func (q *riverQueue) work(ctx context.Context, handle func(context.Context, *river.Job[riverArgs]) error) error {
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

func (q *riverQueue) Left(ctx context.Context) (n int, err error) {
	err = q.db.QueryRowContext(ctx, `SELECT count(*) FROM river_job
WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled')`).Scan(&n)
	return n, err
}

func (q *riverQueue) Durability(ctx context.Context) (string, error) { return durability(ctx, q.db) }

func (q *riverQueue) Close() error { return q.db.Close() }
