package sqlite

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlLanesOf = `SELECT lane FROM main.errand_lane WHERE queue = ?1`
	// The states of jobs that wait, and their bytes.
	sqlLaneUse = `SELECT COALESCE(SUM(CASE WHEN id % 32 = 16 THEN 0 ELSE n END), 0), COALESCE(SUM(CASE WHEN id % 32 = 16 THEN n ELSE 0 END), 0)
FROM main.errand_number WHERE id >= ?1 * 32 + 1 AND id <= ?1 * 32 + 16 AND id % 32 IN (1, 2, 7, 16)`
	sqlUse = `SELECT COALESCE(SUM(CASE WHEN id % 32 = 16 THEN 0 ELSE n END), 0), COALESCE(SUM(CASE WHEN id % 32 = 16 THEN n ELSE 0 END), 0)
FROM main.errand_number WHERE id >= 32 AND id % 32 IN (1, 2, 7, 16)`
	sqlNumber = `SELECT n FROM main.errand_number WHERE id = ?1`
)

// capUse is the use of a queue or of the database, see [storage.WhenFull].
type capUse struct{ jobs, bytes int64 }

func (u capUse) plus(v capUse, sign int64) capUse {
	return capUse{u.jobs + sign*v.jobs, u.bytes + sign*v.bytes}
}

// counted is how many bytes the jobs count for.
func (u capUse) counted() int64 { return u.bytes + u.jobs*storage.JobOverhead }

// limits are the caps of a queue or of the database; zero: none.
type limits struct {
	jobs, bytes int64
	full        storage.WhenFull
}

func limitsOf(s storage.Settings) limits {
	return limits{s[storage.SettingMaxJobs], s[storage.SettingMaxBytes], storage.WhenFull(s[storage.SettingWhenFull])}
}

func (l limits) any() bool { return l.jobs > 0 || l.bytes > 0 }

func (l limits) fit(u capUse) bool {
	return (l.jobs == 0 || u.jobs <= l.jobs) && (l.bytes == 0 || u.counted() <= l.bytes)
}

// percent returns how much of the caps is in use.
func (l limits) percent(u capUse) (most int64) {
	if l.jobs > 0 {
		most = u.jobs * 100 / l.jobs
	}
	if l.bytes > 0 {
		most = max(most, int64(float64(u.counted())*100/float64(l.bytes)))
	}
	return most
}

// capScope is a queue with a cap, or the database, whose name is empty.
type capScope struct {
	queue string
	base  capUse         // of what the numbers count
	lanes map[int64]bool // whether lanes are of the queue, as far as was asked
}

// capScopes are those whose use a connection knows.
type capScopes map[string]*capScope

// scope returns a scope with its use as the numbers have it.
func (t *tx) scope(queue string) (*capScope, error) {
	if s := t.scopes[queue]; s != nil {
		return s, nil
	}
	s := &capScope{queue: queue, lanes: map[int64]bool{}}
	if queue == "" {
		if err := t.row(sqlUse, nil, &s.base.jobs, &s.base.bytes); err != nil {
			return nil, err
		}
	} else {
		lanes, err := t.lanesOf(queue)
		if err != nil {
			return nil, err
		}
		for _, lane := range lanes {
			var u capUse
			if err := t.row(sqlLaneUse, []any{lane}, &u.jobs, &u.bytes); err != nil {
				return nil, err
			}
			s.base = s.base.plus(u, 1)
		}
	}
	if t.scopes == nil {
		t.scopes = capScopes{}
		if t.inTx {
			t.stmts.scopes = t.scopes // for the next transactions too
		}
	}
	t.scopes[queue] = s
	return s, nil
}

