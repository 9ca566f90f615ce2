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
	sqlOwnTables  = `SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'errand_*' ORDER BY name`
	sqlCheckTable = `PRAGMA quick_check('%s')`

	// maxFound is how much of what was found is shown.
	maxFound = 5
	// maxFinding is how much of its file is read.
	maxFinding = 4096
)

// check is the look at a file whose last use did not end cleanly: SQLite's
// quick_check of each table of errand and its indexes, in the background. What
// else the application keeps in the file is for the application to judge.
//
// A file beside the database says that a check is owed, is locked by whoever
// does it, and has in it what was found. It goes when the database was found
// sound, so that neither a check that was cut short nor a finding is forgotten
// by a restart that is clean.
type check struct {
	path  string
	log   *slog.Logger           // called by the goroutine that checks, which holds nobody up
	found atomic.Pointer[string] // damage; no work is taken in
	mine  atomic.Bool            // this Store has found it
	over  chan struct{}          // closed when the check is over; nil: this Store does none

	mu     sync.Mutex
	looked time.Time // for a cure
}

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

// beginCheck has the file checked if that is owed, or if an instance is
// registered whose process is gone: from then on until a worker has taken over
// what it held. A process that leased nothing and listened to nobody leaves no
// trace. The log tells less: that another process, or the application, has the
// file open looks the same.
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

// unclean tells whether an instance was left behind, in this boot or an earlier
// one: either way nobody has its lock.
func (s *Store) unclean() bool {
	others, _ := s.cache.others(s.self.number())
	return slices.ContainsFunc(others, func(r peer) bool {
		alive, err := locked(instancePath(s.path, r.id), s.info)
		return err == nil && !alive && r.boot != closedBoot
	})
}

// runCheck checks the database, and ends the debt that f stands for, which may
// be nil, if it is sound.
func (s *Store) runCheck(f *os.File) {
	began := time.Now()
	lines, err := s.checkTables(stopping{context.Background(), s.stop})
	if errors.Is(err, storage.ErrCorrupt) {
		lines, err = append(lines, err.Error()), nil
	}
	select {
	case <-s.stop:
		err = storage.ErrClosed // nothing that it says counts
	default:
	}
	switch {
	case errors.Is(err, storage.ErrClosed):
	case err != nil:
		s.check.log.Warn("errand: the check after an unclean stop could not be finished", "file", s.path, "error", err)
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
		s.check.log.Info("errand: the last use had not ended cleanly; the tables are sound", "file", s.path, "took", time.Since(began))
		return
	}
	if f != nil {
		_ = f.Close() // the lock goes with it
	}
}

// checkTables gives what is wrong, on a connection of its own. Each table is
// read in a transaction of its own, for the log cannot be begun anew while one
// lasts.
func (s *Store) checkTables(ctx context.Context) (found []string, err error) {
	db := openPool(s.path, 1, s.opts, readerPragmas)
	defer func() { _ = db.Close() }() // it has only read
	r := reader{ctx, db}
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
	}
	return found, nil
}

// quickCheck gives what SQLite has found by a quick_check or integrity_check.
func quickCheck(db asker, text string) (found []string, err error) {
	var line string
	err = db.each(text, nil, []any{&line}, func() { found = append(found, strings.Split(line, "\n")...) })
	return slices.DeleteFunc(found, func(line string) bool {
		return line == "ok" || strings.HasPrefix(line, "***") // a heading
	}), err
}

// stopIntake has work refused from now on, and workers told.
func (s *Store) stopIntake(text string) {
	if s.check.found.Swap(&text) == nil {
		s.check.log.Error("errand: the database is damaged: no work is taken in; stop all processes that use it, "+
			"keep a copy of its files, look at it with errand doctor, and restore a backup", "file", s.path, "found", text)
	}
	s.listeners.notify(storage.Event{})
}

// heedCheck learns what another process has found.
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

// cured learns that another process has found the tables sound since: its check
// has deleted the file. It looks as often as writers look for their database,
// which they do not while no work is taken in.
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

// damage returns [storage.ErrCorrupt] once a check has found any, for as long as
// none has found the tables sound.
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
