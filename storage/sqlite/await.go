package sqlite

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// waits are the lanes of a group that were found without a token, so that an exchange
// looks at none of them before there may be one.
type waits struct {
	of    map[storage.Lane]*wait // by the queue or kind of the bucket
	ends  ends                   // of those that are closed
	backs backs                  // the same
	open  map[*wait]bool
}

// wait is the lanes that wait for a token of one bucket. While it is closed there is none
// at a time from since to until, unless one is given back. While it is open, there may be
// one, and the first of the lanes has gone back to its group to compete for it: once that
// is looked at, the next one follows.
type wait struct {
	bucket storage.Lane
	starts storage.Starts
	since  int64
	until  int64
	lanes  group  // of which only the order is used
	at     [2]int // in ends and backs; -1: it is open
}

// heap returns what has a lane in its order, or is to have it.
func (b *berth) heap() *group {
	if b.wait != nil {
		return &b.wait.lanes
	}
	return b.group
}

// waitFor has a lane that is in no order wait for a bucket, which has a token at until.
func (b *berth) waitFor(x *bucket, until int64) {
	ws := b.group.waits
	if ws == nil {
		ws = &waits{of: map[storage.Lane]*wait{}, open: map[*wait]bool{}}
		b.group.waits = ws
	}
	w := ws.of[x.lane]
	if w == nil {
		w = &wait{bucket: x.lane, at: [2]int{-1, -1}}
		ws.of[x.lane] = w
	}
	w.starts = x.Starts
	b.wait = w
	heap.Push(&w.lanes, b)
	ws.close(w, until-x.Interval.Microseconds(), until)
}

// leave takes a lane out of the wait that it is in.
func (b *berth) leave() {
	if w := b.wait; w != nil {
		heap.Remove(&w.lanes, b.at)
		b.wait = nil
		if len(w.lanes.order) == 0 {
			b.group.waits.drop(w)
		}
	}
}

// close has a wait look for a token at until, or at a time before since.
func (ws *waits) close(w *wait, since, until int64) {
	w.since, w.until = since, until
	if w.at[0] >= 0 {
		heap.Fix(&ws.ends, w.at[0])
		heap.Fix(&ws.backs, w.at[1])
		return
	}
	delete(ws.open, w)
	heap.Push(&ws.ends, w)
	heap.Push(&ws.backs, w)
}

// drop forgets a wait that no lane is in.
func (ws *waits) drop(w *wait) {
	if w.at[0] >= 0 {
		heap.Remove(&ws.ends, w.at[0])
		heap.Remove(&ws.backs, w.at[1])
	} else {
		delete(ws.open, w)
	}
	delete(ws.of, w.bucket)
}

// wake opens the waits of a group in which there may be a token at a time.
func (ws *waits) wake(g *group, at int64) {
	if ws == nil {
		return
	}
	for len(ws.ends) > 0 && ws.ends[0].until <= at {
		ws.begin(g, ws.ends[0])
	}
	for len(ws.backs) > 0 && ws.backs[0].since > at {
		ws.begin(g, ws.backs[0])
	}
}

// begin opens a wait.
func (ws *waits) begin(g *group, w *wait) {
	heap.Remove(&ws.ends, w.at[0])
	heap.Remove(&ws.backs, w.at[1])
	ws.open[w] = true
	ws.follow(g, w.bucket)
}

// follow has the first lane compete that waits for a bucket, if that may have a token.
func (ws *waits) follow(g *group, bucket storage.Lane) {
	if ws == nil {
		return
	}
	if w := ws.of[bucket]; w != nil && w.at[0] < 0 {
		b := w.lanes.order[0]
		b.leave()
		heap.Push(g, b)
	}
}

// settle closes the waits that stayed open because the exchange had all the jobs that it
// wanted. The next exchange opens them again.
func (ws *waits) settle() {
	if ws == nil {
		return
	}
	for w := range ws.open {
		ws.close(w, math.MinInt64, math.MinInt64)
	}
}

// firstOf returns the wait that is over first, of those with a lane that takes reports
// true of, and such a lane; nil if there is none.
func (ws *waits) firstOf(takes func(*berth) bool) (first *wait, lane *berth) {
	if ws == nil {
		return nil, nil
	}
	var look func(i int)
	look = func(i int) {
		if i >= len(ws.ends) || first != nil && first.until <= ws.ends[i].until {
			return
		}
		w := ws.ends[i]
		if j := slices.IndexFunc(w.lanes.order, takes); j >= 0 {
			first, lane = w, w.lanes.order[j]
			return
		}
		look(2*i + 1)
		look(2*i + 2)
	}
	look(0)
	return first, lane
}

// restart ends the waits for buckets that are not as they were.
func (l *lineup) restart(s starts) {
	for _, g := range l.groups {
		if g.waits == nil {
			continue
		}
		for lane, w := range g.waits.of {
			for s[lane] != w.starts && len(w.lanes.order) > 0 {
				b := w.lanes.order[0]
				b.leave()
				heap.Push(g, b)
			}
		}
	}
}

// closedWaits calls f with the waits for a bucket that are closed, of all lineups.
func (t *tx) closedWaits(bucket storage.Lane, f func(ws *waits, w *wait)) {
	if t.stmts == nil {
		return
	}
	for _, l := range t.stmts.lineups.all {
		for _, g := range l.groups {
			if g.waits == nil {
				continue
			}
			if w := g.waits.of[bucket]; w != nil && w.at[0] >= 0 {
				f(g.waits, w)
			}
		}
	}
}

// comeBack says that tokens have come back into a bucket.
func (t *tx) comeBack(bucket storage.Lane) {
	t.closedWaits(bucket, func(ws *waits, w *wait) { ws.close(w, w.since, math.MinInt64) })
}

// taken says that tokens were taken from a bucket.
func (t *tx) taken(b *bucket, at time.Time) {
	until := micros(b.Next(at))
	t.closedWaits(b.lane, func(ws *waits, w *wait) {
		if w.until > math.MinInt64 { // else it is looked at next
			ws.close(w, until-b.Interval.Microseconds(), until)
		}
	})
}

// ends are waits, first the one that is over first: a [heap.Interface].
type ends []*wait

func (h ends) Len() int           { return len(h) }
func (h ends) Less(i, j int) bool { return h[i].until < h[j].until }
func (h ends) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at[0], h[j].at[0] = i, j
}

// Push adds one at the end.
func (h *ends) Push(x any) {
	w := x.(*wait)
	w.at[0] = len(*h)
	*h = append(*h, w)
}

// Pop takes the last one away.
func (h *ends) Pop() any {
	w := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	w.at[0] = -1
	return w
}

// backs are the same waits, first the one of which there is a token at the latest time
// before: a [heap.Interface].
type backs []*wait

func (h backs) Len() int           { return len(h) }
func (h backs) Less(i, j int) bool { return h[i].since > h[j].since }
func (h backs) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at[1], h[j].at[1] = i, j
}

// Push adds one at the end.
func (h *backs) Push(x any) {
	w := x.(*wait)
	w.at[1] = len(*h)
	*h = append(*h, w)
}

// Pop takes the last one away.
func (h *backs) Pop() any {
	w := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	w.at[1] = -1
	return w
}
