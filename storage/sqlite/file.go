package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		if err := checkWhole(path, nil); err != nil { // before another database is made
			return err
		}
	}
	log, _ := os.Stat(path + "-wal") // before the database, which has its header when it gets a log
	info, err := os.Stat(path)
	left := log != nil && log.Size() > 0
	switch {
	case left && (errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() < headerSize):
		return fmt.Errorf("%w: path %q is empty or gone, and its log %s-wal is there: "+
			"put the database back, or take the log away too%s", storage.ErrCorrupt, path, path, orCopy(path))
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
	errandNames = []string{turnEnd, "-wake", "-ballast", roomEnd, "-check"}
)

// roomEnd is that of the file of tryRoom.
const roomEnd = "-room"

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

// lookEach is how often the database, its log and its index are looked for by their names.
const lookEach = time.Second

// watch is how a Store notices that a file of its database is taken away. SQLite finds the
// log and its index by name when it opens them, and never again: what is written to a file
// that has lost its name is gone with the last process that has it open. The files are
// never opened to look, as closing the index would drop SQLite's locks on it.
type watch struct {
	began  time.Time
	looked atomic.Int64 // when they were last looked for, in nanoseconds since began
	// libraries: when to look next for other libraries, in nanoseconds since began
	libraries atomic.Int64
	known     [2]os.FileInfo // of the log and its index, since they are open
	length    atomic.Int64   // bytes of the log, when it was last looked for
	blocks    bool           // the file system tells of holes
}

// never is earlier than any look.
const never = math.MinInt64 / 2

// know notes the log and the index, which SQLite has opened.
func (s *Store) know() error {
	fs, err := statFS(s.path)
	s.watch.blocks = err == nil && fs.CountsBlocks()
	for i, end := range []string{"-wal", "-shm"} {
		info, err := os.Lstat(s.path + end)
		if errors.Is(err, os.ErrNotExist) && !s.opts.AnyFileSystem { // else the index may be beside another name
			return goneError{lost: fmt.Sprintf("path %q: it was removed or renamed while it was opened", s.path+end)}
		}
		if err == nil {
			s.watch.known[i] = info
		}
	}
	return nil
}

// look looks for the files, and for what a check has found, unless that was done within lookEach. If
// a file was taken away it has the Store save what it has, and returns [storage.ErrTakenAway]. If the database
// has got a second name, it ends the Store and returns [storage.ErrUnsupportedDB].
func (s *Store) look() error {
	if t := s.taken.Load(); t != nil {
		return t.err()
	}
	if s.view != nil { // it looks with each read
		return nil
	}
	was, now := s.watch.looked.Load(), int64(time.Since(s.watch.began))
	if now-was < int64(lookEach) || !s.watch.looked.CompareAndSwap(was, now) {
		return nil
	}
	err := s.lookNow()
	if err == nil {
		s.heedCheck()
	}
	return err
}

// lookNow is look, however short the last one is ago.
func (s *Store) lookNow() error {
	if s.failure.Load() != nil || s.watch.known[0] == nil && s.watch.known[1] == nil { // it has ended, or is being opened
		return nil
	}
	if err := s.there(); err.lost != "" {
		return s.takeAway(err)
	}
	err := cmp.Or(checkNames(s.path, s.opts), s.checkLibraries())
	if err != nil {
		s.fail(err, "database")
	}
	return err
}

// otherLibrary is what is wrong if two SQLite libraries in a process have a file open, and what
// to do.
const otherLibrary = "another SQLite library in this process has opened the file, such as github.com/mattn/go-sqlite3, " +
	"and the two do not see each other's locks: open the file by modernc.org/sqlite alone, and examine it by errand doctor --full"

// checkLibraries returns [storage.ErrUnsupportedDB] if another SQLite library in this process has
// opened the database, as far as the system can tell. Each library opens the index once in a process,
// however many connections it has. What it locks there it locks for the process, and so against no other
// library in it: both may write at a time, and the file is damaged.
func checkLibraries(path string) error {
	if index, err := os.Lstat(path + "-shm"); err == nil && host.Writers(index) > 1 {
		return fmt.Errorf("%w: path %q: %s", storage.ErrUnsupportedDB, path, otherLibrary)
	}
	return nil
}

// checkLibraries is the function of this name, which looks at all open files of the process: where
// these are many it is called so seldom that it takes a thousandth of a processor, but each
// ten seconds at least: a look takes long too if the processors are busy.
func (s *Store) checkLibraries() error {
	began := int64(time.Since(s.watch.began))
	if began < s.watch.libraries.Load() {
		return nil
	}
	err := checkLibraries(s.path)
	took := int64(time.Since(s.watch.began)) - began
	s.watch.libraries.Store(began + min(1000*took, int64(10*time.Second)))
	return err
}

