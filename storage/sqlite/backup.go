package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	driver "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
)

const (
	sqlBeginRead = `BEGIN`
	sqlAnyRead   = `SELECT COUNT(*) FROM sqlite_schema`
	// A copy begins another epoch. Its instances get other numbers: the files of the
	// first epoch's processes may lie where the copy is put, and their locks and notes
	// are not about the copy. New leases and revisions get other numbers too.
	sqlOtherInstances = `UPDATE main.errand_instance SET instance = instance + ?1, boot = '` + backupBoot + `'`
	sqlOtherHolders   = `UPDATE main.errand_job SET instance = instance + ?1 WHERE state = 3`
	sqlOtherNumbers   = `UPDATE main.errand_number SET n = n + CASE id WHEN 4 THEN 1 ELSE ?1 END WHERE id IN (2, 3, 4)`

	// backupBoot is the boot of instances that were registered when a backup was taken. None
	// of them can live.
	backupBoot = "a backup"
	// partEnd begins the end of the name of a file that is not finished.
	partEnd = "-part-"
	// backupStep is how many pages are copied between two looks at the context.
	backupStep = 256
	// epochBits is how far apart the numbers of two epochs are: more than an epoch has
	// instances or leases, and so little that hundreds of epochs fit.
	epochBits = 40
)

var _ storage.Backuper = (*Store)(nil)

// Backup implements [storage.Backuper]. It reads one moment of the database on a
// connection of its own while others write, and keeps the write-ahead log from being
// emptied meanwhile. The copy is a single file of mode 0600, written under another name
// in the same folder and synced before it gets its own. If a file of SQLite's is left
// beside path, Backup returns [storage.ErrUnsupportedDB].
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := errors.Join(s.usable(), s.lookNow()); err != nil {
		return err
	}
	full, err := filepath.Abs(path)
	if err != nil || path == "" {
		return fmt.Errorf("errand: backup: path %q: must name a file: %w", path, cmp.Or(err, fs.ErrInvalid))
	}
	if err := vacant(full); err != nil {
		return fmt.Errorf("errand: backup: %w", err)
	}
	err = newFile(full, func(name string) error {
		err := s.copyTo(ctx, name)
		if err == nil {
			err = beginEpoch(ctx, name, s.opts)
		}
		if err == nil {
			err = s.lookNow() // as it may be of what nobody finds any more
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("errand: backup: %w", translate(err))
	}
	return nil
}

// newFile has write fill a file of another name in the same folder, and renames that
// to path. It deletes the file after an error.
func newFile(path string, write func(name string) error) error {
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partEnd+"*") // mode 0600
	if err != nil {
		return ofSystem(err)
	}
	name := part.Name()
	if err = part.Close(); err == nil {
		err = write(name)
	}
	if err == nil {
		err = vacant(path) // as somebody may have opened a database there meanwhile
	}
	if err == nil {
		err = publish(name, path)
	}
	if err != nil {
		for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
			_ = os.Remove(name + suffix) // best effort
		}
	}
	return err
}

// vacant returns an error that is fs.ErrExist if something is at path, and
// [storage.ErrUnsupportedDB] if a file of SQLite's is beside it: SQLite would take an old
// log for a part of the copy. That one is not fs.ErrExist, as callers take that for a
// backup which is there.
func vacant(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("path %q: %w", path, cmp.Or(err, fs.ErrExist))
	}
	for _, end := range sqliteNames {
		switch _, err := os.Lstat(path + end); {
		case err == nil:
			return fmt.Errorf("%w: %s%s of another database is there: move it away, or name another path", storage.ErrUnsupportedDB, path, end)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// copyTo copies all pages as of one moment, by SQLite's backup API. That API begins
// anew when somebody writes, unless the connection is in a transaction that reads, as
// here. VACUUM INTO would take several times as long, and as much of the processor.
func (s *Store) copyTo(ctx context.Context, name string) error {
	if s.view != nil {
		return s.view.with(func(db *sql.DB) error { return copyPages(ctx, db, name) })
	}
	db := s.openPool(1, readerPragmas)
	defer func() { _ = db.Close() }() // it has only read
	return copyPages(ctx, db, name)
}

func copyPages(ctx context.Context, db *sql.DB, name string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, sqlBeginRead); err != nil {
		return err
	}
	var n int
	if err := conn.QueryRowContext(ctx, sqlAnyRead).Scan(&n); err != nil {
		return err
	}
	return conn.Raw(func(c any) error { return copyOf(ctx, c, name) })
}

// copyOf copies all pages that a connection of the driver sees, in its transaction.
func copyOf(ctx context.Context, conn any, name string) error {
	from, ok := conn.(interface {
		NewBackup(string) (*driver.Backup, error)
	})
	if !ok {
		return fmt.Errorf("errand: driver connection %T cannot back up", conn)
	}
	to := url.URL{Scheme: "file", OmitHost: true, Path: name, RawQuery: "mode=rw"}
	b, err := from.NewBackup(to.String())
	if err != nil {
		return err
	}
	for more := true; more && err == nil; {
		if err = ctx.Err(); err == nil {
			more, err = b.Step(backupStep)
		}
	}
	return errors.Join(err, b.Finish())
}

// beginEpoch gives a copy numbers of its own.
func beginEpoch(ctx context.Context, name string, o Options) (err error) {
	o.Durability = Full
	db := openPool(name, 1, o, writerPragmas(o))
	defer func() { err = errors.Join(err, db.Close()) }() // deletes the log of the copy
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	apart := (1 + rand.Int64N(1<<12)) << epochBits
	for _, text := range []string{sqlOtherInstances, sqlOtherHolders, sqlOtherNumbers} {
		if _, err := tx.ExecContext(ctx, text, apart); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// publish syncs the file and renames it to path, unless there is a file at path.
func publish(part, path string) error {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(part, path); err == nil {
		if err := os.Remove(part); err != nil {
			return err
		}
	} else if errors.Is(err, fs.ErrExist) {
		return err
	} else if err := os.Rename(part, path); err != nil { // a file system without links
		return err
	}
	if runtime.GOOS == "windows" { // has no such thing
		return nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
