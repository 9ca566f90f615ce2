package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	sqlOwnTables  = `SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name GLOB 'errand_*' ORDER BY name`
	sqlCheckTable = `PRAGMA quick_check('%s')`

	// maxFound is how many lines of a finding are kept.
	maxFound = 5
	// maxFinding is how many bytes of the file are read.
	maxFinding = 4096
)

// check examines a database whose last use did not end cleanly: SQLite's quick_check
// of each of errand's tables and its indexes, in the background. The application's
// tables are not checked.
//
// A file beside the database says that a check is due. The process that checks holds
// its lock, and writes there what was found. The file is deleted when the tables were
// found sound, so that a clean restart forgets neither a check that was cut short nor
// a finding.
type check struct {
	path  string
	log   *slog.Logger
	found atomic.Pointer[string] // damage, if not nil: no work is taken in
	mine  atomic.Bool            // this Store has found the damage
	over  chan struct{}          // closed when the check is over; nil if this Store does none

	mu     sync.Mutex
	looked time.Time // when it was last asked whether the damage is cured
}

// checkedTable is called after the check of each table. It is set by tests.
var checkedTable atomic.Pointer[func(table string)]

func checkPath(db string) string { return db + "-check" }

// readFinding returns what a check has written to its file.
func readFinding(path string, db os.FileInfo) (string, error) {
	f, err := openExisting(path, os.O_RDONLY, db)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFinding))
	return string(b), errors.Join(err, f.Close())
}

// beginCheck begins a check if one is due, or if an instance is registered whose
// process is gone and whose leases no worker has taken over. A process that has
// leased nothing leaves no such trace. The log would tell less: it looks the same
// while another process, or the application, has the file open.
func (s *Store) beginCheck() {
	c := &s.check
	before, err := readFinding(c.path, s.info)
	if errors.Is(err, os.ErrNotExist) && !s.unclean() {
		return
	}
	if before != "" {
		s.stopIntake(before)
	}
	f, err := openBeside(c.path, os.O_RDWR, s.info)
	if err == nil {
		if mine, e := host.TryLock(f); e == nil && !mine {
			_ = f.Close() // another process is at it
			return
		}
	} else {
		s.check.log.Warn("errand: a check that is not finished will not be remembered", "error", err)
	}
	c.over = make(chan struct{})
	s.joined.Go(func() {
		defer close(c.over)
		s.runCheck(f)
	})
}

// unclean reports whether an instance was left behind, in this boot or an earlier
// one. In both cases nobody has its lock.
func (s *Store) unclean() bool {
	others, _ := s.cache.others(s.self.number())
	return slices.ContainsFunc(others, func(r peer) bool {
		alive, err := locked(instancePath(s.path, r.id), s.info)
		return err == nil && !alive && r.boot != closedBoot
	})
}

// runCheck checks the tables. It deletes the file f, which may be nil, if they are
// sound, and else writes there what was found.
func (s *Store) runCheck(f *os.File) {
	began := time.Now()
	lines, err := s.checkTables(stopping{context.Background(), s.stop})
	if errors.Is(err, storage.ErrCorrupt) {
		lines, err = append(lines, err.Error()), nil
	}
	select {
	case <-s.stop:
		err = storage.ErrClosed // the result does not count
	default:
	}
	switch {
	case errors.Is(err, storage.ErrClosed):
	case err != nil:
		s.check.log.Error("errand: the check after an unclean stop could not be finished", "file", s.path, "error", err)
	case len(lines) > 0:
		text := strings.Join(lines[:min(len(lines), maxFound)], "; ")
		if f != nil {
			_, e := f.WriteAt([]byte(text), 0)
			if e = errors.Join(e, f.Truncate(int64(len(text)))); e != nil {
				s.check.log.Warn("errand: the next start will not know of the damage before it has checked", "error", e)
			}
		}
		s.check.mine.Store(true)
		s.stopIntake(text)
	default:
		if f != nil {
			_ = f.Close() // nothing was written
			if e := os.Remove(s.check.path); e != nil && !errors.Is(e, os.ErrNotExist) {
				s.check.log.Warn("errand: the next start will check once more", "error", e)
			}
		}
		s.check.found.Store(nil)
		s.check.log.Info("errand: the last use had not ended cleanly; the tables are sound", "file", s.path, "took_s", time.Since(began).Seconds())
		return
	}
	if f != nil {
		_ = f.Close() // the lock goes with it
	}
}

