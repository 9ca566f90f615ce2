package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlMembership = `SELECT COALESCE(group_key, ''), role FROM main.errand_option WHERE job = ?1`
	sqlHasHead    = `SELECT EXISTS (SELECT 1 FROM main.errand_option WHERE group_key = ?1 AND role >= 2)`
	sqlLaneOfJob  = `SELECT lane, options FROM main.errand_job WHERE id = ?1`
	sqlSetGroup   = `UPDATE main.errand_option SET group_key = ?2, role = ?3 WHERE job = ?1`
	sqlSkip       = `UPDATE main.errand_option SET role = 0 WHERE job =
(SELECT job FROM main.errand_option WHERE group_key = ?1 AND role = 3 ORDER BY job LIMIT 1) RETURNING job`
	sqlDeadID = `SELECT salt, created_at FROM main.errand_dead WHERE id = ?1`

	// The limit of the count is storage.GroupCount.
	countBlocked = `(SELECT COUNT(*) FROM main.errand_option b WHERE b.group_key = o.group_key AND b.role = 1 AND b.job <= COALESCE(
(SELECT job FROM main.errand_option e WHERE e.group_key = o.group_key AND e.role = 1 ORDER BY job LIMIT 1 OFFSET 999), 9223372036854775807)) AS blocked`
	sqlGroups = `SELECT group_key, j.id, j.salt, j.created_at, COALESCE(l.kind, '') AS kind, 6 AS state, j.reason, ` + endedError + ` AS error, j.cause, j.ended_at,
` + countBlocked + `
FROM main.errand_option o CROSS JOIN main.errand_dead j ON j.id = o.job LEFT JOIN main.errand_lane l USING (lane)
WHERE role = 3 AND group_key > ?1 AND group_key < ?2
AND NOT EXISTS (SELECT 1 FROM main.errand_option e WHERE e.group_key = o.group_key AND e.role = 3 AND e.job < o.job)
ORDER BY group_key LIMIT ?3`
	// From group to group, however many members of one are blocked.
	sqlWaitingGroups = `WITH RECURSIVE o (group_key) AS (
SELECT (SELECT group_key FROM main.errand_option WHERE role = 1 AND group_key > ?1 AND group_key < ?2 ORDER BY group_key LIMIT 1)
UNION ALL SELECT (SELECT group_key FROM main.errand_option WHERE role = 1 AND group_key > o.group_key AND group_key < ?2 ORDER BY group_key LIMIT 1)
FROM o WHERE o.group_key IS NOT NULL LIMIT ?3),
h AS MATERIALIZED (SELECT group_key, (SELECT job FROM main.errand_option p WHERE p.group_key = o.group_key AND p.role >= 2 ORDER BY p.role, p.job LIMIT 1) AS head, ` + countBlocked + `
FROM o WHERE group_key IS NOT NULL)
SELECT group_key, head AS id, COALESCE(a.salt, j.salt, 0) AS salt, COALESCE(a.created_at, j.created_at, 0) AS created_at, COALESCE(l.kind, '') AS kind,
CASE WHEN a.id IS NULL THEN 6 ELSE a.state END AS state, COALESCE(j.reason, '') AS reason, CASE WHEN j.id IS NULL THEN '' ELSE ` + endedError + ` END AS error,
COALESCE(j.cause, 0) AS cause, COALESCE(j.ended_at, 0) AS ended_at, blocked
FROM h LEFT JOIN main.errand_job a ON a.id = h.head LEFT JOIN main.errand_dead j ON j.id = h.head LEFT JOIN main.errand_lane l ON l.lane = COALESCE(a.lane, j.lane)
ORDER BY group_key`
	// From group to group, in two steps: k has a dead member, and b, the first from k on, a blocked
	// one. What is between them has only one of these. No name is between k and that with char(1)
	// after it. The limit of the count is above storage.BehindJobs.
	sqlBehindDead = `WITH RECURSIVE d (found, k, b) AS (SELECT 0, NULL, ?1 UNION ALL SELECT 1 - found,
CASE found WHEN 1 THEN k ELSE (SELECT group_key FROM main.errand_option WHERE role = 3 AND group_key >= iif(b = k, k || char(1), b) ORDER BY group_key LIMIT 1) END,
CASE found WHEN 0 THEN b ELSE (SELECT group_key FROM main.errand_option WHERE role = 1 AND group_key >= k ORDER BY group_key LIMIT 1) END
FROM d WHERE iif(found, k, b) IS NOT NULL),
h AS (SELECT k, (SELECT job FROM main.errand_option WHERE group_key = k AND role = 3 ORDER BY job LIMIT 1) AS head FROM d WHERE found = 0 AND k IS NOT NULL)
SELECT k AS group_key, COALESCE((SELECT ended_at FROM main.errand_dead WHERE id = head), 0) AS ended_at,
(SELECT COUNT(*) FROM (SELECT 1 FROM main.errand_option w WHERE w.group_key = k AND w.role = 1 AND w.job > head LIMIT 2001)) AS blocked FROM h`
)