// lanesOf returns the lanes of a queue.
func (t *tx) lanesOf(queue string) (lanes []int64, err error) {
	if !t.inTx { // an earlier call in a transaction of the application may have made some
		var lane int64
		err = t.each(sqlLanesOf, []any{queue}, []any{&lane}, func() { lanes = append(lanes, lane) })
		return lanes, err
	}
	lanes = t.store.cache.lanesOf(queue)
	for name, lane := range t.lanes {
		if _, ok := t.store.cache.lane(name); !ok && name.Queue == queue {
			lanes = append(lanes, lane)
		}
	}
	return lanes, nil
}

func (c *cache) lanesOf(queue string) (lanes []int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for name, lane := range c.lanes {
		if name.Queue == queue {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// has reports whether a lane is of the scope.
func (s *capScope) has(t *tx, lane int64) bool {
	if s.queue == "" {
		return true
	}
	of, ok := s.lanes[lane]
	if !ok {
		name, err := t.laneName(lane)
		of = err == nil && name.Queue == s.queue
		s.lanes[lane] = of
	}
	return of
}

// usedMore is what the transaction has changed in the use of a scope.
func (t *tx) usedMore(s *capScope) (u capUse) {
	for k, n := range t.counts {
		switch k.state {
		case scheduled, ready, blocked:
			if s.has(t, k.lane) {
				u.jobs += n
			}
		case bytesNumber:
			if s.has(t, k.lane) {
				u.bytes += n
			}
		}
	}
	return u
}

// use is the use of a scope as the transaction has left it.
func (t *tx) use(s *capScope) capUse { return s.base.plus(t.usedMore(s), 1) }

// enqueueOrRefuse is enqueue. If it has changed nothing, for lack of room or since a key
// is held, the error is an answer to the call: it does not make the other calls of the
// batch run again.
func (t *tx) enqueueOrRefuse(now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, refused, err error) {
	next, evicted, keys := t.meta.nextJob, len(t.evicted), t.keysWritten
	m, err := t.newRoom(now)
	if err != nil {
		return nil, nil, err
	}
	defer m.close()
	out, err = t.enqueue(now, jobs, m)
	replaces := func(j storage.NewJob) bool { return j.Conflict.Replaces() }
	if (errors.Is(err, storage.ErrQueueFull) || errors.Is(err, storage.ErrDuplicate)) &&
		t.meta.nextJob == next && len(t.evicted) == evicted && t.keysWritten == keys && (len(jobs) == 1 || !slices.ContainsFunc(jobs, replaces)) {
		return nil, err, nil
	}
	return out, nil, err
}

// room makes room for the jobs of a call. One that is nil has room for all.
type room struct {
	*tx
	all      laneSettings
	at       time.Time
	first    int64          // key of the first job of the call
	named    map[int64]bool // keys of others that the answers of the call name
	looked   int            // jobs that were evicted or passed over
	evictors map[string]*evictor
}

// newRoom returns the room for the jobs of a call, nil if there are no settings.
func (t *tx) newRoom(now time.Time) (*room, error) {
	all, err := t.settings()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &room{tx: t, all: all, at: now, first: t.meta.nextJob}, nil
}

// make makes room for a job, or returns a [*storage.QueueFullError] and has changed
// nothing.
func (m *room) make(r *jobRow) error {
	if r.Queue == storage.BulkQueue {
		return nil
	}
	var of [2]limits
	scopes := [2]string{r.Queue, ""}
	any := false
	for i, queue := range scopes {
		of[i] = limitsOf(m.all[storage.Lane{Queue: queue}])
		any = any || of[i].any()
	}
	lacks := m.minFree(r)
	if !any && lacks == nil {
		return nil
	}
	if r.UniqueKey.Valid {
		if k, err := m.key(r.UniqueKey.String); err != nil || k.Holder.Job != 0 {
			return err // a duplicate needs no room
		}
	}
	if lacks != nil {
		return lacks
	}
	own := capUse{1, int64(len(r.Args) + len(r.Headers))}
	var victims []*jobRow
	for i, queue := range scopes {
		if !of[i].any() {
			continue
		}
		s, err := m.scope(queue)
		if err != nil {
			return err
		}
		was := m.use(s)
		u := was.plus(own, 1)
		for _, v := range victims { // all are of the queue, which comes first
			u = u.plus(capUse{1, v.Size}, -1)
		}
		if !of[i].fit(own) {
			return full(queue, of[i], was, own)
		}
		for !of[i].fit(u) {
			v, err := m.next(s, of[i].full, r.Priority, victims)
			if err != nil {
				return err
			}
			if v == nil {
				return full(queue, of[i], was, own)
			}
			victims = append(victims, v)
			u = u.plus(capUse{1, v.Size}, -1)
		}
	}
	for _, v := range victims {
		if err := m.evict(v); err != nil {
			return err
		}
	}
	return nil
}

// keep has a job stay that an answer of the call names. A room that is nil evicts none.
func (m *room) keep(id storage.ID) {
	if m == nil || id.IsZero() {
		return
	}
	if m.named == nil {
		m.named = map[int64]bool{}
	}
	m.named[id.Key()] = true
}

func full(queue string, l limits, u, own capUse) *storage.QueueFullError {
	return &storage.QueueFullError{
		Queue: queue, MaxJobs: l.jobs, MaxBytes: l.bytes, Jobs: u.jobs, Bytes: u.counted(), Size: own.counted(), WhenFull: l.full,
	}
}

// capMarks are the parts of a cap, in percent, at which the log warns, and nearMarks those of what has
// one text for all. It warns of one again when the use has been below it by capSlack.
var (
	capMarks  = []int64{80, 95, 100}
	nearMarks = capMarks[:2]
)

const capSlack = 10

// capLog is what was said of caps.
type capLog struct {
	mu    sync.Mutex
	marks map[string]int64 // of scopes that are over one
}

// note takes the use of a scope, and returns which of the marks to warn of, 0 for none.
func (l *capLog) note(queue string, percent int64, marks []int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, now := l.marks[queue], int64(0)
	for _, m := range marks {
		if percent >= m || was >= m && percent >= m-capSlack {
			now = m
		}
	}
	if now != was {
		if l.marks == nil {
			l.marks = map[string]int64{}
		}
		l.marks[queue] = now
	}
	if now <= was {
		return 0
	}
	return now
}

// flushCaps notes what the transaction means for caps, to be told after the commit.
func (t *tx) flushCaps() error {
	if len(t.evicted) > 0 {
		if err := t.flushEvicted(); err != nil {
			return err
		}
	}
	if len(t.scopes) == 0 {
		return nil
	}
	all, err := t.settings()
	if err != nil {
		return err
	}
	for queue, s := range t.scopes {
		l := limitsOf(all[storage.Lane{Queue: queue}])
		if !l.any() {
			continue
		}
		u := t.use(s)
		t.after = append(t.after, func() { t.store.warnOfUse(queue, l, u) })
	}
	return nil
}

// warnOfUse warns if the use of a cap has come to a mark.
func (s *Store) warnOfUse(queue string, l limits, u capUse) {
	percent := l.percent(u)
	if s.listeners.caps.note(queue, percent, capMarks) == 0 {
		return
	}
	attrs := []any{"percent", percent, "jobs", u.jobs, "bytes", u.counted()}
	if l.jobs > 0 {
		attrs = append(attrs, "max_jobs", l.jobs)
	}
	if l.bytes > 0 {
		attrs = append(attrs, "max_bytes", l.bytes)
	}
	attrs = append(attrs, "when_full", l.full.String())
	if queue != "" {
		attrs = append([]any{"queue", queue}, attrs...)
	}
	log := s.opts.Logger
	switch full := percent >= 100; {
	case queue == "" && full:
		log.Warn("errand: the file is full of jobs that wait", attrs...)
	case queue == "":
		log.Warn("errand: the file is almost full of jobs that wait", attrs...)
	case full:
		log.Warn("errand: a queue is full", attrs...)
	default:
		log.Warn("errand: a queue is almost full", attrs...)
	}
}
