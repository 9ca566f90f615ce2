package postgres

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// The groups that a transaction decides about: $1, of each of which at most $2 members leave,
// and those of the jobs that have one of the keys $3, each of which may leave. Nobody else changes
// who has a key once it is locked.
const ofGroups = ` FROM (SELECT k, sum(n)::integer AS n FROM (
    SELECT k, n FROM unnest($1::text[], $2::integer[]) f(k, n)
    UNION ALL SELECT j.group_key, 1 FROM errand_unique u JOIN errand_job j ON j.id = u.job WHERE u.key = ANY($3::bytea[]) AND j.group_key IS NOT NULL) a
  GROUP BY k) g `

// How many members of a group may have a place, and how many do.
const ofPlaces = `CROSS JOIN LATERAL (SELECT greatest(coalesce(max(value), 1), 1) AS most FROM errand_setting
  WHERE queue = split_part(g.k, ' ', 1) AND kind = '' AND name = 'group_limit') l
CROSS JOIN LATERAL (SELECT count(*) AS taken FROM errand_job WHERE group_key = g.k AND role = 2) t `

// settled is true of groups whose members rules.Group.Settle may read.
const settled = `g.n > 0 AND ($4::boolean OR l.most = 1 OR t.taken > l.most)`

const (
	// An insertion locks what is not there yet. What is there is locked, and stays.
	sqlLockKeys = `INSERT INTO errand_unique AS o (key, slot, job, created_at, until, salt) SELECT k, 0, 0, 0, 0, 0 FROM unnest($1::bytea[]) f(k)
ON CONFLICT (key, slot) DO UPDATE SET job = o.job WHERE false`
	sqlLockGroups = `INSERT INTO errand_group AS o (group_key) SELECT k` + ofGroups + `ORDER BY k
ON CONFLICT (group_key) DO UPDATE SET group_key = o.group_key WHERE false`
	// Jobs of keys and groups are locked, as others may lease them, and $5 with them: what a
	// transaction locks later it has locked here, in order.
	sqlLockRows = `SELECT id FROM errand_job WHERE id IN (
  SELECT unnest($5::bigint[]) UNION ALL SELECT job FROM errand_unique WHERE key = ANY($3::bytea[])
  UNION ALL SELECT j.id` + ofGroups + ofPlaces + `JOIN errand_job j ON j.group_key = g.k AND j.role = 2 WHERE ` + settled + `)
ORDER BY id FOR UPDATE`

	keyColumns = `key, slot, job, salt, created_at, until, EXISTS (SELECT FROM errand_job j WHERE j.id = u.job),
  slot = 1 AND EXISTS (SELECT FROM errand_job j WHERE j.id = u.job AND state = 7 AND was_due IS NOT TRUE),
  EXISTS (SELECT FROM errand_finished e WHERE e.id = u.job) OR EXISTS (SELECT FROM errand_dead e WHERE e.id = u.job)`
	sqlKeys = `SELECT ` + keyColumns + ` FROM errand_unique u WHERE key = ANY($1::bytea[]) AND job <> 0`
	// $2 are the keys of which args are to be read.
	sqlWaiters = `SELECT u.key, j.id, j.lane, j.salt, j.created_at, j.due_at, j.state, coalesce(j.role, 0), coalesce(j.was_due, false), coalesce(j.group_key, ''),
  j.attempt, j.retry, j.crashes, j.snoozes, j.priority, CASE WHEN u.key = ANY($2::bytea[]) THEN j.args END
FROM errand_unique u JOIN errand_job j ON j.id = u.job WHERE u.key = ANY($1::bytea[]) ORDER BY u.key, u.slot`

	// The keys of members that were not due when they came to wait are negative.
	sqlTally = `SELECT g.k, t.taken, EXISTS (SELECT FROM errand_dead WHERE group_key = g.k AND role = 3), ` + settled + `, w.most,
  ARRAY(SELECT CASE WHEN was_due THEN id ELSE -id END FROM errand_job WHERE group_key = g.k AND role = 1 ORDER BY id LIMIT w.most)` + ofGroups + ofPlaces + `
CROSS JOIN LATERAL (SELECT CASE WHEN $4 OR t.taken > l.most THEN l.most ELSE l.most - t.taken END + g.n + 1 AS most) w`
	sqlMembers = `SELECT g.k, m.*` + ofGroups + ofPlaces + `CROSS JOIN LATERAL (
  SELECT id, role, state, lane FROM errand_job WHERE group_key = g.k AND role = 2
  UNION ALL SELECT id, role, 6, lane FROM errand_dead WHERE group_key = g.k AND role = 3) m WHERE ` + settled

	sqlReserve = `SELECT nextval('errand_key') FROM generate_series(1, $1::integer)`

	sqlWriteKeys = `INSERT INTO errand_unique (key, slot, job, created_at, until, salt)
SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[])
ON CONFLICT (key, slot) DO UPDATE SET job = excluded.job, created_at = excluded.created_at, until = excluded.until, salt = excluded.salt`
	sqlDropKeys = `DELETE FROM errand_unique u USING unnest($1::bytea[], $2::smallint[]) f(key, slot) WHERE u.key = f.key AND u.slot = f.slot`

	sqlInsertBeside = `INSERT INTO errand_job (id, lane, state, priority, due_at, created_at, timeout, salt, weight, policy, headers, args, unique_key, group_key, role, was_due)
SELECT * FROM unnest($1::bigint[], $2::integer[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[],
  $8::integer[], $9::integer[], $10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[], $14::text[], $15::smallint[], $16::boolean[])`
	sqlRewrite = `UPDATE errand_job j SET state = f.state, due_at = f.due_at, role = f.role, was_due = f.was_due, retry = f.retry, crashes = f.crashes, snoozes = f.snoozes,
  priority = f.priority, args = coalesce(f.args, j.args), headers = CASE WHEN f.args IS NULL THEN j.headers ELSE f.headers END,
  weight = CASE WHEN f.args IS NULL THEN j.weight ELSE length(f.args) + coalesce(length(f.headers), 0) END
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::smallint[], $5::boolean[], $6::integer[], $7::integer[], $8::integer[], $9::smallint[], $10::bytea[], $11::bytea[])
  f(id, state, due_at, role, was_due, retry, crashes, snoozes, priority, args, headers) WHERE j.id = f.id`

	// Members that the transaction has not read, or only their states.
	sqlLetIn = `WITH u AS (UPDATE errand_job j SET state = CASE WHEN j.was_due OR j.due_at <= f.at THEN 2 ELSE 1 END,
  due_at = CASE WHEN j.due_at <= f.at THEN f.at ELSE j.due_at END, role = coalesce(f.role, j.role), was_due = NULL
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[]) f(id, at, role) WHERE j.id = f.id AND j.state = 7 RETURNING j.lane, j.state)
INSERT INTO errand_delta SELECT lane, 7, -count(*) FROM u GROUP BY lane UNION ALL SELECT lane, state, count(*) FROM u GROUP BY lane, state`
	sqlBlock = `WITH u AS (UPDATE errand_job j SET state = 7, role = 1, was_due = f.state = 2
  FROM unnest($1::bigint[], $2::smallint[]) f(id, state) WHERE j.id = f.id AND j.state = f.state RETURNING j.lane, f.state)
INSERT INTO errand_delta SELECT lane, 7, count(*) FROM u GROUP BY lane UNION ALL SELECT lane, state, -count(*) FROM u GROUP BY lane, state`
	sqlLeavePlaces = `UPDATE errand_job SET role = 0 WHERE id = ANY($1::bigint[]) AND role = 2 AND state = 1`
	sqlPassDead    = `UPDATE errand_dead SET role = 0 WHERE group_key = ANY($1::text[]) AND role = 3`
	sqlDropGroups  = `DELETE FROM errand_group WHERE group_key = ANY($1::text[])`
)

