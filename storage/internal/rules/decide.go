package rules

import (
	"slices"

	"github.com/errandq/errand/storage"
)

// Enter decides about a new job at an index of its call, and returns the answer. The job has a number
// of a lane, and the salt of its ID.
func (t *Tx) Enter(index int, j *storage.NewJob, lane int64, salt uint32) (storage.Enqueued, error) {
	if len(t.fresh) == 0 {
		return storage.Enqueued{}, unread("a key for a new job")
	}
	if t.first == 0 {
		slices.Sort(t.fresh)
		t.first = t.fresh[0]
	}
	r := Row{New: j, Does: j, work: true}
	r.Is = Job{ID: t.fresh[0], Lane: lane, Created: t.now.UnixMicro(), Salt: salt, Group: GroupName(j.Queue, j.Group), Priority: j.Priority, Bytes: bytesOf(j)}
	r.Is.State, r.Is.Due, r.Is.Delay = DueTime(t.now, j)
	t.fresh = t.fresh[1:]
	if j.Unique != "" {
		c, err := t.claim(&r, j)
		if err != nil {
			return storage.Enqueued{}, err
		}
		if c.Admission < Follow {
			return c.Answer(index, t.first)
		}
	}
	is := t.rows.add(r.Is.ID)
	*is = r
	answer := storage.Enqueued{ID: r.Is.id()}
	if r.Is.Group == "" {
		return answer, nil
	}
	_, err := t.join(is)
	return answer, err
}

func bytesOf(j *storage.NewJob) int64 { return int64(len(j.Args) + len(j.Headers)) }

// Join decides about a new job with a group, and returns it as it comes to be. It is for a caller that
// does the rest of Enter by itself, and has written the job before it writes the Changes. changed says
// that there are some. The caller may set the lane until then. The Row is valid until the next Reset.
func (t *Tx) Join(j Job) (r *Row, changed bool, err error) {
	r = t.row(j)
	changed, err = t.join(r)
	r.Was = r.Is.standing()
	return r, changed, err
}

// claim has a new job have its unique key, or says whose it is. It has a job that waits do what
// the new one is to do.
func (t *Tx) claim(r *Row, j *storage.NewJob) (Claim, error) {
	c, err := t.Claim(j, Keeper{Job: r.Is.ID, Created: r.Is.Created, Salt: r.Is.Salt}, r.Is.Due)
	if err != nil {
		return c, err
	}
	if c.Due != 0 {
		r.Is.State, r.Is.Due, r.Is.Delay = storage.Scheduled, c.Due, c.Due-r.Is.Created
	}
	switch c.Admission {
	case Follow:
		r.Is.block()
	case Change:
		last := t.rows.get(c.ID.Key()) // Key has read it
		if err := t.replace(last, &c, j); err != nil || !c.Put || last.Is.Group == "" {
			return c, err
		}
		return c, t.settleNow(t.groups.get(last.Is.Group))
	}
	return c, nil
}

// Claim decides about the unique key of a new job, which is due at a time, for a caller that does the
// rest of Enter by itself.
func (t *Tx) Claim(j *storage.NewJob, claimant Keeper, due int64) (Claim, error) {
	k, err := t.Key(j.Unique, j.Conflict)
	if err != nil {
		return Claim{}, err
	}
	return k.claim(t.now, j, claimant, due), nil
}

// Forgo has a job that is deleted to make room, and whose handler was never called, hold its unique key no
// longer than it lives: what UniqueFor counts has not taken place.
func (t *Tx) Forgo(key string, job int64) error {
	k, err := t.Key(key, nil)
	if err == nil {
		k.forgo(job)
	}
	return err
}

// Replace has the job that waits do what j is to do, if that is what Claim has said, and returns the job.
// It has a role in a group, of which nothing but the Rule need be known. The caller settles the group.
func (t *Tx) Replace(c *Claim, j *storage.NewJob, group string, role Role) (*Row, error) {
	r := t.rows.get(c.ID.Key())
	r.Is.Group, r.Is.Role = group, role
	return r, t.replace(r, c, j)
}

// replace has a job that waits do what j is to do. Its group is to be settled.
func (t *Tx) replace(r *Row, c *Claim, j *storage.NewJob) error {
	is := &r.Is
	r.Does, is.Priority, is.Bytes, is.Counters = j, j.Priority, bytesOf(j), c.Is.Counters
	if !c.Put {
		return nil
	}
	to := *is
	to.State, to.Due, to.Delay = c.Is.State, c.Is.Due, c.Is.Delay
	return t.change(is, to)
}

// join sets the role of a new job in its group. changed says that by this others are other than they
// were.
func (t *Tx) join(r *Row) (changed bool, err error) {
	is := &r.Is
	g, err := t.group(is.Group)
	if err != nil {
		return false, err
	}
	if g.touched {
		if err := t.settleNow(g); err != nil {
			return true, err
		}
	}
	as := g.Group // Note counts the new member
	role, others, pass := as.Join(is.State)
	if pass {
		g.passDead()
	}
	if is.Role = role; role == Waits {
		is.block()
	}
	g.Note(NoRole, is.member())
	if others {
		err = t.Settle(is.Group)
	}
	return others || pass, err
}

