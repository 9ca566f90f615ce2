//go:build dbos

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"
)

func init() {
	systems = append(systems,
		entry{name: "dbos", peer: true, unsynced: true, open: openDBOS, about: "v1.8.0, a sqlite: URL, and so synchronous=NORMAL; one connection, poll 20 ms"},
		entry{name: "dbos-full", peer: true, open: openDBOSFull, about: "the same with synchronous=FULL"},
	)
}

// dbosQueue is DBOS Transact with a job for each workflow, which has no steps. Workflows that
// are done are kept: DBOS deletes none by itself.
type dbosQueue struct {
	dbos dbos.Context
	db   *sql.DB // the pool that DBOS uses
	path string
	own  bool // db is not DBOS's to close

	mu     sync.Mutex
	handle func(context.Context, *job) error
}

const (
	dbosName = "work" // of the queue and of the workflow
	// dbosPoll is how often a queue is looked at. The default is a second, so a job
	// would wait for half of one.
	dbosPoll = 20 * time.Millisecond
	// dbosSettle is how often it is asked whether all that was begun has ended.
	dbosSettle = 2 * time.Millisecond
	dbosStop   = time.Minute
)

// openDBOS opens a file by URL, as the README of DBOS does.
func openDBOS(ctx context.Context, s setup) (system, error) {
	return newDBOS(ctx, s, dbos.Config{DatabaseURL: "sqlite:" + s.path}, nil)
}

// openDBOSFull passes a pool that is as DBOS opens its own, apart from synchronous: DBOS
// overrides that of a URL on one of its connections.
func openDBOSFull(ctx context.Context, s setup) (system, error) {
	level := "FULL"
	if s.relaxed {
		level = "NORMAL"
	}
	db, err := sql.Open("sqlite", s.path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous("+level+")")
	if err != nil {
		return nil, err
	}
	q, err := newDBOS(ctx, s, dbos.Config{SQLiteSystemDB: db}, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

func newDBOS(ctx context.Context, s setup, cfg dbos.Config, db *sql.DB) (system, error) {
	cfg.AppName, cfg.Logger = "bench", slog.New(slog.DiscardHandler)
	c, err := dbos.NewContext(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, err
	}
	q := &dbosQueue{dbos: c, db: db, path: s.path, own: db != nil}
	if q.db == nil {
		if q.db, err = dbosPool(c); err != nil {
			return nil, errors.Join(err, dbos.Shutdown(c, dbosStop))
		}
	}
	// With its eight connections 64 callers can meet SQLITE_BUSY: each waits for 5 s at most.
	q.db.SetMaxOpenConns(1)
	dbos.RegisterWorkflow(c, q.run, dbos.WithWorkflowName(dbosName))
	if _, err := dbos.RegisterQueue(c, dbosName, dbos.WithQueueBasePollingInterval(dbosPoll)); err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, dbosStop))
	}
	return q, nil
}

// dbosPool returns the pool that DBOS has opened. It has a method for that, whose type is
// in a package of its own.
func dbosPool(c dbos.Context) (*sql.DB, error) {
	method := reflect.ValueOf(c).MethodByName("SystemDB")
	if !method.IsValid() {
		return nil, fmt.Errorf("bench: %T has no SystemDB", c)
	}
	p, ok := method.Call(nil)[0].Interface().(interface{ Pool() dbos.Pool })
	if !ok {
		return nil, errors.New("bench: the database of DBOS has no pool")
	}
	return dbos.SQLDB(p.Pool()), nil
}

// run is the workflow.
func (q *dbosQueue) run(ctx dbos.Context, p payload) (string, error) {
	q.mu.Lock()
	handle := q.handle
	q.mu.Unlock()
	return "", handle(ctx, &job{payload: p, Attempt: 1})
}

func (q *dbosQueue) Enqueue(_ context.Context, j newJob) error {
	_, err := dbos.Enqueue[string](q.dbos, dbosName, dbosName, j.payload)
	return err
}

func (q *dbosQueue) EnqueueMany(ctx context.Context, jobs []newJob) error {
	return inTx(ctx, q.db, func(tx *sql.Tx) error {
		for i := range jobs {
			if err := q.enqueueIn(tx, &jobs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *dbosQueue) EnqueueTx(ctx context.Context, j newJob, note string) error {
	return inTx(ctx, q.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sqlOrder, note); err != nil {
			return err
		}
		return q.enqueueIn(tx, &j)
	})
}

func (q *dbosQueue) enqueueIn(tx *sql.Tx, j *newJob) error {
	_, err := dbos.Enqueue[string](q.dbos, dbosName, dbosName, j.payload, dbos.WithEnqueueTransaction(tx))
	return err
}

// Work ignores n: by default DBOS starts all jobs that are there. Its Shutdown leaves the
// outcome of workflows that are about to end unwritten, so Work waits for these first.
func (q *dbosQueue) Work(ctx context.Context, _ int, handle func(context.Context, *job) error) error {
	q.mu.Lock()
	q.handle = handle
	q.mu.Unlock()
	if err := dbos.Launch(q.dbos); err != nil {
		return err
	}
	<-ctx.Done()
	var err error
	for n := 1; n > 0 && err == nil; {
		err = q.db.QueryRowContext(context.WithoutCancel(ctx), `SELECT count(*) FROM workflow_status WHERE status = 'PENDING'`).Scan(&n)
		if n > 0 {
			time.Sleep(dbosSettle)
		}
	}
	return errors.Join(err, dbos.Shutdown(q.dbos, dbosStop))
}

// Left opens the file anew, as Work has closed the pool of DBOS.
func (q *dbosQueue) Left(ctx context.Context) (n int, err error) {
	db, err := sql.Open("sqlite", q.path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM workflow_status WHERE status IN ('ENQUEUED', 'DELAYED', 'PENDING')`).Scan(&n)
	return n, err
}

func (q *dbosQueue) Durability(ctx context.Context) (string, error) { return durability(ctx, q.db) }

func (q *dbosQueue) Close() error {
	err := dbos.Shutdown(q.dbos, dbosStop)
	if q.own {
		err = errors.Join(err, q.db.Close())
	}
	return err
}