// scopes are the unique keys and the groups that a transaction has locked: what was read of
// them, as the decisions of the call have left it. It is [rules.Rows] of the call.
type scopes struct {
	s     *Store
	now   time.Time
	turns int64 // the time of an exchange, see [rules.Group.Settle]
	anew  bool

	// What to lock and read.
	leaving   map[string]int32 // groups, with how many of their members may leave
	conflicts map[string]bool  // keys whose waiting job may be changed, with whether args are needed
	jobs      []int64          // to be locked
	entrants

	set     obeyed
	keys    map[string]*rules.Key
	groups  map[string]*groupRows
	touched []string // groups to settle
	rows    map[int64]*row
	others  map[int64]move
	leave   []int64
	pass    []string
	ids     []int64 // for jobs that enter
	first   int64   // of those
	changed bool
	moved   int // members that were let in or blocked
}

// entrants are jobs that may enter.
type entrants struct {
	fresh int                 // how many there are
	keyed map[string][]string // by group, the keys of its members, which may be empty
}

// row is a live job that a transaction has read or inserts, as its decisions leave it.
type row struct {
	id       int64
	lane     int32
	salt     int32
	created  int64
	group    string
	role     rules.Role
	was      int16 // its state in the table, 0 if it is new
	state    int16
	wasDue   bool
	due      int64
	priority int16
	storage.Counters
	args  []byte
	by    *storage.NewJob // that has changed it
	moved bool
}

