package host

import (
	"io"
	"os"
	"syscall"
)

// Locks of an open file, on a byte: they stand beside those of TryLock, and one can be asked for
// without taking it. Their numbers are those of fcntl(2).
const (
	getOpenLock = 36 // F_OFD_GETLK
	setOpenLock = 37 // F_OFD_SETLK
	presentAt   = 1 << 30
)

// SetPresent has SomePresent find f, as long as it is open, or not any more.
func SetPresent(f *os.File, present bool) error {
	how := int16(syscall.F_UNLCK)
	if present {
		how = syscall.F_RDLCK
	}
	_, err := openLock(f, setOpenLock, how)
	return err
}

// SomePresent reports whether another open file of the same file is present. It takes no lock.
func SomePresent(f *os.File) (bool, error) {
	found, err := openLock(f, getOpenLock, syscall.F_WRLCK)
	return err == nil && found != syscall.F_UNLCK, err
}

func openLock(f *os.File, command int, how int16) (found int16, err error) {
	l := syscall.Flock_t{Type: how, Whence: io.SeekStart, Start: presentAt, Len: 1}
	err = syscall.FcntlFlock(f.Fd(), command, &l)
	return l.Type, err
}
