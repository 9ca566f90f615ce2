package main

import (
	"context"
	"database/sql"
	"net/url"
	"os"

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
	db, err := openDB(path, 1, "busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	for _, text := range []string{
		"CREATE TABLE IF NOT EXISTS bench_ballast (b BLOB)",
		"PRAGMA wal_autocheckpoint = 0",
		"INSERT INTO bench_ballast VALUES (zeroblob(?1))",
	} {
		var args []any
		if text[0] == 'I' {
			args = append(args, ballast)
		}
		if _, err := db.ExecContext(ctx, text, args...); err != nil {
			return err
		}
	}
	var busy, pages, done int
	return db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(FULL)").Scan(&busy, &pages, &done)
}

// checkpoint puts all that is in the WAL into the database file.
func checkpoint(ctx context.Context, path string) error {
	db, err := openDB(path, 1, "busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	var busy, pages, done int
	return db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &done)
}

// makeOrders makes the table of the application, unless it is there.
func makeOrders(ctx context.Context, path string) error {
	db, err := openDB(path, 1, "busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS app_order (id INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT")
	return err
}
