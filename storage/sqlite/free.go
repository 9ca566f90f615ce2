package sqlite

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// sqlCountLive counts the jobs that are scheduled, ready or blocked and the few that
	// run, and, apart, those that are dead.
	sqlCountLive = `SELECT COALESCE(SUM(n) FILTER (WHERE id % 32 <> 6), 0) + (SELECT COUNT(*) FROM main.errand_job WHERE state = 3),
COALESCE(SUM(n) FILTER (WHERE id % 32 = 6), 0) FROM main.errand_number WHERE id >= 32 AND id % 32 IN (1, 2, 6, 7)`
	sqlCountRunning = `SELECT COUNT(*) FROM main.errand_job WHERE state = 3`

	// freeEvery is how often free space is read for [storage.SettingMinFree].
	freeEvery = time.Second
	// A disk with less free space is nearly full: a log of checkpointAt pages may
	// need its size twice, for itself and in the database, and other programs get as
	// much again.
	lowSpace = 4 * checkpointAt * 4096
	// logRoom is what a log of lowAt pages takes, so that transactions have room in it.
	logRoom = lowAt * (4096 + 24)
	// New jobs leave a part of the room to jobs which are leased or end, beside what is
	// kept for each: an eighth, but at least leastInTransit and at most
	// mostInTransit. An exchange of 480 jobs has had a log of 1.9 MB.
	inTransit      = 8
	leastInTransit = 256 << 10
	mostInTransit  = 2 << 20
	// Each job that has not ended may need keptPerJob bytes more than it has, until it
	// is a row that is kept. Up to maxPerJob may go to pages that are left half empty, a
	// quarter of what is in use at most: a job that has failed enters the finished ones
	// late, and so cuts a page of them in two. With a tenth of the jobs failing twice
	// 36 to 62 bytes were needed, and 410 for args of 1,000 bytes.
	keptPerJob = 50
	maxPerJob  = 480
	// perLease is what the outcome of one job may take, of the log and the database
	// together. Those of 200 jobs that had failed, each on pages of its own, took 9 KB
	// each; but on a busy machine each may have a commit of its own, of up to a dozen
	// pages. roomAgain is when to ask for more after none could be leased for that.
	perLease  = 64 << 10
	roomAgain = 100 * time.Millisecond
)

// marks is what a Store knows of how full its disk is.
type marks struct {
	low   atomic.Bool  // the disk is nearly full
	cut   atomic.Bool  // jobs wait for the room that the log has
	blind atomic.Int64 // work that the application has added since free space was read

	mu   sync.Mutex
	most int64 // jobs that had not ended, or were dead, when next was the key of the next job
	next int64
}

// freeSpace returns how many bytes can still be written beside a path, and false
// if the system does not tell.
func freeSpace(path string) (int64, bool) { return roomAt(filepath.Dir(path)) }

// measure sets low.
func (s *Store) measure() {
	free, ok := freeSpace(s.path)
	s.marks.low.Store(ok && free < lowSpace)
	s.marks.blind.Store(0)
}

// space is the room that there is for a transaction.
type space struct {
	free  int64 // bytes that can still be written
	log   int64 // bytes that the log has
	grows int64 // bytes by which a checkpoint will make the database grow
	spare int64 // bytes that are free in the database
	used  int64 // bytes that are not
}

// space reads the room that there is for the transaction under way on a connection; it is
// false if the system does not tell.
func (s *Store) space(db execer) (r space, ok bool, err error) {
	var p pages
	if err := p.read(db); err != nil {
		return r, false, err
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return r, false, err
	}
	if log, err := os.Stat(s.path + "-wal"); err == nil {
		r.log = log.Size()
	}
	r.grows, r.spare, r.used = max(0, p.all*p.size-info.Size()), p.free*p.size, (p.all-p.free)*p.size
	r.free, ok = freeSpace(s.path)
	return r, ok, nil
}

