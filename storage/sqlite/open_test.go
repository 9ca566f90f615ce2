package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func TestOpen_BadPaths(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	noise := strings.Repeat("not a database at all. ", 300)
	for name, c := range map[string]struct {
		path, says string
		is         error
	}{
		"empty":          {"", "path is empty", nil},
		"directory":      {dir, "is a directory: must be a regular file", storage.ErrUnsupportedDB},
		"missing folder": {filepath.Join(dir, "no", "jobs.db"), "no such file or directory", os.ErrNotExist},
		"not a database": {write("noise.db", noise, 0o600), "not a database", storage.ErrCorrupt},
		"read-only":      {write("ro.db", "", 0o400), "cannot write the database", storage.ErrReadOnly},
		"in memory":      {":memory:", "must be the plain name of a file", storage.ErrUnsupportedDB},
		"address":        {"file:jobs.db?mode=memory", "must be the plain name of a file", storage.ErrUnsupportedDB},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := sqlite.Open(c.path, nil)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path) && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("error %q: want %v with %q", err, c.is, c.says)
			}
		})
	}
	if b, err := os.ReadFile(filepath.Join(dir, "noise.db")); err != nil || string(b) != noise {
		t.Errorf("the file that is not a database was changed: %v", err)
	}
}

func TestOpen_BadOptions(t *testing.T) {
	_, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Durability: 7, BusyTimeout: -time.Second})
	if err == nil || !strings.Contains(err.Error(), "durability 7: must be") || !strings.Contains(err.Error(), "busy timeout -1s: must be 1ms to 1h") {
		t.Errorf("error %v: want both faults", err)
	}
}

func TestOpen_StrangeNames(t *testing.T) {
	for _, name := range []string{"a b.db", "100%.db", "what?.db", "#1&x=y.db", "ä ö.db", "it's.db"} {
		d := &db{t, filepath.Join(t.TempDir(), name), nil}
		s := d.open()
		enqueue(t, s, "a", 1)
		if len(lease(t, s, 1, "a")) != 1 {
			t.Errorf("%q: no job", name)
		}
		if _, err := os.Stat(d.path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestOpen_Folder(t *testing.T) {
	for _, o := range []sqlite.Options{{}, {ReadOnly: true}, {AnyFileSystem: true}} {
		_, err := sqlite.Open(t.TempDir(), &o)
		if err == nil || !strings.Contains(err.Error(), "folder") && !strings.Contains(err.Error(), "is a directory") {
			t.Errorf("with %+v: error %v, want that the path is a folder", o, err)
		}
	}
}

func TestOpen_CreatesFilesForTheOwnerOnly(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	lease(t, s, 1, "a")
	files, err := filepath.Glob(d.path + "*")
	if err != nil || len(files) < 4 {
		t.Fatalf("files %v, %v: want database, wal, shm, turn and instance", files, err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f, info.Mode())
		}
	}
}

func TestOpen_NewerSchema(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	d.exec("UPDATE errand_number SET n = ?1 WHERE id = 0", sqlite.SchemaVersion()+1)
	if _, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "a")}); !errors.Is(err, storage.ErrTooNew) {
		t.Errorf("writing: error %v, want ErrTooNew", err)
	}
	if _, err := sqlite.Open(d.path, nil); !errors.Is(err, storage.ErrTooNew) {
		t.Errorf("opening: error %v, want ErrTooNew", err)
	}
	if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 0 {
		t.Errorf("%d jobs were written", n)
	}
	d.exec("UPDATE errand_number SET n = 1 WHERE id = 0")
	d.exec("INSERT INTO errand_migration VALUES (?1, 'from the future', 0)", sqlite.SchemaVersion()+1)
	d.open() // a newer schema that this program may still write
}

