package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// turn is a fair lock: it decides who writes next, first among the goroutines of
// the process, then among processes by a lock on a file. SQLite's own lock is
// enough for safety, but its waiters sleep and ask again, so the busiest process
// would win. The lock on the file may be open to a user who may not write. Then a
// writer that does not get it in time goes on without it.
type turn struct {
	mine   chan struct{} // holds a value while a goroutine has the turn
	gone   chan struct{} // that of the Store: closed when a file of it was taken away
	file   *os.File
	log    *slog.Logger
	alone  bool      // the lock on file is kept between turns
	locked bool      // the lock on file is held
	queued *queued   // of an earlier take; its system call may still wait
	vain   time.Time // until then nobody waits for the lock on file
	went   time.Time // when a writer last went on without that lock
	warned bool

	pace         pace
	transactions atomic.Int64 // write transactions that have begun
}

const (
	// vainFor is for how long nobody waits for a lock whose holder does not write.
	vainFor = time.Minute
	// reservedWait is how long to wait for a lock that its holder has reserved. The
	// process that wrote so may have been killed, and another have the lock for a turn.
	reservedWait = 200 * time.Millisecond
	// promptly is how soon a transaction begins if no other one keeps it waiting.
	promptly = 10 * time.Millisecond
)

// queued is a system call that waits for the lock on the file. It cannot be
// cancelled: a goroutine that gives up leaves it, and the next one takes it over.
type queued struct {
	state atomic.Int32
	got   chan error    // wanted: the result
	gone  chan struct{} // left: closed once the lock was given back
}

const (
	wanted = iota // a goroutine waits for got
	left          // none does
	over          // the call has returned
)

// turnEnd is the end of the name of the file.
const turnEnd = "-turn"

func newTurn(path string, db os.FileInfo, log *slog.Logger) (*turn, error) {
	f, err := openBeside(path+turnEnd, os.O_RDWR, db)
	if err != nil {
		return nil, fmt.Errorf("errand: turn file: %w", err)
	}
	return &turn{mine: make(chan struct{}, 1), file: f, log: log}, nil
}

// inUse has others know, by a lock on the file, whether this Store has the log and its index open.
// Without such locks, or on file systems that take them for those of turns, only Stores with leases
// are known to have.
func (s *Store) inUse(is bool) {
	if s.turn != nil && !s.opts.AnyFileSystem {
		_ = host.SetPresent(s.turn.file, is)
	}
}

// someUse reports whether a Store has the database open to which a turn file belongs. Without db,
// which is gone, the file may be anybody's.
func someUse(name string, db os.FileInfo) bool {
	if db == nil {
		db, _ = os.Lstat(name)
	}
	if db == nil {
		return false
	}
	f, err := openExisting(name, os.O_RDONLY, db)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it has only read
	is, err := host.SomePresent(f)
	return err == nil && is
}

// take waits for the turn, at most for limit.
func (t *turn) take(ctx context.Context, limit time.Duration) error {
	select {
	case t.mine <- struct{}{}:
	default:
		if err := t.await(ctx, limit); err != nil {
			return err
		}
	}
	if t.alone {
		return nil
	}
	err := t.lock(ctx, limit)
	if err != nil {
		<-t.mine
	}
	return err
}

// await waits for the other goroutines.
func (t *turn) await(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case t.mine <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.gone:
		return storage.ErrTakenAway
	case <-timer.C:
		return fmt.Errorf("%w: waited %v for a transaction of this process, such as a Tx that is still open", storage.ErrBusy, limit)
	}
}

