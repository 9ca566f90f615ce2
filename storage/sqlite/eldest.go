package sqlite

import (
	"container/heap"
	"database/sql"
	"errors"
	"slices"

	"github.com/errandq/errand/storage"
)

// sqlEldest is the first ready job of each lane and priority, by steps through the index.
const sqlEldest = `WITH RECURSIVE first(id) AS (
SELECT id FROM (SELECT id FROM main.errand_job WHERE state = 2 ORDER BY lane, priority DESC, due_at, id LIMIT 1)
UNION ALL SELECT COALESCE(
(SELECT j.id FROM main.errand_job j WHERE j.state = 2 AND j.lane = c.lane AND j.priority < c.priority ORDER BY j.priority DESC, j.due_at, j.id LIMIT 1),
(SELECT j.id FROM main.errand_job j WHERE j.state = 2 AND j.lane > c.lane ORDER BY j.lane, j.priority DESC, j.due_at, j.id LIMIT 1))
FROM first f CROSS JOIN main.errand_job c NOT INDEXED WHERE c.id = f.id)
SELECT lane, priority, due_at, j.id FROM first f CROSS JOIN main.errand_job j NOT INDEXED WHERE j.id = f.id`

const sqlNextReady = `SELECT due_at, id FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at = ?3 AND id >= ?4
UNION ALL SELECT due_at, id FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at > ?3
ORDER BY due_at, id LIMIT 1`

// rung is a priority of a lane.
type rung struct {
	victim        // no ready job of them that the call may still evict is due before it
	was    victim // no ready job of them at all is due before it
	sure   int64  // the call in which victim was a job
	moved  bool   // the call has looked further than was
	at     int    // in order, or -1
}

// eldest is the ready jobs of a scope in the order in which they go. A connection
// remembers it as long as no other one writes: so a call looks only at lanes from which it
// evicts, and at those in which a job has become ready. A lease leaves it as it is, for
// the next call to find out.
type eldest struct {
	lowest bool
	order  []*rung // a heap of those that may have a ready job
	lanes  map[int64][]*rung
	fresh  map[int64]bool // lanes in which a job has become ready
	moved  []*rung
	call   int64 // rises with each call
}

// eldests are those that a connection remembers, by the name of the queue.
type eldests map[string]*eldest

// stir says that a job has become ready in a lane.
func (all eldests) stir(t *tx, lane int64) {
	if len(all) == 0 {
		return
	}
	if e := all[""]; e != nil {
		e.fresh[lane] = true
	}
	name, err := t.laneName(lane)
	if err != nil {
		clear(all) // of which one may have it
	} else if e := all[name.Queue]; e != nil {
		e.fresh[lane] = true
	}
}

// eldest returns that of a scope.
func (t *tx) eldest(s *capScope, when storage.WhenFull) (*eldest, error) {
	lowest := when == storage.EvictLowest
	if t.inTx {
		if e := t.stmts.lineups.eldests[s.queue]; e != nil && e.lowest == lowest {
			return e, nil
		}
	}
	e := &eldest{lowest: lowest, lanes: map[int64][]*rung{}, fresh: map[int64]bool{}, call: 1}
	if s.queue != "" {
		lanes, err := t.lanesOf(s.queue)
		if err != nil {
			return nil, err
		}
		for _, lane := range lanes {
			e.fresh[lane] = true
		}
	} else {
		var v victim
		err := t.each(sqlEldest, nil, []any{&v.lane, &v.priority, &v.due, &v.id}, func() { e.add(v) })
		if err != nil {
			return nil, err
		}
	}
	if t.inTx {
		if t.stmts.lineups.eldests == nil {
			t.stmts.lineups.eldests = eldests{}
		}
		t.stmts.lineups.eldests[s.queue] = e
	}
	return e, nil
}

// add adds the first ready job of a lane and priority.
func (e *eldest) add(v victim) {
	i := slices.IndexFunc(e.lanes[v.lane], func(r *rung) bool { return r.priority == v.priority })
	if i < 0 {
		r := &rung{victim: v, was: v, sure: e.call}
		e.lanes[v.lane] = append(e.lanes[v.lane], r)
		heap.Push(e, r)
		return
	}
	r := e.lanes[v.lane][i]
	if r.was = v; !r.moved {
		r.victim, r.sure = v, e.call
		heap.Fix(e, r.at)
	}
}

// refresh looks at the lanes in which jobs have become ready.
func (e *eldest) refresh(t *tx) error {
	for lane := range e.fresh {
		all, err := priorities(t, lane)
		if err != nil {
			return err
		}
		for _, p := range all {
			e.add(victim{lane, p.priority, p.due, p.id})
		}
	}
	clear(e.fresh)
	return nil
}

// first returns the first job that is left, and false if there is none, or none up to a
// priority. It is the same until skip is called.
func (e *eldest) first(t *tx, priority int) (victim, bool, error) {
	if err := e.refresh(t); err != nil {
		return victim{}, false, err
	}
	for len(e.order) > 0 {
		r := e.order[0]
		if e.lowest && r.priority > priority {
			break
		}
		if r.sure == e.call {
			return r.victim, true, nil
		}
		err := t.row(sqlNextReady, []any{r.lane, r.priority, r.due, r.id}, &r.due, &r.id)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			heap.Pop(e)
			if !r.moved {
				e.forget(r)
			}
		case err != nil:
			return victim{}, false, err
		default:
			r.sure = e.call
			if !r.moved {
				r.was = r.victim
			}
			heap.Fix(e, 0)
		}
	}
	return victim{}, false, nil
}

// skip has the call look further than the first job.
func (e *eldest) skip() {
	r := e.order[0]
	if !r.moved {
		r.moved = true
		e.moved = append(e.moved, r)
	}
	r.id++
	r.sure = 0
	heap.Fix(e, 0)
}

// rest ends a call: the next one begins at the first jobs again, and is sure of none, as
// they may be leased in between.
func (e *eldest) rest() {
	e.call++
	for _, r := range e.moved {
		r.victim, r.moved = r.was, false
		if r.at < 0 {
			heap.Push(e, r)
		} else {
			heap.Fix(e, r.at)
		}
	}
	e.moved = e.moved[:0]
}

// forget drops a priority of which no job is ready.
func (e *eldest) forget(r *rung) {
	left := slices.DeleteFunc(e.lanes[r.lane], func(other *rung) bool { return other == r })
	if e.lanes[r.lane] = left; len(left) == 0 {
		delete(e.lanes, r.lane)
	}
}

// Len implements [heap.Interface], as the next four do.
func (e *eldest) Len() int { return len(e.order) }

// Less is the order of eviction.
func (e *eldest) Less(i, j int) bool {
	return e.order[i].compare(e.order[j].victim, e.lowest) < 0
}

// Swap swaps two.
func (e *eldest) Swap(i, j int) {
	e.order[i], e.order[j] = e.order[j], e.order[i]
	e.order[i].at, e.order[j].at = i, j
}

// Push adds one at the end.
func (e *eldest) Push(x any) {
	r := x.(*rung)
	r.at = len(e.order)
	e.order = append(e.order, r)
}

// Pop takes the last one away.
func (e *eldest) Pop() any {
	n := len(e.order) - 1
	r := e.order[n]
	e.order[n] = nil
	e.order, r.at = e.order[:n], -1
	return r
}
