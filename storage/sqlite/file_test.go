package sqlite_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// What is written to a file that nobody will find again is not acknowledged.
func TestStore_DatabaseTakenAway(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"deleted": os.Remove,
		"replaced": func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			return os.WriteFile(path, nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			s := d.open()
			if err := take(d.path); err != nil {
				t.Fatal(err)
			}
			jobs := []storage.NewJob{newJob("default", "a")}
			if _, err := s.Enqueue(context.Background(), t0, jobs); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("Enqueue: %v, want ErrCorrupt", err)
			}
			if _, err := s.Enqueue(context.Background(), t0, jobs); !errors.Is(err, storage.ErrClosed) {
				t.Errorf("and again: %v, want ErrClosed", err)
			}
		})
	}
}

// A database that is gone while its log is there is no new one.
func TestOpen_LogWithoutDatabase(t *testing.T) {
	d := newDB(t, nil)
	if err := os.WriteFile(d.path+"-wal", []byte("what was there"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(d.path, nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Open: %v, want ErrCorrupt", err)
	}
	if _, err := os.Stat(d.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database was made anew: %v", err)
	}
}

// The log that a process has left is in the database once another has opened
// it, and not only in the memory of the system.
func TestOpen_SettlesTheLog(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 10)
	copied := newDB(t, nil)
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(d.path + suffix)
		if err == nil {
			err = os.WriteFile(copied.path+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copied.open()
	if info, err := os.Stat(copied.path + "-wal"); err != nil || info.Size() > 0 {
		t.Errorf("the log has %d bytes (%v) after Open", info.Size(), err)
	}
	if n := copied.number("SELECT COUNT(*) FROM errand_job"); n != 10 {
		t.Errorf("there are %d jobs, want 10", n)
	}
}
