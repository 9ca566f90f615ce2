package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// What has to be known of jobs that may end.
	sqlMayEnd = `SELECT id, token, salt, created_at, coalesce(unique_key, ''::bytea), coalesce(group_key, ''), cancelling, history, doubt IS NOT NULL, ARRAY[` + numbersOf + countersOf + `]
FROM errand_job WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE`

	// Jobs whose ends do not depend on their rows, by their leases, with what that adds to the numbers: they
	// have ended in a state, and those that are done have succeeded at $4.
	sqlDelete = `WITH d AS (DELETE FROM errand_job j USING unnest($1::bigint[], $2::bigint[], $3::smallint[]) f(id, token, ended)
  WHERE j.id = f.id AND j.token = f.token AND j.state = 3 RETURNING j.id, j.token, j.lane, j.history, j.weight, f.ended),
h AS (DELETE FROM errand_history h USING d WHERE d.history AND h.job = d.id),
n AS (INSERT INTO errand_delta SELECT lane, 112 + ended, count(*), -sum(weight), CASE ended WHEN 4 THEN $4::bigint END FROM d GROUP BY lane, ended),
x AS (INSERT INTO errand_call (store, call, keys) SELECT $5::integer, $6::bigint + 3, coalesce(array_agg(token), ARRAY[0]) FROM d HAVING count(*) < $7::integer)
SELECT id, token FROM d`
	sqlKeep = `WITH d AS (DELETE FROM errand_job j USING unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bytea[]) f(id, token, ended, error)
  WHERE j.id = f.id AND j.token = f.token AND j.state = 3 RETURNING j.*, f.ended, f.error),
k AS (INSERT INTO errand_finished (id, due_at, created_at, ended_at, purge_at, token, timeout, lane, salt, attempt, retry, crashes, snoozes,
    state, priority, policy, headers, args, error, unique_key, group_key)
  SELECT id, due_at, created_at, $5::bigint, $6::bigint, token, timeout, lane, salt, attempt, retry, 0, snoozes,
    ended, priority, policy, headers, args, error, unique_key, group_key FROM d),
n AS (INSERT INTO errand_delta SELECT lane, 96 + ended, count(*), -sum(weight), CASE ended WHEN 4 THEN $5 END FROM d GROUP BY lane, ended),
x AS (INSERT INTO errand_call (store, call, keys) SELECT $7::integer, $8::bigint + 3, coalesce(array_agg(token), ARRAY[0]) FROM d HAVING count(*) < $9::integer)
SELECT id, token FROM d`

	// Jobs that were read, and are locked.
	sqlEnd        = `DELETE FROM errand_job WHERE id = ANY($1::bigint[])`
	sqlEndHistory = `DELETE FROM errand_history WHERE job = ANY($1::bigint[])`
	sqlRetain     = `WITH d AS (DELETE FROM errand_job j
  USING unnest($1::bigint[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::smallint[], $7::bigint[], $8::bytea[])
    f(id, attempt, retry, crashes, snoozes, ended, purge_at, error)
  WHERE j.id = f.id RETURNING j.id, j.due_at, j.created_at, f.purge_at, j.token, j.timeout, j.lane, j.salt, f.attempt, f.retry, f.crashes, f.snoozes,
    f.ended, j.priority, j.policy, j.headers, j.args, f.error, j.unique_key, j.group_key)
INSERT INTO errand_finished (id, due_at, created_at, purge_at, token, timeout, lane, salt, attempt, retry, crashes, snoozes,
  state, priority, policy, headers, args, error, unique_key, group_key, ended_at) SELECT *, $9::bigint FROM d`
	sqlBury = `WITH d AS (DELETE FROM errand_job j
  USING unnest($1::bigint[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::text[], $7::bytea[], $8::bytea[], $9::bytea[], $11::smallint[])
    f(id, attempt, retry, crashes, snoozes, reason, in_effect, error, text, role)
  WHERE j.id = f.id RETURNING j.id, j.due_at, j.created_at, j.token, j.timeout, j.lane, j.salt, f.attempt, f.retry, f.crashes, f.snoozes,
    j.priority, f.reason, j.policy, f.in_effect, j.headers, j.args, f.error, j.unique_key, j.group_key, f.role, f.text)
INSERT INTO errand_dead (id, due_at, created_at, token, timeout, lane, salt, attempt, retry, crashes, snoozes,
  priority, reason, policy, in_effect, headers, args, error, unique_key, group_key, role, ended_at, cause)
SELECT id, due_at, created_at, token, timeout, lane, salt, attempt, retry, crashes, snoozes,
  priority, reason, policy, in_effect, headers, args, error, unique_key, group_key, role, $10::bigint, ` + causeOf + ` FROM d`

	sqlFail = `INSERT INTO errand_history (job, n, attempt, at, duration, retry_after, phase, error, stack, instance)
SELECT job, coalesce((SELECT max(n) FROM errand_history h WHERE h.job = f.job), 0) + 1, attempt, $8::bigint, duration, retry_after, phase, error, stack, instance
FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::boolean[], $5::bytea[], $6::bytea[], $7::bytea[], $9::bytea[])
  f(job, attempt, duration, retry_after, phase, error, stack, instance)`
	sqlPrune = `DELETE FROM errand_history h USING unnest($1::bigint[]) f(job)
WHERE h.job = f.job AND h.n <= (SELECT n FROM errand_history x WHERE x.job = f.job ORDER BY n DESC LIMIT 1 OFFSET $2::integer)`
)

