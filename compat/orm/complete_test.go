// Package orm_test has transactions and handlers that write with other libraries than database/sql, and
// enqueue and complete jobs in the transactions of these.
package orm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// charge is a job that is done with one receipt, the row that its handler writes.
type charge struct{ N int }

func (charge) Kind() string { return "charge" }

// receipt is that row. The table has no unique constraint: a second one would be seen.
type receipt struct{ N, Attempt int }

func (receipt) TableName() string { return "receipt" }

var errDeclined = errors.New("declined")

// pay is a handler that writes a receipt and completes the job in a transaction of a
// library, which it commits unless fail returns an error at its end.
type pay func(ctx context.Context, job *errand.Job[charge], fail func() error) error

func bySQLx(pool *sql.DB) (pay, error) {
	db := sqlx.NewDb(pool, "sqlite")
	return func(ctx context.Context, job *errand.Job[charge], fail func() error) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the commit there is nothing to roll back
		_, err = tx.NamedExecContext(ctx, "INSERT INTO receipt (n, attempt) VALUES (:n, :attempt)", receipt{job.Args.N, job.Attempt})
		if err := errors.Join(err, job.CompleteTx(ctx, tx.Tx), fail()); err != nil {
			return err
		}
		return tx.Commit()
	}, nil
}

// openGORM opens a pool of modernc.org/sqlite. The dialector is that of GORM; the driver that
// it imports is not used, and without cgo not there.
func openGORM(pool *sql.DB, c gorm.Config) (*gorm.DB, error) {
	return gorm.Open(sqlite.Dialector{Conn: pool}, &c)
}

// plainTx returns the transaction that GORM has begun.
func plainTx(db *gorm.DB) (*sql.Tx, error) {
	switch pool := db.Statement.ConnPool.(type) {
	case *sql.Tx:
		return pool, nil
	case *gorm.PreparedStmtTX:
		if tx, ok := pool.Tx.(*sql.Tx); ok {
			return tx, nil
		}
	}
	return nil, fmt.Errorf("transactions of GORM are %T", db.Statement.ConnPool)
}

// inGORM writes the receipt in a transaction of GORM that has begun.
func inGORM(ctx context.Context, db *gorm.DB, job *errand.Job[charge], fail func() error) error {
	tx, err := plainTx(db)
	if err != nil {
		return err
	}
	return errors.Join(db.Create(&receipt{job.Args.N, job.Attempt}).Error, job.CompleteTx(ctx, tx), fail())
}

func byGORM(c gorm.Config) func(pool *sql.DB) (pay, error) {
	return func(pool *sql.DB) (pay, error) {
		db, err := openGORM(pool, c)
		return func(ctx context.Context, job *errand.Job[charge], fail func() error) error {
			return db.WithContext(ctx).Transaction(func(db *gorm.DB) error { return inGORM(ctx, db, job, fail) })
		}, err
	}
}

// byGORMNested commits a transaction in which another one, a savepoint, may have been rolled
// back.
func byGORMNested(pool *sql.DB) (pay, error) {
	db, err := openGORM(pool, gorm.Config{})
	return func(ctx context.Context, job *errand.Job[charge], fail func() error) (inner error) {
		return errors.Join(db.WithContext(ctx).Transaction(func(db *gorm.DB) error {
			inner = db.Transaction(func(db *gorm.DB) error { return inGORM(ctx, db, job, fail) })
			return nil
		}), inner)
	}, err
}