// lock takes the lock on the file. If a user who may not write can keep it, lock
// waits for half of limit only, the other half being for SQLite's lock. After that,
// or if waiting is in vain, it returns nil without the lock.
func (t *turn) lock(ctx context.Context, limit time.Duration) (err error) {
	if t.locked, err = t.try(); t.locked || err != nil {
		return err
	}
	courtesy := t.openToReaders()
	switch {
	case t.reserved():
		limit = min(limit, reservedWait)
	case courtesy && time.Now().Before(t.vain):
		return nil
	case courtesy:
		limit /= 2
	}
	if t.locked, err = t.wait(ctx, limit); t.locked {
		t.release()
		return err
	}
	switch {
	case err != nil || courtesy && !t.reserved():
		return err
	case t.reserved():
		return errReserved
	}
	return fmt.Errorf("%w: waited %v for another process to write", storage.ErrBusy, limit)
}

// openToReaders reports whether a user who may not write the database can lock the
// file, for which the right to read the file is enough. Only the owner of the file
// can change that; see [host.OpenBeside]. If it returns false, a writer always waits
// for its turn: then processes of errand never write at the same time, even if
// SQLite's locks are gone.
func (t *turn) openToReaders() bool {
	info, err := t.file.Stat()
	if err != nil {
		return false
	}
	mode := info.Mode().Perm()
	return mode&0o044&^(mode<<1) != 0 // the right to read is twice that to write
}

var errReserved = fmt.Errorf("%w: a process with SingleProcess has it open", storage.ErrBusy)

// try takes the lock on the file if nobody has it. On a file system without locks
// it returns true.
func (t *turn) try() (bool, error) {
	if q := t.queued; q != nil {
		if q.state.Load() != over {
			return false, nil
		}
		<-q.gone
		t.queued = nil
	}
	return had(host.TryLock(t.file))
}

func had(ok bool, err error) (bool, error) {
	if errors.Is(err, errors.ErrUnsupported) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("errand: turn file: %w", err)
	}
	return ok, nil
}

// wait waits for the lock on the file.
func (t *turn) wait(ctx context.Context, limit time.Duration) (bool, error) {
	q := t.queued
	if q == nil || !q.state.CompareAndSwap(left, wanted) {
		if q != nil {
			<-q.gone
		}
		q = &queued{got: make(chan error, 1), gone: make(chan struct{})}
		t.queued = q
		go q.wait(t.file)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case e := <-q.got:
		t.queued = nil
		return had(true, e)
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
	}
	if !q.state.CompareAndSwap(wanted, left) { // it has come after all
		t.queued = nil
		return had(true, <-q.got)
	}
	return false, err
}

// begun is called when a write transaction has begun. If another process holds the
// lock on the file, and SQLite's lock was free at once, that process does not write,
// and nobody waits for it for a while. If SQLite's lock was not free, it may have
// ended a long transaction, and leave a gap before the next.
func (t *turn) begun() {
	if t.alone || t.locked {
		return
	}
	if now := time.Now(); now.Before(t.vain) || now.Sub(t.went) > promptly {
		return
	}
	if t.locked, _ = t.try(); t.locked {
		return
	}
	t.vain = time.Now().Add(vainFor)
	if !t.warned {
		t.warned = true
		t.log.Warn("errand: somebody has locked the file by which processes take turns, and does not write; it is not waited for any more",
			"file", t.file.Name())
	}
}

// wait waits for the lock, and drops it if no goroutine wants it any more.
func (q *queued) wait(f *os.File) {
	err := host.Lock(f)
	for {
		if q.state.CompareAndSwap(wanted, over) {
			q.got <- err
			return
		}
		if q.state.CompareAndSwap(left, over) {
			if err == nil {
				_ = host.Unlock(f) // cannot fail for a lock that is held
			}
			close(q.gone)
			return
		}
	}
}

func (t *turn) give() {
	if t.locked && !t.alone {
		_ = host.Unlock(t.file) // cannot fail for a lock that is held
		t.locked = false
	}
	<-t.mine
}

// keep reserves the lock on the file for this process until close. The size of the
// file says so to others; it takes no room on the disk.
func (t *turn) keep() error {
	if !t.locked {
		return fmt.Errorf("%w: another process has it open, or has locked %s", storage.ErrBusy, t.file.Name())
	}
	if err := t.file.Truncate(1); err != nil {
		return fmt.Errorf("errand: turn file: %w", err)
	}
	t.alone = true
	return nil
}

