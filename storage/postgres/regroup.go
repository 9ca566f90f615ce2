package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage/internal/rules"
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

// regrouping is a step of Regroup.
type regrouping struct {
	s     *Store
	queue string
	from  string // groups after this one
	mark  int64  // see [rules.Regrouped]
	names []string
	end   string // the last group that was looked at; empty: all were
}

// Regroup implements [storage.Grouper].
func (s *Store) Regroup(ctx context.Context, queue, after string) (next string, err error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	var dec *deciding
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
		if next = ""; r.mark == 0 && after == "" {
			return part(ctx, c, end())
		}
		dec = s.deciding(time.Time{}, 0)
		dec.need.Anew = true
		for _, name := range r.names {
			dec.need.End("", name)
		}
		if len(r.names) > 0 {
			b = &pgx.Batch{}
			dec.load(b)
			if err := part(ctx, c, b); err != nil {
				return err
			}
		}
		b = &pgx.Batch{}
		var err error
		if next, err = r.settle(dec); err != nil {
			return err
		}
		dec.decided(b, dec.tx.Changes())
		if mark := rules.Regrouped(r.mark, after, next); mark != r.mark {
			b.Queue(sqlRegroupAs, queue, mark)
		}
		b.Queue(sqlRegrouped, queue)
		b.Queue(sqlCommit)
		return s.commit(ctx, c, b)
	})
	if err == nil && dec != nil {
		s.wake.committed(dec.news)
	}
	return next, err
}

// look queues the reading of what a step is about.
func (r *regrouping) look(b *pgx.Batch) {
	most := r.queue + "!"
	each(b, func(in pgx.CollectableRow) error { return in.Scan(&r.mark) }, sqlRegroup, r.queue)
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
		if all++; all == rules.RegroupWalk { // the last group is looked at again, unless it is all there was
			if r.end = before; before == "" {
				r.end = last
			}
		}
		return err
	}, sqlHeldPlaces, r.from, most, r.queue, rules.RegroupWalk)
	each(b, func(in pgx.CollectableRow) error {
		var name string
		err := in.Scan(&name)
		r.names = append(r.names, name)
		return err
	}, sqlNextWaiting, r.from, most, rules.RegroupStep)
	b.Queue(sqlNothing).Query(func(rows pgx.Rows) error {
		rows.Close()
		slices.Sort(r.names)
		r.names = slices.Compact(r.names)
		if r.end != "" {
			r.names = slices.DeleteFunc(r.names, func(name string) bool { return name > r.end })
		}
		if len(r.names) >= rules.RegroupStep {
			r.names = r.names[:rules.RegroupStep]
			r.end = r.names[rules.RegroupStep-1]
		}
		return rows.Err()
	})
}

// settle settles the groups, and returns the name of the last one if there may be others.
func (r *regrouping) settle(dec *deciding) (next string, err error) {
	for i, name := range r.names {
		if err := dec.tx.Settle(name); err != nil {
			return "", err
		}
		if dec.tx.Moved() >= rules.RegroupMost && i < len(r.names)-1 {
			_, next = rules.SplitGroup(name)
			return next, nil
		}
	}
	_, next = rules.SplitGroup(r.end)
	return next, nil
}
