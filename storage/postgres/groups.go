package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// Members that are due and have no place.
	sqlUnplaced = `SELECT id, lane, group_key, due_at, priority, retry, crashes, snoozes, attempt FROM errand_job
WHERE state = 1 AND role = 0 AND due_at <= $1 AND group_key = ANY($2::text[]) ORDER BY due_at, id LIMIT $3`

	sqlHead = `SELECT id, salt, created_at FROM errand_dead WHERE group_key = $1 AND role = 3 ORDER BY id LIMIT 1`
	sqlSkip = `UPDATE errand_dead SET role = 0 WHERE id = $1`

	// The limit is storage.GroupCount.
	countBlocked = `(SELECT count(*) FROM (SELECT FROM errand_job b WHERE b.group_key = g.group_key AND b.role = 1 LIMIT 1000) w)`
	lastError    = `CASE WHEN d.error = '' THEN coalesce((SELECT h.error FROM errand_history h WHERE h.job = d.id ORDER BY h.n DESC LIMIT 1), '') ELSE d.error END`
	sqlGroups    = `SELECT g.group_key, d.id, d.salt, d.created_at, l.kind, 6::smallint, d.reason, ` + lastError + `, d.ended_at, ` + countBlocked + `
FROM errand_dead g JOIN errand_dead d ON d.id = g.id JOIN errand_lane l ON l.lane = d.lane
WHERE g.role = 3 AND g.group_key > $1 AND g.group_key < $2
  AND NOT EXISTS (SELECT FROM errand_dead e WHERE e.group_key = g.group_key AND e.role = 3 AND e.id < g.id)
ORDER BY g.group_key LIMIT $3`
	// From group to group, however many members of one are blocked.
	waitingGroups = `WITH RECURSIVE o (group_key) AS (
  (SELECT group_key FROM errand_job WHERE role = 1 AND group_key > $1 AND group_key < $2 ORDER BY group_key LIMIT 1)
  UNION ALL SELECT (SELECT group_key FROM errand_job WHERE role = 1 AND group_key > o.group_key AND group_key < $2 ORDER BY group_key LIMIT 1)
  FROM o WHERE o.group_key IS NOT NULL),
g AS MATERIALIZED (SELECT group_key FROM o WHERE group_key IS NOT NULL LIMIT $3) `
	sqlNextWaiting   = waitingGroups + `SELECT group_key FROM g`
	sqlWaitingGroups = waitingGroups + `SELECT g.group_key, coalesce(j.id, d.id, 0), coalesce(j.salt, d.salt, 0), coalesce(j.created_at, d.created_at, 0), coalesce(l.kind, ''),
  coalesce(j.state, CASE WHEN d.id IS NULL THEN 0 ELSE 6 END)::smallint, coalesce(d.reason, ''), CASE WHEN d.id IS NULL THEN '' ELSE ` + lastError + ` END,
  coalesce(d.ended_at, 0), ` + countBlocked + `
FROM g LEFT JOIN LATERAL (SELECT id, salt, created_at, state, lane FROM errand_job p WHERE p.group_key = g.group_key AND p.role = 2 ORDER BY id LIMIT 1) j ON true
LEFT JOIN LATERAL (SELECT * FROM errand_dead e WHERE e.group_key = g.group_key AND e.role = 3 AND j.id IS NULL ORDER BY id LIMIT 1) d ON true
LEFT JOIN errand_lane l ON l.lane = coalesce(j.lane, d.lane) ORDER BY g.group_key`
)

// Load implements [rules.Rows]: load has locked and read all.
func (sc *scopes) Load(n rules.Need) error {
	for _, k := range n.Keys {
		if _, err := sc.Key(k.Name, k.Conflict); err != nil {
			return err
		}
	}
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
	members, waiting := g.Reads(anew)
	if members && !g.members || g.More && int64(len(g.Waiting)) < waiting {
		return rules.Group{}, fmt.Errorf("%w: members of group %.80q", rules.ErrNotLoaded, name)
	}
	return g.Group, nil
}

