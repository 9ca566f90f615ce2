package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

const (
	sqlStates = `SELECT id, state, salt, created_at FROM errand_job WHERE id = ANY($1::bigint[])
UNION ALL SELECT id, state, salt, created_at FROM errand_finished WHERE id = ANY($1)
UNION ALL SELECT id, 6, salt, created_at FROM errand_dead WHERE id = ANY($1)`

	// $1 is the job, $2 how many others are counted at most.
	sqlPlace = `SELECT id, salt, created_at, 0 FROM errand_job WHERE id = $1`
	// Those of higher priorities, and of its own those before it.
	sqlReadyBefore = `SELECT count(*) FROM (
  (SELECT FROM errand_job j JOIN errand_job b ON b.state = 2 AND b.lane = j.lane AND b.priority > j.priority WHERE j.id = $1 AND j.state = 2 LIMIT $2::bigint)
  UNION ALL
  (SELECT FROM errand_job j JOIN errand_job b ON b.state = 2 AND b.lane = j.lane AND b.priority = j.priority AND (b.due_at, b.id) < (j.due_at, j.id)
    WHERE j.id = $1 AND j.state = 2 LIMIT $2)) before`
	sqlWaitsBefore = `SELECT count(*) FROM (
  SELECT FROM errand_job j JOIN errand_job b ON b.group_key = j.group_key AND b.role = 1 AND b.id < j.id WHERE j.id = $1 AND j.role = 1 LIMIT $2::bigint) before`
	// What a blocked job waits for: the member with a place, or the first dead one that blocks, or
	// the holder of its unique key.
	sqlHeadOf = `(SELECT h.id, h.salt, h.created_at, 1 AS n FROM errand_job j JOIN errand_job h ON h.group_key = j.group_key AND h.role = 2
  WHERE j.id = $1 AND j.role = 1 ORDER BY h.id LIMIT 1)
UNION ALL (SELECT h.id, h.salt, h.created_at, 2 FROM errand_job j JOIN errand_dead h ON h.group_key = j.group_key AND h.role = 3
  WHERE j.id = $1 AND j.role = 1 ORDER BY h.id LIMIT 1)
UNION ALL (SELECT h.job, h.salt, h.created_at, 3 FROM errand_job j JOIN errand_unique b ON b.key = j.unique_key AND b.slot = 1 AND b.job = j.id
  JOIN errand_unique h ON h.key = j.unique_key AND h.slot = 0 WHERE j.id = $1 AND coalesce(j.role, 0) <> 1 AND j.state = 7)
ORDER BY n LIMIT 1`
)

// States implements [storage.Store], in one round trip.
func (s *Store) States(ctx context.Context, ids []storage.ID) ([]storage.State, error) {
	found := map[storage.ID]storage.State{}
	err := s.read(ctx, func(b *pgx.Batch) {
		clear(found)
		each(b, func(row pgx.CollectableRow) error {
			var key, created int64
			var salt int32
			var state int16
			err := row.Scan(&key, &state, &salt, &created)
			if err == nil {
				found[jobID(created, salt, key)] = states[state]
			}
			return err
		}, sqlStates, keysOf(ids))
	})
	if err != nil {
		return nil, err
	}
	all := make([]storage.State, len(ids))
	for i, id := range ids {
		all[i] = found[id]
	}
	return all, nil
}

// Ahead implements [storage.Store], in one round trip.
func (s *Store) Ahead(ctx context.Context, id storage.ID, most int) (a storage.Ahead, err error) {
	var there bool
	err = s.read(ctx, func(b *pgx.Batch) {
		a, there = storage.Ahead{}, false
		named := func(fn func(storage.ID)) func(row pgx.CollectableRow) error {
			return func(row pgx.CollectableRow) error {
				var key, created int64
				var salt int32
				var n int
				err := row.Scan(&key, &salt, &created, &n)
				fn(jobID(created, salt, key))
				return err
			}
		}
		count := func(row pgx.CollectableRow) error {
			var n int
			err := row.Scan(&n)
			if n > 0 {
				a.N, a.More = min(n, most), n > most
			}
			return err
		}
		each(b, named(func(is storage.ID) { there = is == id }), sqlPlace, id.Key())
		each(b, count, sqlReadyBefore, id.Key(), most+1)
		each(b, count, sqlWaitsBefore, id.Key(), most+1)
		each(b, named(func(head storage.ID) { a.Head = head }), sqlHeadOf, id.Key())
	})
	if err == nil && !there {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.Ahead{}, err
	}
	return a, nil
}