var sqlPutBack = `UPDATE errand_job j SET ` + setPlaces + `, attempt = f.attempt, retry = f.retry, crashes = f.crashes,
  snoozes = f.snoozes, history = f.history, doubt = f.doubt, instance = 0, cancelling = false, started_at = NULL
FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::integer[], $5::boolean[], $6::smallint[], ` + placeTypes(6) + `)
  f(attempt, retry, crashes, snoozes, history, doubt, ` + placeNames + `) WHERE j.id = f.id`

// finishing is the Finish part of an exchange.
type finishing struct {
	s   *Store
	now time.Time
	x   *storage.Exchange
	// simple says that nothing depends on the rows of the jobs.
	simple   bool
	number   int64 // of the call
	deciding *deciding
	unknown  []int64 // keys of jobs of which it is not known what they have beside

	results []storage.ItemResult
	then    map[int][]storage.Enqueued
	ended   map[storage.Lease]bool // of a simple one: what the statements have ended
}

func newFinishing(s *Store, now time.Time, x *storage.Exchange) *finishing {
	f := &finishing{s: s, now: now, x: x, simple: !s.long, ended: map[storage.Lease]bool{}, deciding: s.deciding(now, micros(now))}
	for i := range x.Finish {
		has, ok := s.besides.get(x.Finish[i].Token)
		if !ok {
			f.unknown = append(f.unknown, x.Finish[i].Key)
		}
		f.deciding.leaves(has)
		f.deciding.need.Enter(x.Finish[i].Then)
		f.simple = f.simple && ok && rules.PlainFinish(&x.Finish[i], has.key, has.group, &x.Retention)
	}
	if f.simple {
		return f
	}
	for i := range x.Finish {
		f.deciding.need.Jobs = append(f.deciding.need.Jobs, x.Finish[i].Key)
	}
	// All are locked in order before each part of the exchange is about some of them.
	for _, l := range slices.Concat(x.Extend, x.Start, x.Stop) {
		f.deciding.need.Jobs = append(f.deciding.need.Jobs, l.Key)
	}
	return f
}

