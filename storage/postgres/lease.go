package postgres

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// How jobs are leased that the CTE c has chosen and locked: u has them as they are then.
// It is followed by what is read of u.
const leaseChosen = `, u AS (UPDATE errand_job j SET state = 3, token = nextval('errand_token'), instance = $2, until = $3, call = $7, attempt = j.attempt + 1
  FROM c WHERE j.id = c.id RETURNING j.*, c.token AS previous),
n AS (INSERT INTO errand_delta SELECT lane, 67, count(*) FROM u GROUP BY lane)
SELECT ` + leasedColumns + ` FROM u`

// A row without a job follows if there were fewer jobs to lock than $4, and more that are
// ready: others decide about these. It is not looked for if all that was asked for was found.
const passedOver = `
UNION ALL SELECT ` + leasedColumns + ` FROM (SELECT (NULL::errand_job).*, NULL::bigint AS previous) j
WHERE (SELECT count(*) FROM h) < $4 AND EXISTS (SELECT FROM errand_job WHERE state = 2 AND lane = ANY($1::integer[]) OFFSET (SELECT count(*) FROM h))`

const leasedColumns = `id, token, previous, lane, salt, priority, created_at, due_at, timeout, attempt, retry, crashes, snoozes, ((doubt IS NOT NULL)::integer + coalesce(redriven, false)::integer * 2)::smallint, policy, headers, args,
  CASE WHEN unique_key IS NOT NULL OR group_key IS NOT NULL THEN convert_to(coalesce(group_key, ''), 'UTF8') || '\x00'::bytea || coalesce(unique_key, '') END`

// What both ways to find ready jobs have: the heads of lanes $1, at most $4 of each. Each
// lane is read by its own range of the index. Nothing is found if a lane was added
// after number $5, which $1 may lack. A row that another transaction decides about is
// passed over.
const heads = `FROM unnest($1::integer[]) l(lane) CROSS JOIN LATERAL (
    SELECT id, token, priority, due_at, weight FROM errand_job WHERE state = 2 AND lane = l.lane
    ORDER BY priority DESC, due_at, id LIMIT $4`

// An instance without its row leases nothing: others took it for gone, and nobody would
// take its leases over. Its next Reclaim registers it anew.
const registered = ` AND EXISTS (SELECT FROM errand_instance i WHERE i.instance = $2)`

// Nor is anything leased of lanes while members of groups are due there that have no place: they
// come first.
const placed = ` AND NOT EXISTS (SELECT FROM errand_job WHERE state = 1 AND role = 0 AND due_at <= $8::bigint AND lane = ANY($1::integer[]))`

const upToDate = `(SELECT coalesce(max(lane), 0) FROM errand_lane) = $5::integer`

var (
	sqlLeaseHeads = `WITH h AS MATERIALIZED (
  SELECT j.* ` + heads + ` FOR UPDATE SKIP LOCKED) j WHERE ` + upToDate + registered + placed + ` ORDER BY priority DESC, due_at, id LIMIT $4),
c AS (SELECT id, token FROM (
  SELECT id, token, sum(weight) OVER (ORDER BY priority DESC, due_at, id ROWS UNBOUNDED PRECEDING) - weight AS before FROM h) w WHERE before < $6::bigint)` + leaseChosen + passedOver

	// $2 and $3 are those of sqlLease.
	sqlHeads = strings.NewReplacer("$4", "$2", "$5", "$3").Replace(`SELECT l.lane, j.id, j.priority, j.due_at, j.weight ` + heads + `) j WHERE ` + upToDate)
	sqlLease = strings.ReplaceAll(`WITH c AS MATERIALIZED (SELECT id, token FROM errand_job WHERE id = ANY($1::bigint[]) AND state = 2`+registered+` ORDER BY id FOR UPDATE SKIP LOCKED)`+leaseChosen, "$7", "$4")
)

// leasing is the part of an exchange that leases.
type leasing struct {
	s        *Store
	x        *storage.Exchange
	lanes    []int32 // that are wanted
	last     int32   // the newest lane when these were chosen
	heads    []head
	leased   []storage.Leased
	outdated bool // there are newer lanes
	missed   bool // somebody else has taken a job that was chosen, or decides about it
	passed   bool // others decide about jobs that are ready
}

// head is one of the first ready jobs of a lane.
type head struct {
	lane     int32
	key, due int64
	priority int32
	weight   int64
}

// leasingFor returns the leasing from the lanes that are known.
func (s *Store) leasingFor(x *storage.Exchange) leasing {
	c := leasing{s: s, x: x}
	c.lanes, c.last = s.lanes.wanted(x.Wants)
	return c
}

// chooses reports whether Go has to choose among the heads of lanes: a statement can do
// that for one Want without Each.
func (c *leasing) chooses() bool {
	n := 0
	for i := range c.x.Wants {
		if w := &c.x.Wants[i]; w.N > 0 {
			n++
			if w.Each > 0 {
				return true
			}
		}
	}
	return n > 1
}

