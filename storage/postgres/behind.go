package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// From group to group: k has a dead member, and b, the first from k on, a blocked one. What is
	// between them has only one of these. No name is between k and that with E'\x01' after it. A
	// page ends once more jobs are counted than storage.BehindJobs, or with its last row.
	behindPage    = 1001
	sqlBehindDead = `WITH RECURSIVE d (k, b, died, n, jobs) AS (SELECT NULL::text COLLATE "C", $1::text COLLATE "C", 0::bigint, 0::bigint, 0::bigint
UNION ALL SELECT h.k, w.b, h.died, c.n, d.jobs + c.n FROM d
CROSS JOIN LATERAL (SELECT group_key AS k, id, ended_at AS died FROM errand_dead WHERE role = 3
  AND group_key >= CASE WHEN d.b = d.k THEN d.k || E'\x01' ELSE d.b END ORDER BY group_key, id LIMIT 1) h
LEFT JOIN LATERAL (SELECT group_key AS b FROM errand_job WHERE role = 1 AND group_key >= h.k ORDER BY group_key, id LIMIT 1) w ON true
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM errand_job j WHERE j.group_key = h.k AND j.role = 1 AND j.id > h.id LIMIT 2001) m) c
WHERE d.b IS NOT NULL AND d.jobs <= 2000)
SELECT k, coalesce(b, ''), died, n FROM d WHERE k IS NOT NULL LIMIT $2`
)

// BehindDead implements [storage.Grouper].
func (s *Store) BehindDead(ctx context.Context, after string, limit int) ([]storage.BehindDead, error) {
	b := rules.Behind{Limit: limit}
	for next := (rules.Next{From: rules.AfterQueue(after)}); ; {
		var all []behind
		err := s.read(ctx, func(batch *pgx.Batch) {
			all = nil
			each(batch, func(in pgx.CollectableRow) error {
				var r behind
				err := in.Scan(&r.name, &r.blocked, &r.died, &r.n)
				all = append(all, r)
				return err
			}, sqlBehindDead, next.From, behindPage)
		})
		if err != nil {
			return nil, err
		}
		if next = addBehind(&b, all); next.Over || next.From == "" {
			return b.All, nil
		}
	}
}

// behind is a group with a dead member, and the first group from it on with a blocked one.
type behind struct {
	name, blocked string
	died, n       int64
}

// addBehind adds a page of groups to b. It returns where the next page begins, if there is one.
func addBehind(b *rules.Behind, page []behind) (next rules.Next) {
	jobs := int64(0)
	for _, r := range page {
		jobs += r.n
		if r.name < next.From {
			continue
		}
		if next = b.Add(r.name, r.n, fromMicros(r.died)); next.Over {
			return next
		}
	}
	if len(page) == 0 || page[len(page)-1].blocked == "" || len(page) < behindPage && jobs <= storage.BehindJobs {
		return rules.Next{}
	}
	last := page[len(page)-1]
	from := last.blocked
	if from == last.name {
		from += "\x01"
	}
	return rules.Next{From: max(next.From, from)}
}
