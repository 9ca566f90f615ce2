package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// Members that are due and have no place.
	sqlUnplaced = `SELECT id, lane, group_key, due_at, priority, retry, crashes, snoozes, attempt FROM errand_job
WHERE state = 1 AND role = 0 AND due_at <= $1 AND group_key = ANY($2::text[]) ORDER BY due_at, id LIMIT $3`
)

// groupKey returns the group_key of a group, "" for no group. A space is in no name of a
// queue, and lower than all that is, so that the order is that of queue and group.
func groupKey(queue, group string) string {
	if group == "" {
		return ""
	}
	return queue + " " + group
}

func queueOf(key string) string {
	queue, _, _ := strings.Cut(key, " ")
	return queue
}

func groupOf(key string) string {
	_, group, _ := strings.Cut(key, " ")
	return group
}

// Load implements [rules.Rows]: load has locked and read all.
func (sc *scopes) Load(n rules.Need) error {
	for _, name := range n.Groups {
		if sc.groups[name] == nil || n.Anew && !sc.anew {
			return fmt.Errorf("%w: group %.80q", rules.ErrNotLoaded, name)
		}
	}
	return nil
}

// Group implements [rules.Rows].
func (sc *scopes) Group(name string, anew bool) (rules.Group, error) {
	g := sc.groups[name]
	if g == nil {
		return rules.Group{}, fmt.Errorf("%w: group %.80q", rules.ErrNotLoaded, name)
	}
	g.Rule = sc.rule(name)
	if members, _ := g.Reads(anew); members && !g.members {
		return rules.Group{}, fmt.Errorf("%w: members of group %.80q", rules.ErrNotLoaded, name)
	}
	return g.Group, nil
}

// rule returns what the settings say of a group.
func (sc *scopes) rule(name string) rules.GroupRule {
	return rules.GroupRuleOf(sc.set[storage.Lane{Queue: queueOf(name)}])
}

// join gives a new job its role in its group.
func (sc *scopes) join(r *row) error {
	if err := sc.settleNow(r.group); err != nil {
		return err
	}
	g := sc.groups[r.group]
	if g == nil {
		return fmt.Errorf("%w: group %.80q", rules.ErrNotLoaded, r.group)
	}
	g.Rule = sc.rule(r.group)
	as := g.Group // Note counts the new member
	role, others := as.Join(states[r.state])
	if r.role = role; role == rules.Waits {
		r.block()
	}
	g.Note(rules.NoRole, r.member())
	if others {
		return sc.settle(r.group)
	}
	return nil
}

// note takes note of what a job that is not new has become in its group, and settles that.
func (sc *scopes) note(name string, was rules.Role, r *row) error {
	g := sc.groups[name]
	if g == nil {
		return fmt.Errorf("%w: group %.80q", rules.ErrNotLoaded, name)
	}
	g.Note(was, r.member())
	return sc.settle(name)
}

// later takes note of what a member has become, and of its group for settleAll.
func (sc *scopes) later(name string, was rules.Role, is rules.Member) error {
	g := sc.groups[name]
	if g == nil {
		return fmt.Errorf("%w: group %.80q", rules.ErrNotLoaded, name)
	}
	g.Note(was, is)
	if !slices.Contains(sc.touched, name) {
		sc.touched = append(sc.touched, name)
	}
	return nil
}

// settleNow settles a group that was noted for later.
func (sc *scopes) settleNow(name string) error {
	if !slices.Contains(sc.touched, name) {
		return nil
	}
	sc.touched = slices.DeleteFunc(sc.touched, func(n string) bool { return n == name })
	return sc.settle(name)
}

// settleAll settles the groups that were noted.
func (sc *scopes) settleAll() error {
	names := sc.touched
	sc.touched = nil
	slices.Sort(names)
	for _, name := range names {
		if err := sc.settle(name); err != nil {
			return err
		}
	}
	return nil
}

