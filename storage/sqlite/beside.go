package sqlite

import (
	"errors"
	"os"
)

// openBeside opens a file beside the database, and if there is none makes one
// that whoever may open the database may open too: with its mode, whatever the
// umask, and made by root with its owner, as SQLite does with the log.
func openBeside(path string, flag int, db os.FileInfo) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	f, err = os.OpenFile(path, flag|os.O_CREATE|os.O_EXCL, besideMode(db))
	if errors.Is(err, os.ErrExist) { // another process was first
		return os.OpenFile(path, flag, 0)
	}
	if err != nil {
		return nil, err
	}
	if err := alike(f, db); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// besideMode is the mode of files beside a database.
func besideMode(db os.FileInfo) os.FileMode { return db.Mode().Perm() & 0o666 }
