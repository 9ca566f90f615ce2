package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlNextJob = `SELECT n FROM errand_number WHERE id = 1`

	// lookEvery is the pace of looking for the commit of an EnqueueTx.
	lookEvery = 20 * time.Millisecond
	// lookLong is for how long that pace is kept up.
	lookLong = time.Minute
)

// ownTx is a transaction that Tx has begun. There is one at a time.
type ownTx struct {
	tx *sql.Tx
	by int64 // the goroutine that runs its function

	mu     sync.Mutex
	meta   meta  // the counters as the last EnqueueTx or CancelTx left them
	used   bool  // there was one: workers are to know when it has committed
	raised bool  // it has inserted a job
	cancel bool  // a running job was asked to stop
	failed error // of one, after which there is no way but back
}

// tellEach is how often the writer is told that Tx has committed, so that it
// looks after the log.
const tellEach = 10 * time.Millisecond

// Tx implements [storage.TxEnqueuer]. The transaction begins IMMEDIATE on a
// connection of its own and takes its turn with the writer, which waits
// meanwhile: fn should be short. Whatever writes, but for EnqueueTx and CancelTx,
// would wait for fn: called by fn it gives [storage.ErrBusy] at once. Close must not
// be called. After an error of the database in EnqueueTx or CancelTx the transaction is
// not committed, even if fn returns nil.
//
// The connection is in SQLite's defensive mode. It has the settings foreign_keys,
// recursive_triggers and trusted_schema of the database that New was given; with
// Open the first two are SQLite's defaults, and trusted_schema is off.
func (s *Store) Tx(ctx context.Context, fn func(tx *sql.Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enter(); err != nil { // so that Close waits for fn
		return err
	}
	defer s.leave()
	if err := errors.Join(s.usable(), s.notInTx()); err != nil {
		return err
	}
	if err := s.takeTurn(ctx, &s.app); err != nil {
		return err
	}
	defer s.giveTurn()
	app, err := s.appConn(ctx)
	if err != nil {
		return translate(err)
	}
	// With a context that can end, database/sql would roll back in the middle of
	// what EnqueueTx does on the same connection.
	tx, err := app.conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return s.blocked(err)
	}
	s.begun.Add(1)
	s.endGap(app)
	own := &ownTx{tx: tx, by: goroutineID()}
	s.own.Store(own)
	defer s.own.Store(nil)
	finished := false
	defer func() {
		if !finished { // fn gave an error or panicked
			_ = own.end()
			if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
				err = errors.Join(err, translate(e))
			}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := errors.Join(ctx.Err(), own.end()); err != nil {
		return err
	}
	finished = true
	sure := own.unchanged(app)
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) {
			return fmt.Errorf("errand: transaction: ended by the function that it was given to: %w", err)
		}
		return s.commitFailed(err)
	}
	if own.used {
		if sure {
			app.remember(own.meta)
		}
		s.bells.ring(storage.Event{Cancel: own.cancel})
		s.watch.wakeOthers()
	}
	if now := time.Now(); now.Sub(s.told) >= tellEach {
		s.told = now
		select {
		case s.written <- struct{}{}:
		default:
		}
	}
	return nil
}

// unchanged tells whether the counters are as they were left, for
// the application may have gone back to a savepoint. Only a job that is inserted
// creates a lane, and it raises the key.
func (o *ownTx) unchanged(app *statements) bool {
	var next int64
	return o.raised && app.row(sqlNextJob, nil, &next) == nil && next == o.meta.nextJob
}

// end waits for an EnqueueTx that is under way, lets no other one begin, and
// tells whether one failed.
func (o *ownTx) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return fmt.Errorf("errand: transaction: rolled back, as EnqueueTx or CancelTx failed in it: %w", o.failed)
	}
	o.failed = sql.ErrTxDone
	return nil
}

// appConn takes the connection of Tx, once, with the turn.
func (s *Store) appConn(ctx context.Context) (*statements, error) {
	if s.app == nil {
		conn, err := s.apps.Conn(ctx)
		if err != nil {
			return nil, err
		}
		s.app = newStatements(conn)
	}
	return s.app, nil
}

// errInTx is what a call returns that would wait for its own caller.
var errInTx error = calledInTx{}

// calledInTx is a [storage.ErrBusy] that knows better than to ask for an open
// transaction.
type calledInTx struct{}

func (calledInTx) Error() string {
	return "errand: called inside the function of Tx, whose end it would wait for: use EnqueueTx or CancelTx with its transaction"
}

func (calledInTx) Is(target error) bool { return target == storage.ErrBusy }

// notInTx gives an error to the function of a Tx that is open.
func (s *Store) notInTx() error {
	if own := s.own.Load(); own != nil && own.by == goroutineID() {
		return errInTx
	}
	return nil
}

// goroutineID gives the number of the calling goroutine, from the header of its
// stack: "goroutine 18 [running]:". That takes a microsecond.
func goroutineID() (id int64) {
	var b [64]byte
	const prefix = "goroutine "
	for _, c := range b[len(prefix):max(len(prefix), runtime.Stack(b[:], false))] {
		if c < '0' || c > '9' {
			break
		}
		id = 10*id + int64(c-'0')
	}
	return id
}

// lookout waits for transactions of the application that have enqueued jobs:
// SQLite tells nobody of a commit, so it must be looked for.
type lookout struct {
	mu     sync.Mutex
	active bool
	lo, hi int64 // keys taken and not yet seen committed: the counter is to pass lo, and in the end reach hi
	begun  int64 // write transactions begun when the last of them was taken
}

// lookFor has workers told once the transaction that took the keys from lo up
// to hi has committed. That is seen by the counter. That it has ended, one way
// or the other, is also seen by a write transaction of ours that could begin,
// for the other held the write lock.
func (s *Store) lookFor(lo, hi int64) {
	l := &s.pending
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hi, l.begun = hi, s.begun.Load()
	if l.active {
		l.lo = min(l.lo, lo)
		return
	}
	l.lo, l.active = lo, true
	s.joined.Go(s.lookOut) // the caller is in a call that Close waits for
}

func (s *Store) lookOut() {
	began := time.Now()
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.stop:
			return
		}
		found, over := s.look()
		if found {
			s.bells.ring(storage.Event{})
			s.watch.wakeOthers()
			began = time.Now()
		}
		if over {
			return
		}
		if time.Since(began) < lookLong {
			timer.Reset(lookEvery)
			continue
		}
		// A transaction that stays open for long, or was rolled back while
		// nobody else writes. One that begins and writes nothing tells.
		_ = s.submit(context.Background(), &request{ends: true, run: func(*tx) error { return nil }})
		timer.Reset(watchEvery)
	}
}

// look tells whether something was committed that was looked for, and whether
// nothing is left to look for.
func (s *Store) look() (found, over bool) {
	l := &s.pending
	begun := s.begun.Load() // before the counter is read
	var next int64
	err := reader{context.Background(), s.inner.DB}.row(sqlNextJob, nil, &next)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && next > l.lo {
		found, l.lo = true, next
	}
	if over = err == nil && next >= l.hi || begun > l.begun; over {
		found, l.active = true, false
	}
	return found, over
}
