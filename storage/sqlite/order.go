package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"math"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	// From one priority of a lane to the next lower one, by the index.
	sqlNextPriority = `SELECT priority, due_at, id FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority < ?2
ORDER BY priority DESC, due_at, id LIMIT 1`
	sqlNewest = `SELECT due_at, id FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 ORDER BY due_at DESC, id DESC LIMIT 1`

	sqlOrderOf = `SELECT name, value FROM main.errand_setting WHERE queue = (SELECT queue FROM main.errand_lane WHERE lane = ?1) AND kind = ''`
	// Of one priority of a lane, what is leased before a job that is due then.
	sqlAheadOldest = `SELECT 1 FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at < ?3
UNION ALL SELECT 1 FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at = ?3 AND id < ?4 LIMIT ?5 + 0`
	sqlAheadNewest = `SELECT 1 FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at > ?3
UNION ALL SELECT 1 FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at = ?3 AND id > ?4 LIMIT ?5 + 0`
)

// Of sqlHeads the jobs of one priority, in both directions.
var (
	sqlHeadsOf       = headsOf + ` FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 ORDER BY due_at, id`
	sqlHeadsOfNewest = headsOf + ` FROM main.errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 ORDER BY due_at DESC, id DESC`
)

// orderRule is what the settings of a queue say of the order of its ready jobs, see
// [storage.Order]. The zero value is the order of errand_job_ready.
type orderRule struct {
	newest bool
	aging  int64
}

func ruleOf(s storage.Settings) (r orderRule) {
	if r.newest = s[storage.SettingOrder] == int64(storage.Newest); !r.newest {
		r.aging = max(s[storage.SettingAging], 0)
	}
	return r
}

// key returns the place of a job among the jobs of its queue.
func (r orderRule) key(p place) place {
	switch {
	case r.newest:
		return place{p.priority, -p.due, -p.id}
	case r.aging > 0:
		return place{due: p.due - r.aging*int64(p.priority), id: p.id}
	}
	return p
}

// orders are the rules of queues that have one. A map that others have is not changed
// any more.
type orders map[string]orderRule

// orders returns those that are set, nil if there are none.
func (all laneSettings) orders() (o orders) {
	for lane, s := range all {
		if r := ruleOf(s); r != (orderRule{}) && lane.Kind == "" && lane.Queue != "" {
			if o == nil {
				o = orders{}
			}
			o[lane.Queue] = r
		}
	}
	return o
}

// committedOrders returns the orders, and how often they had changed before them.
func (c *cache) committedOrders() (orders, int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.orders, c.reordered
}

// orders returns the orders as the transaction has left them, and their version.
func (t *tx) orders() (orders, int64, error) {
	if !t.reset {
		o, version := t.store.cache.committedOrders()
		return o, version, nil
	}
	all, err := t.settings()
	return all.orders(), -t.meta.gen, err // those of the cache are positive
}

// ordered are the groups of a lineup with the lanes of a queue that has a rule.
type ordered struct {
	queue  string
	rule   orderRule
	groups []*group
}

// ordered returns that of a queue, nil if it has no rule.
func (l *lineup) ordered(queue string) *ordered {
	rule, ok := l.orders[queue]
	if !ok {
		return nil
	}
	for _, o := range l.queues {
		if o.queue == queue {
			return o
		}
	}
	o := &ordered{queue: queue, rule: rule}
	l.queues = append(l.queues, o)
	return o
}

// takes returns the index of the want for which jobs of a group are leased, or -1.
func (l *lineup) takes(g *group, left []int) int {
	if len(g.order) == 0 || g.ajar && l.shut {
		return -1
	}
	return g.open(left)
}

// firstOfQueues is first if a queue has a rule.
func (l *lineup) firstOfQueues(left []int) (b *berth, want int) {
	for _, g := range l.groups {
		i := l.takes(g, left)
		if i < 0 {
			continue
		}
		if first := g.order[0]; !first.sure {
			return first, i
		} else if g.queue == nil && (b == nil || first.key.before(&b.key)) {
			b, want = first, i
		}
	}
	var best place
	if b != nil {
		best = b.key
	}
	for _, o := range l.queues {
		if first, i, turn := o.first(l, left); first != nil && (b == nil || turn.before(&best)) {
			b, want, best = first, i, turn
		}
	}
	return b, want
}

// first returns the lane of a queue from which a job is leased, the index of the want
// that it counts for, and the place of the queue among others.
func (o *ordered) first(l *lineup, left []int) (b *berth, want int, turn place) {
	turn.priority = math.MinInt
	for _, g := range o.groups {
		i := l.takes(g, left)
		if i < 0 {
			continue
		}
		if b == nil || g.order[0].before(b) {
			b, want = g.order[0], i
		}
		if o.rule.newest {
			continue // the first has the highest priority
		}
		for _, other := range g.order {
			turn.priority = max(turn.priority, other.turn.priority)
		}
	}
	if b != nil {
		if turn.due, turn.id = b.turn.due, b.turn.id; o.rule.newest {
			turn.priority = b.turn.priority
		}
	}
	return b, want, turn
}

// setFirst notes the first ready job of a lane, and the highest priority that is ready there.
func (l *lineup) setFirst(b *berth, first place, top int) {
	o := b.group.queue
	if o == nil {
		l.set(b, first)
		return
	}
	b.turn = place{top, first.due, first.id}
	l.set(b, o.rule.key(first))
}

