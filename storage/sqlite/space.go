package sqlite

import (
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	sqlPageCount = `PRAGMA page_count`
	sqlPageSize  = `PRAGMA page_size`
	sqlAnyRuns   = `SELECT EXISTS (SELECT 1 FROM main.errand_job WHERE state = 3)`

	// defaultBallast has room for 64 jobs that die with the longest errors and
	// stacks, once in the log and once in the database; see TestBallast in
	// package torture.
	defaultBallast = 4 << 20
	maxBallast     = 1 << 30
	// refillEvery is how often the Store tries to write the ballast again.
	refillEvery = 3 * time.Second
	// roomBlock is how many bytes must fit beside the database, or its disk is full.
	roomBlock = 64 << 10
)

// ballast is a file of real blocks beside the database that is emptied when the
// disk is full. Then requests that end work have room, and those that add work are
// refused until the ballast could be written again. All processes on the database
// share the file.
type ballast struct {
	path string
	info os.FileInfo // of the database
	size int64       // 0: there is no ballast
	log  *slog.Logger
	gone atomic.Bool // emptied, and not written again yet

	mu    sync.Mutex
	tried time.Time // when it was last tried to write the ballast
}

// fill writes the ballast, unless the file has it, and leaves margin bytes free. Where
// there is less room half of the ballast will do, as the rest has room in the database:
// spare bytes are free in it.
func (b *ballast) fill(margin, spare int64) error {
	if b.size == 0 {
		return nil
	}
	f, err := openBeside(b.path, os.O_RDWR, b.info)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < b.size {
		err = b.write(f, info.Size(), margin, spare)
	}
	return errors.Join(err, f.Close())
}

// write writes all bytes in one call, so that no process truncates the file
// halfway. The bytes are random, for file systems that compress. They are not
// synced: it is enough that the file system has allocated the blocks.
func (b *ballast) write(f *os.File, has, margin, spare int64) error {
	size := b.size
	if free, ok := freeSpace(b.path); ok && has+free-margin < size {
		if has >= b.size/2 {
			return nil // another process has found this to be enough
		}
		size = (has + free - margin) / roomBlock * roomBlock
		if size < b.size/2 || size+spare < b.size { // trying would leave no room for others meanwhile
			return fmt.Errorf("%w: %d bytes free", syscall.ENOSPC, free)
		}
	}
	block := make([]byte, size)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(block) // never fails
	_, err := f.WriteAt(block, 0)
	if err != nil {
		err = errors.Join(err, f.Truncate(0))
	}
	return err
}

// open writes the ballast when the Store opens. If the file cannot be made, there
// is no ballast.
func (b *ballast) open() {
	err := b.fill(0, 0)
	switch {
	case err == nil:
	case host.IsFull(err):
		b.gone.Store(true)
		b.log.Error("errand: the disk is full: no job can be added until there is room for the ballast", "file", b.path, "bytes", b.size)
	default:
		b.size = 0
		b.log.Warn("errand: no ballast: when the disk is full outcomes will have to wait for room", "error", err)
	}
}

// release empties the ballast.
func (b *ballast) release() {
	if b.size == 0 {
		return
	}
	if err := host.EmptyBeside(b.path, b.info); err != nil {
		b.log.Error("errand: the ballast could not be given up", "error", err)
	}
	b.mu.Lock()
	b.tried = time.Now()
	b.mu.Unlock()
	if !b.gone.Swap(true) {
		b.log.Error("errand: the disk is full: the ballast is given up so that work can be finished; no job can be added until there is room for it",
			"file", b.path, "bytes", b.size)
	}
}

// spent reports whether there is no ballast that could be given up.
func (b *ballast) spent() bool { return b.size == 0 || b.gone.Load() }

