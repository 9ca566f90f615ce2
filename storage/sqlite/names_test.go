package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// errandName finds names of errand's in SQL, with what is before them. Those of
// indexes after INDEXED BY cannot have a schema, and in quotes they are values. A copy is saved.
var errandName = regexp.MustCompile(`(?i)(\b(?:main|saved)\s*\.\s*|\bINDEXED\s+BY\s+|')?"?\berrand_\w*`)

// bare returns the names of errand's in SQL that SQLite would look for among
// temporary tables first, and how many it has found in all.
func bare(text string) (names []string, found int) {
	for _, m := range errandName.FindAllStringSubmatch(text, -1) {
		found++
		if m[1] == "" {
			names = append(names, m[0])
		}
	}
	return names, found
}

//errand:shows temporary tables with errand's names
func TestSQL_NamesItsSchema(t *testing.T) {
	for text, want := range map[string]int{
		"SELECT n FROM errand_number WHERE id = 1":                                  1,
		"SELECT n FROM main.errand_number, errand_lane":                             1,
		"DELETE FROM\n\"errand_job\"":                                               1,
		"UPDATE temp.errand_job SET id = main.errand_job.id":                        1,
		"INSERT INTO main.errand_job VALUES (?) ON CONFLICT DO NOTHING":             0,
		"SELECT 1 FROM main.errand_job INDEXED BY errand_job_ready WHERE state = 2": 0,
		"SELECT name FROM main.sqlite_schema WHERE name GLOB 'errand_*'":            0,
	} {
		if names, _ := bare(text); len(names) != want {
			t.Errorf("%s: found %q, want %d", text, names, want)
		}
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			names, found := bare(text)
			all += found
			for _, name := range names {
				t.Errorf("%s: %s without a schema: must be main.%s", set.Position(lit.Pos()), name, name)
			}
			return true
		})
	}
	if all < 400 {
		t.Errorf("found %d names in all: the SQL is elsewhere", all)
	}
}

