package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// What is written to a file that nobody will find again is not acknowledged.
//
//errand:shows [taken] | deleted replaced | the file is taken away while it is open, or while it is not
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
//
//errand:shows [taken]
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

//errand:shows [shared] | | file systems that other machines may share
func TestOpen_SharedFileSystem(t *testing.T) {
	for name, shared := range map[string]bool{
		"ext4": false, "xfs": false, "tmpfs": false, "overlay": false, "apfs": false, "fuseblk": false, "fuse.bindfs": false, "0x1": false,
		"nfs": true, "NFS4": true, "cifs": true, "smb2": true, "9p": true, "vboxsf": true, "fuse.sshfs": true, "virtiofs": true, "ceph": true,
	} {
		t.Run(name, func(t *testing.T) {
			sqlite.FileSystem(t, name)
			path := filepath.Join(t.TempDir(), "jobs.db")
			s, err := sqlite.Open(path, nil)
			if !shared {
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, storage.ErrUnsupportedDB) {
				t.Fatalf("error %v, want ErrUnsupportedDB", err)
			}
			for _, part := range []string{path, "type " + name, "Options.AnyFileSystem"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file was made all the same: %v", err)
			}
			if s, err = sqlite.Open(path, &sqlite.Options{AnyFileSystem: true}); err != nil {
				t.Fatalf("with AnyFileSystem: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNew_SharedFileSystem(t *testing.T) {
	d := newDB(t, nil)
	if err := d.open().Close(); err != nil { // it would look at the file system meanwhile
		t.Fatal(err)
	}
	app := d.raw()
	defer app.Close()
	sqlite.FileSystem(t, "nfs")
	if _, err := sqlite.New(app, nil); !errors.Is(err, storage.ErrUnsupportedDB) {
		t.Errorf("error %v, want ErrUnsupportedDB", err)
	}
}

// What is in memory is not kept, whatever fsync says. That is said once.
//
//errand:shows a database in memory | | Open warns once in a process, and the doctor too
func TestOpen_InMemory(t *testing.T) {
	sqlite.FileSystem(t, "tmpfs")
	var warned []string
	d := newDB(t, &sqlite.Options{Logger: slog.New(listener(func(level slog.Level, text string) {
		if level == slog.LevelWarn && strings.Contains(text, "in memory") {
			warned = append(warned, text)
		}
	}))})
	for range 2 {
		if err := d.open().Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(warned) != 1 || !strings.Contains(warned[0], d.path) {
		t.Errorf("warnings %q, want one with the path", warned)
	}
	found, err := sqlite.Examine(context.Background(), d.path, false, t0)
	if err != nil || !has(found, "file system", sqlite.SeverityWarning) {
		t.Errorf("the doctor says %v (%v), want a warning about the file system", found, err)
	}
}

// A layer of a container goes with the container, but a device may have its system on one.
func TestExamine_Overlay(t *testing.T) {
	d := newDB(t, nil)
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	sqlite.FileSystem(t, "overlay")
	if found, err := sqlite.Examine(context.Background(), d.path, false, t0); err != nil || !has(found, "file system", sqlite.SeverityNote) {
		t.Errorf("the doctor says %v (%v), want a note about the file system", found, err)
	}
}

// restore replaces what is in the database by what is in another one, as
// .restore of the sqlite3 command does.
func (d *db) restore(from string) {
	d.t.Helper()
	raw := d.raw()
	defer raw.Close()
	conn, err := raw.Conn(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error {
		b, err := c.(interface {
			NewRestore(from string) (*driver.Backup, error)
		}).NewRestore(from)
		if err != nil {
			return err
		}
		if _, err := b.Step(-1); err != nil {
			return err
		}
		return b.Finish()
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// A database that was restored in place has other lanes than the Store knows:
// a job would go into another queue.
//
//errand:shows a restore in place | | a store whose database went back to an earlier moment ends with an `ErrClosed` that says so, logs it once, and writes nothing more
func TestFloor_RestoredInPlace(t *testing.T) {
	ctx := context.Background()
	for name, look := range map[string]func(s storage.Store) error{
		"enqueue": func(s storage.Store) error {
			_, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("payments", "a")})
			return err
		},
		"look": func(s storage.Store) error {
			_, err := s.Reclaim(ctx, t0, 0, time.Second, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			s := d.open()
			enqueue(t, s, "a", 1)
			old := filepath.Join(t.TempDir(), "old.db")
			d.exec("VACUUM INTO ?", old)
			if _, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("payments", "a")}); err != nil {
				t.Fatal(err)
			}
			d.restore(old)
			for range 2 {
				if err := look(s); !errors.Is(err, storage.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
			}
			again := d.open()
			if _, err := again.Enqueue(ctx, t0, []storage.NewJob{newJob("other", "a")}); err != nil {
				t.Fatal(err)
			}
			counts, err := again.Counts(ctx)
			if err != nil || len(counts) != 2 || counts[1].Queue != "other" {
				t.Errorf("counts %v, %v", counts, err)
			}
		})
	}
}

// A Store that has ended says so once, whatever others then do to the file.
//
//errand:shows a restore in place
func TestFloor_LooksNoMore(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	old := filepath.Join(t.TempDir(), "old.db")
	d.exec("VACUUM INTO ?", old)
	enqueue(t, s, "b", 1)
	defer s.Notify(func(storage.Event) {})()
	defer d.Kill(s) // Close would say it again
	d.restore(old)
	for end := time.Now().Add(2 * time.Minute); ; runtime.Gosched() {
		_, err := s.Reclaim(t.Context(), t0, 0, time.Second, 1)
		if errors.Is(err, storage.ErrClosed) && !s.Watching() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it still watches the file; reading it gave %v", err)
		}
	}
}

// What is beside a database is opened in one place, which follows no links.
// Everything else that opens a file opens another one.
//
//errand:shows links and devices beside the database
func TestBeside_OpenedInOnePlace(t *testing.T) {
	opening := []string{"Open", "OpenFile", "OpenInRoot", "OpenRoot", "Create", "ReadFile", "WriteFile", "Truncate", "Chmod", "Chown"}
	allowed := []string{
		"internal/host/beside.go: OpenBeside", "internal/host/beside.go: OpenExisting",
		"file.go: checkFile",                     // makes the database
		"doctor.go: header", "doctor.go: copyTo", // read the database
		"doctor.go: copyFile",                 // makes a copy in a folder of its own
		"backup.go: publish",                  // syncs the copy it has made, and its folder
		"internal/host/boot_linux.go: bootID", // of the kernel, as the next two
		"internal/host/names_linux.go: mountedAlone",
		"internal/host/filesystem_linux.go: StatFS",
	}
	files, err := filepath.Glob("*.go")
	below, e := filepath.Glob("internal/host/*.go")
	if err != nil || e != nil || len(below) == 0 {
		t.Fatal(err, e, below)
	}
	for _, name := range append(files, below...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			where := filepath.ToSlash(name) + ": "
			if f, ok := decl.(*ast.FuncDecl); ok {
				where += f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if fmt.Sprint(s.X) == "os" && slices.Contains(opening, s.Sel.Name) && !slices.Contains(allowed, where) {
					t.Errorf("%s uses os.%s: must use host.OpenBeside, OpenExisting or EmptyBeside", where, s.Sel.Name)
				}
				return true
			})
		}
	}
}
