package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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

	// The numbers that are read of each job, see numbers.into: of a live one, of a dead one, and how many.
	numbersOf     = `lane, due_at, state, coalesce(role, 0), coalesce(was_due, false)::integer`
	numbersOfDead = `lane, due_at, 6, role, 0`
	ofNumbers     = 5

	countersOf = `, attempt, retry, crashes, snoozes, weight`
	// In the order in which a rules.Tx keeps them. A key that nobody has is there too, with job 0, as it
	// is locked. No table of jobs is searched for that. The numbers of its job are read if that waits for
	// the key, or if $2 has the key, and the args if $3 has it.
	sqlKeys = `SELECT u.key, u.slot, u.job, u.salt, u.created_at, u.until, j.id IS NOT NULL,
  u.job <> 0 AND coalesce((SELECT true FROM errand_finished e WHERE e.id = u.job), (SELECT true FROM errand_dead e WHERE e.id = u.job), false),
  CASE WHEN j.id IS NOT NULL AND (u.slot = 1 OR u.key = ANY($2::bytea[])) THEN ARRAY[` + numbersOf + countersOf + `, priority] END,
  coalesce(j.group_key, ''), CASE WHEN u.key = ANY($3::bytea[]) THEN j.args END
FROM errand_unique u LEFT JOIN errand_job j ON j.id = nullif(u.job, 0) WHERE u.key = ANY($1::bytea[]) ORDER BY u.key, u.slot`

	// Each group, with the numbers of its members that wait, and if they may be read of those that have a
	// place and of the dead ones too.
	sqlGroup = `SELECT g.k, t.taken, coalesce((SELECT true FROM errand_dead WHERE group_key = g.k AND role = 3 LIMIT 1), false), ` + settled + `, w.most, ARRAY(
  SELECT ARRAY[id, ` + numbersOf + `] FROM errand_job WHERE group_key = g.k AND role = 2 AND ` + settled + `
  UNION ALL SELECT ARRAY[id, ` + numbersOfDead + `] FROM errand_dead WHERE group_key = g.k AND role = 3 AND ` + settled + `
  UNION ALL (SELECT ARRAY[id, ` + numbersOf + `] FROM errand_job WHERE group_key = g.k AND role = 1 ORDER BY id LIMIT w.most))` + ofGroups + ofPlaces + `
CROSS JOIN LATERAL (SELECT CASE WHEN $4 OR t.taken > l.most THEN l.most ELSE l.most - t.taken END + g.n + 1 AS most) w ORDER BY g.k COLLATE "C"`

	sqlReserve = `SELECT nextval('errand_key') FROM generate_series(1, $1::integer)`

	sqlWriteKeys = `INSERT INTO errand_unique (key, slot, job, created_at, until, salt)
SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[])
ON CONFLICT (key, slot) DO UPDATE SET job = excluded.job, created_at = excluded.created_at, until = excluded.until, salt = excluded.salt`
	sqlDropKeys = `DELETE FROM errand_unique u USING unnest($1::bytea[], $2::smallint[]) f(key, slot) WHERE u.key = f.key AND u.slot = f.slot`

	// A division by zero, see errMissed, if u has fewer rows than $1.
	allOf         = `SELECT 1 / (count(*) = cardinality($1))::integer FROM u`
	sqlPassDead   = `UPDATE errand_dead SET role = 0 WHERE group_key = ANY($1::text[]) AND role = 3`
	sqlDropGroups = `DELETE FROM errand_group WHERE group_key = ANY($1::text[])`
)

// What placeColumns are called in the table of jobs, and how they are set there, see placeTypes.
const (
	placeNames = `id, state, due_at, role, was_due`
	setPlaces  = `state = f.state, due_at = f.due_at, role = f.role, was_due = f.was_due`
)

