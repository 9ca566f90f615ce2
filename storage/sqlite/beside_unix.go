//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// alike gives a new file the mode and owner of the database, as far as this
// process may.
func alike(f *os.File, db os.FileInfo) error {
	if st, ok := db.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	if err := f.Chmod(besideMode(db)); err != nil && !errors.Is(err, os.ErrPermission) {
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
