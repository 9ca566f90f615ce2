package rules

import (
	"time"

	"github.com/errandq/errand/storage"
)

// Edit is what a call changes of jobs.
type Edit struct {
	*storage.Edit
	Of   *storage.Filter                      // that has chosen the jobs; nil: they are named
	Lane func(lane int64) int64               // returns the lane in Queue for jobs of a lane
	Keep func(lane int64) time.Duration       // of Cancel, see Finish
	Had  func(job int64) (n int64, same bool) // returns how many bytes of args a job has, and whether they are those of Edit
}

// Edit decides about a job of [Need.Jobs], and returns the state in which it was. That is "" if it is
// not live, or Of does not have it any more. A job that runs is at most asked to stop. Its groups
// are to be settled.
func (t *Tx) Edit(id storage.ID, e *Edit) (was storage.State, err error) {
	r, err := t.live(id.Key())
	if err != nil || r == nil || r.Is.id() != id || e.Of != nil && !e.Of.Has(r.Is.State) {
		return "", err
	}
	switch was = r.Is.State; {
	case was == storage.Running:
		r.Is.Cancelling = r.Is.Cancelling || e.Cancel != nil
		return was, nil
	case e.Cancel != nil:
		return was, t.leave(r, storage.Cancelled, e.Keep(r.Is.Lane))
	}
	r.amend(e)
	to := e.to(r.Is)
	if e.Reschedules() {
		to.State, to.Due, to.Delay = DueTime(t.now, &storage.NewJob{DueAt: e.DueAt, Delay: e.Delay})
	} else if to.Lane == r.Is.Lane {
		return was, nil
	}
	return was, t.change(&r.Is, to)
}

// EditDead decides about a dead job, which blocks others in another queue if it has done so. It does
// not look at the time of e. Its groups are to be settled.
func (t *Tx) EditDead(j Job, e *Edit) error {
	if t.rows.get(j.ID) != nil { // it is named twice
		return nil
	}
	r := t.row(j)
	r.amend(e)
	if r.Is = e.to(r.Is); r.Is.Lane == j.Lane || j.Role == NoRole {
		return nil
	}
	return t.moves(&j, &r.Is)
}

// to returns a job in the lane and the group that it has then.
func (e *Edit) to(j Job) Job {
	if e.Queue != "" {
		_, group := SplitGroup(j.Group)
		j.Lane, j.Group = e.Lane(j.Lane), GroupName(e.Queue, group)
	}
	return j
}

// amend takes note of what changes of the work of a job.
func (r *Row) amend(e *Edit) {
	if e.Args != nil && !r.Edits {
		if n, same := e.Had(r.Is.ID); !same {
			r.Edits, r.Is.History = true, true
			r.Is.Bytes += int64(len(e.Args)) - n
		}
	}
	if e.Priority != nil {
		r.Is.Priority = *e.Priority
	}
	if e.Priority != nil || e.Policy != nil || r.Edits {
		r.Edit = e.Edit
	}
}

// change has a job that does not run be as to says, which has another lane or was put off or made due.
// Its groups are to be settled.
func (t *Tx) change(is *Job, to Job) error {
	was := *is
	*is = to
	waits := was.State == storage.Blocked // also behind the holder of its unique key
	if is.Group != "" {
		g, err := t.group(is.Group)
		if err != nil {
			return err
		}
		is.Role = g.Rule.Changed(was.State, is.State, was.Role, is.Lane != was.Lane)
		waits = is.Role == Waits
	}
	if waits && is.State != storage.Blocked {
		is.block()
	}
	if is.Group == "" {
		return nil
	}
	return t.moves(&was, is)
}

// moves takes note of what a member has become, perhaps of another group. Its groups are to be settled.
func (t *Tx) moves(was, is *Job) error {
	role := was.Role
	if is.Group != was.Group {
		if err := t.depart(was.Group, role, is.ID); err != nil {
			return err
		}
		role = NoRole
	}
	g, err := t.group(is.Group)
	if err == nil {
		t.later(g, role, is.member())
	}
	return err
}

// depart has a member leave its group, which is to be settled.
func (t *Tx) depart(group string, role Role, job int64) error {
	g, err := t.group(group)
	if err != nil {
		return err
	}
	if role == Blocks && !g.members { // which are those that block, and none will
		role = NoRole
	}
	t.later(g, role, Member{Job: job})
	return nil
}