var (
	sqlInsertBeside = `INSERT INTO errand_job (lane, priority, created_at, timeout, salt, weight, policy, headers, args, unique_key, group_key, ` + placeNames + `)
SELECT * FROM unnest($1::integer[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::bytea[], $8::bytea[], $9::bytea[],
  $10::bytea[], $11::text[], ` + placeTypes(11) + `)`
	// Both set what was decided of jobs that are in the states $1 still. They are, as the row of a job that
	// may be replaced or blocked is locked, and nobody changes one that is blocked, or is due and has no
	// place, without the lock of its key or group. If by damage they are not, there is an error, and
	// nothing of the transaction is written.
	sqlMove = `WITH u AS (UPDATE errand_job j SET ` + setPlaces + `
  FROM unnest($1::smallint[], ` + placeTypes(1) + `) f(was, ` + placeNames + `)
  WHERE j.id = f.id AND j.state = f.was RETURNING 1) ` + allOf
	sqlRewrite = `WITH u AS (UPDATE errand_job j SET ` + setPlaces + `, retry = f.retry, crashes = f.crashes,
    snoozes = f.snoozes, priority = f.priority, weight = f.weight, headers = f.headers, args = f.args
  FROM unnest($1::smallint[], $2::integer[], $3::integer[], $4::integer[], $5::smallint[], $6::integer[], $7::bytea[], $8::bytea[], ` + placeTypes(8) + `)
    f(was, retry, crashes, snoozes, priority, weight, headers, args, ` + placeNames + `)
  WHERE j.id = f.id AND j.state = f.was RETURNING 1) ` + allOf
)

// deciding is what a transaction locks, and what it knows of that.
type deciding struct {
	s    *Store
	need rules.Need
	tx   rules.Tx
	set  obeyed
	// Jobs that are deleted beside what the Tx decides.
	deleted deleted
	news    news // of the last changes
	// What a row is scanned into: memory that rows share.
	key struct {
		name       pgtype.DriverBytes
		slot       int16
		is         rules.Keeper
		live, kept bool
	}
	job     rules.Job
	numbers numbers
}

// numbers are an array, whose memory is used again for the next one.
type numbers []int64

// SetDimensions implements [pgtype.ArraySetter].
func (n *numbers) SetDimensions(dimensions []pgtype.ArrayDimension) error {
	size := min(len(dimensions), 1)
	for _, d := range dimensions {
		size *= int(d.Length)
	}
	*n = slices.Grow((*n)[:0], size)[:size]
	return nil
}

// ScanIndex implements [pgtype.ArraySetter].
func (n *numbers) ScanIndex(i int) any { return &(*n)[i] }

// ScanIndexType implements [pgtype.ArraySetter].
func (n *numbers) ScanIndexType() any { return new(int64) }

// into sets what numbersOf says of a job.
func (n numbers) into(j *rules.Job) {
	j.Lane, j.Due, j.State, j.Role, j.WasDue = n[0], n[1], states[n[2]], rules.Role(n[3]), n[4] == 1
}

// work sets what countersOf says of a job, after numbersOf.
func (n numbers) work(j *rules.Job) {
	n = n[ofNumbers:]
	j.Counters, j.Bytes = storage.Counters{Attempt: int(n[0]), Retry: int(n[1]), Crashes: int(n[2]), Snoozes: int(n[3])}, n[4]
}

// deciding returns what a call decides by, as of now. turns is that of [rules.Tx.Begin].
func (s *Store) deciding(now time.Time, turns int64) *deciding {
	dec := &deciding{s: s}
	dec.tx.Begin(now, turns)
	return dec
}

// leaves has the unique key and the group of a job be locked that may end.
func (dec *deciding) leaves(b beside) { dec.need.End(b.key, b.group) }

// names returns the keys and groups to lock, in order.
func (dec *deciding) names() (all []string) {
	if dec.need.None() {
		return nil
	}
	dec.need.Sort()
	for _, name := range dec.need.Groups {
		all = append(all, "group "+name)
	}
	for _, k := range dec.need.Keys {
		all = append(all, "key "+k.Name)
	}
	return all
}

