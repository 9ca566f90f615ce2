//go:build postgres

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage/postgres"
)

func init() {
	servers = []entry{
		{name: "postgres", open: openErrandPostgres, extra: true, server: true, about: "errand on PostgreSQL, which is being built, with its defaults"},
		{name: "river-postgres", open: openRiverPostgres, peer: true, extra: true, server: true, about: "v0.51.2 on pgx, its defaults, 100 workers"},
		{name: "river-postgres-tuned", open: openRiverTuned, peer: true, extra: true, server: true, about: "v0.51.2 on pgx, the settings of its own benchmark"},
	}
}

// A system on PostgreSQL has a new server of its own, with the settings of a new cluster:
// commits are synced. What the server uses is not measured, but how long it takes is.

// serverDurability returns what a connection does for a commit.
func serverDurability(ctx context.Context, dsn string) (string, error) {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var fsync, commit, version string
	err = c.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('server_version')`).Scan(&fsync, &commit, &version)
	return fmt.Sprintf("PostgreSQL %s, fsync %s, synchronous_commit %s", version, fsync, commit), err
}

func startServer(s setup) (*pgtest.Instance, error) {
	if s.relaxed {
		return pgtest.Start("synchronous_commit=off")
	}
	return pgtest.Start()
}

// errandPostgres is errand on PostgreSQL, with its defaults.
type errandPostgres struct {
	system // without what else errand can on SQLite
	server *pgtest.Instance
}

func openErrandPostgres(ctx context.Context, s setup) (system, error) {
	server, err := startServer(s)
	if err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, server.DSN(), nil)
	if err != nil {
		server.Stop()
		return nil, err
	}
	q, err := errand.New(ctx, store, errandOptions(s))
	if err != nil {
		err = errors.Join(err, store.Close())
		server.Stop()
		return nil, err
	}
	return &errandPostgres{&errandQueue{q: q, queues: s.queues}, server}, nil
}

func (q *errandPostgres) Durability(ctx context.Context) (string, error) {
	return serverDurability(ctx, q.server.DSN())
}

func (q *errandPostgres) Close() error {
	defer q.server.Stop()
	return q.system.Close()
}

// riverPostgres is River on PostgreSQL.
type riverPostgres struct {
	riverQueue[pgx.Tx]
	pool   *pgxpool.Pool
	server *pgtest.Instance
}

// riverDefaultWorkers is what River's documentation has: there is no default.
const riverDefaultWorkers = 100

// openRiverPostgres opens River at its defaults.
func openRiverPostgres(ctx context.Context, s setup) (system, error) {
	return openRiverOn(ctx, s, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverDefaultWorkers}},
	})
}

// openRiverTuned opens River with the settings of its own benchmark.
func openRiverTuned(ctx context.Context, s setup) (system, error) {
	return openRiverOn(ctx, s, &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
	})
}

func openRiverOn(ctx context.Context, s setup, cfg *river.Config) (system, error) {
	server, err := startServer(s)
	if err != nil {
		return nil, err
	}
	cfg.MaxAttempts = s.retries + 1
	q := &riverPostgres{server: server}
	if q.pool, err = pgxpool.New(ctx, server.DSN()); err == nil {
		if err = q.open(ctx, riverpgxv5.New(q.pool), cfg); err != nil {
			q.pool.Close()
		}
	}
	if err != nil {
		server.Stop()
		return nil, err
	}
	return q, nil
}

func (q *riverPostgres) Left(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, riverLeft).Scan(&n)
	return n, err
}

func (q *riverPostgres) Durability(ctx context.Context) (string, error) {
	return serverDurability(ctx, q.server.DSN())
}

func (q *riverPostgres) Close() error {
	q.pool.Close()
	q.server.Stop()
	return nil
}
