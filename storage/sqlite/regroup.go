package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

const (
	// How many members have a place, whether a dead one blocks, and the first that is blocked.
	sqlTally = `SELECT (SELECT COUNT(*) FROM main.errand_option WHERE group_key = ?1 AND role >= 2 AND role < 3),
EXISTS (SELECT 1 FROM main.errand_option WHERE group_key = ?1 AND role = 3),
COALESCE((SELECT job FROM main.errand_option WHERE group_key = ?1 AND role = 1 ORDER BY job LIMIT 1), 0)`
	sqlGroupHeads = `SELECT o.job, role, COALESCE(state, 6), COALESCE(lane, 0) FROM main.errand_option o LEFT JOIN main.errand_job j ON j.id = o.job
WHERE group_key = ?1 AND role >= 2`
	sqlFirstBlocked = `SELECT job FROM main.errand_option WHERE group_key = ?1 AND role = 1 ORDER BY job LIMIT 1`
	sqlPassDead     = `UPDATE main.errand_option SET role = 0 WHERE group_key = ?1 AND role = 3`
	sqlSetRole      = `UPDATE main.errand_option SET role = ?2 WHERE job = ?1`

	sqlNextGroup = `SELECT group_key FROM main.errand_option WHERE role = 1 AND group_key > ?1 AND group_key <= ?2 ORDER BY group_key LIMIT 1`
	// The limit is regroupWalk.
	sqlHeadKeys = `SELECT group_key FROM main.errand_option WHERE role >= 2 AND group_key > ?1 AND group_key < ?2 ORDER BY group_key LIMIT 5000`
)

// regrouping is what a transaction knows of groups whose members it moves.
type regrouping struct {
	moved   int              // members that were let in or blocked
	free    map[string]int64 // places of groups that are known, for members that join
	later   bool             // regroup only notes the groups
	touched []string         // those that it has noted
	at      int64            // of the exchange under way, else 0
}

// regroup lets in and blocks members of a group until all are as they should be. Key may
// be empty. The cost does not grow with the members that are blocked.
func (t *tx) regroup(key string) error {
	if key == "" {
		return nil
	}
	delete(t.groups.free, key)
	if t.groups.later {
		t.groups.touched = append(t.groups.touched, key)
		return nil
	}
	return t.settleGroup(key, false)
}

// regroupOnce calls f for 0 to n-1, and regroups after it each of the groups once that the
// calls would have regrouped.
func (t *tx) regroupOnce(n int, f func(i int) error) (err error) {
	t.groups.later = true
	for i := 0; err == nil && i < n; i++ {
		err = f(i)
	}
	t.groups.later = false
	keys := t.groups.touched
	t.groups.touched = nil
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if err == nil {
			err = t.settleGroup(key, false)
		}
	}
	return err
}

// regroupNow regroups a group that was noted for later.
func (t *tx) regroupNow(key string) error {
	if !slices.Contains(t.groups.touched, key) {
		return nil
	}
	t.groups.touched = slices.DeleteFunc(t.groups.touched, func(k string) bool { return k == key })
	return t.settleGroup(key, false)
}

// settleGroup is regroup at once. With anew, scheduled members leave their places if there
// may be several, as the settings may have been others when they took them.
func (t *tx) settleGroup(key string, anew bool) error {
	rule, err := t.groupRule(key)
	if err != nil {
		return err
	}
	g, err := t.tally(key)
	if err == nil && g.dead && rule.pass {
		_, err = t.exec(sqlPassDead, key)
		g.dead = false
	}
	if err != nil {
		return err
	}
	if rule.limit == 1 {
		return t.settleOrder(key, g)
	}
	if anew || g.taken > rule.limit {
		if g.taken, err = t.leavePlaces(key, rule.limit); err != nil {
			return err
		}
	}
	return t.letInAll(key, g.first, rule.limit-g.taken)
}

// groupHead is a member of a group that may keep others back.
type groupHead struct {
	job, lane int64
	role      role
	state     stateCode
}

// heads returns the members that may keep others back, in the order of keys.
func (t *tx) heads(key string) (heads []groupHead, err error) {
	var h groupHead
	err = t.each(sqlGroupHeads, []any{key}, []any{&h.job, &h.role, &h.state, &h.lane}, func() { heads = append(heads, h) })
	slices.SortFunc(heads, func(a, b groupHead) int { return cmp.Compare(a.job, b.job) })
	return heads, err
}

// settleOrder is settleGroup for a group whose members run one at a time.
func (t *tx) settleOrder(key string, g tally) error {
	if g.taken == 0 && !g.dead {
		if g.first == 0 {
			return nil
		}
		return t.letIn(key, g.first)
	}
	heads, err := t.heads(key)
	if err != nil {
		return err
	}
	next := g.first
	for _, h := range heads {
		if next == 0 || h.job < next {
			next = h.job
		}
	}
	if i := slices.IndexFunc(heads, func(h groupHead) bool { return h.state == running }); i >= 0 {
		next = heads[i].job // several run if they were leased together
	}
	for _, h := range heads {
		if h.role == roleHead && h.job != next && h.state != running {
			if err := t.block(h); err != nil {
				return err
			}
		}
	}
	if next != g.first || g.first == 0 {
		return nil
	}
	return t.letIn(key, g.first)
}

