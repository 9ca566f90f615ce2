package sqlite

import (
	"container/heap"
	"database/sql"
	"errors"
	"fmt"
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
	sqlCountLive = `SELECT COALESCE(SUM(n) FILTER (WHERE id % 32 <> 6), 0) + (SELECT COUNT(*) FROM main.errand_job WHERE state = 3) + (SELECT COUNT(*)` + fromUncounted + `),
COALESCE(SUM(n) FILTER (WHERE id % 32 = 6), 0) FROM main.errand_number WHERE id >= 32 AND id % 32 IN (1, 2, 6, 7)`
	sqlCountRunning = `SELECT lane, COUNT(*) FROM main.errand_job WHERE state = 3 GROUP BY lane`

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
	// perLease is what the outcome of one job may take that brings nothing, of the log and
	// the database together. Those of 200 jobs that had failed, each on pages of its own, took
	// 9 KB each; but on a busy machine each may have a commit of its own, of up to a dozen
	// pages. roomAgain is when to ask for more after none could be leased for that.
	perLease  = 64 << 10
	roomAgain = 100 * time.Millisecond
	tellRoom  = time.Minute
	// What an outcome brings beside is a result, jobs that follow, or rows of the application.
	// Of a lane the most counts that one has brought lately, from leastBrought up to
	// mostBrought, the most that an outcome can bring without rows: after broughtFor half of it, then a quarter.
	leastBrought = 2 << 10
	mostBrought  = 5 << 18
	broughtFor   = time.Minute
)

// marks is what a Store knows of how full its disk is.
type marks struct {
	low   atomic.Bool  // the disk is nearly full
	cut   atomic.Bool  // jobs wait for the room that the log has
	blind atomic.Int64 // work that the application has added since free space was read

	mu      sync.Mutex
	most    int64 // jobs that had not ended, or were dead, when next was the key of the next job
	next    int64
	brought map[int64]brought // by lane
	told    time.Time         // when it was logged last that jobs wait for room
}

// brought is what an outcome has brought.
type brought struct {
	bytes int64
	at    time.Time
}

// now returns how much of it still counts.
func (b brought) now() int64 {
	bytes := b.bytes >> min(time.Since(b.at)/broughtFor, 62)
	if bytes < leastBrought {
		return 0
	}
	return bytes
}

