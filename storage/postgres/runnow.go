package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	sqlGroupsOf = `SELECT DISTINCT group_key FROM errand_job WHERE id = ANY($1::bigint[]) AND group_key IS NOT NULL`
	sqlFailed   = `SELECT id FROM errand_job j WHERE id = ANY($1::bigint[]) AND ` + hasFailed
)

// RunNow implements [storage.Store], in as many round trips as Delete.
func (s *Store) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
	if sel.Under != nil {
		return storage.Step{}, unsupported("Checkpoint")
	}
	if len(sel.IDs) == 1 {
		return storage.Step{}, unsupported(storage.FeatureUrgent)
	}
	if err := s.enter(ctx); err != nil {
		return storage.Step{}, err
	}
	defer s.leave()
	c, err := s.choose(ctx, &sel, selector.StepWaiting, which)
	if err != nil || len(c.IDs) == 0 {
		return storage.Step{Through: c.Through}, err
	}
	dec, keys, named := s.deciding(now, 0), keysOf(c.IDs), len(sel.IDs) > 0
	dec.need.Jobs = slices.Clone(keys)
	err = s.read(ctx, func(b *pgx.Batch) {
		dec.need.Groups, dec.need.Leave = nil, nil
		each(b, func(row pgx.CollectableRow) error {
			var group string
			err := row.Scan(&group)
			dec.need.End("", group)
			return err
		}, sqlGroupsOf, keys)
	})
	if err != nil {
		return storage.Step{}, err
	}
	of := &which
	if named {
		of = nil
	}
	var failed map[int64]bool
	var step storage.Step
	lock := func(b *pgx.Batch) {
		failed = map[int64]bool{}
		dec.load(b)
		each(b, func(row pgx.CollectableRow) error {
			var key int64
			err := row.Scan(&key)
			failed[key] = true
			return err
		}, sqlFailed, keys)
	}
	err = s.inTransaction(ctx, dec, lock, func() (*pgx.Batch, error) {
		step = storage.Step{Taken: len(c.IDs), Next: c.Next(len(c.IDs)), Through: c.Through}
		for _, id := range c.IDs {
			if g := dec.tx.Live(id.Key()).Group; g != "" && !slices.Contains(dec.need.Groups, g) {
				continue // it has just come there, ready or blocked
			}
			live, goes, err := dec.tx.RunNow(id, of, failed[id.Key()])
			switch {
			case err != nil:
				return nil, err
			case goes:
				step.N++
			case !live && named: // one that has just gone did not match any more
				step.NotFound = append(step.NotFound, id)
			}
		}
		if err := dec.tx.SettleAll(); err != nil {
			return nil, err
		}
		return dec.changes(), nil
	})
	if err != nil {
		return storage.Step{}, err
	}
	return step, nil
}
