package sqlite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// roomBlock is how many bytes must find room beside a database for its disk not
// to be called full.
const roomBlock = 64 << 10

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
	_, _ = rand.Read(block) // for file systems that compress; never fails
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
