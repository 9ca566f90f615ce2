package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Grouper is the part of a [Store] that has the jobs of a group wait for each other.
//
// A job with a Group is a member of the group of that name in its queue, whatever its
// kind. A group of another queue is another group. At most one live member of a group is
// scheduled, ready or running: the one that runs, or else the one with the lowest key.
// The others are [Blocked]. A dead member blocks all with higher keys until it is
// redriven, deleted, moved to another queue or skipped. Only members that were leased
// together, see [Want.ByGroup], run together. If one of these is put back it is blocked
// until the others have ended; then the member with the lowest key is next.
//
// Each call that changes which member is next lets that member in, and blocks another
// that is scheduled or ready, in the same transaction. A member that is let in is ready
// if it was due when it was blocked, else scheduled. A blocked job is not urgent.
//
// With a SettingGroupLimit above 1 that many members are ready or running at a time, in
// no order, and a dead one blocks nobody. A scheduled member needs no place. When due, it
// takes a free one or is blocked. One that was let in, or put back with Stays, keeps its
// place. A free place goes to the blocked member with the lowest key. With PassDead a
// dead member blocks nobody either.
type Grouper interface {
	// Groups lists the groups that a dead member blocks, or, with of.Waiting, those with
	// blocked members, sorted by queue and name. It returns at most limit of them. after
	// is the Next of the page before, or empty for the first page. The cost grows neither
	// with the other groups nor with the number of blocked members.
	Groups(ctx context.Context, of GroupFilter, after string, limit int) (GroupPage, error)

	// BehindDead returns the queues in which dead members block others, sorted by name. It
	// returns at most limit of those whose names come after the name given. Queues without
	// blocked members behind a dead one are left out. So is a queue if none is
	// among the first [BehindLooks] groups that were looked at. Once [BehindAll] were passed over in all
	// queues the list ends with an entry that has only More, unless it has limit queues: those that come
	// after were not looked at. The cost grows neither with groups that have only dead members, nor with
	// those that have only live ones.
	BehindDead(ctx context.Context, after string, limit int) ([]BehindDead, error)

	// SkipHead lets the members of a group pass the dead member with the lowest key that
	// blocks them. It returns that member, which stays dead, or [ErrNotFound] if no dead
	// member blocks the group.
	SkipHead(ctx context.Context, queue, group string) (ID, error)

	// Regroup applies the settings of a queue to its groups with blocked members, or with
	// more members that are ready, running or scheduled with a place than
	// SettingGroupLimit. If the limit is above 1, scheduled members leave their places.
	// If there are still too many, the ready ones with the highest keys are blocked;
	// running ones go on. Before that, the settings apply to a group from the next call
	// about one of its members on. Once they apply to all groups, Regroup does nothing
	// until they change.
	//
	// One call is one bounded step over the groups whose names come after the name given:
	// call again with the result until that is empty.
	Regroup(ctx context.Context, queue, after string) (next string, err error)
}

// DeadHead says whether a dead member of a group blocks others.
type DeadHead uint8

const (
	// BlockDead blocks the members with higher keys.
	BlockDead DeadHead = iota
	// PassDead lets these members pass.
	PassDead
)

var deadHead = [...]string{BlockDead: "block", PassDead: "pass"}

// String returns the name of d.
func (d DeadHead) String() string {
	if int(d) < len(deadHead) {
		return deadHead[d]
	}
	return fmt.Sprintf("DeadHead(%d)", uint8(d))
}

// MarshalText returns the name of d.
func (d DeadHead) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets d by its name.
func (d *DeadHead) UnmarshalText(text []byte) error {
	i := slices.Index(deadHead[:], string(text))
	if i < 0 {
		return fmt.Errorf("errand: dead head %q: must be one of %s", text, strings.Join(deadHead[:], ", "))
	}
	*d = DeadHead(i)
	return nil
}

// GroupFilter chooses groups.
type GroupFilter struct {
	Queue string // empty: all
	// Waiting chooses the groups that have blocked members, whatever these wait for.
	Waiting bool
}

// GroupPage is a part of a list of groups.
type GroupPage struct {
	Groups []GroupState
	// Next is where the next page begins, in a form that only the Store knows. It is
	// empty if no group is left.
	Next string
}

// GroupState is a group whose members wait.
type GroupState struct {
	Queue, Group string
	// Head is the dead member with the lowest key that blocks the group. With
	// GroupFilter.Waiting it is the member with the lowest key that is scheduled, ready
	// or running and has a place, if there is one. Kind and State are those of Head.
	Head  ID
	Kind  string
	State State
	// Reason, Error, Cause and DiedAt are the reason, the last error, the cause and the
	// time of its death; zero if Head lives.
	Reason Reason
	Error  string
	Cause  int64 // the ID of a [Cause]; zero if it has none
	DiedAt time.Time
	// Blocked is how many members are blocked, at most [GroupCount].
	Blocked int
}

// BehindDead is what waits in a queue behind dead members of groups.
type BehindDead struct {
	// Queue is empty in the entry that ends a list before all queues were looked at.
	Queue string
	// Groups is how many groups have blocked members with higher keys than a dead one that
	// blocks them, at most [BehindGroups].
	Groups int
	// Jobs is how many such blocked members they have, at most [BehindJobs].
	Jobs int
	// Since is when the first of their heads died. The head of a group is the dead member
	// with the lowest key that blocks it.
	Since time.Time
	// More is true if there may be others: these were counted in the order of groups, up to
	// one of the limits.
	More bool
}

// BehindGroups, BehindJobs and BehindLooks are how far BehindDead counts the groups of a queue
// and their blocked members, and how many groups it passes over that have none.
// BehindAll is how many it passes over in all queues.
const (
	BehindGroups = 1000
	BehindJobs   = 2000
	BehindLooks  = 10_000
	BehindAll    = 50_000
)

// GroupCount is how far the members of a group are counted.
const GroupCount = 1000
