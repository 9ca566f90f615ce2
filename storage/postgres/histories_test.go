package postgres_test

import (
	"context"
	"testing"

	"github.com/errandq/errand/storage/storagetest"
)

// The features of overlapping histories that the Store does not have yet.
var lacking = []string{
	"caps", "change", "checkpoint", "expiry", "handoff", "holds", "run_now", "schedule", "throttles", "tx",
}

// deadlocks returns how many the server has found in this database.
func (d *db) deadlocks() (n int) {
	d.t.Helper()
	if err := d.conn.QueryRow(context.Background(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// Calls that overlap never wait for each other in a circle.
func TestStore_OverlappingHistories(t *testing.T) {
	d := newDB(t)
	before := d.deadlocks()
	storagetest.RunOverlapping(t, func(t *testing.T) storagetest.DB { return newDB(t) }, 10, storagetest.Without(lacking...))
	if n := d.deadlocks() - before; n > 0 {
		t.Errorf("the server has found %d deadlocks", n)
	}
}
