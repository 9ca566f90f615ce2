package apitest

import (
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// snapshot returns the names and contents of all files in dir.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		if !e.IsDir() {
			files[e.Name()] = read(t, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

func TestOpen_refusesPaths(t *testing.T) {
	dir := t.TempDir()
	readOnly := filepath.Join(dir, "readonly.db")
	q, err := errand.Open(t.Context(), readOnly, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Close(), os.Chmod(readOnly, 0o400)); err != nil {
		t.Fatal(err)
	}
	text := write(t, filepath.Join(dir, "text"), strings.Repeat("This is no database.\n", 100), 0o600)
	before := snapshot(t, dir)

	for _, c := range []struct {
		path string
		want error
		says string
	}{
		{"", errand.ErrInvalid, `errand: path "": must name a file`},
		{dir, errand.ErrUnsupportedDB, "directory"},
		{filepath.Join(dir, "none", "jobs.db"), os.ErrNotExist, "none"},
		{text, errand.ErrCorrupt, "not a database"},
		{readOnly, errand.ErrReadOnly, "cannot write the database"},
		{":memory:", errand.ErrUnsupportedDB, ":memory:"},
	} {
		q, err := errand.Open(t.Context(), c.path, nil)
		if !errors.Is(err, c.want) || q != nil {
			t.Errorf("Open(%q) gave %v: want %v", c.path, err, c.want)
			continue
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("Open(%q) says %q: want %q in it", c.path, err, c.says)
		}
	}
	after := snapshot(t, dir)
	for name := range after {
		if _, ok := before[name]; !ok && !strings.HasSuffix(name, "-turn") {
			t.Errorf("a file %s was left behind", name)
		}
	}
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was changed", name)
		}
	}
}

func TestOpen_tooNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(q.Tx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE errand_number SET n = 1000000 WHERE id = 0")
		return err
	}), q.Close())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := errand.Open(t.Context(), path, nil); !errors.Is(err, errand.ErrTooNew) {
		t.Errorf("Open gave %v: want ErrTooNew", err)
	}
}

func TestOpen_mode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v: want 0600", info.Mode(), err)
	}
}

