package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/errandq/errand/storage"
)

// openBeside opens a file beside the database, and if there is none makes one
// that whoever may write the database may open too, whatever the umask, and made
// by root with its owner, as SQLite does with the log.
func openBeside(path string, flag int, db os.FileInfo) (*os.File, error) {
	f, err := openExisting(path, flag, db)
	if !errors.Is(err, os.ErrNotExist) {
		if err == nil {
			narrow(f, db)
		}
		return f, readOnly(err)
	}
	f, err = os.OpenFile(path, flag|besideFlags|os.O_CREATE|os.O_EXCL, besideMode(db))
	if errors.Is(err, os.ErrExist) { // another process was first
		f, err = openExisting(path, flag, db)
		return f, readOnly(err)
	}
	if err != nil {
		return nil, readOnly(err)
	}
	if err := alike(f, db); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readOnly puts [storage.ErrReadOnly] before an error of a file or folder that
// this process may not write, or nobody as it is mounted.
func readOnly(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", storage.ErrReadOnly, err)
	}
	return err
}

// shutFile returns that this user may not write the database, and "" if he may.
func shutFile(path string, info os.FileInfo) string {
	if info.Mode().Perm()&0o222 != 0 && mayWrite(path, false) {
		return ""
	}
	return fmt.Sprintf("this user cannot write the database %s (mode %v%s)", path, info.Mode(), ownerOf(info))
}

// shutFolder returns that this user may not make files beside the database, and
// "" if he may.
func shutFolder(path string) string {
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	if err != nil || mayWrite(folder, true) {
		return ""
	}
	return fmt.Sprintf("this user cannot make files in the folder %s (mode %v%s)", folder, info.Mode(), ownerOf(info))
}

// nameShut puts before an error of a database that cannot be written what it is
// that this user may not write.
func nameShut(path string, err error) error {
	what := shutFolder(path)
	if info, e := os.Stat(path); e == nil {
		what = cmp.Or(shutFile(path, info), what)
	}
	if what == "" {
		what = fmt.Sprintf("path %q, or its folder", path)
	}
	var e *os.PathError // without the sentinel that may be before it
	if errors.As(err, &e) {
		err = e
	}
	return fmt.Errorf("%w: %s: %w", storage.ErrReadOnly, what, err)
}

// openExisting opens a file beside the database that is there. Nothing else
// opens one: whoever may write the folder may have put a link there that leads
// to a file of others, or a pipe that nobody writes to. So no link is followed,
// nothing is waited for, and what is no file of this database is refused with
// [storage.ErrUnsupportedDB].
func openExisting(path string, flag int, db os.FileInfo) (*os.File, error) {
	f, err := os.OpenFile(path, flag|besideFlags, 0)
	if err != nil {
		if info, e := os.Lstat(path); e == nil && !info.Mode().IsRegular() {
			return nil, unfit(path, "is a "+kindOf(info))
		}
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = unfit(path, "is a "+kindOf(info))
	case links(info) > 1:
		err = unfit(path, fmt.Sprintf("has %d names (hard links)", links(info)))
	case !owned(path, info, db):
		err = unfit(path, "belongs to somebody who may not write the database")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func unfit(path, what string) error {
	return fmt.Errorf("%w: path %q %s: must be a regular file of one name, that errand has made; take it away",
		storage.ErrUnsupportedDB, path, what)
}

// emptyBeside cuts a file beside the database off, if it is there.
func emptyBeside(path string, db os.FileInfo) error {
	f, err := openExisting(path, os.O_WRONLY, db)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Close())
}

// besideMode is the mode of files beside a database: to read and write for those
// who may write the database. Who may only read it needs none of them, and could
// lock them, which keeps others from writing.
func besideMode(db os.FileInfo) os.FileMode {
	write := db.Mode().Perm() & 0o222
	return write | write<<1
}

// narrow takes from the mode of a file what is too much, as far as this process
// may: earlier versions made them readable for all who may read the database.
func narrow(f *os.File, db os.FileInfo) {
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&^besideMode(db) != 0 {
		_ = f.Chmod(info.Mode().Perm() & besideMode(db)) // the doctor says if that cannot be
	}
}
