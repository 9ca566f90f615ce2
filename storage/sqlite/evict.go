package sqlite

import (
	"cmp"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlNextScheduled = `SELECT due_at, id, lane, priority FROM main.errand_job WHERE state = 1 AND due_at = ?1 AND id > ?2
UNION ALL SELECT due_at, id, lane, priority FROM main.errand_job WHERE state = 1 AND due_at > ?1
ORDER BY due_at, id LIMIT 100`
	sqlHeldForever = `SELECT COUNT(*) FROM main.errand_unique WHERE key = ?1 AND slot = 0 AND job = ?2 AND until = 9223372036854775807`
)

const (
	// evictLimit is how many jobs a call looks at to make room, and evictSearch how many
	// scheduled jobs it looks for them among.
	evictLimit  = 1000
	evictSearch = 10_000
)

// scheduledPage is the LIMIT of sqlNextScheduled.
const scheduledPage = 100

// evictedNumber is the number of a lane that says how many of its jobs were evicted.
const evictedNumber = 21

// victim is a job that waits, and the first of its lane and priority to go.
type victim struct {
	lane     int64
	priority int
	due, id  int64
}

// compare compares victims by which goes first.
func (c victim) compare(o victim, lowest bool) int {
	if lowest {
		if by := cmp.Compare(c.priority, o.priority); by != 0 {
			return by
		}
	}
	return cmp.Or(cmp.Compare(c.due, o.due), cmp.Compare(c.id, o.id))
}

// evictor returns the jobs of a scope in the order in which they go.
type evictor struct {
	ready     *eldest
	scheduled []victim
	after     victim // the last of the scheduled ones that was looked at
	searched  int
	lowest    bool
}

func (m *room) evictor(s *capScope, when storage.WhenFull) (*evictor, error) {
	if e := m.evictors[s.queue]; e != nil {
		return e, nil
	}
	ready, err := m.eldest(s, when)
	if err != nil {
		return nil, err
	}
	if m.evictors == nil {
		m.evictors = map[string]*evictor{}
	}
	e := &evictor{ready: ready, lowest: when == storage.EvictLowest, after: victim{due: -math.MaxInt64}}
	m.evictors[s.queue] = e
	return e, nil
}

// close ends the call.
func (m *room) close() {
	if m == nil {
		return
	}
	for _, e := range m.evictors {
		e.ready.rest()
	}
}

// take returns the next victim up to a priority, nil if there is none.
func (m *room) take(s *capScope, e *evictor, priority int) (*victim, error) {
	c, ok, err := e.ready.first(m.tx, priority)
	if err != nil {
		return nil, err
	}
	if ok {
		e.ready.skip()
		return &c, nil
	}
	for (len(e.scheduled) == 0 || e.lowest) && e.searched < evictSearch {
		if err := m.search(s, e); err != nil {
			return nil, err
		}
	}
	if len(e.scheduled) == 0 || e.lowest && e.scheduled[0].priority > priority {
		return nil, nil
	}
	c = e.scheduled[0]
	e.scheduled = e.scheduled[1:]
	return &c, nil
}

// search looks at some more scheduled jobs.
func (m *room) search(s *capScope, e *evictor) error {
	var c victim
	n := 0
	err := m.each(sqlNextScheduled, []any{e.after.due, e.after.id}, []any{&c.due, &c.id, &c.lane, &c.priority}, func() {
		n++
		e.after = c
		if s.has(m.tx, c.lane) {
			e.scheduled = append(e.scheduled, c)
		}
	})
	if e.searched += n; n < scheduledPage {
		e.searched = evictSearch
	}
	if e.lowest && e.searched >= evictSearch {
		slices.SortFunc(e.scheduled, func(a, b victim) int { return a.compare(b, true) })
	}
	return err
}

