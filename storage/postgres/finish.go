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
	sqlLock = `SELECT id, token, lane, due_at, attempt, retry, crashes, snoozes, cancelling, unique_key, group_key, coalesce(role, 0) FROM errand_job
WHERE id = ANY($1::bigint[]) AND state = 3 ORDER BY id FOR UPDATE`

	// Both end jobs in a state, of leases or with the token that a waiting job has.
	sqlDelete = `WITH d AS (DELETE FROM errand_job j USING unnest($1::bigint[], $2::bigint[]) f(id, token)
  WHERE j.id = f.id AND j.token = f.token AND j.state = $3::smallint RETURNING j.id, j.token, j.lane, j.history),
h AS (DELETE FROM errand_history h USING d WHERE d.history AND h.job = d.id),
n AS (INSERT INTO errand_delta SELECT lane, $3::smallint, -count(*) FROM d GROUP BY lane),
x AS (INSERT INTO errand_call (store, call, keys) SELECT $4::integer, $5::bigint + 3, coalesce(array_agg(token), ARRAY[0]) FROM d HAVING count(*) < $6::integer)
SELECT id, token FROM d`

	sqlKeep = `WITH d AS (DELETE FROM errand_job j
  USING unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::integer[], $5::bigint[], $6::bytea[]) f(id, token, ended, more, purge_at, error)
  WHERE j.id = f.id AND j.token = f.token AND j.state = $8::smallint RETURNING j.*, f.ended, f.more, f.purge_at, f.error),
k AS (INSERT INTO errand_finished (id, due_at, created_at, ended_at, purge_at, token, timeout, lane, salt, attempt, retry, crashes, snoozes,
    state, priority, policy, headers, args, error, unique_key, group_key)
  SELECT id, due_at, created_at, $7::bigint, purge_at, token, timeout, lane, salt, attempt + more, retry, crashes * $9::integer, snoozes,
    ended, priority, policy, headers, args, error, unique_key, group_key FROM d),
n AS (INSERT INTO errand_delta
  SELECT lane, $8::smallint, -count(*) FROM d GROUP BY lane UNION ALL SELECT lane, ended, count(*) FROM d GROUP BY lane, ended),
x AS (INSERT INTO errand_call (store, call, keys) SELECT $10::integer, $11::bigint + 3, coalesce(array_agg(token), ARRAY[0]) FROM d HAVING count(*) < $12::integer)
SELECT id, token FROM d`

	sqlBury = `WITH d AS (DELETE FROM errand_job j
  USING unnest($1::bigint[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::text[], $7::bytea[], $8::bytea[], $9::bytea[], $11::smallint[])
    f(id, attempt, retry, crashes, snoozes, reason, in_effect, error, cause, role)
  WHERE j.id = f.id RETURNING j.id, j.due_at, j.created_at, j.token, j.timeout, j.lane, j.salt, f.attempt, f.retry, f.crashes, f.snoozes,
    j.priority, f.reason, j.policy, f.in_effect, j.headers, j.args, f.error, f.cause, j.unique_key, j.group_key, f.role)
INSERT INTO errand_dead (id, due_at, created_at, token, timeout, lane, salt, attempt, retry, crashes, snoozes,
  priority, reason, policy, in_effect, headers, args, error, cause, unique_key, group_key, role, ended_at) SELECT *, $10::bigint FROM d`

	sqlPutBack = `UPDATE errand_job j SET state = f.state, due_at = f.due_at, attempt = f.attempt, retry = f.retry, crashes = f.crashes,
  snoozes = f.snoozes, history = j.history OR f.history, role = f.role, was_due = f.was_due, instance = 0, cancelling = false,
  started_at = NULL, doubt = CASE WHEN j.doubt IS NOT NULL AND NOT f.settled THEN 1 END
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::boolean[], $9::boolean[],
  $10::smallint[], $11::boolean[]) f(id, state, due_at, attempt, retry, crashes, snoozes, history, settled, role, was_due) WHERE j.id = f.id`

	sqlFail = `INSERT INTO errand_history (job, n, attempt, at, duration, retry_after, phase, error, stack, instance)
SELECT job, coalesce((SELECT max(n) FROM errand_history h WHERE h.job = f.job), 0) + 1, attempt, $8::bigint, duration, retry_after, phase, error, stack, instance
FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::boolean[], $5::bytea[], $6::bytea[], $7::bytea[], $9::bytea[])
  f(job, attempt, duration, retry_after, phase, error, stack, instance)`
	sqlPrune = `DELETE FROM errand_history h USING unnest($1::bigint[]) f(job)
WHERE h.job = f.job AND h.n <= (SELECT max(n) FROM errand_history x WHERE x.job = f.job) - $2::integer`
)

