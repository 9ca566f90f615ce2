package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
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

// SweepFile is what Open does with the file of an instance that it does not know.
func (s *Store) SweepFile(f *os.File, id int64) { s.sweepFile(f, id) }

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

// RoomForChanges has commits of the writer fail for lack of room by which more than so many rows
// change.
func (s *Store) RoomForChanges(most int64) {
	total := func() (n int64) {
		_ = s.queue.writer.stmts.row("SELECT total_changes()", nil, &n)
		return n
	}
	var before int64
	_ = s.queue.writer.alone(func() error { before = total(); return nil })
	s.fault = func(bool) error {
		n := total()
		changed := n - before
		if before = n; changed > most {
			return storage.ErrFull
		}
		return nil
	}
}

// Facts are what the Store remembers of a lease: plant has it remember that again.
func (s *Store) Facts(token int64) (plant func()) {
	f, known := s.self.holds(token)
	return func() {
		if known {
			s.self.hold([]facts{f})
		}
	}
}

// RowByRow has the writer write each job by a statement of its own.
func (s *Store) RowByRow() { s.queue.writer.stmts.runs.off = true }

// RunsOf reports whether statements of runs are prepared, and whether those are that lease or end
// one job.
func (s *Store) RunsOf() (prepared [2]bool) {
	_ = s.queue.writer.alone(func() error {
		texts := s.queue.writer.stmts.texts
		prepared[0] = texts[sqlLeaseRun] != nil && texts[sqlKeepRun] != nil && texts[sqlDropRun] != nil
		prepared[1] = texts[sqlLease] != nil || texts[sqlKeepPlain] != nil || texts[sqlDropJob] != nil || texts[sqlDropOption] != nil
		return nil
	})
	return prepared
}

// Unprepare has the writer prepare its statements again.
func (s *Store) Unprepare() {
	_ = s.queue.writer.alone(func() error {
		texts := s.queue.writer.stmts.texts
		for _, st := range texts {
			_ = st.Close()
		}
		clear(texts)
		return nil
	})
}

// MostPages has the file grow by so many pages at most.
func (s *Store) MostPages(more int) {
	_ = s.queue.writer.alone(func() error {
		var n int
		stmts := s.queue.writer.stmts
		if err := stmts.row("PRAGMA page_count", nil, &n); err != nil {
			return err
		}
		return stmts.plain(fmt.Sprintf("PRAGMA max_page_count = %d", n+more))
	})
}

// Begun is how many write transactions have begun.
func (s *Store) Begun() int64 { return s.turn.transactions.Load() }

// KeptAhead is of how many lanes the writer keeps jobs that were read ahead, with how many bytes
// of args.
func (s *Store) KeptAhead() (lanes, bytes int, err error) {
	err = s.submit(context.Background(), &request{run: func(t *tx) error {
		lanes = len(t.stmts.lineups.ahead)
		for _, a := range t.stmts.lineups.ahead {
			for _, r := range a.jobs[:cap(a.jobs)] {
				bytes += len(r.Args)
			}
		}
		return nil
	}})
	return lanes, bytes, err
}

// SurveyStatements is how many statements it takes to find the first jobs of all lanes of a want.
func (s *Store) SurveyStatements(now time.Time, w storage.Want) (n int, err error) {
	err = s.submit(context.Background(), &request{run: func(t *tx) error {
		l, err := t.lineup([]storage.Want{w}, micros(now), true)
		for i := 0; err == nil && i < len(l.lanes) && l.unsure > 0; n++ {
			i, err = t.surveyFrom(l, i)
		}
		return err
	}})
	return n, err
}

// KeptSuccesses is of how many lanes the writer remembers the last success, and of how many at the most.
func (s *Store) KeptSuccesses() (lanes, most int, err error) {
	err = s.submit(context.Background(), &request{run: func(t *tx) error {
		lanes = len(t.stmts.succeeded)
		return nil
	}})
	return lanes, mostSucceeded, err
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
	begin := sync.OnceFunc(func() { close(begun) })
	_ = s.queue.add(context.Background(), &request{done: make(chan struct{}, 1), run: func(*tx) error {
		begin()
		<-end
		return nil
	}})
	<-begun
	return func() { close(end) }
}