// settle has the members of a group be in the states that they should.
func (sc *scopes) settle(name string) error {
	var d rules.Delta
	if err := rules.SettleGroups(sc, []string{name}, sc.anew, sc.turns, &d); err != nil {
		return err
	}
	g := sc.groups[name]
	sc.changed = true
	for range d.Pass {
		sc.pass = append(sc.pass, name)
		g.Dead = false
		g.Members = slices.DeleteFunc(g.Members, func(m rules.Member) bool { return m.Role == rules.Blocks })
	}
	for _, job := range d.Leave {
		g.Note(rules.Placed, rules.Member{Job: job})
		if r := sc.rows[job]; r != nil {
			r.role, r.moved = rules.NoRole, true
		} else {
			sc.leave = append(sc.leave, job)
		}
	}
	for _, m := range d.Block {
		g.due[m.Job] = m.State == storage.Ready
		g.Note(rules.Placed, rules.Member{Job: m.Job, Role: rules.Waits})
		sc.blockMember(m)
	}
	for _, l := range d.LetIn {
		at := l.At
		if at == 0 {
			at = never
		}
		m := rules.Member{Job: l.Job, Role: rules.Placed, State: storage.Scheduled}
		if ready := sc.letIn(l.Job, at, rules.Placed); ready || g.due[l.Job] || at != never {
			m.State = storage.Ready
		}
		g.Note(rules.Waits, m)
	}
	return nil
}

// blockMember has a member that is ready or scheduled wait.
func (sc *scopes) blockMember(m rules.Member) {
	if r := sc.rows[m.Job]; r != nil {
		r.block()
		r.role = rules.Waits
		return
	}
	if was, ok := sc.others[m.Job]; ok && was.in {
		delete(sc.others, m.Job) // it was blocked when the call began
		return
	}
	state := int16(ready)
	if m.State == storage.Scheduled {
		state = scheduled
	}
	sc.others[m.Job] = move{state: state}
}

// letIn lets a blocked job in. It reports whether that is known to be ready then.
func (sc *scopes) letIn(job, at int64, as rules.Role) (isReady bool) {
	if r := sc.rows[job]; r != nil {
		r.letIn(at, as)
		return r.state == ready
	}
	if was, ok := sc.others[job]; ok && !was.in {
		delete(sc.others, job) // it had its place when the call began
		return was.state == ready
	}
	sc.others[job] = move{in: true, at: at, role: as}
	return false
}

// ended takes note that a job ends, and frees what it has. It returns the role that a dead one
// has then.
func (sc *scopes) ended(job int64, b beside, role rules.Role, to storage.State, kept bool) (rules.Role, error) {
	delete(sc.rows, job)
	if b.key != "" {
		if err := sc.release(b.key, job, kept); err != nil {
			return rules.NoRole, err
		}
	}
	if b.group == "" || role == rules.NoRole {
		return rules.NoRole, nil
	}
	as := sc.rule(b.group).Left(to)
	return as, sc.later(b.group, role, rules.Member{Job: job, Role: as, State: to})
}

// putBack takes note of a job that has run and waits again. stays: it keeps its place.
func (sc *scopes) putBack(r *row, stays bool) error {
	if read := sc.rows[r.id]; read != nil { // as the holder of a key
		r.args, r.salt, r.created, r.priority = read.args, read.salt, read.created, read.priority
	}
	sc.rows[r.id] = r
	if r.group == "" {
		return nil
	}
	was := r.role
	if sc.rule(r.group).PutBack(states[r.state], stays) == rules.NoRole {
		r.role = rules.NoRole
	}
	return sc.later(r.group, was, r.member())
}

// place decides about members that are due and have no place.
func (sc *scopes) place(due []*row) error {
	for _, r := range due {
		r.state = ready
		r.block()
		r.role = rules.Waits
		sc.rows[r.id] = r
		if err := sc.later(r.group, rules.NoRole, r.member()); err != nil {
			return err
		}
		sc.groups[r.group].due[r.id] = true
	}
	return sc.settleAll()
}

// unplaced queues the reading of such members.
func unplaced(b *pgx.Batch, at int64, groups []string, into *[]*row) {
	*into = nil
	each(b, func(in pgx.CollectableRow) error {
		r := &row{was: scheduled, state: scheduled}
		err := in.Scan(&r.id, &r.lane, &r.group, &r.due, &r.priority, &r.Retry, &r.Crashes, &r.Snoozes, &r.Attempt)
		*into = append(*into, r)
		return err
	}, sqlUnplaced, at, groups, promoteLimit)
}

// Groups is not supported yet.
func (s *Store) Groups(context.Context, storage.GroupFilter, string, int) (storage.GroupPage, error) {
	return storage.GroupPage{}, unsupported("Groups")
}

// SkipHead is not supported yet.
func (s *Store) SkipHead(context.Context, string, string) (storage.ID, error) {
	return storage.ID{}, unsupported("SkipHead")
}

// Regroup is not supported yet.
func (s *Store) Regroup(context.Context, string, string) (string, error) {
	return "", unsupported("Regroup")
}
