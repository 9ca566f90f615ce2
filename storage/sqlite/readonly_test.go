package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// beside returns what files there are in the folder of a file, and how they are. With
// a live Store the log and its index may change at any time.
func beside(t *testing.T, path string, live bool) (all string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all += e.Name() + "\n"
		if !live {
			all += fmt.Sprintln(info.Mode(), info.Size(), info.ModTime())
		}
	}
	return all
}

// openReadOnly opens the file for reading, and closes it when the test ends.
func (d *db) openReadOnly() *sqlite.Store {
	d.t.Helper()
	s, err := sqlite.Open(d.path, &sqlite.Options{ReadOnly: true})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			d.t.Errorf("Close: %v", err)
		}
	})
	return s
}

// wantReady wants so many jobs, ready.
func wantReady(t *testing.T, s *sqlite.Store, n int64) {
	t.Helper()
	got, err := s.Counts(t.Context())
	if err != nil || len(got) != 1 || got[0].N != n || got[0].State != storage.Ready {
		t.Errorf("counts %v, %v: want %d ready", got, err, n)
	}
}

// left makes a file as what is done to its Store leaves it, with three jobs.
func left(t *testing.T, after func(d *db, s *sqlite.Store)) *db {
	t.Helper()
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 3)
	after(d, s)
	return d
}

