package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

// Role is what a member of a group is to the others, see [storage.Grouper].
type Role int64

// The roles. Stores keep these numbers.
const (
	NoRole Role = iota // the others pass it
	Waits              // it is blocked
	Placed             // it has a place: scheduled, ready or running
	Blocks             // it is dead, and those with higher keys wait for it
)

// GroupRule is what the settings of a queue say of its groups.
type GroupRule struct {
	Limit int64 // how many places a group has
	Pass  bool  // a dead member blocks nobody
	Turns bool  // those that an exchange lets in go behind others of their lane
}

// GroupName returns the name that stores have for a group of a queue, "" for no group. A space is
// in no name of a queue, and lower than all that is, so that the order is that of queue and group.
func GroupName(queue, group string) string {
	if group == "" {
		return ""
	}
	return queue + " " + group
}

// SplitGroup returns the queue and the group of a GroupName.
func SplitGroup(name string) (queue, group string) {
	queue, group, _ = strings.Cut(name, " ")
	return queue, group
}

// GroupRuleOf returns the rule of the queue of a group, see GroupName.
func GroupRuleOf(all map[storage.Lane]storage.Settings, name string) GroupRule {
	queue, _ := SplitGroup(name)
	set := all[storage.Lane{Queue: queue}]
	limit := max(set[storage.SettingGroupLimit], 1)
	return GroupRule{
		Limit: limit,
		Pass:  limit > 1 || set[storage.SettingDeadHead] == int64(storage.PassDead),
		Turns: set[storage.SettingOrder] == int64(storage.Turns),
	}
}

// Needs reports whether a live member in a state needs a place, or is blocked.
func (r GroupRule) Needs(s storage.State) bool { return r.Limit == 1 || s != storage.Scheduled }

// Left returns the role of a member that had one and has ended as to.
func (r GroupRule) Left(to storage.State) Role {
	if to == storage.Dead && !r.Pass {
		return Blocks
	}
	return NoRole
}

// PutBack returns the role of a member that has run and is scheduled or ready again. stays is
// [storage.Finish.Stays].
func (r GroupRule) PutBack(to storage.State, stays bool) Role {
	if stays || r.Needs(to) {
		return Placed
	}
	return NoRole
}

// Changed returns the role of a live member with a role that is put off, made due or moved, and so
// goes from one state to another, of a queue with this rule then. moved says that it comes from another
// queue or kind. A member that waits gets its place, if there is one, when the group is settled.
func (r GroupRule) Changed(from, to storage.State, role Role, moved bool) Role {
	switch {
	case from == storage.Blocked:
		return Waits
	case !r.Needs(to):
		return NoRole
	case !moved && (role == Placed || to == storage.Scheduled):
		return role
	}
	return Waits
}

// Member is a member of a group that may keep others back.
type Member struct {
	Job   int64 // key
	Lane  int64 // number in the store
	Role  Role  // Placed or Blocks
	State storage.State
}

// Moves are members whose states and roles a decision changes, each there once at most. The zero value is
// empty.
type Moves struct {
	Pass  []string // groups of which each member that Blocks has no role any more
	Leave []int64  // scheduled members that leave their places, and have no role
	Block []Member // ready or scheduled ones that lose their places, and wait
	LetIn []LetIn  // jobs that are blocked, and wait no longer
}

// LetIn has a blocked job be ready if it was due when it came to wait, else scheduled.
type LetIn struct {
	Job int64
	At  int64 // if it is due by then, it is due at this time; 0: its due time stays
	As  Role  // NoRole: as it was
}

// Group is what is read of a group.
type Group struct {
	Name  string // as the store has it
	Rule  GroupRule
	Taken int64 // how many members are Placed
	Dead  bool  // whether any of them Blocks
	// Waiting are the first members that wait, in the order of keys: one at least if there is
	// one, and as many as Reads says.
	Waiting []int64
	More    bool // others wait behind these
	// Members are those that are Placed or Block, in any order. They are read only if Reads says
	// so. For Settle, the one with the lowest key is enough of those that Block.
	Members []Member
}

// Reads says what else has to be read to settle g, of which Taken, Dead and the first that
// waits are known: whether its Members, and how many of those that wait. anew is that of
// Settle.
func (g *Group) Reads(anew bool) (members bool, waiting int64) {
	if g.Rule.Limit == 1 {
		return g.Taken > 0 || g.Dead && !g.Rule.Pass, 1
	}
	if anew || g.Taken > g.Rule.Limit {
		return g.Taken > 0, g.Rule.Limit
	}
	return false, max(g.Rule.Limit-g.Taken, 1)
}

// Settle adds to a Moves which members are to be let in and which blocked. With anew, scheduled
// members leave their places if there may be several, as they may have taken them under another
// rule. With Turns, those that are let in and due are due at, unless that is zero.
func (g *Group) Settle(anew bool, at int64, to *Moves) {
	if g.Dead && g.Rule.Pass {
		to.Pass = append(to.Pass, g.Name)
	}
	if !g.Rule.Turns {
		at = 0
	}
	if g.Rule.Limit == 1 {
		g.settleOrder(at, to)
		return
	}
	if anew || g.Taken > g.Rule.Limit {
		g.leave(to)
	}
	for _, job := range g.Waiting[:min(int64(len(g.Waiting)), max(g.Rule.Limit-g.Taken, 0))] {
		to.LetIn = append(to.LetIn, LetIn{job, at, Placed})
	}
}