// dueBlocked is the delay of a blocked job that was due when it was blocked.
const dueBlocked = -1

// membership is the part of an [option] that is about groups, see [storage.Grouper].
type membership struct {
	GroupKey string `db:"group_key"`
	Role     rules.Role
}

func membershipOf(j *storage.NewJob) membership {
	return membership{GroupKey: rules.GroupName(j.Queue, j.Group)}
}

// group returns the name of the group, "" if there is none.
func (m *membership) group() string {
	_, group := rules.SplitGroup(m.GroupKey)
	return group
}

// groupRule returns what the settings of a queue say of its groups, of which key is one.
func (t *tx) groupRule(key string) (rules.GroupRule, error) {
	all, err := t.settings()
	return rules.GroupRuleOf(all, key), err
}

// join sets the role of a new job in its group, and its state. The job is nil if that does not concern
// the group. changed says that others are to be written once the job is there, see writeChanges.
func (t *tx) join(r *jobRow) (as *rules.Row, changed bool, err error) {
	key := r.option.GroupKey
	rule, err := t.groupRule(key)
	if err != nil || !rule.Needs(stateNames[r.State]) {
		return nil, false, err
	}
	if err := t.regroupNow(key); err != nil {
		return nil, false, err
	}
	if t.deciding.tx == nil {
		if err := t.know(rules.Need{Fresh: 1}, time.Time{}); err != nil {
			return nil, false, err
		}
	}
	if !t.deciding.tx.Knows(key) {
		if err := t.readPlaces(key, rule); err != nil {
			return nil, false, err
		}
	}
	as, changed, err = t.deciding.tx.Join(rules.Job{ID: r.ID, Due: r.DueAt, Delay: r.Delay, Group: key, State: stateNames[r.State]})
	if err == nil {
		r.option.Role, r.State, r.Delay = as.Is.Role, codeOf(as.Is.State), delayOf(&as.Is)
	}
	return as, changed, err
}

// readPlaces has t.deciding.tx know of a group what concerns a new member.
func (t *tx) readPlaces(key string, rule rules.GroupRule) error {
	if rule.Pass {
		return t.readGroups(&rules.Need{Groups: []string{key}, Leave: []int32{0}})
	}
	g := rules.Group{Name: key, Rule: rule}
	var busy bool
	err := t.row(sqlHasHead, []any{key}, &busy)
	if busy { // or a dead one blocks, which is the same for a new one
		g.Taken = rule.Limit
	}
	t.deciding.tx.ReadGroup(g, false, 0, 1)
	return err
}

// block has a job that is about to be written wait behind others.
func (r *jobRow) block() {
	if r.State == ready {
		r.Delay = dueBlocked
	}
	r.State = blocked
}

// membership returns the group and the role of a job.
func (t *tx) membership(f *facts) (m membership, err error) {
	if f.Options&hasOption == 0 {
		return m, nil
	}
	if f.State == running && f.option != nil { // which no change of another job touches
		return f.option.membership, nil
	}
	err = t.row(sqlMembership, []any{f.ID}, &m.GroupKey, &m.Role)
	if errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
		err = nil
	}
	return m, err
}

// quit takes the role of a job that leaves its table. It returns the key of the group
// in which others may be let in, "" if there is none. The row of a job that goes for
// good goes with it.
func (t *tx) quit(f *facts, e *departure) (group string, err error) {
	if !f.State.live() && f.State != dead || e.state == ready {
		return "", nil
	}
	m, err := t.membership(f)
	if err != nil || m.Role == rules.NoRole {
		return "", err
	}
	if e.state == 0 {
		return m.GroupKey, nil
	}
	rule, err := t.groupRule(m.GroupKey)
	if err == nil {
		_, err = t.exec(sqlSetRole, rule.Left(stateNames[e.state]), f.ID)
	}
	return m.GroupKey, err
}

// findPlaces finds places for members of groups that have become ready, and blocks those that have none.
func (t *tx) findPlaces(jobs []facts) error {
	var n rules.Need
	var due []rules.Job
	for i := range jobs {
		f := &jobs[i]
		m, err := t.membership(f)
		if err != nil {
			return err
		}
		if m.GroupKey == "" || m.Role != rules.NoRole {
			continue
		}
		n.End("", m.GroupKey)
		due = append(due, rules.Job{ID: f.ID, Lane: f.Lane, Group: m.GroupKey, State: storage.Ready})
	}
	if len(due) == 0 {
		return nil
	}
	if err := t.know(n, time.Time{}); err != nil {
		return err
	}
	if err := t.deciding.tx.Place(due); err != nil {
		return err
	}
	return t.writeChanges()
}