// move is what becomes of a member that was not read.
type move struct {
	in    bool // it is let in, else blocked
	at    int64
	role  rules.Role
	state int16 // of a blocked one before
}

// groupRows is a group as it was read.
type groupRows struct {
	rules.Group
	members bool           // whether Members were read
	due     map[int64]bool // of those that wait, whether they were due when they came to wait
}

func (s *Store) scopes(now time.Time) *scopes {
	return &scopes{
		s: s, now: now, leaving: map[string]int32{}, entrants: entrants{keyed: map[string][]string{}}, conflicts: map[string]bool{}, keys: map[string]*rules.Key{},
		groups: map[string]*groupRows{}, rows: map[int64]*row{}, others: map[int64]move{},
	}
}

// needs has the scopes of jobs that are to enter be locked.
func (sc *scopes) needs(jobs []storage.NewJob) {
	for i := range jobs {
		j := &jobs[i]
		if j.Unique != "" {
			sc.needsKeyFor(j.Unique, j.Conflict)
		}
		if j.Group != "" {
			name := rules.GroupName(j.Queue, j.Group)
			sc.leaving[name] += 0
			sc.keyed[name] = append(sc.keyed[name], j.Unique)
		}
	}
	sc.fresh += len(jobs)
}

func (sc *scopes) needsKey(name string) {
	if sc.keys[name] == nil {
		sc.keys[name] = &rules.Key{Name: name}
	}
}

// needsKeyFor is needsKey for a job with a Conflict.
func (sc *scopes) needsKeyFor(name string, c *storage.Conflict) {
	sc.needsKey(name)
	if c.Replaces() {
		sc.conflicts[name] = sc.conflicts[name] || c.Merge != nil
	}
}

// leaves has the scopes of a job be locked that may end.
func (sc *scopes) leaves(b beside) {
	if b.key != "" {
		sc.needsKey(b.key)
	}
	if b.group != "" {
		sc.leaving[b.group]++
	}
}

// names returns the keys and groups to lock, in order.
func (sc *scopes) names() (all []string) {
	for name := range sc.keys {
		all = append(all, "key "+name)
	}
	for name := range sc.leaving {
		all = append(all, "group "+name)
	}
	slices.Sort(all)
	return all
}

// none reports whether there is nothing to lock.
func (sc *scopes) none() bool { return len(sc.keys) == 0 && len(sc.leaving) == 0 }