// reserved reports whether the holder of the lock on the file keeps it between
// turns.
func (t *turn) reserved() bool {
	info, err := t.file.Stat()
	return err == nil && info.Size() > 0
}

// release takes back the reservation of a process that was killed.
func (t *turn) release() {
	if t.locked && t.reserved() {
		_ = t.file.Truncate(0) // the next one who has to wait for the lock does it again
	}
}

// blocked returns the error of a transaction that could not begin, with the probable
// holder of the lock. The caller has the turn.
func (s *Store) blocked(err error) error {
	if !isCode(err, lib.SQLITE_BUSY) {
		return translate(err)
	}
	who := "another process, or another connection of this program"
	switch {
	case s.turn.pace.inUse != nil && s.turn.pace.inUse():
		who = "probably the application, of whose database a connection is in use"
	case !s.turn.alone && !s.turn.locked:
		who = "probably another process of errand, which has the turn"
	}
	return fmt.Errorf("%w: waited %v for %s: %w", storage.ErrBusy, s.opts.BusyTimeout, who, err)
}

// close drops the lock. If a system call still waits for the lock, the file is closed
// only when the call has returned: its number must not become that of another file.
func (t *turn) close() error {
	t.release()
	if t.queued == nil {
		return t.file.Close()
	}
	go func() {
		<-t.queued.gone
		_ = t.file.Close()
	}()
	return nil
}

// takeTurn waits for the turn to write on the connection db, and looks now and then
// whether the files are still under their names.
func (s *Store) takeTurn(ctx context.Context, db **statements) error {
	asked := time.Now()
	if err := s.turn.take(ctx, s.opts.BusyTimeout); err != nil {
		if e := s.usable(); e != nil {
			return e
		}
		return err
	}
	if err := s.leaveGap(ctx, asked, db); err != nil {
		return err
	}
	if err := s.look(); err != nil {
		s.giveTurn()
		return err
	}
	if !s.turn.locked {
		s.turn.went = time.Now()
	}
	return nil
}

// A writer outside of errand waits in SQLite's busy handler, where nobody sees it. It
// asks again after 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, and then each 100 ms.
// Between two transactions that follow each other the lock is free for some
// microseconds, which such a writer meets once in many seconds. So the Store leaves
// gaps that it cannot miss: a long one now and then, for a writer that has come to
// intervals of 100 ms. Once a gap was used, it leaves short ones so often that
// intervals of 25 ms are the longest.
const (
	longWriting = 3800 * time.Millisecond
	longGap     = 105 * time.Millisecond
	// The two together are what another writer waits for at most, beside the length
	// of a batch.
	shareWriting = 50 * time.Millisecond
	shareGap     = 30 * time.Millisecond
	// leastPause is the shortest pause of the Store that counts as a part of a gap.
	leastPause = 10 * time.Millisecond
	// shareFor is for how long short gaps are left after another writer was met.
	shareFor = 10 * time.Second
)

// pace says when the Store must leave the write lock free for a while. Its time is
// passed in. It is guarded by the turn, which is kept during a gap, so that no other
// process of errand fills the gap.
type pace struct {
	inUse func() bool   // reports whether the application uses a connection; nil if unknown
	since time.Time     // since when the Store has been writing without a long enough pause
	ended time.Time     // when the last turn ended
	met   time.Time     // when another writer last used a gap
	heed  time.Duration // how long to write before inUse is worth a gap

	open    bool  // a gap was left, and it is not known yet whether it was used
	hinted  bool  // it was left because of inUse
	version int64 // of the data, before the gap
}

