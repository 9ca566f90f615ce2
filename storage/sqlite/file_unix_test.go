//go:build unix

package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// All files beside the database are for those who may write it, whatever the
// umask and the mode they had.
//
//errand:shows users who may only read the database | | they cannot open the files beside it, also not files that existed before: so they cannot lock the turn
func TestOpen_Modes(t *testing.T) {
	for name, c := range map[string]struct {
		umask int
		mode  os.FileMode // of a database that is there; 0: none is
		want  os.FileMode
	}{
		"new":                   {0, 0, 0o600},
		"new, careful":          {0o77, 0, 0o600},
		"of a group, careful":   {0o77, 0o660, 0o660},
		"of a group":            {0, 0o660, 0o660},
		"that a group reads":    {0, 0o640, 0o600},
		"that everybody reads":  {0, 0o664, 0o660},
		"of the owner":          {0, 0o600, 0o600},
		"that can be executed?": {0, 0o777, 0o666},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			defer syscall.Umask(syscall.Umask(c.umask))
			if c.mode != 0 {
				if err := d.open().Close(); err != nil {
					t.Fatal(err)
				}
				for _, suffix := range []string{"", "-turn", "-wake", "-ballast", "-check", "-instance-1"} {
					f, err := os.OpenFile(d.path+suffix, os.O_CREATE, 0o600)
					if err == nil {
						err = errors.Join(f.Chmod(c.mode), f.Close())
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			a, b := d.open(), d.open()
			defer a.Notify(func(storage.Event) {})()
			enqueue(t, a, "a", 1)
			lease(t, a, 1, "a")
			enqueue(t, b, "b", 1)
			lease(t, b, 1, "b")
			enqueue(t, b, "b", 1) // wakes a
			files, err := filepath.Glob(d.path + "-*")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"-wal", "-shm", "-turn", "-wake", "-ballast", "-instance-1"} {
				if !strings.Contains(strings.Join(files, " ")+" ", d.path+want+" ") {
					t.Errorf("no file %s in %v", want, files)
				}
			}
			for _, f := range files {
				info, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				want := c.want
				if c.mode != 0 && (strings.HasSuffix(f, "-wal") || strings.HasSuffix(f, "-shm")) {
					want = c.mode // SQLite takes that of the database
				}
				if info.Mode().Perm() != want {
					t.Errorf("%s has mode %v, want %v", filepath.Base(f), info.Mode(), want)
				}
			}
		})
	}
}

// odd are what whoever may write the folder can put beside a database, each
// with a file of somebody else at hand.
var odd = map[string]func(path, victim string) error{
	"symbolic link": func(path, victim string) error { return os.Symlink(victim, path) },
	"hard link":     func(path, victim string) error { return os.Link(victim, path) },
	"pipe":          func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	"directory":     func(path, _ string) error { return os.Mkdir(path, 0o700) },
	"device":        func(path, _ string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|5) }, // zero
	"of another user": func(path, _ string) error {
		err := os.WriteFile(path, []byte("what it says"), 0o600)
		if err == nil {
			err = os.Chown(path, 65534, 65534)
		}
		return err
	},
}

// What is beside a database is used only if errand can have made it: no file of
// others is written, emptied or read, and nothing is waited for. That holds for what is
// there when the database is opened, and for what comes later.
//
//errand:shows links and devices beside the database | | files that errand cannot have made are refused unread; files of a user whom an ACL allows to write are accepted; links are not followed, pipes do not block
func TestOpen_OddFilesBeside(t *testing.T) {
	for _, suffix := range []string{"-turn", "-wake", "-ballast", "-check", "-instance-1"} {
		for what, put := range odd {
			for when, later := range map[string]bool{"": false, ", later": true} {
				t.Run(suffix+" is "+what+when, func(t *testing.T) { oddBeside(t, suffix, put, later) })
			}
		}
	}
}

