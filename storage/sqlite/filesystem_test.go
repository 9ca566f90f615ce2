package sqlite_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

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
