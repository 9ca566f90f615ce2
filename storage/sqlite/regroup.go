package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// Of each group how many members have a place, whether a dead one blocks, and the first that is
	// blocked.
	sqlTally = `SELECT k.key, (SELECT COUNT(*) FROM main.errand_option WHERE group_key = k.value AND role >= 2 AND role < 3),
EXISTS (SELECT 1 FROM main.errand_option WHERE group_key = k.value AND role = 3),
COALESCE((SELECT job FROM main.errand_option WHERE group_key = k.value AND role = 1 ORDER BY job LIMIT 1), 0) FROM json_each(?1) k`
	// Of those that block only the one with the lowest key can be the next.
	sqlGroupHeads = `SELECT o.job, role, COALESCE(state, 6), COALESCE(lane, 0) FROM main.errand_option o LEFT JOIN main.errand_job j ON j.id = o.job
WHERE group_key = ?1 AND role >= 2 AND role < 3
UNION ALL SELECT job, 3, 6, 0 FROM main.errand_option
WHERE job = (SELECT job FROM main.errand_option WHERE group_key = ?1 AND role = 3 ORDER BY job LIMIT 1)`
	sqlFirstBlocked = `SELECT job FROM main.errand_option WHERE group_key = ?1 AND role = 1 ORDER BY job LIMIT ?2 + 0`
	sqlPassDead     = `UPDATE main.errand_option SET role = 0 WHERE group_key = ?1 AND role = 3`
	sqlSetRole      = `UPDATE main.errand_option SET role = ? WHERE job = ?`
	sqlSetRoles     = `UPDATE main.errand_option SET role = ?2 WHERE job IN (SELECT value FROM json_each(?1))`

	sqlNextGroup = `SELECT group_key FROM main.errand_option WHERE role = 1 AND group_key > ?1 AND group_key <= ?2 ORDER BY group_key LIMIT 1`
	// The limit is rules.RegroupWalk.
	sqlHeadKeys = `SELECT group_key FROM main.errand_option WHERE role >= 2 AND group_key > ?1 AND group_key < ?2 ORDER BY group_key LIMIT 5000`
)

// regrouping is what a transaction knows of groups whose members it moves.
type regrouping struct {
	moved   int                    // members that were let in or blocked
	known   map[string]rules.Group // for members that join
	later   bool                   // regroup only notes the groups
	touched []string               // those that it has noted
	at      int64                  // of the exchange under way, else 0
}

// regroup lets in and blocks members of a group until all are as they should be. Key may
// be empty. The cost does not grow with the members that are blocked.
func (t *tx) regroup(key string) error {
	if key == "" {
		return nil
	}
	delete(t.groups.known, key)
	if t.groups.later {
		t.groups.touched = append(t.groups.touched, key)
		return nil
	}
	return t.settleGroup(key, false)
}

// regroupOnce calls f, and regroups after it each of the groups once that f would have regrouped.
func (t *tx) regroupOnce(f func() error) error {
	t.groups.later = true
	err := f()
	t.groups.later = false
	keys := t.groups.touched
	t.groups.touched = nil
	slices.Sort(keys)
	if keys = slices.Compact(keys); err == nil && len(keys) > 0 {
		err = t.settleGroups(keys, false)
	}
	return err
}

// regroupNow regroups a group that was noted for later, once what its members have become is written.
func (t *tx) regroupNow(key string) error {
	if !slices.Contains(t.groups.touched, key) {
		return nil
	}
	t.groups.touched = slices.DeleteFunc(t.groups.touched, func(k string) bool { return k == key })
	if err := t.writeRuns(); err != nil {
		return err
	}
	return t.settleGroup(key, false)
}

// settleGroup is regroup at once. anew is that of [rules.Group.Settle].
func (t *tx) settleGroup(key string, anew bool) error {
	return t.settleGroups([]string{key}, anew)
}

// settleGroups has the members of groups be in the states that they should.
func (t *tx) settleGroups(keys []string, anew bool) error {
	var d rules.Delta
	if err := rules.SettleGroups(&ruleRows{tx: t}, keys, anew, t.groups.at, &d); err != nil {
		return err
	}
	return t.decided(&d)
}

