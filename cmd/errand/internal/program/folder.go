package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// lockName is the file in a Folder whose lock says that its process lives.
const lockName = "lock"

// Folder is a folder for temporary files that programs and this process share. It is
// locked for as long as this process lives, so that [ClearFolders] of a later one knows
// what a process has left that was killed. It is safe for concurrent use.
type Folder struct {
	path string
	mu   sync.Mutex
	lock *os.File // guarded by mu
}

// NewFolder makes a folder that only this user can read, among the temporary files of the
// system. Its name begins with prefix. It must be closed.
func NewFolder(prefix string) (*Folder, error) {
	path, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, fmt.Errorf("%w: programs that it runs need a folder for temporary files: name one that can be written to by TMPDIR", err)
	}
	f := &Folder{path: path}
	if _, err := f.Path(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Path returns the path of the folder, which it makes again if something has cleared it
// away.
func (f *Folder) Path() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.held() {
		if err := f.unlock(); err != nil {
			return "", err
		}
		if err := makeFolder(f.path); err != nil {
			return "", err
		}
		var err error
		// Another process may take the lock first, and with it the folder away.
		if f.lock, err = lockFile(filepath.Join(f.path, lockName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return f.path, nil
}

// makeFolder makes a folder that only this user can write to, if it is not there: another
// user may have put something in its place.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o700)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err == nil && (!info.IsDir() || !mine(info)) {
		err = fmt.Errorf("%s is not the folder of this process: another user may have put it there", path)
	}
	return err
}

// held reports whether the file that is locked is in the folder.
func (f *Folder) held() bool {
	return f.lock != nil && isAt(f.lock, filepath.Join(f.path, lockName))
}

// isAt reports whether a file is at this path, still or again.
func isAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

func (f *Folder) unlock() error {
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}

// Close deletes the folder with all that is in it.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if unlockFirst { // what is open cannot be deleted
		return errors.Join(f.unlock(), os.RemoveAll(f.path))
	}
	return errors.Join(os.RemoveAll(f.path), f.unlock())
}

// ClearFolders deletes the folders of this user whose names begin with prefix and whose
// processes are gone. Those without a lock stay: nothing is known of their processes.
func ClearFolders(prefix string) error {
	entries, err := os.ReadDir(os.TempDir())
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && e.IsDir() {
			err = errors.Join(err, clearFolder(filepath.Join(os.TempDir(), e.Name())))
		}
	}
	return err
}