func TestSupported(t *testing.T) {
	for version, ok := range map[string]bool{
		"3.51.3": true, "3.51.10": true, "3.52.0": true, "4.0.0": true,
		"3.51.2": false, "3.50.9": false, "3.9.0": false, "2.99.99": false, "": false,
	} {
		err := sqlite.Supported(version)
		if ok != (err == nil) || !ok && !errors.Is(err, storage.ErrUnsupportedDB) {
			t.Errorf("SQLite %q: %v", version, err)
		}
	}
}

//errand:shows a process with SingleProcess
func TestOpen_SingleProcessLocksOut(t *testing.T) {
	d := newDB(t, &sqlite.Options{SingleProcess: true})
	s := d.open()
	enqueue(t, s, "a", 1)
	_, err := sqlite.Open(d.path, &sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	if !errors.Is(err, storage.ErrBusy) {
		t.Fatalf("second opening: error %v, want ErrBusy", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.opts = nil
	d.open()
}

// appDB is a database of an application.
func appDB(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	app, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	return app
}

type otherDriver struct{}

func (otherDriver) Open(string) (driver.Conn, error) { return nil, errors.New("never called") }

func init() { sql.Register("other", otherDriver{}) }

func TestNew_Unsupported(t *testing.T) {
	other, err := sql.Open("other", "")
	if err != nil {
		t.Fatal(err)
	}
	plain := appDB(t, "file:"+filepath.Join(t.TempDir(), "plain.db"))
	if _, err := plain.Exec("CREATE TABLE x (y)"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		db   *sql.DB
		says string
	}{
		"other driver": {other, "otherDriver: must be that of modernc.org/sqlite"},
		"in memory":    {appDB(t, ":memory:"), "in memory: must be a file"},
		"not WAL":      {plain, `journal_mode "delete": must be wal`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sqlite.New(c.db, nil)
			if !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v: want ErrUnsupportedDB with %q", err, c.says)
			}
		})
	}
	if _, err := sqlite.New(nil, nil); err == nil {
		t.Error("nil database: no error")
	}
}

// What OpenDB returns is as New wants it, on each connection, also of a file with an odd name.
//
//errand:shows a DSN with a slip
func TestOpenDB(t *testing.T) {
	for _, name := range []string{"app.db", "what?.db", "a b&c=d.db", "100%.db"} {
		path := filepath.Join(t.TempDir(), name)
		app, err := sqlite.OpenDB(path, "foreign_keys(1)", "SYNCHRONOUS(EXTRA)")
		if err != nil {
			t.Fatal(err)
		}
		defer app.Close()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %v, %v", info, err)
		}
		for range 3 { // connections at a time
			conn, err := app.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for pragma, want := range map[string]string{"journal_mode": "wal", "busy_timeout": "5000", "synchronous": "3", "foreign_keys": "1"} {
				var got string
				if err := conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
					t.Errorf("%s is %s, %v: want %s", pragma, got, err, want)
				}
			}
		}
		if warns, err := newOn(t, app, sqlite.Full); err != nil || len(warns) > 0 {
			t.Errorf("%q: New returned %v, and warned of %q", name, err, warns)
		}
	}
	app, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if warns, err := newOn(t, app, sqlite.Full); err != nil || len(warns) > 0 {
		t.Errorf("New returned %v, and warned of %q", err, warns)
	}
	var level int
	if err := app.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&level); err != nil || level != 2 {
		t.Errorf("synchronous is %d, %v: want 2", level, err)
	}
}

// busy opens connections to a file that is busy for the first few of them.
type busy struct {
	path string
	left int
	err  error
}

func (b *busy) Driver() driver.Driver { return new(modernc.Driver) }

func (b *busy) Connect(context.Context) (driver.Conn, error) {
	if b.left--; b.left >= 0 {
		return nil, b.err
	}
	return b.Driver().Open(b.path)
}