// missing reports whether the ballast is gone and cannot be written yet. If it was tried,
// the writer may try at once: it can cut the log.
func (b *ballast) missing() bool {
	if !b.gone.Load() {
		return false
	}
	if !b.due() {
		return true
	}
	if b.back(0, 0) {
		return false
	}
	b.mu.Lock()
	b.tried = time.Time{}
	b.mu.Unlock()
	return true
}

// due reports whether it is time to try to write the ballast again.
func (b *ballast) due() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.tried) < refillEvery {
		return false
	}
	b.tried = time.Now()
	return true
}

// back writes the ballast that was given up, and reports whether there was room for it
// and for the log, which needs so many bytes to be moved.
func (b *ballast) back(moves, spare int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fill(moves+logRoom+roomBlock, spare) != nil {
		return false
	}
	if b.gone.Swap(false) {
		b.log.Info("errand: there is room again: the ballast is back, jobs can be added")
	}
	return true
}

// sync takes over that another process has emptied the ballast.
func (b *ballast) sync() {
	if b.size == 0 || b.gone.Load() {
		return
	}
	if info, err := os.Lstat(b.path); err == nil && info.Size() == 0 {
		b.mu.Lock()
		b.tried = time.Now()
		b.mu.Unlock()
		b.gone.Store(true)
	}
}

// intake returns nil if a transaction of the application may add work: no damage was
// found, and the ballast is there. Only the writer can cut the log for it.
func (s *Store) intake() error {
	if err := s.damage(); err != nil {
		return err
	}
	if s.ballast.missing() {
		s.queue.tell()
		return s.ballast.errGone()
	}
	return nil
}

func (b *ballast) errGone() error {
	return fmt.Errorf("%w: the ballast %s is given up until there is room for it", storage.ErrFull, b.path)
}

// adds reports whether r adds work. What leases adds none: that jobs run is what makes
// room in the end.
func (r *request) adds() bool { return !r.ends && !r.leases }

// leasing reports whether r has work begin.
func (r *request) leasing() bool { return !r.ends && r.leases }

// begins reports whether r adds work, or has work begin.
func (r *request) begins() bool { return !r.ends }

// refuse answers the requests of a batch for which is returns true with err, and
// returns the others.
func refuse(batch []*request, err error, is func(*request) bool) []*request {
	left := batch[:0]
	for _, r := range batch {
		if is(r) {
			r.answer(err)
		} else {
			left = append(left, r)
		}
	}
	return left
}

// admit returns the requests of a batch that may run. In a damaged file no work may be
// added or begin; while the ballast is missing none may be added.
func (w *writer) admit(batch []*request) []*request {
	if !slices.ContainsFunc(batch, (*request).begins) {
		return batch
	}
	if w.others() {
		w.ballast.sync()
	}
	if err := w.damage(); err != nil {
		return refuse(batch, err, (*request).begins)
	}
	if w.refill(); w.ballast.gone.Load() {
		return refuse(batch, w.ballast.errGone(), (*request).adds)
	}
	return batch
}

// refill writes the ballast if it was given up and there may be room again.
func (w *writer) refill() {
	if w.ballast.gone.Load() && w.ballast.due() {
		w.restore()
	}
}

// restore gives the room of the log back to the disk, and writes the ballast if that is
// enough.
func (w *writer) restore() {
	w.log.cut(0)
	r, _, _ := w.space(w.stmts) // without it no page counts as free
	w.ballast.back(2*r.grows, r.spare)
}

