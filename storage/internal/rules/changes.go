package rules

import (
	"cmp"
	"slices"

	"github.com/errandq/errand/storage"
)

// Job is a live job, as a store has it.
type Job struct {
	ID      int64 // key
	Lane    int64 // number in the store
	Created int64
	Due     int64
	Salt    uint32
	Group   string // as the store has it, see GroupName
	Role    Role
	State   storage.State
	WasDue  bool // of a blocked one: it was due when it came to wait
	// The rest, Created and Salt are known only of a new job, and of one that has a unique key or waits
	// for it, if a [storage.Conflict] may change it or it is behind. A PutBack sets Counters too.

	Priority int
	storage.Counters
	Args []byte // nil: not read, as no Merge needs them
}

// block has a ready or scheduled job wait behind others.
func (j *Job) block() { j.State, j.WasDue = storage.Blocked, j.State == storage.Ready }

// letIn makes a blocked job ready if it was due when it came to wait, or is due by at, and else
// scheduled. A job that is not blocked, by damage, stays as it is.
func (j *Job) letIn(at int64, as Role) {
	switch {
	case j.State != storage.Blocked:
		return
	case at != 0 && j.Due <= at:
		j.State, j.Due = storage.Ready, at
	case j.WasDue:
		j.State = storage.Ready
	default:
		j.State = storage.Scheduled
	}
	j.Role, j.WasDue = cmp.Or(as, j.Role), false
}

func (j *Job) member() Member { return Member{Job: j.ID, Lane: j.Lane, Role: j.Role, State: j.State} }

// Standing is what the decisions about a job change of it, but for its work.
type Standing struct {
	Lane   int64
	Due    int64
	Role   Role
	State  storage.State
	WasDue bool
}

func (j *Job) standing() Standing { return Standing{j.Lane, j.Due, j.Role, j.State, j.WasDue} }

// Row is a live job in a Tx: as it was read, and as the decisions have left it.
type Row struct {
	Was  Standing // without a State if the job is new
	Is   Job
	New  *storage.NewJob // of a new job: what was enqueued
	Does *storage.NewJob // whose work it does, if that is not what was read

	work  bool // the rest of Is was read too
	ended bool
}

// Moved reports whether the state of the job, its due time or its role is another one.
func (r *Row) Moved() bool { return r.Was != r.Is.standing() }

// waiting returns what a [storage.Conflict] is about.
func (r *Row) waiting() *Waiting {
	w := &Waiting{State: r.Is.State, Created: r.Is.Created, Due: r.Is.Due, Counters: r.Is.Counters, Args: r.Is.Args}
	if r.Does != nil {
		w.Args = r.Does.Args
	}
	return w
}

// Changes are what is to be written, each row once. Whoever writes them need not know why.
type Changes struct {
	Jobs []*Row // that are new or other than they were, in the order of keys; of those that have ended none
	// Keys are all unique keys that were read, in the order of their names. Key.Were says which
	// of them have changed.
	Keys []*Key
	// The groups of which each dead member that Blocks has no role any more, and those that were read and
	// of which no member has one, in the order of their names. A row of the latter may be there only
	// as a lock.
	Pass, Empty []string
}

// None reports whether nothing is to be written if what was inserted as a lock is undone: Empty is not
// looked at.
func (c *Changes) None() bool {
	return len(c.Jobs)+len(c.Pass) == 0 && !slices.ContainsFunc(c.Keys, func(k *Key) bool { return k.Were != [2]Keeper{k.Holder, k.Behind} })
}

// Changes returns what the decisions have changed.
func (t *Tx) Changes() (c Changes) {
	for _, r := range t.rows.all {
		if !r.ended && (r.Does != nil || r.Moved()) {
			c.Jobs = append(c.Jobs, r)
		}
	}
	for _, k := range t.keys.all {
		c.Keys = append(c.Keys, &k.Key)
	}
	for _, g := range t.groups.all {
		if g.pass {
			c.Pass = append(c.Pass, g.Name)
		}
		if g.Taken == 0 && !g.Dead && len(g.Waiting) == 0 {
			c.Empty = append(c.Empty, g.Name)
		}
	}
	return c
}
