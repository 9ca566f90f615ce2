package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
)

// headerSize is what each database has at least.
const headerSize = 100

// prepareFile refuses what cannot become a database and creates a new one with
// mode 0600, which is passed on to the files beside it. It gives the path
// without symbolic links, by which all processes find the same files beside.
func prepareFile(path string) (string, error) {
	if err := checkFile(path); err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("errand: open database: %w", err)
	}
	return real, nil
}

func checkFile(path string) error {
	log, _ := os.Stat(path + "-wal") // before the database: that is never without its header when it gets a log
	info, err := os.Stat(path)
	left := log != nil && log.Size() > 0
	switch {
	case left && (errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() < headerSize):
		return fmt.Errorf("%w: path %q is empty or gone, and its log %s-wal is there: "+
			"put the database back, or take the log away too", storage.ErrCorrupt, path, path)
	case err == nil && info.Mode().IsRegular() && info.Size() < headerSize && hasInstances(path):
		return fmt.Errorf("%w: path %q is empty, and files of processes that used it are there: "+
			"put the database back, or take %s-instance-* away too", storage.ErrCorrupt, path, path)
	case errors.Is(err, os.ErrNotExist):
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return nil // another process was first
		}
		if errors.Is(readOnly(err), storage.ErrReadOnly) {
			return nameShut(path, err)
		}
		if err != nil {
			return fmt.Errorf("errand: create database: %w", err)
		}
		return f.Close()
	case err != nil:
		return fmt.Errorf("errand: open database: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: path %q is a %s: must be a regular file", storage.ErrUnsupportedDB, path, kindOf(info))
	}
	// Before a file is made beside it, which would be this user's.
	if what := shutFile(path, info); what != "" {
		return fmt.Errorf("%w: %s", storage.ErrReadOnly, what)
	}
	return nil
}

func kindOf(info os.FileInfo) string {
	switch {
	case info.IsDir():
		return "directory"
	case info.Mode()&os.ModeSymlink != 0:
		return "symbolic link"
	}
	return "special file"
}

func hasInstances(path string) bool {
	all, err := os.ReadDir(filepath.Dir(path))
	return err == nil && slices.ContainsFunc(all, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), filepath.Base(path)+"-instance-")
	})
}

// settle moves the log that was there into the database, if nobody else uses
// it. What is in the log may be in the memory of the system only: after a
// failed fsync it takes pages for written that are not, SQLite takes them over,
// and all that is put behind them would be lost with them.
func settle(ctx context.Context, conn *sql.Conn) error {
	return withoutWaiting(ctx, conn, func() error {
		var busy, length, moved int
		err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &length, &moved)
		if isCode(err, lib.SQLITE_FULL) || isCode(err, lib.SQLITE_BUSY) || isCode(err, lib.SQLITE_LOCKED) {
			return nil
		}
		return err
	})
}

// lookEach is how often writers make sure that their database is still there.
const lookEach = time.Second

// takeTurn waits for the turn to write, and makes sure now and then that what is
// written will be found. db is the connection that it will be written by.
func (s *Store) takeTurn(ctx context.Context, db **statements) error {
	asked := time.Now()
	if err := s.turn.take(ctx, s.opts.BusyTimeout); err != nil {
		return err
	}
	if err := s.leaveGap(ctx, asked, db); err != nil {
		s.giveTurn()
		return err
	}
	if asked.Sub(s.looked) >= lookEach {
		if err := s.there(); err != nil {
			s.giveTurn()
			s.fail(err, "database")
			return err
		}
		s.looked = asked
		s.heedCheck()
	}
	if !s.turn.locked {
		s.turn.went = time.Now()
	}
	return nil
}

// there returns [storage.ErrCorrupt] once the database is no longer under its
// name: what is written from then on would be gone with it. Of a database that
// has got a second name it returns [storage.ErrUnsupportedDB].
func (s *Store) there() error {
	info, err := os.Stat(s.path)
	switch {
	case err == nil && os.SameFile(info, s.info):
		return checkNames(s.path, s.opts)
	case err == nil:
		return fmt.Errorf("%w: path %q: another file was put there while it was open", storage.ErrCorrupt, s.path)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: path %q: it was deleted or renamed while it was open", storage.ErrCorrupt, s.path)
	}
	return nil // whatever keeps us from looking does not keep others from finding it
}
