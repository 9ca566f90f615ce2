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
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// With SQLite's locking mode EXCLUSIVE a write transaction takes the lock that nobody
	// can have beside another connection, and keeps it.
	sqlAlone    = `PRAGMA locking_mode = EXCLUSIVE`
	sqlNotAlone = `PRAGMA locking_mode = NORMAL`

	// saveAgain is the time between two attempts to save what a Store has.
	saveAgain = time.Minute
	// aloneWait is how long to wait for readers, of this process and then of others, before
	// others are taken to have the database open.
	aloneWait = 150 * time.Millisecond
	// quietWait is how long to wait for the function of a Tx: the log may be lost meanwhile.
	quietWait = 500 * time.Millisecond
	// partsLast is after which time the part of a copy is taken for one that nobody finishes.
	partsLast = time.Hour
)

// loss is what is known of a database of which a file was taken away while the Store had
// it open. The connections that are open still have it. From then on the Store takes no
// calls, and saves what it has: in the database, if nobody else has that open, and else in a
// copy beside it. If neither can be done, it tries again each minute. Then it has failed.
type loss struct {
	goneError
	tried chan struct{}         // closed after the first attempt
	why   atomic.Pointer[error] // of the last attempt, that it failed
}

// err returns what calls return until all is saved.
func (t *loss) err() error {
	if why := t.why.Load(); why != nil {
		// Its text alone: a copy for which there is no room is no queue that is full.
		return fmt.Errorf("%w: what this process has of it could not be saved, which it tries again each minute: do not kill it, and mend this: %s", t.goneError, (*why).Error())
	}
	return fmt.Errorf("%w: this process saves what it has, and then closes", t.goneError)
}

