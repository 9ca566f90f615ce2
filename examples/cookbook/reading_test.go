package cookbook_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// The application's tables are in the queue's file. It writes them by q.Tx, and
// reads them by a pool of its own, which holds up nobody.
func Example_readingBeside() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "errand-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "jobs.db")

	q := must(errand.Open(ctx, path, nil)) // first
	defer q.Close()
	db := must(sqlite.OpenDB(path, "query_only(1)"))
	defer db.Close()

	check(q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL);
			INSERT INTO orders (email) VALUES ('ada@example.org')`)
		return err
	}))
	var email string
	check(db.QueryRowContext(ctx, `SELECT email FROM orders WHERE id = 1`).Scan(&email))
	fmt.Println(email)
	// Output:
	// ada@example.org
}
