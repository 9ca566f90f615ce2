package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

const (
	sqlLive  = `SELECT state, token, lane, salt, created_at FROM errand_job WHERE id = $1 FOR UPDATE`
	sqlEnded = `SELECT state, 0::bigint, lane, salt, created_at FROM errand_finished WHERE id = $1
UNION ALL SELECT 6, 0, lane, salt, created_at FROM errand_dead WHERE id = $1`
	sqlAsk = `UPDATE errand_job SET cancelling = true WHERE id = $1`
)

// Cancel implements [storage.Store]: two round trips.
func (s *Store) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	err = s.runTold(ctx, func(ctx context.Context, c *pgx.Conn) error {
		var of storage.ID // stays zero if there is none
		var is int16
		var token int64
		var lane int32
		scan := func(row pgx.CollectableRow) error {
			var salt int32
			var created int64
			err := row.Scan(&is, &token, &lane, &salt, &created)
			of = jobID(created, salt, id.Key())
			return err
		}
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		s.readNew(b)
		each(b, scan, sqlLive, id.Key())
		each(b, scan, sqlEnded, id.Key())
		if err := part(ctx, c, b); err != nil {
			return err
		}
		if is == 0 || of != id {
			state = ""
			return part(ctx, c, end())
		}
		state = states[is]
		b = &pgx.Batch{}
		switch is {
		case running:
			b.Queue(sqlAsk, id.Key())
		case scheduled, ready:
			state = storage.Cancelled
			name := s.lanes.name(lane)
			keys, tokens := []int64{id.Key()}, []int64{token}
			if d := keep.Of(name.Queue, name.Kind); d > 0 {
				b.Queue(sqlKeep, keys, tokens, []int16{cancelled}, []int32{0}, []int64{micros(now.Add(d))}, [][]byte{{}}, micros(now), is, 1, 0, 0, 0)
			} else {
				b.Queue(sqlDelete, keys, tokens, is, 0, 0, 0)
			}
		}
		b.Queue(sqlCommit)
		return s.commit(ctx, c, b)
	})
	if err == nil && state == "" {
		err = storage.ErrNotFound
	}
	return state, err
}

// end returns the end of a transaction that has written nothing.
func end() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(sqlRollback)
	return b
}