// there returns what is no longer under its name, or was cut off.
func (s *Store) there() (e goneError) {
	for i, f := range []struct {
		end  string
		was  os.FileInfo
		stat func(string) (os.FileInfo, error)
	}{{"", s.info, os.Stat}, {"-wal", s.watch.known[0], os.Lstat}, {"-shm", s.watch.known[1], os.Lstat}} {
		info, err := f.stat(s.path + f.end)
		how := ""
		switch {
		case f.was == nil:
		case errors.Is(err, os.ErrNotExist):
			how = "it was removed or renamed"
		case err != nil: // that does not say that others cannot find the file
		case !os.SameFile(info, f.was):
			how = "another file was put there"
		case i == 1 && (s.cutOff(info.Size()) || s.hollow(info)):
			how, e.cut = "it was cut off", true
		}
		if how != "" {
			e.lost += fmt.Sprintf("path %q: %s while it was open; ", s.path+f.end, how)
			e.database = e.database || i == 0
		}
	}
	e.lost = strings.TrimSuffix(e.lost, "; ")
	return e
}

// cutOff reports whether the log is shorter than its index says. SQLite cuts it too: then
// nothing in it is needed any more.
func (s *Store) cutOff(size int64) bool {
	if size >= s.watch.length.Load() {
		s.watch.length.Store(size)
		return false
	}
	ctx, stop := context.WithTimeout(context.Background(), cutWait) // a caller may have one of the connections
	defer stop()
	for range 2 { // SQLite may do so just now
		var busy, length, moved, page int64
		if s.inner.QueryRowContext(ctx, sqlLogLength).Scan(&busy, &length, &moved) != nil || s.inner.QueryRowContext(ctx, sqlPageSize).Scan(&page) != nil {
			return false // the next look asks again
		}
		info, err := os.Lstat(s.path + "-wal")
		if err != nil || length <= 0 || info.Size() >= logHeader+length*(frameHeader+page) {
			s.watch.length.Store(size)
			return false
		}
	}
	return true
}

// cutWait is how long a look waits for a connection that says how long the log is.
const cutWait = time.Second

// hollow reports whether the log was cut off and is written on behind its old end: SQLite writes it
// from the first byte on.
func (s *Store) hollow(log os.FileInfo) bool {
	if !s.watch.blocks || host.Hole(log) < leastHole {
		return false
	}
	log, err := os.Lstat(s.path + "-wal") // blocks may have been on their way to the disk
	return err == nil && host.Hole(log) >= leastHole
}

// leastHole is more than a file system may leave out of the last blocks of a file.
const leastHole = 64 << 10

const (
	logHeader   = 32 // bytes; see sqlite.org/fileformat2.html
	frameHeader = 24
)

// goneError is a [storage.ErrTakenAway].
type goneError struct {
	lost     string // which files, and how
	database bool   // it is among them, so that others may take it for damaged
	cut      bool   // the log was cut off, so that its rest must not come into the database
}

func (e goneError) Error() string { return storage.ErrTakenAway.Error() + ": " + e.lost }

func (e goneError) Is(target error) bool {
	return target == storage.ErrTakenAway || e.database && target == storage.ErrCorrupt
}

// checkWhole returns [storage.ErrTakenAway] if the log or its index is missing while a
// Store has the database open. To open it would make another log beside the
// one that the Store writes, and one of the two would be lost.
func checkWhole(path string, db os.FileInfo) error {
	missing := func() string {
		for _, end := range []string{"-wal", "-shm"} {
			if _, err := os.Lstat(path + end); errors.Is(err, os.ErrNotExist) {
				return path + end
			}
		}
		return ""
	}
	if missing() == "" {
		return nil
	}
	holder := holderOf(path, db)
	if holder == "" {
		return nil
	}
	lost := missing()
	if lost == "" { // it was opened meanwhile
		return nil
	}
	return goneError{lost: fmt.Sprintf("path %q: it is missing, and a process that has the database open has locked %s: "+
		"let that process save what it has and close, which it logs, and open the database then", lost, holder)}
}

// holderOf returns the file by whose lock a Store is known to have the database open, "" if
// none has.
func holderOf(path string, db os.FileInfo) string {
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	for _, e := range all {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(path))
		if _, instance := instanceOf(suffix); !ok || !instance {
			continue
		}
		name, owner := path+suffix, db
		if owner == nil { // the database is gone too
			if owner, err = e.Info(); err != nil {
				continue
			}
		}
		if alive, err := locked(name, owner); err == nil && alive && !hasLeft(name, owner) {
			return name
		}
	}
	if name := path + turnEnd; someUse(name, db) {
		return name
	}
	return ""
}