// retryWithoutRoom returns the requests of a batch to try again after there was no
// room for it, and those to try by themselves after that. All others are answered with err. The
// batch is tried, in this order:
//   - with the log moved into the database, and cut;
//   - without the requests that add work, but for steps that can be smaller;
//   - with a tenth of a step, if it is a single request: so it is tried a few times only;
//   - with the room of the ballast for those that lease, if no job runs: then the
//     ballast has nobody to keep its room for, and nothing else would make any;
//   - with the room of the ballast for those that end work;
//   - in two halves.
func (w *writer) retryWithoutRoom(batch []*request, err error, tried *tries) (again, rest []*request) {
	if !tried.cut {
		tried.cut = true
		limit := int64(logRoom)
		if w.ballast.spent() || !slices.ContainsFunc(batch, (*request).begins) {
			limit = 0
		}
		if w.log.cut(limit) {
			return batch, nil
		}
	}
	n := len(batch)
	left := refuse(batch, err, func(r *request) bool { return r.adds() && r.step <= 1 })
	if len(left) < n || len(left) == 0 {
		return left, nil
	}
	if n == 1 && left[0].step > 1 {
		left[0].step = max(left[0].step/10, 1)
		return left, nil
	}
	adds, leases := slices.ContainsFunc(left, (*request).adds), slices.ContainsFunc(left, (*request).leasing)
	if !tried.ballast && !adds && (!leases || w.nothingRuns()) {
		tried.ballast = true
		w.ballast.release()
		w.log.cut(0)
		return left, nil
	}
	if n > 1 {
		return left[: n/2 : n/2], left[n/2:]
	}
	return refuse(left, err, func(*request) bool { return true }), nil
}

// tries is what was done to make room for a batch.
type tries struct{ cut, ballast bool }

// nothingRuns reports whether no job is leased, and the ballast could make room.
func (w *writer) nothingRuns() bool {
	runs := true
	err := w.stmts.row(sqlAnyRuns, nil, &runs)
	return err == nil && !runs && !w.ballast.spent()
}

// cramped reports whether a Store could not be opened because the disk is full,
// and there is a ballast to empty.
func cramped(path string, err error) bool {
	if !errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrIO) {
		return false
	}
	info, e := os.Lstat(ballastPath(path))
	free, ok := freeSpace(path)
	return e == nil && info.Size() > 0 && (errors.Is(err, storage.ErrFull) || !ok || free < info.Size())
}

func ballastPath(db string) string { return db + "-ballast" }

// asFull puts [storage.ErrFull] before the error of a write for which there was
// no room. SQLite says so for ENOSPC only. When a quota is used up, or a file as
// long as one can be, SQLite returns the code of a broken disk; so asFull tries to
// write a file beside the database.
//
// asFull is about errors of writes alone. Their transaction is taken back, as on a
// full disk: SQLite ignores frames without a commit record. After an error of fsync,
// or of the index of the log, the transaction may be on the disk.
func (s *Store) asFull(err error) error {
	var e *driver.Error
	if !errors.As(err, &e) || e.Code() != lib.SQLITE_IOERR_WRITE || errors.Is(err, storage.ErrFull) {
		return err
	}
	switch cause := s.tryRoom(); {
	case host.IsTooLong(cause):
		return fmt.Errorf("%w: %w: %w: a limit is reached of how long a file may be: of the file system, or of this process (ulimit -f, LimitFSIZE=)", storage.ErrFull, err, cause)
	case host.IsFull(cause):
		return fmt.Errorf("%w: %w: %w", storage.ErrFull, err, cause)
	case errors.Is(cause, syscall.EROFS):
		return fmt.Errorf("%w: %w", err, cause) // which says more than the code of a broken disk
	}
	return err
}

// tryRoom writes a block to a file beside the database, and makes the file one block
// longer than the database and its log.
func (s *Store) tryRoom() error {
	path := s.path + roomEnd
	f, err := openBeside(path, os.O_RDWR, s.info)
	if err != nil {
		return err
	}
	block := make([]byte, roomBlock)
	_, _ = crand.Read(block) // for file systems that compress; never fails
	if _, err = f.WriteAt(block, 0); err == nil {
		longest := int64(0)
		for _, name := range []string{s.path, s.path + "-wal"} {
			if info, err := os.Stat(name); err == nil {
				longest = max(longest, info.Size())
			}
		}
		err = f.Truncate(longest + roomBlock)
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}
