package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	sqlLastFinished = `SELECT coalesce(max(id), 0) FROM errand_finished`
	sqlLastLive     = `SELECT coalesce(max(id), 0) FROM errand_job`
	// Those that wait are read as a whole if they are few.
	sqlManyWait = `SELECT count(*) > 2000 FROM (SELECT FROM errand_job WHERE state = 1 LIMIT 2001) f`
	// What Delete needs of jobs.
	sqlDeletable = `SELECT id, lane, state, salt, created_at, '' AS group_key, 0::smallint AS role FROM errand_finished WHERE id = ANY($1::bigint[])
UNION ALL SELECT id, lane, 6, salt, created_at, coalesce(group_key, ''), coalesce(role, 0) FROM errand_dead WHERE id = ANY($1)
UNION ALL SELECT id, lane, state, salt, created_at, '', 0 FROM errand_job WHERE id = ANY($1)`
	sqlLockFinished = `SELECT FROM errand_finished WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE`
	sqlLockDead     = `SELECT FROM errand_dead WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE`
	sqlDeleteEnded  = `WITH f AS (DELETE FROM errand_finished WHERE id = ANY($1::bigint[])),
d AS (DELETE FROM errand_dead WHERE id = ANY($1))
DELETE FROM errand_history WHERE job = ANY($1)`
)

// stepLimit is how many jobs one step of Delete or Redrive is about.
const stepLimit = 500

// Delete implements [storage.Store]: a round trip that finds the jobs of a filter, one that looks
// which groups they keep back, and two in which they are locked and deleted.
func (s *Store) Delete(ctx context.Context, sel storage.Selection) (storage.Step, error) {
	if sel.Under != nil {
		return storage.Step{}, unsupported("Checkpoint")
	}
	if err := s.enter(ctx); err != nil {
		return storage.Step{}, err
	}
	defer s.leave()
	walk := selector.StepDead
	if states := sel.Filter.States; len(states) > 0 && !slices.Contains(states, storage.Dead) {
		walk = selector.StepFinished
	}
	c, err := s.choose(ctx, &sel, walk, storage.Waiting{})
	if err != nil || len(c.IDs) == 0 {
		return storage.Step{Through: c.Through}, err
	}
	d := deletion{s: s, sel: &sel, choice: c, deciding: s.deciding(time.Time{}, 0)}
	if err := s.run(ctx, d.look); err != nil {
		return storage.Step{}, err
	}
	if err := s.inTransaction(ctx, d.deciding, d.lock, d.decide); err != nil {
		return storage.Step{}, err
	}
	return d.step, nil
}

// choose returns the jobs that one step is about.
func (s *Store) choose(ctx context.Context, sel *storage.Selection, walk selector.Walk, which storage.Waiting) (c selector.Choice, err error) {
	if c, ok := selector.Named(sel); ok {
		return c, nil
	}
	limit := stepLimit
	if sel.Limit > 0 {
		limit = min(limit, sel.Limit)
	}
	err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		l := lister{ctx: ctx, c: conn}
		through := sel.Through
		last := map[selector.Walk]string{selector.StepFinished: sqlLastFinished, selector.StepWaiting: sqlLastLive, selector.StepLive: sqlLastLive}[walk]
		if through == 0 && last != "" {
			if err := l.each(last, nil, []any{&through}, func() bool { return true }); err != nil {
				return err
			}
		}
		walk := walk
		if walk == selector.StepWaiting && sel.Filter.Group == "" {
			var many bool
			if err := l.each(sqlManyWait, nil, []any{&many}, func() bool { return true }); err != nil {
				return err
			}
			if !many {
				walk = selector.StepFew
			}
		}
		var rows []selector.Chosen
		if q, ok := selects().Step(walk, sel, which, through, limit+1); ok {
			var r selector.Chosen
			var salt int32
			err := l.each(q.Text, q.Args, []any{&r.ID, &salt, &r.CreatedAt, &r.EndedAt}, func() bool {
				r.Salt = uint32(salt)
				rows = append(rows, r)
				return true
			})
			if err != nil {
				return err
			}
		}
		if walk == selector.StepFew {
			slices.SortFunc(rows, func(a, b selector.Chosen) int { return cmp.Compare(a.ID, b.ID) })
		}
		c = selector.Choose(walk, sel, rows, through, limit)
		return nil
	})
	return c, err
}