// passDead has the dead members of a group block nobody any more.
func (g *groupRow) passDead() {
	g.pass, g.Dead = true, false
	g.Members = slices.DeleteFunc(g.Members, func(m Member) bool { return m.Role == Blocks })
}

// End has a job end, and frees what it has: its unique key and its place in its group. kept says
// whether it stays in a table. It returns the role of a dead one. Its group is to be settled.
func (t *Tx) End(job int64, key, group string, role Role, to storage.State, kept bool) (Role, error) {
	if r := t.rows.get(job); r != nil {
		r.ended = true
	}
	if key != "" {
		if err := t.release(key, job, kept); err != nil {
			return NoRole, err
		}
	}
	if group == "" || role == NoRole {
		return NoRole, nil
	}
	g, err := t.group(group)
	if err != nil {
		return NoRole, err
	}
	as := g.Rule.Left(to)
	t.later(g, role, Member{Job: job, Role: as, State: to})
	return as, nil
}

// release has a job that ends leave its unique key.
func (t *Tx) release(name string, job int64, kept bool) error {
	k, _, err := t.key(name, nil)
	if err != nil {
		return err
	}
	to := k.release(job, t.now.UnixMicro(), kept)
	if to == 0 {
		return nil
	}
	heir, err := t.jobOf(k, to)
	if heir != nil { // by damage it may be missing
		heir.Is.letIn(0, NoRole)
	}
	return err
}

// Place decides about scheduled members that are due and have no place, and settles their groups.
func (t *Tx) Place(due []Job) error {
	for i := range due {
		g, err := t.group(due[i].Group)
		if err != nil {
			return err
		}
		is := &t.row(due[i]).Is
		is.State = storage.Ready
		is.block()
		is.Role = Waits
		t.later(g, NoRole, is.member())
	}
	return t.SettleAll()
}

// SkipHead has a dead member of a group block nobody any more, and settles the group.
func (t *Tx) SkipHead(group string, job int64) error {
	g, err := t.group(group)
	if err != nil {
		return err
	}
	if g.members {
		g.Note(Blocks, Member{Job: job})
	}
	return t.Settle(group)
}

// EndTime has a unique key be held no longer than its holder lives, and returns the holder, if there
// is one then. found reports whether somebody has had the key.
func (t *Tx) EndTime(key string) (found bool, holder storage.ID, err error) {
	k, err := t.Key(key, nil)
	if err != nil || k.Holder.Job == 0 {
		return false, holder, err
	}
	k.EndTime()
	return true, k.Holder.ID(), nil
}

// later takes note of what a member has become, and of its group for SettleAll.
func (t *Tx) later(g *groupRow, was Role, is Member) {
	if g.Note(was, is); !g.touched {
		t.touched, g.touched = append(t.touched, g.Name), true
	}
}

// SettleAll settles the groups that are to be settled.
func (t *Tx) SettleAll() error {
	for _, name := range t.touched {
		if err := t.Settle(name); err != nil {
			return err
		}
		t.groups.get(name).touched = false
	}
	t.touched = t.touched[:0]
	return nil
}

// settleNow settles a group that is to be settled, before the others are.
func (t *Tx) settleNow(g *groupRow) error {
	i := slices.Index(t.touched, g.Name)
	t.touched, g.touched = slices.Delete(t.touched, i, i+1), false
	return t.Settle(g.Name)
}

// Settle has the members of a group be in the states that they should, see Group.Settle.
func (t *Tx) Settle(name string) error {
	as, err := t.Group(name, t.need.Anew)
	if err != nil {
		return err
	}
	to := &t.settled
	*to = Moves{to.Pass[:0], to.Leave[:0], to.Block[:0], to.LetIn[:0]}
	as.Settle(t.need.Anew, t.turns, to)
	g := t.groups.get(name)
	t.moved += len(to.Block) + len(to.LetIn)
	if len(to.Pass) > 0 {
		g.passDead()
	}
	move := func(job int64, become func(is *Job)) error {
		r, err := t.member(g, job)
		if err != nil {
			return err
		}
		was := r.Is.Role
		become(&r.Is)
		g.Note(was, r.Is.member())
		return nil
	}
	for _, job := range to.Leave {
		if err := move(job, func(is *Job) { is.Role = NoRole }); err != nil {
			return err
		}
	}
	for _, m := range to.Block {
		if err := move(m.Job, func(is *Job) { is.block(); is.Role = Waits }); err != nil {
			return err
		}
	}
	for _, l := range to.LetIn {
		if err := move(l.Job, func(is *Job) { is.letIn(l.At, l.As) }); err != nil {
			return err
		}
	}
	return nil
}

// Moved returns how many members were let in or blocked.
func (t *Tx) Moved() int { return t.moved }
