//go:build unix

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const besideFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK // and close on exec, as always in Go

// alike gives a new file the mode and owner of the database, as far as this
// process may.
func alike(f *os.File, db os.FileInfo) error {
	if st, ok := db.Sys().(*syscall.Stat_t); ok {
		uid := -1
		if os.Geteuid() == 0 {
			uid = int(st.Uid)
		}
		if err := f.Chown(uid, int(st.Gid)); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	if err := f.Chmod(BesideMode(db)); err != nil && !errors.Is(err, os.ErrPermission) {
		return err // a file system without modes says that it is not permitted
	}
	return nil
}

// links returns how many names a file has in its file system.
func links(info os.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return int(st.Nlink)
}

// Hole returns about how many bytes of a file nobody has written, as far as its file system tells: a
// file that was cut off and written on behind its old end has a hole.
func Hole(info os.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return max(0, info.Size()-int64(st.Blocks)*512) //nolint:unconvert // 32 bits on some systems
}

// owned reports whether a file beside the database belongs to somebody who may
// write the database: the owner of the database, its group, a user in its list of
// permissions, root, or this user.
func owned(path string, info, db os.FileInfo) bool {
	f, ok := info.Sys().(*syscall.Stat_t)
	d, both := db.Sys().(*syscall.Stat_t)
	if !ok || !both || f.Uid == d.Uid || f.Uid == 0 || int(f.Uid) == os.Geteuid() {
		return true
	}
	mode := db.Mode().Perm() // with a list, the bits of the group are the most that anybody in the list may
	return mode&0o020 != 0 && (f.Gid == d.Gid || hasACL(filepath.Join(filepath.Dir(path), db.Name()))) || mode&0o002 != 0
}

// mayWrite reports whether this user may write a file, or make files in a
// folder. It tries nothing, so a reason that only an attempt shows is not seen.
func mayWrite(path string, folder bool) bool {
	mode := uint32(unix.W_OK)
	if folder {
		mode |= unix.X_OK
	}
	return !errors.Is(unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS), os.ErrPermission)
}

// mayRead reports whether this user may read a file.
func mayRead(path string) bool {
	return !errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS), os.ErrPermission)
}

// ownerOf returns the owner of a file, for a text about its mode.
func ownerOf(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf(", owner %d", st.Uid)
}

// Mine reports whether this user may change the mode of a file.
func Mine(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(st.Uid) == os.Geteuid() || os.Geteuid() == 0)
}
