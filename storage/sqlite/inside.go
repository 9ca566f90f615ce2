package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
)

const (
	// An UPDATE takes the write lock, even of no row, before anything is read: a deferred
	// transaction that began by reading could not write any more once another has
	// committed (SQLITE_BUSY_SNAPSHOT).
	sqlTakeLock   = `UPDATE main.errand_number SET n = n WHERE id = -1`
	sqlBeginAgain = `BEGIN`
	sqlSavepoint  = `SAVEPOINT errand`
	sqlRollbackTo = `ROLLBACK TO errand`
	sqlRelease    = `RELEASE errand`

	// The counters by their ids, and another row for each temporary trigger on errand's
	// tables that the connection has. In a transaction of the application no statement
	// stays prepared, and this one is prepared in half of the time of sqlMeta. NOCASE has
	// no function that the application could replace.
	//
	// A trigger on a temporary table is none of them if no table of the database has that
	// name. Otherwise it is taken for one: SQLite does not say which of the two it is on,
	// and a temporary table may have been made after the trigger.
	sqlAppMeta = `SELECT id, CASE id WHEN 1 THEN ` + nextJob + ` WHEN 5 THEN ` + clock + ` ELSE n END FROM main.errand_number WHERE id BETWEEN 0 AND 7
UNION ALL SELECT -1, 0` + fromTempTriggers
	// What says whether the counters are those that the last call has left, see ownCounters.
	sqlStillNext    = `SELECT ` + nextJob + `, EXISTS (SELECT 1` + fromTempTriggers + `) FROM main.errand_number WHERE id = 1`
	sqlTempTriggers = `SELECT name, tbl_name` + fromTempTriggers + `
AND tbl_name COLLATE NOCASE IN (SELECT name FROM main.sqlite_schema WHERE type IN ('table', 'view')) ORDER BY name`
	fromTempTriggers = ` FROM temp.sqlite_schema WHERE type = 'trigger' AND tbl_name COLLATE NOCASE BETWEEN 'errand_' AND 'errand_~'`
)