// Probe makes a call whose context ends while the writer finds out whether it has anything to
// do, as it has. It reports whether that was found out when the call came back, and whether
// it was made.
func (s *Store) Probe() (found, made bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	release, done := s.Stall(), make(chan struct{})
	r := &request{run: func(*tx) error {
		made = true
		return nil
	}}
	r.probe = func(*tx) (bool, error) {
		was := r.state.Load()
		for cancel(); r.state.Load() == was; runtime.Gosched() { // until it is withdrawn
		}
		found = was == probing
		return true, nil
	}
	go func() {
		defer close(done)
		err = s.submit(ctx, r)
	}()
	for s.Waiting() < 1 {
		runtime.Gosched()
	}
	release()
	<-done
	return found, made, err
}

// Deafen has the writer never hear that the log has grown, as if its goroutine were not
// scheduled until it has a request.
func (s *Store) Deafen() {
	deaf := &request{done: make(chan struct{}, 1), run: func(*tx) error {
		s.queue.written = nil
		return nil
	}}
	if err := s.queue.add(context.Background(), deaf); err != nil {
		panic(err)
	}
	if err := deaf.answered(); err != nil {
		panic(err)
	}
	s.Rested() // else a caller would take it to be busy, and leave the log to it
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

// Stale reports whether the cache is of another generation.
func (s *Store) Stale(generation int64) bool { return s.cache.stale(generation) }

// Waiting is how many requests wait for the writer.
func (s *Store) Waiting() int { return len(s.queue.reqs) + len(s.queue.urgent) }

// pretended says on what file system a path is, if a test does. A Store may be open before and
// after that.
var pretended atomic.Pointer[func(path string) (host.FileSystem, error)]

func init() {
	stat, room := statFS, roomAt
	statFS = func(path string) (host.FileSystem, error) {
		if f := pretended.Load(); f != nil {
			return (*f)(path)
		}
		return stat(path)
	}
	roomAt = func(path string) (int64, bool) {
		f := pretended.Load()
		if f == nil {
			return room(path)
		}
		fs, err := (*f)(path)
		return fs.Free, err == nil && fs.Name != ""
	}
}

// onFileSystem makes f say on what file system a path is.
func onFileSystem(t interface{ Cleanup(func()) }, f func(path string) (host.FileSystem, error)) {
	before := pretended.Swap(&f)
	t.Cleanup(func() { pretended.Store(before) })
}

// FileSystem makes all files be on a file system of this type.
func FileSystem(t interface{ Cleanup(func()) }, name string) {
	warnInMemory = sync.Once{}
	onFileSystem(t, func(string) (host.FileSystem, error) {
		return host.FileSystem{Name: name, Free: 1 << 40}, nil
	})
}

// FreeSpace makes all files be on a file system with so many bytes free, or one that does
// not say if negative. What set is called with is free from then on; reads are counted.
func FreeSpace(t interface{ Cleanup(func()) }, bytes int64) (set func(int64), reads func() int64) {
	var free, n atomic.Int64
	free.Store(bytes)
	onFileSystem(t, func(string) (host.FileSystem, error) {
		n.Add(1)
		if free.Load() < 0 {
			return host.FileSystem{}, nil
		}
		return host.FileSystem{Name: "ext4", Free: free.Load()}, nil
	})
	return free.Store, n.Load
}

// Disk makes a folder be a disk of so many bytes, which nothing but its files fills, and
// returns how many are free. With resize it has another size from then on.
func Disk(t interface{ Cleanup(func()) }, dir string, bytes int64) (free func() int64, resize func(int64)) {
	var size atomic.Int64
	size.Store(bytes)
	free = func() int64 {
		left := size.Load()
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				left -= (info.Size() + 4095) &^ 4095
			}
		}
		return max(left, 0)
	}
	onFileSystem(t, func(string) (host.FileSystem, error) { return host.FileSystem{Name: "ext4", Free: free()}, nil })
	return free, size.Store
}

