package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	sqlScopesOf = `SELECT lane, coalesce(unique_key, ''::bytea), coalesce(group_key, '') FROM errand_job WHERE id = ANY($1::bigint[])`
	sqlHadArgs  = `SELECT id, length(args), args = $2::bytea FROM errand_job WHERE id = ANY($1::bigint[])
UNION ALL SELECT id, length(args), args = $2 FROM errand_dead WHERE id = ANY($1)`
	sqlTransferDead = `WITH u AS (UPDATE errand_dead e SET lane = f.lane, group_key = f.group_key, role = f.role
  FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::smallint[]) f(id, lane, group_key, role) WHERE e.id = f.id RETURNING 1) ` + allOf

	sqlSetPriority = `WITH d AS (UPDATE errand_dead SET priority = $2::smallint WHERE id = ANY($1::bigint[]))
UPDATE errand_job j SET priority = $2::smallint WHERE id = ANY($1)`
	sqlSetPolicy = `WITH d AS (UPDATE errand_dead SET policy = $2::bytea WHERE id = ANY($1::bigint[]))
UPDATE errand_job j SET policy = $2::bytea WHERE id = ANY($1)`
	sqlSetArgs = `WITH d AS (UPDATE errand_dead SET args = $2::bytea WHERE id = ANY($1::bigint[]))
UPDATE errand_job j SET args = $2::bytea, weight = f.weight, history = true
FROM unnest($1, $3::integer[]) f(id, weight) WHERE j.id = f.id`
	sqlAddEdit = `INSERT INTO errand_history (job, n, attempt, at, duration, retry_after, phase, error, stack, instance, args)
SELECT id, coalesce((SELECT max(n) FROM errand_history h WHERE h.job = j.id), 0) + 1, attempt, $2::bigint, 0, false, '` + storage.PhaseEdited + `', '', '', $3::bytea, args
FROM (SELECT id, attempt, args FROM errand_job WHERE id = ANY($1::bigint[]) UNION ALL SELECT id, attempt, args FROM errand_dead WHERE id = ANY($1)) j`
	sqlPruneEdits = `DELETE FROM errand_history h USING unnest($1::bigint[]) f(job) WHERE h.job = f.job AND h.args IS NOT NULL
AND h.n <= (SELECT n FROM errand_history x WHERE x.job = f.job AND x.args IS NOT NULL ORDER BY n DESC LIMIT 1 OFFSET $2::integer)`
)

// sqlTransfer is sqlMove for jobs that go to another lane.
var sqlTransfer = `WITH u AS (UPDATE errand_job j SET lane = f.lane, group_key = f.group_key, ` + setPlaces + `
  FROM unnest($1::smallint[], $2::integer[], $3::text[], ` + placeTypes(3) + `) f(was, lane, group_key, ` + placeNames + `)
  WHERE j.id = f.id AND j.state = f.was RETURNING 1) ` + allOf

// Change implements [storage.Store], in as many round trips as Delete, and in more if a job has
// come to another group by then.
func (s *Store) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	if sel.Under != nil {
		return storage.Step{}, unsupported("Checkpoint")
	}
	if err := s.enter(ctx); err != nil {
		return storage.Step{}, err
	}
	defer s.leave()
	c, err := s.choose(ctx, &sel, selector.StepLive, storage.Waiting{})
	if err != nil || len(c.IDs) == 0 {
		return storage.Step{Through: c.Through}, err
	}
	ch := changing{s: s, now: now, edit: rules.Edit{Edit: &e}, named: len(sel.IDs) > 0, choice: c, had: hadArgs{}}
	if ch.edit.Lane, ch.edit.Had = ch.lane, ch.had.of; !ch.named {
		ch.edit.Of = &sel.Filter
	}
	if e.Cancel != nil {
		ch.edit.Keep = s.keeps(e.Cancel)
	}
	for ch.again = true; err == nil && ch.again; {
		err = ch.take(ctx)
	}
	if err != nil {
		return storage.Step{}, err
	}
	return ch.step, nil
}