// load queues the locking of all scopes, keys before groups before jobs, each in order, and
// then the reading.
func (sc *scopes) load(b *pgx.Batch) {
	if sc.none() && len(sc.jobs) == 0 {
		return
	}
	keys := sorts(maps.Keys(sc.keys))
	names := slices.Sorted(maps.Keys(sc.leaving))
	leaving := make([]int32, len(names))
	for i, name := range names {
		leaving[i] = sc.leaving[name]
		for _, key := range sc.keyed[name] {
			if _, ok := sc.conflicts[key]; ok { // another job of the call may put it off
				leaving[i]++
			}
		}
	}
	conflicts := sorts(maps.Keys(sc.conflicts))
	var merges [][]byte
	for _, key := range conflicts {
		if sc.conflicts[string(key)] {
			merges = append(merges, key)
		}
	}
	slices.Sort(sc.jobs)
	if len(keys) > 0 {
		b.Queue(sqlLockKeys, keys)
	}
	if len(names)+len(conflicts) > 0 {
		b.Queue(sqlLockGroups, names, leaving, conflicts)
		sc.s.obey(b, &sc.set)
	}
	b.Queue(sqlLockRows, names, leaving, conflicts, sc.anew, sc.jobs)
	if len(keys) > 0 {
		each(b, sc.scanKey, sqlKeys, keys)
	}
	if len(conflicts) > 0 {
		each(b, sc.scanWaiter, sqlWaiters, conflicts, merges)
	}
	if len(names)+len(conflicts) > 0 {
		each(b, sc.scanGroup, sqlTally, names, leaving, conflicts, sc.anew)
		each(b, sc.scanMember, sqlMembers, names, leaving, conflicts, sc.anew)
		sc.set.check(b)
	}
	if sc.fresh > 0 {
		each(b, func(row pgx.CollectableRow) error {
			var id int64
			err := row.Scan(&id)
			sc.ids = append(sc.ids, id)
			return err
		}, sqlReserve, sc.fresh)
	}
}

// sorts returns names in order, as the columns have them.
func sorts(names func(yield func(string) bool)) [][]byte {
	all := [][]byte{}
	for name := range names {
		all = append(all, []byte(name))
	}
	slices.SortFunc(all, bytes.Compare)
	return all
}

func (sc *scopes) scanWaiter(in pgx.CollectableRow) error {
	var key []byte
	r := &row{}
	err := in.Scan(&key, &r.id, &r.lane, &r.salt, &r.created, &r.due, &r.state, &r.role, &r.wasDue, &r.group,
		&r.Attempt, &r.Retry, &r.Crashes, &r.Snoozes, &r.priority, &r.args)
	if err != nil {
		return err
	}
	r.was = r.state
	sc.rows[r.id] = r
	return nil
}

func (sc *scopes) scanGroup(in pgx.CollectableRow) error {
	g := &groupRows{due: map[int64]bool{}}
	var most int64
	var waiting []int64
	if err := in.Scan(&g.Name, &g.Taken, &g.Dead, &g.members, &most, &waiting); err != nil {
		return err
	}
	for _, job := range waiting {
		g.due[max(job, -job)] = job > 0
		g.Waiting = append(g.Waiting, max(job, -job))
	}
	g.More = int64(len(waiting)) >= most
	sc.groups[g.Name] = g
	return nil
}

func (sc *scopes) scanMember(in pgx.CollectableRow) error {
	var name string
	var m rules.Member
	var state int16
	if err := in.Scan(&name, &m.Job, &m.Role, &state, &m.Lane); err != nil {
		return err
	}
	m.State = states[state]
	g := sc.groups[name]
	g.Members = append(g.Members, m)
	return nil
}

// reset forgets what was read and decided, so that the transaction can run again.
func (sc *scopes) reset() {
	for name := range sc.keys {
		sc.keys[name] = &rules.Key{Name: name}
	}
	clear(sc.groups)
	clear(sc.rows)
	clear(sc.others)
	sc.touched, sc.leave, sc.pass, sc.ids, sc.first, sc.changed, sc.moved = nil, nil, nil, nil, 0, false, 0
}

// next returns a key for a job that enters.
func (sc *scopes) next() int64 {
	if sc.first == 0 {
		slices.Sort(sc.ids)
		sc.first = sc.ids[0]
	}
	id := sc.ids[0]
	sc.ids = sc.ids[1:]
	return id
}

