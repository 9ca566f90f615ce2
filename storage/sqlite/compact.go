package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// With auto_vacuum = incremental the file could be made smaller in short steps. But then
// each page that is taken or freed is noted in one more page: a drain writes 6 % more, calls
// of 20 jobs write 13 % more, and calls of one 2 %. So a file is written anew as a whole,
// for those who ask for it.
const sqlVacuum = `VACUUM`

var _ storage.Compacter = (*Store)(nil)

// pages are how many pages the file has, and how many of them are free.
type pages struct{ all, free, size int64 }

func (p *pages) read(db execer) error {
	return errors.Join(db.row(sqlPageCount, nil, &p.all), db.row(sqlFreePages, nil, &p.free), db.row(sqlPageSize, nil, &p.size))
}

// Compact implements [storage.Compacter]. It runs on the writer's connection, in the turn
// of this process. If there are no free pages nothing is written.
func (s *Store) Compact(ctx context.Context) (freed int64, err error) {
	if err := errors.Join(s.idle(ctx), s.notInTx(0), s.damage()); err != nil {
		return 0, err
	}
	w := s.queue.writer
	select {
	case w.mine <- struct{}{}:
		defer w.give()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err = w.stmts.hold(func() (err error) {
		freed, err = w.compact(ctx)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if e := s.idle(ctx); e != nil && err != nil {
		return 0, e
	}
	return freed, err
}

func (w *writer) compact(ctx context.Context) (freed int64, err error) {
	if err := w.usable(); err != nil {
		return 0, err
	}
	w.log.makeRoom()
	if err := w.takeTurn(ctx, &w.stmts); err != nil {
		return 0, err
	}
	was, now := pages{}, pages{}
	err = was.read(w.stmts)
	if err == nil && was.free > 0 {
		err = w.vacuum(ctx, &was)
	}
	w.giveTurn()
	if err != nil || was.free == 0 {
		return 0, translate(w.asFull(err))
	}
	w.log.run(1) // only with the last page of the log is the file cut off
	if err := now.read(w.stmts); err != nil {
		return 0, translate(err)
	}
	return (was.all - now.all) * now.size, nil
}

// vacuum writes what the file holds twice: to a temporary file, which is in memory
// otherwise, and to the log.
func (w *writer) vacuum(ctx context.Context, p *pages) error {
	if err := w.roomToVacuum(p); err != nil {
		return err
	}
	c, ok := w.stmts.raw.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("errand: connection %T cannot execute", w.stmts.raw)
	}
	if err := w.log.patience(w.opts.BusyTimeout); err != nil {
		return err
	}
	if err := w.stmts.plain("PRAGMA temp_store = FILE"); err != nil {
		return err
	}
	w.stmts.known.ok = false
	_, err := c.ExecContext(ctx, sqlVacuum, nil)
	if err != nil && ctx.Err() == nil {
		err = w.commitFailed(err)
	}
	return errors.Join(err, w.stmts.plain("PRAGMA temp_store = MEMORY"))
}

// roomToVacuum returns [storage.ErrFull] if a folder has not the room that vacuum needs
// there.
func (w *writer) roomToVacuum(p *pages) error {
	here, temp := filepath.Dir(w.path), host.TempDir()
	used := (p.all - p.free) * p.size
	log := used + used/100 // with the headers of its pages
	var busy, length, moved int
	if err := w.stmts.row(sqlLogLength, nil, &busy, &length, &moved); err != nil {
		return err
	}
	if info, err := os.Stat(w.path + "-wal"); err == nil && moved == length { // it begins anew
		log = max(0, log-info.Size())
	}
	if sameFileSystem(here, temp) {
		return enough(here, log+used)
	}
	return cmp.Or(enough(here, log), enough(temp, used))
}

// sameFileSystem reports whether two folders share their free space; tests replace it.
var sameFileSystem = host.SameFileSystem

// enough returns [storage.ErrFull] if a folder has not so many bytes free.
func enough(dir string, needs int64) error {
	if free, ok := freeSpace(filepath.Join(dir, "file")); ok && free < needs {
		return fmt.Errorf("%w: %d bytes are free in %s, up to %d are needed there: make room, or have temporary files elsewhere by TMPDIR",
			storage.ErrFull, free, dir, needs)
	}
	return nil
}
