package cookbook_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

type remindUser struct{ Name string }

func (remindUser) Kind() string { return "remind_user" }

// In a bubble of testing/synctest a quarter of a year is over in seconds, also
// with a queue on a file. It cannot be an Example, as a bubble needs a test.
//
//errand:shows time in tests | | a queue on a file, or beside the pool of an application, works in a bubble of testing/synctest: 90 days are over in seconds
func TestExample_synctest(t *testing.T) {
	for name, open := range map[string]func(*testing.T, string) *errand.Queue{"file": openFile, "pool": openBesidePool} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "jobs.db")
			synctest.Test(t, func(t *testing.T) { testQuarter(t, open(t, path)) })
		})
	}
}

func openFile(t *testing.T, path string) *errand.Queue {
	q, err := errand.Open(t.Context(), path, &errand.Options{
		SQLite: errand.SQLiteOptions{Durability: errand.Relaxed},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// openBesidePool opens the queue in the application's database, whose pool ends
// in the bubble too.
func openBesidePool(t *testing.T, path string) *errand.Queue {
	db := must(sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)"))
	t.Cleanup(func() { check(db.Close()) })
	must(db.ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER PRIMARY KEY)`))
	quiet := slog.New(slog.DiscardHandler)
	store := must(sqlite.New(db, &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet}))
	return must(errand.New(t.Context(), store, &errand.Options{Logger: quiet}))
}

func testQuarter(t *testing.T, q *errand.Queue) {
	w := errand.NewWorker(q, nil)
	ran := make(chan time.Time, 1)
	errand.Handle(w, func(context.Context, *errand.Job[remindUser]) error {
		ran <- time.Now()
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	const quarter = 90 * 24 * time.Hour
	began := time.Now()
	if _, err := q.Enqueue(t.Context(), remindUser{"Ada"}, &errand.JobOptions{Delay: quarter}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(quarter + time.Second) // not <-ran: what never comes would not end the test
	synctest.Wait()
	select {
	case at := <-ran:
		if took := at.Sub(began); took < quarter {
			t.Errorf("the job ran after %v", took)
		}
	default:
		t.Error("the job did not run")
	}

	stop() // all that was started in a bubble must end in it
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