// learn reads what those jobs have of which the Store does not know it: they were leased by
// others, or the answer was lost.
func (f *finishing) learn(ctx context.Context, e *exchange, c *pgx.Conn) error {
	if len(f.unknown) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	each(b, func(in pgx.CollectableRow) error {
		var key, token int64
		var unique []byte
		var group string
		err := in.Scan(&key, &token, &unique, &group)
		f.deciding.leaves(beside{string(unique), group})
		return err
	}, sqlBeside, f.unknown)
	return e.send(ctx, c, b, false)
}

// write decides, unless that does not depend on rows, and queues what becomes of the jobs.
func (f *finishing) write(b *pgx.Batch) (err error) {
	if f.simple {
		f.endSimple(b)
		return nil
	}
	if f.results, f.then, err = f.deciding.tx.Finish(f.x.Finish, f.s.keeps(&f.x.Retention), f.deciding.enter); err == nil {
		f.deciding.decided(b, f.deciding.tx.Changes())
	}
	return err
}

// keeps returns for how long jobs of lanes are kept.
func (s *Store) keeps(r *storage.Retention) func(lane int64) time.Duration {
	return func(lane int64) time.Duration {
		name := s.lanes.name(int32(lane))
		return r.Of(name.Queue, name.Kind)
	}
}

// endSimple queues the ends of jobs that do not depend on their rows. The statements count.
func (f *finishing) endSimple(b *pgx.Batch) {
	defer f.s.count(b, &rules.Changes{}) // behind the rows of jobs, as in decided
	if len(f.x.Finish) == 0 {
		return
	}
	took := func(row pgx.CollectableRow) error {
		var l storage.Lease
		err := row.Scan(&l.Key, &l.Token)
		f.ended[l] = true
		return err
	}
	all := make([]*storage.Finish, len(f.x.Finish))
	for i := range all {
		all[i] = &f.x.Finish[i]
	}
	slices.SortStableFunc(all, func(a, b *storage.Finish) int { return compareLeases(a.Lease, b.Lease) })
	all = slices.CompactFunc(all, func(a, b *storage.Finish) bool { return a.Lease == b.Lease })
	var keys, tokens []int64
	var state []int16
	var text [][]byte
	for _, fin := range all {
		keys, tokens = append(keys, fin.Key), append(tokens, fin.Token)
		state, text = append(state, codeOf(fin.Effect(false).State)), append(text, []byte(fin.Error))
	}
	if keep := f.x.Retention.Default; keep > 0 {
		each(b, took, sqlKeep, append([]any{keys, tokens, state, text, micros(f.now), micros(f.now.Add(keep))}, f.usual(len(keys))...)...)
	} else {
		each(b, took, sqlDelete, append([]any{keys, tokens, state, micros(f.now)}, f.usual(len(keys))...)...)
	}
}

// usual are the parameters by which a statement marks what is not as usual, if that is not
// known before the commit: how many of n there are else.
func (f *finishing) usual(n int) []any {
	if !f.simple {
		n = 0
	}
	return []any{f.s.sent.store, f.number * callParts, n}
}

// counterColumns are counters of jobs, as columns.
type counterColumns struct{ attempt, retry, crashes, snoozes []int32 }

func (c *counterColumns) add(n storage.Counters) {
	c.attempt, c.retry = append(c.attempt, int32(n.Attempt)), append(c.retry, int32(n.Retry))
	c.crashes, c.snoozes = append(c.crashes, int32(n.Crashes)), append(c.snoozes, int32(n.Snoozes))
}

// drop queues the ends of jobs that are not kept.
func drop(b *pgx.Batch, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var keys, failed []int64
	for _, r := range rows {
		if keys = append(keys, r.Is.ID); r.Is.History {
			failed = append(failed, r.Is.ID)
		}
	}
	b.Queue(sqlEnd, keys)
	if len(failed) > 0 {
		b.Queue(sqlEndHistory, failed)
	}
}

