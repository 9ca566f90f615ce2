package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
)

const (
	// The counters are raised before anything is read: a deferred transaction
	// that began by reading could not write any more once another has
	// committed (SQLITE_BUSY_SNAPSHOT).
	sqlReserve    = `UPDATE errand_number SET n = n + ?1 WHERE id = 1`
	sqlBeginAgain = `BEGIN`
	sqlSavepoint  = `SAVEPOINT errand`
	sqlRollbackTo = `ROLLBACK TO errand`
	sqlRelease    = `RELEASE errand`
)

// inside runs f in a transaction of the application, or in one that Tx has
// begun. So many keys of jobs are reserved for f.
func (s *Store) inside(ctx context.Context, in *sql.Tx, keys int, f func(t *tx) error) error {
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
	var err error
	if own := s.own.Load(); own != nil && own.tx == in {
		err = s.insideOwn(own, f)
	} else {
		// A statement that is interrupted may take the whole transaction with it.
		err = s.insidePlain(plain{context.WithoutCancel(ctx), in}, keys, f)
	}
	if endedTx(err) {
		return ended(ctx, err) // the transaction's context may be the same
	}
	var e *driver.Error
	if errors.As(err, &e) && e.Code() == lib.SQLITE_BUSY_SNAPSHOT {
		return fmt.Errorf("%w: the transaction began by reading, and somebody has written since: "+
			"begin it with _txlock=immediate in the DSN, or use Tx: %w", storage.ErrBusy, err)
	}
	return translate(s.asFull(err))
}

// insideOwn is inside for a transaction of Tx.
func (s *Store) insideOwn(own *ownTx, f func(t *tx) error) (err error) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.failed != nil {
		return own.failed
	}
	defer func() {
		if !errors.Is(err, storage.ErrNotFound) { // which is an answer
			own.failed = err
		}
	}()
	if err := inTx(s.app); err != nil {
		return err
	}
	t := &tx{execer: s.app, store: s, stmts: s.app, ledger: newLedger()}
	if _, err := t.counters(); err != nil {
		return err
	}
	if err := f(t); err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	own.used, own.after = true, append(own.after, t.after...)
	own.cancel = own.cancel || t.event != nil && t.event.Cancel
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
func (s *Store) insidePlain(db plain, keys int, f func(t *tx) error) error {
	if err := inTx(db); err != nil {
		return err
	}
	if err := s.checkDatabase(db); err != nil {
		return err
	}
	if _, err := db.exec(sqlSavepoint); err != nil {
		return err
	}
	err := s.reserved(db, keys, f)
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

// reserved runs f with keys of its own.
func (s *Store) reserved(db plain, keys int, f func(t *tx) error) error {
	t := &tx{execer: db, store: s, ledger: newLedger()}
	if _, err := t.exec(sqlReserve, keys); err != nil {
		return err
	}
	if err := s.checkSynced(db); err != nil { // not before: it may have to read the schema
		return err
	}
	m := &t.meta
	err := s.readMeta(t, m)
	if err == nil {
		err = tooNew(m.minWriter)
	}
	if err != nil {
		return err
	}
	end := m.nextJob
	first := end - int64(keys)
	t.was = *m
	m.nextJob = first
	err = f(t)
	m.nextJob = end
	if err == nil {
		err = t.flush()
	}
	if err == nil && keys > 0 {
		s.watchCommit(first, end)
	}
	return err
}

// CancelTx implements [storage.TxEnqueuer].
func (s *Store) CancelTx(ctx context.Context, in *sql.Tx, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	err = s.inside(ctx, in, 0, func(t *tx) (err error) {
		state, err = t.cancel(t.seen(now), id, &keep)
		return err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}
