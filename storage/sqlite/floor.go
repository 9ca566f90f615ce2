package sqlite

import (
	"fmt"
	"sync/atomic"

	"github.com/errandq/errand/storage"
)

// errWentBack ends a Store whose database was restored in place, as by .restore
// of the sqlite3 command: what the Store knows of lanes, leases and keys is of
// another life of the file.
var errWentBack = fmt.Errorf("%w: the database has gone back to an earlier moment while it was open, as by a restore in place: open it again",
	storage.ErrClosed)

// floor is what the counters were that only ever rise, as last seen committed.
type floor struct{ nextJob, nextToken, generation atomic.Int64 }

// raise takes over counters that are committed.
func (f *floor) raise(m *meta) {
	raise(&f.nextJob, m.nextJob)
	raise(&f.nextToken, m.nextToken)
	raise(&f.generation, m.gen)
}

// raise never lowers n: one who read earlier may come later. If it does after
// all, as two do it at once, something is found later.
func raise(n *atomic.Int64, to int64) {
	if to > n.Load() {
		n.Store(to)
	}
}

// readMeta reads the counters, and ends the Store if they have gone back.
func (s *Store) readMeta(db asker, m *meta) error {
	f := &s.floor
	nextJob, nextToken, generation := f.nextJob.Load(), f.nextToken.Load(), f.generation.Load() // before it reads
	if err := db.row(sqlMeta, nil, m.dest()...); err != nil {
		return err
	}
	if m.nextJob >= nextJob && m.nextToken >= nextToken && m.gen >= generation {
		return nil
	}
	if s.usable() == nil {
		s.fail(errWentBack, "database")
	}
	return errWentBack
}