// While others give a new file its log, Open and OpenDB wait; for a file that stays busy no longer than they may.
func TestOpen_NewFileIsBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app, err := sqlite.OpenDB(path, "busy_timeout(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = app.Begin()
	if e := tx.Rollback(); err == nil || e != nil {
		t.Fatalf("two transactions write: %v, %v", err, e)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			left int
			want error
		}{{0, nil}, {3, nil}, {1 << 30, err}} {
			db := sql.OpenDB(&busy{path, c.left, err})
			conn, got := sqlite.FirstConn(t.Context(), db, time.Second)
			if !errors.Is(got, c.want) {
				t.Errorf("busy %d times: %v, want %v", c.left, got, c.want)
			}
			if conn != nil {
				_ = conn.Close()
			}
			_ = db.Close()
		}
	})
}

// A file is not made again for a database that was deleted.
func TestOpenDB_deleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	app.SetMaxIdleConns(0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := app.PingContext(t.Context()); err == nil {
		t.Error("a new file is opened in place of a deleted one")
	}
}

//errand:shows a DSN with a slip
func TestOpenDB_refuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	noise := filepath.Join(dir, "noise.db")
	if err := os.WriteFile(noise, []byte(strings.Repeat("not a database at all. ", 300)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path    string
		pragmas []string
		is      error
		says    string
	}{
		"empty":          {says: "path is empty: must name a file"},
		"in memory":      {path: ":memory:", is: storage.ErrUnsupportedDB, says: "must be the plain name of a file"},
		"URI":            {path: "file:" + path, is: storage.ErrUnsupportedDB, says: "must be the plain name of a file"},
		"DSN":            {path: path + "?_pragma=foreign_keys(1)", is: storage.ErrUnsupportedDB, says: "without parameters of a DSN: OpenDB sets these, and takes pragmas as arguments"},
		"mode":           {path: path + "?mode=ro", is: storage.ErrUnsupportedDB, says: "without parameters of a DSN"},
		"folder":         {path: dir, is: storage.ErrUnsupportedDB, says: "is a directory"},
		"missing folder": {path: filepath.Join(dir, "no", "app.db"), is: os.ErrNotExist, says: "no such file or directory"},
		"not a database": {path: noise, is: storage.ErrCorrupt, says: "not a database"},
		"no value":       {path: path, pragmas: []string{"foreign_keys"}, says: `pragma "foreign_keys": must be a name and a value, as foreign_keys(1)`},
		"equals":         {path: path, pragmas: []string{"foreign_keys=1"}, says: "must be a name and a value"},
		"two statements": {path: path, pragmas: []string{"foreign_keys(1); DROP TABLE users"}, says: "must be a name and a value"},
		"parameter":      {path: path, pragmas: []string{"_pragma=foreign_keys(1)"}, says: "must be a name and a value"},
		"unknown":        {path: path, pragmas: []string{"foreign_key(1)"}, says: `pragma "foreign_key(1)": SQLite has no pragma foreign_key`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sqlite.OpenDB(c.path, c.pragmas...)
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v: want %v with %q", err, c.is, c.says)
			}
		})
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*[?]*")); err != nil || len(left) > 0 {
		t.Errorf("files were made: %v, %v", left, err)
	}
}

func TestStore_Closed(t *testing.T) {
	s := newDB(t, nil).open()
	id := enqueue(t, s, "a", 1)[0].ID
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "a")})
	if !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Enqueue: %v", err)
	}
	if _, err = s.Job(context.Background(), id); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Job: %v", err)
	}
	if err = inTx(context.Background(), s, func(*sql.Tx) error { return nil }); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Tx: %v", err)
	}
	if err = s.Started(storage.Lease{Key: 1, Token: 1}, t0); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Started: %v", err)
	}
}