// load queues the locking of all that is needed, keys before groups before jobs, each in order, and
// then the reading. What was read and decided before is forgotten.
func (dec *deciding) load(b *pgx.Batch) {
	dec.need.Sort()
	need := &dec.need
	dec.tx.Reset(*need)
	dec.news = news{}
	keys, conflicts, merges := [][]byte{}, [][]byte{}, [][]byte{}
	for _, k := range need.Keys {
		name := []byte(k.Name)
		keys = append(keys, name)
		if k.Conflict.Replaces() {
			conflicts = append(conflicts, name)
			if k.Conflict.Merge != nil {
				merges = append(merges, name)
			}
		}
	}
	groups := len(need.Groups)+len(conflicts) > 0
	if len(keys) > 0 {
		b.Queue(sqlLockKeys, keys)
	}
	if groups {
		b.Queue(sqlLockGroups, need.Groups, need.Leave, conflicts)
		dec.s.obey(b, &dec.set)
	}
	if !need.None() {
		b.Queue(sqlLockRows, need.Groups, need.Leave, conflicts, need.Anew, need.Jobs)
	}
	if len(need.Jobs) > 0 {
		each(b, dec.scanMayEnd, sqlMayEnd, need.Jobs)
		dec.tx.ReadLives()
	}
	if len(keys) > 0 {
		each(b, dec.scanKey, sqlKeys, keys, conflicts, merges)
	}
	if groups {
		each(b, dec.scanGroup, sqlGroup, need.Groups, need.Leave, conflicts, need.Anew)
		dec.set.check(b)
	}
	if need.Fresh > 0 {
		each(b, func(row pgx.CollectableRow) error {
			var id int64
			err := row.Scan(&id)
			dec.tx.ReadFresh(id)
			return err
		}, sqlReserve, need.Fresh)
	}
}

// scanKey reads a row of sqlKeys.
func (dec *deciding) scanKey(in pgx.CollectableRow) error {
	k, j := &dec.key, &dec.job
	*j = rules.Job{}
	err := in.Scan(&k.name, &k.slot, &k.is.Job, &k.is.Salt, &k.is.Created, &k.is.Until, &k.live, &k.kept,
		&dec.numbers, &j.Group, &j.Args)
	if err != nil {
		return err
	}
	name, behind := string(k.name), k.slot == 1
	if dec.tx.ReadKey(name, behind, k.is, k.live, k.kept); !behind { // nobody waits for it, unless the next row says who
		dec.tx.ReadKey(name, true, rules.Keeper{}, false, false)
	}
	if n := dec.numbers; len(n) > 0 {
		j.ID, j.Salt, j.Created = k.is.Job, k.is.Salt, k.is.Created
		n.into(j)
		n.work(j)
		j.Priority = int(n[len(n)-1])
		dec.tx.ReadJob(*j)
	}
	return nil
}

// scanMayEnd reads a row of sqlMayEnd.
func (dec *deciding) scanMayEnd(in pgx.CollectableRow) error {
	j := &dec.job
	*j = rules.Job{}
	err := in.Scan(&j.ID, &j.Token, &j.Salt, &j.Created, &dec.key.name, &j.Group, &j.Cancelling, &j.History, &j.Doubt, &dec.numbers)
	if err == nil {
		j.Unique = string(dec.key.name)
		dec.numbers.into(j)
		dec.numbers.work(j)
		dec.tx.ReadLive(*j)
	}
	return err
}

func (dec *deciding) scanGroup(in pgx.CollectableRow) error {
	var g rules.Group
	var members bool
	var most int64
	if err := in.Scan(&g.Name, &g.Taken, &g.Dead, &members, &most, &dec.numbers); err != nil {
		return err
	}
	g.Rule = rules.GroupRuleOf(dec.set.of, g.Name)
	j, waiting := rules.Job{Group: g.Name}, 0
	for n := range slices.Chunk(dec.numbers, 1+ofNumbers) {
		if n[1:].into(&j); j.Role == rules.Waits {
			waiting++
		}
	}
	dec.tx.ReadGroup(g, members, waiting, most)
	for n := range slices.Chunk(dec.numbers, 1+ofNumbers) {
		j.ID = n[0]
		n[1:].into(&j)
		dec.tx.ReadMember(j)
	}
	return nil
}