// next returns the next job of a scope that can be evicted for one of a priority, besides
// these. It returns nil if there is none.
func (m *room) next(s *capScope, when storage.WhenFull, priority int, besides []*jobRow) (*jobRow, error) {
	if when == storage.Refuse {
		return nil, nil
	}
	e, err := m.evictor(s, when)
	if err != nil {
		return nil, err
	}
	for m.looked < evictLimit {
		c, err := m.take(s, e, priority)
		if c == nil || err != nil {
			return nil, err
		}
		if c.id >= m.first || m.named[c.id] || slices.ContainsFunc(besides, func(r *jobRow) bool { return r.ID == c.id }) {
			continue
		}
		r := &jobRow{}
		err = m.row(sqlJob, []any{c.id}, r.dest(&r.State)...)
		if errors.Is(err, sql.ErrNoRows) {
			continue // evicted for another job of the call
		}
		if err != nil {
			return nil, err
		}
		if r.State != ready && r.State != scheduled {
			continue
		}
		m.looked++
		if stays, err := m.stays(r); err != nil {
			return nil, err
		} else if stays {
			continue
		}
		if r.Beside {
			err = m.row(sqlPayloadSize, []any{r.ID}, &r.Size)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return nil, err
			}
		}
		return r, nil
	}
	return nil, nil
}

// stays reports whether a job cannot be evicted.
func (m *room) stays(r *jobRow) (bool, error) {
	if g, err := m.membership(&r.facts); err != nil || g.GroupKey != "" {
		return true, err
	}
	if !r.UniqueKey.Valid {
		return false, nil
	}
	var n int
	err := m.row(sqlHeldForever, []any{r.UniqueKey.String, r.ID}, &n)
	return n > 0, err
}

// evict deletes a job that waits.
func (m *room) evict(r *jobRow) error {
	if err := m.forgoKey(&r.facts); err != nil {
		return err
	}
	found, err := m.leave(&r.facts, &departure{at: micros(m.at)})
	if err != nil || !found {
		return err
	}
	name, err := m.laneName(r.Lane)
	m.counts[laneState{r.Lane, evictedNumber}]++
	m.evicted = append(m.evicted, evicted{m.at, storage.Evicted{ID: r.id(), Lane: name}})
	return err
}

// evicted is a job that a call has evicted, and the time that the call was given.
type evicted struct {
	at  time.Time
	job storage.Evicted
}

// flushEvicted notes what to tell of the jobs that the transaction has evicted.
func (t *tx) flushEvicted() error {
	for k, n := range t.counts {
		if k.state != evictedNumber && k.state != droppedNumber {
			continue
		}
		var total int64
		if err := t.row(sqlNumber, []any{k.lane*laneNumbers + int64(k.state)}, &total); err != nil {
			return err
		}
		mark := int64(1)
		for mark*10 <= total {
			mark *= 10
		}
		if total-n >= mark {
			continue
		}
		name, err := t.laneName(k.lane)
		if err != nil {
			return err
		}
		t.after = append(t.after, func() {
			attrs := []any{"queue", name.Queue, "kind", name.Kind, "total", total}
			if k.state == droppedNumber {
				t.store.opts.Logger.Warn("errand: dead letters were evicted, as there were too many", attrs...)
				return
			}
			t.store.opts.Logger.Warn("errand: jobs were evicted to make room", attrs...)
		})
	}
	t.after = append(t.after, func() { t.store.listeners.evictions.tell(t.evicted) })
	return nil
}

// evictions are the functions that NotifyEvicted has registered.
type evictions struct {
	registry[func(time.Time, []storage.Evicted)]
}

// tell calls them with the jobs of each call.
func (l *evictions) tell(all []evicted) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for len(all) > 0 && len(l.all) > 0 {
		at, n := all[0].at, 0
		var jobs []storage.Evicted
		for n < len(all) && all[n].at.Equal(at) {
			jobs = append(jobs, all[n].job)
			n++
		}
		all = all[n:]
		for _, f := range l.all {
			f(at, jobs)
		}
	}
}

// NotifyEvicted implements [storage.Examiner].
func (s *Store) NotifyEvicted(f func(at time.Time, jobs []storage.Evicted)) (cancel func()) {
	return s.listeners.evictions.add(f)
}