// decided does what a rule has decided.
func (t *tx) decided(d *rules.Delta) error {
	for _, key := range d.Pass {
		if _, err := t.exec(sqlPassDead, key); err != nil {
			return err
		}
	}
	for _, job := range d.Leave {
		if _, err := t.exec(sqlSetRole, rules.NoRole, job); err != nil {
			return err
		}
	}
	for _, m := range d.Block {
		if err := t.block(m); err != nil {
			return err
		}
	}
	for _, k := range d.Keys {
		if err := t.writeKey(k); err != nil {
			return err
		}
	}
	for all := d.LetIn; len(all) > 0; {
		n := slices.IndexFunc(all, func(l rules.LetIn) bool { return l.At != all[0].At || l.As != all[0].As })
		if n < 0 {
			n = len(all)
		}
		in := &delta{change: setLetIn, at: cmp.Or(all[0].At, math.MinInt64), role: all[0].As}
		for _, l := range all[:n] {
			in.jobs = append(in.jobs, facts{ID: l.Job})
		}
		if _, err := t.apply(in); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// Group implements [rules.Rows].
func (t *ruleRows) Group(key string, anew bool) (g rules.Group, err error) {
	g, loaded := t.groups[key]
	if !loaded {
		return g, rules.ErrNotLoaded
	}
	g.Rule, err = t.groupRule(key)
	members, waiting := g.Reads(anew)
	if err == nil && waiting > 1 && len(g.Waiting) > 0 {
		var job int64
		g.Waiting = g.Waiting[:0]
		err = t.each(sqlFirstBlocked, []any{key, waiting}, []any{&job}, func() { g.Waiting = append(g.Waiting, job) })
	}
	if err == nil && members {
		var m rules.Member
		var state stateCode
		err = t.each(sqlGroupHeads, []any{key}, []any{&m.Job, &m.Role, &state, &m.Lane}, func() {
			m.State = stateNames[state]
			g.Members = append(g.Members, m)
		})
	}
	return g, err
}

// block blocks a member that is scheduled or ready.
func (t *tx) block(m rules.Member) error {
	was := facts{ID: m.Job, Lane: m.Lane, State: codeOf(m.State)}
	r := jobRow{facts: was}
	r.State = blocked
	_, err := t.apply(&delta{change: setBlocked, was: &was, row: &r, role: rules.Waits})
	return err
}

// settingRegroup has the mark of a queue whose groups are to be regrouped, see [rules.Regrouped].
const settingRegroup storage.Setting = "regroup"

// Regroup implements [storage.Grouper].
func (s *Store) Regroup(ctx context.Context, queue, after string) (next string, err error) {
	r := &request{ends: true, work: rules.RegroupStep, step: rules.RegroupStep}
	r.run = func(t *tx) error {
		next, err = t.regroupQueue(queue, after, r.step)
		return err
	}
	if after == "" {
		r.probe = func(t *tx) (bool, error) {
			all, err := t.settings()
			return all[storage.Lane{Queue: queue}][settingRegroup] != 0, err
		}
	}
	if err := s.submit(ctx, r); err != nil {
		return "", err
	}
	return next, nil
}

// regroupQueue is one step of Regroup.
func (t *tx) regroupQueue(queue, after string, step int) (next string, err error) {
	lane := storage.Lane{Queue: queue}
	all, err := t.settings()
	if err != nil {
		return "", err
	}
	was := all[lane][settingRegroup]
	if after == "" && was == 0 {
		return "", nil
	}
	if next, err = t.regroupGroups(queue, after, step); err != nil {
		return "", err
	}
	if mark := rules.Regrouped(was, after, next); mark != was {
		err = t.mark(lane, mark)
	}
	return next, err
}

// mark sets settingRegroup.
func (t *tx) mark(lane storage.Lane, value int64) error {
	all, err := t.settings()
	if err == nil {
		err = t.writeSetting(lane, settingRegroup, value)
	}
	if err == nil {
		t.setAs(all, lane, storage.Settings{settingRegroup: value})
	}
	return err
}

// regroupGroups regroups up to step groups of a queue that need it, from one on. It returns the
// last one that it has looked at, "" if there are no others.
func (t *tx) regroupGroups(queue, after string, step int) (next string, err error) {
	key, end, most := queue+" "+after, queue+"!", t.groups.moved+rules.RegroupMost
	crowded, through, err := t.crowded(key, end)
	if err != nil {
		return "", err
	}
	for range step {
		var found string
		err := t.row(sqlNextGroup, []any{key, through}, &found)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return "", err
		}
		if len(crowded) > 0 && (found == "" || crowded[0] <= found) {
			found, crowded = crowded[0], crowded[1:]
		}
		if key = found; key == "" {
			if through == end {
				return "", nil
			}
			key = through
			break
		}
		if err := t.settleGroup(key, true); err != nil {
			return "", err
		}
		if t.groups.moved >= most {
			break
		}
	}
	_, next = rules.SplitGroup(key)
	return next, nil
}

// crowded returns the groups in which more members have a place than may, or block as dead
// ones, of those from key to through: that is end, unless there are many.
func (t *tx) crowded(key, end string) (groups []string, through string, err error) {
	rule, err := t.groupRule(key)
	if err != nil {
		return nil, "", err
	}
	var name, last, before string
	n, all := int64(0), 0
	err = t.each(sqlHeadKeys, []any{key, end}, []any{&name}, func() {
		if all++; name != last {
			before, last, n = last, name, 0
		}
		if n++; n == rule.Limit+1 {
			groups = append(groups, name)
		}
	})
	if all < rules.RegroupWalk {
		return groups, end, err
	}
	if before == "" { // one group is more than a step
		return []string{last}, last, err
	}
	if len(groups) > 0 && groups[len(groups)-1] == last { // it is looked at again
		groups = groups[:len(groups)-1]
	}
	return groups, before, err
}