// A job ends with the transaction of whatever library its handler has completed it in, and
// only then: it is done and has one receipt.
func TestCompleteTx(t *testing.T) {
	for name, open := range map[string]func(*sql.DB) (pay, error){
		"sqlx":                     bySQLx,
		"GORM":                     byGORM(gorm.Config{}),
		"GORM, prepared":           byGORM(gorm.Config{PrepareStmt: true}),
		"GORM, in a nested":        byGORMNested,
		"GORM, no own transaction": byGORM(gorm.Config{SkipDefaultTransaction: true}),
	} {
		for how, c := range map[string]struct {
			fail, ignore bool
			want         string // attempts, and the errors of those that failed
		}{
			"committed":                {want: "1"},
			"committed, ignored":       {ignore: true, want: "1"},
			"rolled back":              {fail: true, want: "2: " + errDeclined.Error()},
			"rolled back, and ignored": {fail: true, ignore: true, want: "2: " + errand.ErrNotCommitted.Error()},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				f := openFile(t)
				pay, err := open(f.db)
				if err != nil {
					t.Fatal(err)
				}
				info := f.run(t, func(ctx context.Context, job *errand.Job[charge]) error {
					err := pay(ctx, job, func() error {
						if c.fail && job.Attempt == 1 {
							return errDeclined
						}
						return nil
					})
					if c.ignore {
						return nil
					}
					return err
				})
				got := fmt.Sprint(info.Attempt)
				for _, failure := range info.History {
					got += ": " + failure.Error
				}
				if info.State != errand.Done || got != c.want {
					t.Errorf("the job is %s after %q, want it done after %q", info.State, got, c.want)
				}
				f.wantReceipt(t, receipt{7, info.Attempt})
			})
		}
	}
}

// The transaction of the queue can be passed on to other libraries.
func TestFinish(t *testing.T) {
	for name, write := range map[string]func(ctx context.Context, tx *sql.Tx, r receipt) error{
		"sqlx": func(ctx context.Context, tx *sql.Tx, r receipt) error {
			query, args, err := sqlx.Named("INSERT INTO receipt (n, attempt) VALUES (:n, :attempt)", r)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, query, args...)
			return err
		},
		"GORM": func(ctx context.Context, tx *sql.Tx, r receipt) error {
			db, err := gorm.Open(sqlite.Dialector{Conn: tx}, &gorm.Config{SkipDefaultTransaction: true, DisableAutomaticPing: true})
			if err != nil {
				return err
			}
			return db.WithContext(ctx).Create(&r).Error
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFile(t)
			info := f.run(t, func(ctx context.Context, job *errand.Job[charge]) error {
				return job.Finish(ctx, func(tx *sql.Tx) error { return write(ctx, tx, receipt{job.Args.N, job.Attempt}) })
			})
			if info.State != errand.Done || info.Attempt != 1 {
				t.Errorf("the job is %s after %d attempts: %+v", info.State, info.Attempt, info.History)
			}
			f.wantReceipt(t, receipt{7, 1})
		})
	}
}

// file is a queue in the file of an application.
type file struct {
	q  *errand.Queue
	db *sql.DB // of the application
}

func openFile(t *testing.T) *file {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Exec("CREATE TABLE receipt (n INTEGER, attempt INTEGER)"); err != nil {
		t.Fatal(err)
	}
	q, err := errand.Open(t.Context(), path, &errand.Options{
		Policy: policy.Policy{Retries: 3, NoDelayRetries: 3}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return &file{q, db}
}

// run enqueues job 7, and returns it as it has ended.
func (f *file) run(t *testing.T, handle func(context.Context, *errand.Job[charge]) error) errand.JobInfo {
	t.Helper()
	e, err := f.q.Enqueue(t.Context(), charge{7}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := errand.NewWorker(f.q, nil)
	errand.Handle(w, handle)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub, err := f.q.Subscribe(ctx, errand.EventFilter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for event := range sub.Events() {
		if event.Type == errand.EventDone || event.Type == errand.EventDead || event.Type == errand.EventCancelled {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	info, err := f.q.Job(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func (f *file) wantReceipt(t *testing.T, want receipt) {
	t.Helper()
	var got []receipt
	if err := sqlx.NewDb(f.db, "sqlite").Select(&got, "SELECT n, attempt FROM receipt"); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("receipts %+v, want %+v", got, want)
	}
}
