package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// Members that are due and have no place.
	sqlUnplaced = `SELECT id, group_key, ARRAY[` + numbersOf + `] FROM errand_job
WHERE state = 1 AND role = 0 AND due_at <= $1 AND group_key = ANY($2::text[]) ORDER BY due_at, id LIMIT $3`

	sqlHead = `SELECT id, salt, created_at FROM errand_dead WHERE group_key = $1 AND role = 3 ORDER BY id LIMIT 1`
	sqlSkip = `UPDATE errand_dead SET role = 0 WHERE id = $1`

	// The limit is storage.GroupCount.
	countBlocked = `(SELECT count(*) FROM (SELECT FROM errand_job b WHERE b.group_key = g.group_key AND b.role = 1 LIMIT 1000) w)`
	lastError    = `CASE WHEN d.error = '' THEN coalesce((SELECT h.error FROM errand_history h WHERE h.job = d.id AND h.phase <> '` + storage.PhaseEdited + `' ORDER BY h.n DESC LIMIT 1), '') ELSE d.error END`
	sqlGroups    = `SELECT g.group_key, d.id, d.salt, d.created_at, l.kind, 6::smallint, d.reason, ` + lastError + `, d.cause, d.ended_at, ` + countBlocked + `
FROM errand_dead g JOIN errand_dead d ON d.id = g.id JOIN errand_lane l ON l.lane = d.lane
WHERE g.role = 3 AND g.group_key > $1 AND g.group_key < $2
  AND NOT EXISTS (SELECT FROM errand_dead e WHERE e.group_key = g.group_key AND e.role = 3 AND e.id < g.id)
ORDER BY g.group_key LIMIT $3`
	// From group to group, however many members of one are blocked.
	waitingGroups = `WITH RECURSIVE o (group_key) AS (
  (SELECT group_key FROM errand_job WHERE role = 1 AND group_key > $1 AND group_key < $2 ORDER BY group_key LIMIT 1)
  UNION ALL SELECT (SELECT group_key FROM errand_job WHERE role = 1 AND group_key > o.group_key AND group_key < $2 ORDER BY group_key LIMIT 1)
  FROM o WHERE o.group_key IS NOT NULL),
g AS MATERIALIZED (SELECT group_key FROM o WHERE group_key IS NOT NULL LIMIT $3) `
	sqlNextWaiting   = waitingGroups + `SELECT group_key FROM g`
	sqlWaitingGroups = waitingGroups + `SELECT g.group_key, coalesce(j.id, d.id, 0), coalesce(j.salt, d.salt, 0), coalesce(j.created_at, d.created_at, 0), coalesce(l.kind, ''),
  coalesce(j.state, CASE WHEN d.id IS NULL THEN 0 ELSE 6 END)::smallint, coalesce(d.reason, ''), CASE WHEN d.id IS NULL THEN '' ELSE ` + lastError + ` END,
  coalesce(d.cause, 0), coalesce(d.ended_at, 0), ` + countBlocked + `
FROM g LEFT JOIN LATERAL (SELECT id, salt, created_at, state, lane FROM errand_job p WHERE p.group_key = g.group_key AND p.role = 2 ORDER BY id LIMIT 1) j ON true
LEFT JOIN LATERAL (SELECT * FROM errand_dead e WHERE e.group_key = g.group_key AND e.role = 3 AND j.id IS NULL ORDER BY id LIMIT 1) d ON true
LEFT JOIN errand_lane l ON l.lane = coalesce(j.lane, d.lane) ORDER BY g.group_key`
)

// unplaced queues the reading of such members.
func unplaced(b *pgx.Batch, at int64, groups []string, into *[]rules.Job) {
	*into = nil
	var n numbers
	each(b, func(in pgx.CollectableRow) error {
		var j rules.Job
		err := in.Scan(&j.ID, &j.Group, &n)
		if err == nil {
			n.into(&j)
			*into = append(*into, j)
		}
		return err
	}, sqlUnplaced, at, groups, promoteLimit)
}

// Groups implements [storage.Grouper].
func (s *Store) Groups(ctx context.Context, of storage.GroupFilter, after string, limit int) (page storage.GroupPage, err error) {
	low, high, text := "", "\x7f", sqlGroups // all of names is ASCII
	if of.Queue != "" {
		low, high = of.Queue+" ", of.Queue+"!"
	}
	if of.Waiting {
		text = sqlWaitingGroups
	}
	var last []string
	err = s.read(ctx, func(b *pgx.Batch) {
		page, last = storage.GroupPage{}, nil
		each(b, func(in pgx.CollectableRow) error {
			g, name, err := scanGroupState(in)
			page.Groups, last = append(page.Groups, g), append(last, name)
			return err
		}, text, max(low, after), high, max(limit, 0)+1)
	})
	if len(page.Groups) > max(limit, 0) {
		if page.Groups = page.Groups[:max(limit, 0)]; limit > 0 {
			page.Next = last[limit-1]
		}
	}
	return page, err
}

func scanGroupState(in pgx.CollectableRow) (g storage.GroupState, name string, err error) {
	var id, created, ended int64
	var salt int32
	var state int16
	var text []byte
	err = in.Scan(&name, &id, &salt, &created, &g.Kind, &state, &g.Reason, &text, &g.Cause, &ended, &g.Blocked)
	g.Queue, g.Group = rules.SplitGroup(name)
	g.State, g.Error = states[state], string(text)
	if id != 0 {
		g.Head = jobID(created, salt, id)
	}
	if state == dead {
		g.DiedAt = fromMicros(ended)
	}
	return g, name, err
}

// SkipHead implements [storage.Grouper].
func (s *Store) SkipHead(ctx context.Context, queue, group string) (id storage.ID, err error) {
	if err := s.enter(ctx); err != nil {
		return id, err
	}
	defer s.leave()
	name := rules.GroupName(queue, group)
	dec := s.deciding(time.Time{}, 0)
	dec.need.End("", name)
	err = s.inTransaction(ctx, dec, func(b *pgx.Batch) {
		dec.load(b)
		id = storage.ID{}
		each(b, func(in pgx.CollectableRow) error {
			var key, created int64
			var salt int32
			err := in.Scan(&key, &salt, &created)
			id = jobID(created, salt, key)
			return err
		}, sqlHead, name)
	}, func() (*pgx.Batch, error) {
		if id.IsZero() {
			return nil, nil
		}
		if err := dec.tx.SkipHead(name, id.Key()); err != nil {
			return nil, err
		}
		b := &pgx.Batch{}
		b.Queue(sqlSkip, id.Key())
		dec.decided(b, dec.tx.Changes())
		return b, nil
	})
	if err == nil && id.IsZero() {
		err = storage.ErrNotFound
	}
	return id, err
}
