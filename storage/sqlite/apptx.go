package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	// commitEvery is how often the commit of an EnqueueTx is looked for, during the
	// first minute.
	commitEvery = 20 * time.Millisecond
	commitOften = time.Minute
)

// ownTx is a transaction that Tx has begun. There is one at a time.
type ownTx struct {
	tx  *sql.Tx
	ctx context.Context // with which Tx was called

	mu     sync.Mutex
	used   bool            // by a call such as EnqueueTx: workers are to know when it has committed
	cancel bool            // a running job was asked to stop
	ends   bool            // it ends a job, or keeps where that has got to
	stale  bool            // the cache is of another generation
	lanes  map[int64]int64 // of these jobs, by key, as far as the disk was nearly full
	last   []func()        // run before the commit, when nothing else can be called
	after  []func()        // run after the commit
	undo   []func()        // run after a rollback
	failed error           // of one, after which there is no way but back
}

// appTxs are the transactions of the application.
type appTxs struct {
	app   *statements           // the connection of Tx; set once, with the turn
	ended atomic.Bool           // the transaction that Tx has begun is over, or may be
	own   atomic.Pointer[ownTx] // the one that Tx has open
	told  time.Time             // the writer of what Tx has committed; guarded by the turn
	asked atomic.Uint64         // EnqueueTx and CancelTx, for checkSynced
}

// tellEach is how often the writer is told that Tx has committed, so that it
// looks after the log.
const tellEach = 10 * time.Millisecond

// Tx implements [storage.TxEnqueuer]; fn gets a *sql.Tx. The transaction begins IMMEDIATE on a connection of
// its own and takes its turn with the writer, which waits meanwhile: fn should be short.
// Any call that writes, except EnqueueTx and CancelTx, would wait for fn: called by fn it
// returns [storage.ErrBusy] at once. fn must not call Close. If the database fails in
// EnqueueTx or CancelTx, the transaction is not committed, even if fn returns nil.
//
// The connection is in SQLite's defensive mode. It has the settings foreign_keys,
// recursive_triggers and trusted_schema of the database that New was given; with
// Open the first two are SQLite's defaults, and trusted_schema is off.
func (s *Store) Tx(ctx context.Context, fn func(tx any) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	said := false // err is that of fn
	defer func() {
		if !said {
			err = s.ours(err)
		}
	}()
	if err := s.enter(); err != nil { // so that Close waits for fn
		return err
	}
	defer s.leave()
	if err := errors.Join(s.usable(), s.writable(), s.notInTx(1)); err != nil {
		return err
	}
	if err := s.takeTurn(ctx, &s.app); err != nil {
		return err
	}
	grown := false
	defer func() {
		s.giveTurn()
		if grown {
			s.queue.lookAfterLog()
		}
	}()
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
	s.endGap(app)
	s.ended.Store(!app.hooked)
	app.recheck()
	own := &ownTx{tx: tx, ctx: ctx}
	openTxs.Add(1)
	s.own.Store(own)
	defer func() {
		s.own.Store(nil)
		openTxs.Add(-1)
	}()
	finished := false
	defer func() {
		if !finished { // fn gave an error or panicked
			_ = own.end()
			app.known.ok = false
			if errors.Is(err, storage.ErrFull) {
				s.marks.cut.Store(true) // so that there is room for the next one
				grown = true
			}
			if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
				err = errors.Join(err, translate(e))
			} else if e == nil {
				for _, f := range own.undo {
					f()
				}
			}
		}
	}()
	if err := s.watched(tx, fn); err != nil {
		said = true
		return s.oursOf(s.outOfRoom(own, err))
	}
	if err := errors.Join(ctx.Err(), own.end()); err != nil {
		return err
	}
	if err := s.look(); err != nil { // as fn may have taken long
		return err
	}
	own.look(app)
	now := time.Now()
	if err := s.mayCommit(own, app, now); err != nil {
		return err
	}
	finished = true
	left := app.known
	app.known.ok = false
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) {
			return fmt.Errorf("errand: transaction: ended by the function that it was given to: %w", err)
		}
		return s.outOfRoom(own, s.commitFailed(err))
	}
	if left.ok {
		app.remember(left)
	}
	for _, f := range own.after {
		f()
	}
	if own.stale {
		_, _ = s.refresh(ctx) // else each transaction reads what is new, until the writer does
	}
	if own.used {
		s.listeners.notify(storage.Event{Cancel: own.cancel})
		s.wake.others()
	}
	if now.Sub(s.told) >= tellEach || s.marks.low.Load() {
		s.told, grown = now, true
	}
	return nil
}