// due returns how long the lock must be left free by a writer that asked for the
// turn at asked, and has it now.
func (p *pace) due(asked, now time.Time) time.Duration {
	writing, gap := longWriting, longGap
	if p.sharing(now) {
		writing, gap = shareWriting, shareGap
	}
	switch pause := asked.Sub(p.ended); {
	case pause >= longGap:
		p.since, p.heed = now, 0
	case pause >= gap:
		p.since = now
	case pause >= leastPause:
		p.since = p.since.Add(pause + pause*shareWriting/shareGap)
		if p.since.After(now) {
			p.since = now
		}
	}
	switch worked := now.Sub(p.since); {
	case worked >= writing:
		return gap
	case p.inUse != nil && worked >= max(p.heed, shareWriting) && p.inUse():
		p.hinted = true
		return shareGap
	}
	return 0
}

func (p *pace) sharing(now time.Time) bool { return now.Sub(p.met) < shareFor }

// over ends a gap. met: another writer has used it. If a gap for inUse was not used,
// the connections in use belong to readers, and inUse counts more and more seldom.
func (p *pace) over(now time.Time, met bool) {
	switch {
	case met:
		p.met, p.since, p.heed = now, now, 0
	case p.hinted:
		p.heed = min(2*max(p.heed, shareWriting), longWriting)
	default:
		p.since = now
	}
	p.open, p.hinted = false, false
}

// leaveGap leaves the lock free if a gap is due. On db, which may be nil the first
// time, endGap finds out whether another writer has used the gap. If ctx ends first,
// the turn is given when the gap is over.
func (s *Store) leaveGap(ctx context.Context, asked time.Time, db **statements) error {
	gap := s.turn.pace.due(asked, time.Now())
	if gap == 0 {
		return nil
	}
	s.turn.pace.open = true
	s.turn.pace.version = dataVersion(*db)
	timer := time.NewTimer(gap)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		s.joined.Go(func() { // the caller is in a call that Close waits for
			<-timer.C
			s.turn.pace.over(time.Now(), false)
			s.giveTurn()
		})
		return ctx.Err()
	}
}

// endGap is called when a write transaction has begun: a writer that was let in may
// have kept the lock for longer than the gap.
func (s *Store) endGap(db *statements) {
	s.turn.transactions.Add(1)
	s.turn.begun()
	if s.turn.pace.open {
		before := s.turn.pace.version
		s.turn.pace.over(time.Now(), before != 0 && dataVersion(db) != before)
	}
}

// dataVersion returns SQLite's count of the commits of other connections, 0 if it
// cannot be read.
func dataVersion(db *statements) (version int64) {
	if db == nil || db.row(sqlDataVersion, nil, &version) != nil {
		return 0
	}
	return version
}

// giveTurn ends the turn that takeTurn has taken.
func (s *Store) giveTurn() {
	now := time.Now()
	if s.turn.pace.open { // the lock could not be had after a gap
		s.turn.pace.over(now, true)
	}
	s.turn.pace.ended = now
	s.turn.give()
}

// tryTake takes what mine guards, unless another goroutine has it. The channel is no
// mutex, on which the clock of a test with fake time would not go on.
func (w *writer) tryTake() bool {
	select {
	case w.mine <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *writer) give() { <-w.mine }

// alone runs f on the connection, while no caller writes.
func (w *writer) alone(f func() error) error {
	w.mine <- struct{}{}
	defer w.give()
	return w.stmts.hold(f)
}

// withdraw returns err, unless the writer has taken the request: then what it answers. It waits
// for the end of a probe, which may write results of the call.
func (r *request) withdraw(err error) error {
	for {
		switch state := r.state.Load(); {
		case state == taken:
			return r.answered()
		case r.state.CompareAndSwap(state, withdrawn):
			if state == probing {
				err = cmp.Or(err, r.answered())
			}
			return err
		}
	}
}

// answered waits until r is answered, and returns its error.
func (r *request) answered() error { <-r.done; return r.err }

// hurries reports whether r waits for nobody who may come: it is urgent, or nobody comes any more.
func (r *request) hurries() bool { return r.urgent || r.last }