// await waits for the first attempt.
func (t *loss) await(ctx context.Context) error {
	select {
	case <-t.tried:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeAway has the Store save what it has of a database of which a file was taken away, and
// returns the error of the call that has found that. The caller is one that Close waits for.
func (s *Store) takeAway(e goneError) error {
	t := &loss{goneError: e, tried: make(chan struct{})}
	if !s.taken.CompareAndSwap(nil, t) {
		return s.taken.Load().err()
	}
	close(s.gone)
	s.opts.Logger.Error("errand: the queue takes no more calls, and saves what it has", "error", e)
	s.joined.Go(func() { s.rescue(t) })
	return t.err()
}

// rescue saves what the Store has, and ends it.
func (s *Store) rescue(t *loss) {
	again := time.NewTimer(saveAgain)
	defer again.Stop()
	for last := false; ; {
		where, err := s.save(t)
		if err == nil {
			end := fmt.Errorf("%w: %s", t.goneError, where)
			s.failure.Store(&end)
			s.opts.Logger.Error("errand: the queue is closed", "error", end)
			break
		}
		t.why.Store(&err)
		s.opts.Logger.Error("errand: what the queue had could not be saved", "error", t.err())
		if last {
			break
		}
		if t.first() {
			s.listeners.notify(storage.Event{})
		}
		again.Reset(saveAgain)
		select {
		case <-again.C:
		case <-s.stop: // once more, as the process may end
			last = true
		}
	}
	t.first()
	s.listeners.notify(storage.Event{}) // so that idle workers learn of it
}

// first ends the first attempt. It reports whether this is it.
func (t *loss) first() bool {
	select {
	case <-t.tried:
		return false
	default:
		close(t.tried)
		return true
	}
}

// save saves what the Store has, closes its connections, and returns where it is and what
// to do. After an error the connections that write stay open.
func (s *Store) save(t *loss) (where string, err error) {
	w := s.queue.writer
	w.mine <- struct{}{}
	defer w.give()
	alone := s.quiet(t)
	if alone {
		defer func() { <-s.turn.mine }()
	}
	s.closeReaders(alone)
	stamp := time.Now().UTC().Format("20060102T150405Z")
	err = w.stmts.hold(func() (err error) {
		if err := w.log.patience(0); err != nil {
			return err
		}
		if now := s.there(); alone && !t.cut && !now.cut && !now.database { // that may be back
			var moved bool
			if moved, err = w.moveAlone(); moved {
				where = "all that this process had is in the database" + s.setAside(stamp) + ": open it again, and see who takes files away"
				return nil
			}
		}
		copied := fmt.Sprintf("%s%s%s-%d", s.path, savedEnd, stamp, os.Getpid())
		if e := w.copyAside(copied); e != nil {
			return errors.Join(err, e)
		}
		what := "all that this process had is"
		if t.cut {
			what = "what this process could still read is" // zeros are sound where args are
		}
		where = fmt.Sprintf("%s in the copy %q, as others may have the database open: "+
			"stop all processes that use it; errand doctor says whether the database has all that the copy has; if not, %s", what, copied, remedyCopy)
		if _, err := os.Lstat(s.path); errors.Is(err, os.ErrNotExist) {
			where = fmt.Sprintf("%s in the copy %q: stop all processes that use it, and %s", what, copied, remedyCopy)
		}
		return nil
	})
	if err != nil {
		return "", translate(err)
	}
	if alone { // else the connection of a Tx is open, and nobody else may make a log beside it
		s.self.mu.Lock()
		_ = s.self.part() // else others cannot open it before the process ends
		s.self.mu.Unlock()
		s.inUse(false)
	}
	if !t.cut { // else SQLite would move what is left of the log
		w.stmts.close()
		_ = s.write.Close()
	}
	return where, nil
}

// quiet waits until nobody is in a Tx, and reports whether the Store has the turn then. Other
// processes need not wait. A Tx that takes longer than quietWait keeps the turn, and cannot
// commit any more: what it writes nobody was promised.
func (s *Store) quiet(t *loss) bool {
	timer := time.NewTimer(quietWait)
	defer timer.Stop()
	for {
		select {
		case s.turn.mine <- struct{}{}:
			return true
		case <-timer.C:
		}
		if own := s.own.Load(); own != nil && own.spoil(t.err()) {
			return false
		}
		timer.Reset(restartPoll) // it is about to commit, or has ended
	}
}

// closeReaders closes all connections but that of the writer and, if that is in use, of Tx, and
// waits for calls that read.
func (s *Store) closeReaders(alone bool) {
	if alone && s.app != nil {
		s.app.close()
		s.app = nil
	}
	_ = s.versions.close()
	pools := []*sql.DB{s.apps, s.read.DB, s.inner.DB}
	for _, db := range pools {
		_ = db.Close()
	}
	poll := time.NewTicker(restartPoll)
	defer poll.Stop()
	for limit := time.Now().Add(aloneWait); time.Now().Before(limit); <-poll.C {
		open := 0
		for _, db := range pools {
			open += db.Stats().OpenConnections
		}
		if open == 0 {
			return
		}
	}
}

// moveAlone moves the log into the database, if nobody else has the database open. Then it
// keeps the lock that says so.
func (w *writer) moveAlone() (moved bool, err error) {
	defer func() {
		if !moved {
			var n int
			_ = w.stmts.plain(sqlNotAlone)
			_ = w.stmts.row(sqlAnyRead, nil, &n) // which drops the lock
		}
	}()
	if err := w.stmts.plain(sqlAlone); err != nil {
		return false, err
	}
	poll := time.NewTicker(restartPoll)
	defer poll.Stop()
	for limit := time.Now().Add(aloneWait); ; <-poll.C { // a process that only looks is soon gone
		if _, err = w.stmts.exec(sqlBegin); err == nil || time.Now().After(limit) {
			break
		}
	}
	if err == nil {
		_, err = w.stmts.exec(sqlCommit)
	}
	var busy, length, rest int
	if err == nil {
		err = w.stmts.row(sqlTruncate, nil, &busy, &length, &rest)
	}
	return err == nil && busy == 0, err
}

// setAside renames another log that was put in the place of the one that was taken away,
// before SQLite deletes it or takes it for a part of the database. The caller has the
// database alone. It returns a part of a sentence about that.
func (s *Store) setAside(stamp string) string {
	log := s.path + "-wal"
	info, err := os.Lstat(log)
	if err != nil || s.watch.known[0] == nil || os.SameFile(info, s.watch.known[0]) {
		return ""
	}
	aside := s.path + "-other-" + stamp
	if os.Rename(log, aside) != nil {
		return ""
	}
	return fmt.Sprintf(", and the log that was put there is now %q", aside)
}

// copyAside copies the database, as the writer sees it, to a new file, and checks the copy.
func (w *writer) copyAside(path string) error {
	return newFile(path, func(name string) error {
		if _, err := w.stmts.exec(sqlBeginRead); err != nil {
			return err
		}
		var n int
		err := w.stmts.row(sqlAnyRead, nil, &n)
		if err == nil {
			err = copyOf(context.Background(), w.stmts.raw, name)
		}
		_, _ = w.stmts.exec(sqlRollback)
		if err == nil {
			err = w.checkCopy(name)
		}
		if err != nil {
			return fmt.Errorf("copy %q: %w", path, err)
		}
		return nil
	})
}

const remedyCopy = "move away what is there of the database, its log and its index, and rename the copy to its name"

// orCopy returns a part of a sentence about the copies that were saved of a database that is gone,
// empty if there are none.
func orCopy(path string) string {
	copies, _ := savedCopies(path)
	if len(copies) == 0 {
		return ""
	}
	return fmt.Sprintf("; what processes have saved is in %q: stop all that use it, and %s", copies, remedyCopy)
}

// savedEnd begins the end of the name of a copy that rescue has made.
const savedEnd = "-saved-"

// savedCopies returns the copies that processes have saved beside a database, and the parts of
// copies that were not finished.
func savedCopies(path string) (names, parts []string) {
	all, _ := os.ReadDir(filepath.Dir(path)) // what cannot be listed is not told
	for _, e := range all {
		end, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+savedEnd)
		name := path + savedEnd + end
		switch {
		case !ok || !e.Type().IsRegular():
		case strings.Contains(end, partEnd):
			parts = append(parts, name)
		case !slices.ContainsFunc(sqliteNames, func(of string) bool { return strings.HasSuffix(end, of) }):
			names = append(names, name)
		}
	}
	return names, parts
}

// sweepParts deletes the parts of copies that nobody has written to for long: whoever made them
// has been killed. One that lives after all makes its copy anew.
func sweepParts(parts []string) {
	for _, name := range parts {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > partsLast {
			_ = os.Remove(name) // the next one who opens the database tries again
		}
	}
}

// checkCopy checks that a copy is sound, and has all that this process has committed or seen.
func (s *Store) checkCopy(name string) error {
	db, err := sql.Open("sqlite", viewDSN(name, withoutLog, s.opts.BusyTimeout))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it has only read
	r := plain{context.Background(), db}
	found, err := quickCheck(r, sqlQuickCheck)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: %q", storage.ErrCorrupt, found[0])
	}
	var m meta
	if err == nil {
		err = r.row(sqlMeta, nil, m.dest()...)
	}
	if f := &s.floor; err == nil && (m.nextJob < f.nextJob.Load() || m.nextToken < f.nextToken.Load() || m.gen < f.generation.Load()) {
		err = fmt.Errorf("%w: it lacks the last writes", storage.ErrCorrupt)
	}
	return err
}

// lookIdle looks whether the files are still under their names, and has that done each
// second while others could use them, jobs run, or the log has what the database has not.
// In a test with fake time, where a timer that never rests is costly, only writes look.
func (w *writer) lookIdle() {
	if err := w.look(); err != nil || w.usable() != nil || inBubble() {
		return
	}
	w.mine <- struct{}{}
	left := w.log.left
	w.give()
	if left > 0 || w.others() || w.self.holdsAny() {
		w.looks.Reset(lookEach)
	}
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
	unkept  atomic.Int64
	samples sampler
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
