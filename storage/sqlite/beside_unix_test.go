//go:build unix

package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/errandq/errand/storage"
)

// All files beside the database have its mode, whatever the umask.
func TestOpen_Modes(t *testing.T) {
	for name, c := range map[string]struct {
		umask int
		mode  os.FileMode // of a database that is there; 0: none is
		want  os.FileMode
	}{
		"new":                   {0, 0, 0o600},
		"new, careful":          {0o77, 0, 0o600},
		"of a group, careful":   {0o77, 0o660, 0o660},
		"of a group":            {0, 0o640, 0o640},
		"of the owner":          {0, 0o600, 0o600},
		"that can be executed?": {0, 0o777, 0o666},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			defer syscall.Umask(syscall.Umask(c.umask))
			if c.mode != 0 {
				if err := os.WriteFile(d.path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(d.path, c.mode); err != nil {
					t.Fatal(err)
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
				if c.mode == 0o777 && (strings.HasSuffix(f, "-wal") || strings.HasSuffix(f, "-shm")) {
					want = 0o777 // SQLite takes all of it
				}
				if info.Mode().Perm() != want {
					t.Errorf("%s has mode %v, want %v", filepath.Base(f), info.Mode(), want)
				}
			}
		})
	}
}
