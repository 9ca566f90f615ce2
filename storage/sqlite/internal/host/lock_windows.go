package host

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockAt is the offset of the locked byte. It lies far behind any data, because
// on Windows others cannot read a locked byte.
const lockAt = 1 << 30

// TryLock takes an exclusive lock on f, which the kernel drops when the process
// ends. It returns false if another open file holds the lock.
func TryLock(f *os.File) (bool, error) { return tryLock(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// TryShared takes a lock on f as TryLock does, but others can have such a lock at a time. It
// is for who looks whether the holder of the lock of TryLock lives: of two that look at a
// time, neither takes the other for that.
func TryShared(f *os.File) (bool, error) { return tryLock(f, 0) }

func tryLock(f *os.File, how uint32) (bool, error) {
	err := lockFile(f, how|windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// Lock takes the lock of TryLock, and waits until nobody else holds it.
func Lock(f *os.File) error { return lockFile(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

func lockFile(f *os.File, flags uint32) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{Offset: lockAt})
}

// Unlock drops the lock on f.
func Unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{Offset: lockAt})
}