// settleOrder is Settle for a group whose members run one at a time: next is the one that runs
// or, if there is none, the one with the lowest key.
func (g *Group) settleOrder(at int64, to *Moves) {
	next := int64(0)
	if len(g.Waiting) > 0 {
		next = g.Waiting[0]
	}
	runs := false // several do if they were leased together
	for _, m := range g.Members {
		switch {
		case m.Role == Blocks && g.Rule.Pass, runs && m.State != storage.Running:
		case m.State == storage.Running && !runs, next == 0 || m.Job < next:
			next, runs = m.Job, m.State == storage.Running
		}
	}
	for _, m := range g.Members {
		if m.Role == Placed && m.Job != next && m.State != storage.Running {
			to.Block = append(to.Block, m)
		}
	}
	if len(g.Waiting) > 0 && next == g.Waiting[0] {
		to.LetIn = append(to.LetIn, LetIn{next, at, Placed})
	}
}

// leave has scheduled members leave their places, and the ready ones with the highest keys
// until no more than the limit are taken.
func (g *Group) leave(to *Moves) {
	var ready []Member
	for _, m := range g.Members {
		switch {
		case m.Role != Placed:
		case m.State == storage.Scheduled:
			to.Leave = append(to.Leave, m.Job)
			g.Taken--
		case m.State == storage.Ready:
			ready = append(ready, m)
		}
	}
	if n := min(g.Taken-g.Rule.Limit, int64(len(ready))); n > 0 {
		slices.SortFunc(ready, func(a, b Member) int { return cmp.Compare(b.Job, a.Job) })
		to.Block = append(to.Block, ready[:n]...)
		g.Taken -= n
	}
}

// Join returns the role of a new member in a state, which has a higher key than all others, and
// counts it in g. others reports that there is a place for one that waits already, so that the
// group is to be settled once the new member is there. pass reports that dead members have blocked
// others, and block nobody any more.
func (g *Group) Join(s storage.State) (role Role, others, pass bool) {
	if !g.Rule.Needs(s) {
		return NoRole, false, false
	}
	if g.Dead && g.Rule.Pass {
		g.Dead, pass = false, true
	}
	if g.Dead || g.Taken >= g.Rule.Limit {
		return Waits, false, pass
	}
	if len(g.Waiting) > 0 || g.More {
		return Waits, true, pass
	}
	g.Taken++
	return Placed, false, pass
}

// Note takes note of what a member of g has become that was was. Without a role it keeps nobody
// back any more. It is for a caller that decides several times about what it has read once.
func (g *Group) Note(was Role, m Member) {
	switch was {
	case Waits:
		g.Waiting = slices.DeleteFunc(g.Waiting, func(job int64) bool { return job == m.Job })
	case Placed, Blocks:
		g.Members = slices.DeleteFunc(g.Members, func(o Member) bool { return o.Job == m.Job })
		if was == Placed {
			g.Taken--
		} else {
			g.Dead = slices.ContainsFunc(g.Members, func(o Member) bool { return o.Role == Blocks })
		}
	case NoRole:
	}
	switch m.Role {
	case Waits:
		i, _ := slices.BinarySearch(g.Waiting, m.Job)
		if i < len(g.Waiting) || !g.More {
			g.Waiting = slices.Insert(g.Waiting, i, m.Job)
		}
	case Placed:
		g.Members = append(g.Members, m)
		g.Taken++
	case Blocks:
		g.Members = append(g.Members, m)
		g.Dead = true
	case NoRole:
	}
}

// Alone reports whether the member with a key is the only one that has a place and none blocks,
// so that those that wait right behind it may be leased with it, see [storage.Want.ByGroup].
func (g *Group) Alone(key int64) bool {
	return g.Taken == 1 && !g.Dead && len(g.Waiting) > 0 && g.Waiting[0] > key
}

// RegroupStep is how many groups one step of Regroup changes, RegroupMost how many members it
// lets in or blocks, but for those of the last group, and RegroupWalk how many members with a
// place it counts, to find groups that have too many.
const (
	RegroupStep = 100
	RegroupMost = 250
	RegroupWalk = 5000
)

// The marks of a queue from when the settings of its groups are changed until a Regroup has gone
// through all of them since. Stores keep these numbers.
const (
	RegroupDue int64 = 1 + iota
	RegroupBegun
)

// Regrouped returns the mark of a queue, 0 for none, once a step of Regroup has gone from the group
// after, "" for the first, to next, "" for the last. A mark stays if the settings have changed since
// the first step, whose successors this one may be beside.
func Regrouped(mark int64, after, next string) int64 {
	switch {
	case next == "" && (after == "" || mark == RegroupBegun):
		return 0
	case next != "" && after == "" && mark == RegroupDue:
		return RegroupBegun
	}
	return mark
}