func TestStore_DeletedFileIsNotMadeAgain(t *testing.T) {
	d := newDB(t, nil)
	s, err := sqlite.Open(d.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(d.path + f); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if _, err := os.Stat(d.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database was made again: %v", err)
	}
}

// A database that was emptied has one page in use, and past 1 GiB that for locks,
// which is no damage.
//
//errand:shows an emptied database of more than 1 GiB | | the page at 1 GiB, which SQLite uses for locks, is not taken for damage
func TestUsedPages(t *testing.T) {
	for _, c := range []struct{ pages, free, size, want int64 }{
		{100, 99, 4096, 1},
		{1 << 18, 1<<18 - 1, 4096, 1},      // up to it
		{1<<18 + 1, 1<<18 - 1, 4096, 1},    // with it
		{1<<14 + 9, 1<<14 - 10, 65536, 18}, // and with more that is in use
	} {
		if got := sqlite.UsedPages(c.pages, c.free, c.size); got != c.want {
			t.Errorf("of %d pages of %d bytes, %d free, %d are used, want %d", c.pages, c.size, c.free, got, c.want)
		}
	}
}

// Who cannot hear other processes says so.
//
//errand:shows too many watchers | | a warning says that wake-ups of other processes come up to a second late
func TestNotify_CannotHear(t *testing.T) {
	said := make(chan string, 10)
	d := newDB(t, &sqlite.Options{Logger: slog.New(listener(func(level slog.Level, text string) {
		if level == slog.LevelWarn {
			said <- text
		}
	}))})
	s := d.open()
	if err := errors.Join(os.RemoveAll(d.path+"-wake"), os.Mkdir(d.path+"-wake", 0o700)); err != nil { // before, Open would refuse it
		t.Fatal(err)
	}
	defer s.Notify(func(storage.Event) {})()
	for text := range said {
		if strings.Contains(text, "up to a second late") {
			break
		}
	}
}

// What hangs on errand's tables would undo what it acknowledges.
//
//errand:shows triggers on errand's tables | | Open refuses them by name, EnqueueTx and the like those of their connection; errand's connections neither allow changes of the list of tables nor trust it
func TestOpen_Triggers(t *testing.T) {
	for name, table := range map[string]string{"on a table": "AFTER INSERT ON Errand_Job", "on a view": "INSTEAD OF INSERT ON errand_meta"} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			if err := d.open().Close(); err != nil {
				t.Fatal(err)
			}
			d.exec("CREATE TABLE theirs (x)")
			d.exec("CREATE TRIGGER fine AFTER INSERT ON theirs BEGIN SELECT 1; END")
			d.open()
			d.exec(`CREATE TRIGGER "theirs too" ` + table + " BEGIN SELECT 1; END")
			_, err := sqlite.Open(d.path, nil)
			if !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), `"theirs too"`) {
				t.Errorf("Open: %v, want ErrUnsupportedDB with its name", err)
			}
			found, err := sqlite.Examine(context.Background(), d.path, false, t0)
			if err != nil || !has(found, "schema", sqlite.SeverityError) {
				t.Errorf("the doctor says %v (%v), want an error about the schema", found, err)
			}
		})
	}
}

// No connection trusts what the schema calls, unless the application does on its
// own, nor lets the list of tables be changed.
//
//errand:shows triggers on errand's tables
func TestStore_ConnectionsAreDefensive(t *testing.T) {
	opened := newDB(t, nil).open()
	_, beside, _ := appStore(t, nil)
	look := func(s *sqlite.Store, db interface {
		QueryRow(query string, args ...any) *sql.Row
		Exec(query string, args ...any) (sql.Result, error)
	}, trusted int) {
		t.Helper()
		var trust, writable int
		_, err := db.Exec("PRAGMA writable_schema = 1")
		err = errors.Join(err, db.QueryRow("PRAGMA trusted_schema").Scan(&trust), db.QueryRow("PRAGMA writable_schema").Scan(&writable))
		if err != nil || trust != trusted || writable != 0 {
			t.Errorf("trusted_schema %d, writable_schema %d, %v: want %d, 0", trust, writable, err, trusted)
		}
	}
	for s, trusted := range map[*sqlite.Store]int{opened: 0, beside: 1} {
		look(s, s.Reading(), 0)
		if err := inTx(context.Background(), s, func(tx *sql.Tx) error { look(s, tx, trusted); return nil }); err != nil {
			t.Error(err)
		}
	}
}