// slowTx is after which time it is logged that a function keeps all others from writing.
const slowTx = time.Second

// watched calls the function of Tx, and logs that it takes long. Heartbeats cannot be
// written meanwhile; workers keep their leases by signs of life, see [storage.Pulser].
func (s *Store) watched(tx *sql.Tx, fn func(tx any) error) error {
	began := time.Now()
	slow := time.AfterFunc(slowTx, func() {
		s.opts.Logger.Warn("errand: the function of Tx has not returned for 1 s, nobody else can write to the file meanwhile")
	})
	defer func() {
		if !slow.Stop() {
			s.opts.Logger.Info("errand: the function of Tx has returned, others can write again", "took_s", time.Since(began).Seconds())
		}
	}()
	return fn(tx)
}

// outOfRoom makes the error of a statement of the application for which there was no room
// [storage.ErrFull]. The next try of what ends a job has the room of the ballast, if it was this
// Store that lacked room.
func (s *Store) outOfRoom(own *ownTx, err error) error {
	if err = s.asFull(err); isCode(err, lib.SQLITE_FULL) {
		err = translate(err)
	}
	if own.ends && errors.Is(err, storage.ErrFull) && s.lacksRoom(err) {
		s.ballast.release()
	}
	return err
}

// lacksRoom reports whether an [storage.ErrFull] that the function of a Tx has returned is of a
// statement of the application for which the disk of this Store has no room. What a call of a Store
// has returned is none: what ends work has tried the ballast, and what adds work has no right to it. An error of the driver may also be of another database: it is taken for one
// of this Store where room is low, as many pages may find none where one does.
func (s *Store) lacksRoom(err error) bool {
	known, e := new(storeError), new(driver.Error)
	if errors.As(err, &known) || !errors.As(err, &e) {
		return false
	}
	s.measure()
	return s.marks.low.Load() || host.IsFull(s.tryRoom())
}

// spoil has a transaction not commit, and reports whether it is in time for that.
func (o *ownTx) spoil(err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	over := errors.Is(o.failed, errEnding)
	o.failed = cmp.Or(o.failed, err)
	return !over
}

// errEnding is what a call in a transaction returns that is about to end.
var errEnding = fmt.Errorf("errand: %w", sql.ErrTxDone)

// end waits for an EnqueueTx or CancelTx under way, and lets no other begin. It
// returns an error if one has failed.
func (o *ownTx) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return fmt.Errorf("errand: transaction: rolled back: %w", o.failed)
	}
	o.failed = errEnding
	return nil
}

// look runs what has to see what is going to be committed. It is cheaper here than after the
// commit, where each query would be a transaction of its own.
func (o *ownTx) look(app *statements) {
	if len(o.last) == 0 {
		return
	}
	_ = app.hold(func() error { // an error is found by the commit too
		for _, f := range o.last {
			f()
		}
		return nil
	})
}

// appConn takes the connection of Tx, once, with the turn.
func (s *Store) appConn(ctx context.Context) (*statements, error) {
	if s.app == nil {
		conn, err := s.apps.Conn(ctx)
		if err != nil {
			return nil, err
		}
		s.app = newStatements(conn)
		s.app.hook(func() { s.ended.Store(true) })
	}
	return s.app, nil
}

// errInTx is what a call returns that would wait for its own caller.
var errInTx error = calledInTx{}

// calledInTx is a [storage.ErrBusy] that knows better than to ask for an open
// transaction.
type calledInTx struct{}

func (calledInTx) Error() string {
	return "errand: called inside the function of Tx, whose end it would wait for: use the method that takes its transaction, such as EnqueueTx or PublishTx"
}

