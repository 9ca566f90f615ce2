package orm_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

// Confirm is the job of an order.
type Confirm struct{ Email string }

// Kind names the type of job.
func (Confirm) Kind() string { return "confirm" }

// order writes an order and its job in one transaction of a library.
type order func(ctx context.Context, pool *sql.DB, q *errand.Queue, email string) error

// An order and its job are there after the commit. Both are not if the job is refused.
func TestEnqueueTx(t *testing.T) {
	for name, order := range map[string]order{"GORM": orderGORM, "Bun": orderBun, "Ent": orderEnt, "sqlc": orderSQLC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFile(t)
			if _, err := f.db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)`); err != nil {
				t.Fatal(err)
			}
			want := func(what string, n int) {
				t.Helper()
				var orders int
				if err := f.db.QueryRow(`SELECT COUNT(*) FROM orders`).Scan(&orders); err != nil {
					t.Fatal(err)
				}
				jobs, err := f.q.Jobs(t.Context(), errand.JobFilter{Kind: "confirm"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if orders != n || len(jobs.Jobs) != n {
					t.Errorf("%s: %d orders and %d jobs, want %d of each", what, orders, len(jobs.Jobs), n)
				}
			}
			if err := order(t.Context(), f.db, f.q, strings.Repeat("a", 300<<10)); !errors.Is(err, errand.ErrInvalid) {
				t.Errorf("%v, want %v", err, errand.ErrInvalid)
			}
			want("rolled back", 0)
			if err := order(t.Context(), f.db, f.q, "ada@example.org"); err != nil {
				t.Error(err)
			}
			want("committed", 1)
		})
	}
}