// held is the row of a job whose lease is about to end.
type held struct {
	token      int64
	lane       int32
	due        int64
	counters   storage.Counters
	cancelling bool
	beside
	role rules.Role
}

// finishing is the Finish part of an exchange.
type finishing struct {
	s   *Store
	now time.Time
	x   *storage.Exchange
	// simple says that nothing depends on the rows of the jobs.
	simple  bool
	number  int64 // of the call
	scopes  *scopes
	unknown []int64 // keys of jobs of which it is not known what they have beside

	held    map[int64]held // by key, without those whose lease has ended
	results []storage.ItemResult
	ended   map[storage.Lease]bool // of a simple one: what the statements have ended

	gone    []storage.Lease
	keep    []keeping
	bury    []burying
	back    []puttingBack
	fail    []failing
	then    entering
	thenFor []following // of which Finish each job of Then is
}

// following is a job of Finish.Then.
type following struct {
	finish int
	answer storage.Enqueued // if it has no ID, that of the next job of then
}

type keeping struct {
	storage.Lease
	state   int16
	more    int32 // added to the attempts
	purgeAt int64
	text    string
}

type burying struct {
	key int64
	storage.Counters
	*storage.Finish
	role *int16
}

type puttingBack struct {
	*rules.Row
	failed bool
	// settled: the crashes of the job begin anew.
	settled bool
}

type failing struct {
	key     int64
	attempt int
	*storage.NewFailure
}

func newFinishing(s *Store, now time.Time, x *storage.Exchange) *finishing {
	f := &finishing{s: s, now: now, x: x, simple: true, ended: map[storage.Lease]bool{}, scopes: s.scopes(now, micros(now))}
	for i := range x.Finish {
		has, ok := s.besides.get(x.Finish[i].Token)
		if !ok {
			f.unknown = append(f.unknown, x.Finish[i].Key)
		}
		f.scopes.leaves(has)
		f.simple = f.simple && ok && has.plain() && isSimple(&x.Finish[i]) && len(x.Retention.Lanes) == 0
	}
	f.follow()
	f.lockAll()
	for i := range x.Finish {
		if f.simple {
			f.end(&x.Finish[i], x.Finish[i].Effect(false), x.Retention.Default)
		}
	}
	return f
}

// follow has the scopes of all jobs of Then be locked, if one of them is not plain.
func (f *finishing) follow() {
	for i := range f.x.Finish {
		if plain, _ := supported(f.x.Finish[i].Then); !plain {
			for k := range f.x.Finish {
				f.scopes.need.Enter(f.x.Finish[k].Then)
			}
			return
		}
	}
}

// lockAll has the rows of all leases of an exchange be locked in order, before each part of it is
// about some of them, unless it only ends plain jobs.
func (f *finishing) lockAll() {
	others := slices.Concat(f.x.Extend, f.x.Start, f.x.Stop)
	if f.simple || len(others) == 0 && f.scopes.need.None() && len(f.unknown) == 0 {
		return
	}
	for _, l := range others {
		f.scopes.need.Jobs = append(f.scopes.need.Jobs, l.Key)
	}
	for i := range f.x.Finish {
		f.scopes.need.Jobs = append(f.scopes.need.Jobs, f.x.Finish[i].Key)
	}
}

// isSimple reports whether what a Finish does does not depend on the row of its job.
func isSimple(f *storage.Finish) bool {
	return (f.Outcome == storage.OutcomeDone || f.Outcome == storage.OutcomeCancelled) && f.Failure == nil && len(f.Then) == 0
}

// end notes that a job ends as finished.
func (f *finishing) end(fin *storage.Finish, e storage.Effect, keep time.Duration) {
	if keep <= 0 {
		f.gone = append(f.gone, fin.Lease)
		return
	}
	state := int16(done)
	if e.State == storage.Cancelled {
		state = cancelled
	}
	f.keep = append(f.keep, keeping{fin.Lease, state, int32(e.Add.Attempt), micros(f.now.Add(keep)), fin.Error})
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
		f.scopes.leaves(beside{string(unique), group})
		return err
	}, sqlBeside, f.unknown)
	return e.send(ctx, c, b, false)
}

