package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

func openTemp(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A context that ends after the first row, when database/sql has closed the
// rows under the reader.
//
//errand:shows a context that ends while a database is read | | the call returns the error of the context; only proven damage is called damage
func TestReading_ContextEndsBetweenRows(t *testing.T) {
	s := openTemp(t)
	ctx, cancel := context.WithCancel(context.Background())
	err := s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		rows, err := tx.Query("SELECT 1 UNION SELECT 2")
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		cancel()
		for n := 0; err == nil; { // until the rows are closed
			err = rows.Scan(&n)
		}
		return err
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// What looks at the database of a transaction whose context has ended learns
// nothing of it.
//
//errand:shows a context that ends while a database is read
func TestCheckDatabase_ContextEnded(t *testing.T) {
	s := openTemp(t)
	ctx, cancel := context.WithCancel(context.Background())
	tx, err := s.apps.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for err == nil { // until database/sql has noticed
		_, err = tx.Exec("SELECT 1")
	}
	err = s.checkDatabase(plain{context.Background(), tx})
	if !endedTx(err) || errors.Is(err, storage.ErrWrongDatabase) {
		t.Errorf("error %v, want that of the transaction", err)
	}
}

// Only what a Scan could not convert is damage, and what our own scanners say.
//
//errand:shows a context that ends while a database is read
func TestUnread(t *testing.T) {
	s := openTemp(t)
	var n int
	misfit := s.read.QueryRow("SELECT 'text'").Scan(&n)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{misfit, true},
		{fmt.Errorf("%w: a job is in state 9", storage.ErrCorrupt), true},
		{errors.New("sql: Rows are closed"), false},
		{sql.ErrTxDone, false},
		{errors.New("something else"), false},
		{nil, false},
	} {
		if got := errors.Is(unread(c.err), storage.ErrCorrupt); got != c.want {
			t.Errorf("%v: is called damage: %t, want %t", c.err, got, c.want)
		}
	}
}

// Contexts end at any moment of reads and of enqueuing in the application's
// transaction.
//
//errand:shows a context that ends while a database is read
func TestContexts_EndAnywhere(t *testing.T) {
	s := openTemp(t)
	jobs := make([]storage.NewJob, 50)
	for i := range jobs {
		jobs[i] = storage.NewJob{Queue: "q", Kind: fmt.Sprint(i), Args: []byte("{}")}
	}
	now := time.Now()
	enqueued, err := s.Enqueue(context.Background(), now, jobs)
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"counts": func(ctx context.Context) error {
			_, err := s.Counts(ctx)
			return err
		},
		"job": func(ctx context.Context) error {
			_, err := s.Job(ctx, enqueued[0].ID)
			return err
		},
		"reclaim": func(ctx context.Context) error {
			_, err := s.Reclaim(ctx, now, 0, time.Second, 10)
			return err
		},
		"enqueue in a transaction": func(ctx context.Context) error {
			tx, err := s.apps.BeginTx(ctx, nil)
			if err != nil {
				return ended(ctx, err)
			}
			defer func() { _ = tx.Rollback() }()
			_, err = s.EnqueueTx(context.Background(), tx, now, jobs)
			return err
		},
	} {
		for range 200 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(int64(time.Millisecond))))
			err := call(ctx)
			cancel()
			if err != nil && !endedTx(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
