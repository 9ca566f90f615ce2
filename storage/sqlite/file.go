package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// headerSize is how many bytes each database has at least.
const headerSize = 100

// prepareFile creates the file if there is none, with mode 0600, which the files
// beside it get too, and refuses a file that cannot become a database. It returns
// the path without symbolic links, so that all processes find the same files beside
// the database.
func prepareFile(path string) (string, error) {
	beside := path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		beside = real
	}
	if err := checkBeside(beside, nil); err != nil { // before the database is made
		return "", err
	}
	if err := checkFile(path); err != nil {
		return "", err
	}
	return realPath(path)
}

// realPath returns the path of a database without symbolic links.
func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", notFound(path, err)
	}
	return real, nil
}

// notFound returns the error of a database that was not found.
func notFound(path string, err error) error {
	return fmt.Errorf("errand: open database: %w", unreadable(err, path))
}

// unreadable puts in place of a permission error which of these files, or which folder on
// the way to them, this user may not read, and what to do. It returns err if the system does
// not say.
func unreadable(err error, paths ...string) error {
	if errors.Is(err, os.ErrPermission) {
		if what, remedy := host.Unreadable(paths...); what != "" {
			return fmt.Errorf("%s: %s: %w", what, remedy, os.ErrPermission)
		}
	}
	return err
}

func checkFile(path string) error {
	log, _ := os.Stat(path + "-wal") // before the database, which has its header when it gets a log
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
		if host.IsReadOnly(err) {
			return readOnlyError(path, err)
		}
		if err != nil {
			return fmt.Errorf("errand: create database: %w", err)
		}
		return f.Close()
	case err != nil:
		return notFound(path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: path %q is a %s: must be a regular file", storage.ErrUnsupportedDB, path, host.KindOf(info))
	}
	// Before this user makes files beside it, which would be of the wrong owner.
	if what := host.ShutFile(path, info); what != "" {
		return fmt.Errorf("%w: %s", storage.ErrReadOnly, what)
	}
	return nil
}

func hasInstances(path string) bool {
	all, err := os.ReadDir(filepath.Dir(path))
	return err == nil && slices.ContainsFunc(all, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), filepath.Base(path)+"-instance-")
	})
}

// openBeside opens a file beside the database, and makes it if there is none; see
// [host.OpenBeside].
func openBeside(path string, flag int, db os.FileInfo) (*os.File, error) {
	f, err := host.OpenBeside(path, flag, db)
	if host.IsReadOnly(err) {
		err = fmt.Errorf("%w: %w", storage.ErrReadOnly, err)
	}
	return f, unfit(err)
}

// openExisting opens a file beside the database, if there is one; see
// [host.OpenExisting].
func openExisting(path string, flag int, db os.FileInfo) (*os.File, error) {
	f, err := host.OpenExisting(path, flag, db)
	return f, unfit(err)
}

// unfit puts [storage.ErrUnsupportedDB] before the error of a file beside the
// database that errand cannot have made.
func unfit(err error) error {
	var e *host.UnfitError
	if errors.As(err, &e) {
		return fmt.Errorf("%w: %w", storage.ErrUnsupportedDB, err)
	}
	return err
}

// readOnlyError puts before an error of a database that cannot be written the
// file or folder that this user may not write.
func readOnlyError(path string, err error) error {
	what := host.ShutFolder(path)
	if info, e := os.Stat(path); e == nil {
		what = cmp.Or(host.ShutFile(path, info), what)
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

// The ends of the names of files beside the database, but for those with the number of an
// instance, which only the process with that number opens.
var (
	sqliteNames = []string{"-wal", "-shm", "-journal"} // SQLite makes them, whoever may write the database
	errandNames = []string{"-turn", "-wake", "-ballast", "-room", "-check"}
)

// checkBeside refuses a database beside which there is what errand and SQLite cannot have
// made, such as a link. Each file is checked again when it is opened; but an open that
// succeeds must not leave out in silence what that file is for. Without a db, which is not
// made yet, errand's files may be anybody's.
func checkBeside(path string, db os.FileInfo) error {
	return cmp.Or(checkSQLites(path), checkFit(path, errandNames, db))
}

// checkSQLites is checkBeside for the files of SQLite, which are all that a reader uses.
func checkSQLites(path string) error { return checkFit(path, sqliteNames, nil) }

func checkFit(path string, ends []string, db os.FileInfo) error {
	for _, end := range ends {
		if err := host.Fit(path+end, db); err != nil {
			return unfit(err)
		}
	}
	return nil
}

// checkNames refuses a folder, and a file that has two names: a hard link, or a mount of
// the file alone. SQLite finds the log by the name of the database. So a process that
// has the file open by another name has another log, and its commits are lost.
func checkNames(path string, o Options) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%w: path %q is a folder", storage.ErrUnsupportedDB, path)
	}
	if o.AnyFileSystem {
		return nil
	}
	if what, remedy := host.OtherNames(path); what != "" {
		return fmt.Errorf("%w: path %q %s: %s, unless Options.AnyFileSystem is set", storage.ErrUnsupportedDB, path, what, remedy)
	}
	return nil
}

