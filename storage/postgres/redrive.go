package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	sqlDeadOf = `SELECT id, lane, salt, created_at, coalesce(group_key, ''), coalesce(role, 0), coalesce(unique_key, ''), priority, length(args) + coalesce(length(headers), 0)
FROM errand_dead WHERE id = ANY($1::bigint[])`
)

var sqlRedrive = `WITH d AS (DELETE FROM errand_dead e USING unnest($1::integer[], $2::text[], ` + placeTypes(2) + `) f(lane, group_key, ` + placeNames + `)
  WHERE e.id = f.id RETURNING e.priority, e.created_at, e.timeout, e.token, e.salt, e.attempt, e.policy, e.headers, e.args, e.unique_key, f.*),
u AS (INSERT INTO errand_job (priority, created_at, timeout, token, salt, attempt, policy, headers, args, unique_key, lane, group_key, ` + placeNames + `, weight, history, redriven)
  SELECT d.*, length(args) + coalesce(length(headers), 0), coalesce((SELECT true FROM errand_history WHERE job = d.id LIMIT 1), false), true FROM d RETURNING 1) ` + allOf

// Redrive implements [storage.Store], in as many round trips as Delete.
func (s *Store) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	if sel.Under != nil {
		return storage.Step{}, unsupported("Checkpoint")
	}
	if err := s.enter(ctx); err != nil {
		return storage.Step{}, err
	}
	defer s.leave()
	c, err := s.choose(ctx, &sel, selector.StepDead, storage.Waiting{})
	if err != nil || len(c.IDs) == 0 {
		return storage.Step{Through: c.Through}, err
	}
	r := redriving{s: s, now: now, named: len(sel.IDs) > 0, queue: queue, choice: c, deciding: s.deciding(now, 0), had: hadArgs{}}
	if sel.Edit != nil {
		r.edit = &rules.Edit{Edit: sel.Edit, Had: r.had.of}
	}
	if err := s.run(ctx, r.look); err != nil {
		return storage.Step{}, err
	}
	r.looked = r.dead
	var goals []storage.NewJob
	for _, d := range r.dead {
		goals = append(goals, storage.NewJob{Queue: cmp.Or(queue, d.name.Queue), Kind: d.name.Kind})
		r.deciding.need.End(d.unique, d.goal(queue))
		if d.was.Role == rules.Blocks {
			r.deciding.need.End("", d.group)
		}
	}
	if err := s.know(ctx, goals); err != nil {
		return storage.Step{}, err
	}
	if err := s.inTransaction(ctx, r.deciding, r.lock, r.decide); err != nil {
		return storage.Step{}, err
	}
	return r.step, nil
}

// redriving is a step of Redrive under way.
type redriving struct {
	s        *Store
	now      time.Time
	named    bool
	queue    string
	edit     *rules.Edit // nil: none
	choice   selector.Choice
	deciding *deciding
	looked   map[storage.ID]departed // those whose keys and groups are locked
	dead     map[storage.ID]departed
	had      hadArgs
	step     storage.Step
}

// departed is a dead job.
type departed struct {
	was      rules.Standing
	name     storage.Lane
	group    string // as the tables have it
	unique   string
	priority int
	created  int64
	salt     int32
	bytes    int64
}

// goal returns the group that the job is to have in a queue, or in its own.
func (d *departed) goal(queue string) string {
	_, group := rules.SplitGroup(d.group)
	return rules.GroupName(cmp.Or(queue, d.name.Queue), group)
}

// read queues the reading of the jobs.
func (r *redriving) read(b *pgx.Batch) {
	r.dead = map[storage.ID]departed{}
	r.s.readDead(b, r.choice.IDs, r.dead)
}

// readDead queues the reading of dead jobs.
func (s *Store) readDead(b *pgx.Batch, ids []storage.ID, into map[storage.ID]departed) {
	each(b, func(row pgx.CollectableRow) error {
		d := departed{was: rules.Standing{State: storage.Dead}}
		var key int64
		var unique []byte
		err := row.Scan(&key, &d.was.Lane, &d.salt, &d.created, &d.group, &d.was.Role, &unique, &d.priority, &d.bytes)
		if d.unique, d.name = string(unique), s.lanes.name(int32(d.was.Lane)); err == nil {
			into[jobID(d.created, d.salt, key)] = d
		}
		return err
	}, sqlDeadOf, keysOf(ids))
}

// look finds out which keys and groups the jobs have, which are locked before them.
func (r *redriving) look(ctx context.Context, c *pgx.Conn) error {
	b := &pgx.Batch{}
	r.s.readNew(b)
	r.read(b)
	return part(ctx, c, b)
}

func (r *redriving) lock(b *pgx.Batch) {
	r.deciding.load(b)
	keys := keysOf(r.choice.IDs)
	b.Queue(sqlLockDead, keys)
	r.read(b)
	if r.edit != nil {
		r.had.read(b, r.choice.IDs, r.edit.Edit)
	}
}

// decide puts back what may be.
func (r *redriving) decide() (*pgx.Batch, error) {
	n := len(r.choice.IDs)
	r.step = storage.Step{Taken: n, Next: r.choice.Next(n), Through: r.choice.Through}
	for _, id := range r.choice.IDs {
		d, ok := r.dead[id]
		if !ok || r.looked[id] != d { // else it has just died, and may have other keys than are locked
			if r.named { // one that has just gone did not match any more
				r.step.NotFound = append(r.step.NotFound, id)
			}
			continue
		}
		delete(r.dead, id) // it may be named twice
		is := rules.Job{
			ID: id.Key(), Lane: int64(r.s.lanes.number(storage.Lane{Queue: cmp.Or(r.queue, d.name.Queue), Kind: d.name.Kind})),
			Created: d.created, Salt: uint32(d.salt), Group: d.goal(r.queue), State: storage.Ready, Due: micros(r.now), Priority: d.priority, Bytes: d.bytes,
		}
		goes, err := r.deciding.tx.Redrive(d.was, d.group, is, d.unique, r.edit)
		if err != nil {
			return nil, err
		}
		if goes {
			r.step.N++
		} else {
			r.step.Duplicates = append(r.step.Duplicates, id)
		}
	}
	if err := r.deciding.tx.SettleAll(); err != nil || r.step.N == 0 {
		return nil, err
	}
	b := &pgx.Batch{}
	r.deciding.decided(b, r.deciding.tx.Changes())
	return b, nil
}

// putBackDead queues the rows of dead jobs that are live again.
func putBackDead(b *pgx.Batch, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	p, l := columnsOf(rows)
	b.Queue(sqlCountDead, p.id, -1)
	b.Queue(sqlRedrive, p.behind(l.lane, l.group)...)
	b.Queue(sqlDropCauses, lanesOf(rows))
}
