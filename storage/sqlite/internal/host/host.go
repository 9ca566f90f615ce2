// Package host is what the store needs of the operating system: locks that end
// with their process, the name of the boot, file systems and their free space,
// who may write a file, the names of a file, the files beside a database, and
// start markers in mapped memory.
//
// A database is known here only as a file: its path and its [os.FileInfo]. What
// a system cannot answer is never a reason to refuse: each function says what it
// returns then.
package host

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// BootID returns a name of the current boot of the system, see bootID. It is asked for once in a process.
func BootID() string { return boot() }

var boot = sync.OnceValue(bootID)

// IsFull reports whether an error says that there is no space for a write: on
// the disk, in the quota, or in a file that is as long as one can be.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || IsTooLong(err)
}

// IsTooLong reports whether an error says that a file is as long as one can be, or as
// this process may make it.
func IsTooLong(err error) bool { return errors.Is(err, syscall.EFBIG) }

// IsReadOnly reports whether an error says that this user may not write, or that
// the file system is mounted read-only.
func IsReadOnly(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}
