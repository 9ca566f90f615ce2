package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// next is when the time of the first job is over that is left.
const sqlPurge = `WITH c AS MATERIALIZED (
  SELECT id FROM errand_finished WHERE purge_at <= $1 ORDER BY purge_at LIMIT $2 FOR UPDATE SKIP LOCKED),
d AS (DELETE FROM errand_finished f USING c WHERE f.id = c.id RETURNING f.id, f.lane, f.state),
h AS (DELETE FROM errand_history h USING d WHERE h.job = d.id),
n AS (INSERT INTO errand_delta SELECT lane, state * 32, count(*) FROM d GROUP BY lane, state)
SELECT (SELECT count(*) FROM d), (SELECT min(purge_at) FROM errand_finished WHERE purge_at > $1)`

// purgeLimit is how many finished jobs one call deletes.
const purgeLimit = 1000

// PurgeFinished implements [storage.Store].
func (s *Store) PurgeFinished(ctx context.Context, now time.Time) (n int, next time.Time, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, time.Time{}, err
	}
	defer s.leave()
	var first *int64
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlPurge, micros(now), purgeLimit).QueryRow(func(row pgx.Row) error { return row.Scan(&n, &first) })
		return s.commit(ctx, c, b)
	})
	switch {
	case err != nil:
		n = 0
	case n == purgeLimit:
		next = now
	case first != nil:
		next = fromMicros(*first)
	}
	if err == nil {
		var over int64
		if over, err = s.forgetWindows(ctx, now); err == nil && over != 0 && (next.IsZero() || over < micros(next)) {
			next = fromMicros(over)
		}
	}
	return n, next, err
}