// rule returns what the settings say of a group.
func (sc *scopes) rule(name string) rules.GroupRule {
	return rules.GroupRuleOf(sc.set.of, name)
}

// join sets the role of a new job in its group.
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
	role, others, pass := as.Join(states[r.state])
	if pass {
		sc.passDead(g)
	}
	if r.role = role; role == rules.Waits {
		r.block()
	}
	g.Note(rules.NoRole, r.member())
	if others {
		return sc.settle(r.group)
	}
	return nil
}

// passDead has the dead members of a group block nobody any more.
func (sc *scopes) passDead(g *groupRows) {
	sc.changed, sc.pass = true, append(sc.pass, g.Name)
	g.Dead = false
	g.Members = slices.DeleteFunc(g.Members, func(m rules.Member) bool { return m.Role == rules.Blocks })
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
	sc.moved += len(d.Block) + len(d.LetIn)
	if len(d.Pass) > 0 {
		sc.passDead(g)
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
		if ready := sc.letIn(l.Job, at, l.As); ready || g.due[l.Job] || at != never {
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

// Groups implements [storage.Grouper]. The Cause of a group is always zero.
func (s *Store) Groups(ctx context.Context, of storage.GroupFilter, after string, limit int) (page storage.GroupPage, err error) {
	low, high, text := "", "\x7f", sqlGroups // all of names is ASCII
	if of.Queue != "" {
		low, high = of.Queue+" ", of.Queue+"!"
	}
	if of.Waiting {
		text = sqlWaitingGroups
	}
	var last []string
	err = s.read(ctx, func(b *pgx.Batch) {
		page, last = storage.GroupPage{}, nil
		each(b, func(in pgx.CollectableRow) error {
			g, name, err := scanGroupState(in)
			page.Groups, last = append(page.Groups, g), append(last, name)
			return err
		}, text, max(low, after), high, max(limit, 0)+1)
	})
	if len(page.Groups) > max(limit, 0) {
		if page.Groups = page.Groups[:max(limit, 0)]; limit > 0 {
			page.Next = last[limit-1]
		}
	}
	return page, err
}

func scanGroupState(in pgx.CollectableRow) (g storage.GroupState, name string, err error) {
	var id, created, ended int64
	var salt int32
	var state int16
	var text []byte
	err = in.Scan(&name, &id, &salt, &created, &g.Kind, &state, &g.Reason, &text, &ended, &g.Blocked)
	g.Queue, g.Group = rules.SplitGroup(name)
	g.State, g.Error = states[state], string(text)
	if id != 0 {
		g.Head = jobID(created, salt, id)
	}
	if state == dead {
		g.DiedAt = fromMicros(ended)
	}
	return g, name, err
}

// SkipHead implements [storage.Grouper].
func (s *Store) SkipHead(ctx context.Context, queue, group string) (id storage.ID, err error) {
	if err := s.enter(ctx); err != nil {
		return id, err
	}
	defer s.leave()
	name := rules.GroupName(queue, group)
	sc := s.scopes(time.Time{})
	sc.leaving[name] = 1
	err = s.inTransaction(ctx, sc, func(b *pgx.Batch) {
		sc.reset()
		sc.load(b)
		id = storage.ID{}
		each(b, func(in pgx.CollectableRow) error {
			var key, created int64
			var salt int32
			err := in.Scan(&key, &salt, &created)
			id = jobID(created, salt, key)
			return err
		}, sqlHead, name)
	}, func() (*pgx.Batch, error) {
		if id.IsZero() {
			return nil, nil
		}
		if g := sc.groups[name]; g.members {
			g.Note(rules.Blocks, rules.Member{Job: id.Key()})
		}
		if err := sc.settle(name); err != nil {
			return nil, err
		}
		b, d := &pgx.Batch{}, sums{}
		b.Queue(sqlSkip, id.Key())
		sc.write(b, d)
		s.count(b, d)
		return b, nil
	})
	if err == nil && id.IsZero() {
		err = storage.ErrNotFound
	}
	return id, err
}
