package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// tables returns how many tables a schema has.
func tables(t testing.TB, schema string) (n int) {
	t.Helper()
	c := pgtest.Connect(t)
	defer c.Close(context.Background())
	if err := c.QueryRow(context.Background(), `SELECT count(*) FROM pg_tables WHERE schemaname = $1`, schema).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// refused checks that Open fails with an error.
func refused(t *testing.T, what, dsn, schema string, want error) {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, &postgres.Options{Schema: schema})
	if !errors.Is(err, want) {
		t.Errorf("%s: Open returned %v, want %v", what, err, want)
	}
	if err == nil {
		s.Close()
	}
}

func TestOpen_migratesOnce(t *testing.T) {
	schema := pgtest.NewSchema(t)
	var wg sync.WaitGroup
	pgtest.Exec(t, "CREATE SCHEMA "+schema)
	for i := range 8 {
		wg.Go(func() {
			dsn, o := pgtest.Server(t), &postgres.Options{Schema: schema, MaxConns: 1}
			if i%2 == 0 { // the same by another name
				dsn, o.Schema = dsn+" search_path="+schema, ""
			}
			s, err := postgres.Open(t.Context(), dsn, o)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Counts(t.Context()); err != nil {
				t.Error(err)
			}
			s.Close()
		})
	}
	wg.Wait()
	if n := tables(t, schema); n != 15 {
		t.Errorf("the schema has %d tables, want 15", n)
	}
}

func TestOpen_refuses(t *testing.T) {
	dsn := pgtest.Server(t)
	away := strings.Replace(dsn, "host=", "host=/nowhere", 1)
	refused(t, "no server", away, "", postgres.ErrUnreachable)
	pgtest.Exec(t, "CREATE ROLE locked LOGIN PASSWORD 'right'")
	t.Cleanup(func() { pgtest.Exec(t, "DROP ROLE locked") })
	locked := strings.Replace(dsn, "user=postgres", "user=locked", 1)
	refused(t, "wrong password", locked+" password=wrong", "", postgres.ErrAccess)
	refused(t, "no right to create a schema", locked+" password=right", "test_of_locked", postgres.ErrAccess)
	refused(t, "no such database", strings.Replace(dsn, "dbname=jobs", "dbname=none", 1), "", postgres.ErrAccess)
	pgtest.Exec(t, "CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0")
	t.Cleanup(func() { pgtest.Exec(t, "DROP DATABASE latin") })
	refused(t, "another encoding", strings.Replace(dsn, "dbname=jobs", "dbname=latin", 1), "", storage.ErrUnsupportedDB)
	if _, err := postgres.Open(t.Context(), "host=%", nil); err == nil {
		t.Error("settings that make no sense are accepted")
	}
	for _, o := range []postgres.Options{{Schema: "Mixed"}, {Schema: "a;b"}, {MaxConns: -1}, {MaxConns: 1001}} {
		if _, err := postgres.Open(t.Context(), dsn, &o); err == nil {
			t.Errorf("%+v: accepted", o)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Open(ctx, dsn, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a context that has ended returned %v", err)
	}
}

func TestOpen_tablesOfOthers(t *testing.T) {
	schema := pgtest.NewSchema(t)
	pgtest.Exec(t, fmt.Sprintf("CREATE SCHEMA %s CREATE TABLE errand_dead (a integer)", schema))
	refused(t, "a table of somebody else", pgtest.Server(t), schema, storage.ErrUnsupportedDB)
	if n := tables(t, schema); n != 1 {
		t.Errorf("the schema has %d tables, want the one that it had", n)
	}
}

func TestOpen_versions(t *testing.T) {
	schema := pgtest.NewSchema(t)
	open := func() *postgres.Store {
		t.Helper()
		s, err := postgres.Open(t.Context(), pgtest.Server(t), &postgres.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	open().Close()
	pgtest.Exec(t, fmt.Sprintf("INSERT INTO %s.errand_schema VALUES (2)", schema))
	open().Close() // a later version that this one can use
	pgtest.Exec(t, fmt.Sprintf("UPDATE %s.errand_meta SET min_version = 2", schema))
	refused(t, "a version that it cannot", pgtest.Server(t), schema, storage.ErrTooNew)
}
