package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// Of those that block only the one with the lowest key can be the next.
	sqlGroupHeads = `SELECT o.job, role, COALESCE(state, 6), COALESCE(lane, 0), COALESCE(due_at, 0), COALESCE(delay, 0) FROM main.errand_option o LEFT JOIN main.errand_job j ON j.id = o.job
WHERE group_key = ?1 AND role >= 2 AND role < 3
UNION ALL SELECT job, 3, 6, 0, 0, 0 FROM main.errand_option
WHERE job = (SELECT job FROM main.errand_option WHERE group_key = ?1 AND role = 3 ORDER BY job LIMIT 1)`
	sqlFirstBlocked = `SELECT o.job, 1, 7, lane, due_at, delay FROM main.errand_option o CROSS JOIN main.errand_job j ON j.id = o.job
WHERE group_key = ?1 AND role = 1 ORDER BY o.job LIMIT ?2 + 0`
	sqlPassDead = `UPDATE main.errand_option SET role = 0 WHERE group_key = ?1 AND role = 3`
	sqlSetRole  = `UPDATE main.errand_option SET role = ? WHERE job = ?`
	sqlSetRoles = `UPDATE main.errand_option SET role = ?2 WHERE job IN (SELECT value FROM json_each(?1))`

	sqlNextGroup = `SELECT group_key FROM main.errand_option WHERE role = 1 AND group_key > ?1 AND group_key <= ?2 ORDER BY group_key LIMIT 1`
	// The limit is rules.RegroupWalk.
	sqlHeadKeys = `SELECT group_key FROM main.errand_option WHERE role >= 2 AND group_key > ?1 AND group_key < ?2 ORDER BY group_key LIMIT 5000`
)

// Of each group, or of one, how many members have a place, whether a dead one blocks, and the first that
// is blocked: its numbers as a text, since most groups have none. What is in errand_option alone, by
// damage, is passed over.
var (
	sqlTally    = tallyOf("k.key", "k.value") + ` FROM json_each(?1) k`
	sqlTallyOne = tallyOf("0", "?1")
)

func tallyOf(i, group string) string {
	return `SELECT ` + i + `, (SELECT COUNT(*) FROM main.errand_option WHERE group_key = ` + group + ` AND role >= 2 AND role < 3),
EXISTS (SELECT 1 FROM main.errand_option WHERE group_key = ` + group + ` AND role = 3),
(SELECT o.job || ' ' || lane || ' ' || due_at || ' ' || delay FROM main.errand_option o CROSS JOIN main.errand_job j ON j.id = o.job
WHERE group_key = ` + group + ` AND role = 1 ORDER BY o.job LIMIT 1)`
}

// deciding is what a transaction knows for the decision under way, and of groups whose members it
// moves.
type deciding struct {
	tx      *ruleTx  // see know; nil if nothing is known
	later   bool     // regroup only notes the groups
	touched []string // those that it has noted
	at      int64    // of the exchange under way, else 0
}

// ruleTx is a [rules.Tx], and memory for what is read for it: few transactions need it, and those of the
// writer share it.
type ruleTx struct {
	rules.Tx
	keys   [1]rules.NeedKey
	key    keyReading
	waiter jobRow // the job that a Conflict may change
	group  groupReading
}

// keyReading is a row of sqlKey.
type keyReading struct {
	is   rules.Keeper
	job  rules.Job
	slot int64   // and where the job is
	has  [2]bool // who has the key, and who waits for it
}

// groupReading is a row of sqlTally.
type groupReading struct {
	i     int64
	is    rules.Group
	first rules.Job
	rest  []groupRest
}

// groupRest is what is to be read of a group beside its tally.
type groupRest struct {
	name    string
	members bool
	most    int64 // of those that wait, 0: none is to be read
}

// regroup lets in and blocks members of a group until all are as they should be. Key may
// be empty. The cost does not grow with the members that are blocked.
func (t *tx) regroup(key string) error {
	if key == "" {
		return nil
	}
	if t.deciding.later {
		t.deciding.touched = append(t.deciding.touched, key)
		return nil
	}
	return t.settleGroups([]string{key}, false)
}

// regroupOnce calls f, and regroups after it each of the groups once that f would have regrouped.
func (t *tx) regroupOnce(f func() error) error {
	t.deciding.later = true
	err := f()
	t.deciding.later = false
	keys := t.deciding.touched
	t.deciding.touched = nil
	slices.Sort(keys)
	if keys = slices.Compact(keys); err == nil && len(keys) > 0 {
		err = t.settleGroups(keys, false)
	}
	return err
}

// regroupNow regroups a group that was noted for later, once what its members have become is written.
func (t *tx) regroupNow(key string) error {
	if !slices.Contains(t.deciding.touched, key) {
		return nil
	}
	t.deciding.touched = slices.DeleteFunc(t.deciding.touched, func(k string) bool { return k == key })
	if err := t.writeRuns(); err != nil {
		return err
	}
	return t.settleGroups([]string{key}, false)
}

// settleGroups has the members of groups, which are in order, be in the states that they should. anew
// is that of [rules.Group.Settle].
func (t *tx) settleGroups(keys []string, anew bool) error {
	n := rules.Need{Groups: keys, Leave: slices.Repeat([]int32{1}, len(keys)), Anew: anew}
	if err := t.know(n, time.Time{}); err != nil {
		return err
	}
	for _, key := range keys {
		if err := t.deciding.tx.Settle(key); err != nil {
			return err
		}
	}
	return t.writeChanges()
}