// enter decides about a new job at an index of its call.
func (dec *deciding) enter(i int, j *storage.NewJob) (storage.Enqueued, error) {
	return dec.tx.Enter(i, j, int64(dec.s.lanes.number(storage.Lane{Queue: j.Queue, Kind: j.Kind})), uint32(newSalt()))
}

// changes returns a batch that writes what was decided, nil if that is nothing.
func (dec *deciding) changes() *pgx.Batch {
	c := dec.tx.Changes()
	if c.None() {
		return nil
	}
	b := &pgx.Batch{}
	dec.decided(b, c)
	return b
}

// decided queues what was decided.
func (dec *deciding) decided(b *pgx.Batch, c rules.Changes) {
	dec.news = dec.s.newsOf(c.Jobs)
	writeKeys(b, c.Keys)
	var asked, gone, kept, died, back, rewritten, moved, fresh, failed, redriven, transferred, otherDead, edited, still []*rules.Row
	for _, r := range c.Jobs {
		to := &moved
		switch {
		case r.New != nil:
			to = &fresh
		case r.Amended():
			to = &still
		case r.Was.State == storage.Dead && r.Is.State == storage.Dead:
			to = &otherDead
		case r.Was.State == storage.Dead:
			to = &redriven
		case r.Was.Lane != r.Is.Lane:
			to = &transferred
		case r.Is.State == "":
			to = &gone
		case r.Is.State == storage.Dead:
			to = &died
		case r.PurgeAt != 0:
			to = &kept
		case r.Is.State == storage.Running:
			to = &asked
		case r.Was.State == storage.Running:
			to = &back
		case r.Does != nil:
			to = &rewritten
		}
		if *to = append(*to, r); to == &back && r.Does != nil {
			rewritten = append(rewritten, r)
		}
		if r.Edit != nil {
			edited = append(edited, r)
		}
		if r.Fails {
			failed = append(failed, r)
		}
	}
	ask(b, asked)
	drop(b, gone)
	retain(b, c.At, kept)
	putBack(b, back)
	transfer(b, transferred)
	rewrite(b, rewritten)
	move(b, moved)
	dec.s.fail(b, c.At, failed)
	if len(c.Empty) > 0 {
		b.Queue(sqlDropGroups, c.Empty)
	}
	insertRows(b, fresh)
	if lanes := append(lanesOf(died, redriven, otherDead), dec.deleted.lanes...); len(lanes) > 0 { // nothing is waited for after these
		b.Queue(sqlLockDeaths, lanes)
	}
	dec.deleted.drop(b)
	putBackDead(b, redriven)
	transferDead(b, otherDead)
	if len(c.Pass) > 0 { // by those that have come to the groups too
		b.Queue(sqlPassDead, c.Pass)
	}
	bury(b, c.At, died)
	dec.s.amend(b, c.At, edited)
	dec.s.count(b, &c)
}

// writeKeys queues the keys whose rows are others than were read. One that nobody has goes,
// also if it was there only as a lock.
func writeKeys(b *pgx.Batch, keys []*rules.Key) {
	var drop, write [][]byte
	var dropSlot, slots []int16
	var jobs, created, until []int64
	var salt []int32
	for _, k := range keys {
		key := []byte(k.Name)
		for slot, is := range [2]rules.Keeper{k.Holder, k.Behind} {
			switch {
			case is.Job == 0 && (slot == 0 || k.Were[slot].Job != 0):
				drop, dropSlot = append(drop, key), append(dropSlot, int16(slot))
			case is != k.Were[slot] && is.Job != 0:
				write, slots = append(write, key), append(slots, int16(slot))
				jobs, created, until, salt = append(jobs, is.Job), append(created, is.Created), append(until, is.Until), append(salt, int32(is.Salt))
			}
		}
	}
	if len(drop) > 0 {
		b.Queue(sqlDropKeys, drop, dropSlot)
	}
	if len(write) > 0 {
		b.Queue(sqlWriteKeys, write, slots, jobs, created, until, salt)
	}
}

