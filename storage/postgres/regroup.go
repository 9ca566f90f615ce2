package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sqlLockSettings = `SELECT settings FROM errand_meta FOR UPDATE`
	sqlRegroup      = `SELECT value FROM errand_setting WHERE queue = $1 AND kind = '' AND name = ''`
	sqlRegroupAs    = `UPDATE errand_setting SET value = $2 WHERE queue = $1 AND kind = '' AND name = ''`
	sqlRegrouped    = `DELETE FROM errand_setting WHERE queue = $1 AND kind = '' AND name = '' AND value = 0`
	// Members with a place and dead ones that block, each with the limit of the queue $3.
	sqlHeldPlaces = `SELECT m.group_key, (SELECT greatest(coalesce(max(value), 1), 1) FROM errand_setting WHERE queue = $3 AND kind = '' AND name = 'group_limit')
FROM (SELECT group_key FROM errand_job WHERE role = 2 AND group_key > $1 AND group_key < $2
  UNION ALL SELECT group_key FROM errand_dead WHERE role = 3 AND group_key > $1 AND group_key < $2) m ORDER BY group_key LIMIT $4`
	sqlNothing = `SELECT WHERE false`
)

// regroupStep is how many groups one step of Regroup changes, regroupMost how many members it
// lets in or blocks, but for those of the last group, and regroupWalk how many members with a
// place it counts, to find groups that have too many.
const (
	regroupStep = 100
	regroupMost = 250
	regroupWalk = 5000
)

// regrouping is a step of Regroup.
type regrouping struct {
	s     *Store
	queue string
	from  string // groups after this one
	due   int64  // see sqlRegroupDue
	names []string
	end   string // the last group that was looked at; empty: all were
}

// Regroup implements [storage.Grouper].
func (s *Store) Regroup(ctx context.Context, queue, after string) (next string, err error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	err = s.runTold(ctx, func(ctx context.Context, c *pgx.Conn) error {
		r := &regrouping{s: s, queue: queue, from: queue + " " + after}
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		b.Queue(sqlLockSettings)
		s.readNew(b)
		r.look(b)
		if err := part(ctx, c, b); err != nil {
			return err
		}
		if next = ""; r.due == 0 && after == "" {
			return part(ctx, c, end())
		}
		sc := s.scopes(time.Time{})
		sc.anew = true
		for _, name := range r.names {
			sc.leaving[name] = 1
		}
		if len(r.names) > 0 {
			b = &pgx.Batch{}
			sc.load(b)
			if err := part(ctx, c, b); err != nil {
				return err
			}
		}
		b = &pgx.Batch{}
		var err error
		if next, err = r.settle(sc); err != nil {
			return err
		}
		d := sums{}
		sc.write(b, d)
		s.count(b, d)
		switch {
		case next == "" && (after == "" || r.due == 2):
			b.Queue(sqlRegroupAs, queue, 0)
		case next != "" && after == "" && r.due == 1:
			b.Queue(sqlRegroupAs, queue, 2)
		}
		b.Queue(sqlRegrouped, queue)
		b.Queue(sqlCommit)
		return s.commit(ctx, c, b)
	})
	return next, err
}

// look queues the reading of what a step is about.
func (r *regrouping) look(b *pgx.Batch) {
	most := r.queue + "!"
	each(b, func(in pgx.CollectableRow) error { return in.Scan(&r.due) }, sqlRegroup, r.queue)
	crowd := map[string]int64{}
	var last, before string
	var limit int64
	all := 0
	each(b, func(in pgx.CollectableRow) error {
		var name string
		err := in.Scan(&name, &limit)
		if name != last {
			last, before = name, last
		}
		crowd[name]++
		if crowd[name] == limit+1 {
			r.names = append(r.names, name)
		}
		if all++; all == regroupWalk { // the last group is looked at again, unless it is all there was
			if r.end = before; before == "" {
				r.end = last
			}
		}
		return err
	}, sqlHeldPlaces, r.from, most, r.queue, regroupWalk)
	each(b, func(in pgx.CollectableRow) error {
		var name string
		err := in.Scan(&name)
		r.names = append(r.names, name)
		return err
	}, sqlNextWaiting, r.from, most, regroupStep)
	b.Queue(sqlNothing).Query(func(rows pgx.Rows) error {
		rows.Close()
		slices.Sort(r.names)
		r.names = slices.Compact(r.names)
		if r.end != "" {
			r.names = slices.DeleteFunc(r.names, func(name string) bool { return name > r.end })
		}
		if len(r.names) >= regroupStep {
			r.names = r.names[:regroupStep]
			r.end = r.names[regroupStep-1]
		}
		return rows.Err()
	})
}

// settle settles the groups, and returns the name of the last one if there may be others.
func (r *regrouping) settle(sc *scopes) (next string, err error) {
	for i, name := range r.names {
		if err := sc.settle(name); err != nil {
			return "", err
		}
		if sc.moved >= regroupMost && i < len(r.names)-1 {
			return groupOf(name), nil
		}
	}
	return groupOf(r.end), nil
}
