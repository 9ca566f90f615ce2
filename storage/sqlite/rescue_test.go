//go:build unix

package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// mustBeTaken fails the test unless err says that a file was taken away.
func mustBeTaken(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrTakenAway) {
		t.Errorf("%s: %v, want ErrTakenAway", what, err)
	}
}

// openLossy opens a Store whose end is not that of a Store that was only closed.
func (d *db) openLossy() *sqlite.Store {
	d.t.Helper()
	s, err := sqlite.Open(d.path, d.opts)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = s.Close() }) // it says what was taken away
	return s
}

// What only the log had is in the database once the Store has closed itself, if nobody else
// has the database open, and it can be opened again before the Store is closed.
//
//errand:shows [taken]
func TestTaken_Moved(t *testing.T) {
	for _, end := range []string{"-wal", "-shm"} {
		for name, take := range map[string]func(path string) error{
			"deleted":  os.Remove,
			"renamed":  func(path string) error { return os.Rename(path, path+".old") },
			"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
		} {
			t.Run(end+" "+name, func(t *testing.T) {
				d := newDB(t, nil)
				s := d.openLossy()
				enqueue(t, s, "a", 5)
				lease(t, s, 1, "a")
				if err := take(d.path + end); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")}); err == nil {
					s.LookNow() // the last look is not a second old
				}
				_, err := s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
				mustBeTaken(t, "Enqueue", err)
				if !errors.Is(err, storage.ErrClosed) || !strings.Contains(err.Error(), d.path+end) {
					t.Errorf("Enqueue: %v, want ErrClosed and the file", err)
				}
				_, err = s.Stats(t.Context())
				mustBeTaken(t, "Stats", err)
				mustBeTaken(t, "Backup", s.Backup(t.Context(), d.path+".backup"))
				if n := d.number("SELECT COUNT(*) FROM errand_job"); n < 5 {
					t.Errorf("%d jobs are in the database, want at least 5", n)
				}
				d.open()
			})
		}
	}
}

// While somebody else has the database open, a copy is saved, and the doctor says that the
// database lacks what it has.
//
//errand:shows [taken]
func TestTaken_Copied(t *testing.T) {
	d := newDB(t, nil)
	s := d.openLossy()
	app := d.raw()
	defer app.Close()
	var n int
	if err := app.QueryRow("SELECT COUNT(*) FROM errand_job").Scan(&n); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 5)
	if err := os.Remove(d.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	s.LookNow()
	_, err := s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
	mustBeTaken(t, "Enqueue", err)
	copies, _ := filepath.Glob(d.path + "-saved-*")
	if len(copies) != 1 || !strings.Contains(err.Error(), copies[0]) {
		t.Fatalf("copies %q, and the error says %v", copies, err)
	}
	c := &db{t: t, path: copies[0]}
	if n := c.number("SELECT COUNT(*) FROM errand_job"); n != 5 {
		t.Errorf("%d jobs are in the copy, want 5", n)
	}
	c.Invariants(t)
	examine := func(want sqlite.Severity, text string) {
		t.Helper()
		found, err := sqlite.Examine(t.Context(), d.path, false, t0)
		is := func(f sqlite.Finding) bool {
			return f.Check == "saved copies" && f.Severity == want && strings.Contains(f.Text, text)
		}
		if err != nil || !slices.ContainsFunc(found, is) {
			t.Errorf("the doctor says %+v (%v), want a copy of which %q", found, err, text)
		}
	}
	examine(sqlite.SeverityError, "has what the database lacks")
	if err := errors.Join(s.Close(), app.Close()); err != nil && !errors.Is(err, storage.ErrTakenAway) {
		t.Fatal(err)
	}
	if err := os.Rename(d.path, d.path+".old"); err != nil {
		t.Fatal(err)
	}
	s = d.open() // another database, with as many jobs and more
	enqueue(t, s, "a", 9)
	enqueue(t, s, "b", 1)
	examine(sqlite.SeverityWarning, "the database lacks 5")
	if err := errors.Join(s.Close(), os.Rename(d.path+".old", d.path)); err != nil {
		t.Fatal(err)
	}
	enqueue(t, d.open(), "a", 1)
	examine(sqlite.SeverityWarning, "has all jobs")
}

