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
	Delay   int64 // how much of the time until Due was counted from the call that set it; 0 in a store that does not keep it
	Salt    uint32
	Group   string // as the store has it, see GroupName
	Role    Role
	State   storage.State
	WasDue  bool // of a blocked one: it was due when it came to wait
	// The rest, Created and Salt are known only of a new job, of one that was read as one that may end,
	// and of one that has a unique key or waits for it, if a [storage.Conflict] may change it or it is
	// behind. Of the last two each lacks what the other has alone.

	Bytes int64 // of its args and headers
	storage.Counters
	Token      int64  // only of one that may end, as what follows
	Unique     string // its unique key
	Cancelling bool   // it was asked to stop
	History    bool   // attempts of it have failed
	Doubt      bool   // it is not known whether its handler ran in an attempt since it was last settled
	Priority   int    // not of one that may end, nor what follows
	Args       []byte // nil: not read, as no Merge needs them
}

// block has a ready or scheduled job wait behind others.
func (j *Job) block() {
	if j.State == storage.Ready {
		j.Delay = 0
	}
	j.State, j.WasDue = storage.Blocked, j.State == storage.Ready
}

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
	if j.State == storage.Ready {
		j.Delay = 0
	}
	j.Role, j.WasDue = cmp.Or(as, j.Role), false
}

func (j *Job) id() storage.ID { return Keeper{Job: j.ID, Created: j.Created, Salt: j.Salt}.ID() }

func (j *Job) member() Member { return Member{Job: j.ID, Lane: j.Lane, Role: j.Role, State: j.State} }

// Standing is what the decisions about a job change of it, but for its work.
type Standing struct {
	Lane   int64
	Due    int64
	Delay  int64
	Role   Role
	State  storage.State
	WasDue bool
	// Cancelling is known only of a job that may end, and Bytes of one of which more than its place is.
	Cancelling bool
	Bytes      int64
}

func (j *Job) standing() Standing {
	return Standing{j.Lane, j.Due, j.Delay, j.Role, j.State, j.WasDue, j.Cancelling, j.Bytes}
}

// stand has standing return s.
func (j *Job) stand(s Standing) {
	j.Lane, j.Due, j.Delay, j.Role, j.State, j.WasDue, j.Cancelling, j.Bytes = s.Lane, s.Due, s.Delay, s.Role, s.State, s.WasDue, s.Cancelling, s.Bytes
}

// bytes returns how many bytes of its lane a job has that is live.
func (s *Standing) bytes() int64 {
	switch s.State {
	case storage.Scheduled, storage.Ready, storage.Running, storage.Blocked:
		return s.Bytes
	}
	return 0
}

// Row is a live job in a Tx: as it was read, and as the decisions have left it.
type Row struct {
	Was  Standing        // without a State if the job is new
	Is   Job             // without a State if the job is gone
	New  *storage.NewJob // of a new job: what was enqueued
	Does *storage.NewJob // whose work it does, if that is not what was read

	Edit  *storage.Edit // what else changes of it: its priority, its policy, and its args if Edits is set
	Edits bool          // the args that it had belong into its history

	Finish  *storage.Finish // what its attempt has ended with
	Fails   bool            // the Failure of that belongs into its history
	PurgeAt int64           // until when it is kept, if it has ended as done or cancelled
	Unkept  storage.State   // what it has ended as, if it is gone

	live  bool // it was read as one that may end
	work  bool // it was read as one that a Conflict may change
	ended bool
}

// Moved reports whether the state of the job, its due time or its role is another one.
func (r *Row) Moved() bool { return r.Was != r.Is.standing() }

// Amended reports whether Edit is all that changes of the job.
func (r *Row) Amended() bool {
	was := r.Was
	was.Bytes = r.Is.Bytes
	return r.Edit != nil && was == r.Is.standing()
}

// waiting returns what a [storage.Conflict] is about.
func (r *Row) waiting() *Waiter {
	w := &Waiter{State: r.Is.State, Created: r.Is.Created, Due: r.Is.Due, Counters: r.Is.Counters, Args: r.Is.Args}
	if r.Does != nil {
		w.Args = r.Does.Args
	}
	return w
}

// Changes are what is to be written, each row once. Whoever writes them need not know why.
type Changes struct {
	At   int64  // when the last call is, whose jobs have ended or failed then
	Jobs []*Row // that are new or other than they were, in the order of keys
	// Numbers follow from Jobs.
	Numbers Numbers
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

// Wrote takes note that the Changes are written. So what is decided next may rest on what is known.
func (t *Tx) Wrote() {
	for _, r := range t.rows.all {
		r.Was, r.New, r.Does, r.Edit, r.Edits = r.Is.standing(), nil, nil, nil, false
	}
	for _, k := range t.keys.all {
		k.Were = [2]Keeper{k.Holder, k.Behind}
	}
	for _, g := range t.groups.all {
		g.pass = false
	}
}

// Changes returns what the decisions have changed. It is valid until the next Changes or Reset.
func (t *Tx) Changes() Changes {
	c := &t.changes
	*c = Changes{Jobs: c.Jobs[:0], Numbers: c.Numbers[:0], Keys: c.Keys[:0], Pass: c.Pass[:0], Empty: c.Empty[:0]}
	c.At = t.now.UnixMicro()
	for _, r := range t.rows.all {
		if r.ended && !r.live || r.Does == nil && r.Edit == nil && !r.Moved() {
			continue
		}
		c.Jobs = append(c.Jobs, r)
		c.Numbers.Follow(r.Was, r.Is.standing(), r.Unkept)
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
	return *c
}

// Elsewhere is the state in a lane of the jobs that are in another one.
const Elsewhere storage.State = "elsewhere"

// Number is how many jobs of a lane have gone from a state to another one, of which each is empty if
// they were not there.
type Number struct {
	Lane             int64
	From, To, Unkept storage.State // the last is that of Row
	N                int64
	Bytes            int64 // how many more the live jobs of the lane have
}

// Numbers are numbers that have changed, in the order of lanes and states.
type Numbers []Number

// Follow adds what follows from a row before and after. Without a State there is none. unkept is that
// of Row.
func (n *Numbers) Follow(was, is Standing, unkept storage.State) {
	from, to := was.bytes(), is.bytes()
	switch {
	case was.State != "" && is.State != "" && was.Lane != is.Lane:
		n.add(Number{Lane: was.Lane, From: was.State, To: Elsewhere, Bytes: -from})
		n.add(Number{Lane: is.Lane, From: Elsewhere, To: is.State, Bytes: to})
	case was.State != is.State || from != to:
		n.add(Number{Lane: cmp.Or(was.Lane, is.Lane), From: was.State, To: is.State, Unkept: unkept, Bytes: to - from})
	}
}

// add adds that one job more has gone so.
func (n *Numbers) add(one Number) {
	i, ok := slices.BinarySearchFunc(*n, one, func(a, b Number) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Unkept, b.Unkept))
	})
	if !ok {
		*n = slices.Insert(*n, i, Number{one.Lane, one.From, one.To, one.Unkept, 0, 0})
	}
	(*n)[i].N++
	(*n)[i].Bytes += one.Bytes
}
