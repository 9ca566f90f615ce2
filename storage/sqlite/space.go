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

	// defaultBallast is room for 64 jobs that die with the longest errors and
	// stacks, once in the log and once in the database; see TestBallast in
	// package torture.
	defaultBallast = 4 << 20
	maxBallast     = 1 << 30
	// refillEvery is the pace of looking whether there is room for it again.
	refillEvery = 3 * time.Second
	// lowSpace is nearly full: what a log of checkpointAt pages can take twice,
	// for itself and in the database, and as much again for others.
	lowSpace = 4 * checkpointAt * 4096
	// roomBlock is how many bytes must find room beside a database for its disk not
	// to be called full.
	roomBlock = 64 << 10
)

// ballast is a file of real blocks beside the database that is given up when the
// disk is full: what ends work can then be written, and what adds work waits
// until there is room for the ballast again. All processes on the database
// share it. An empty file says that it is given up.
type ballast struct {
	path string
	info os.FileInfo // of the database
	size int64       // 0: there is none
	log  *slog.Logger
	gone atomic.Bool // given up

	mu    sync.Mutex
	tried time.Time
}

// fill writes the ballast, if it is not there.
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

// write writes all of it in one call, so that no process truncates it halfway.
// The bytes are random, for file systems that compress. They are not synced:
// that the blocks are taken is enough.
func (b *ballast) write(f *os.File) error {
	if free, ok := freeSpace(b.path); ok && free < b.size {
		return fmt.Errorf("%w: %d bytes free", syscall.ENOSPC, free) // and none for others while it is tried
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

// open writes the ballast as the store opens. Where no such file can be made
// there is none.
func (b *ballast) open() {
	err := b.fill()
	switch {
	case err == nil:
	case host.IsFull(err):
		b.gone.Store(true)
		b.log.Warn("errand: the disk is full: no job can be added until there is room for the ballast", "file", b.path, "bytes", b.size)
	default:
		b.size = 0
		b.log.Warn("errand: no ballast: when the disk is full outcomes will have to wait for room", "error", err)
	}
}

// release gives the ballast up.
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

// missing tells whether the ballast is given up and cannot be had back yet.
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

// given notes that another process has given the ballast up.
func (b *ballast) given() {
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

// intake tells whether work may be added.
func (s *Store) intake() error {
	if err := s.damage(); err != nil {
		return err
	}
	if s.ballast.missing() {
		return fmt.Errorf("%w: the ballast %s is given up", storage.ErrFull, s.ballast.path)
	}
	return nil
}

// adds tells whether any of the requests adds work.
func adds(batch []*request) bool {
	return slices.ContainsFunc(batch, func(r *request) bool { return !r.ends })
}

// admit answers those requests that add work, while none may be added, and
// gives the others.
func (w *writer) admit(batch []*request) []*request {
	if !adds(batch) {
		return batch
	}
	if w.others() {
		w.ballast.given()
	}
	if err := w.intake(); err != nil {
		return ending(batch, err)
	}
	return batch
}

// ending answers the requests that add work with err, and gives the others.
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

// drain decides what to do about a batch for which there was no room: first
// what ends work is tried without what adds any, then, once, with the ballast
// given up and the log moved into the database, so that its room can be used
// again. It gives what is to be tried again.
func (w *writer) drain(batch []*request, err error, last *bool) []*request {
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

// cramped tells whether a store could not be opened because the disk is full,
// and there is a ballast to give up.
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

// measure finds out whether the disk is nearly full.
func (c *checkpointer) measure() {
	free, ok := freeSpace(c.path)
	c.low = ok && free < lowSpace
}

// growth gives by how much a checkpoint will make the database grow, what the
// transaction under way has added included.
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

// reserve refuses a transaction that adds work if its pages do not fit into the
// log and, later, into the database, while the disk is nearly full. The log may
// have room from earlier, of which the database has none: then nothing could be
// moved, and soon nothing be finished any more.
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

// makeRoom has the log begun anew, if the database has room for what is in it.
func (c *checkpointer) makeRoom() {
	c.measure()
	c.next = 0
	c.run(1)
}

// fits tells whether the database has room for what is in the log. If it has
// not, a part of it would take what room there is for no use.
func (c *checkpointer) fits() bool {
	if !c.low {
		return true
	}
	grows, err := c.growth()
	free, ok := freeSpace(c.path)
	return err != nil || !ok || grows <= free
}

// asFull puts [storage.ErrFull] before the error of a write for which there was
// no room. SQLite says so for ENOSPC only. Of a quota, or of a file that has
// become as large as one can be, it says what it says of a broken disk, so it
// is tried out beside the database.
//
// That goes for writes alone, whose transaction SQLite takes back as it does on
// a full disk: frames without their commit record are ignored. After an error of
// fsync, or of the index of the log, what is committed may be on the disk.
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

// tryRoom writes a file beside the database, and has it be as long as the longest
// of the database's would be with a block more.
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