// changing is a step of Change under way.
type changing struct {
	s        *Store
	now      time.Time
	edit     rules.Edit
	named    bool
	choice   selector.Choice
	deciding *deciding
	goals    []storage.NewJob // of the lanes where jobs go
	dead     map[storage.ID]departed
	had      hadArgs
	again    bool // what is to be locked was not
	step     storage.Step
}

// lane returns where a job of a lane goes, 0 if that is not known.
func (c *changing) lane(lane int64) int64 {
	kind := c.s.lanes.name(int32(lane)).Kind
	return int64(c.s.lanes.number(storage.Lane{Queue: c.edit.Queue, Kind: kind}))
}

// letters reports whether dead jobs are changed too.
func (c *changing) letters() bool { return c.named && c.edit.Cancel == nil && !c.edit.Reschedules() }

// ends returns which key and groups are to be locked for a job.
func (c *changing) ends(unique, group string) (key, from, to string) {
	switch {
	case c.edit.Cancel != nil:
		return unique, group, ""
	case c.edit.Queue != "":
		_, name := rules.SplitGroup(group)
		return "", group, rules.GroupName(c.edit.Queue, name)
	case c.edit.Reschedules():
		return "", group, ""
	}
	return "", "", ""
}

func (c *changing) needs(lane int32, unique, group string) {
	key, from, to := c.ends(unique, group)
	c.deciding.need.End(key, from)
	c.deciding.need.End("", to)
	if c.edit.Queue != "" {
		c.goals = append(c.goals, storage.NewJob{Queue: c.edit.Queue, Kind: c.s.lanes.name(lane).Kind})
	}
}

// locked reports whether a job has what was locked for it.
func (c *changing) locked(lane int64, unique, group string) bool {
	key, from, to := c.ends(unique, group)
	return c.deciding.need.Ends(key, from) && c.deciding.need.Ends("", to) && (c.edit.Queue == "" || c.lane(lane) != 0)
}

// take looks what the jobs have, locks it, and changes them.
func (c *changing) take(ctx context.Context) error {
	c.deciding, c.goals = c.s.deciding(c.now, 0), nil
	c.deciding.need.Jobs = slices.Clone(keysOf(c.choice.IDs))
	if err := c.s.run(ctx, c.look); err != nil {
		return err
	}
	if err := c.s.know(ctx, c.goals); err != nil {
		return err
	}
	return c.s.inTransaction(ctx, c.deciding, c.lock, c.decide)
}

func (c *changing) look(ctx context.Context, conn *pgx.Conn) error {
	b := &pgx.Batch{}
	c.s.readNew(b)
	c.deciding.need.Keys, c.deciding.need.Groups, c.deciding.need.Leave = nil, nil, nil
	each(b, func(row pgx.CollectableRow) error {
		var lane int32
		var unique []byte
		var group string
		err := row.Scan(&lane, &unique, &group)
		c.needs(lane, string(unique), group)
		return err
	}, sqlScopesOf, keysOf(c.choice.IDs))
	c.readDead(b)
	err := part(ctx, conn, b)
	for _, d := range c.dead {
		c.needs(int32(d.was.Lane), "", d.group)
	}
	return err
}

func (c *changing) readDead(b *pgx.Batch) {
	if c.dead = map[storage.ID]departed{}; c.letters() {
		c.s.readDead(b, c.choice.IDs, c.dead)
	}
}

func (c *changing) lock(b *pgx.Batch) {
	c.deciding.load(b)
	if c.letters() {
		b.Queue(sqlLockDead, keysOf(c.choice.IDs))
	}
	c.readDead(b)
	c.had.read(b, c.choice.IDs, c.edit.Edit)
}

// hadArgs are the args of jobs before an edit.
type hadArgs map[int64]struct {
	n    int64
	same bool
}

func (h hadArgs) of(job int64) (n int64, same bool) { return h[job].n, h[job].same }