// checkTables returns what is wrong, on a connection of its own. It reads each table
// in a transaction of its own, because the log cannot begin anew during one.
func (s *Store) checkTables(ctx context.Context) (found []string, err error) {
	db := s.openPool(1, readerPragmas)
	defer func() { _ = db.Close() }() // it has only read
	r := plain{ctx, db}
	tables := []string{"sqlite_schema"}
	var name string
	if err := r.each(sqlOwnTables, nil, []any{&name}, func() { tables = append(tables, name) }); err != nil {
		return nil, translate(err)
	}
	for _, name := range tables {
		lines, err := quickCheck(r, fmt.Sprintf(sqlCheckTable, strings.ReplaceAll(name, "'", "''")))
		found = append(found, lines...)
		if err != nil || len(found) >= maxFound {
			return found, translate(err)
		}
		s.check.log.Debug("errand: checked after an unclean stop", "table", name)
		if f := checkedTable.Load(); f != nil {
			(*f)(name)
		}
	}
	return found, nil
}

// quickCheck returns what SQLite has found by a quick_check or integrity_check.
func quickCheck(db asker, text string) (found []string, err error) {
	var line string
	err = db.each(text, nil, []any{&line}, func() { found = append(found, strings.Split(line, "\n")...) })
	return slices.DeleteFunc(found, func(line string) bool {
		return line == "ok" || strings.HasPrefix(line, "***") // a heading
	}), err
}

// stopIntake refuses work from now on, and notifies the workers.
func (s *Store) stopIntake(text string) {
	if s.check.found.Swap(&text) == nil {
		s.check.log.Error("errand: the database is damaged: no work is taken in; stop all processes that use it, "+
			"keep a copy of its files, look at it with errand doctor, and restore a backup", "file", s.path, "found", text)
	}
	s.listeners.notify(storage.Event{})
}

// heedCheck takes over what another process has found.
func (s *Store) heedCheck() {
	if s.opts.SingleProcess || s.check.found.Load() != nil {
		return
	}
	if info, err := os.Lstat(s.check.path); err != nil || info.Size() == 0 {
		return
	}
	if text, err := readFinding(s.check.path, s.info); err == nil && text != "" {
		s.stopIntake(text)
	}
}

// cured reports whether another process has found the tables sound since, whose
// check has deleted the file. It looks as often as writers look for the database,
// which do not while no work is taken in.
func (s *Store) cured(text *string) bool {
	c := &s.check
	if s.opts.SingleProcess || c.mine.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEach {
		return false
	}
	c.looked = time.Now()
	if _, err := os.Lstat(c.path); !errors.Is(err, os.ErrNotExist) || !c.found.CompareAndSwap(text, nil) {
		return false
	}
	s.check.log.Info("errand: another process has found the tables sound: work is taken in again", "file", s.path)
	s.listeners.notify(storage.Event{})
	return true
}

// damage returns [storage.ErrCorrupt] if a check has found damage, until one finds
// the tables sound.
func (s *Store) damage() error {
	text := s.check.found.Load()
	if text == nil || s.cured(text) {
		return nil
	}
	return fmt.Errorf("%w: path %q: a check has found: %q; %s", storage.ErrCorrupt, s.path, *text, remedyRestore)
}

// stopping is a context that ends when a Store begins to close.
type stopping struct {
	context.Context
	stop <-chan struct{}
}

func (c stopping) Done() <-chan struct{} { return c.stop }

func (c stopping) Err() error {
	select {
	case <-c.stop:
		return context.Canceled
	default:
		return nil
	}
}