// Nobody makes another log beside the one that a living instance writes.
//
//errand:shows [taken]
func TestOpen_TakenAway(t *testing.T) {
	for _, ends := range [][]string{{"-wal"}, {"-shm"}, {"-wal", "-shm"}, {"", "-wal", "-shm"}} {
		d := newDB(t, nil)
		s := d.openLossy()
		enqueue(t, s, "a", 3)
		lease(t, s, 1, "a")
		for _, end := range ends {
			if err := os.Remove(d.path + end); err != nil {
				t.Fatal(err)
			}
		}
		for what, o := range map[string]*sqlite.Options{"Open": nil, "existing": {Existing: true}, "to read": {ReadOnly: true}} {
			if ends[0] == "" && what != "Open" {
				continue // there is nothing to open
			}
			other, err := sqlite.Open(d.path, o)
			mustBeTaken(t, what, err)
			if err == nil {
				_ = other.Close()
			}
		}
		for _, end := range ends {
			if _, err := os.Lstat(d.path + end); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%q was made anew: %v", end, err)
			}
		}
		if ends[0] == "" {
			continue
		}
		if found, err := sqlite.Examine(t.Context(), d.path, false, t0); err != nil || !has(found, "files", sqlite.SeverityError) {
			t.Errorf("the doctor says %v (%v), want an error about files", found, err)
		}
		s.LookNow()
		_, err := s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
		mustBeTaken(t, "Enqueue", err)
		d.open()
		if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 3 {
			t.Errorf("%q: %d jobs, want 3", ends, n)
		}
	}
}

// It is the same if the Store has leased nothing, and so is not registered.
//
//errand:shows [taken]
func TestOpen_TakenAwayFromProducer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only who has leases is known to use a database")
	}
	none := func(s *sqlite.Store, err error) error {
		if err == nil {
			_ = s.Close()
		}
		return err
	}
	for name, c := range map[string]struct {
		o    *sqlite.Options
		open func(path string) error
	}{
		"Open":            {nil, func(path string) error { return none(sqlite.Open(path, nil)) }},
		"to read":         {nil, func(path string) error { return none(sqlite.Open(path, &sqlite.Options{ReadOnly: true})) }},
		"of the only one": {&sqlite.Options{SingleProcess: true}, func(path string) error { return none(sqlite.Open(path, &sqlite.Options{ReadOnly: true})) }},
		"to examine": {nil, func(path string) error {
			found, err := sqlite.Examine(context.Background(), path, false, t0)
			if err == nil && has(found, "files", sqlite.SeverityError) {
				err = storage.ErrTakenAway
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { // in which it looks for the files with its next write or checkpoint
				d := &db{t, filepath.Join(dir, "jobs.db"), c.o}
				s := d.openLossy()
				enqueue(t, s, "a", 3)
				if err := os.Remove(d.path + "-wal"); err != nil {
					t.Fatal(err)
				}
				mustBeTaken(t, name, c.open(d.path))
				s.LookNow()
				_, err := s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
				mustBeTaken(t, "Enqueue", err)
				if c.o != nil {
					_ = s.Close() // else no other Store may write
				}
				d.open() // it has let go of the database
				if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 3 {
					t.Errorf("%d jobs, want 3", n)
				}
			})
		})
	}
}