func (calledInTx) Is(target error) bool { return target == storage.ErrBusy }

// openTxs is how many transactions of Tx are open in this process.
var openTxs atomic.Int32

// notInTx returns an error to the function of a Tx that is open. While a Tx of
// another Store is open too it cannot know whose function it was called by, and
// returns nil: the call waits then, and ends with [storage.ErrBusy] all the same.
// frames is how many calls of Tx are among the callers anyway: one in Tx itself.
func (s *Store) notInTx(frames int) error {
	own := s.own.Load()
	if own == nil || openTxs.Load() != 1 || s.own.Load() != own || callsOfTx() <= frames {
		return nil
	}
	return errInTx
}

// txName is the name of [Store.Tx] in a stack. It is set here, as the value of a
// variable that Tx itself reads cannot depend on Tx.
var txName string

func init() { txName = runtime.FuncForPC(reflect.ValueOf((*Store).Tx).Pointer()).Name() }

// callsOfTx returns how many calls of Tx, of any Store, are among the callers. To
// look for them here is cheaper than to have each Tx find out on which goroutine
// it runs, which takes 30 microseconds.
func callsOfTx() (found int) {
	var pcs [32]uintptr
	for skip, n := 2, len(pcs); n == len(pcs); skip += n {
		n = runtime.Callers(skip, pcs[:])
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			if f, more = frames.Next(); f.Function == txName {
				found++
			}
		}
	}
	return found
}

// commitWatch notifies the workers of commits of the application. SQLite tells
// nobody of a commit on another connection, so while a transaction of the
// application may have enqueued jobs the counter of keys is read again and again.
type commitWatch struct {
	mu     sync.Mutex
	active bool // a goroutine reads the counter

	// The range of keys taken by open transactions. If next_job is above lo, one
	// has committed; if it is hi, all have.
	lo, hi int64
	// before is how many write transactions of the Store had begun when the last of
	// the keys were taken. The transaction that took them holds the write lock, so once
	// another one could begin it has ended.
	before int64
	stale  bool // the cache is of another generation
}

// watchCommit has the workers notified once the transaction that took the
// keys from lo up to hi, and left this generation, has committed.
func (s *Store) watchCommit(lo, hi, generation int64) {
	c := &s.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hi, c.before = hi, s.turn.transactions.Load()
	c.stale = c.stale || s.cache.stale(generation)
	if c.active {
		c.lo = min(c.lo, lo)
		return
	}
	c.lo, c.active = lo, true
	s.joined.Go(s.watchCommits) // the caller is in a call that Close waits for
}

func (s *Store) watchCommits() {
	began := time.Now()
	timer := time.NewTimer(commitEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.stop:
			return
		}
		committed, over := s.checkCommits()
		if committed {
			s.listeners.notify(storage.Event{})
			s.wake.others()
			began = time.Now()
		}
		if over {
			return
		}
		if time.Since(began) < commitOften {
			timer.Reset(commitEvery)
			continue
		}
		// The transaction stays open for long, or was rolled back while nobody else
		// writes. A transaction of the Store that begins, and writes nothing, decides.
		_ = s.submit(context.Background(), &request{ends: true, run: func(*tx) error { return nil }})
		timer.Reset(wakeEvery)
	}
}

// checkCommits reports whether a transaction has committed, and whether all have
// ended.
func (s *Store) checkCommits() (committed, over bool) {
	c := &s.commits
	transactions := s.turn.transactions.Load() // before the counter is read
	var next int64
	err := plain{context.Background(), s.inner.DB}.row(sqlNextJob, nil, &next)
	c.mu.Lock()
	if err == nil && next > c.lo {
		committed, c.lo = true, next
	}
	if over = err == nil && next >= c.hi || transactions > c.before; over {
		committed, c.active = true, false // or rolled back: to say so once too often is harmless
	}
	stale := over && c.stale
	c.stale = c.stale && !over
	c.mu.Unlock()
	if stale {
		_, _ = s.refresh(context.Background()) // as after a Tx
	}
	return committed, over
}
