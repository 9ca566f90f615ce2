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

const (
	sqlCounts = `SELECT queue, kind, number, sum(n)::bigint FROM (
  SELECT lane, number, n FROM errand_number UNION ALL SELECT lane, number, n FROM errand_delta) c JOIN errand_lane USING (lane)
GROUP BY queue, kind, number HAVING sum(n) <> 0`
	// One transaction folds at a time; who comes meanwhile leaves it to that one.
	sqlFold = `WITH d AS (
  DELETE FROM errand_delta WHERE (SELECT pg_try_advisory_xact_lock($1::integer, -2)) RETURNING lane, number, n)
INSERT INTO errand_number AS o (lane, number, n) SELECT lane, number, sum(n) FROM d GROUP BY lane, number ORDER BY lane, number
ON CONFLICT (lane, number) DO UPDATE SET n = o.n + excluded.n`
)

// foldAfter is after how many transactions of a Store one of them folds what they added to
// errand_delta.
const foldAfter = 500

// deltas is how many transactions of the Store have changed numbers.
type deltas struct{ n atomic.Int64 }

// count queues what is added to the numbers, and now and then their folding.
func (s *Store) count(b *pgx.Batch, all rules.Numbers) {
	var lanes []int32
	var numbers []int16
	var n []int64
	for _, k := range all {
		if k.N != 0 {
			lanes, numbers, n = append(lanes, int32(k.Lane)), append(numbers, codeOf(k.State)), append(n, k.N)
		}
	}
	if len(n) > 0 {
		b.Queue(sqlDelta, lanes, numbers, n)
	}
	if s.deltas.n.Add(1)%foldAfter == 0 {
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