func closeStore(d *db, s *sqlite.Store) {
	if err := s.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// logLeft leaves a log in which the jobs are: it copies the files of a live Store.
func logLeft(suffixes ...string) func(d *db, s *sqlite.Store) {
	return func(d *db, s *sqlite.Store) {
		to := filepath.Join(d.t.TempDir(), "copy.db")
		for _, suffix := range append(suffixes, "") {
			b, err := os.ReadFile(d.path + suffix)
			if err == nil {
				err = os.WriteFile(to+suffix, b, 0o600)
			}
			if err != nil {
				d.t.Fatal(err)
			}
		}
		d.path = to
	}
}

// A file is read as it was left, and nothing is made or changed beside it.
//
//errand:shows a file that is only read | | nothing is created or changed beside it; what cannot be read as it is returns a typed error; a read without a lock during which somebody wrote returns ErrBusy
func TestReadOnly_Reads(t *testing.T) {
	for name, c := range map[string]struct {
		live  bool
		after func(d *db, s *sqlite.Store)
	}{
		"live":   {true, func(*db, *sqlite.Store) {}},
		"closed": {false, closeStore},
		"killed": {false, logLeft("-wal", "-shm")},
		"with an empty log": {false, func(d *db, s *sqlite.Store) {
			closeStore(d, s)
			if err := os.WriteFile(d.path+"-wal", nil, 0o600); err != nil {
				d.t.Fatal(err)
			}
		}},
		"with an old index": {false, func(d *db, s *sqlite.Store) {
			closeStore(d, s)
			if err := os.WriteFile(d.path+"-shm", make([]byte, 32768), 0o600); err != nil {
				d.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := left(t, c.after)
			before := beside(t, d.path, c.live)
			s := d.openReadOnly()
			wantReady(t, s, 3)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := s.Counts(t.Context()); !errors.Is(err, storage.ErrClosed) {
				t.Errorf("after Close: %v, want ErrClosed", err)
			}
			if after := beside(t, d.path, c.live); after != before {
				t.Errorf("files before\n%sand after\n%s", before, after)
			}
		})
	}
}

//errand:shows a file that is only read
func TestReadOnly_Refuses(t *testing.T) {
	write := func(name string, b []byte) func(d *db, s *sqlite.Store) {
		return func(d *db, s *sqlite.Store) {
			closeStore(d, s)
			if err := os.WriteFile(d.path+name, b, 0o600); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	change := func(text string) func(d *db, s *sqlite.Store) {
		return func(d *db, s *sqlite.Store) {
			closeStore(d, s)
			d.exec(text)
		}
	}
	for name, c := range map[string]struct {
		after func(d *db, s *sqlite.Store)
		is    error
		says  string
	}{
		"missing": {func(d *db, s *sqlite.Store) {
			closeStore(d, s)
			if err := os.RemoveAll(filepath.Dir(d.path)); err != nil {
				d.t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Dir(d.path), 0o700); err != nil {
				d.t.Fatal(err)
			}
		}, os.ErrNotExist, "jobs.db"},
		"a log without its index": {logLeft("-wal"), storage.ErrNeedsRecovery, "open it once for writing"},
		"a rollback journal":      {write("-journal", []byte("journal")), storage.ErrNeedsRecovery, "rollback journal"},
		"no database":             {write("", []byte(strings.Repeat("noise", 100))), storage.ErrCorrupt, "not a database"},
		"an empty file":           {write("", nil), storage.ErrUnsupportedDB, "it is empty"},
		"of another program": {change("DROP TABLE errand_migration"),
			storage.ErrUnsupportedDB, "must have the tables of errand"},
		"of a newer version": {change("UPDATE errand_number SET n = 1000 WHERE id = 0"), storage.ErrTooNew, "version"},
		"without a version": {change("DELETE FROM errand_migration"),
			storage.ErrUnsupportedDB, "must have the tables of errand"},
	} {
		t.Run(name, func(t *testing.T) {
			d := left(t, c.after)
			before := beside(t, d.path, false)
			s, err := sqlite.Open(d.path, &sqlite.Options{ReadOnly: true})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v: want %v with %q", err, c.is, c.says)
			}
			if after := beside(t, d.path, false); after != before {
				t.Errorf("files before\n%sand after\n%s", before, after)
			}
		})
	}
	d := left(t, closeStore)
	if _, err := sqlite.Open(d.path, &sqlite.Options{ReadOnly: true, SingleProcess: true}); err == nil {
		t.Error("opened with SingleProcess")
	}
	if _, err := sqlite.New(d.raw(), &sqlite.Options{ReadOnly: true}); err == nil {
		t.Error("New has taken ReadOnly")
	}
}

// What would write returns ErrReadOnly.
func TestReadOnly_Writes(t *testing.T) {
	d := left(t, closeStore)
	s := d.openReadOnly()
	defer s.Notify(func(storage.Event) {})()
	ctx, lane := t.Context(), storage.Lane{Queue: "default"}
	for name, write := range map[string]func() error{
		"Enqueue": func() error { _, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")}); return err },
		"Exchange": func() error {
			_, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Second, Wants: want(1, "a")})
			return err
		},
		"Reclaim": func() error { _, err := s.Reclaim(ctx, t0, 0, time.Second, 1); return err },
		"Hold":    func() error { return s.Hold(ctx, t0, storage.Hold{Lane: lane, Reason: "held"}) },
		"Release": func() error { _, err := s.Release(ctx, t0, lane, "held"); return err },
		"Tx":      func() error { return inTx(ctx, s, func(*sql.Tx) error { return nil }) },
		"PutEntries": func() error {
			_, err := s.PutEntries(ctx, t0, []storage.Entry{{Class: "c", Name: "a"}})
			return err
		},
		"PublishMessages": func() error {
			_, err := s.PublishMessages(ctx, t0, []storage.Publication{message("a", newJob("default", "a"))})
			return err
		},
		"StepClock": func() error { _, err := s.StepClock(ctx, t0, 0); return err },
		"Checkpoint": func() error {
			_, err := s.Checkpoint(ctx, storage.Checkpoint{Lease: storage.Lease{Key: 1, Token: 1}, Data: []byte("x")})
			return err
		},
		"EnqueueTx": func() error {
			db := d.raw()
			defer db.Close()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			_, err = s.EnqueueTx(ctx, tx, t0, []storage.NewJob{newJob("default", "a")})
			return err
		},
	} {
		if err := write(); !errors.Is(err, storage.ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", name, err)
		}
	}
	wantReady(t, s, 3)
}

// What others commit is seen by the next read, whether or not the file had a log.
func TestReadOnly_Follows(t *testing.T) {
	d := left(t, closeStore)
	s := d.openReadOnly()
	wantReady(t, s, 3)
	for n := int64(4); n <= 6; n++ {
		w := d.open()
		enqueue(t, w, "a", 1)
		wantReady(t, s, n)
		closeStore(d, w)
		if _, err := os.Stat(d.path + "-wal"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the log is still there: %v", err)
		}
		wantReady(t, s, n)
	}
}

// A file without a log is read without a lock. If somebody opens and writes it
// meanwhile, what was read does not count.
//
//errand:shows a file that is only read
func TestReadOnly_BegunMeanwhile(t *testing.T) {
	d := left(t, closeStore)
	s := d.openReadOnly()
	var w *sqlite.Store
	for i, write := range []func(){
		func() { w = d.open(); enqueue(t, w, "a", 1); closeStore(d, w) },
		func() { w = d.open(); enqueue(t, w, "a", 1) },
	} {
		var once sync.Once
		s.OnView(func() {}, func() { once.Do(write) })
		if _, err := s.Counts(t.Context()); !errors.Is(err, storage.ErrBusy) {
			t.Errorf("write %d: %v, want ErrBusy", i, err)
		}
		wantReady(t, s, int64(4+i))
	}
}

// If the last process that had the file open closes it while a read begins, the read
// begins anew.
func TestReadOnly_ClosedMeanwhile(t *testing.T) {
	d := newDB(t, nil)
	w := d.open()
	enqueue(t, w, "a", 3)
	s := d.openReadOnly()
	var once sync.Once
	s.OnView(func() { once.Do(func() { closeStore(d, w) }) }, func() {})
	wantReady(t, s, 3)
}

// A reader beside a Store that writes and moves its log all the time sees whole
// transactions, and no error.
func TestReadOnly_BesideAWriter(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	w := d.open()
	enqueue(t, w, "a", 10)
	s := d.openReadOnly()
	raw := d.raw()
	defer raw.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			enqueue(t, w, "a", 10)
			if _, err := raw.Exec("PRAGMA wal_checkpoint(RESTART)"); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		got, err := s.Counts(t.Context())
		if err != nil || len(got) != 1 || got[0].N%10 != 0 {
			t.Errorf("counts %v, %v: want a multiple of 10", got, err)
			break
		}
	}
	cancel()
	writing.Wait()
}

func TestReadOnly_SingleProcess(t *testing.T) {
	d := newDB(t, &sqlite.Options{SingleProcess: true})
	enqueue(t, d.open(), "a", 2)
	wantReady(t, d.openReadOnly(), 2)
}

func TestReadOnly_Backup(t *testing.T) {
	for name, after := range map[string]func(*db, *sqlite.Store){"live": func(*db, *sqlite.Store) {}, "closed": closeStore} {
		t.Run(name, func(t *testing.T) {
			d := left(t, after)
			to := filepath.Join(t.TempDir(), "copy.db")
			if err := d.openReadOnly().Backup(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			wantReady(t, (&db{t, to, nil}).open(), 3)
		})
	}
}