// inside runs f in a transaction of the application, or in one that Tx has
// begun. With watched the workers are told of the commit. partly is true if f may have written
// something when it returns an answer, see isAnswer: that is taken back then.
//
// While the application reads what a statement of its own returns that it has written, SQLite
// begins no savepoint. In a transaction of Tx such an answer then ends the transaction. In
// the application's own each call returns ErrBusy.
func (s *Store) inside(ctx context.Context, in any, watched, partly bool, f func(t *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := errors.Join(s.usable(), s.writable()); err != nil {
		return err
	}
	if err := s.look(); err != nil {
		return err
	}
	tx, ok := in.(*sql.Tx)
	if !ok {
		return fmt.Errorf("%w: the transaction is a %T: must be a *sql.Tx", storage.ErrWrongDatabase, in)
	}
	var err error
	if own := s.own.Load(); own != nil && own.tx == tx {
		err = s.insideOwn(own, partly, f)
	} else {
		// A statement that is interrupted may take the whole transaction with it.
		err = s.insidePlain(plain{context.WithoutCancel(ctx), tx}, watched, f)
	}
	if endedTx(err) {
		return ended(ctx, err) // the transaction's context may be the same
	}
	var e *driver.Error
	if errors.As(err, &e) && e.Code() == lib.SQLITE_BUSY_SNAPSHOT {
		return fmt.Errorf("%w: the transaction began by reading, and somebody has written since: "+
			"use Tx, write _txlock=immediate in the DSN"+orOpenDB+": %w", storage.ErrBusy, err)
	}
	if err = translate(s.asFull(err)); errors.Is(err, storage.ErrBusy) {
		return err // for what the application does in the transaction
	}
	return s.ours(err)
}

// isAnswer reports whether an error is an answer to a call, and not a failure of the database.
func isAnswer(err error) bool {
	for _, answer := range []error{storage.ErrStale, storage.ErrMessageID, storage.ErrNotFound, storage.ErrDuplicate, storage.ErrQueueFull} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// insideOwn is inside for a transaction of Tx. An answer leaves it as it was, and it can go on.
func (s *Store) insideOwn(own *ownTx, partly bool, f func(t *tx) error) (err error) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.failed != nil {
		return own.failed
	}
	bare := false // SQLite has begun no savepoint, so that nothing can be taken back
	defer func() {
		if bare || !errors.Is(err, storage.ErrNotFound) && (!partly || !isAnswer(err)) {
			own.failed = err
		}
	}()
	if err := s.stillOpen(); err != nil {
		return err
	}
	s.app.changed = false
	t := &tx{execer: s.app, store: s, stmts: s.app, ledger: newLedger()}
	err = s.app.hold(func() error {
		if partly {
			_, err := s.app.exec(sqlSavepoint)
			if bare = isCode(err, lib.SQLITE_BUSY); !bare && err != nil {
				return err
			}
		}
		err := t.callInTx(f)
		if partly && !bare {
			err = s.app.orTakenBack(err)
		}
		return err
	})
	own.undo = append(own.undo, t.undo...)
	if err != nil {
		return err
	}
	own.used, own.after = true, append(own.after, t.after...)
	own.cancel = own.cancel || t.event != nil && t.event.Cancel
	own.stale = own.stale || s.cache.stale(t.meta.gen)
	return nil
}

// stillOpen returns an error if SQLite has ended the transaction of Tx.
func (s *Store) stillOpen() error {
	if s.ended.Load() { // or so it seems
		return inTx(s.app)
	}
	return nil
}

// readOwn runs f, which only reads, in a transaction of Tx. It needs no counters.
func (s *Store) readOwn(ctx context.Context, own *ownTx, f func(t *tx) error) error {
	own.mu.Lock()
	defer own.mu.Unlock()
	if err := cmp.Or(ctx.Err(), own.failed); err != nil {
		return err
	}
	if err := s.stillOpen(); err != nil {
		return err
	}
	return translate(s.app.hold(func() error { return f(&tx{execer: s.app, store: s}) }))
}

// orTakenBack ends the savepoint of a call, and takes back what the call has written if its
// error is an answer.
func (s *statements) orTakenBack(err error) error {
	if err != nil && !isAnswer(err) {
		return err // the whole transaction goes
	}
	if err != nil {
		if _, e := s.exec(sqlRollbackTo); e != nil {
			return e
		}
	}
	if _, e := s.exec(sqlRelease); e != nil {
		return e
	}
	return err
}

// callInTx runs a call in a transaction of Tx, from its counters to its flush.
func (t *tx) callInTx(f func(t *tx) error) error {
	if err := t.ownCounters(); err != nil {
		return err
	}
	if err := f(t); err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	t.stmts.known = t.left()
	t.stmts.known.ok = t.meta.nextJob > t.was.nextJob
	return nil
}

// ownCounters is appCounters in a transaction of Tx. What the last call there has left is
// known, also from the last transaction if nobody else has committed since. It is right
// unless the application has rolled back to a savepoint; then that call has raised the
// next key in vain. So one counter is read instead of all.
func (t *tx) ownCounters() error {
	k := &t.stmts.known
	if !k.ok {
		return t.appCounters()
	}
	k.ok = false
	var next int64
	var triggers bool
	err := t.row(sqlStillNext, nil, &next, &triggers)
	if err != nil || triggers || next != k.meta.nextJob {
		return t.appCounters() // which says what is wrong
	}
	t.meta, t.was, t.stored = k.meta, k.meta, k.stored
	maps.Copy(t.counts, k.counts)
	return nil
}

// inTx makes sure that a transaction is one. SQLite may have ended it by
// itself, which database/sql does not notice: then this statement succeeds,
// which in a transaction it cannot.
func inTx(db execer) error {
	if _, err := db.exec(sqlBeginAgain); err == nil {
		_, _ = db.exec(sqlRollback)
		return fmt.Errorf("errand: transaction: rolled back by SQLite after an error: %w", sql.ErrTxDone)
	} else if endedTx(err) {
		return fmt.Errorf("errand: transaction: %w", err)
	}
	return nil
}

func (s *Store) checkDatabase(db plain) error {
	path, err := databaseFile(db.ctx, db.db)
	if endedTx(err) {
		return fmt.Errorf("errand: transaction: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrWrongDatabase, err)
	}
	if !sameFile(path, s.path) {
		return fmt.Errorf("%w: it is on %q, this queue on %q", storage.ErrWrongDatabase, path, s.path)
	}
	if path != s.path { // a folder may have two names, a file not
		return checkNames(path, s.opts)
	}
	return nil
}

// insidePlain is inside for a transaction of the application.
func (s *Store) insidePlain(db plain, watched bool, f func(t *tx) error) error {
	if err := inTx(db); err != nil {
		return err
	}
	if err := s.checkDatabase(db); err != nil {
		return err
	}
	if _, err := db.exec(sqlSavepoint); err != nil {
		return err
	}
	err := s.locked(db, watched, f)
	if err != nil {
		_, _ = db.exec(sqlRollbackTo) // SQLite may have rolled back all of it
	}
	if _, e := db.exec(sqlRelease); err == nil {
		err = e
	}
	return err
}

// askSync is how many transactions of the application are asked for their
// connection's synchronous: the first ones, and then one of a few. The question
// takes 3 percent of an EnqueueTx, and what connection a transaction is on
// cannot be known for less.
const (
	askSyncFirst = 64
	askSyncEach  = 16
)

// checkSynced refuses a transaction whose connection syncs nothing.
func (s *Store) checkSynced(db plain) error {
	if s.opts.Durability != Full {
		return nil
	}
	if n := s.asked.Add(1); n > askSyncFirst && n%askSyncEach != 0 {
		return nil
	}
	return checkSync(db.row)
}

// appCounters reads the counters on a connection on which statements of the
// application run too, and refuses it if it has temporary triggers on errand's
// tables. Open refuses the others, see checkTriggers. A temporary table or view
// with a name of errand's does no harm, as all statements name the schema.
func (t *tx) appCounters() error {
	var id, found int
	var n int64
	triggers, dest := false, t.meta.dest()
	if err := t.store.risen(&t.meta, func() error {
		err := t.each(sqlAppMeta, nil, []any{&id, &n}, func() {
			if id < 0 {
				triggers = true
				return
			}
			setInt(dest[id], n)
			found++
		})
		if err == nil && found < len(dest) {
			err = fmt.Errorf("%w: %d of %d counters are there", storage.ErrCorrupt, found, len(dest))
		}
		return err
	}); err != nil {
		return err
	}
	t.was = t.meta
	if err := t.countRest(); err != nil {
		return err
	}
	if triggers {
		if err := checkTempTriggers(t); err != nil {
			return err
		}
	}
	return tooNew(t.meta.minWriter)
}

// checkTempTriggers is checkTriggers for those that only one connection has.
func checkTempTriggers(db asker) error {
	var name, table string
	err := db.row(sqlTempTriggers, nil, &name, &table)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: temporary trigger %q on %s, on a connection of the application: "+
		"must be dropped there, and what it does be done by a handler", storage.ErrUnsupportedDB, name, table)
}

// locked runs f with the write lock.
func (s *Store) locked(db plain, watched bool, f func(t *tx) error) error {
	t := &tx{execer: db, store: s, ledger: newLedger()}
	if _, err := t.exec(sqlTakeLock); err != nil {
		return err
	}
	if err := s.checkSynced(db); err != nil { // not before: it may have to read the schema
		return err
	}
	if err := t.appCounters(); err != nil {
		return err
	}
	first := t.meta.nextJob
	err := f(t)
	if err == nil && watched && t.meta.nextJob == first { // a key in vain, by which the commit is seen
		t.meta.nextJob++
		t.settles = true
	}
	if err == nil {
		err = t.flush()
	}
	if err == nil && watched {
		s.watchCommit(first, t.meta.nextJob, t.meta.gen)
	}
	return err
}

// CancelTx implements [storage.TxEnqueuer].
func (s *Store) CancelTx(ctx context.Context, in any, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	err = s.inside(ctx, in, false, false, func(t *tx) (err error) {
		state, err = t.cancel(ctx, t.seen(now), id, &keep)
		return err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}
