package sqlite

import (
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// In the order of keys; a group is blocked from its first member on, see [rules.Group.Settle].
	sqlNextBlocked = `SELECT ` + wideColumns + `, state, delay FROM main.errand_option o CROSS JOIN main.errand_job j ON j.id = o.job
WHERE group_key = ?1 AND role = 1 AND job > ?2 ORDER BY job LIMIT 1`
)

// handlerCalls are those for which a merge leases jobs, see [storage.Want.ByGroup].
type handlerCalls struct {
	*statements
	wants []storage.Want
	begun []int            // for each want
	sizes map[callName]int // how many jobs the last call of each name has
	rest  []int            // what is left of N of the wants that are closed
}

// callName is what the jobs of a call have in common.
type callName struct {
	want  int
	lane  storage.Lane // without a kind if the want has all kinds
	group string
}

// fits reports whether a job of a lane is of a call that is begun, or begins one.
func (c *handlerCalls) fits(want int, r *jobRow, lane storage.Lane) (bool, error) {
	w := &c.wants[want]
	if w.ByGroup <= 0 {
		return true, nil
	}
	name := callName{want: want, lane: lane}
	if w.OfAnyKind() {
		name.lane.Kind = ""
	}
	if r.option != nil {
		name.group = r.option.GroupKey
	} else if r.Options&hasOption != 0 {
		var role rules.Role
		err := c.row(sqlMembership, []any{r.ID}, &name.group, &role)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
	}
	if c.sizes == nil {
		c.sizes, c.begun = map[callName]int{}, make([]int, len(c.wants))
	}
	if n := c.sizes[name]; n == 0 || n == w.ByGroup {
		if c.begun[want] == w.Calls() {
			return false, nil
		}
		c.begun[want]++
		c.sizes[name] = 0
	}
	c.sizes[name]++
	return true, nil
}

// close has no more jobs be leased for a want.
func (c *handlerCalls) close(want int, left []int) {
	if c.rest == nil {
		c.rest = make([]int, len(left))
	}
	c.rest[want], left[want] = left[want], 0
}

// leftOf returns how many more jobs each want has room for, nil if none is for calls.
func (c *handlerCalls) leftOf(left []int) []int {
	if c.sizes == nil {
		return nil
	}
	left = slices.Clone(left)
	for i, n := range c.rest {
		left[i] += n
	}
	return left
}

// granting is the leases that one exchange grants, beside urgent ones.
type granting struct {
	*tx
	grant
	out   []storage.Leased
	first int // of out, in stmts.leased
	at    int64
	bytes int // were leased, of at most [storage.LeaseBytes]
	room  *leaseRoom
}

// full reports whether no further job may be leased.
func (g *granting) full() bool { return g.bytes >= storage.LeaseBytes }

// leaseAll leases the jobs of rows, up to [storage.LeaseBytes], and what they bring. left
// is what each want has room for.
func (g *granting) leaseAll(x *storage.Exchange, rows []jobRow, left []int, k *tokens) error {
	g.out = make([]storage.Leased, 0, len(rows))
	err := g.inRuns(func() error {
		for i := range rows {
			r := &rows[i]
			err := g.lease(r)
			if err == nil && r.leads > 0 {
				err = g.bring(x, r, &left[r.leads-1], k)
			}
			if err != nil {
				return err
			}
			if g.full() && i+1 < len(rows) {
				g.stmts.lineups.forget() // of which the rest was taken
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return k.pay(g.out)
}

// lease leases the job of a row.
func (g *granting) lease(r *jobRow) error {
	g.out = append(g.out, storage.Leased{})
	l := &g.out[len(g.out)-1]
	if err := g.leaseRow(l, r, &g.grant, false); err != nil {
		return err
	}
	g.bytes += l.Bytes()
	return nil
}

// bring leases the members of a group that are blocked right behind its head, which is the
// job of a row that is leased. left is what its want has room for.
func (g *granting) bring(x *storage.Exchange, head *jobRow, left *int, k *tokens) error {
	if head.Options&hasOption == 0 || head.option.GroupKey == "" || head.Crashes > 0 {
		return nil
	}
	key := head.option.GroupKey
	rule, err := g.groupRule(key)
	if err != nil || rule.Limit > 1 {
		return err
	}
	if err := g.know(rules.Need{Groups: []string{key}, Leave: []int32{0}}, time.Time{}); err != nil || !g.deciding.tx.Alone(key, head.ID) {
		return err
	}
	last := head.ID
	for n := 1; n < x.Wants[head.leads-1].ByGroup && *left > 0 && !g.full(); n++ {
		var r jobRow
		err := g.row(sqlNextBlocked, []any{key, last}, r.dest(&r.State, &r.Delay)...)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil || r.Crashes > 0 || r.Delay >= 0 && r.DueAt > g.at {
			return err
		}
		if joins, err := g.joins(&x.Wants[head.leads-1], head, &r); err != nil || !joins {
			return err
		}
		if !g.room.takes(r.Lane) {
			return nil
		}
		over, err := g.endIfOver(&r, x, g.at, nil)
		if err != nil || over {
			return err
		}
		name, err := g.laneName(r.Lane)
		if err != nil {
			return err
		}
		if ok, err := k.spare(name); err != nil || !ok {
			return err
		}
		if err := g.lease(&r); err != nil {
			return err
		}
		g.out[len(g.out)-1].Behind = n
		*left--
		last = r.ID
	}
	return nil
}

// joins reports whether a job can be in one call with the head of its group, as for their kinds.
func (g *granting) joins(w *storage.Want, head, r *jobRow) (bool, error) {
	if r.Lane == head.Lane || !w.OfAnyKind() {
		return r.Lane == head.Lane, nil
	}
	name, err := g.laneName(r.Lane)
	if err != nil {
		return false, err
	}
	held, _, err := g.holds()
	if err != nil {
		return false, err
	}
	shut, ajar := held.of(name, g.at)
	return !shut && !ajar && w.Matches(name.Queue, name.Kind), nil
}

// spare reports whether one more job of a lane has its tokens, and counts it then.
func (k *tokens) spare(name storage.Lane) (bool, error) {
	if k == nil {
		return true, nil
	}
	all, err := k.of(name)
	if err != nil || slices.ContainsFunc(all, func(b *bucket) bool { return b.left <= 0 }) {
		return false, err
	}
	for _, b := range all {
		b.left--
	}
	return true, nil
}
