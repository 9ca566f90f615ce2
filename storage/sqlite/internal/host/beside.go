package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// UnfitError says that a file beside the database cannot be one that the store
// has made.
type UnfitError struct {
	Path string
	What string // after the path: "is a directory"
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("path %q %s: must be a regular file of one name, that errand has made; move it away", e.Path, e.What)
}

// OpenBeside opens a file beside the database db. If there is none it makes one
// that all who may write the database may open, whatever the umask. If root makes
// the file, it belongs to the owner of the database, as the log that SQLite makes.
func OpenBeside(path string, flag int, db os.FileInfo) (*os.File, error) {
	f, err := OpenExisting(path, flag, db)
	if !errors.Is(err, os.ErrNotExist) {
		if err == nil {
			narrow(f, db)
		}
		return f, err
	}
	f, err = os.OpenFile(path, flag|besideFlags|os.O_CREATE|os.O_EXCL, BesideMode(db))
	if errors.Is(err, os.ErrExist) { // another process was first
		return OpenExisting(path, flag, db)
	}
	if err != nil {
		return nil, err
	}
	if err := alike(f, db); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenExisting opens a file beside the database db. Whoever may write the folder
// may have put a link there that leads to a file of others, or a pipe that nobody
// writes to. So OpenExisting follows no link and waits for nothing, and returns an
// [UnfitError] for a file that the store cannot have made. Files beside a database
// must be opened in no other way.
func OpenExisting(path string, flag int, db os.FileInfo) (*os.File, error) {
	f, err := os.OpenFile(path, flag|besideFlags, 0)
	if err != nil {
		if info, e := os.Lstat(path); e == nil && !info.Mode().IsRegular() {
			return nil, &UnfitError{path, "is a " + KindOf(info)}
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = fit(path, info)
	}
	if err == nil && !owned(path, info, db) {
		err = foreign(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// fit returns an [UnfitError] for a file that is not a regular one of one name.
func fit(path string, info os.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return &UnfitError{path, "is a " + KindOf(info)}
	case links(info) > 1:
		return &UnfitError{path, fmt.Sprintf("has %d names (hard links)", links(info))}
	}
	return nil
}

func foreign(path string) error {
	return &UnfitError{path, "belongs to somebody who may not write the database"}
}

// Fit returns an [UnfitError] if there is a file at path, beside the database db, that
// neither the store nor SQLite can have made. It opens nothing. Without a db, whoever
// owns the file.
func Fit(path string, db os.FileInfo) error {
	var err error
	if info, stat := os.Lstat(path); stat == nil { // what else is wrong comes out when the file is opened
		err = fit(path, info)
		if err == nil && db != nil && !owned(path, info, db) {
			err = foreign(path)
		}
	}
	return err
}

// EmptyBeside truncates a file beside the database db, if there is one.
func EmptyBeside(path string, db os.FileInfo) error {
	f, err := OpenExisting(path, os.O_WRONLY, db)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Close())
}

// BesideMode returns the mode of the files beside the database db: to read and
// write for those who may write the database. Those who may only read the
// database need none of the files, and could lock them, which keeps others from
// writing.
func BesideMode(db os.FileInfo) os.FileMode {
	write := db.Mode().Perm() & 0o222
	return write | write<<1
}

// narrow takes from the mode of a file what BesideMode does not have, as far as
// this process may: earlier versions made files that all who may read the
// database could read.
func narrow(f *os.File, db os.FileInfo) {
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&^BesideMode(db) != 0 {
		_ = f.Chmod(info.Mode().Perm() & BesideMode(db)) // if that fails, the doctor says so
	}
}

// KindOf returns what a file is that is not regular: "directory".
func KindOf(info os.FileInfo) string {
	switch {
	case info.IsDir():
		return "directory"
	case info.Mode()&os.ModeSymlink != 0:
		return "symbolic link"
	}
	return "special file"
}

// ShutFile returns a sentence that says that this user may not write a file, and
// "" if the user may.
func ShutFile(path string, info os.FileInfo) string {
	if info.Mode().Perm()&0o222 != 0 && mayWrite(path, false) {
		return ""
	}
	return fmt.Sprintf("this user cannot write the database %s (mode %v%s)", path, info.Mode(), ownerOf(info))
}

// Unreadable returns a sentence that says which of these files, or which folder on the
// way to them, this user may not read, and whose it is, and what to do; "" if the user may.
func Unreadable(paths ...string) (what, remedy string) {
	const allow = "run this as its owner, or have the owner allow it (chmod)"
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrPermission):
			folder, info := unentered(path)
			if info == nil {
				return "this user cannot enter a folder of " + path, "run this as the owner, or have the folder opened"
			}
			return fmt.Sprintf("this user cannot enter the folder %s (mode %v%s)", folder, info.Mode(), ownerOf(info)), allow
		case err == nil && !mayRead(path):
			return fmt.Sprintf("this user cannot read %s (mode %v%s)", path, info.Mode(), ownerOf(info)), allow
		}
	}
	return "", ""
}

// unentered returns the folder on the way to path that this user may not enter, and nil if
// the system does not say.
func unentered(path string) (folder string, info os.FileInfo) {
	for range 255 { // as a system does not follow links for ever
		link, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrPermission):
			path = filepath.Dir(path)
			if info, err := os.Stat(path); err == nil {
				return path, info
			}
		case err == nil && link.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return "", nil
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(path), to)
			}
			path = to
		default:
			return "", nil
		}
	}
	return "", nil
}

// ShutFolder returns a sentence that says that this user may not make files in
// the folder of a file, and "" if the user may.
func ShutFolder(path string) string {
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	if err != nil || mayWrite(folder, true) {
		return ""
	}
	return fmt.Sprintf("this user cannot make files in the folder %s (mode %v%s)", folder, info.Mode(), ownerOf(info))
}