// retain queues the ends of jobs that are kept.
func retain(b *pgx.Batch, at int64, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var keys, purge []int64
	var n counterColumns
	var state []int16
	var text [][]byte
	for _, r := range rows {
		keys, purge, state = append(keys, r.Is.ID), append(purge, r.PurgeAt), append(state, codeOf(r.Is.State))
		n.add(r.Is.Counters)
		message := []byte{}
		if r.Finish != nil {
			message = []byte(r.Finish.Error)
		}
		text = append(text, message)
	}
	b.Queue(sqlRetain, keys, n.attempt, n.retry, n.crashes, n.snoozes, state, purge, text, at)
}

// bury queues the deaths of jobs.
func bury(b *pgx.Batch, at int64, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var keys []int64
	var n counterColumns
	var lanes []int32
	var reason []string
	var policy, text, cause [][]byte
	var role []*int16
	for _, r := range rows {
		f := r.Finish
		keys, reason, role = append(keys, r.Is.ID), append(reason, string(f.Reason)), append(role, roleOf(r.Is.Role, r.Is.Group != ""))
		lanes = append(lanes, int32(r.Is.Lane))
		n.add(r.Is.Counters)
		policy, text, cause = append(policy, optional(f.Policy)), append(text, []byte(f.Error)), append(cause, []byte(f.Cause))
	}
	b.Queue(sqlAddCauses, lanes, reason, cause, at)
	b.Queue(sqlBury, keys, n.attempt, n.retry, n.crashes, n.snoozes, reason, policy, text, cause, at, role)
	b.Queue(sqlCountDead, keys, 1)
}

// putBack queues the rows of jobs that have run, and wait again.
func putBack(b *pgx.Batch, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var p placeColumns
	var n counterColumns
	var history []bool
	var doubt []*int16
	unknown := int16(1)
	for _, r := range rows {
		p.add(&r.Is)
		n.add(r.Is.Counters)
		history, doubt = append(history, r.Is.History), append(doubt, nil)
		if r.Is.Doubt {
			doubt[len(doubt)-1] = &unknown
		}
	}
	b.Queue(sqlPutBack, p.behind(n.attempt, n.retry, n.crashes, n.snoozes, history, doubt)...)
}

// fail queues what is added to histories.
func (s *Store) fail(b *pgx.Batch, at int64, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var keys, long, took []int64
	var attempt []int32
	var after []bool
	var phase, text, stack, instance [][]byte
	for _, r := range rows {
		f := r.Finish.Failure
		keys, attempt, took, after = append(keys, r.Is.ID), append(attempt, int32(r.Is.Attempt)), append(took, length(f.Duration)), append(after, f.RetryAfter)
		phase, text, stack = append(phase, []byte(f.Phase)), append(text, []byte(f.Error)), append(stack, []byte(f.Stack))
		instance = append(instance, []byte(cmp.Or(f.Instance, s.self.title())))
		if r.Is.Attempt > storage.HistoryLimit-storage.EditLimit { // so few failures, and as many edits as there can be
			long = append(long, r.Is.ID)
		}
	}
	b.Queue(sqlFail, keys, attempt, took, after, phase, text, stack, at, instance)
	if len(long) > 0 {
		b.Queue(sqlPrune, long, storage.HistoryLimit)
	}
}

// answer fills in the results.
func (f *finishing) answer(res *storage.ExchangeResult) {
	if !f.simple {
		res.Finished, res.Then = f.results, f.then
		return
	}
	for i := range f.x.Finish {
		l := f.x.Finish[i].Lease
		result := storage.Lost
		if f.ended[l] {
			delete(f.ended, l) // whoever names it twice has lost it the second time
			result = storage.Applied
		}
		res.Finished = append(res.Finished, result)
	}
}

// sorted returns leases by key and token, each once.
func sorted(leases []storage.Lease) []storage.Lease {
	return slices.Compact(slices.SortedFunc(slices.Values(leases), compareLeases))
}

func compareLeases(a, b storage.Lease) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Token, b.Token))
}
