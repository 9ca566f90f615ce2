package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errandq/errand/migrations"
	"github.com/errandq/errand/storage"
)

const (
	sqlServer = `SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'), coalesce(current_schema(), '')`
	// A migration takes as long as it takes: ctx ends it.
	sqlPatient = `SELECT set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)`
	// Two processes migrate one after the other. The lock ends with the transaction.
	sqlAlone     = `SELECT pg_advisory_xact_lock(hashtext('errand: migrate'), hashtext($1))`
	sqlHasSchema = `SELECT to_regclass('errand_schema') IS NOT NULL`
	sqlVersions  = `CREATE TABLE errand_schema (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`
	sqlVersion   = `SELECT coalesce(max(version), 0) FROM errand_schema`
	sqlApplied   = `INSERT INTO errand_schema (version) VALUES ($1)`
	sqlMeta      = `SELECT locks, min_version, nextval('errand_store')::integer, ` + serverClock + ` FROM errand_meta`
	// The first server that has all that is used.
	oldestServer = 140000
)

// migrate brings the tables to the newest version, all or nothing, and tells s what they
// say.
func migrate(ctx context.Context, s *Store, schema string) error {
	c, err := pgx.ConnectConfig(ctx, s.session)
	if err != nil {
		return translate(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	var version int
	var encoding, current string
	if err := c.QueryRow(ctx, sqlServer).Scan(&version, &encoding, &current); err != nil {
		return translate(err)
	}
	switch {
	case version < oldestServer:
		return fmt.Errorf("%w: version %d of the server: want %d or later", storage.ErrUnsupportedDB, version/10000, oldestServer/10000)
	case encoding != "UTF8":
		return fmt.Errorf("%w: encoding %s of the database: want UTF8", storage.ErrUnsupportedDB, encoding)
	case schema == "" && current == "":
		return fmt.Errorf("%w: no schema of the search_path exists: name one in Options.Schema", storage.ErrUnsupportedDB)
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return translate(err)
	}
	if err := migrateIn(ctx, tx, s, schema, cmp.Or(schema, current)); err != nil {
		return errors.Join(translate(err), tx.Rollback(context.WithoutCancel(ctx)))
	}
	return translate(tx.Commit(ctx))
}

func migrateIn(ctx context.Context, tx pgx.Tx, s *Store, schema, lock string) error {
	if _, err := tx.Exec(ctx, sqlPatient); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlAlone, lock); err != nil {
		return err
	}
	if schema != "" {
		// Not IF NOT EXISTS alone, which needs the right to create even for one that exists.
		text := fmt.Sprintf(`DO $$ BEGIN IF to_regnamespace('%[1]s') IS NULL THEN CREATE SCHEMA %[1]s; END IF; END $$`, schema)
		if _, err := tx.Exec(ctx, text); err != nil {
			return err
		}
	}
	var has bool
	if err := tx.QueryRow(ctx, sqlHasSchema).Scan(&has); err != nil {
		return err
	}
	if !has {
		if _, err := tx.Exec(ctx, sqlVersions); err != nil {
			return err
		}
	}
	var at int
	if err := tx.QueryRow(ctx, sqlVersion).Scan(&at); err != nil {
		return err
	}
	newest, err := apply(ctx, tx, at)
	if err != nil {
		return err
	}
	var oldest int
	var time int64
	if err := tx.QueryRow(ctx, sqlMeta).Scan(&s.locks, &oldest, &s.sent.store, &time); err != nil {
		return err
	}
	s.clock.hear(time)
	if oldest > newest {
		return fmt.Errorf("%w: its tables have version %d, and need a program that knows version %d", storage.ErrTooNew, at, oldest)
	}
	_, err = tx.Exec(ctx, sqlUnmarkOld)
	return err
}

// apply applies the migrations after version at, and returns the newest that there is.
func apply(ctx context.Context, tx pgx.Tx, at int) (newest int, err error) {
	files, err := fs.Glob(migrations.Postgres, "postgres/*.sql") // sorted
	if err != nil {
		return 0, err
	}
	for i, name := range files {
		newest = i + 1
		if !strings.HasPrefix(name, fmt.Sprintf("postgres/%04d_", newest)) {
			return 0, fmt.Errorf("postgres: migration %s: want the number %d", name, newest)
		}
		if newest <= at {
			continue
		}
		text, err := fs.ReadFile(migrations.Postgres, name)
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, string(text), pgx.QueryExecModeSimpleProtocol); err != nil {
			if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42P07" {
				return 0, fmt.Errorf("%w: a table with a name of errand is there, but %s was not applied: %w", storage.ErrUnsupportedDB, name, err)
			}
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := tx.Exec(ctx, sqlApplied, newest); err != nil {
			return 0, err
		}
	}
	return newest, nil
}
