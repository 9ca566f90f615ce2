package sqlite

import (
	"container/heap"
	"database/sql"
	"errors"
	"slices"

	"github.com/errandq/errand/storage"
)

// sqlFirstFrom skips from lane to lane, past those with nothing ready, and reads
// nothing but the index.
const sqlFirstFrom = `SELECT lane, priority, due_at, id FROM errand_job WHERE state = 2 AND lane >= ?1
ORDER BY lane, priority DESC, due_at, id LIMIT 1`

const (
	// mostLineups is how many sources a connection remembers.
	mostLineups = 16
	// fewLanes may simply be opened, to find out whether there is anything in
	// them.
	fewLanes = 4
	// readAhead is how many jobs of a lane are read at a time if a merge takes
	// fewer of each, and mostAhead how many are kept then, of all lanes.
	readAhead = 8
	mostAhead = 8192
)

// lineups is what a connection knows of the ready jobs of each source, so that
// an exchange looks only into lanes that it leases from: a worker may have
// thousands. It holds as long as nobody else writes.
type lineups struct {
	version uint32    // of the database, for which it holds
	all     []*lineup // the one used last comes first
	stirred int64     // the lane that was stirred last, and all know it
	ahead   map[int64]*ahead
	read    int // jobs that were read ahead
}

// ahead are the first ready jobs of a lane, which were read and not yet leased. A
// worker of many lanes takes few jobs of each at a time, and to begin a statement
// takes as long as to read several rows.
type ahead struct {
	jobs []jobRow
	next int  // of jobs; those before have been leased
	end  bool // there are none after jobs
}

func (a *ahead) left() int { return len(a.jobs) - a.next }

// aheadOf returns what was read ahead of a lane.
func (ls *lineups) aheadOf(lane int64) *ahead {
	a := ls.ahead[lane]
	if a == nil {
		if ls.ahead == nil {
			ls.ahead = map[int64]*ahead{}
		}
		a = &ahead{}
		ls.ahead[lane] = a
	}
	return a
}

// lineup is the lanes of a source, in the order of their first jobs.
type lineup struct {
	source storage.Source
	pauses int64    // of the cache that it was made from
	last   int64    // lanes up to this one have been looked at
	lanes  []berth  // by number
	order  []*berth // a heap of those that have or may have a ready job
	unsure int      // of them, those that may
}

// berth is the place of a lane. Its key is that of the first ready job, or of
// one that would come before.
type berth struct {
	lane int64
	key  place
	sure bool
	at   int   // in order, or -1
	head *head // while rows are being read
}

// place is that of a ready job in the common order.
type place struct {
	priority int
	due, id  int64
}

// before is the order in which ready jobs start.
func (p *place) before(o *place) bool {
	if p.priority != o.priority {
		return p.priority > o.priority
	}
	if p.due != o.due {
		return p.due < o.due
	}
	return p.id < o.id
}

// forget drops all that is known.
func (ls *lineups) forget() { ls.all, ls.ahead, ls.read, ls.stirred = nil, nil, 0, 0 }

// stir says that a job of a lane has become ready, or is no longer, without having
// been leased.
func (ls *lineups) stir(lane int64) {
	if lane == ls.stirred {
		return
	}
	if a := ls.ahead[lane]; a != nil {
		ls.read -= a.left()
		delete(ls.ahead, lane)
	}
	for _, l := range ls.all {
		if i, ok := l.find(lane); ok {
			l.doubt(&l.lanes[i])
		}
	}
	ls.stirred = lane
}

// of returns the lineup of a source.
func (ls *lineups) of(src *storage.Source) *lineup {
	ls.stirred = 0
	i := slices.IndexFunc(ls.all, func(l *lineup) bool {
		return slices.Equal(l.source.Queues, src.Queues) && slices.Equal(l.source.Kinds, src.Kinds)
	})
	if i < 0 {
		if len(ls.all) < mostLineups {
			ls.all = append(ls.all, nil)
		}
		i = len(ls.all) - 1
		ls.all[i] = &lineup{source: storage.Source{Queues: slices.Clone(src.Queues), Kinds: slices.Clone(src.Kinds)}}
	}
	l := ls.all[i]
	copy(ls.all[1:i+1], ls.all[:i])
	ls.all[0] = l
	return l
}

