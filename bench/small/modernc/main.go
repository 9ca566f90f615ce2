// Command modernc is a small program with a table in SQLite, and no queue.
package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite"

	"github.com/errandq/errand/bench/small"
)

type table struct {
	db      *sql.DB
	handled func()
}

func main() {
	small.Main(func(ctx context.Context, path string, handled func()) (small.Queue, error) {
		db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)")
		if err != nil {
			return nil, err
		}
		if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, args TEXT)`); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return &table{db, handled}, nil
	})
}

func (t *table) Enqueue(ctx context.Context) error {
	_, err := t.db.ExecContext(ctx, `INSERT INTO job (args) VALUES ('{}')`)
	t.handled()
	return err
}

func (t *table) Close() error { return t.db.Close() }
