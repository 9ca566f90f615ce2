package sqlite

import (
	"container/heap"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// As sqlOldest, of one lane.
	sqlOldestOf = `WITH RECURSIVE top(priority) AS (
SELECT MAX(priority) FROM main.errand_job WHERE state = 2 AND lane = ?1
UNION ALL SELECT (SELECT priority FROM main.errand_job j WHERE state = 2 AND j.lane = ?1 AND j.priority < top.priority
ORDER BY priority DESC LIMIT 1) FROM top WHERE priority IS NOT NULL)
SELECT MIN((SELECT due_at FROM main.errand_job j WHERE state = 2 AND j.lane = ?1 AND j.priority = top.priority ORDER BY due_at LIMIT 1))
FROM top WHERE priority IS NOT NULL`
)

// keepBack has nothing leased at a time of the lanes whose wants keep it back. It
// returns when the first of these may be leased from if nothing happens before, 0 if
// there is none.
func (t *tx) keepBack(l *lineup, at int64) (next int64, err error) {
	for _, g := range l.groups {
		if g.kept == nil {
			continue
		}
		want := &l.wants[g.wants[0]]
		for _, b := range slices.Concat(g.order, g.kept.order) {
			until, err := t.keptUntil(b.lane, want, at)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				l.empty(b)
			case err != nil:
				return 0, err
			case until > at:
				b.moveTo(g.kept)
				next = earlier(next, until)
			default:
				b.moveTo(g)
			}
		}
	}
	return next, nil
}

// keptUntil returns until when the jobs of a lane are kept back, or a time that is not
// after at; [sql.ErrNoRows] if none is ready. The number of ready jobs is kept, so that
// no job is looked at if there are enough.
func (t *tx) keptUntil(lane int64, want *storage.Want, at int64) (int64, error) {
	var stored int64
	err := t.row(sqlNumber, []any{lane*laneNumbers + int64(ready)}, &stored)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if stored+t.counts[laneState{lane, ready}] >= int64(want.Min) {
		return at, nil
	}
	var due sql.Null[int64]
	if err := t.row(sqlOldestOf, []any{lane}, &due); err != nil {
		return 0, err
	}
	if !due.Valid {
		return 0, sql.ErrNoRows
	}
	return due.V + int64((want.Wait+time.Microsecond-1)/time.Microsecond), nil
}

// moveTo puts a lane that is in the order of its group into that of another.
func (b *berth) moveTo(g *group) {
	if b.group == g {
		return
	}
	heap.Remove(b.group, b.at)
	b.group = g
	heap.Push(g, b)
}

// earlier returns the earlier of two times; 0 stands for never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// passed are the lanes that were passed over for lack of room in their queues.
type passed struct {
	any    bool           // a want has an Each
	taken  map[string]int // jobs of each queue
	berths []*berth       // in no order meanwhile
}

// next is first, but passes over the lanes of queues from which wants take no more, and
// those without tokens.
func (l *lineup) next(wants []storage.Want, left []int, k *tokens) (b *berth, want int, err error) {
	for {
		b, want = l.first(left)
		if b == nil || !l.passed.any && k == nil {
			return b, want, nil
		}
		if passed, err := k.pass(b); err != nil {
			return nil, 0, err
		} else if passed {
			continue
		}
		if !l.passed.any {
			return b, want, nil
		}
		for _, i := range b.group.wants {
			if left[i] > 0 && wants[i].HasRoom(b.name.Queue, l.passed.taken[b.name.Queue]) {
				return b, i, nil
			}
		}
		heap.Remove(b.group, b.at)
		l.passed.berths = append(l.passed.berths, b)
	}
}

// takesMore reports whether another job of a lane would count for a want.
func (l *lineup) takesMore(b *berth, wants []storage.Want, left []int) bool {
	return slices.ContainsFunc(b.group.wants, func(i int) bool {
		return left[i] > 0 && wants[i].HasRoom(b.name.Queue, l.passed.taken[b.name.Queue])
	})
}

// took notes that a job of a lane is leased.
func (l *lineup) took(b *berth) {
	if !l.passed.any {
		return
	}
	if l.passed.taken == nil {
		l.passed.taken = map[string]int{}
	}
	l.passed.taken[b.name.Queue]++
}

// putBack ends a series of next.
func (l *lineup) putBack() {
	for _, b := range l.passed.berths {
		l.put(b)
	}
	clear(l.passed.berths)
	l.passed.berths = l.passed.berths[:0]
	clear(l.passed.taken)
}
