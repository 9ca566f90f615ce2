package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// Kill ends s as kill -9 would: connections and locks are dropped, nothing is
// written, the files stay. If s was closed while handlers ran, the lock that
// it left behind is dropped.
func (s *Store) Kill() {
	s.closing.Do(func() {
		s.gate.Lock()
		s.closed = true
		s.gate.Unlock()
		s.calls.Wait()
		close(s.stop)
		s.queue.close()
		s.joined.Wait()
		_ = s.release()
	})
	s.self.mu.Lock()
	f := s.self.file
	s.self.file = nil
	_ = s.self.notes.Close()
	s.self.mu.Unlock()
	if f != nil {
		_ = f.Close()
	}
}

// UsedPages is how many pages of a database hold something.
func UsedPages(pages, free, size int64) int64 { return used(pages, free, size) }

// Reading are the connections that only read.
func (s *Store) Reading() *sql.DB { return s.read.DB }

// InstanceNumber is 0 before the first lease.
func (s *Store) InstanceNumber() int64 { return s.self.number() }

// LeaseReads is how often the leases of others have been read.
func (s *Store) LeaseReads() int64 {
	s.observed.mu.Lock()
	defer s.observed.mu.Unlock()
	return s.observed.reads
}

// Supported is the check of the version of SQLite.
func Supported(version string) error { return supported(version) }

// SchemaVersion is what this program can write.
func SchemaVersion() int { return schemaVersion }

// Fault has commits of what adds work, or of what does not, fail.
func (s *Store) Fault(f func(adds bool) error) { s.fault = f }

// Begun is how many write transactions have begun.
func (s *Store) Begun() int64 { return s.turn.transactions.Load() }

// KeptAhead is how many bytes of args the writer keeps of jobs that were read ahead.
func (s *Store) KeptAhead() (bytes int, err error) {
	err = s.submit(context.Background(), &request{run: func(t *tx) error {
		for _, a := range t.stmts.lineups.ahead {
			for _, r := range a.jobs[:cap(a.jobs)] {
				bytes += len(r.Args)
			}
		}
		return nil
	}})
	return bytes, err
}

// SkipMissing has the writer go on in a lane after one job, where there is none.
func (s *Store) SkipMissing() error {
	return s.submit(context.Background(), &request{run: func(t *tx) error {
		return t.stmts.hold(func() error {
			m := merger{statements: t.stmts}
			return m.begin(&head{ahead: &ahead{}, lane: -1, taken: 1})
		})
	}})
}

// Stall keeps the writer busy until it is released. Calls that are made meanwhile
// share one transaction after it, in their order.
func (s *Store) Stall() (release func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	_ = s.queue.add(context.Background(), &request{done: make(chan error, 1), run: func(*tx) error {
		close(begun)
		<-end
		return nil
	}})
	<-begun
	return func() { close(end) }
}

// Rested waits until the writer has ended what it does after a batch.
func (s *Store) Rested() {
	for w := s.queue.writer; ; runtime.Gosched() {
		w.mine <- struct{}{}
		rested := len(s.queue.written) == 0
		w.give()
		if rested {
			return
		}
	}
}

// WritesForLong has the Store leave a gap for other programs before it writes next,
// and returns how long.
func (s *Store) WritesForLong() time.Duration {
	s.turn.pace.since, s.turn.pace.ended = time.Now().Add(-longWriting), time.Now()
	return longGap
}

// Waiting is how many requests wait for the writer.
func (s *Store) Waiting() int { return len(s.queue.reqs) + len(s.queue.urgent) }

// FileSystem makes all files be on a file system of this type.
func FileSystem(t interface{ Cleanup(func()) }, name string) {
	before := statFS
	warnInMemory = sync.Once{}
	statFS = func(string) (host.FileSystem, error) {
		return host.FileSystem{Name: name, Free: 1 << 40}, nil
	}
	t.Cleanup(func() { statFS = before })
}

// FreeSpace makes all files be on a file system with so many bytes free, or one that does
// not say if negative. What set is called with is free from then on; reads are counted.
func FreeSpace(t interface{ Cleanup(func()) }, bytes int64) (set func(int64), reads func() int64) {
	before := statFS
	var free, n atomic.Int64
	free.Store(bytes)
	statFS = func(string) (host.FileSystem, error) {
		n.Add(1)
		if free.Load() < 0 {
			return host.FileSystem{}, nil
		}
		return host.FileSystem{Name: "ext4", Free: free.Load()}, nil
	}
	t.Cleanup(func() { statFS = before })
	return free.Store, n.Load
}

// CheckOver is closed when the check that opening has begun is over; nil if it
// has begun none.
func (s *Store) CheckOver() <-chan struct{} { return s.check.over }

// Watching reports whether commits of other processes are looked for.
func (s *Store) Watching() bool { return s.inner.Stats().InUse > 0 }

// Closing is closed when Close has begun to stop what the Store has started.
func (s *Store) Closing() <-chan struct{} { return s.stop }

// PolicyDocs is how many documents are kept in memory.
func (s *Store) PolicyDocs() int {
	s.cache.mu.RLock()
	defer s.cache.mu.RUnlock()
	return len(s.cache.policies)
}

// Logs has records handed to log by a goroutine, as those of a Store are.
func Logs(log *slog.Logger) (_ *slog.Logger, wait func()) {
	l := new(logs)
	return l.logger(log), l.wait
}

// Rules are the names of the rules about the tables.
func Rules() (names []string) {
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// JobRow is a row of errand_job.
type JobRow = jobRow

// RunNowChosen is the step of RunNow for jobs that it has chosen by a filter.
func (s *Store) RunNowChosen(ctx context.Context, now time.Time, ids []storage.ID, which storage.Waiting) (storage.Step, error) {
	return s.step(ctx, false, storage.Selection{}, ids, storage.Step{}, func(t *tx, id storage.ID, step *storage.Step) error {
		return t.runNow(now, id, 0, which, step)
	})
}

// InsertAndRead returns retry, crashes and snoozes of a row as they were stored.
func (s *Store) InsertAndRead(r JobRow) (got [3]int64, err error) {
	over := errors.New("rolled back")
	r.ID, r.Lane, r.State = 1, 1, ready
	err = s.submit(context.Background(), &request{run: func(t *tx) error {
		if err := t.insert(&r); err != nil {
			return err
		}
		if err := t.row(`SELECT retry, crashes, snoozes FROM errand_job`, nil, &got[0], &got[1], &got[2]); err != nil {
			return err
		}
		return over
	}})
	if errors.Is(err, over) {
		err = nil
	}
	return got, err
}

// OnView has a Store that only reads call functions before it opens a connection, and
// after a read, before it looks whether the file has changed meanwhile.
func (s *Store) OnView(before, after func()) { s.view.before, s.view.after = before, after }
