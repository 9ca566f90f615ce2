// Command river is a small program with River on SQLite, and its defaults.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"

	"github.com/errandq/errand/bench/small"
)

type work struct{}

func (work) Kind() string { return "work" }

type queue struct {
	db     *sql.DB
	client *river.Client[*sql.Tx]
}

func main() {
	small.Main(func(ctx context.Context, path string, handled func()) (small.Queue, error) {
		db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		c, err := start(ctx, db, handled)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return queue{db, c}, nil
	})
}

func start(ctx context.Context, db *sql.DB, handled func()) (*river.Client[*sql.Tx], error) {
	driver, silent := riversqlite.New(db), slog.New(slog.DiscardHandler)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent})
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[work]) error {
		handled()
		return nil
	}))
	c, err := river.NewClient(driver, &river.Config{
		Logger: silent, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
	})
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

func (q queue) Enqueue(ctx context.Context) error {
	_, err := q.client.Insert(ctx, work{}, nil)
	return err
}

func (q queue) Close() error { return errors.Join(q.client.Stop(context.Background()), q.db.Close()) }