// deletion is a step of Delete under way.
type deletion struct {
	s        *Store
	sel      *storage.Selection
	choice   selector.Choice
	deciding *deciding
	found    map[storage.ID]deletable
	step     storage.Step
}

// deletable is a job that may be deleted.
type deletable struct {
	rules.Standing
	group string
}

// deleted are ended jobs that are deleted, and the lanes of the dead ones.
type deleted struct {
	keys  []int64
	lanes []int32
}

// drop queues that.
func (d *deleted) drop(b *pgx.Batch) {
	if len(d.lanes) > 0 {
		b.Queue(sqlCountDead, d.keys, -1)
	}
	if len(d.keys) > 0 {
		b.Queue(sqlDeleteEnded, d.keys)
	}
	if len(d.lanes) > 0 {
		b.Queue(sqlDropCauses, d.lanes)
	}
}

func keysOf(ids []storage.ID) []int64 {
	keys := make([]int64, len(ids))
	for i, id := range ids {
		keys[i] = id.Key()
	}
	return keys
}

// read queues the reading of what the jobs are.
func (d *deletion) read(b *pgx.Batch) {
	d.found = map[storage.ID]deletable{}
	each(b, func(row pgx.CollectableRow) error {
		var key, created int64
		var salt int32
		var state int16
		var j deletable
		err := row.Scan(&key, &j.Lane, &state, &salt, &created, &j.group, &j.Role)
		if err == nil {
			j.State = states[state]
			d.found[jobID(created, salt, key)] = j
		}
		return err
	}, sqlDeletable, keysOf(d.choice.IDs))
}

// look finds out which groups the jobs keep back, which are locked before them.
func (d *deletion) look(ctx context.Context, c *pgx.Conn) error {
	b := &pgx.Batch{}
	d.read(b)
	err := part(ctx, c, b)
	for _, id := range d.choice.IDs {
		if j := d.found[id]; err == nil && j.Role == rules.Blocks {
			d.deciding.need.End("", j.group)
		}
	}
	return err
}

func (d *deletion) lock(b *pgx.Batch) {
	d.deciding.load(b)
	b.Queue(sqlLockFinished, keysOf(d.choice.IDs))
	b.Queue(sqlLockDead, keysOf(d.choice.IDs))
	d.read(b)
}

// decide deletes what may be.
func (d *deletion) decide() (*pgx.Batch, error) {
	d.step = storage.Step{Taken: len(d.choice.IDs), Next: d.choice.Next(len(d.choice.IDs)), Through: d.choice.Through}
	var gone rules.Numbers
	var all deleted
	named := len(d.sel.IDs) > 0
	for _, id := range d.choice.IDs {
		j := d.found[id]
		blocks := j.Role == rules.Blocks
		switch {
		case j.State == storage.Scheduled, j.State == storage.Ready, j.State == storage.Running, j.State == storage.Blocked,
			blocks && !slices.Contains(d.deciding.need.Groups, j.group): // it has just died
			if named {
				d.step.Live = append(d.step.Live, id)
			}
		case j.State == "", len(d.sel.Filter.States) > 0 && !slices.Contains(d.sel.Filter.States, j.State):
			if named { // one that has just gone did not match any more
				d.step.NotFound = append(d.step.NotFound, id)
			}
		default:
			if blocks {
				if err := d.deciding.tx.SkipHead(j.group, id.Key()); err != nil {
					return nil, err
				}
			}
			delete(d.found, id) // it may be named twice
			gone.Follow(j.Standing, rules.Standing{}, "")
			if all.keys = append(all.keys, id.Key()); j.State == storage.Dead {
				all.lanes = append(all.lanes, int32(j.Lane))
			}
		}
	}
	d.deciding.deleted = all
	if d.step.N = len(all.keys); d.step.N == 0 {
		return nil, nil
	}
	b := &pgx.Batch{}
	c := d.deciding.tx.Changes()
	c.Numbers = append(gone, c.Numbers...)
	d.deciding.decided(b, c)
	return b, nil
}