// lock queues the locking and reading of the jobs.
func (f *finishing) lock(b *pgx.Batch) {
	f.held = map[int64]held{}
	var keys []int64
	for i := range f.x.Finish {
		keys = append(keys, f.x.Finish[i].Key)
	}
	each(b, func(row pgx.CollectableRow) error {
		var key int64
		var h held
		n := &h.counters
		var unique []byte
		var group *string
		err := row.Scan(&key, &h.token, &h.lane, &h.due, &n.Attempt, &n.Retry, &n.Crashes, &n.Snoozes, &h.cancelling, &unique, &group, &h.role)
		if h.key = string(unique); group != nil {
			h.group = *group
		}
		f.held[key] = h
		return err
	}, sqlLock, keys)
}

// decide decides what becomes of each job that was read, and then of the groups.
func (f *finishing) decide(d sums) error {
	for i := range f.x.Finish {
		fin := &f.x.Finish[i]
		h, ok := f.held[fin.Key]
		if !ok || h.token != fin.Token {
			f.results = append(f.results, storage.Lost)
			continue
		}
		e := fin.Effect(h.cancelling)
		if e.State == "" {
			f.results = append(f.results, storage.Refused)
			continue
		}
		f.results = append(f.results, storage.Applied)
		delete(f.held, fin.Key)
		if err := f.one(i, fin, e, h, d); err != nil {
			return err
		}
	}
	return f.scopes.tx.SettleAll()
}

// one decides about one job.
func (f *finishing) one(i int, fin *storage.Finish, e storage.Effect, h held, d sums) error {
	lane := f.s.lanes.name(h.lane)
	keep := f.x.Retention.Of(lane.Queue, lane.Kind)
	kept := true
	switch e.State {
	case storage.Ready:
		state, at := storage.Ready, h.due
		if fin.DueAt.After(f.now) {
			state = storage.Scheduled
		}
		if !fin.DueAt.IsZero() {
			at = rules.Due(fin.DueAt)
		} else if !e.KeepPlace {
			at = micros(f.now)
		}
		is := rules.Job{ID: fin.Key, Lane: int64(h.lane), Group: h.group, Role: h.role, State: state, Due: at, Counters: e.Counters(h.counters)}
		r, err := f.scopes.tx.PutBack(is, h.due, fin.Stays)
		if err != nil {
			return err
		}
		f.back = append(f.back, puttingBack{r, f.fails(fin), !e.KeepCrashes})
	default:
		if kept = e.State == storage.Dead || keep > 0; e.State != storage.Dead {
			f.end(fin, e, keep)
		}
		role, err := f.scopes.tx.End(fin.Key, h.key, h.group, h.role, e.State, kept)
		if err != nil {
			return err
		}
		if e.State == storage.Dead {
			f.bury = append(f.bury, burying{fin.Key, e.Counters(h.counters), fin, roleOf(role, h.group != "")})
			d.add(h.lane, running, -1)
			d.add(h.lane, dead, 1)
		}
	}
	if kept && f.fails(fin) {
		f.fail = append(f.fail, failing{fin.Key, h.counters.Attempt, fin.Failure})
	}
	if then := fin.Follows(storage.Applied); len(then) > 0 {
		return f.enter(i, then)
	}
	return nil
}

// enter has the jobs enter that follow the i-th Finish.
func (f *finishing) enter(i int, then []storage.NewJob) error {
	if f.scopes.need.Fresh == 0 {
		f.s.entering(&f.then, f.now, then)
		for range then {
			f.thenFor = append(f.thenFor, following{finish: i})
		}
		return nil
	}
	for k := range then {
		f.scopes.tx.Begin(f.now, micros(f.now)) // it enters as by a call of its own: the jobs before it are there
		answer, err := rules.Following(f.scopes.enter(k, &then[k]))
		if err != nil {
			return err
		}
		f.thenFor = append(f.thenFor, following{i, answer})
	}
	return nil
}

// fails reports whether a Finish adds to the history.
func (f *finishing) fails(fin *storage.Finish) bool {
	return fin.Failure != nil && fin.Outcome != storage.OutcomeReturned
}

// write decides, unless that was done before, and queues what was decided.
func (f *finishing) write(b *pgx.Batch, d sums) error {
	if !f.simple {
		if err := f.decide(d); err != nil {
			return err
		}
	}
	took := func(row pgx.CollectableRow) error {
		var l storage.Lease
		err := row.Scan(&l.Key, &l.Token)
		f.ended[l] = true
		return err
	}
	if len(f.gone) > 0 {
		keys, tokens := columns(f.gone)
		each(b, took, sqlDelete, append([]any{keys, tokens, running}, f.usual(len(keys))...)...)
	}
	f.writeKept(b, took)
	f.writeDead(b)
	f.writeBack(b)
	f.writeFailures(b)
	write(b, f.scopes.tx.Changes(), d)
	f.then.insert(b, d)
	return nil
}