// Those who open and close the database side by side take nobody for one who has lost its log: the
// log is not there whenever the last one has closed.
func TestOpen_NobodyLostTheLog(t *testing.T) {
	d := newDB(t, nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				s, err := sqlite.Open(d.path, &sqlite.Options{BusyTimeout: 2 * time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// If the database is gone, who looks for it hears of the copies that were saved.
func TestOpen_GoneWithACopy(t *testing.T) {
	d := newDB(t, nil)
	copied := d.path + "-saved-20260304T050607Z-1"
	for _, name := range []string{copied, d.path + "-wal"} {
		if err := os.WriteFile(name, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, opened := sqlite.Open(d.path, nil)
	_, examined := sqlite.Examine(t.Context(), d.path, false, t0)
	for what, err := range map[string]error{"Open": opened, "Examine": examined} {
		if err == nil || !strings.Contains(err.Error(), copied) {
			t.Errorf("%s: %v, want the name of the copy", what, err)
		}
	}
}

// A handler that runs on after Close keeps nobody from opening the database, which has no
// log any more.
func TestOpen_AfterCloseWithHandlers(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	start(t, s, lease(t, s, 1, "a")...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.open()
	s.Kill()
}

// What can be saved nowhere keeps the Store open. It refuses all calls, and tries again.
//
//errand:shows [taken]
func TestTaken_SavedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		d := &db{t: t, path: filepath.Join(dir, "jobs.db")}
		s, err := sqlite.Open(d.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		enqueue(t, s, "a", 5)
		if err := os.Rename(dir, dir+"2"); err != nil {
			t.Fatal(err)
		}
		s.LookNow()
		for range 2 {
			_, err = s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
			mustBeTaken(t, "Enqueue", err)
			if errors.Is(err, storage.ErrClosed) || !strings.Contains(err.Error(), "do not kill it") {
				t.Errorf("Enqueue: %v, want that it is not closed, and what to do", err)
			}
			time.Sleep(3 * time.Minute)
		}
		if err := os.Rename(dir+"2", dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err = s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")}); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Enqueue: %v, want ErrClosed", err)
		}
		if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 5 {
			t.Errorf("%d jobs are in the database, want 5", n)
		}
	})
}

// A transaction that was open when a file was taken away does not commit.
func TestTaken_InTx(t *testing.T) {
	d := newDB(t, nil)
	s := d.openLossy()
	enqueue(t, s, "a", 1)
	err := s.Tx(t.Context(), func(tx any) error {
		if _, err := s.EnqueueTx(t.Context(), tx, t0, []storage.NewJob{newJob("default", "a")}); err != nil {
			return err
		}
		err := os.Remove(d.path + "-shm")
		s.LookNow()
		return err
	})
	mustBeTaken(t, "Tx", err)
	mustBeTaken(t, "Tx", s.Tx(t.Context(), func(any) error { return nil }))
	if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

// The application that goes on with a log that is gone is told so, and its call commits
// nothing.
func TestTaken_OfAnApplication(t *testing.T) {
	d := newDB(t, nil)
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	app := d.raw()
	defer app.Close()
	s, err := sqlite.New(app, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enqueue(t, s, "a", 4)
	if err := os.Remove(d.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.New(app, nil)
	mustBeTaken(t, "New", err)
	s.LookNow()
	tx, err := app.BeginTx(context.Background(), &sql.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.EnqueueTx(t.Context(), tx, t0, []storage.NewJob{newJob("default", "a")})
	mustBeTaken(t, "EnqueueTx", err)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
	mustBeTaken(t, "Enqueue", err)
	copies, _ := filepath.Glob(d.path + "-saved-*")
	if len(copies) != 1 {
		t.Fatalf("copies %q (%v), want one, as the application has the database open", copies, err)
	}
	if n := (&db{t: t, path: copies[0]}).number("SELECT COUNT(*) FROM errand_job"); n != 4 {
		t.Errorf("%d jobs are in the copy, want 4", n)
	}
}

// A log that was cut off is noticed, and its rest does not come into the database.
func TestTaken_LogCutOff(t *testing.T) {
	d := newDB(t, nil)
	s := d.openLossy()
	enqueue(t, s, "a", 5)
	s.LookNow()
	if err := os.Truncate(d.path+"-wal", 0); err != nil {
		t.Fatal(err)
	}
	s.LookNow()
	_, err := s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
	mustBeTaken(t, "Enqueue", err)
}

// A log that was cut off is noticed too if it is as long as before, as jobs come in meanwhile: SQLite
// writes on behind what is gone.
//
//errand:shows [taken]
func TestTaken_LogCutOffUnderLoad(t *testing.T) {
	sqlite.FileSystem(t, "ext4")
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.openLossy()
	big(t, s, 20)
	s.LookNow()
	enqueue(t, s, "a", 1)
	if err := os.Truncate(d.path+"-wal", 0); err != nil {
		t.Fatal(err)
	}
	j := newJob("default", "a")
	j.Args = make([]byte, 20_000)
	_, err := s.Enqueue(t.Context(), t0, slices.Repeat([]storage.NewJob{j}, 20))
	if err == nil { // else the Store has looked by itself
		if info, err := os.Lstat(d.path + "-wal"); err != nil || host.Hole(info) == 0 {
			t.Skipf("the file system of the test does not tell of holes: %v", err)
		}
		s.LookNow()
		_, err = s.Enqueue(t.Context(), t0, one())
	}
	mustBeTaken(t, "Enqueue", err)
}

// What a restart does not need is taken away without harm.
func TestTaken_OthersBeside(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 5)
	lease(t, s, 1, "a")
	for _, end := range []string{"-turn", "-wake", "-ballast", "-instance-1"} {
		_ = os.Remove(d.path + end) // some are not there
	}
	s.LookNow()
	enqueue(t, s, "a", 5)
}

// A Tx whose function does not return keeps nobody from saving what the Store has. It does not commit
// then.
//
//errand:shows [taken]
func TestTaken_TxStaysOpen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &db{t, dir + "/jobs.db", &sqlite.Options{BusyTimeout: 5 * time.Second}}
		s := d.openLossy()
		enqueue(t, s, "a", 5)
		taken, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- s.Tx(t.Context(), func(tx any) error {
				_, err := s.EnqueueTx(t.Context(), tx, t0, one())
				err = errors.Join(err, os.Remove(d.path+"-wal"))
				s.LookNow()
				close(taken)
				<-goOn
				return err
			})
		}()
		<-taken
		_, err := s.Enqueue(t.Context(), t0, one()) // which waits for what is saved
		mustBeTaken(t, "Enqueue", err)
		copies, _ := filepath.Glob(d.path + "-saved-*")
		if len(copies) != 1 || !strings.Contains(err.Error(), copies[0]) {
			t.Fatalf("copies %q, and the error says %v", copies, err)
		}
		close(goOn)
		mustBeTaken(t, "Tx", <-ended)
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := d.open().Close(); err != nil {
			t.Errorf("opened when the transaction has ended: %v", err)
		}
		if n := (&db{t: t, path: copies[0]}).number("SELECT COUNT(*) FROM errand_job"); n != 5 {
			t.Errorf("%d jobs are in the copy, want 5", n)
		}
	})
}

// That a copy finds no room does not make the error one of a queue that is full.
func TestTaken_NoRoomForTheCopy(t *testing.T) {
	err := sqlite.Unsaved(storage.ErrFull)
	if mustBeTaken(t, "a call", err); errors.Is(err, storage.ErrFull) || !strings.Contains(err.Error(), storage.ErrFull.Error()) {
		t.Errorf("%v: want the text of ErrFull, and no ErrFull", err)
	}
}

// A copy that was not finished is none, and is deleted if nobody has written to it for long.
func TestTaken_PartsOfCopies(t *testing.T) {
	d := newDB(t, nil)
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	const saved = "-saved-20261128T120000Z-77"
	for _, end := range []string{saved, saved + "-part-1", saved + "-part-1-journal", saved + "-part-2"} {
		if err := os.WriteFile(d.path+end, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(end, "-part-1") {
			if err := os.Chtimes(d.path+end, t0, t0); err != nil {
				t.Fatal(err)
			}
		}
	}
	log := &lines{attr: "file"}
	d.opts = &sqlite.Options{Logger: slog.New(log)}
	s := d.open()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(log.all, func(line string) bool { return !strings.HasSuffix(line, d.path+saved) })); n != 1 {
		t.Errorf("the log has %q, want a line about one copy", log.all)
	}
	left, _ := filepath.Glob(d.path + "-saved-*")
	if want := []string{d.path + saved, d.path + saved + "-part-2"}; !slices.Equal(left, want) {
		t.Errorf("files %q, want %q", left, want)
	}
}
