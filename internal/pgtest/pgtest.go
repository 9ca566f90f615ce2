// Package pgtest runs a PostgreSQL server for the tests of a package: one server for a test
// binary, in a temporary directory, on a Unix socket.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// required is the variable of the environment that makes a test fail where there is no
// server, in place of being skipped.
const required = "ERRAND_CI_POSTGRES"

var (
	once    sync.Once
	running *Instance
	problem error
	schemas atomic.Int64
)

// Main runs the tests of a package, and stops the server after them. It returns the code
// to exit with.
func Main(m *testing.M) int {
	defer func() {
		if running != nil {
			running.Stop()
		}
	}()
	return m.Run()
}

// DSN returns the settings of a connection.
func (s *Instance) DSN() string {
	return fmt.Sprintf("host=%s user=%s dbname=%s", s.dir, superuser, database)
}

// Server returns the settings of a connection to the server, which it starts if it does
// not run yet. It skips the test if PostgreSQL is not installed.
func Server(t testing.TB) string {
	t.Helper()
	Need(t)
	once.Do(func() { running, problem = Start("fsync=off", "max_connections=200", "max_wal_size=4GB") })
	if problem != nil {
		t.Fatal(problem)
	}
	return running.DSN()
}

// Need skips the test if PostgreSQL is not installed, or if tests are to be short.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a PostgreSQL server")
	}
	_, err := programs()
	switch {
	case err == nil:
	case os.Getenv(required) != "":
		t.Fatalf("no PostgreSQL for this test: %v", err)
	default:
		t.Skipf("no PostgreSQL for this test: %v", err)
	}
}

// The superuser of the server, and the database of the tests.
const (
	superuser = "postgres"
	database  = "jobs"
)

// NewSchema returns the name of a schema that there is not, which is dropped when the test
// ends.
func NewSchema(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", schemas.Add(1))
	t.Cleanup(func() { Exec(t, "DROP SCHEMA IF EXISTS "+name+" CASCADE") })
	return name
}

// Schema returns the name of a schema whose tables of errand, if it has some, are empty. It
// is emptied when the test ends, for another test: that takes a fifth of the time in which
// the tables are made (4 and 24 ms). Nobody may use it any more then.
func Schema(t testing.TB) string {
	t.Helper()
	emptied.Lock()
	defer emptied.Unlock()
	name := fmt.Sprintf("test_%d", schemas.Add(1))
	if n := len(emptied.names); n > 0 {
		name, emptied.names = emptied.names[n-1], emptied.names[:n-1]
	}
	t.Cleanup(func() {
		Exec(t, fmt.Sprintf(empty, name))
		emptied.Lock()
		defer emptied.Unlock()
		emptied.names = append(emptied.names, name)
	})
	return name
}

var emptied struct {
	sync.Mutex
	names []string
}

// empty truncates all tables of a schema but those that say what schema it is.
const empty = `DO $$
DECLARE names text := (SELECT string_agg(format('%%I.%%I', schemaname, tablename), ', ') FROM pg_tables
  WHERE schemaname = '%s' AND tablename NOT IN ('errand_schema', 'errand_meta'));
BEGIN
  IF names IS NOT NULL THEN EXECUTE 'TRUNCATE ' || names; END IF;
END $$`

// Exec runs SQL as the superuser.
func Exec(t testing.TB, text string, args ...any) {
	t.Helper()
	conn := Connect(t)
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", strings.TrimSpace(text), err)
	}
}

// Connect returns a connection of the superuser, which the caller closes.
func Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), Server(t))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
