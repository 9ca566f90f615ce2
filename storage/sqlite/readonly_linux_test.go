package sqlite_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// asAnybody runs a test as a user who may not do everything, and reports whether
// that is this process.
func asAnybody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	const nobody = 65534
	tmp, err := os.MkdirTemp("", "anybody") //nolint:usetesting // whose folders are closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Chown(tmp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env, cmd.Dir = append(os.Environ(), "TMPDIR="+tmp), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
	return false
}

// A folder in which no files can be made beside the database is read-only.
func TestOpen_FolderThatCannotBeWritten(t *testing.T) {
	if !asAnybody(t) {
		return
	}
	for name, without := range map[string][]string{
		"new": {"", "-turn", "-ballast"}, "without its turn": {"-turn"}, "with its turn": nil,
	} {
		d := newDB(t, nil)
		if err := d.open().Close(); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range without {
			if err := os.Remove(d.path + suffix); err != nil {
				t.Fatal(err)
			}
		}
		dir := filepath.Dir(d.path)
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		_, err := sqlite.Open(d.path, nil)
		if !errors.Is(err, storage.ErrReadOnly) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want ErrReadOnly with its path", name, err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
