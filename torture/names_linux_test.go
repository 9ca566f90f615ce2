package torture_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// mountAt mounts a file or folder in another place too, until the test ends.
func mountAt(t *testing.T, from, to string, flags uintptr) {
	t.Helper()
	err := unix.Mount(from, to, "", unix.MS_BIND, "")
	if err == nil && flags != 0 {
		err = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	}
	if err != nil {
		t.Fatalf("mount %s at %s: %v", from, to, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
}

// A container that gets the file and not the folder has a log of its own, which
// nobody else sees, and which goes with the container.
//
//errand:shows two names of one file | | the same for a file that is mounted by itself; a folder may be mounted twice
func TestNames_FileMountedAlone(t *testing.T) {
	needsRoot(t, "a mount")
	path, inside := filepath.Join(t.TempDir(), "jobs.db"), filepath.Join(t.TempDir(), "jobs.db")
	quiet := &sqlite.Options{Logger: slog.New(slog.DiscardHandler)}
	s, err := sqlite.Open(path, quiet)
	if err == nil { // with its tables in the file, not in the log
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if s, err = sqlite.Open(path, quiet); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mountAt(t, path, inside, 0)
	app, err := raw(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	ctx, jobs := context.Background(), []storage.NewJob{{Queue: "default", Kind: "a", Args: []byte("{}")}}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), "mount the folder, not the file") {
			t.Errorf("%s: %v, want ErrUnsupportedDB and what to do", what, err)
		}
	}
	_, err = s.EnqueueTx(ctx, tx, time.Now(), jobs)
	refused("EnqueueTx", err)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(inside, quiet)
	refused("Open", err)
	_, err = sqlite.New(app, quiet)
	refused("New", err)
	found, err := sqlite.Examine(ctx, inside, false, time.Now())
	if err != nil || !slices.ContainsFunc(found, func(f sqlite.Finding) bool {
		return f.Check == "names" && f.Severity == sqlite.SeverityError
	}) {
		t.Errorf("the doctor says %v (%v), want an error about names", found, err)
	}
	mountAt(t, path, path, 0) // while it is open: its name is looked at once a second
	await(t, time.Minute, "Enqueue is refused", func() bool {
		_, err = s.Enqueue(ctx, time.Now(), jobs)
		return err != nil
	})
	refused("Enqueue", err)
}

// A folder may be mounted in two places: what is in it has one name there.
//
//errand:shows two names of one file
func TestNames_FolderMounted(t *testing.T) {
	needsRoot(t, "a mount")
	dir, inside := t.TempDir(), t.TempDir()
	mountAt(t, dir, inside, 0)
	for _, at := range []string{dir, inside} {
		s, err := sqlite.Open(filepath.Join(at, "jobs.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
}

// A file system that is mounted read-only is called that, for a new database and
// for one that is there.
//
//errand:shows a file system that cannot be written | | Open returns ErrReadOnly, and the doctor reports it
func TestReadOnly_Mounted(t *testing.T) {
	needsRoot(t, "a mount")
	dir, inside := t.TempDir(), t.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, "jobs.db"), nil)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	mountAt(t, dir, inside, unix.MS_RDONLY)
	for _, name := range []string{"jobs.db", "new.db"} {
		_, err := sqlite.Open(filepath.Join(inside, name), nil)
		if !errors.Is(err, storage.ErrReadOnly) || !strings.Contains(err.Error(), inside) {
			t.Errorf("%s: %v, want ErrReadOnly with its path", name, err)
		}
	}
	reader, err := sqlite.Open(filepath.Join(inside, "jobs.db"), &sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatalf("for reading: %v", err)
	}
	_, err = reader.Counts(t.Context())
	if err = errors.Join(err, reader.Close()); err != nil {
		t.Errorf("for reading: %v", err)
	}
	found, err := sqlite.Examine(context.Background(), filepath.Join(inside, "jobs.db"), false, time.Now())
	if err != nil || !slices.ContainsFunc(found, func(f sqlite.Finding) bool {
		return f.Check == "file system" && f.Severity == sqlite.SeverityError && strings.Contains(f.Text, "read-only")
	}) {
		t.Errorf("the doctor says %v (%v), want an error about the file system", found, err)
	}
}
