package postgres

import (
	"cmp"
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	// Of args only those are sent that have at most $2 bytes.
	sqlListed = `SELECT r.*, queue, kind FROM (
  SELECT j.id, j.lane, j.state, j.priority, j.due_at, j.created_at, 0::bigint, j.timeout, j.salt, j.attempt, j.retry, j.crashes, j.snoozes, j.cancelling,
    '', ` + liveError + `, j.policy, ` + listedArgs + ` FROM errand_job j WHERE j.id = ANY($1::bigint[])
  UNION ALL
  SELECT j.id, j.lane, j.state, j.priority, j.due_at, j.created_at, j.ended_at, j.timeout, j.salt, j.attempt, j.retry, j.crashes, j.snoozes, false,
    '', ` + endedError + `, j.policy, ` + listedArgs + ` FROM errand_finished j WHERE j.id = ANY($1::bigint[])
  UNION ALL
  SELECT j.id, j.lane, 6, j.priority, j.due_at, j.created_at, j.ended_at, j.timeout, j.salt, j.attempt, j.retry, j.crashes, j.snoozes, false,
    j.reason, ` + endedError + `, j.in_effect, ` + listedArgs + ` FROM errand_dead j WHERE j.id = ANY($1::bigint[])) r JOIN errand_lane USING (lane)`
	listedArgs = `length(j.args), CASE WHEN length(j.args) <= $2::bigint THEN j.args END, j.unique_key, j.group_key`

	// A lane has a row of state 0 too.
	sqlLaneCounts = `SELECT lane, queue, kind, state, n FROM (
  SELECT lane, state, sum(n)::bigint AS n FROM (SELECT lane, 0 AS state, 0 AS n FROM errand_lane UNION ALL SELECT lane, state, n FROM ` + inStates + ` i) c
  GROUP BY lane, state) s` + ofLane + ` WHERE $1::text = '' OR queue = $1 ORDER BY queue, kind`
	sqlNextKey = `SELECT greatest((SELECT max(id) FROM errand_job), (SELECT max(id) FROM errand_finished), (SELECT max(id) FROM errand_dead), 0) + 1`
)

// Jobs implements [storage.Store], in a round trip for each order that is looked at.
func (s *Store) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (page storage.Page, err error) {
	if err := s.enter(ctx); err != nil {
		return storage.Page{}, err
	}
	defer s.leave()
	var bad error // what is wrong with the call
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, sqlBeginAsk); err != nil {
			return err
		}
		l := lister{ctx: ctx, c: c}
		found, err := selects().List(&l, &f, after, limit)
		if l.err != nil {
			return l.err
		}
		page, bad = storage.Page{Next: found.Next, Looked: found.Looked}, err
		if bad == nil {
			if page.Jobs, err = l.records(found.Jobs, &f); err != nil {
				return err
			}
		}
		_, err = c.Exec(ctx, sqlCommit)
		return err
	})
	if err = cmp.Or(err, bad); err != nil {
		return storage.Page{}, err
	}
	return page, nil
}

// lister is a [selector.Reader].
type lister struct {
	ctx context.Context
	c   *pgx.Conn
	err error // the first one of the driver
}

// each calls fn for the rows of a query until fn returns false.
func (l *lister) each(text string, args []any, dest []any, fn func() (more bool)) error {
	rows, err := l.c.Query(l.ctx, text, args...)
	if err == nil {
		defer rows.Close()
		for more := true; err == nil && more && rows.Next(); {
			if err = rows.Scan(dest...); err == nil {
				more = fn()
			}
		}
		rows.Close()
		err = cmp.Or(err, rows.Err())
	}
	l.err = cmp.Or(l.err, err)
	return err
}

// Look implements [selector.Reader].
func (l *lister) Look(q selector.Query, fn func(*selector.Glance) bool) error {
	var g selector.Glance
	dest := []any{&g.ID, &g.State, &g.Lane, &g.Priority, &g.DueAt, &g.CreatedAt, &g.EndedAt, &g.Mark, &g.Hit}
	return l.each(q.Text, q.Args, dest, func() bool { return fn(&g) })
}

// Lanes implements [selector.Reader].
func (l *lister) Lanes(queue string) (all, _ []selector.LaneCount, err error) {
	var n selector.LaneCount
	err = l.each(sqlLaneCounts, []any{queue}, []any{&n.Lane, &n.Queue, &n.Kind, &n.State, &n.N}, func() bool {
		all = append(all, n)
		return true
	})
	return all, nil, err
}

// NextKey implements [selector.Reader].
func (l *lister) NextKey() (key int64, err error) {
	err = l.each(sqlNextKey, nil, []any{&key}, func() bool { return true })
	return key, err
}

// records returns the jobs that were found, in their order.
func (l *lister) records(found []selector.Glance, f *storage.Filter) ([]storage.Record, error) {
	out, at, keys := make([]storage.Record, len(found)), map[int64]int{}, make([]int64, len(found))
	for i, g := range found {
		at[g.ID], keys[i] = i, g.ID
	}
	most := int64(-1)
	if f.Args {
		most = cmp.Or(f.MaxArgs, math.MaxInt64)
	}
	var key, due, created, ended, timeout, bytes int64
	var salt int32
	var lane, state int16
	var text, args, unique []byte
	var group *string
	var r storage.Record
	dest := []any{
		&key, &lane, &state, &r.Priority, &due, &created, &ended, &timeout, &salt, &r.Attempt, &r.Retry, &r.Crashes, &r.Snoozes, &r.Cancelling,
		&r.Reason, &text, &r.Policy, &bytes, &args, &unique, &group, &r.Queue, &r.Kind,
	}
	if len(found) == 0 {
		return out, nil
	}
	err := l.each(sqlListed, []any{keys, most}, dest, func() bool {
		j := r
		j.Key, j.ID, j.State, j.Error, j.Unique = key, jobID(created, salt, key), states[state], string(text), string(unique)
		j.CreatedAt, j.DueAt, j.Timeout = fromMicros(created), fromMicros(due), fromLength(timeout)
		if ended != 0 {
			j.EndedAt = fromMicros(ended)
		}
		if group != nil {
			_, j.Group = rules.SplitGroup(*group)
		}
		if j.Args = args; f.Args && bytes > most {
			j.ArgsBytes = bytes
		}
		out[at[key]] = j
		return true
	})
	return out, err
}