// regroupOf is regroup for the group of a job that is put back. stays: it keeps its place.
func (t *tx) regroupOf(f *facts, stays bool) error {
	m, err := t.membership(f)
	if err != nil || m.GroupKey == "" {
		return err
	}
	rule, err := t.groupRule(m.GroupKey)
	if err != nil {
		return err
	}
	if rule.PutBack(stateNames[f.State], stays) == rules.NoRole {
		if _, err := t.exec(sqlSetRole, rules.NoRole, f.ID); err != nil {
			return err
		}
	}
	return t.regroup(m.GroupKey)
}

// placed writes the group and the role of a member, and has those be regrouped that it was in and is in.
func (t *tx) placed(job int64, was, is membership) error {
	if is != was {
		if _, err := t.exec(sqlSetGroup, job, is.GroupKey, is.Role); err != nil {
			return err
		}
	}
	if is.GroupKey != was.GroupKey {
		if err := t.regroup(was.GroupKey); err != nil {
			return err
		}
	}
	return t.regroup(is.GroupKey)
}

// tellRules has t.deciding.tx know what the settings say of groups, and nothing else of them.
func (t *tx) tellRules(groups ...string) error {
	for _, key := range groups {
		if key == "" || t.deciding.tx.Knows(key) {
			continue
		}
		rule, err := t.groupRule(key)
		if err != nil {
			return err
		}
		t.deciding.tx.ReadGroup(rules.Group{Name: key, Rule: rule}, false, 0, 1)
	}
	return nil
}

// Groups implements [storage.Grouper].
func (s *Store) Groups(ctx context.Context, of storage.GroupFilter, after string, limit int) (page storage.GroupPage, err error) {
	var rows []struct {
		GroupKey string `db:"group_key"`
		jobRow
		State         stateCode
		Reason, Error string
		Cause         int64
		EndedAt       int64 `db:"ended_at"`
		Blocked       int
	}
	low, high, text := "", "\x7f", sqlGroups // all of names is ASCII
	if of.Queue != "" {
		low, high = of.Queue+" ", of.Queue+"!"
	}
	if of.Waiting {
		text = sqlWaitingGroups
	}
	if limit <= 0 {
		return page, s.idle(ctx)
	}
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		return tx.Select(&rows, text, max(low, after), high, limit+1)
	})
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = rows[limit-1].GroupKey
	}
	for _, r := range rows {
		queue, group := rules.SplitGroup(r.GroupKey)
		page.Groups = append(page.Groups, storage.GroupState{
			Queue: queue, Group: group, Head: r.id(), Kind: r.Kind, State: stateNames[r.State], Reason: storage.Reason(r.Reason), Error: r.Error,
			Cause: r.Cause, Blocked: r.Blocked,
		})
		if r.State == dead {
			page.Groups[len(page.Groups)-1].DiedAt = fromMicros(r.EndedAt)
		}
	}
	return page, err
}

// BehindDead implements [storage.Grouper].
func (s *Store) BehindDead(ctx context.Context, after string, limit int) ([]storage.BehindDead, error) {
	b := rules.Behind{Limit: limit}
	err := s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		next := rules.Next{From: rules.AfterQueue(after)}
		for again := true; again; again = !next.Over && next.From != "" {
			var err error
			if next, err = behindFrom(tx, &b, next.From); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.All, nil
}

// behindFrom adds groups to b from a name on. It returns where to go on, if that is not the next
// group.
func behindFrom(tx *sqlx.Tx, b *rules.Behind, from string) (next rules.Next, err error) {
	rows, err := tx.Queryx(sqlBehindDead, from)
	if err != nil {
		return next, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var died, n int64
		if err := rows.Scan(&key, &died, &n); err != nil {
			return next, err
		}
		if next = b.Add(key, n, fromMicros(died)); next != (rules.Next{}) {
			return next, nil
		}
	}
	return next, rows.Err()
}

// SkipHead implements [storage.Grouper].
func (s *Store) SkipHead(ctx context.Context, queue, group string) (id storage.ID, err error) {
	found := false
	err = s.submit(ctx, &request{ends: true, urgent: true, work: 1, run: func(t *tx) (err error) {
		r := jobRow{}
		err = t.row(sqlSkip, []any{rules.GroupName(queue, group)}, &r.ID)
		if found = !errors.Is(err, sql.ErrNoRows); !found {
			return nil // an answer: an error would have all others of the batch go again
		}
		if err == nil {
			err = t.row(sqlDeadID, []any{r.ID}, &r.Salt, &r.CreatedAt)
		}
		if err != nil {
			return err
		}
		id = r.id()
		return cmp.Or(t.regroup(rules.GroupName(queue, group)), t.did(ctx, 1))
	}})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.ID{}, err
	}
	return id, nil
}
