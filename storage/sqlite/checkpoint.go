package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
)

const (
	sqlLogLength  = `PRAGMA wal_checkpoint(NOOP)`
	sqlCheckpoint = `PRAGMA wal_checkpoint(PASSIVE)`
	// RESTART waits until nobody reads what is in the log, and TRUNCATE would make
	// the file system find room for it again: it is for a disk that is full.
	sqlRestart  = `PRAGMA wal_checkpoint(RESTART)`
	sqlTruncate = `PRAGMA wal_checkpoint(TRUNCATE)`

	// checkpointAt is how many pages in the log are worth a checkpoint, between two
	// transactions.
	checkpointAt = 4000
	// lowAt is how many pages are worth one while the disk is nearly full. Pages in
	// the log may need as much room again in the database, for which the ballast must
	// suffice.
	lowAt = 100
	// checkpointIdle is the pause of the writer after which pages are moved, if there
	// are idleAt. To move the few of each commit of a device that writes now and then
	// would double what it writes: mostly they are the same. Under Relaxed all are
	// moved, since that also syncs the log.
	checkpointIdle = time.Second
	idleAt         = 256
	// restartAt is how many pages in the log are worth a pause of all writers.
	// Readers that overlap keep each checkpoint from reaching the end of the log,
	// however short they are. Only while nobody writes do all of them come to read
	// the same moment, and then no longer from the log.
	restartAt = checkpointAt + checkpointAt/4
	// lowRestartAt is the same while the disk is nearly full: what the log takes is room
	// that the database and outcomes lack.
	lowRestartAt = 4 * lowAt
	// restartWait is how long the writers pause for readers, and longWait how long
	// once the log has more than warnAt pages.
	restartWait = 150 * time.Millisecond
	longWait    = time.Second
	restartPoll = 5 * time.Millisecond
	// restartPause is the time to the next try after one that failed; it doubles up
	// to longPause.
	restartPause = time.Second
	longPause    = 30 * time.Second
	// lowPause is the same while the disk is nearly full: writers work for most of the time.
	lowPause = 4 * restartWait
	// warnAt is how many pages in the log are more than there should ever be.
	warnAt = 4 * checkpointAt
	// logLimit is to how many bytes the file of a longer log is cut.
	logLimit = 64 << 20
)

// checkpointer moves the pages of the write-ahead log into the database. SQLite
// would do so by itself, in the middle of a commit, and ignore errors: after a
// failed fsync it would try again, succeed without having written, and discard the
// log. Here no commit waits for a checkpoint, and an error of the disk ends the
// Store as that of a commit does.
type checkpointer struct {
	*Store
	db     *statements
	waits  time.Duration // for locks, see patience
	length int           // of the log, as last read
	left   int           // pages of it that the database may not have, as last read
	next   int           // length of the log that is worth another try
	warned bool          // the log was logged as too long

	again time.Time     // when the next restart may be tried
	pause time.Duration // after the next restart that fails
	moved int           // pages that the last checkpoint had moved

	full bool // the last checkpoint found no room
}

// often returns how many pages are worth a checkpoint.
func (c *checkpointer) often() int {
	if c.marks.low.Load() {
		return lowAt
	}
	return checkpointAt
}

// whenIdle returns how many pages are worth a checkpoint while nobody writes.
func (c *checkpointer) whenIdle() int {
	if c.marks.low.Load() || c.opts.Durability == Relaxed {
		return 1
	}
	return idleAt
}

// restartsAt returns how many pages in the log are worth a pause of all writers.
func (c *checkpointer) restartsAt() int {
	if c.marks.low.Load() {
		return lowRestartAt
	}
	return restartAt
}

// runIfDue does a checkpoint if the log is long enough. Asking for its length takes
// as long as a statement, so that is done only after enough statements: each changes
// some pages, most of which others have changed too.
func (c *checkpointer) runIfDue() {
	if c.due() {
		c.run(c.often())
	}
}

// due reports whether the log may be long enough.
func (c *checkpointer) due() bool { return c.db.wrote >= c.often()/8 || c.marks.cut.Load() }

// run does a checkpoint if at least so many pages are not moved yet. If jobs wait for
// the room of the log, it gives that back.
func (c *checkpointer) run(pages int) {
	if err := c.look(); err != nil { // the database may be another one's by now
		return
	}
	if c.marks.cut.Load() {
		c.cut(0)
		return
	}
	var busy, length, moved int
	c.db.wrote = 0
	c.measure() // others may do the checkpoints
	if c.usable() != nil || c.db.row(sqlLogLength, nil, &busy, &length, &moved) != nil {
		return
	}
	c.left = length - moved
	long := length >= c.restartsAt()
	if moved == length || length-moved < pages && !long {
		return
	}
	if length < c.length {
		c.next = 0 // begun anew
	}
	c.length = length
	if pages > 1 && length < c.next {
		return // the last one could not finish, and this one could not either
	}
	if pages > 1 || long {
		// While others write it would never come to the end of the log.
		if c.turn.take(context.Background(), c.opts.BusyTimeout) != nil {
			return
		}
		defer c.turn.give()
	}
	if !c.fits() {
		c.measure()
		return
	}
	err := c.db.row(sqlCheckpoint, nil, &busy, &length, &moved)
	if err == nil && long && (moved < length || c.marks.low.Load()) {
		moved, err = c.restart(length, moved)
	}
	c.measure()
	if err != nil {
		c.failed(err)
		return
	}
	c.full = false
	c.left = length - moved
	c.next = 0
	if moved < length { // a reader needs the rest, or another process does a checkpoint
		c.next = length + max(pages, lowAt)/4
	}
	if grows := moved < length && length >= warnAt; grows != c.warned {
		c.warned = grows
		if grows {
			c.opts.Logger.Warn("errand: the write-ahead log grows: "+c.reason(moved), "pages", length)
		}
	}
	c.moved = moved
}

