package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand/migrations"
	"github.com/errandq/errand/storage"
)

const (
	sqlHasMigrations = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'errand_migration'`
	sqlMigrations    = `CREATE TABLE IF NOT EXISTS errand_migration (
  version    INTEGER PRIMARY KEY,
  name       TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT`
	sqlSchemaVersion = `SELECT COALESCE(MAX(version), 0) FROM errand_migration`
	sqlMinWriter     = `SELECT n FROM errand_number WHERE id = 0`
	sqlMigrated      = `INSERT INTO errand_migration VALUES (?1, ?2, ?3)`
)

type migration struct {
	version int
	name    string
	text    string
}

// schema is the migrations this program knows, in order.
var schema = mustLoad(migrations.SQLite)

// schemaVersion is what this program can write: a database that asks for more
// of its writers is refused.
var schemaVersion = schema[len(schema)-1].version

func mustLoad(files fs.FS) []migration {
	names, err := fs.Glob(files, "sqlite/*.sql") // sorted
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("sqlite: embedded migrations: %v, %d files", err, len(names)))
	}
	var all []migration
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		base := strings.TrimSuffix(path.Base(name), ".sql")
		number, _, _ := strings.Cut(base, "_")
		v, err := strconv.Atoi(number)
		if err != nil || v != len(all)+1 {
			panic(fmt.Sprintf("sqlite: migration %s: must be number %d", name, len(all)+1))
		}
		all = append(all, migration{v, base, string(text)})
	}
	return all
}

// migrate applies the migrations that the database lacks, in one transaction.
// A database that is up to date is only read.
func migrate(ctx context.Context, conn *sql.Conn) (err error) {
	have, err := currentVersion(ctx, conn)
	if err != nil {
		return err
	}
	if have > 0 {
		if err := checkMinWriter(ctx, conn); err != nil {
			return err
		}
	}
	if have >= schemaVersion {
		return nil
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(ctx, "ROLLBACK") // the first error tells more
		}
	}()
	if _, err := conn.ExecContext(ctx, sqlMigrations); err != nil {
		return err
	}
	// Another process may have been faster.
	if have, err = currentVersion(ctx, conn); err != nil {
		return err
	}
	for _, m := range schema[min(have, len(schema)):] {
		if _, err := conn.ExecContext(ctx, m.text); err != nil {
			return fmt.Errorf("errand: migration %s: %w", m.name, err)
		}
		if _, err := conn.ExecContext(ctx, sqlMigrated, m.version, m.name, time.Now().UnixMicro()); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

func currentVersion(ctx context.Context, conn *sql.Conn) (v int, err error) {
	var n int
	if err := conn.QueryRowContext(ctx, sqlHasMigrations).Scan(&n); err != nil || n == 0 {
		return 0, err
	}
	err = conn.QueryRowContext(ctx, sqlSchemaVersion).Scan(&v)
	return v, err
}

func checkMinWriter(ctx context.Context, db querier) error {
	var v int
	if err := db.QueryRowContext(ctx, sqlMinWriter).Scan(&v); err != nil {
		return err
	}
	return tooNew(v)
}

func tooNew(minWriter int) error {
	if minWriter > schemaVersion {
		return fmt.Errorf("%w: it needs schema version %d, this program knows %d", storage.ErrTooNew, minWriter, schemaVersion)
	}
	return nil
}
