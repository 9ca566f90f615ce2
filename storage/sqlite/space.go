package sqlite

import (
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
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

	// defaultBallast has room for 64 jobs that die with the longest errors and
	// stacks, once in the log and once in the database; see TestBallast in
	// package torture.
	defaultBallast = 4 << 20
	maxBallast     = 1 << 30
	// refillEvery is how often the Store tries to write the ballast again.
	refillEvery = 3 * time.Second
	// A disk with less free space is nearly full: a log of checkpointAt pages may
	// need its size twice, for itself and in the database, and other programs get as
	// much again.
	lowSpace = 4 * checkpointAt * 4096
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

// fill writes the ballast, unless the file has it.
func (b *ballast) fill() error {
	if b.size == 0 {
		return nil
	}
	f, err := openBeside(b.path, os.O_RDWR, b.info)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < b.size {
		err = b.write(f)
	}
	return errors.Join(err, f.Close())
}

// write writes all bytes in one call, so that no process truncates the file
// halfway. The bytes are random, for file systems that compress. They are not
// synced: it is enough that the file system has allocated the blocks.
func (b *ballast) write(f *os.File) error {
	if free, ok := freeSpace(b.path); ok && free < b.size {
		return fmt.Errorf("%w: %d bytes free", syscall.ENOSPC, free) // trying would leave no room for others meanwhile
	}
	block := make([]byte, b.size)
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
	err := b.fill()
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

// missing reports whether the ballast is gone and cannot be written yet.
func (b *ballast) missing() bool {
	if !b.gone.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.tried) < refillEvery {
		return true
	}
	b.tried = time.Now()
	if err := b.fill(); err != nil {
		return true
	}
	b.gone.Store(false)
	b.log.Info("errand: there is room again: the ballast is back, jobs can be added")
	return false
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

// intake returns nil if work may be added: no damage was found, and the ballast is
// there.
func (s *Store) intake() error {
	if err := s.damage(); err != nil {
		return err
	}
	if s.ballast.missing() {
		return fmt.Errorf("%w: the ballast %s is given up", storage.ErrFull, s.ballast.path)
	}
	return nil
}

// adds reports whether any of the requests adds work.
func adds(batch []*request) bool {
	return slices.ContainsFunc(batch, func(r *request) bool { return !r.ends })
}

// admit returns the requests of a batch that may run. While no work may be added it
// answers those that add work with the reason.
func (w *writer) admit(batch []*request) []*request {
	if !adds(batch) {
		return batch
	}
	if w.others() {
		w.ballast.sync()
	}
	if err := w.intake(); err != nil {
		return ending(batch, err)
	}
	return batch
}

// ending answers the requests that add work with err, and returns the others.
func ending(batch []*request, err error) []*request {
	left := batch[:0]
	for _, r := range batch {
		if r.ends {
			left = append(left, r)
		} else {
			r.answer(err)
		}
	}
	return left
}

// retryWithoutRoom returns the requests of a batch to try again after there was no
// room for it: first those that end work, without those that add any. If there were
// only such, they are tried once more after the ballast was emptied and the log
// moved into the database, so that the log's room can be used again; last is set
// then. All others are answered with err.
func (w *writer) retryWithoutRoom(batch []*request, err error, last *bool) []*request {
	n := len(batch)
	left := ending(batch, err)
	if len(left) < n || len(left) == 0 {
		return left
	}
	if !*last {
		*last = true
		w.ballast.release()
		w.log.makeRoom()
		return left
	}
	for _, r := range left {
		r.answer(err)
	}
	return nil
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

// freeSpace returns how many bytes can still be written beside a path, and false
// if the system does not tell.
func freeSpace(path string) (int64, bool) {
	fs, err := statFS(filepath.Dir(path))
	return fs.Free, err == nil && fs.Name != ""
}

// measure sets low.
func (c *checkpointer) measure() {
	free, ok := freeSpace(c.path)
	c.low = ok && free < lowSpace
}

// growth returns by how many bytes a checkpoint will make the database grow,
// including what the transaction under way has added.
func (c *checkpointer) growth() (int64, error) {
	var pages, size int64
	if err := c.db.row(sqlPageCount, nil, &pages); err != nil {
		return 0, err
	}
	if err := c.db.row(sqlPageSize, nil, &size); err != nil {
		return 0, err
	}
	info, err := os.Stat(c.path)
	if err != nil {
		return 0, err
	}
	return pages*size - info.Size(), nil
}

// reserve returns [storage.ErrFull] for a transaction that adds work if the disk is
// nearly full and the pages of the transaction do not fit into the log and, later,
// into the database. The file of the log may have room that the database lacks. If
// that were filled, no page could be moved, and soon no job be finished.
func (c *checkpointer) reserve() error {
	if !c.low {
		return nil
	}
	c.measure()
	if !c.low {
		return nil
	}
	grows, err := c.growth()
	if free, ok := freeSpace(c.path); err == nil && ok && 2*grows > free {
		return fmt.Errorf("%w: %d bytes are free, up to %d are needed", storage.ErrFull, free, 2*grows)
	}
	return err
}

// makeRoom moves the log into the database, if the database has room for it, so
// that the next commit begins the log anew.
func (c *checkpointer) makeRoom() {
	c.measure()
	c.next = 0
	c.run(1)
}

// fits reports whether the database has room for all pages in the log. A part of
// them would take the room that there is, and the log could not begin anew.
func (c *checkpointer) fits() bool {
	if !c.low {
		return true
	}
	grows, err := c.growth()
	free, ok := freeSpace(c.path)
	return err != nil || !ok || grows <= free
}

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
	if cause := s.tryRoom(); host.IsFull(cause) {
		return fmt.Errorf("%w: %w: %w", storage.ErrFull, err, cause)
	}
	return err
}

// tryRoom writes a block to a file beside the database, and makes the file one block
// longer than the database and its log.
func (s *Store) tryRoom() error {
	path := s.path + "-room"
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
