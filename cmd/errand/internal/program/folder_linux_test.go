package program

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// want checks which folders there are.
func want(t *testing.T, there bool, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %t", path, err, there)
		}
	}
}

// What is there in place of a folder that was cleared away is not used if another user may
// write to it.
func TestFolder_replaced(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, replace := range map[string]func(path string) error{
		"a link":                func(path string) error { return os.Symlink(open, path) },
		"a file":                func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a folder for everyone": func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o777)) },
		"that of another user": func(path string) error {
			if os.Geteuid() != 0 {
				return os.Symlink(open, path) // only root can give it away
			}
			return errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 65534, 65534))
		},
	} {
		f, err := NewFolder("work-")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(f.path), replace(f.path)); err != nil {
			t.Fatal(err)
		}
		if path, err := f.Path(); err == nil {
			t.Errorf("%s is used: %s", name, path)
		}
		want(t, false, filepath.Join(open, lockName))
	}
}

// Folders go with their process: here the end of a process is that of its lock. Others stay.
func TestClearFolders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	make := func(name string, files ...string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(path, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	live, err := NewFolder("work-")
	if err != nil {
		t.Fatal(err)
	}
	killed := make("work-killed", lockName, "result")
	other, unlocked := make("other-1", lockName), make("work-unlocked", "result")
	linked := filepath.Join(dir, "work-linked")
	if err := os.Symlink(other, linked); err != nil {
		t.Fatal(err)
	}
	var foreign []string
	if os.Geteuid() == 0 {
		foreign = append(foreign, make("work-foreign", lockName))
		if err := os.Chown(foreign[0], 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if err := ClearFolders("work-"); err != nil {
		t.Error(err)
	}
	want(t, false, killed)
	want(t, true, append(foreign, live.path, filepath.Join(live.path, lockName), other, unlocked, linked)...)

	// One that was cleared away is made again, and is as safe as before.
	if err := os.RemoveAll(live.path); err != nil {
		t.Fatal(err)
	}
	if path, err := live.Path(); err != nil || path != live.path {
		t.Errorf("%s, %v", path, err)
	}
	if err := ClearFolders("work-"); err != nil {
		t.Error(err)
	}
	want(t, true, live.path)
	if err := live.Close(); err != nil {
		t.Error(err)
	}
	want(t, false, live.path)
}

// Processes that start and clear at the same time never take each other's folders.
func TestClearFolders_race(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	failed := make(chan error, 4)
	for range cap(failed) {
		go func() {
			for range 200 {
				err := ClearFolders("work-")
				f, made := NewFolder("work-")
				if made != nil {
					failed <- made
					return
				}
				if _, gone := os.Stat(filepath.Join(f.path, lockName)); gone != nil {
					err = gone
				}
				if err = errors.Join(err, f.Close()); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// Where there is no folder for temporary files, the error says how to name one.
func TestNewFolder_none(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if f, err := NewFolder("work-"); err == nil || !strings.Contains(err.Error(), "by TMPDIR") {
		t.Errorf("%v, %v", f, err)
	}
}