// read queues the reading of what jobs have, if others are to take its place.
func (h hadArgs) read(b *pgx.Batch, ids []storage.ID, e *storage.Edit) {
	if clear(h); e.Args == nil {
		return
	}
	each(b, func(row pgx.CollectableRow) error {
		var key int64
		had := h[0]
		err := row.Scan(&key, &had.n, &had.same)
		h[key] = had
		return err
	}, sqlHadArgs, keysOf(ids), e.Args)
}

// decide changes what may be.
func (c *changing) decide() (*pgx.Batch, error) {
	n := len(c.choice.IDs)
	c.again, c.step = false, storage.Step{Taken: n, Next: c.choice.Next(n), Through: c.choice.Through}
	tx := &c.deciding.tx
	for _, id := range c.choice.IDs {
		j := tx.Live(id.Key())
		d, dead := c.dead[id]
		if j.ID != 0 && !c.locked(j.Lane, j.Unique, j.Group) || dead && !c.locked(d.was.Lane, "", d.group) {
			c.again = true
			return nil, nil
		}
		was, err := tx.Edit(id, &c.edit)
		if was == "" && dead && err == nil {
			was = storage.Dead
			err = tx.EditDead(rules.Job{ID: id.Key(), Lane: d.was.Lane, Group: d.group, Role: d.was.Role, State: was, Priority: d.priority}, &c.edit)
		}
		switch {
		case err != nil:
			return nil, err
		case was == storage.Running:
			c.step.Live = append(c.step.Live, id)
		case was != "":
			c.step.N++
		case c.named: // one that has just gone did not match any more
			c.step.NotFound = append(c.step.NotFound, id)
		}
	}
	if err := tx.SettleAll(); err != nil {
		return nil, err
	}
	return c.deciding.changes(), nil
}

// transfer queues the rows of jobs that wait in another lane.
func transfer(b *pgx.Batch, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	p, l := columnsOf(rows)
	var was []int16
	for _, r := range rows {
		was = append(was, codeOf(r.Was.State))
	}
	b.Queue(sqlTransfer, p.behind(was, l.lane, l.group)...)
}

// transferDead queues the rows of jobs that are dead in another lane.
func transferDead(b *pgx.Batch, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	p, l := columnsOf(rows)
	b.Queue(sqlCountDead, p.id, -1)
	b.Queue(sqlTransferDead, p.id, l.lane, l.group, p.role)
	b.Queue(sqlAddMovedCauses, p.id)
	b.Queue(sqlMoveCauses, p.id)
	b.Queue(sqlCountDead, p.id, 1)
	b.Queue(sqlDropCauses, lanesOf(rows))
}

// laneColumns are lanes and groups of jobs, as columns.
type laneColumns struct {
	lane  []int32
	group []*string
}

// columnsOf returns where jobs are now.
func columnsOf(rows []*rules.Row) (p placeColumns, l laneColumns) {
	for _, r := range rows {
		p.add(&r.Is)
		var group *string
		if r.Is.Group != "" {
			group = &r.Is.Group
		}
		l.lane, l.group = append(l.lane, int32(r.Is.Lane)), append(l.group, group)
	}
	return p, l
}

// amend queues what an edit changes of the work of jobs, which is the same edit of all.
func (s *Store) amend(b *pgx.Batch, at int64, rows []*rules.Row) {
	if len(rows) == 0 {
		return
	}
	var keys, others []int64
	var weight []int32
	for _, r := range rows {
		if keys = append(keys, r.Is.ID); r.Edits {
			others, weight = append(others, r.Is.ID), append(weight, int32(r.Is.Bytes))
		}
	}
	e := rows[0].Edit
	if e.Priority != nil {
		b.Queue(sqlSetPriority, keys, int16(*e.Priority))
	}
	if e.Policy != nil {
		b.Queue(sqlSetPolicy, keys, optional(e.Policy))
	}
	if len(others) > 0 {
		b.Queue(sqlAddEdit, others, at, []byte(s.self.title()))
		b.Queue(sqlPruneEdits, others, storage.EditLimit)
		b.Queue(sqlPrune, others, storage.HistoryLimit)
		b.Queue(sqlSetArgs, others, e.Args, weight)
	}
}
