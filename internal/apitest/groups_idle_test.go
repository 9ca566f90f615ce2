package apitest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
)

// watchRows has the file note each change of a row of a job that is there now, and returns
// how many there were.
func watchRows(t *testing.T, path string) (changes func() int) {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	exec := func(format string, args ...any) {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE change (job INTEGER); CREATE TABLE watched (job INTEGER PRIMARY KEY); INSERT INTO watched SELECT id FROM errand_job`)
	for table, key := range map[string]string{"errand_job": "id", "errand_option": "job"} {
		for _, verb := range []string{"UPDATE", "DELETE"} {
			exec(`CREATE TRIGGER %[1]s_%[2]s BEFORE %[1]s ON %[2]s WHEN EXISTS (SELECT 1 FROM watched WHERE job = old.%[3]s)
BEGIN INSERT INTO change VALUES (old.%[3]s); END`, verb, table, key)
		}
	}
	return func() (n int) {
		if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM change`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// No row of a job is written while its group waits, whatever workers do for others of its
// queue and kind.
//
//errand:shows groups that wait | | no row of a job is written while its group waits, whatever workers do for others of its queue
func TestGroups_WaitingAreNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, &errand.Options{
		Logger: quiet, Retention: -1, Policy: &policy.Policy{Retries: 3, NoDelayRetries: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	later := time.Now().Add(24 * time.Hour)
	jobs := make([]errand.NewJob, 300)
	for i := range jobs { // 200 groups of one job, and one of 100
		jobs[i] = errand.NewJob{Args: note{}, Options: &errand.JobOptions{Group: fmt.Sprint(min(i, 200)), DueAt: later}}
		if i > 200 {
			jobs[i].Options.DueAt = time.Time{}
		}
	}
	added, err := q.EnqueueMany(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	changes := watchRows(t, path)
	const others = 2000
	for i := range jobs {
		jobs[i].Options = nil
		if i%3 == 0 {
			jobs[i].Options = &errand.JobOptions{Group: fmt.Sprint("other ", i%2)}
		}
	}
	for n := 0; n < others; n += len(jobs) {
		if _, err := q.EnqueueMany(t.Context(), jobs[:min(len(jobs), others-n)]); err != nil {
			t.Fatal(err)
		}
	}
	w := errand.NewWorker(q, nil)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var done, tried atomic.Int64
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		if tried.Add(1)%5 == 0 && job.Attempt == 1 {
			return errors.New("timeout")
		}
		if done.Add(1) == others {
			stop()
		}
		return nil
	})
	if err := w.Run(ctx); err != nil || done.Load() != others {
		t.Fatalf("%d others are done (%v), want %d", done.Load(), err, others)
	}
	if n := changes(); n != 0 {
		t.Errorf("%d times was a row of a job written whose group waits", n)
	}
	if _, err := q.Cancel(t.Context(), added[200].ID); err != nil {
		t.Fatal(err)
	}
	if n := changes(); n == 0 {
		t.Error("the end of a head, which lets in the next one, was not noted")
	}
}