// statFS returns the file system of a path, and roomAt what is free on it; tests replace
// both.
var statFS, roomAt = host.StatFS, host.Room

// checkFileSystem refuses a path on a file system that other machines may share.
// The file need not exist yet. A file system of unknown type passes.
func checkFileSystem(path string, o Options) error {
	if o.AnyFileSystem {
		return nil
	}
	at := path
	if _, err := os.Stat(at); err != nil {
		at = filepath.Dir(path)
	}
	fs, _ := statFS(at) // what else is wrong comes out when the file is opened
	if !fs.Shared() {
		return nil
	}
	return fmt.Errorf("%w: path %q is on a file system of type %s, which other machines may share: "+
		"must be a local one, unless Options.AnyFileSystem is set", storage.ErrUnsupportedDB, path, fs.Name)
}

const remedyInMemory = "put the database on a disk"

var warnInMemory sync.Once

// warnOfMemory logs once in a process that jobs will not outlive the machine.
func warnOfMemory(path string, log *slog.Logger) {
	if fs, err := statFS(path); err == nil && fs.InMemory() {
		warnInMemory.Do(func() {
			log.Warn("errand: the database is in memory: all jobs are gone with the next reboot; "+remedyInMemory, "file", path, "type", fs.Name)
		})
	}
}

// lookEach is how often a writer checks that the database is still under its name.
const lookEach = time.Second

// there returns [storage.ErrCorrupt] if the database is no longer under its name:
// later writes would be lost. If the database has got a second name, it returns
// [storage.ErrUnsupportedDB].
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
	return nil // an error of looking does not say that others cannot find the file
}

// errWentBack ends a Store whose database was restored in place, as by .restore
// of the sqlite3 command: the lanes, leases and keys in the Store's memory are those
// of another database.
var errWentBack = fmt.Errorf("%w: the database has gone back to an earlier moment while it was open, as by a restore in place: open it again",
	storage.ErrClosed)

// floor are the last committed values of counters that only ever rise.
type floor struct {
	nextJob, nextToken, generation atomic.Int64
	// unkept is the latest time that a write was given which has left nothing that has
	// it, and so has not written it. Close writes it.
	unkept atomic.Int64
}

// raise takes over committed counters.
func (f *floor) raise(m *meta) {
	raise(&f.nextJob, m.nextJob)
	raise(&f.nextToken, m.nextToken)
	raise(&f.generation, m.gen)
}

// raise sets n, unless n is higher: an earlier reader may come later. If two
// goroutines raise n at once it may end too low, and a database that has gone back
// is noticed later.
func raise(n *atomic.Int64, to int64) {
	if to > n.Load() {
		n.Store(to)
	}
}

// readMeta reads the counters, and ends the Store if they have gone back.
func (s *Store) readMeta(db asker, m *meta) error {
	return s.risen(m, func() error { return db.row(sqlMeta, nil, m.dest()...) })
}

// risen ends the Store if the counters that read puts into m have gone back.
func (s *Store) risen(m *meta, read func() error) error {
	f := &s.floor
	nextJob, nextToken, generation := f.nextJob.Load(), f.nextToken.Load(), f.generation.Load() // before reading
	if err := read(); err != nil {
		return err
	}
	if m.nextJob >= nextJob && m.nextToken >= nextToken && m.gen >= generation {
		return nil
	}
	if s.usable() == nil {
		s.fail(errWentBack, "database")
	}
	return errWentBack
}