// failed takes the error of a checkpoint.
func (c *checkpointer) failed(err error) {
	err = translate(c.asFull(err))
	switch full := errors.Is(err, storage.ErrFull); {
	case isCode(err, lib.SQLITE_IOERR) && !full:
		c.fail(err, "checkpoint")
	case !full || !c.full:
		c.full = full
		c.opts.Logger.Error("errand: the write-ahead log could not be moved into the database", "error", err)
	}
}

// makeRoom moves the log into the database, if the database has room for it, so
// that the next commit begins the log anew.
func (c *checkpointer) makeRoom() {
	c.next = 0
	c.run(1)
}

// cut moves the log into the database, and then gives the room of a log of more than
// limit bytes back to the disk, unless somebody reads or writes. It reports whether
// there can be more room than before.
func (c *checkpointer) cut(limit int64) bool {
	c.marks.cut.Store(false)
	var busy, length, was, moved int
	if c.usable() != nil || c.db.row(sqlLogLength, nil, &busy, &length, &was) != nil {
		return false
	}
	c.makeRoom()
	info, err := os.Stat(c.path + "-wal")
	if err != nil || info.Size() <= limit || c.usable() != nil || !c.fits() {
		return c.db.row(sqlLogLength, nil, &busy, &length, &moved) == nil && moved > was
	}
	if c.turn.take(context.Background(), c.opts.BusyTimeout) != nil {
		return false
	}
	defer c.turn.give()
	waits := c.waits
	if err = c.patience(0); err == nil {
		err = c.db.row(sqlTruncate, nil, &busy, &length, &moved)
	}
	if e := c.patience(waits); err == nil {
		err = e
	}
	c.measure()
	if err != nil && !isCode(err, lib.SQLITE_BUSY) {
		c.failed(err)
	}
	return err == nil && busy == 0
}

// reason returns, for the log, why the log cannot be emptied.
func (c *checkpointer) reason(moved int) string {
	if moved > c.moved {
		return "reads that overlap, each of them long, keep it from being emptied"
	}
	return "somebody has been reading for long, and keeps it from being emptied"
}

// restart makes all writers wait until all readers read the end of the log, so that
// the next commit begins the log anew. It waits only as long as short readers take,
// and after a failure is not tried again for a while. The caller has the turn.
// SQLite's own waiting would not do: it waits for a slot among the readers, and the
// next reader may take that slot, though it reads the end.
func (c *checkpointer) restart(length, moved int) (int, error) {
	now := time.Now()
	if now.Before(c.again) {
		return moved, nil
	}
	wait := restartWait
	if length >= warnAt && !c.marks.low.Load() {
		wait = longWait
	}
	waits := c.waits
	busy, err := 1, c.patience(0)
	for err == nil && busy != 0 && time.Since(now) < wait {
		if err = c.db.row(sqlRestart, nil, &busy, &length, &moved); isCode(err, lib.SQLITE_BUSY) {
			err = nil // another program writes, or does a checkpoint
		}
		if busy != 0 && err == nil {
			time.Sleep(restartPoll)
		}
	}
	if e := c.patience(waits); err == nil {
		err = e
	}
	if busy == 0 {
		c.again, c.pause = time.Time{}, 0
		return length, err
	}
	c.pause = min(max(2*c.pause, restartPause), longPause)
	if c.marks.low.Load() {
		c.pause = lowPause // the log takes the room that jobs need to end
	}
	c.again = time.Now().Add(c.pause)
	return min(moved, length-1), err
}

// patience sets how long the writer's connection waits for locks.
func (c *checkpointer) patience(d time.Duration) error {
	if d == c.waits {
		return nil
	}
	err := c.db.plain(fmt.Sprintf("PRAGMA busy_timeout(%d)", d.Milliseconds()))
	if err == nil {
		c.waits = d
	}
	return err
}

// checkpointAtOpen moves the log that was there into the database, if nobody else uses the
// file. After a failed fsync pages of the log may be in the memory of the system
// only, though the system calls them written. SQLite would take them over, and all
// that is appended to them would be lost with them.
func checkpointAtOpen(ctx context.Context, conn *sql.Conn) error {
	return withoutWaiting(ctx, conn, func() error {
		var busy, length, moved int
		err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &length, &moved)
		if isCode(err, lib.SQLITE_FULL) || isCode(err, lib.SQLITE_BUSY) || isCode(err, lib.SQLITE_LOCKED) {
			return nil
		}
		return err
	})
}

// tell tells the writer that the log has grown. It reports false if the writer has not
// come to look at the log since it was told last.
func (q *queue) tell() bool {
	select {
	case q.written <- struct{}{}:
		return true
	default:
		return false
	}
}

// lookAfterLog has the writer look at the log. On a busy machine others may have written
// for long before that goroutine runs. Then the caller does it, unless the writer is
// busy: the writer looks at the log after its batch. The caller must not have the turn.
func (q *queue) lookAfterLog() {
	if w := q.writer; !q.tell() && w.tryTake() {
		defer w.give()
		_ = w.stmts.hold(func() error { w.log.run(w.log.often()); return nil }) // or the connection is closed
	}
}