// takes counts bytes that are about to be written.
func (r *space) takes(bytes int64) {
	inside := min(bytes, r.spare)
	r.spare -= inside
	r.grows += bytes - inside
}

// left returns how many bytes are left once the pages of the transaction are in the log and
// in the database, and the log can begin anew. If it is negative, the log may fill the
// room that the database lacks: then no page can be moved, and soon no job be finished.
func (r *space) left() int64 { return r.free + min(r.log, logRoom) - 2*r.grows - logRoom }

// kept returns how many bytes so many jobs need until they have ended.
func (r *space) kept(live int64) int64 {
	transit := (r.free + r.log + r.spare + r.used) / inTransit
	return min(max(transit, leastInTransit), mostInTransit) + live*keptPerJob + min(live*(maxPerJob-keptPerJob), r.used/4)
}

// mayAdd returns [storage.ErrFull] for a transaction that adds work if the disk is nearly
// full and what is kept for jobs that were taken in would be touched. next is the
// key of the next job.
func (s *Store) mayAdd(db execer, r *space, next int64) error {
	m := &s.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	left := r.left()
	enough := func(live int64) bool { return left >= 0 && left+r.spare >= r.kept(live) }
	// Since they were counted, jobs may have ended, and any process may have redriven dead ones.
	if m.next > 0 && enough(m.most+max(0, next-m.next)) {
		return nil
	}
	var live, dead int64
	if err := db.row(sqlCountLive, nil, &live, &dead); err != nil {
		return err
	}
	if enough(live) {
		m.most, m.next = live+dead, next
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, %d are needed for %d jobs to end, those that are added included: add fewer at a time, "+
		"wait for jobs to end, delete those that have, or make room on the disk", storage.ErrFull, r.free, r.kept(live)+r.free-left, live)
}

// mayAddOne returns [storage.ErrFull] if there is no room for one more job, which it does
// not add. low reports whether the disk is nearly full.
func (s *Store) mayAddOne(t *tx, low bool) error {
	if !low {
		return nil
	}
	r, ok, err := s.space(t)
	if err != nil || !ok {
		return err
	}
	r.takes(4 * 4096) // a job may begin a page of the table and of each index
	return s.mayAdd(t, &r, t.meta.nextJob+1)
}

// mayLease returns [storage.ErrFull] for a transaction that leases jobs if they may not
// find the room to end. While the ballast is given up half of its room has to be there.
func (s *Store) mayLease(r *space) error {
	needs := int64(0)
	if s.ballast.gone.Load() {
		needs = s.ballast.size / 2
	}
	if r.left() >= 0 && r.free+r.spare-2*r.grows >= needs {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, up to %d are needed to lease jobs: make room on the disk",
		storage.ErrFull, r.free, max(r.free-r.left(), needs+2*r.grows-r.spare))
}

// roomFor returns how many jobs may be leased, so that those which run then have room to end:
// their outcomes may come all at once. If none runs that is one at least.
func (t *tx) roomFor() (int, error) {
	s := t.store
	if !s.marks.low.Load() {
		return math.MaxInt, nil
	}
	r, ok, err := s.space(t)
	if err != nil || !ok {
		return math.MaxInt, err
	}
	room := r.free - 2*r.grows // the log cannot begin anew while somebody reads from it
	if !s.ballast.gone.Load() {
		room += s.ballast.size
	}
	var runs int64
	if err := t.row(sqlCountRunning, nil, &runs); err != nil {
		return 0, err
	}
	most := max(room/perLease-runs, 0)
	if runs == 0 {
		most = max(most, 1)
	}
	return int(most), nil
}

// leaseBounded is lease, of no more jobs than there is room for. If there may be others
// they are kept back for a moment.
func (t *tx) leaseBounded(x *storage.Exchange, at, until int64, late *tooLate, bytes int) (out []storage.Leased, kept int64, err error) {
	most, err := t.roomFor()
	if err != nil {
		return nil, 0, err
	}
	if most == 0 && x.Wanted() > 0 {
		t.store.marks.cut.Store(true)
		return nil, at + roomAgain.Microseconds(), nil
	}
	return t.lease(x, at, until, late, allowance{bytes, most})
}

