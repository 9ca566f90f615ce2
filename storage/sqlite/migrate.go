package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/migrations"
	"github.com/errandq/errand/storage"
)

const (
	sqlHasMigrations = `SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'errand_migration'`
	sqlMigrations    = `CREATE TABLE IF NOT EXISTS main.errand_migration (
  version    INTEGER PRIMARY KEY,
  name       TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT`
	sqlSchemaVersion = `SELECT COALESCE(MAX(version), 0) FROM main.errand_migration`
	sqlMinWriter     = `SELECT n FROM main.errand_number WHERE id = 0`
	sqlAppID         = `PRAGMA application_id`
	sqlUserVersion   = `PRAGMA user_version`
	sqlAllTables     = `SELECT count(*) FROM main.sqlite_schema`
	sqlObjects       = `SELECT name, sql FROM main.sqlite_schema WHERE name GLOB 'errand_*' AND sql IS NOT NULL`
	sqlTriggers      = `SELECT name, tbl_name FROM main.sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) GLOB 'errand_*' ORDER BY name`
	sqlFreePages     = `PRAGMA freelist_count`
	sqlAutoVacuum    = `PRAGMA auto_vacuum`
	sqlMigrated      = `INSERT INTO main.errand_migration VALUES (?1, ?2, ?3)`
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
// If own, its path, is not empty, it must be nobody else's.
func migrate(ctx context.Context, conn *sql.Conn, own string) (err error) {
	if err := checkTriggers(ctx, conn); err != nil {
		return err
	}
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
	// Another process may have been faster.
	if have, err = currentVersion(ctx, conn); err != nil {
		return err
	}
	if have == 0 && own != "" {
		err = checkNobodys(ctx, conn, own)
	}
	if have == 0 && err == nil {
		err = checkNew(ctx, conn)
	}
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, sqlMigrations); err != nil {
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

// object is a table, an index or a view.
type object struct{ name, text string }

// objects returns what migrations have made.
func objects(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (all []object, err error) {
	rows, err := db.QueryContext(ctx, sqlObjects)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o object
		if err := rows.Scan(&o.name, &o.text); err != nil {
			return nil, unread(err)
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

// intended is what the migrations make of an empty database.
var intended = sync.OnceValues(func() (all []object, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	texts := []string{sqlMigrations}
	for _, m := range schema {
		texts = append(texts, m.text)
	}
	for _, text := range texts {
		if _, err := db.Exec(text); err != nil {
			return nil, err
		}
	}
	return objects(context.Background(), db)
})

// checkSchema makes sure that the tables are those of the migrations, for the
// doctor. Where the list of them is damaged, a table may be missing, or a column
// have another name: then statements cannot be prepared, which is called damage.
// But nothing fails for want of an index.
func checkSchema(ctx context.Context, conn *sql.Conn) error {
	want, err := intended()
	if err != nil {
		return err
	}
	have, err := objects(ctx, conn)
	if err != nil {
		return err
	}
	for _, o := range want {
		if !slices.Contains(have, o) {
			return fmt.Errorf("%w: %s is missing, or not as errand has made it", storage.ErrCorrupt, o.name)
		}
	}
	return nil
}

// checkTriggers refuses triggers on errand's tables, which has none: they would
// change or undo what it writes, unseen.
func checkTriggers(ctx context.Context, db querier) error {
	var name, table string
	err := db.QueryRowContext(ctx, sqlTriggers).Scan(&name, &table)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return unread(err)
	}
	return fmt.Errorf("%w: trigger %q on %s: must be dropped, and what it does be done by a handler", storage.ErrUnsupportedDB, name, table)
}

// checkNew makes sure that a database without migrations is one. If the page
// with the list of tables is damaged it may look empty, and all that was in it
// would be written over. That tables of errand are there the migrations find
// out.
func checkNew(ctx context.Context, conn *sql.Conn) error {
	var tables, pages, free, vacuum, size int64
	err := scanAll(ctx, conn, []oneNumber{
		{sqlAllTables, &tables}, {sqlPageCount, &pages}, {sqlFreePages, &free}, {sqlAutoVacuum, &vacuum}, {sqlPageSize, &size}})
	if err != nil {
		return err
	}
	if used := used(pages, free, size); tables == 0 && used > 1 && vacuum == 0 { // with it some pages hold no table
		return fmt.Errorf("%w: %d pages are in use, and there is no table", storage.ErrCorrupt, used)
	}
	return nil
}

// checkNobodys returns [storage.ErrUnsupportedDB] for a database without migrations in which
// another program has left something. A first start that was cut off has left nothing.
func checkNobodys(ctx context.Context, db querier, path string) error {
	var tables, app, version int64
	if err := scanAll(ctx, db, []oneNumber{{sqlAllTables, &tables}, {sqlAppID, &app}, {sqlUserVersion, &version}}); err != nil {
		return err
	}
	if tables != 0 || app != 0 || version != 0 {
		return fmt.Errorf("%w: path %q: it has %d tables, indexes and views, application_id %d and user_version %d, and no tables of errand: it is another program's",
			storage.ErrUnsupportedDB, path, tables, app, version)
	}
	return nil
}

// oneNumber is a query with one number as its answer.
type oneNumber struct {
	text string
	dest *int64
}

func scanAll(ctx context.Context, db querier, all []oneNumber) error {
	for _, q := range all {
		if err := db.QueryRowContext(ctx, q.text).Scan(q.dest); err != nil {
			return unread(err)
		}
	}
	return nil
}

// used is how many pages hold something. The one at 1 GiB, which is for locks,
// holds nothing and is not free either.
func used(pages, free, size int64) int64 {
	if pages > lockPage/size {
		pages--
	}
	return pages - free
}

const lockPage = 1 << 30

func currentVersion(ctx context.Context, conn *sql.Conn) (v int, err error) {
	var n int
	if err := conn.QueryRowContext(ctx, sqlHasMigrations).Scan(&n); err != nil || n == 0 {
		return 0, unread(err)
	}
	err = conn.QueryRowContext(ctx, sqlSchemaVersion).Scan(&v)
	return v, unread(err)
}

func checkMinWriter(ctx context.Context, db querier) error {
	var v int
	if err := db.QueryRowContext(ctx, sqlMinWriter).Scan(&v); err != nil {
		return unread(err)
	}
	return tooNew(v)
}

func tooNew(minWriter int) error {
	if minWriter > schemaVersion {
		return fmt.Errorf("%w: it needs schema version %d, this program knows %d", storage.ErrTooNew, minWriter, schemaVersion)
	}
	return nil
}