func (f *finishing) writeKept(b *pgx.Batch, took func(pgx.CollectableRow) error) {
	if len(f.keep) == 0 {
		return
	}
	slices.SortStableFunc(f.keep, func(a, b keeping) int { return cmp.Compare(a.Key, b.Key) })
	var keys, tokens, purge []int64
	var state []int16
	var more []int32
	var text [][]byte
	for i, k := range f.keep {
		if i > 0 && f.keep[i-1].Lease == k.Lease {
			continue
		}
		keys, tokens, state, more = append(keys, k.Key), append(tokens, k.Token), append(state, k.state), append(more, k.more)
		purge, text = append(purge, k.purgeAt), append(text, []byte(k.text))
	}
	each(b, took, sqlKeep, append([]any{keys, tokens, state, more, purge, text, micros(f.now), running, 0}, f.usual(len(keys))...)...)
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

func (f *finishing) writeDead(b *pgx.Batch) {
	if len(f.bury) == 0 {
		return
	}
	var keys []int64
	var n counterColumns
	var reason []string
	var policy, text, cause [][]byte
	var role []*int16
	for _, d := range f.bury {
		keys, reason = append(keys, d.key), append(reason, string(d.Reason))
		n.add(d.Counters)
		policy, text, cause = append(policy, optional(d.Policy)), append(text, []byte(d.Error)), append(cause, []byte(d.Cause))
		role = append(role, d.role)
	}
	b.Queue(sqlBury, keys, n.attempt, n.retry, n.crashes, n.snoozes, reason, policy, text, cause, micros(f.now), role)
}

func (f *finishing) writeBack(b *pgx.Batch) {
	if len(f.back) == 0 {
		return
	}
	var p placeColumns
	var n counterColumns
	var failed, settled []bool
	for _, r := range f.back {
		p.add(&r.Is)
		n.add(r.Is.Counters)
		failed, settled = append(failed, r.failed), append(settled, r.settled)
	}
	b.Queue(sqlPutBack, p.id, p.state, p.due, n.attempt, n.retry, n.crashes, n.snoozes, failed, settled, p.role, p.wasDue)
}

func (f *finishing) writeFailures(b *pgx.Batch) {
	if len(f.fail) == 0 {
		return
	}
	var keys, long, took []int64
	var attempt []int32
	var after []bool
	var phase, text, stack, instance [][]byte
	for _, h := range f.fail {
		keys, attempt, took, after = append(keys, h.key), append(attempt, int32(h.attempt)), append(took, length(h.Duration)), append(after, h.RetryAfter)
		phase, text, stack = append(phase, []byte(h.Phase)), append(text, []byte(h.Error)), append(stack, []byte(h.Stack))
		instance = append(instance, []byte(cmp.Or(h.Instance, f.s.self.title())))
		if h.attempt > storage.HistoryLimit {
			long = append(long, h.key)
		}
	}
	b.Queue(sqlFail, keys, attempt, took, after, phase, text, stack, micros(f.now), instance)
	if len(long) > 0 {
		b.Queue(sqlPrune, long, storage.HistoryLimit)
	}
}

// answer fills in the results.
func (f *finishing) answer(res *storage.ExchangeResult) {
	if f.simple {
		for i := range f.x.Finish {
			l := f.x.Finish[i].Lease
			result := storage.Lost
			if f.ended[l] {
				delete(f.ended, l) // whoever names it twice has lost it the second time
				result = storage.Applied
			}
			res.Finished = append(res.Finished, result)
		}
		return
	}
	res.Finished = f.results
	for k, t := range f.thenFor {
		if res.Then == nil {
			res.Then = map[int][]storage.Enqueued{}
		}
		if f.scopes.need.Fresh == 0 {
			t.answer.ID = f.then.id(k)
		}
		res.Then[t.finish] = append(res.Then[t.finish], t.answer)
	}
}

// sorted returns leases by key and token, each once.
func sorted(leases []storage.Lease) []storage.Lease {
	all := slices.SortedFunc(slices.Values(leases), func(a, b storage.Lease) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Token, b.Token))
	})
	return slices.Compact(all)
}