// know has t.deciding.tx know what a Need names, and nothing else, and decide as of now. With one writer
// nothing is to be locked.
func (t *tx) know(n rules.Need, now time.Time) error {
	tx := t.ruleTx()
	n.Sort()
	tx.Reset(n)
	tx.Begin(now, t.deciding.at)
	for i := range n.Keys {
		if err := t.readKey(&n.Keys[i]); err != nil {
			return err
		}
	}
	if len(n.Groups) == 0 {
		return nil
	}
	return t.readGroups(&n)
}

// ruleTx returns t.deciding.tx, which is there from the first use in a call on.
func (t *tx) ruleTx() *ruleTx {
	switch {
	case t.deciding.tx != nil:
	case t.stmts != nil:
		t.deciding.tx = &t.stmts.rules
	default:
		t.deciding.tx = &ruleTx{}
	}
	return t.deciding.tx
}

// knowKey is know for a unique key.
func (t *tx) knowKey(name string, c *storage.Conflict, now time.Time) error {
	tx := t.ruleTx()
	tx.keys[0] = rules.NeedKey{Name: name, Conflict: c}
	return t.know(rules.Need{Keys: tx.keys[:]}, now)
}

// readGroups is the part of know for groups.
func (t *tx) readGroups(n *rules.Need) error {
	settings, err := t.settings()
	if err != nil {
		return err
	}
	r := &t.deciding.tx.group
	*r = groupReading{rest: r.rest[:0]}
	g, first := &r.is, &r.first
	first.Role, first.State = rules.Waits, storage.Blocked
	text, of := sqlTallyOne, n.Groups[0]
	if len(n.Groups) > 1 {
		list, _ := json.Marshal(n.Groups) // of texts, which cannot fail
		text, of = sqlTally, string(list)
	}
	err = t.each(text, []any{of}, []any{&r.i, &g.Taken, &g.Dead, (*waitingJob)(first)}, func() {
		g.Name = n.Groups[r.i]
		g.Rule, first.Group = rules.GroupRuleOf(settings, g.Name), g.Name
		members, most := g.Reads(n.Anew)
		members = members && n.Leave[r.i] > 0
		if first.ID == 0 {
			t.deciding.tx.ReadGroup(*g, members, 0, most)
			most = 0
		} else {
			t.deciding.tx.ReadGroup(*g, members, 1, most)
		}
		if most == 1 {
			t.deciding.tx.ReadMember(*first)
			most = 0
		}
		if members || most > 0 {
			r.rest = append(r.rest, groupRest{g.Name, members, most})
		}
	})
	for _, g := range r.rest {
		if g.members && err == nil {
			err = t.readMembers(g.name, sqlGroupHeads, g.name)
		}
		if g.most > 0 && err == nil {
			err = t.readMembers(g.name, sqlFirstBlocked, g.name, g.most)
		}
	}
	return err
}

// readMembers reads members of a group that a query returns.
func (t *tx) readMembers(group, text string, args ...any) error {
	j := rules.Job{Group: group}
	var state stateCode
	return t.each(text, args, []any{&j.ID, &j.Role, &state, &j.Lane, &j.Due, &j.Delay}, func() {
		j.State = stateNames[state]
		setDelay(&j)
		t.deciding.tx.ReadMember(j)
	})
}

// writeChanges writes what was decided since know.
func (t *tx) writeChanges() error {
	c := t.deciding.tx.Changes()
	for _, key := range c.Pass {
		if _, err := t.exec(sqlPassDead, key); err != nil {
			return err
		}
	}
	for _, k := range c.Keys {
		if err := t.writeKey(k); err != nil {
			return err
		}
	}
	for rows := c.Jobs; len(rows) > 0; {
		to := moveOf(rows[0])
		n := slices.IndexFunc(rows, func(r *rules.Row) bool { return moveOf(r) != to })
		if n < 0 {
			n = len(rows)
		}
		if _, err := t.apply(&delta{change: setMoved, moved: rows[:n]}); err != nil {
			return err
		}
		rows = rows[n:]
	}
	t.deciding.tx.Wrote()
	return nil
}

// moved is apply for setMoved.
func (t *tx) moved(rows []*rules.Row) error {
	m := moveOf(rows[0])
	if err := t.moveAll(rows, &m); err != nil || m.state == 0 {
		return err
	}
	one := delta{change: setMoved, row: &jobRow{}}
	one.row.State = m.state
	for _, r := range rows {
		if r.Is.Lane == 0 { // it is missing
			continue
		}
		was := codeOf(r.Was.State)
		t.move(r.Is.Lane, was, r.Is.Lane, m.state)
		if was == ready && m.state != ready {
			if err := t.calm(r.Is.ID); err != nil {
				return err
			}
		}
		one.row.DueAt = r.Is.Due
		t.tell(&one)
	}
	return nil
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
	key, end, moved := queue+" "+after, queue+"!", 0
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
		if err := t.settleGroups([]string{key}, true); err != nil {
			return "", err
		}
		if moved += t.deciding.tx.Moved(); moved >= rules.RegroupMost {
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