// write queues what was decided, but for jobs of the exchange and those that enter.
func (sc *scopes) write(b *pgx.Batch, d sums) {
	if sc.none() {
		return
	}
	sc.writeKeys(b)
	sc.writeRows(b, d)
	var in, at, out []int64
	var role []*int16
	var was []int16
	for _, id := range slices.Sorted(maps.Keys(sc.others)) {
		if m := sc.others[id]; m.in {
			in, at, role = append(in, id), append(at, m.at), append(role, roleOf(m.role, m.role != rules.NoRole))
		} else {
			out, was = append(out, id), append(was, m.state)
		}
	}
	if len(sc.leave) > 0 {
		b.Queue(sqlLeavePlaces, sc.leave)
	}
	if len(out) > 0 {
		b.Queue(sqlBlock, out, was)
	}
	if len(in) > 0 {
		b.Queue(sqlLetIn, in, at, role)
	}
	if len(sc.pass) > 0 {
		b.Queue(sqlPassDead, sc.pass)
	}
	var empty []string
	for name, g := range sc.groups {
		if g.Taken == 0 && !g.Dead && len(g.Waiting) == 0 {
			empty = append(empty, name)
		}
	}
	if len(empty) > 0 {
		b.Queue(sqlDropGroups, empty)
	}
}

// writeRows queues the changes of jobs that were read and are in the table.
func (sc *scopes) writeRows(b *pgx.Batch, d sums) {
	var ids, due []int64
	var state, priority []int16
	var role []*int16
	var wasDue []*bool
	var n counterColumns
	var args, headers [][]byte
	for _, id := range slices.Sorted(maps.Keys(sc.rows)) {
		r := sc.rows[id]
		if r.was == 0 || !r.moved && r.by == nil || r.was == running && r.by == nil {
			continue // a new job, which insert writes; one that stays as it is; or one that finish writes
		}
		ids, due, state, priority = append(ids, id), append(due, r.due), append(state, r.state), append(priority, r.priority)
		role, wasDue = append(role, r.roleColumn()), append(wasDue, r.dueColumn())
		n.add(r.Counters)
		if r.by == nil {
			args, headers = append(args, nil), append(headers, nil)
		} else {
			args, headers = append(args, filled(r.by.Args)), append(headers, optional(r.by.Headers))
		}
		if r.was != running {
			d.add(r.lane, r.was, -1)
			d.add(r.lane, r.state, 1)
		}
	}
	if len(ids) > 0 {
		b.Queue(sqlRewrite, ids, state, due, role, wasDue, n.retry, n.crashes, n.snoozes, priority, args, headers)
	}
}

// filled returns args that are not nil.
func filled(args []byte) []byte {
	if args == nil {
		return []byte{}
	}
	return args
}

func roleOf(r rules.Role, has bool) *int16 {
	if !has {
		return nil
	}
	n := int16(r)
	return &n
}

// roleColumn returns what the table has of the role: NULL if the job has no group.
func (r *row) roleColumn() *int16 { return roleOf(r.role, r.group != "") }

func (r *row) dueColumn() *bool {
	if r.state != blocked {
		return nil
	}
	return &r.wasDue
}

// block has a job wait behind others.
func (r *row) block() {
	if r.state != blocked {
		r.wasDue = r.state == ready
	}
	r.state, r.moved = blocked, true
}

// letIn makes a blocked job ready if it was due when it was blocked, or is due by at, and else
// scheduled.
func (r *row) letIn(at int64, as rules.Role) {
	r.state, r.role, r.moved = scheduled, cmp.Or(as, r.role), true
	if r.due <= at {
		r.state, r.due = ready, at
	} else if r.wasDue {
		r.state = ready
	}
}

func (r *row) member() rules.Member {
	return rules.Member{Job: r.id, Lane: int64(r.lane), Role: r.role, State: states[r.state]}
}

func (r *row) jobID() storage.ID { return jobID(r.created, r.salt, r.id) }

// never is a time before all due times.
const never = math.MinInt64

// inTransaction runs fn twice in a transaction: first what it queues is only to lock and to
// read; what it queues then ends it. If fn returns nil as the second batch, nothing is written.
// sc are the scopes that it locks, as far as they are known before.
func (s *Store) inTransaction(ctx context.Context, sc *scopes, lock func(b *pgx.Batch), decide func() (*pgx.Batch, error)) error {
	return s.inLine(ctx, sc, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		s.readNew(b)
		lock(b)
		if err := part(ctx, c, b); err != nil {
			return err
		}
		b, err := decide()
		if err != nil {
			return err
		}
		if b == nil {
			return part(ctx, c, end())
		}
		b.Queue(sqlCommit)
		return s.commit(ctx, c, b)
	})
}