// take queues the statement that chooses and leases.
func (c *leasing) take(b *pgx.Batch, e *exchange) {
	n := e.x.Wanted()
	if n == 0 {
		return
	}
	c.queue(b, sqlLeaseHeads, c.lanes, e.self.id, micros(e.now.Add(e.x.LeaseDuration)), n, c.last, storage.LeaseBytes, ofRow(e.number), micros(e.now))
	c.check(b)
}

// look queues the reading of the heads.
func (c *leasing) look(b *pgx.Batch) {
	each(b, func(row pgx.CollectableRow) error {
		var h head
		err := row.Scan(&h.lane, &h.key, &h.priority, &h.due, &h.weight)
		c.heads = append(c.heads, h)
		return err
	}, sqlHeads, c.lanes, c.x.Wanted(), c.last)
	c.check(b)
}

// check finds out whether the statement before it has found the lanes it knows.
func (c *leasing) check(b *pgx.Batch) {
	newLanes(b, c.last, func(number int32, lane storage.Lane) {
		c.s.lanes.add(number, lane)
		c.outdated = true
	})
}

// lease queues the lease of the jobs that Go chooses.
func (c *leasing) lease(b *pgx.Batch, e *exchange) {
	keys := c.choose()
	if len(keys) == 0 {
		return
	}
	c.queue(b, sqlLease, keys, e.self.id, micros(e.now.Add(e.x.LeaseDuration)), ofRow(e.number))
	b.QueuedQueries[b.Len()-1].Query(c.rows(func() { c.missed = len(c.leased) < len(keys) }))
}

// choose returns the keys of the jobs to lease, by priority, due time and key: each counts
// for the first Want that matches it and has room.
func (c *leasing) choose() (keys []int64) {
	slices.SortFunc(c.heads, func(a, b head) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.due, b.due), cmp.Compare(a.key, b.key))
	})
	left := make([]int, len(c.x.Wants))
	for i := range left {
		left[i] = c.x.Wants[i].N
	}
	ofQueue := map[string]int{}
	var bytes int64
	for _, h := range c.heads {
		lane := c.s.lanes.name(h.lane)
		for i := range c.x.Wants {
			w := &c.x.Wants[i]
			if left[i] <= 0 || !w.Matches(lane.Queue, lane.Kind) || !w.HasRoom(lane.Queue, ofQueue[lane.Queue]) {
				continue
			}
			left[i]--
			ofQueue[lane.Queue]++
			keys = append(keys, h.key)
			if bytes += h.weight; bytes >= storage.LeaseBytes {
				return keys
			}
			break
		}
	}
	return keys
}

// queue queues a statement that leases.
func (c *leasing) queue(b *pgx.Batch, text string, args ...any) {
	b.Queue(text, args...).Query(c.rows(func() {}))
}

// rows reads leased jobs, and then calls end.
func (c *leasing) rows(end func()) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		added := 0
		for rows.Next() {
			if rows.RawValues()[0] == nil {
				c.passed = true
				continue
			}
			l, err := c.s.scanLeased(rows)
			if err != nil {
				return err
			}
			c.leased = append(c.leased, l)
			if n := len(c.leased) - 2; n < 0 || c.leased[n].Queue != l.Queue || c.leased[n].Kind != l.Kind {
				added += 2 // one of its lease, and one of its end
			}
		}
		c.s.deltas.n.Add(int64(added))
		slices.SortFunc(c.leased, func(a, b storage.Leased) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.DueAt.Compare(b.DueAt), cmp.Compare(a.Key, b.Key))
		})
		end()
		return rows.Err()
	}
}

// scanLeased reads leasedColumns. more are columns after them.
func (s *Store) scanLeased(row pgx.CollectableRow, more ...any) (l storage.Leased, err error) {
	var lane, salt int32
	var created, due, timeout int64
	var marks int16 // 1 doubt, 2 redriven
	var has []byte  // the group, a zero byte and the key; nil for most jobs
	err = row.Scan(append([]any{
		&l.Key, &l.Token, &l.Previous, &lane, &salt, &l.Priority, &created, &due, &timeout,
		&l.Attempt, &l.Retry, &l.Crashes, &l.Snoozes, &marks, &l.Policy, &l.Headers, &l.Args, &has,
	}, more...)...)
	if err != nil {
		return l, err
	}
	name := s.lanes.name(lane)
	if name.Queue == "" { // it was added after the batch has read lanes
		return l, fmt.Errorf("%w: lane %d of job %d is newer than those that are known", storage.ErrStale, lane, l.Key)
	}
	l.ID, l.Queue, l.Kind = jobID(created, salt, l.Key), name.Queue, name.Kind
	l.WriteStart, l.Redriven = marks&1 != 0, marks&2 != 0
	group, key, _ := bytes.Cut(has, []byte{0})
	_, l.Group = rules.SplitGroup(string(group))
	s.besides.note(l.Token, beside{string(key), string(group)})
	l.CreatedAt, l.DueAt, l.Timeout = fromMicros(created), fromMicros(due), fromLength(timeout)
	return l, nil
}
