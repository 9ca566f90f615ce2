package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlLockDeaths = `SELECT FROM errand_lane WHERE lane = ANY($1::integer[]) ORDER BY lane FOR NO KEY UPDATE`
	// The causes f of dead letters, in their order. Of those that a lane does not have, as many come to be as
	// it may have, and the others stand for the rest.
	addCauses = `), f AS MATERIALIZED (SELECT lane, reason, text, min(i) AS i, min(at) AS at, first
  FROM d AS f LEFT JOIN LATERAL (SELECT first FROM errand_cause c WHERE ` + sameCause + `) c ON true GROUP BY lane, reason, text, first),
m AS (SELECT lane, reason, text, at, CASE WHEN text <> 'other' THEN row_number() OVER (PARTITION BY lane, text <> 'other' ORDER BY i) END
  <= 1000 - (SELECT count(*) FROM errand_cause c WHERE c.lane = f.lane AND c.text <> 'other') AS fits FROM f WHERE first IS NULL)
INSERT INTO errand_cause (lane, reason, text, first) SELECT lane, reason, text, min(at) FROM (
  SELECT lane, reason, CASE WHEN fits THEN text ELSE 'other' END AS text, at FROM m UNION ALL SELECT lane, reason, text, at FROM f WHERE first > at) n GROUP BY lane, reason, text
ON CONFLICT (lane, reason, sha256(text)) DO UPDATE SET first = excluded.first WHERE errand_cause.first > excluded.first`
	sqlAddCauses      = `WITH d AS (SELECT lane, reason, text, i, $4::bigint AS at FROM unnest($1::integer[], $2::text[], $3::bytea[]) WITH ORDINALITY u(lane, reason, text, i)` + addCauses
	sqlAddMovedCauses = `WITH d AS (` + moved + addCauses
	// Dead letters that are in another lane now, with the causes that they had.
	moved         = `SELECT e.id, e.lane, e.reason, c.text, e.id AS i, e.ended_at AS at FROM errand_dead e JOIN errand_cause c USING (cause) WHERE e.id = ANY($1::bigint[])`
	sqlMoveCauses = `UPDATE errand_dead e SET cause = ` + causeOf + ` FROM (` + moved + `) d WHERE e.id = d.id`
	sameCause     = `c.lane = f.lane AND c.reason = f.reason AND sha256(c.text) = sha256(f.text)`
	// The cause of a dead letter d.
	causeOf = `coalesce((SELECT cause FROM errand_cause c WHERE c.lane = d.lane AND c.reason = d.reason AND sha256(c.text) = sha256(d.text)),
    (SELECT cause FROM errand_cause c WHERE c.lane = d.lane AND c.reason = d.reason AND sha256(c.text) = sha256('other')))`
	// That dead letters come, or go: $2 is 1 or -1.
	sqlCountDead  = `INSERT INTO errand_delta (lane, number, n, job) SELECT lane, -4, $2::integer * count(*), cause FROM errand_dead WHERE id = ANY($1::bigint[]) GROUP BY lane, cause`
	sqlDropCauses = `DELETE FROM errand_cause c WHERE lane = ANY($1::integer[]) AND NOT EXISTS (SELECT FROM errand_dead d WHERE d.cause = c.cause)`

	sqlCauses = `SELECT c.cause, queue, kind, c.reason, c.text, c.total, c.first, d.ended_at, d.id, d.salt, d.created_at FROM (
  SELECT c.*, queue, kind, (c.n + coalesce(x.n, 0))::bigint AS total FROM errand_cause c JOIN errand_lane l USING (lane)
  LEFT JOIN (SELECT job, sum(n) AS n FROM errand_delta WHERE number = -4 GROUP BY job) x ON x.job = c.cause
  WHERE ($1::text = '' OR queue = $1) AND ($2::text = '' OR kind = $2) ORDER BY total DESC, cause LIMIT $3) c
CROSS JOIN LATERAL (SELECT ended_at, id, salt, created_at FROM errand_dead WHERE cause = c.cause ORDER BY ended_at DESC, id DESC LIMIT 1) d
ORDER BY c.total DESC, c.cause`
	// It counts none beyond the limits: each time is a range of the index.
	sqlDeaths = `SELECT k, i, (SELECT count(*) FROM (SELECT FROM errand_dead d WHERE d.cause = f.cause AND ended_at >= $2::bigint + i * $3::bigint
  AND ended_at < $2 + (i + 1) * $3 LIMIT $5) d) FROM unnest($1::bigint[]) WITH ORDINALITY f(cause, k) CROSS JOIN generate_series(0, $4::bigint - 1) i`
)

// lanesOf returns the lanes of jobs that die, or were dead.
func lanesOf(all ...[]*rules.Row) (lanes []int32) {
	for _, rows := range all {
		for _, r := range rows {
			if lanes = append(lanes, int32(r.Was.Lane)); r.Was.Lane != r.Is.Lane && r.Is.State == storage.Dead {
				lanes = append(lanes, int32(r.Is.Lane))
			}
		}
	}
	return lanes
}

// Causes implements [storage.Store].
func (s *Store) Causes(ctx context.Context, of storage.Lane, limit int) (all []storage.Cause, err error) {
	err = s.read(ctx, func(b *pgx.Batch) {
		all = nil
		each(b, func(row pgx.CollectableRow) error {
			var c storage.Cause
			var text []byte
			var first, last, id, created int64
			var salt int32
			err := row.Scan(&c.ID, &c.Queue, &c.Kind, &c.Reason, &text, &c.N, &first, &last, &id, &salt, &created)
			c.Text, c.First, c.Last, c.Job = string(text), fromMicros(first), fromMicros(last), jobID(created, salt, id)
			all = append(all, c)
			return err
		}, sqlCauses, of.Queue, of.Kind, max(limit, 0))
	})
	return all, err
}

// Deaths implements [storage.Store].
func (s *Store) Deaths(ctx context.Context, causes []int64, from time.Time, length time.Duration, n, most int) (all [][]int, err error) {
	err = s.read(ctx, func(b *pgx.Batch) {
		all = make([][]int, len(causes))
		for i := range all {
			all[i] = make([]int, max(n, 0))
		}
		each(b, func(row pgx.CollectableRow) error {
			var k, i int64
			var died int
			err := row.Scan(&k, &i, &died)
			if err == nil {
				all[k-1][i] = died
			}
			return err
		}, sqlDeaths, causes, micros(from), length.Microseconds(), n, max(most, 0))
	})
	return all, err
}