// What was enqueued is there after closing and opening again.
func TestOpen_again(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	var id errand.ID
	for _, d := range []errand.Durability{errand.Full, errand.Relaxed} {
		q, err := errand.Open(t.Context(), path, &errand.Options{SQLite: errand.SQLiteOptions{Durability: d, SingleProcess: true}})
		if err != nil {
			t.Fatal(err)
		}
		if id.IsZero() {
			id = enqueue(t, q, note{"kept", 1}, nil)
		}
		if j := lookUp(t, q, id); string(j.Args) != `{"Text":"kept","N":1}` {
			t.Errorf("args %s", j.Args)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

var badOptions = []struct {
	name string
	o    errand.Options
	want []fault
}{
	{"durability", errand.Options{SQLite: errand.SQLiteOptions{Durability: 7}}, []fault{{"sqlite.durability", "7", "must be Full (0) or Relaxed (1)"}}},
	{
		"ballast and busy timeout",
		errand.Options{SQLite: errand.SQLiteOptions{Ballast: 2 << 30, BusyTimeout: time.Microsecond}},
		[]fault{
			{"sqlite.busy_timeout", "1µs", "must be zero or between 1ms and 1h0m0s"},
			{"sqlite.ballast", "2147483648", "must be at most 1073741824 bytes"},
		},
	},
	{"policy", errand.Options{Policy: &policy.Policy{Retries: -1}}, []fault{{"policy.retries", "-1", "must be between 0 and 1000000"}}},
	{
		"queues",
		errand.Options{Queues: map[string]errand.QueueOptions{"a b": {}, "ok": {Policy: &policy.Policy{MinDelay: -1}}}},
		[]fault{{"queues", `"a b"`, "must match"}, {`queues["ok"].policy.min_delay`, "-1ns", "must"}},
	},
	{"max args", errand.Options{MaxArgs: -1}, []fault{{"max_args", "-1", "must be between 0 and 67108864 bytes"}}},
	{"max headers", errand.Options{MaxHeaders: 64<<20 + 1}, []fault{{"max_headers", "67108865", "must be between 0 and 67108864 bytes"}}},
}

func TestOpen_refusesBadOptions(t *testing.T) {
	dir := t.TempDir()
	for _, c := range badOptions {
		o := c.o
		_, err := errand.Open(t.Context(), filepath.Join(dir, "jobs.db"), &o)
		wantFaults(t, err, c.want...)
		if o.SQLite != (errand.SQLiteOptions{}) {
			continue // New takes none of them
		}
		_, err = errand.New(t.Context(), storagetest.NewMemory().Open(), &o)
		wantFaults(t, err, c.want...)
	}
	if files := slices.Collect(maps.Keys(snapshot(t, dir))); len(files) > 0 {
		t.Errorf("files were created: %v", files)
	}
}

func TestNew_refusesBadInput(t *testing.T) {
	_, err := errand.New(t.Context(), nil, &errand.Options{SQLite: errand.SQLiteOptions{SingleProcess: true}})
	const zero = "must be zero with New"
	wantFaults(t, err, fault{"store", "nil", "must not be nil"}, fault{"sqlite.single_process", "true", zero})
	all := errand.SQLiteOptions{
		Durability: errand.Relaxed, SingleProcess: true, BusyTimeout: time.Second, Ballast: -1, AnyFileSystem: true, ReadOnly: true, Existing: true, Own: true,
		Logger: quiet,
	}
	_, err = errand.New(t.Context(), storagetest.NewMemory().Open(), &errand.Options{SQLite: all})
	want := []fault{
		{"sqlite.durability", "1", zero}, {"sqlite.single_process", "true", zero}, {"sqlite.busy_timeout", "1s", zero},
		{"sqlite.ballast", "-1", zero}, {"sqlite.any_file_system", "true", zero}, {"sqlite.read_only", "true", zero}, {"sqlite.existing", "true", zero},
		{"sqlite.own", "true", zero},
		{"sqlite.logger", `"*slog.Logger"`, zero},
	}
	wantFaults(t, err, want...)
	if n := reflect.TypeOf(all).NumField(); n != len(want) {
		t.Errorf("SQLiteOptions have %d fields, and %d are refused", n, len(want))
	}
}

// Options belong to the caller again after Open.
func TestNew_copiesOptions(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := &errand.Options{Clock: func() time.Time { return now }, MaxArgs: 100}
	q := openQueue(t, o)
	o.MaxArgs, o.Clock = 1, nil
	enqueue(t, q, note{}, nil)
}

// A database that errand cannot work with is refused, and stays as it was.
func TestSQLiteNew_refuses(t *testing.T) {
	for name, dsn := range map[string]string{
		"in memory":   "file::memory:",
		"not in WAL":  "file:" + filepath.Join(t.TempDir(), "app.db"),
		"other names": "file:mem?mode=memory",
	} {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("CREATE TABLE mine (n INTEGER)"); err != nil {
			t.Fatal(err)
		}
		if s, err := sqlite.New(db, nil); !errors.Is(err, errand.ErrUnsupportedDB) || s != nil {
			t.Errorf("%s: New gave %v: want ErrUnsupportedDB", name, err)
		}
		var n int
		if err := db.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&n); n != 1 || err != nil {
			t.Errorf("%s: %d tables, %v: want mine alone", name, n, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A worker must write, so none runs on a queue that only reads; New has no file to open.
func TestOpen_ReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, nil)
	if err == nil {
		err = q.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &errand.Options{SQLite: errand.SQLiteOptions{ReadOnly: true}}
	if q, err = errand.Open(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := errand.NewWorker(q, nil).Run(t.Context()); !errors.Is(err, errand.ErrReadOnly) {
		t.Errorf("Run: %v, want ErrReadOnly", err)
	}
	store, err := sqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := errand.New(t.Context(), store, o); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("New: %v, want a FieldError", err)
	}
}
