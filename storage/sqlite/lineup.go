package sqlite

import (
	"container/heap"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// sqlFirstFrom skips lanes with nothing ready, and reads nothing but the index. The caller
// ends it early.
const sqlFirstFrom = `SELECT lane, priority, due_at, id FROM main.errand_job WHERE state = 2 AND lane >= ?1
ORDER BY lane, priority DESC, due_at, id`

const (
	// mostLineups is how many sets of wants a connection remembers.
	mostLineups = 16
	// fewLanes may simply be opened, to find out whether there is anything in
	// them.
	fewLanes = 4
	// readAhead is how many jobs of a lane are read at a time if there are many
	// lanes and a merge takes fewer of each. While those kept take mostAhead bytes
	// no more are.
	readAhead = 8
	mostAhead = 4 << 20
	// mostPassed is how many rows are read on the way from a lane to the next one that is
	// looked for, before a statement of its own begins there: that takes as long.
	mostPassed = 4
)

// lineups is what a connection knows of the ready jobs of each set of wants, so that
// an exchange looks only into lanes that it leases from: a worker may have
// thousands. It is right as long as no other connection writes.
type lineups struct {
	version uint32    // of the database, for which it holds
	all     []*lineup // the one used last comes first
	stirred int64     // the lane that was stirred last, and all know it
	ahead   map[int64]*ahead
	spare   *ahead // to be used again
	read    int    // bytes of the jobs that were read ahead
	ordered int64  // the version of the orders for which it holds

	eldests eldests // for caps
}

// ahead are the first ready jobs of a lane, which were read and not yet leased. A
// worker of many lanes takes few jobs of each at a time, and to begin a statement
// takes as long as to read several rows.
type ahead struct {
	jobs []jobRow
	next int  // of jobs; those before have been leased
	end  bool // there are none after jobs
	top  int  // the highest priority of those after jobs, of a queue with aging
}

func (a *ahead) left() int { return len(a.jobs) - a.next }

// take returns the next job, and keeps nothing of it.
func (a *ahead) take() jobRow {
	r := a.jobs[a.next]
	a.jobs[a.next] = jobRow{}
	a.next++
	return r
}

// size returns about how many bytes of memory r takes.
func (r *jobRow) size() int { return 300 + len(r.Headers) + len(r.Args) }

// aheadOf returns what was read ahead of a lane.
func (ls *lineups) aheadOf(lane int64) *ahead {
	a := ls.ahead[lane]
	if a == nil {
		if ls.ahead == nil {
			ls.ahead = map[int64]*ahead{}
		}
		if a = ls.spare; a == nil {
			a = &ahead{}
		}
		ls.spare, ls.ahead[lane] = nil, a
	}
	return a
}

// drop ends what was read ahead of a lane, once all of it is leased: of a lane that has had its
// jobs nothing is kept.
func (ls *lineups) drop(lane int64, a *ahead) {
	delete(ls.ahead, lane)
	*a = ahead{jobs: a.jobs[:0]}
	ls.spare = a
}

// lineup is the lanes of wants, in the order of their first jobs.
type lineup struct {
	wants  []storage.Want
	orders orders
	held   int64    // the version of the holds that it was made from
	from   int64    // the time from which
	to     int64    // to which the lanes are not held
	last   int64    // lanes up to this one have been looked at
	lanes  []berth  // by number
	groups []*group // of lanes
	queues []*ordered
	unsure int  // lanes that may have a ready job
	ajar   int  // lanes that are ajar
	shut   bool // nothing is leased of them
	passed passed
	starts int64 // the version of the shared throttles of which lanes wait for tokens
}

// group is the lanes that the same wants have, and that are all ajar or all are not,
// so that those of which no more jobs are leased are passed over together. Those of a
// queue with an order of its own are a group for themselves.
type group struct {
	queue *ordered // nil: of any queue without one
	wants []int    // indexes
	ajar  bool     // one job of each lane is leased at most
	order []*berth // a heap of the lanes that have or may have a ready job
	kept  *group   // of its lanes those whose jobs are kept back; nil: those of none are
	waits *waits   // of its lanes those that wait for tokens; nil: none does
}

// berth is the place of a lane. Its key is that of the first ready job, or of
// one that would come before.
type berth struct {
	lane  int64
	group *group
	key   place // as the rule of its queue has it
	turn  place // of a queue with a rule: the first job, with the highest priority that is ready
	sure  bool
	at    int   // in order, or -1
	wait  *wait // which has it in its order; nil: its group has
	head  *head // while rows are being read
	name  storage.Lane
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
func (ls *lineups) forget() {
	ls.all, ls.ahead, ls.read, ls.stirred = nil, nil, 0, 0
	clear(ls.eldests)
}

// stir says that a job of a lane has become ready, or is no longer, without having
// been leased.
func (ls *lineups) stir(lane int64) {
	if lane == ls.stirred {
		return
	}
	if a := ls.ahead[lane]; a != nil {
		for i := range a.jobs[a.next:] {
			ls.read -= a.jobs[a.next+i].size()
		}
		delete(ls.ahead, lane)
	}
	for _, l := range ls.all {
		if i, ok := l.find(lane); ok {
			l.doubt(&l.lanes[i])
		}
	}
	ls.stirred = lane
}

// of returns the lineup of wants.
func (ls *lineups) of(wants []storage.Want) *lineup {
	ls.stirred = 0
	i := slices.IndexFunc(ls.all, func(l *lineup) bool { return slices.EqualFunc(l.wants, wants, sameLanes) })
	if i < 0 {
		if len(ls.all) < mostLineups {
			ls.all = append(ls.all, nil)
		}
		i = len(ls.all) - 1
		ls.all[i] = &lineup{wants: cloneWants(wants...)}
		ls.all[i].passed.any = slices.ContainsFunc(wants, func(w storage.Want) bool { return w.Each > 0 })
	}
	l := ls.all[i]
	copy(ls.all[1:i+1], ls.all[:i])
	ls.all[0] = l
	return l
}

// fewNew is how many lanes may be new to l without it being made anew. Beside the many
// of a prefix, or of all kinds, there are often some.
func (l *lineup) fewNew() int64 {
	if openEnded(l.wants) {
		return max(fewLanes, int64(len(l.lanes)))
	}
	return fewLanes
}

func sameLanes(a, b storage.Want) bool {
	return slices.Equal(a.Queues, b.Queues) && slices.Equal(a.Kinds, b.Kinds) && slices.Equal(a.Except, b.Except) &&
		a.Min == b.Min && a.Wait == b.Wait && a.Each > 0 == (b.Each > 0)
}

func cloneWants(wants ...storage.Want) []storage.Want {
	wants = slices.Clone(wants)
	for i := range wants {
		w := &wants[i]
		w.Queues, w.Kinds, w.Except, w.EachOf = slices.Clone(w.Queues), slices.Clone(w.Kinds), slices.Clone(w.Except), maps.Clone(w.EachOf)
	}
	return wants
}

// lineup returns that of wants at a time, with the lanes that were created in this
// transaction. If ajar is false, nothing is leased of lanes that are ajar.
func (t *tx) lineup(wants []storage.Want, at int64, ajar bool) (*lineup, error) {
	held, version, err := t.holds()
	if err != nil {
		return nil, err
	}
	orders, reordered, err := t.orders()
	if err != nil {
		return nil, err
	}
	if t.stmts.lineups.ordered != reordered {
		t.stmts.lineups.forget()
		t.stmts.lineups.ordered = reordered
	}
	l := t.stmts.lineups.of(wants)
	l.orders = orders
	t.store.cache.update(l, at, held, version)
	l.shut = !ajar
	if len(t.lanes) == 0 {
		return l, nil
	}
	var lanes []wantedLane
	last := l.last
	for name, lane := range t.lanes {
		if lane > l.last {
			lanes = matching(l.wants, lanes, lane, name, at, held)
		}
		last = max(last, lane)
	}
	slices.SortFunc(lanes, wantedLane.compare)
	l.add(lanes)
	l.last = last
	return l, nil
}

// matching appends a lane once for each want that has it, unless it is held at a time.
func matching(wants []storage.Want, lanes []wantedLane, lane int64, name storage.Lane, at int64, holds holds) []wantedLane {
	held, ajar := holds.of(name, at)
	for i := range wants {
		if !held && wants[i].Matches(name.Queue, name.Kind) {
			lanes = append(lanes, wantedLane{lane, i, ajar, name})
		}
	}
	return lanes
}

// open returns the index of the first want of a group of which jobs are left to
// lease, or -1.
func (g *group) open(left []int) int {
	for _, i := range g.wants {
		if left[i] > 0 {
			return i
		}
	}
	return -1
}

// first returns the first lane from which a job may be leased, and the index of the
// want that the job counts for; nil if there is none.
func (l *lineup) first(left []int) (b *berth, want int) {
	if len(l.queues) > 0 {
		return l.firstOfQueues(left)
	}
	for _, g := range l.groups {
		if len(g.order) == 0 || g.ajar && l.shut || b != nil && !g.order[0].before(b) {
			continue
		}
		if i := g.open(left); i >= 0 {
			b, want = g.order[0], i
		}
	}
	return b, want
}

func (l *lineup) find(lane int64) (int, bool) {
	return slices.BinarySearchFunc(l.lanes, lane, func(b berth, lane int64) int { return int(b.lane - lane) })
}

// add adds lanes. They must be sorted, and come after the lanes of l.
func (l *lineup) add(lanes []wantedLane) {
	if len(lanes) == 0 {
		return
	}
	if n := len(l.lanes) + len(lanes); n > cap(l.lanes) { // the heap points there
		moved := make([]berth, len(l.lanes), max(n, 2*len(l.lanes)))
		copy(moved, l.lanes)
		for i := range moved {
			if at := moved[i].at; at >= 0 {
				moved[i].heap().order[at] = &moved[i]
			}
		}
		l.lanes = moved
	}
	var wants []int
	for i, lane := range lanes {
		wants = append(wants, lane.want)
		if i+1 < len(lanes) && lanes[i+1].lane == lane.lane {
			continue
		}
		if lane.ajar {
			l.ajar++
		}
		l.lanes = append(l.lanes, berth{lane: lane.lane, group: l.group(wants, lane.ajar, l.ordered(lane.name.Queue)), at: -1, sure: true, name: lane.name})
		l.doubt(&l.lanes[len(l.lanes)-1])
		wants = wants[:0]
	}
}

// group returns the group of the lanes that these wants have, ajar or not, of any queue
// without a rule, or of one with it.
func (l *lineup) group(wants []int, ajar bool, queue *ordered) *group {
	for _, g := range l.groups {
		if g.ajar == ajar && g.queue == queue && slices.Equal(g.wants, wants) {
			return g
		}
	}
	g := &group{queue: queue, wants: slices.Clone(wants), ajar: ajar}
	if l.wants[wants[0]].KeepsBack() {
		g.kept = &group{queue: queue}
	}
	if queue != nil {
		queue.groups = append(queue.groups, g)
	}
	l.groups = append(l.groups, g)
	return g
}

// doubt notes that a lane may have another first job than it had.
func (l *lineup) doubt(b *berth) {
	if !b.sure {
		return
	}
	b.sure = false
	l.unsure++
	b.leave()
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
		heap.Remove(b.heap(), b.at)
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
		heap.Push(b.heap(), b)
	} else {
		heap.Fix(b.heap(), b.at)
	}
}

// before is the order of lanes: those that may have any job at all come first.
func (b *berth) before(o *berth) bool {
	if !b.sure || !o.sure {
		return !b.sure && o.sure
	}
	return b.key.before(&o.key)
}

// Len implements [heap.Interface], as the next four do.
func (g *group) Len() int { return len(g.order) }

// Less is the order of lanes.
func (g *group) Less(i, j int) bool { return g.order[i].before(g.order[j]) }

// Swap swaps two.
func (g *group) Swap(i, j int) {
	g.order[i], g.order[j] = g.order[j], g.order[i]
	g.order[i].at, g.order[j].at = i, j
}

// Push adds one at the end.
func (g *group) Push(x any) {
	b := x.(*berth)
	b.at = len(g.order)
	g.order = append(g.order, b)
}

// Pop takes the last one away.
func (g *group) Pop() any {
	b := g.order[len(g.order)-1]
	g.order = g.order[:len(g.order)-1]
	b.at = -1
	return b
}

// survey finds out about the lanes of which it is not known. It takes as many
// statements as there are such lanes at most, and fewer if fewer lanes of the
// database have anything ready, or if few jobs are ready in each.
func (t *tx) survey(l *lineup) error {
	if l.unsure <= fewLanes {
		return t.surveyFew(l)
	}
	var err error
	for i := 0; err == nil && i < len(l.lanes) && l.unsure > 0; {
		i, err = t.surveyFrom(l, i)
	}
	return err
}

// surveyFrom is survey by one statement, for lanes from an index on. It returns the index at which
// to go on.
func (t *tx) surveyFrom(l *lineup, i int) (next int, err error) {
	for l.lanes[i].sure {
		if i++; i == len(l.lanes) {
			return i, nil
		}
	}
	upTo := func(lane int64) { // those before it have nothing ready
		for ; i < len(l.lanes) && l.lanes[i].lane < lane; i++ {
			if b := &l.lanes[i]; !b.sure {
				l.empty(b)
			}
		}
	}
	err = t.stmts.rows(sqlFirstFrom, []any{l.lanes[i].lane}, func(rows driver.Rows) error {
		var values [4]driver.Value
		for passed := 0; passed < mostPassed && l.unsure > 0; {
			switch err := rows.Next(values[:]); {
			case errors.Is(err, io.EOF):
				upTo(math.MaxInt64)
				return nil
			case err != nil:
				return err
			}
			var lane int64
			var key place
			if err := scan(values[:], []any{&lane, &key.priority, &key.due, &key.id}); err != nil {
				return err
			}
			upTo(lane)
			if i == len(l.lanes) {
				return nil
			}
			b := &l.lanes[i]
			if b.lane != lane || b.sure {
				passed++
				continue
			}
			first, err := t.firstOf(lane, b.group.queue, key)
			if err != nil {
				return err
			}
			l.setFirst(b, first, key.priority)
			passed = 0
		}
		return nil
	})
	return i, err
}

// surveyFew is survey for few lanes: it looks at these alone, which come first in the
// orders of their groups.
func (t *tx) surveyFew(l *lineup) error {
	for i := 0; i < len(l.groups) && l.unsure > 0; i++ {
		for _, g := range []*group{l.groups[i], l.groups[i].kept} {
			for g != nil && len(g.order) > 0 && !g.order[0].sure {
				b, lane, key := g.order[0], int64(math.MaxInt64), place{}
				err := t.row(sqlFirstFrom, []any{b.lane}, &lane, &key.priority, &key.due, &key.id)
				if err != nil && !errors.Is(err, sql.ErrNoRows) {
					return err
				}
				if lane != b.lane {
					l.empty(b)
					continue
				}
				first, err := t.firstOf(lane, g.queue, key)
				if err != nil {
					return err
				}
				l.setFirst(b, first, key.priority)
			}
		}
	}
	return nil
}

// due reports whether a worker would find a job to lease, and returns when it might.
func (t *tx) due(now time.Time, wants []storage.Want) (bool, time.Time, error) {
	at := micros(now)
	next, err := t.nextDue()
	if err != nil || next != 0 && next <= at {
		return true, time.Time{}, err
	}
	if end, err := t.nextEnd(); err != nil || end != 0 && end <= at {
		return true, time.Time{}, err
	}
	found, kept, err := t.anyReady(wants, at)
	if err != nil || found {
		return true, time.Time{}, err
	}
	chance, err := t.nextChance(earlier(next, kept), wants, at)
	return false, chance, err
}

// anyReady reports whether a job that is wanted is ready, in a lane that is not held
// at a time, and returns until when the first of those is that are kept back.
func (t *tx) anyReady(wants []storage.Want, at int64) (found bool, kept int64, err error) {
	l, err := t.lineup(wants, at, true)
	if err == nil {
		err = t.survey(l)
	}
	if err == nil {
		kept, err = t.keepBack(l, at)
	}
	if err != nil {
		return false, 0, err
	}
	defer func() {
		if err != nil { // lanes were taken from their places
			t.stmts.lineups.forget()
		}
	}()
	k, err := t.tokens(l, at)
	if err != nil {
		return false, 0, err
	}
	left, _ := t.stmts.toLease(wants)
	b, _, err := l.next(wants, left, k)
	if err != nil {
		return false, 0, err
	}
	token, err := k.next(wants, left)
	l.putBack()
	return b != nil, earlier(kept, token), err
}

// toLease returns how many jobs are left to lease for each of wants, until it is
// called again, and for all.
func (s *statements) toLease(wants []storage.Want) (left []int, n int) {
	s.left = s.left[:0]
	for i := range wants {
		s.left = append(s.left, max(wants[i].N, 0))
		n += s.left[i]
	}
	return s.left, n
}

// place returns that of the job in the common order.
func (r *jobRow) place() place { return place{r.Priority, r.DueAt, r.ID} }

// head reads the ready jobs of a lane for one merge: the jobs that were read ahead,
// then the rows of a statement.
type head struct {
	*ahead
	lane  int64
	queue *ordered
	taken int // jobs of the lane that the merge returns
	slot  int // of the statement
	rows  feed
}

// feed is ready jobs as they are leased: [driver.Rows] of one statement, or [streams].
type feed interface {
	Next(dest []driver.Value) error
	Close() error
}

// highest returns the highest priority that is ready, as far as it is known.
func (h *head) highest() int {
	first := h.jobs[h.next].Priority
	if h.queue == nil || h.queue.rule.newest {
		return first
	}
	for i := range h.jobs[h.next:] {
		first = max(first, h.jobs[h.next+i].Priority)
	}
	return max(first, h.top)
}

// merge reads the first lanes of a lineup side by side and returns the first jobs
// that are wanted and have tokens and room, until it is called again, how many more each want has
// place for, and when others will have tokens. The lineup is afterwards as if they were leased.
func (s *statements) merge(l *lineup, wants []storage.Want, k *tokens, room *leaseRoom) (out []jobRow, left []int, token int64, err error) {
	clear(s.merged)
	out = s.merged[:0]
	left, n := s.toLease(wants)
	c := handlerCalls{statements: s, wants: wants}
	defer func() { s.merged = out }()
	most, lanes := 1, 0
	for _, g := range l.groups {
		if g.open(left) >= 0 {
			lanes += len(g.order)
		}
	}
	if lanes > fewLanes && n < readAhead*lanes && s.lineups.read < mostAhead {
		most = readAhead
	}
	err = s.hold(func() error {
		m := merger{statements: s}
		defer m.close()
		defer l.putBack()
		for len(out) < n {
			b, want, err := l.next(wants, left, k)
			if err != nil {
				return err
			}
			if b == nil {
				break
			}
			at := b.head
			if at == nil {
				at = m.visit(b)
			} else if !room.has(b.lane) {
				if room.passOver(l, b); room.none() {
					break
				}
				continue
			} else {
				if fits, err := c.fits(want, &at.jobs[at.next], b.name); err != nil || !fits {
					if err != nil {
						return err
					}
					c.close(want, left)
					continue
				}
				left[want]--
				out = append(out, at.take())
				if wants[want].ByGroup > 1 && !b.group.ajar {
					out[len(out)-1].leads = want + 1
				}
				at.taken++
				room.takes(b.lane)
				l.took(b)
				if err := k.pick(b); err != nil {
					return err
				}
				s.lineups.read -= out[len(out)-1].size()
				if b.group.ajar {
					l.empty(b) // see letThrough
					continue
				}
			}
			if at.left() == 0 && !at.end {
				if err := m.fill(at, most); err != nil {
					return err
				}
			}
			if at.left() > 0 {
				l.setFirst(b, at.jobs[at.next].place(), at.highest())
			} else {
				l.empty(b)
			}
		}
		token, err = k.next(wants, left)
		return err
	})
	return out, c.leftOf(left), token, err
}

// merger is the state of one merge.
type merger struct {
	*statements
	visited []*berth
	open    [shapes]int   // statements, of which some may be
	free    [shapes][]int // again
}

func (m *merger) visit(b *berth) *head {
	b.head = &head{ahead: m.lineups.aheadOf(b.lane), lane: b.lane, queue: b.group.queue}
	m.visited = append(m.visited, b)
	return b.head
}

// fill reads jobs ahead, at least one if there is any, and at most most.
func (m *merger) fill(at *head, most int) error {
	if at.rows == nil {
		if err := m.begin(at); err != nil {
			return err
		}
	}
	at.jobs, at.next = at.jobs[:0], 0
	for len(at.jobs) < most {
		switch err := at.rows.Next(m.heads[:]); {
		case errors.Is(err, io.EOF):
			at.end, at.top = true, math.MinInt
			m.release(at)
			return nil
		case err != nil:
			return err
		}
		var r jobRow
		if err := r.set(at.lane, m.heads[:]); err != nil {
			return err
		}
		at.jobs = append(at.jobs, r)
		m.lineups.read += r.size()
	}
	if s, ok := at.rows.(*streams); ok {
		at.top = s.top()
	}
	if most > 1 && most > at.taken { // the merge may not need it again
		m.release(at)
	}
	return nil
}

// release gives the statement back.
func (m *merger) release(at *head) {
	if s, ok := at.rows.(*streams); ok {
		_ = s.Close()
	} else {
		m.giveBack(at.rows, ofLane, at.slot)
	}
	at.rows = nil
}

func (m *merger) giveBack(rows feed, sh shape, slot int) {
	_ = rows.Close() // cut short on purpose
	m.free[sh] = append(m.free[sh], slot)
}

// begin begins to read a lane, after the jobs that the merge has taken already.
func (m *merger) begin(at *head) (err error) {
	if at.queue == nil {
		at.rows, at.slot, err = m.query(ofLane, at.lane)
	} else {
		at.rows, err = m.streams(at.lane, at.queue.rule)
	}
	for i := 0; err == nil && i < at.taken; i++ {
		err = at.rows.Next(m.heads[:])
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: lane %d has fewer ready jobs than were read of it", storage.ErrCorrupt, at.lane)
	}
	return err
}

// shape is which jobs a statement reads.
type shape uint8

const (
	ofLane shape = iota
	ofPriority
	ofNewest
	shapes
)

var sqlShapes = [shapes]string{ofLane: sqlHeads, ofPriority: sqlHeadsOf, ofNewest: sqlHeadsOfNewest}

// query begins one of several equal statements.
func (m *merger) query(sh shape, args ...any) (driver.Rows, int, error) {
	slot := m.open[sh]
	if k := len(m.free[sh]); k > 0 {
		slot, m.free[sh] = m.free[sh][k-1], m.free[sh][:k-1]
	} else {
		m.open[sh]++
	}
	for len(m.lanes[sh]) <= slot {
		st, err := m.prepare(sqlShapes[sh])
		if err != nil {
			return nil, 0, err
		}
		m.lanes[sh] = append(m.lanes[sh], st)
	}
	bound, err := m.bind(args...)
	if err != nil {
		return nil, 0, err
	}
	rows, err := m.lanes[sh][slot].(driver.StmtQueryContext).QueryContext(context.Background(), bound)
	return rows, slot, err
}

func (m *merger) close() {
	for _, b := range m.visited {
		if rows := b.head.rows; rows != nil {
			_ = rows.Close() // cut short on purpose
		}
		if b.head.left() == 0 {
			m.lineups.drop(b.lane, b.head.ahead)
		}
		b.head = nil
	}
}