// lineup returns that of a source, with the lanes that were created in this
// transaction.
func (t *tx) lineup(src *storage.Source) *lineup {
	l := t.stmts.lineups.of(src)
	t.store.cache.update(l)
	if len(t.lanes) == 0 {
		return l
	}
	var lanes []int64
	last := l.last
	for name, lane := range t.lanes {
		if lane > l.last && l.has(name) && !t.store.cache.isPaused(name.queue) {
			lanes = append(lanes, lane)
		}
		last = max(last, lane)
	}
	slices.Sort(lanes)
	l.add(lanes)
	l.last = last
	return l
}

// has reports whether jobs of this name are in the source.
func (l *lineup) has(name laneName) bool {
	return slices.Contains(l.source.Kinds, name.kind) && slices.Contains(l.source.Queues, name.queue)
}

func (l *lineup) find(lane int64) (int, bool) {
	return slices.BinarySearchFunc(l.lanes, lane, func(b berth, lane int64) int { return int(b.lane - lane) })
}

// add adds lanes, which are sorted and come after those that there are.
func (l *lineup) add(lanes []int64) {
	if len(lanes) == 0 {
		return
	}
	if n := len(l.lanes) + len(lanes); n > cap(l.lanes) { // the heap points there
		moved := make([]berth, len(l.lanes), max(n, 2*len(l.lanes)))
		copy(moved, l.lanes)
		for i := range moved {
			if at := moved[i].at; at >= 0 {
				l.order[at] = &moved[i]
			}
		}
		l.lanes = moved
	}
	for _, lane := range lanes {
		l.lanes = append(l.lanes, berth{lane: lane, at: -1, sure: true})
		l.doubt(&l.lanes[len(l.lanes)-1])
	}
}

// doubt notes that a lane may have another first job than it had.
func (l *lineup) doubt(b *berth) {
	if !b.sure {
		return
	}
	b.sure = false
	l.unsure++
	l.put(b)
}

// set notes which is the first ready job of a lane.
func (l *lineup) set(b *berth, key place) {
	l.settle(b)
	b.key = key
	l.put(b)
}

// empty notes that nothing is ready in a lane.
func (l *lineup) empty(b *berth) {
	l.settle(b)
	if b.at >= 0 {
		heap.Remove(l, b.at)
	}
}

func (l *lineup) settle(b *berth) {
	if !b.sure {
		b.sure = true
		l.unsure--
	}
}

func (l *lineup) put(b *berth) {
	if b.at < 0 {
		heap.Push(l, b)
	} else {
		heap.Fix(l, b.at)
	}
}

// Len implements [heap.Interface], as the next four do.
func (l *lineup) Len() int { return len(l.order) }

// Less puts lanes that may have any job at all first.
func (l *lineup) Less(i, j int) bool {
	a, b := l.order[i], l.order[j]
	if !a.sure || !b.sure {
		return !a.sure && b.sure
	}
	return a.key.before(&b.key)
}

// Swap swaps two.
func (l *lineup) Swap(i, j int) {
	l.order[i], l.order[j] = l.order[j], l.order[i]
	l.order[i].at, l.order[j].at = i, j
}

// Push adds one at the end.
func (l *lineup) Push(x any) {
	b := x.(*berth)
	b.at = len(l.order)
	l.order = append(l.order, b)
}

// Pop takes the last one away.
func (l *lineup) Pop() any {
	b := l.order[len(l.order)-1]
	l.order = l.order[:len(l.order)-1]
	b.at = -1
	return b
}

// survey finds out about the lanes of which it is not known. It takes as many
// statements as there are such lanes at most, and fewer if fewer lanes of the
// database have anything ready.
func (t *tx) survey(l *lineup) error {
	for i := 0; i < len(l.lanes) && l.unsure > 0; {
		if l.lanes[i].sure {
			i++
			continue
		}
		lane, key := int64(forever), place{}
		err := t.row(sqlFirstFrom, []any{l.lanes[i].lane}, &lane, &key.priority, &key.due, &key.id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		for ; i < len(l.lanes) && l.lanes[i].lane <= lane; i++ {
			switch b := &l.lanes[i]; {
			case b.lane == lane:
				l.set(b, key)
			case !b.sure:
				l.empty(b)
			}
		}
	}
	return nil
}

// anyReady reports whether a job of a source is ready.
func (t *tx) anyReady(src *storage.Source) (bool, error) {
	l := t.lineup(src)
	err := t.survey(l)
	return len(l.order) > 0, err
}
