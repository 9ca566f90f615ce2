package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// Who only looks whether the lock is held does not hold it for others that look.
func TestTryShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var files []*os.File
	for range 3 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	tries := func(what string, try func(*os.File) (bool, error), f *os.File, want bool) {
		t.Helper()
		if ok, err := try(f); ok != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", what, ok, err, want)
		}
	}
	tries("the first that looks", host.TryShared, files[0], true)
	tries("the second that looks", host.TryShared, files[1], true)
	tries("a holder beside them", host.TryLock, files[2], false)
	for _, f := range files[:2] {
		if err := host.Unlock(f); err != nil {
			t.Fatal(err)
		}
	}
	tries("the holder", host.TryLock, files[2], true)
	tries("one that looks", host.TryShared, files[0], false)
}