// firstOf finds the first ready job of a lane, given the first by errand_job_ready.
func (t *tx) firstOf(lane int64, o *ordered, first place) (place, error) {
	if o == nil {
		return first, nil
	}
	if o.rule.newest {
		err := t.row(sqlNewest, []any{lane, first.priority}, &first.due, &first.id)
		return first, err
	}
	all, err := priorities(t, lane)
	for _, p := range all {
		if a, b := o.rule.key(p), o.rule.key(first); a.before(&b) {
			first = p
		}
	}
	return first, err
}

// priorities returns the first ready job of each priority of a lane, the highest first.
func priorities(db asker, lane int64) (all []place, err error) {
	for below := int64(math.MaxInt64); ; below = int64(all[len(all)-1].priority) {
		var p place
		err := db.row(sqlNextPriority, []any{lane, below}, &p.priority, &p.due, &p.id)
		if errors.Is(err, sql.ErrNoRows) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// streams reads the ready jobs of a lane in the order of a rule. It is [driver.Rows] as
// far as a merge needs it.
type streams struct {
	m    *merger
	lane int64
	rule orderRule
	all  []stream // of the highest priority first; of Newest the one that is read
	last int64    // of Newest, the priority that was read before
}

// stream is the jobs of one priority.
type stream struct {
	priority int
	key      place // of the next
	rows     driver.Rows
	shape    shape
	slot     int
	next     [headColumns]driver.Value // if rows is not nil
}

// streams begins to read a lane.
func (m *merger) streams(lane int64, rule orderRule) (*streams, error) {
	s := &streams{m: m, lane: lane, rule: rule, last: math.MaxInt64}
	if rule.newest {
		return s, nil
	}
	all, err := priorities(m, lane)
	for _, p := range all {
		s.all = append(s.all, stream{priority: p.priority, key: rule.key(p), shape: ofPriority})
	}
	return s, err
}

// top returns the highest priority of the jobs that were not read yet, as far as it is
// known.
func (s *streams) top() int {
	if len(s.all) == 0 {
		return math.MinInt
	}
	return s.all[0].priority
}

// Next reads the next job.
func (s *streams) Next(dest []driver.Value) error {
	if len(s.all) == 0 {
		if !s.rule.newest {
			return io.EOF
		}
		var p place
		err := s.m.row(sqlNextPriority, []any{s.lane, s.last}, &p.priority, &p.due, &p.id)
		if errors.Is(err, sql.ErrNoRows) {
			return io.EOF
		}
		if err != nil {
			return err
		}
		s.last = int64(p.priority)
		s.all = append(s.all, stream{priority: p.priority, shape: ofNewest})
	}
	first := 0
	for i := range s.all {
		if s.all[i].key.before(&s.all[first].key) {
			first = i
		}
	}
	r := &s.all[first]
	if r.rows == nil {
		if err := s.open(r); err != nil {
			return err
		}
		if err := r.rows.Next(r.next[:]); err != nil {
			return err
		}
	}
	copy(dest, r.next[:])
	switch err := r.rows.Next(r.next[:]); {
	case errors.Is(err, io.EOF):
		s.m.giveBack(r.rows, r.shape, r.slot)
		s.all = append(s.all[:first], s.all[first+1:]...)
	case err != nil:
		return err
	default:
		id, _ := r.next[0].(int64) // jobRow.set says what is wrong with it
		due, _ := r.next[2].(int64)
		r.key = s.rule.key(place{r.priority, due, id})
	}
	return nil
}

func (s *streams) open(r *stream) (err error) {
	r.rows, r.slot, err = s.m.query(r.shape, s.lane, r.priority)
	return err
}

// Close ends all.
func (s *streams) Close() error {
	for i := range s.all {
		if r := &s.all[i]; r.rows != nil {
			s.m.giveBack(r.rows, r.shape, r.slot)
		}
	}
	s.all = nil
	return nil
}

// queueRule returns the rule of the queue of a lane.
func queueRule(tx *sqlx.Tx, lane int64) (orderRule, error) {
	var rows []struct {
		Name  storage.Setting
		Value int64
	}
	err := tx.Select(&rows, sqlOrderOf, lane)
	set := storage.Settings{}
	for _, r := range rows {
		set[r.Name] = r.Value
	}
	return ruleOf(set), err
}

// aheadOf counts the ready jobs of a lane that are leased before one, as far as most.
func (r orderRule) aheadOf(ctx context.Context, tx *sqlx.Tx, lane int64, of place, most int) (n int, err error) {
	all, err := priorities(plain{ctx, tx.Tx}, lane)
	for _, p := range all {
		text, before := sqlAheadOldest, place{p.priority, of.due, of.id}
		switch {
		case r.aging > 0:
			before.due += r.aging * int64(p.priority-of.priority)
		case p.priority < of.priority:
			return n, nil
		case p.priority > of.priority:
			before.due = math.MaxInt64
		case r.newest:
			text = sqlAheadNewest
		}
		var rows []bool
		if err := tx.SelectContext(ctx, &rows, text, lane, before.priority, before.due, before.id, most-n); err != nil {
			return 0, err
		}
		if n += len(rows); n >= most {
			break
		}
	}
	return n, err
}