// FreeIn has the folder of a database and that for temporary files be two file systems, or
// one, with so many bytes free in each.
func FreeIn(t interface{ Cleanup(func()) }, dir string, here, temp int64, same bool) {
	sameBefore := sameFileSystem
	onFileSystem(t, func(path string) (host.FileSystem, error) {
		if path == dir {
			return host.FileSystem{Name: "ext4", Free: here}, nil
		}
		return host.FileSystem{Name: "ext4", Free: temp}, nil
	})
	sameFileSystem = func(string, string) bool { return same }
	t.Cleanup(func() { sameFileSystem = sameBefore })
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

// OnCheckedTable has f called after the check of each table, until it is called with nil.
func OnCheckedTable(f func(table string)) {
	if f == nil {
		checkedTable.Store(nil)
		return
	}
	checkedTable.Store(&f)
}

// Invariants are the names of the invariants.
func Invariants() (names []string) {
	for _, r := range invariants {
		names = append(names, r.name)
	}
	return names
}

// JobRow is a row of errand_job.
type JobRow = jobRow

// RunNowChosen is the step of RunNow for jobs that it has chosen by a filter.
func (s *Store) RunNowChosen(ctx context.Context, now time.Time, ids []storage.ID, which storage.Waiting) (storage.Step, error) {
	return s.step(ctx, false, storage.Selection{}, selector.Choice{IDs: ids}, func(t *tx, id storage.ID, step *storage.Step) error {
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

// Rows calls fn in a transaction.
func (s *Store) Rows(ctx context.Context, fn func(load func(rules.Need) (*rules.Tx, error)) error) error {
	return s.submit(ctx, &request{ends: true, run: func(t *tx) error {
		return fn(func(n rules.Need) (*rules.Tx, error) {
			n.Leave = slices.Repeat([]int32{1}, len(n.Groups))
			err := t.know(n, time.Time{})
			return &t.deciding.tx.Tx, err
		})
	}})
}

// Registering has the Store be as it is when the row of its instance is committed, but its number is
// not set yet, until restore is called.
func (s *Store) Registering() (restore func()) {
	id := s.self.number()
	s.self.coming.Store(id)
	s.self.id.Store(0)
	return func() {
		s.self.id.Store(id)
		s.self.coming.Store(0)
	}
}

// LookAnew has the next call look for the files and for other libraries.
func (s *Store) LookAnew() {
	s.watch.libraries.Store(0)
	s.watch.looked.Store(never)
}

// LookNow has the Store look for its files, however short the last look is ago.
func (s *Store) LookNow() { _ = s.lookNow() }

// Unsaved is what calls return while a Store cannot save what it has, for this reason.
func Unsaved(why error) error {
	t := &loss{goneError: goneError{lost: "the log"}}
	t.why.Store(&why)
	return t.err()
}

// KnownSQLite and KnownLibc are what Libraries compares with.
const KnownSQLite, KnownLibc = knownSQLite, knownLibc

// BuiltWith has the program have been built with these modules, and without any build info if
// there are none.
func BuiltWith(t interface{ Cleanup(func()) }, modules ...*debug.Module) {
	before := readBuildInfo
	t.Cleanup(func() { readBuildInfo = before })
	readBuildInfo = func() (*debug.BuildInfo, bool) {
		return &debug.BuildInfo{Deps: modules}, len(modules) > 0
	}
}

// FixSalts has all jobs have the same salt, so that their rows are of the same size.
func FixSalts(t interface{ Cleanup(func()) }) {
	t.Cleanup(func() { randomSalt = rand.Uint32 })
	randomSalt = func() uint32 { return storage.MaxSalt }
}

// FirstConn is firstConn.
var FirstConn = firstConn

// CountLive counts the jobs that have not ended, as for the room that they need.
func (s *Store) CountLive() (live int64, err error) {
	var dead int64
	err = plain{context.Background(), s.read.DB}.row(sqlCountLive, nil, &live, &dead)
	return live, err
}
