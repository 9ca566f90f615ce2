package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlPlace = `SELECT lane, state, priority, due_at, salt, created_at, EXISTS (SELECT 1 FROM main.errand_urgent WHERE job = id) AS urgent
FROM main.errand_job WHERE id = ?1`
	sqlOldestNamed = `SELECT queue, kind, n AS due_at FROM (` + sqlOldest + `) CROSS JOIN main.errand_lane USING (lane) ORDER BY queue, kind`

	sqlHeadOf = `SELECT o.job AS id, role, COALESCE(j.salt, d.salt) AS salt, COALESCE(j.created_at, d.created_at) AS created_at
FROM main.errand_option o LEFT JOIN main.errand_job j ON j.id = o.job LEFT JOIN main.errand_dead d ON d.id = o.job
WHERE group_key = ?1 AND role >= 2`
	sqlBlockedBefore = `SELECT 1 FROM main.errand_option WHERE group_key = ?1 AND role = 1 AND job < ?2 LIMIT ?3 + 0`

	sqlAudit = `INSERT INTO main.errand_audit (deed, at, who, verb, what, note, jobs) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (deed) DO UPDATE SET jobs = jobs + excluded.jobs`
	// 100 is storage.AuditLimit. The newest entry stays, so that keys rise one by one.
	sqlTrimAudit = `DELETE FROM main.errand_audit WHERE id <= (SELECT MAX(id) FROM main.errand_audit) - 100`
	sqlAudited   = `SELECT at, who, verb, what, note, jobs FROM main.errand_audit ORDER BY id DESC`
)

// Ahead implements [storage.Examiner].
func (s *Store) Ahead(ctx context.Context, id storage.ID, most int) (a storage.Ahead, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		var r struct {
			Lane      int64
			Priority  int
			State     stateCode
			DueAt     int64 `db:"due_at"`
			CreatedAt int64 `db:"created_at"`
			Salt      uint32
			Urgent    bool
		}
		err := tx.Get(&r, sqlPlace, id.Key())
		if errors.Is(err, sql.ErrNoRows) {
			return storage.ErrNotFound
		}
		if err != nil {
			return err
		}
		if idOf(r.CreatedAt, r.Salt, id.Key()) != id {
			return storage.ErrNotFound
		}
		if a.Urgent = r.Urgent; r.State == blocked {
			a, err = behind(tx, id.Key(), most)
			return err
		}
		if r.State != ready {
			return nil
		}
		rule, err := queueRule(tx, r.Lane)
		if err != nil {
			return err
		}
		n, err := rule.aheadOf(ctx, tx, r.Lane, place{r.Priority, r.DueAt, id.Key()}, most+1)
		if a.N, a.More = min(n, most), n > most; err != nil {
			return err
		}
		var name storage.Lane
		if err := tx.Get(&name, sqlLaneName, r.Lane); err != nil {
			return err
		}
		if a.OfQueue, err = bucketOf(tx, storage.Lane{Queue: name.Queue}); err == nil {
			a.OfKind, err = bucketOf(tx, storage.Lane{Kind: name.Kind})
		}
		return err
	})
	return a, err
}

// behind is Ahead for a job that is blocked.
func behind(tx *sqlx.Tx, job int64, most int) (a storage.Ahead, err error) {
	var m membership
	if err := tx.QueryRow(sqlMembership, job).Scan(&m.GroupKey, &m.Role); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return a, err
	}
	if m.Role != rules.Waits { // it waits behind the holder of its unique key
		a.Head, err = holderBefore(tx, job)
		return a, err
	}
	type head struct {
		jobRow
		Role rules.Role
	}
	var heads []head
	if err := tx.Select(&heads, sqlHeadOf, m.GroupKey); err != nil {
		return a, err
	}
	slices.SortFunc(heads, func(a, b head) int { return cmp.Compare(a.ID, b.ID) })
	for _, h := range heads {
		if a.Head.IsZero() || h.Role == rules.Placed {
			a.Head = h.id()
		}
		if h.Role == rules.Placed {
			break
		}
	}
	var rows []bool
	err = tx.Select(&rows, sqlBlockedBefore, m.GroupKey, job, most+1)
	a.N, a.More = min(len(rows), most), len(rows) > most
	return a, err
}

// Check implements [storage.Examiner]. It makes a request that adds nothing: that takes
// the write lock, and is refused as one that adds work.
func (s *Store) Check(ctx context.Context) (c storage.Condition, err error) {
	c.Free = -1
	if free, ok := freeSpace(s.path); ok {
		c.Free, c.Low = free, free < lowSpace
	}
	c.Write = s.submit(ctx, &request{urgent: true, run: func(t *tx) error { return s.mayAddOne(t, c.Low) }})
	if errors.Is(c.Write, storage.ErrClosed) {
		return c, c.Write
	}
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) (err error) {
		c.Oldest, err = oldest(tx)
		return err
	})
	return c, err
}

// oldest returns when the first ready job of each lane was due.
func oldest(tx *sqlx.Tx) (all []storage.LaneDue, err error) {
	var rows []struct {
		Queue, Kind string
		DueAt       int64 `db:"due_at"`
	}
	err = tx.Select(&rows, sqlOldestNamed)
	for _, r := range rows {
		all = append(all, storage.LaneDue{Lane: storage.Lane{Queue: r.Queue, Kind: r.Kind}, DueAt: fromMicros(r.DueAt)})
	}
	return all, err
}

// did writes the entry of a deed that has an effect and changes so many jobs, if the call is one.
func (t *tx) did(ctx context.Context, jobs int) error {
	e, id, ok := storage.Audited(ctx)
	if !ok {
		return nil
	}
	name := id // apart from id, which is on the heap for no other call
	if _, err := t.exec(sqlAudit, name[:], micros(e.At), e.By, e.Do, e.What, e.Note, jobs); err != nil {
		return err
	}
	_, err := t.exec(sqlTrimAudit)
	return err
}

// didJobs is did for a call that has an effect only if it changes jobs.
func (t *tx) didJobs(ctx context.Context, jobs int) error {
	if jobs == 0 {
		return nil
	}
	return t.did(ctx, jobs)
}

// newOf returns how many jobs were enqueued, or took the place of others.
func newOf(all []storage.Enqueued) (n int) {
	for i := range all {
		if !all[i].Duplicate || all[i].Replaced {
			n++
		}
	}
	return n
}

// Audit implements [storage.Auditor].
func (s *Store) Audit(ctx context.Context) (all []storage.AuditEntry, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		var rows []struct {
			At                    int64
			Who, Verb, What, Note string
			Jobs                  int64
		}
		if err := tx.Select(&rows, sqlAudited); err != nil {
			return err
		}
		all = make([]storage.AuditEntry, len(rows))
		for i, r := range rows {
			all[i] = storage.AuditEntry{At: fromMicros(r.At), By: r.Who, Do: r.Verb, What: r.What, Note: r.Note, Jobs: r.Jobs}
		}
		return nil
	})
	return all, err
}
