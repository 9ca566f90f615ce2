package cookbook_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
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

func openFile(t *testing.T, _ string) *errand.Queue { return errandtest.New(t, nil) }

// openBesidePool opens the queue in the application's database, whose pool ends
// in the bubble too.
func openBesidePool(t *testing.T, path string) *errand.Queue {
	db := must(sqlite.OpenDB(path))
	t.Cleanup(func() { check(db.Close()) })
	must(db.ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER PRIMARY KEY)`))
	return errandtest.NewOn(t, must(sqlite.New(db, nil)), nil)
}

func testQuarter(t *testing.T, q *errand.Queue) {
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[remindUser]) error { return nil })
	const quarter = 90 * 24 * time.Hour
	began := time.Now()
	if _, err := q.Enqueue(t.Context(), remindUser{"Ada"}, &errand.JobOptions{Delay: quarter}); err != nil {
		t.Fatal(err)
	}
	got := errandtest.Drain(t, q, w, &errandtest.DrainOptions{Scheduled: true})
	if took := time.Since(began); got.Done != 1 || took < quarter {
		t.Errorf("%+v after %v: want the job done after %v", got, took, quarter)
	}
}
