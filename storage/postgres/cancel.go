package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlEnded = `SELECT state, lane, salt, created_at FROM errand_finished WHERE id = $1
UNION ALL SELECT 6, lane, salt, created_at FROM errand_dead WHERE id = $1`
	sqlAsk = `UPDATE errand_job SET cancelling = true WHERE id = $1`
)

// Cancel implements [storage.Store]: two round trips, and two more if the job has a unique key
// or a group, which are to be locked before the job.
func (s *Store) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	dec := s.deciding(now, 0)
	dec.need.Jobs = []int64{id.Key()}
	var again bool // it was read what is to be locked, and no more: the job may have another group by then
	run := func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		dec.load(b)
		s.readNew(b)
		ended := storage.State("")
		each(b, func(row pgx.CollectableRow) error {
			var state int16
			var lane, salt int32
			var created int64
			err := row.Scan(&state, &lane, &salt, &created)
			if jobID(created, salt, id.Key()) == id {
				ended = states[state]
			}
			return err
		}, sqlEnded, id.Key())
		if err := part(ctx, c, b); err != nil {
			return err
		}
		j := dec.tx.Live(id.Key())
		if again = !dec.need.Ends(j.Unique, j.Group); again {
			dec.need.End(j.Unique, j.Group)
			return part(ctx, c, end())
		}
		var err error
		if state, err = dec.tx.Cancel(id, s.keeps(&keep)); err != nil {
			return err
		}
		if b = dec.changes(); b == nil {
			state = cmp.Or(state, ended)
			return part(ctx, c, end())
		}
		b.Queue(sqlCommit)
		return s.commit(ctx, c, b)
	}
	for again = true; err == nil && again; {
		err = s.inLine(ctx, dec, run)
	}
	if err == nil && state == "" {
		err = storage.ErrNotFound
	}
	return state, err
}

// ask queues that running jobs are asked to stop.
func ask(b *pgx.Batch, rows []*rules.Row) {
	for _, r := range rows {
		b.Queue(sqlAsk, r.Is.ID)
	}
}

// end returns the end of a transaction that has written nothing.
func end() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(sqlRollback)
	return b
}
