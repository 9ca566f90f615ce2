package errandtest_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// openApp opens the database of an application, with a table, and a store on it that is not closed.
func openApp(t testing.TB) (*sqlx.DB, *sqlite.Store) {
	t.Helper()
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "app.db"), "foreign_keys(1)")
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	_, err = db.ExecContext(context.Background(), `CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE)`)
	check(t, err)
	store, err := sqlite.New(db, &sqlite.Options{Durability: sqlite.Relaxed, Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	return sqlx.NewDb(db, "sqlite"), store
}

// users returns how many users there are, as one that asks the database sees it.
func users(t testing.TB, db interface {
	QueryRow(query string, args ...any) *sql.Row
}) (n int) {
	t.Helper()
	check(t, db.QueryRow(`SELECT COUNT(*) FROM users`).Scan(&n))
	return n
}

// On the application's own database all works that works on a file of New.
//
//errand:shows tests of users | | NewOn does for a store of the application's own database what New does: transactions of database/sql and sqlx, attempts, time, crashes, the look at the file
func TestNewOn(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		db, store := openApp(t)
		q := errandtest.NewOn(t, store, nil)
		signUp := func(email string) error { // as the application does it
			tx, err := db.BeginTxx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := q.EnqueueTx(t.Context(), tx.Tx, SendEmail{email}, &errand.JobOptions{Delay: 90 * 24 * time.Hour}); err != nil {
				return err
			}
			errandtest.RequireEnqueuedTx(t, q, tx.Tx, to(email))
			if _, err := tx.NamedExecContext(t.Context(), `INSERT INTO users (email) VALUES (:email)`, map[string]any{"email": email}); err != nil {
				return err
			}
			return tx.Commit()
		}
		check(t, signUp("ada"))
		if err := signUp("ada"); err == nil {
			t.Error("there are two users of one name")
		}
		if jobs := errandtest.RequireEnqueued(t, q, to("ada")); len(jobs) != 1 || users(t, db) != 1 {
			t.Errorf("%d jobs, %d users: want one of each", len(jobs), users(t, db))
		}
		if a := errandtest.Perform(t, q, done, SendEmail{"at once"}, nil); a.Event.Type != errand.EventDone {
			t.Errorf("the attempt has ended as %s", a.Event.Type)
		}

		failed := false
		w := worker(q, func(context.Context, *errand.Job[SendEmail]) error {
			if !failed {
				failed = true
				return errDown
			}
			return nil
		})
		began := q.Clock().Now
		got := errandtest.Drain(t, q, w, &errandtest.DrainOptions{Scheduled: true})
		if want := (errandtest.Counts{Attempts: 2, Retried: 1, Done: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if passed := q.Clock().Now.Sub(began); passed < 89*24*time.Hour {
			t.Errorf("the clock has moved on by %v, want 90 days", passed)
		}
	})
}

// The next process finds the application's tables as they were committed, and goes on by the same
// clock.
func TestNewOn_crash(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		db, store := openApp(t)
		q := errandtest.NewOn(t, store, nil)
		_, err := db.Exec(`INSERT INTO users (email) VALUES ('ada')`)
		check(t, err)
		enqueue(t, q, SendEmail{"ada"}, nil)
		var next *errand.Queue
		errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error {
			next = errandtest.Crash(t, q)
			_, err := db.Exec(`DELETE FROM users`)
			return err
		}), nil)
		check(t, next.Tx(t.Context(), func(tx *sql.Tx) error {
			if n := users(t, tx); n != 1 {
				t.Errorf("the next process finds %d users, want 1", n)
			}
			return nil
		}))
		got := errandtest.Drain(t, next, worker(next, done), &errandtest.DrainOptions{Scheduled: true})
		if want := (errandtest.Counts{Attempts: 1, Done: 1, Crashed: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// The queue ends with its test, and the database is the application's to use and to close.
func TestNewOn_end(t *testing.T) {
	db, store := openApp(t)
	if got := failure(t, func(t testing.TB) { enqueue(t, errandtest.NewOn(t, store, nil), SendEmail{"ada"}, nil) }); got != "" {
		t.Errorf("a file that is whole: %s", got)
	}
	if n := users(t, db); n != 0 {
		t.Errorf("%d users", n)
	}
	if _, err := store.Counts(t.Context()); err == nil {
		t.Error("the store is open after the test")
	}
	store, err := sqlite.New(db.DB, &sqlite.Options{Durability: sqlite.Relaxed, Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	wantFailure(t, func(t testing.TB) {
		enqueue(t, errandtest.NewOn(t, store, nil), SendEmail{"ada"}, nil)
		_, err := db.Exec(`UPDATE errand_number SET n = n + 1 WHERE id >= 32 AND id % 32 = 2`)
		check(t, err)
	}, "errandtest: the file is damaged")
}

// What the caller has done wrong is said, and no store is left open.
func TestNewOn_refuses(t *testing.T) {
	_, store := openApp(t)
	wantFailure(t, func(t testing.TB) { errandtest.NewOn(t, nil, nil) }, "NewOn: the store is nil")
	wantFailure(t, func(t testing.TB) { errandtest.NewOn(t, (*sqlite.Store)(nil), nil) }, "NewOn: the store is nil")
	errandtest.NewOn(t, store, nil)
	wantFailure(t, func(t testing.TB) { errandtest.NewOn(t, store, nil) }, "the store is that of another queue: open one for each queue")

	_, store = openApp(t)
	wantFailure(t, func(t testing.TB) {
		errandtest.NewOn(t, store, &errand.Options{SQLite: errand.SQLiteOptions{Durability: errand.Relaxed}})
	}, "sqlite.durability")
	wantFailure(t, func(t testing.TB) { errandtest.NewOn(t, store, nil) }, "closed")

	_, store = openApp(t)
	q := errandtest.NewOn(t, noFile{store}, nil)
	enqueue(t, q, SendEmail{"ada"}, nil)
	wantFailure(t, func(t testing.TB) { errandtest.Crash(t, q) }, "on a SQLite file")
}

// noFile is a store that does not say where its file is.
type noFile struct{ storage.Store }
