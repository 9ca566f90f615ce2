package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"

	driver "modernc.org/sqlite"
)

// errandPragmas are those of errand's writer, for the loops that are compared
// with it.
var errandPragmas = []string{
	"busy_timeout(5000)", "synchronous(FULL)", "wal_autocheckpoint(4000)", "trusted_schema(0)", "temp_store(MEMORY)", "journal_mode(WAL)",
}

func init() {
	// As errand asks for; before any file is opened, so that all systems have
	// the same locks.
	if _, err := driver.OFDLocking(true); err != nil {
		panic(err)
	}
}

// open opens the file with one connection.
func (s *setup) open(pragmas ...string) (*sql.DB, error) {
	if s.relaxed {
		pragmas = append(slices.Clone(pragmas), "synchronous(NORMAL)") // the last one counts
	}
	return openDB(s.path, 1, pragmas...)
}

// openDB opens a file with at most n connections.
func openDB(path string, n int, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": pragmas}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// ballast is how much warm writes: more than the WAL holds before it is
// checkpointed by any system.
const ballast = 20 << 20

// warm brings an open database into the state of one that has been used for a
// while: the WAL has reached its full size, is checkpointed, and is written
// again from its start. Commits that make a file longer take about twice the
// time, so whoever writes more would otherwise get over it sooner.
func warm(ctx context.Context, path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return withDB(path, func(db *sql.DB) error {
		for _, text := range []string{
			"CREATE TABLE IF NOT EXISTS bench_ballast (b BLOB)",
			"PRAGMA wal_autocheckpoint = 0",
			fmt.Sprintf("INSERT INTO bench_ballast VALUES (zeroblob(%d))", ballast),
			"PRAGMA wal_checkpoint(FULL)",
		} {
			if _, err := db.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkpoint puts all that is in the WAL into the database file.
func checkpoint(ctx context.Context, path string) error {
	return withDB(path, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
		return err
	})
}

// makeOrders makes the table of the application, unless it is there.
func makeOrders(ctx context.Context, path string) error {
	return withDB(path, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS app_order (id INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT")
		return err
	})
}

// withDB does something on a connection of its own.
func withDB(path string, f func(db *sql.DB) error) (err error) {
	db, err := openDB(path, 1, "busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}
