//go:build unix

package host

import (
	"errors"
	"os"
	"syscall"
)

// TryLock takes an exclusive lock on f, which the kernel drops when the process
// ends. It returns false if another open file holds the lock.
func TryLock(f *os.File) (bool, error) { return tryLock(f, syscall.LOCK_EX) }

// TryShared takes a lock on f as TryLock does, but others can have such a lock at a time. It
// is for who looks whether the holder of the lock of TryLock lives: of two that look at a
// time, neither takes the other for that.
func TryShared(f *os.File) (bool, error) { return tryLock(f, syscall.LOCK_SH) }

func tryLock(f *os.File, how int) (bool, error) {
	err := flock(f, how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Lock takes the lock of TryLock, and waits until nobody else holds it.
func Lock(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// Unlock drops the lock on f.
func Unlock(f *os.File) error { return flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