// placeColumns are states and places of jobs, as columns.
type placeColumns struct {
	id, due []int64
	state   []int16
	role    []*int16
	wasDue  []*bool
}

// grow makes room for n jobs.
func (c *placeColumns) grow(n int) {
	c.id, c.due, c.state = make([]int64, 0, n), make([]int64, 0, n), make([]int16, 0, n)
	c.role, c.wasDue = make([]*int16, 0, n), make([]*bool, 0, n)
}

// placeTypes returns the parameters that behind gives, after n others.
func placeTypes(n int) string {
	return fmt.Sprintf("$%d::bigint[], $%d::smallint[], $%d::bigint[], $%d::smallint[], $%d::boolean[]", n+1, n+2, n+3, n+4, n+5)
}

// behind returns parameters with the columns behind them.
func (c *placeColumns) behind(others ...any) []any {
	return append(others, c.id, c.state, c.due, c.role, c.wasDue)
}

// part returns the rows between two.
func (c *placeColumns) part(from, to int) *placeColumns {
	return &placeColumns{c.id[from:to], c.due[from:to], c.state[from:to], c.role[from:to], c.wasDue[from:to]}
}

func (c *placeColumns) add(j *rules.Job) {
	c.id, c.due, c.state = append(c.id, j.ID), append(c.due, j.Due), append(c.state, codeOf(j.State))
	c.role = append(c.role, roleOf(j.Role, j.Group != ""))
	var wasDue *bool
	if j.State == storage.Blocked {
		wasDue = &j.WasDue
	}
	c.wasDue = append(c.wasDue, wasDue)
}

// rewrite queues what waiting jobs are to do.
func rewrite(b *pgx.Batch, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var p placeColumns
	var was, priority []int16
	var n counterColumns
	var weight []int32
	var headers, args [][]byte
	for _, r := range rows {
		p.add(&r.Is)
		if r.Was.State == storage.Running { // finish has put it back
			was = append(was, codeOf(r.Is.State))
		} else {
			was = append(was, codeOf(r.Was.State))
		}
		n.add(r.Is.Counters)
		priority, weight = append(priority, int16(r.Is.Priority)), append(weight, weightOf(r.Does))
		headers, args = append(headers, optional(r.Does.Headers)), append(args, filled(r.Does.Args))
	}
	b.Queue(sqlRewrite, p.behind(was, n.retry, n.crashes, n.snoozes, priority, weight, headers, args)...)
}

// move queues the states and places of jobs that wait.
func move(b *pgx.Batch, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var p placeColumns
	p.grow(len(rows))
	was := make([]int16, 0, len(rows))
	for _, r := range rows {
		p.add(&r.Is)
		was = append(was, codeOf(r.Was.State))
	}
	b.Queue(sqlMove, p.behind(was)...)
}

// filled returns args that are not nil.
func filled(args []byte) []byte {
	if args == nil {
		return []byte{}
	}
	return args
}

// roleOf returns a role as the tables have it: NULL if the job has no group.
func roleOf(r rules.Role, has bool) *int16 {
	if !has {
		return nil
	}
	n := int16(r)
	return &n
}

// inTransaction runs fn twice in a transaction: first what it queues is only to lock and to
// read; what it queues then ends it. If fn returns nil as the second batch, nothing is written.
// dec says what it locks, as far as that is known before.
func (s *Store) inTransaction(ctx context.Context, dec *deciding, lock func(b *pgx.Batch), decide func() (*pgx.Batch, error)) error {
	return s.inLine(ctx, dec, func(ctx context.Context, c *pgx.Conn) error {
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