// reserve returns [storage.ErrFull] if a transaction would take room that is kept for
// others: jobs can be leased when none can be added, and what ends work has all the
// room there is.
func (w *writer) reserve(t *tx, batch []*request) error {
	if !slices.ContainsFunc(batch, (*request).begins) {
		return nil
	}
	work := 0
	for _, r := range batch {
		work += r.work
	}
	if !w.marks.low.Load() && work <= 2*maxWork {
		return nil
	}
	if w.measure(); !w.marks.low.Load() && work <= 2*maxWork {
		return nil
	}
	r, ok, err := w.space(t)
	switch {
	case err != nil || !ok:
		return err
	case slices.ContainsFunc(batch, (*request).adds):
		return w.mayAdd(t, &r, t.meta.nextJob)
	}
	return w.mayLease(&r)
}

// reserveInTx is reserve for so much work in a transaction of the application, before it
// is done: so the transaction can go on without it.
func (s *Store) reserveInTx(t *tx, work int) (refused, err error) {
	m := &s.marks
	if !m.low.Load() && m.blind.Add(int64(work)) < maxWork {
		return nil, nil
	}
	if s.measure(); !m.low.Load() && work <= maxWork {
		return nil, nil
	}
	r, ok, err := s.space(t)
	if err != nil || !ok {
		return nil, err
	}
	r.takes(int64(work) * jobBytes)
	if err = s.mayAdd(t, &r, t.meta.nextJob); errors.Is(err, storage.ErrFull) {
		s.queue.tell() // to move the log
		return err, nil
	}
	return nil, err
}

// fits reports whether the database has room for all pages in the log. A part of
// them would take the room that there is, and the log could not begin anew.
func (c *checkpointer) fits() bool {
	if !c.marks.low.Load() {
		return true
	}
	r, ok, err := c.space(c.db)
	return err != nil || !ok || r.grows <= r.free
}

// spare is the free space of the file system as it was read last.
type spare struct {
	mu    sync.Mutex
	at    time.Time
	bytes int64
	known bool
}

// read returns how many bytes were free at most freeEvery ago, and false if the system
// does not say.
func (s *spare) read(path string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.at.IsZero() || now.Sub(s.at) >= freeEvery {
		s.at = now
		s.bytes, s.known = freeSpace(path)
	}
	return s.bytes, s.known
}

// minFree returns why a job is refused for lack of free space, nil if it is not.
func (m *room) minFree(r *jobRow) *storage.QueueFullError {
	for _, queue := range []string{r.Queue, ""} {
		s := m.all[storage.Lane{Queue: queue}]
		least := s[storage.SettingMinFree]
		if least <= 0 {
			continue
		}
		free, known := m.store.listeners.spare.read(m.store.path)
		if !known {
			return nil
		}
		m.after = append(m.after, func() { m.store.warnOfFree(queue, least, free) })
		if free < least && int64(r.Priority) <= s[storage.SettingMinFreePriority] {
			return &storage.QueueFullError{Queue: queue, MinFree: least, Free: free}
		}
	}
	return nil
}

// warnOfFree warns if there is little more free space than a queue needs, by the same
// marks as of a cap.
func (s *Store) warnOfFree(queue string, least, free int64) {
	percent := int64(100)
	if free > least {
		percent = int64(float64(least) * 100 / float64(free))
	}
	if s.listeners.free.note(queue, percent) == 0 {
		return
	}
	attrs := []any{"free", free, "min_free", least}
	if queue != "" {
		attrs = append([]any{"queue", queue}, attrs...)
	}
	s.opts.Logger.Warn("errand: there is hardly more free space than new jobs need", attrs...)
}
