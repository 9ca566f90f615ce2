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
// kind. A group of another queue is another group. At most one live member of a group
// is scheduled, ready or running: the one that runs, or else the one with the lowest
// key. The others are [Blocked], and so are those with higher keys than a member that
// has died, until that is redriven, deleted, moved to another queue or skipped. Only
// those that were leased together, see [Want.ByGroup], run together. When one of them
// is put back it is blocked behind the others until these have ended, and then the one
// with the lowest key is next.
//
// Each call that changes who may be next lets that one in, and blocks another that is
// scheduled or ready, in the same transaction. A member that is let in is ready if it
// was due when it was blocked, else scheduled. A blocked job is not urgent.
//
// With a SettingGroupLimit above 1 that many members are ready or running at a time, in no
// order, and a dead one blocks nobody. Scheduled ones are beside them, and are blocked if
// there is no place when they are due, unless they were let in, or were put back with
// Stays. A place that is free is for the blocked member with the lowest key. With PassDead
// a dead member blocks nobody either.
type Grouper interface {
	// Groups lists the groups that are blocked by a dead member, or, with of.Waiting, those
	// that have blocked members, sorted by queue and name, at most limit of them, from the
	// place after on: that is the Next of a page of the same list, or empty for the first
	// page. The cost does not grow with the other groups, nor with how many members are
	// blocked.
	Groups(ctx context.Context, of GroupFilter, after string, limit int) (GroupPage, error)

	// SkipHead lets the members of a group pass the dead one with the lowest key that
	// blocks them, which stays dead. It returns that one, and [ErrNotFound] if no dead
	// member blocks the group.
	SkipHead(ctx context.Context, queue, group string) (ID, error)

	// Regroup has the settings of a queue take effect in its groups that have blocked
	// members, or more that are ready, running or scheduled with a place than
	// SettingGroupLimit. If that is above 1, scheduled members leave their places. If there
	// are too many still, those that are ready and have the highest keys are blocked; those
	// that run go on. Before, the settings take effect in each group with the next call that
	// is about a member of it. Once they have done so in all groups, Regroup does nothing
	// until they are changed.
	//
	// One call is one bounded step over the groups whose names come after the name given:
	// call again with the result until that is empty.
	Regroup(ctx context.Context, queue, after string) (next string, err error)
}

// DeadHead says what a dead member of a group is to the others.
type DeadHead uint8

const (
	// BlockDead keeps those with higher keys back.
	BlockDead DeadHead = iota
	// PassDead lets them pass.
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
	// GroupFilter.Waiting it is the member with the lowest key that is scheduled, ready or
	// running and has a place, if there is one. Kind and State are its own.
	Head  ID
	Kind  string
	State State
	// Reason, Error, Cause and DiedAt are the reason, the last error, the cause and the time
	// of its death; zero if it lives.
	Reason Reason
	Error  string
	Cause  int64 // the ID of a [Cause]; zero if it has none
	DiedAt time.Time
	// Blocked is how many members are blocked, at most [GroupCount].
	Blocked int
}

// GroupCount is how far the members of a group are counted.
const GroupCount = 1000
