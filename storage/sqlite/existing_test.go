package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// A file with the tables of errand is opened as it was left.
//
//errand:shows a file that is no queue, opened with `Existing`
func TestExisting_Opens(t *testing.T) {
	for name, after := range map[string]func(d *db, s *sqlite.Store){
		"live":                    func(*db, *sqlite.Store) {},
		"closed":                  closeStore,
		"killed":                  logLeft("-wal", "-shm"),
		"a log without its index": logLeft("-wal"),
	} {
		t.Run(name, func(t *testing.T) {
			d := left(t, after)
			s, err := sqlite.Open(d.path, &sqlite.Options{Existing: true})
			if err != nil {
				t.Fatal(err)
			}
			wantReady(t, s, 3)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file without the tables of errand stays without them, and none is made.
//
//errand:shows a file that is no queue, opened with `Existing` | | Open returns fs.ErrNotExist or ErrUnsupportedDB and leaves the file as it is, also with the log of a process that was killed
func TestExisting_Refuses(t *testing.T) {
	foreign := func(d *db) {
		write(d.t, d.path, nil)
		d.exec("PRAGMA journal_mode = WAL; CREATE TABLE app (x); INSERT INTO app VALUES (1)")
	}
	for name, c := range map[string]struct {
		make func(d *db)
		is   error
	}{
		"missing":            {func(*db) {}, os.ErrNotExist},
		"empty":              {func(d *db) { write(d.t, d.path, nil) }, storage.ErrUnsupportedDB},
		"no database":        {func(d *db) { write(d.t, d.path, []byte(strings.Repeat("noise", 100))) }, storage.ErrCorrupt},
		"of another program": {foreign, storage.ErrUnsupportedDB},
		// Whether its log adds tables of errand can only be told by reading it.
		"of another program that was killed": {func(d *db) {
			away := newDB(d.t, nil)
			foreign(away)
			raw := away.raw() // which keeps the log
			if _, err := raw.Exec("INSERT INTO app VALUES (2)"); err != nil {
				d.t.Fatal(err)
			}
			for _, suffix := range []string{"", "-wal"} {
				b, err := os.ReadFile(away.path + suffix)
				if err != nil {
					d.t.Fatal(err)
				}
				write(d.t, d.path+suffix, b)
			}
		}, storage.ErrUnsupportedDB},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			c.make(d)
			before, _ := os.ReadFile(d.path) // there may be none
			s, err := sqlite.Open(d.path, &sqlite.Options{Existing: true})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), filepath.Base(d.path)) && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("error %v: want %v", err, c.is)
			}
			if after, _ := os.ReadFile(d.path); string(after) != string(before) {
				t.Error("the file was written")
			}
		})
	}
	if _, err := sqlite.New(newDB(t, nil).raw(), &sqlite.Options{Existing: true}); err == nil {
		t.Error("New has taken Existing")
	}
}

// What nobody has written to becomes a queue, whatever a first start has left of it. What
// another program has marked as its own in any way stays as it is.
//
//errand:shows a first start that was cut off, opened again with `Own` | | Open makes the queue, and returns ErrUnsupportedDB for what another program has marked
func TestOwn(t *testing.T) {
	of := func(statements string) func(d *db) {
		return func(d *db) {
			write(d.t, d.path, nil)
			d.exec(statements)
		}
	}
	const cutOff = "PRAGMA journal_mode = WAL; CREATE TABLE x (x); DROP TABLE x; VACUUM"
	for name, c := range map[string]struct {
		make func(d *db)
		is   error
	}{
		"missing":                          {func(*db) {}, nil},
		"empty":                            {func(d *db) { write(d.t, d.path, nil) }, nil},
		"without a table":                  {of(cutOff), nil},
		"a queue":                          {func(d *db) { closeStore(d, d.open()) }, nil},
		"with a table":                     {of("CREATE TABLE app (x)"), storage.ErrUnsupportedDB},
		"with a view":                      {of("CREATE VIEW v AS SELECT 1"), storage.ErrUnsupportedDB},
		"with an application_id":           {of(cutOff + "; PRAGMA application_id = 7"), storage.ErrUnsupportedDB},
		"with a user_version":              {of(cutOff + "; PRAGMA user_version = 7"), storage.ErrUnsupportedDB},
		"six bytes":                        {func(d *db) { write(d.t, d.path, []byte("noise\n")) }, storage.ErrUnsupportedDB},
		"no database":                      {func(d *db) { write(d.t, d.path, []byte(strings.Repeat("noise", 100))) }, storage.ErrCorrupt},
		"empty, with a log of another one": {func(d *db) { write(d.t, d.path, nil); write(d.t, d.path+"-wal", make([]byte, 32)) }, storage.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			c.make(d)
			before, _ := os.ReadFile(d.path) // there may be none
			s, err := sqlite.Open(d.path, &sqlite.Options{Own: true})
			if err == nil {
				err = s.Close()
			}
			if !errors.Is(err, c.is) || c.is == nil && err != nil {
				t.Errorf("error %v: want %v", err, c.is)
			}
			if errors.Is(c.is, storage.ErrUnsupportedDB) && !strings.Contains(err.Error(), d.path) {
				t.Errorf("error %v: want one that names the path", err)
			}
			if after, _ := os.ReadFile(d.path); c.is != nil && string(after) != string(before) {
				t.Error("the file was written")
			}
		})
	}
	if _, err := sqlite.New(newDB(t, nil).raw(), &sqlite.Options{Own: true}); err == nil {
		t.Error("New has taken Own")
	}
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
