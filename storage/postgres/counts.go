package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// What errand_number and errand_delta count in a lane. A positive number is 32 times the state that jobs
// were in, and the one that they are in: 0 if they were not there, unkept more if they have ended and
// are gone. So the statements of the short way have 34 from scheduled to ready, 67 from ready to running, and from
// running 96 more than a state, or 112 if the job is gone.
const (
	unkept    = 16
	elsewhere = 31

	failuresNumber  = -1
	succeededNumber = -2
	failedNumber    = -3
)

const (
	counted = `(SELECT lane, number, n, bytes FROM errand_number UNION ALL SELECT lane, number, n, bytes FROM errand_delta)`
	// Rows of how many jobs of a lane are in a state, which add up.
	inStates = `(SELECT c.lane, v.state, v.n FROM ` + counted + ` c CROSS JOIN LATERAL (VALUES (number >> 5, -n), (number & 31, n)) v(state, n)
  WHERE number > 0 AND v.state BETWEEN 1 AND 7)`
	// The lane of each row of s, once that is summed up: a join before would compare each row of errand_delta
	// with each lane.
	ofLane    = ` CROSS JOIN LATERAL (SELECT queue, kind FROM errand_lane l WHERE l.lane = s.lane OFFSET 0) l`
	sqlCounts = `SELECT queue, kind, state, n FROM (SELECT lane, state, sum(n)::bigint AS n FROM ` + inStates + ` c GROUP BY lane, state HAVING sum(n) <> 0) s` + ofLane
	// When attempts of lanes have succeeded and failed last, of rows with the transactions that have written
	// them: these begin in the order of their numbers, whose age is negative after two thousand million. A clock
	// may be set back. Of one transaction it is the job with the highest key.
	lastOf = `SELECT DISTINCT ON (lane, number) lane, number, at, job, wrote
  FROM (SELECT lane, CASE WHEN job IS NULL THEN -2 ELSE -3 END AS number, at, job, wrote FROM d WHERE at IS NOT NULL) l
  ORDER BY lane, number, CASE WHEN age(wrote) >= 0 THEN age(wrote) END, at DESC, job DESC`
	// Whether what was folded before is of a later transaction.
	isLater = `age(o.wrote) BETWEEN 0 AND age(excluded.wrote) - 1`
	// One transaction folds at a time; who comes meanwhile leaves it to that one.
	// What is added to a cause that others lock waits for another time. One that is gone counts no more.
	sqlFold = `WITH g AS MATERIALIZED (SELECT DISTINCT job AS cause FROM errand_delta WHERE number = -4),
k AS MATERIALIZED (SELECT cause FROM errand_cause WHERE cause IN (SELECT cause FROM g) FOR UPDATE SKIP LOCKED),
a AS (SELECT cause FROM k UNION ALL SELECT cause FROM g WHERE NOT EXISTS (SELECT FROM errand_cause c WHERE c.cause = g.cause)),
d AS (DELETE FROM errand_delta WHERE (SELECT pg_try_advisory_xact_lock($1::integer, -2)) AND (number <> -4 OR job = ANY(ARRAY(SELECT cause FROM a)))
  RETURNING lane, number, n, bytes, at, job, xmin AS wrote),
u AS (UPDATE errand_cause c SET n = c.n + f.n FROM (SELECT job, sum(n) AS n FROM d WHERE number = -4 GROUP BY job) f WHERE c.cause = f.job)
INSERT INTO errand_number AS o (lane, number, n, bytes, at, job, wrote)
SELECT lane, number, sum(n), sum(bytes), NULL, NULL, NULL FROM d WHERE number <> -4 GROUP BY lane, number
UNION ALL SELECT lane, number, 0, 0, at, job, wrote FROM (` + lastOf + `) l ORDER BY lane, number
ON CONFLICT (lane, number) DO UPDATE SET n = o.n + excluded.n, bytes = coalesce(o.bytes, 0) + coalesce(excluded.bytes, 0), 
  at = CASE WHEN ` + isLater + ` THEN o.at ELSE excluded.at END, job = CASE WHEN ` + isLater + ` THEN o.job ELSE excluded.job END,
  wrote = CASE WHEN ` + isLater + ` THEN o.wrote ELSE excluded.wrote END`
)

// foldAfter is after how many rows of errand_delta a Store has them folded.
const foldAfter = 1000

// deltas is how many rows of errand_delta the Store has added since it has folded them.
type deltas struct{ n atomic.Int64 }

// added takes note of rows, and reports whether they are to be folded.
func (d *deltas) added(rows int) bool {
	return d.n.Add(int64(rows)) >= foldAfter && d.n.Swap(0) >= foldAfter
}

// numberOf returns what a number is in the tables.
func numberOf(n *rules.Number) int16 {
	code := func(s storage.State) int16 {
		switch s {
		case "":
			return 0
		case rules.Elsewhere:
			return elsewhere
		}
		return codeOf(s)
	}
	if n.Unkept != "" {
		return code(n.From)<<5 | code(n.Unkept) | unkept
	}
	return code(n.From)<<5 | code(n.To)
}

// deltaColumns are rows of errand_delta, as columns.
type deltaColumns struct {
	lanes    []int32
	numbers  []int16
	n, bytes []int64
	at, jobs []*int64
}

func (d *deltaColumns) add(lane int64, number int16, n, bytes int64, at, job *int64) {
	d.lanes, d.numbers, d.n, d.bytes = append(d.lanes, int32(lane)), append(d.numbers, number), append(d.n, n), append(d.bytes, bytes)
	d.at, d.jobs = append(d.at, at), append(d.jobs, job)
}

// count queues what is added to the numbers, and now and then their folding.
func (s *Store) count(b *pgx.Batch, c *rules.Changes) {
	var d deltaColumns
	for i := range c.Numbers {
		k := &c.Numbers[i]
		var at *int64
		if k.From == storage.Running && (k.To == storage.Done || k.Unkept == storage.Done) {
			at = &c.At
		}
		d.add(k.Lane, numberOf(k), k.N, k.Bytes, at, nil)
	}
	for _, r := range c.Jobs {
		if !r.Fails && (r.Is.State != storage.Dead || r.Was.State == storage.Dead) {
			continue
		}
		n := int64(0)
		if o := r.Finish.Outcome; r.Fails && (o == storage.OutcomeRetry || o == storage.OutcomeCrashed || o == storage.OutcomeDead) {
			n = 1
		}
		d.add(r.Is.Lane, failuresNumber, n, 0, &c.At, &r.Is.ID)
	}
	if len(d.n) > 0 {
		b.Queue(sqlDelta, d.lanes, d.numbers, d.n, d.bytes, d.at, d.jobs)
	}
	if s.deltas.added(max(len(d.n), 1)) {
		b.Queue(sqlFold, s.locks)
	}
}

// Counts implements [storage.Store]. They are exact.
func (s *Store) Counts(ctx context.Context) ([]storage.Count, error) {
	var all []storage.Count
	err := s.read(ctx, func(b *pgx.Batch) {
		all = nil
		each(b, func(row pgx.CollectableRow) error {
			var c storage.Count
			var state int16
			if err := row.Scan(&c.Queue, &c.Kind, &state, &c.N); err != nil {
				return err
			}
			c.State = states[state]
			all = append(all, c)
			return nil
		}, sqlCounts)
	})
	slices.SortFunc(all, func(a, b storage.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	return all, err
}
