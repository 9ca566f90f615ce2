//go:build unix

package program

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

const unlockFirst = false

// lockFile makes a file, if there is none, and locks it. It waits while another process has
// the lock, which may have deleted the file then.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX)
	if errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOSYS) {
		return f, nil // this file system has no locks: the folder is not cleared away by others
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// clearFolder deletes a folder, unless it is of another user, its process lives, or it has
// no lock. For root the folders of others are those of others too.
func clearFolder(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || !mine(info) {
		return nil // it is not ours, or gone
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil // without a lock
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	if flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) != nil || !isAt(lock, lock.Name()) {
		return nil // it lives, or has made its folder again meanwhile
	}
	return os.RemoveAll(path)
}

// mine reports whether a folder is of this user, and none else may write to it.
func mine(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