// inAppTx are the two kinds of transactions that EnqueueTx and the like take, each
// on one connection that is the same from call to call.
func inAppTx(ctx context.Context, app *sql.DB, s *sqlite.Store) map[string]func(func(*sql.Tx) error) error {
	app.SetMaxOpenConns(1)
	return map[string]func(func(*sql.Tx) error) error{
		"of the application": func(f func(*sql.Tx) error) error {
			tx, err := app.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := f(tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
		"of Tx": func(f func(*sql.Tx) error) error { return inTx(ctx, s, f) },
	}
}

// Temporary tables and views with names of errand's are not errand's.
//
//errand:shows temporary tables with errand's names | | all statements name the schema: what EnqueueTx and the like write goes into errand's tables
func TestStore_AppTx_TemporaryNames(t *testing.T) {
	for what, c := range map[string]struct{ kind, names string }{
		"a table for the jobs": {"TABLE", "errand_job"}, "tables": {"TABLE", "errand_*"}, "views": {"VIEW", "errand_*"},
	} {
		app, s, d := appStore(t, nil)
		ctx := t.Context()
		for name, in := range inAppTx(ctx, app, s) {
			t.Run(what+", in a transaction "+name, func(t *testing.T) {
				if err := in(func(tx *sql.Tx) error { return shadow(tx, c.kind, c.names) }); err != nil {
					t.Fatal(err)
				}
				job := newJob(name, "rich")
				job.Args, job.Headers = []byte(`"`+strings.Repeat("x", 10_000)+`"`), []byte(`{"a":"b"}`)
				job.Policy, job.Unique, job.Group = []byte(`{"numRetries":1}`), "unique "+name, "g"
				job.Tags, job.StartWithin, job.FinishWithin = []string{"tag"}, 1e12, 2e12
				before := counts(t, s)[storage.Ready]
				var got []storage.Enqueued
				if err := in(func(tx *sql.Tx) (err error) {
					if got, err = s.EnqueueTx(ctx, tx, t0, []storage.NewJob{job, newJob(name, "b"), job}); err != nil {
						return err
					}
					_, err = s.PublishMessagesTx(ctx, tx, t0, []storage.Publication{message("m "+name, newJob(name, "c"))})
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if !got[2].Duplicate || got[2].ID != got[0].ID {
					t.Errorf("the same key again: %+v, want a duplicate of %s", got[2], got[0].ID)
				}
				if n := counts(t, s)[storage.Ready] - before; n != 3 {
					t.Errorf("%d more jobs are ready, want 3", n)
				}
				for _, e := range got {
					if _, err := s.Job(ctx, e.ID); err != nil {
						t.Errorf("job %s: %v", e.ID, err)
					}
				}
				hasMessage(t, s, "m "+name, true)
				if err := in(func(tx *sql.Tx) error {
					state, err := s.CancelTx(ctx, tx, t0, got[0].ID, storage.Retention{})
					if err == nil && state != storage.Cancelled {
						err = fmt.Errorf("state %s", state)
					}
					return err
				}); err != nil {
					t.Errorf("CancelTx: %v", err)
				}
				if _, err := s.Job(ctx, got[0].ID); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("the cancelled job: %v, want ErrNotFound", err)
				}
				d.Invariants(t)
			})
		}
	}
}

// shadow makes a temporary object for each table and view of errand's whose name fits.
func shadow(tx *sql.Tx, kind, pattern string) error {
	rows, err := tx.Query("SELECT name FROM main.sqlite_schema WHERE type IN ('table', 'view') AND name GLOB ?1", pattern)
	if err != nil {
		return err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil || len(names) == 0 {
		return fmt.Errorf("%d names: %w", len(names), err)
	}
	for _, name := range names {
		if _, err := tx.Exec("CREATE TEMP " + kind + " " + name + " AS SELECT * FROM main." + name); err != nil {
			return err
		}
	}
	return nil
}

// A temporary trigger on errand's tables would change or undo what errand writes. It is
// seen at each call, however many have come before it.
//
//errand:shows triggers on errand's tables
func TestStore_AppTx_TemporaryTriggers(t *testing.T) {
	app, s, d := appStore(t, nil)
	ctx := t.Context()
	waits := enqueue(t, s, "a", 1)[0].ID
	calls := map[string]func(*sql.Tx) error{
		"EnqueueTx": func(tx *sql.Tx) error { _, err := s.EnqueueTx(ctx, tx, t0, one()); return err },
		"CancelTx": func(tx *sql.Tx) error {
			_, err := s.CancelTx(ctx, tx, t0, waits, storage.Retention{})
			return err
		},
		"PublishMessagesTx": func(tx *sql.Tx) error {
			_, err := s.PublishMessagesTx(ctx, tx, t0, []storage.Publication{message("m", newJob("default", "a"))})
			return err
		},
	}
	run := func(in func(func(*sql.Tx) error) error, text string) {
		t.Helper()
		if err := in(func(tx *sql.Tx) error { _, err := tx.Exec(text); return err }); err != nil {
			t.Fatal(err)
		}
	}
	for name, in := range inAppTx(ctx, app, s) {
		run(in, "CREATE TEMP TRIGGER fine AFTER INSERT ON main.orders BEGIN SELECT 1; END")
		for range 100 { // more than are asked whether they sync
			if err := in(calls["EnqueueTx"]); err != nil {
				t.Fatal(err)
			}
		}
		for what, on := range map[string]string{
			"deletes the job":    "AFTER INSERT ON main.errand_job BEGIN DELETE FROM errand_job WHERE id = NEW.id; END",
			"in other letters":   "AFTER INSERT ON Errand_JOB BEGIN SELECT 1; END",
			"keeps the counters": "BEFORE UPDATE ON errand_number BEGIN SELECT RAISE(IGNORE); END",
			"fails":              "BEFORE UPDATE ON errand_number BEGIN SELECT RAISE(ABORT, 'no'); END",
			"rolls back":         "BEFORE UPDATE ON errand_number BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
			"on a view":          "INSTEAD OF INSERT ON errand_meta BEGIN SELECT 1; END",
			// There is a temporary table of that name now, but was none then.
			"was there first": "BEFORE INSERT ON errand_job BEGIN SELECT RAISE(IGNORE); END; CREATE TEMP TABLE errand_job (id)",
		} {
			run(in, `CREATE TEMP TRIGGER "theirs too" `+on)
			before := counts(t, s)
			for call, f := range calls {
				err := in(f)
				if !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), `"theirs too"`) {
					t.Errorf("%s in a transaction %s, with a trigger that %s: %v, want ErrUnsupportedDB with its name", call, name, what, err)
				}
			}
			if after := counts(t, s); !maps.Equal(before, after) {
				t.Errorf("in a transaction %s, with a trigger that %s: counts %v, want %v", name, what, after, before)
			}
			run(in, `DROP TRIGGER temp."theirs too"; DROP TABLE IF EXISTS temp.errand_job`)
		}
		run(in, "CREATE TEMP TABLE errand_x (id); CREATE TEMP TRIGGER theirs AFTER INSERT ON errand_x BEGIN SELECT 1; END")
		if err := in(calls["EnqueueTx"]); err != nil {
			t.Errorf("with a trigger on a temporary table of theirs: %v", err)
		}
	}
	if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 203 {
		t.Errorf("%d jobs, want 203", n)
	}
}