// brings notes what an outcome of a lane has brought, or was to bring, while the disk is
// nearly full.
func (m *marks) brings(lane, bytes int64) {
	if bytes < leastBrought || !m.low.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.brought == nil {
		m.brought = map[int64]brought{}
	}
	if bytes = min(bytes, mostBrought); bytes >= m.brought[lane].now() {
		m.brought[lane] = brought{bytes, time.Now()}
	}
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

// bringing is brings for a job that runs.
func (t *tx) bringing(l storage.Lease, bytes int) error {
	m := &t.store.marks
	if bytes < leastBrought || !m.low.Load() {
		return nil
	}
	var lane, options int64
	err := t.row(sqlLaneOfJob, []any{l.Key}, &lane, &options)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	m.brings(lane, int64(bytes))
	return err
}

// space is the room that there is for a transaction.
type space struct {
	pages int64 // bytes that the transaction has yet to write to the log
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

// fits reports whether the transaction can be written, and the log be moved then whatever comes,
// with so many bytes left beside. With each commit for which that holds it holds that the database can grow by
// all that is in the log: else the log could never be moved, and would keep the room for itself.
func (r *space) fits(beside int64) bool { return 2*r.grows+r.pages+beside <= r.free }

// ends reports whether a transaction fits that ends work, or keeps it. One by which the database
// grows leaves the room to write another one like it: what is free inside the database is no
// room for the log.
func (r *space) ends() bool {
	if r.grows == 0 {
		return r.fits(0)
	}
	return r.fits(max(leastInTransit, r.pages))
}

// errFull is what a transaction returns that does not fit.
func (r *space) errFull() error {
	return fmt.Errorf("%w: %d bytes are free, up to %d are needed for %d bytes to be written, and the log to be moved: make room on the disk, or delete jobs that have ended",
		storage.ErrFull, r.free, 2*r.grows+r.pages+max(leastInTransit, r.pages), r.pages)
}

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
	enough := func(live int64) bool { return left >= 0 && left+r.spare >= r.kept(live) && r.fits(0) }
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

// mayLease returns [storage.ErrFull] for a transaction that leases jobs if the log has no room
// for their outcomes. While the ballast is given up nothing else can make room: then a single one will do.
func (s *Store) mayLease(r *space) error {
	if r.left() >= 0 && r.fits(0) || s.ballast.spent() && r.fits(perLease) {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, up to %d are needed to lease jobs: make room on the disk",
		storage.ErrFull, r.free, max(r.free-r.left(), 2*r.grows+r.pages+perLease))
}

// leaseRoom is the room for the outcomes of jobs that are to be leased; nil: for those of any.
type leaseRoom struct {
	*marks
	log   int64 // bytes of the log and the database, for what each outcome takes
	all   int64 // the same, with what is free in the database, for what outcomes bring
	left  int64 // bytes that are free for the database and the log
	spare int64 // bytes that are free in the database
	idle  bool  // no job runs: there is room for one
	after bool  // what the transaction has written comes first: there is room for none beside
	short bool  // jobs were left for lack of room
}

// roomFor returns the room for the outcomes of jobs that are to be leased, so that those which
// run then have room to end: their outcomes may come all at once. Half of the ballast is room
// for them.
func (t *tx) roomFor() (*leaseRoom, error) {
	s := t.store
	if !s.marks.low.Load() {
		return nil, nil
	}
	r, ok, err := s.space(t)
	if err != nil || !ok {
		return nil, err
	}
	if r.pages, err = t.stmts.dirty(); err != nil {
		return nil, err
	}
	left := r.free - 2*r.grows - r.pages // the log cannot begin anew while somebody reads from it
	m := &leaseRoom{marks: &s.marks, log: left, all: left + r.spare - leastInTransit, left: left, spare: r.spare, idle: true}
	m.after = r.pages > 0 && left < 2*perLease
	if s.ballast.gone.Load() {
		m.log = min(left, left+r.spare-s.ballast.size/2)
	} else {
		m.log += s.ballast.size / 2
	}
	var lane, n int64
	err = t.each(sqlCountRunning, nil, []any{&lane, &n}, func() {
		b := m.of(lane)
		m.log, m.all, m.idle = m.log-n*(perLease+b), m.all-n*2*b, false
	})
	return m, err
}

// of returns what outcomes of a lane bring.
func (m *leaseRoom) of(lane int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.brought[lane].now()
}

// none reports whether there is no room for any job.
func (m *leaseRoom) none() bool { return m != nil && (m.after || m.log < perLease && !m.idle) }

// has reports whether there is room for a job of a lane.
func (m *leaseRoom) has(lane int64) bool {
	if m == nil {
		return true
	}
	b := m.of(lane)
	ok := m.log >= perLease+b && (b == 0 || m.all >= 2*b)
	if m.idle && !ok { // a single one can have all the room that there is, see space.ends
		ok = b == 0 || m.left >= perLease+b && (m.spare >= 2*b || m.left >= perLease+leastInTransit+4*b)
	}
	m.short = m.short || !ok
	return ok
}

// takes is has, and counts the job if there is room.
func (m *leaseRoom) takes(lane int64) bool {
	if m == nil {
		return true
	}
	ok := m.has(lane)
	if ok {
		b := m.of(lane)
		m.log, m.all, m.idle = m.log-perLease-b, m.all-2*b, false
	}
	return ok
}

// passOver passes over a lane for which there is no room, until the lineup is put back.
func (m *leaseRoom) passOver(l *lineup, b *berth) {
	heap.Remove(b.group, b.at)
	l.passed.berths = append(l.passed.berths, b)
}

// leaseBounded is lease, of no more jobs than there is room for. If there may be others
// they are kept back for a moment.
func (t *tx) leaseBounded(x *storage.Exchange, at, until int64, late *tooLate, bytes int) (out []storage.Leased, kept int64, err error) {
	room, err := t.roomFor()
	if err != nil {
		return nil, 0, err
	}
	if !room.none() {
		out, kept, err = t.lease(x, at, until, late, bytes, room)
	} else if x.Wanted() > 0 {
		room.short = true
	}
	if err == nil && room != nil && room.short && len(out) == 0 {
		t.store.marks.cut.Store(true)
		if kept = at; !room.after {
			room.tell(t.store)
			kept += roomAgain.Microseconds()
		}
	}
	return out, kept, err
}

// tell logs, once a minute, that jobs wait for room, and none runs by whose end there would be any.
func (m *leaseRoom) tell(s *Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.idle && now.Sub(m.told) >= tellRoom {
		m.told = now
		s.opts.Logger.Error("errand: the disk is full: jobs wait until there is room for their outcomes: delete jobs that have ended, or make room on the disk",
			"file", s.path, "bytes", m.left)
	}
}

// reserve returns [storage.ErrFull] if a transaction would take room that is kept for
// others: jobs can be leased when none can be added, and what ends work has all the
// room with which the log can be moved.
func (w *writer) reserve(t *tx, batch []*request) error {
	work := 0
	for _, r := range batch {
		work += r.work
	}
	if !w.marks.low.Load() && w.marks.blind.Add(int64(work)) <= 2*maxWork {
		return nil
	}
	if w.measure(); !w.marks.low.Load() {
		return nil
	}
	r, ok, err := w.space(t)
	if err == nil && ok {
		r.pages, err = t.stmts.dirty()
	}
	switch {
	case err != nil || !ok:
		return err
	case slices.ContainsFunc(batch, (*request).adds):
		return w.mayAdd(t, &r, t.meta.nextJob)
	case len(w.stmts.leased) > 0:
		return w.mayLease(&r)
	case !r.ends():
		return r.errFull()
	}
	return nil
}

// mayCommit returns [storage.ErrFull] for a transaction of Tx if the disk is nearly full and the
// log could not be moved after it. One that ends or keeps work may use the room of the ballast.
func (s *Store) mayCommit(own *ownTx, app *statements, now time.Time) error {
	if now.Sub(s.told) >= tellEach || s.marks.low.Load() {
		s.measure()
	}
	if !s.marks.low.Load() {
		return nil
	}
	return app.hold(func() error {
		r, ok, err := s.space(app)
		if err == nil && ok {
			r.pages, err = app.dirty()
		}
		if err != nil || !ok || r.pages == 0 {
			return translate(err)
		}
		if !own.ends {
			if r.fits(0) {
				return nil
			}
			return r.errFull()
		}
		for _, lane := range own.lanes { // which of them the pages are for only the application knows
			s.marks.brings(lane, r.pages/int64(len(own.lanes)))
		}
		return s.mayEnd(&r)
	})
}

// mayEnd returns [storage.ErrFull] for what ends or keeps work in a transaction of the application,
// if there is no room for it with that of the ballast either.
func (s *Store) mayEnd(r *space) error {
	if !r.ends() {
		s.ballast.release()
		r.free, _ = freeSpace(s.path)
	}
	if !r.ends() {
		return r.errFull()
	}
	return nil
}

// endInTx notes that a transaction of the application ends a job, or keeps where that has got to,
// and what it brings. One of the application's own is refused here if there is no room: of its
// commit nobody hears before.
func (s *Store) endInTx(t *tx, in any, l storage.Lease, bytes int) error {
	own := s.own.Load()
	mine := own != nil && own.tx == in
	if mine {
		own.ends = true
	}
	if !s.marks.low.Load() {
		return nil
	}
	if mine {
		var lane, options int64
		err := t.row(sqlLaneOfJob, []any{l.Key}, &lane, &options)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case own.lanes == nil:
			own.lanes = map[int64]int64{}
		}
		own.lanes[l.Key] = lane
		return err
	}
	r, ok, err := s.space(t)
	if err != nil || !ok {
		return err
	}
	r.pages = int64(bytes)
	r.takes(r.pages)
	return s.mayEnd(&r)
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
	r.pages = int64(work) * jobBytes
	r.takes(r.pages)
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
	if s.listeners.free.note(queue, percent, nearMarks) == 0 {
		return
	}
	attrs := []any{"free", free, "min_free", least}
	if queue != "" {
		attrs = append([]any{"queue", queue}, attrs...)
	}
	s.opts.Logger.Warn("errand: there is hardly more free space than new jobs need", attrs...)
}
