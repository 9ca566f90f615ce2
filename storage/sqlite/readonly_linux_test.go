package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/errandq/errand/storage/sqlite"
)

// A file of another user can be read with the right to read it alone, in use or not;
// without that right the error says so.
//
//errand:shows a file that is only read
func TestReadOnly_OfAnotherUser(t *testing.T) {
	if dir := os.Getenv("ERRAND_TEST_DIR"); dir != "" {
		for name, n := range map[string]int64{"live": 3, "closed": 3, "killed": 3, "shut": 0} {
			path := filepath.Join(dir, name, "jobs.db")
			before := beside(t, path, name == "live")
			s, err := sqlite.Open(path, &sqlite.Options{ReadOnly: true})
			switch {
			case n == 0:
				if !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s: %v, want a permission error", name, err)
				}
			case err != nil:
				t.Errorf("%s: %v", name, err)
			default:
				wantReady(t, s, n)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if after := beside(t, path, name == "live"); after != before {
				t.Errorf("%s: files before\n%sand after\n%s", name, before, after)
			}
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	dir, err := os.MkdirTemp("", "owned") //nolint:usetesting // whose folders are closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"live", "closed", "killed", "shut"} {
		d := &db{t, filepath.Join(dir, name, "jobs.db"), nil}
		mode := os.FileMode(0o644)
		if name == "shut" {
			mode = 0o600
		}
		err := errors.Join(os.MkdirAll(filepath.Dir(d.path), 0o755), os.WriteFile(d.path, nil, mode), os.Chmod(d.path, mode))
		if err != nil {
			t.Fatal(err)
		}
		s := d.open()
		enqueue(t, s, "a", 3)
		switch name {
		case "closed":
			closeStore(d, s)
		case "killed":
			copied := filepath.Join(dir, "copy.db")
			for _, suffix := range []string{"", "-wal", "-shm"} {
				b, err := os.ReadFile(d.path + suffix)
				if err == nil {
					err = os.WriteFile(copied+suffix, b, 0o644) //nolint:gosec // for others to read
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			closeStore(d, s)
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Rename(copied+suffix, d.path+suffix); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runAsAnybody(t, "ERRAND_TEST_DIR="+dir)
}