// oddBeside puts an odd file beside a database, before it is opened or later, and wants it,
// and the file of others to which it may lead, to stay as they are.
func oddBeside(t *testing.T, suffix string, put func(path, victim string) error, later bool) {
	var mu sync.Mutex
	var said []string
	d := newDB(t, nil)
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	d.opts = &sqlite.Options{Logger: slog.New(listener(func(_ slog.Level, text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}))}
	var s *sqlite.Store
	if later {
		s = d.open()
	}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(d.path + suffix) // some are not there
	if err := put(d.path+suffix, victim); errors.Is(err, syscall.EPERM) {
		t.Skip("only root may give a file to another user: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(d.path + suffix)
	if err != nil {
		t.Fatal(err)
	}
	if !later {
		s, err = sqlite.Open(d.path, d.opts)
		// That of an instance is refused when the process with its number is to lease jobs.
		if refused := errors.Is(err, storage.ErrUnsupportedDB); refused != (suffix != "-instance-1") || err != nil && !refused {
			t.Errorf("Open: %v", err)
		}
	}
	if s != nil {
		useBeside(t, s, suffix)
	}
	if found, err := sqlite.Examine(context.Background(), d.path, false, t0); err != nil || !has(found, "files", sqlite.SeverityError) {
		t.Errorf("the doctor says %+v, %v, want an error about the file", found, err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "secret" {
		t.Errorf("the file of somebody else has %q in it (%v)", b, err)
	}
	after, err := os.Lstat(d.path + suffix)
	if err != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() || after.Size() != before.Size() {
		t.Errorf("%v was made of %v (%v)", after, before, err)
	}
	for _, text := range said {
		if strings.Contains(text, "secret") || strings.Contains(text, "what it says") {
			t.Errorf("the log has it: %q", text)
		}
	}
}

// useBeside does all that uses the files beside a database, of which the one with this name
// is not to be used, and closes the Store.
func useBeside(t *testing.T, s *sqlite.Store, suffix string) {
	ctx := context.Background()
	var full atomic.Bool
	s.Fault(func(bool) error {
		if full.Load() {
			return storage.ErrFull
		}
		return nil
	})
	defer s.Notify(func(storage.Event) {})()
	if _, err := s.Enqueue(ctx, t0, one()); err != nil {
		t.Errorf("Enqueue: %v", err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "a")}
	if _, err := s.Exchange(ctx, t0, x); (err != nil) != (suffix == "-instance-1") {
		t.Errorf("leasing: %v", err)
	}
	full.Store(true) // empties the ballast
	_ = s.Hold(ctx, t0, storage.Hold{Lane: storage.Lane{Queue: "default"}, Reason: storage.HoldPaused})
	full.Store(false)
	if _, err := s.Reclaim(ctx, t0, 0, time.Minute, 10); err != nil {
		t.Errorf("Reclaim: %v", err)
	}
	if s.CheckOver() != nil {
		<-s.CheckOver()
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// wantTwoNames wants a file refused since it has two names.
func wantTwoNames(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), ": remove all names but one, unless") {
		t.Errorf("%s: %v, want ErrUnsupportedDB and what to do", what, err)
	}
}

// A file with two names has two logs: what is written by one name is not seen,
// and in the end lost, by the other.
//
//errand:shows two names of one file | | Open, New and EnqueueTx refuse a hard link, an open store ends when one is made, and the doctor reports it
func TestOpen_HardLink(t *testing.T) {
	d := newDB(t, nil)
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Link(d.path, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{d.path, link} {
		_, err := sqlite.Open(path, nil)
		wantTwoNames(t, "Open", err)
		_, err = sqlite.New(appDB(t, "file:"+path), nil)
		wantTwoNames(t, "New", err)
		if s, err := sqlite.Open(path, &sqlite.Options{AnyFileSystem: true}); err != nil {
			t.Errorf("with AnyFileSystem: %v", err)
		} else if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	found, err := sqlite.Examine(context.Background(), d.path, false, t0)
	if err != nil || !has(found, "names", sqlite.SeverityError) {
		t.Errorf("the doctor says %v (%v), want an error about names", found, err)
	}
}

// A transaction on another name of the file would write to another log.
//
//errand:shows two names of one file
func TestStore_EnqueueTx_HardLink(t *testing.T) {
	_, s, d := appStore(t, nil)
	d.exec("PRAGMA wal_checkpoint(TRUNCATE)") // else there is nothing by the other name
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Link(d.path, link); err != nil {
		t.Fatal(err)
	}
	tx, err := appDB(t, "file:"+link).Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.EnqueueTx(context.Background(), tx, t0, one())
	wantTwoNames(t, "EnqueueTx", err)
	if err := errors.Join(tx.Rollback(), os.Remove(link)); err != nil {
		t.Fatal(err)
	}
}

// A folder may have two names: all files in it are the same by both.
//
//errand:shows two names of one file
func TestStore_EnqueueTx_FolderByAnotherName(t *testing.T) {
	_, s, d := appStore(t, nil)
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Symlink(filepath.Dir(d.path), folder); err != nil {
		t.Fatal(err)
	}
	tx, err := appDB(t, "file:"+filepath.Join(folder, "jobs.db")+"?_txlock=immediate").Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(context.Background(), tx, t0, one()); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		t.Fatal(err)
	}
}

//errand:shows two names of one file
func TestStore_GivenAnotherName(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	if err := os.Link(d.path, d.path+".link"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(context.Background(), t0, one())
	wantTwoNames(t, "Enqueue", err)
	if _, err := s.Enqueue(context.Background(), t0, one()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("and again: %v, want ErrClosed", err)
	}
}

// What errand and SQLite cannot have made, at the name of a file beside the database, is
// refused by name in each way of opening the database, and stays as it is.
func TestOpen_LinksBesideTheDatabase(t *testing.T) {
	kinds := map[string]struct {
		what string
		put  func(victim, path string) error
	}{
		"link":      {"is a symbolic link", os.Symlink},
		"dangling":  {"is a symbolic link", func(_, path string) error { return os.Symlink(path+".gone", path) }},
		"hard link": {"has 2 names (hard links)", os.Link},
		"directory": {"is a directory", func(_, path string) error { return os.Mkdir(path, 0o700) }},
	}
	for i, end := range []string{"-wal", "-shm", "-journal", "-turn", "-wake", "-ballast", "-room", "-check"} {
		for kind, k := range kinds {
			d := newDB(t, nil)
			app := appDB(t, "file:"+d.path) // which connects when it is used
			victim, path := filepath.Join(filepath.Dir(d.path), "victim"), d.path+end
			err := errors.Join(d.open().Close(), os.RemoveAll(path), os.WriteFile(victim, []byte("of others"), 0o600), k.put(victim, path))
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("path %q %s: must be a regular file of one name, that errand has made; move it away", path, k.what)
			refused := func(how string, s *sqlite.Store, err error) {
				t.Helper()
				if !errors.Is(err, storage.ErrUnsupportedDB) || errors.Is(err, storage.ErrNeedsRecovery) || !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%s %s, %s: %v, want ErrUnsupportedDB: %s", end, kind, how, err, want)
				}
				if err == nil {
					_ = s.Close()
				}
			}
			s, err := sqlite.Open(d.path, nil)
			refused("to write", s, err)
			s, err = sqlite.Open(d.path, &sqlite.Options{Existing: true})
			refused("existing", s, err)
			s, err = sqlite.New(app, nil)
			refused("of an application", s, err)
			s, err = sqlite.Open(d.path, &sqlite.Options{ReadOnly: true})
			if i < 3 {
				refused("to read", s, err)
			} else if err != nil { // a reader needs none of the others
				t.Errorf("%s %s, to read: %v", end, kind, err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
			if b, e := os.ReadFile(victim); string(b) != "of others" || e != nil {
				t.Errorf("%s %s: the file of others has %q, %v", end, kind, b, e)
			}
			if err := errors.Join(app.Close(), os.Rename(d.path, d.path+".away")); err != nil {
				t.Fatal(err)
			}
			s, err = sqlite.Open(d.path, nil)
			refused("new", s, err)
			if _, err := os.Lstat(d.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s %s, new: the database was made (%v)", end, kind, err)
				_ = os.Remove(d.path)
			}
			if err := errors.Join(os.Rename(d.path+".away", d.path), os.RemoveAll(path), d.open().Close()); err != nil {
				t.Errorf("%s: once it is taken away: %v", end, err)
			}
		}
	}
}

// A Store that only reads is open while others come and go: a link that comes later is
// refused at the next read.
func TestReadOnly_LinkThatComesLater(t *testing.T) {
	for _, end := range []string{"-wal", "-shm", "-journal"} {
		d := newDB(t, nil)
		if err := d.open().Close(); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(d.path, &sqlite.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		write(t, d.path+".victim", []byte("of others"))
		if err := os.Symlink(d.path+".victim", d.path+end); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Counts(context.Background()); !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), d.path+end) {
			t.Errorf("%s: %v, want ErrUnsupportedDB and its name", end, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
