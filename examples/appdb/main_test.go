package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
)

// The program takes an order, confirms it, and leaves a file that is closed.
//
//errand:shows the program for one's own database | | it closes worker, queue and database in that order, and its order is there with its job done
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	path := filepath.Join(t.TempDir(), "app.db")
	err := run(ctx, path, func(_ context.Context, job *errand.Job[Confirm]) error {
		if job.Args.Email != "ada@example.org" {
			t.Errorf("confirmed to %q", job.Args.Email)
		}
		stop()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(path + "-wal"); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v: want the log to be gone with the last connection", left, err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var orders int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&orders); err != nil || orders != 1 {
		t.Errorf("%d orders, %v: want 1", orders, err)
	}
	q, err := errand.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if counts, err := q.Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].N != 1 || counts[0].State != errand.Done {
		t.Errorf("Counts returned %v, %v: want one job, done", counts, err)
	}
}