// leavePlaces has scheduled members leave their places, and the ready ones with the
// highest keys, until no more than limit are taken. It returns how many are.
func (t *tx) leavePlaces(key string, limit int64) (taken int64, err error) {
	heads, err := t.heads(key)
	if err != nil {
		return 0, err
	}
	taken = int64(len(heads)) // of the dead none is among them
	for _, h := range heads {
		if h.state == scheduled {
			if _, err := t.exec(sqlSetRole, h.job, noRole); err != nil {
				return 0, err
			}
			taken--
		}
	}
	for _, h := range slices.Backward(heads) {
		if h.state == ready && taken > limit {
			if err := t.block(h); err != nil {
				return 0, err
			}
			taken--
		}
	}
	return taken, nil
}

// letInAll lets in as many members as there are places, from the first blocked one on.
func (t *tx) letInAll(key string, first, places int64) (err error) {
	for ; err == nil && first != 0 && places > 0; places-- {
		if err = t.letIn(key, first); err == nil {
			first, err = t.firstBlocked(key)
		}
	}
	return err
}

// firstBlocked returns the blocked member of a group with the lowest key, 0 if there is none.
func (t *tx) firstBlocked(key string) (first int64, err error) {
	if err = t.row(sqlFirstBlocked, []any{key}, &first); errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return first, err
}

// block blocks a member that is scheduled or ready.
func (t *tx) block(h groupHead) error {
	was := facts{ID: h.job, Lane: h.lane, State: h.state}
	r := jobRow{facts: was}
	r.State = blocked
	_, err := t.apply(&delta{change: setBlocked, was: &was, row: &r, role: roleBlocked})
	return err
}

// letIn makes a blocked member the head of its group.
func (t *tx) letIn(key string, job int64) error {
	rule, err := t.groupRule(key)
	at := int64(math.MinInt64)
	if rule.turns && t.groups.at != 0 {
		at = t.groups.at
	}
	if err != nil {
		return err
	}
	return t.unblock(job, at, roleHead)
}

// unblock makes a blocked job ready, or scheduled if it is due later. If it was due before
// at, it is due at that time.
func (t *tx) unblock(job, at int64, as role) error {
	var r jobRow
	_, err := t.apply(&delta{change: setLetIn, was: &facts{ID: job, State: blocked}, row: &r, at: at, role: as})
	return err
}

// regroupStep is how many groups one step of Regroup changes, regroupMost how many
// members it lets in or blocks, but for those of the last group, and regroupWalk how many
// members with a place it counts, to find groups that have too many.
const (
	regroupStep = 100
	regroupMost = 250
	regroupWalk = 5000
)

// settingRegroup is in the table of settings from when those of the groups of a queue are
// changed until a Regroup has gone through all of them since.
const settingRegroup storage.Setting = "regroup"

// The values of settingRegroup.
const (
	regroupDue int64 = 1 + iota
	regroupBegun
)

// Regroup implements [storage.Grouper].
func (s *Store) Regroup(ctx context.Context, queue, after string) (next string, err error) {
	r := &request{ends: true, work: regroupStep, run: func(t *tx) error {
		next, err = t.regroupQueue(queue, after)
		return err
	}}
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

// regroupQueue is one step of Regroup. It keeps settingRegroup if the settings have changed
// since the first step, whose successors this one may be beside.
func (t *tx) regroupQueue(queue, after string) (next string, err error) {
	lane := storage.Lane{Queue: queue}
	all, err := t.settings()
	if err != nil {
		return "", err
	}
	begun := all[lane][settingRegroup]
	if after == "" && begun == 0 {
		return "", nil
	}
	if next, err = t.regroupGroups(queue, after); err != nil {
		return "", err
	}
	switch {
	case next == "" && (after == "" || begun == regroupBegun):
		err = t.mark(lane, 0)
	case next != "" && after == "" && begun == regroupDue:
		err = t.mark(lane, regroupBegun)
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

// regroupGroups regroups the groups of a queue that need it, from one on. It returns the
// last one that it has looked at, "" if there are no others.
func (t *tx) regroupGroups(queue, after string) (next string, err error) {
	key, end, most := queue+" "+after, queue+"!", t.groups.moved+regroupMost
	crowded, through, err := t.crowded(key, end)
	if err != nil {
		return "", err
	}
	for range regroupStep {
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
	_, next, _ = strings.Cut(key, " ")
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
		if n++; n == rule.limit+1 {
			groups = append(groups, name)
		}
	})
	if all < regroupWalk {
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
