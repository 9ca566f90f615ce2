package errand

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// maxGroup is how long the name of a group may be.
const maxGroup = 256

// mostGroup bounds GroupLimit: so many jobs are looked at when one of them ends.
const mostGroup = 1000

// DeadHead says what a dead job of a group is to the others: see [Settings].
type DeadHead = storage.DeadHead

const (
	// BlockDead keeps those back that were enqueued after it.
	BlockDead = storage.BlockDead
	// PassDead lets them pass.
	PassDead = storage.PassDead
)

func aGroupLimit(value int64) string {
	if value < 0 || value > mostGroup {
		return fmt.Sprintf("must be between 0 and %d", mostGroup)
	}
	return ""
}

func aDeadHead(value int64) string {
	if value < 0 || value > int64(PassDead) {
		return fmt.Sprintf("must be BlockDead (%d) or PassDead (%d)", BlockDead, PassDead)
	}
	return ""
}

// BlockedGroup is a group whose members wait because one of them is dead.
type BlockedGroup struct {
	Queue string `json:"queue"`
	Group string `json:"group"`
	// Head is the dead job that the others wait for, the one that was enqueued first if
	// there are several, and Kind its kind. Reason and Error are what it died of, Cause is
	// the ID of that for JobFilter.Cause, and DiedAt when that was.
	Head   ID        `json:"head"`
	Kind   string    `json:"kind"`
	Reason Reason    `json:"reason"`
	Error  string    `json:"error"`
	Cause  int64     `json:"cause"`
	DiedAt time.Time `json:"died_at"`
	// Blocked is how many jobs wait, counted up to 1,000.
	Blocked int `json:"blocked"`
}

// GroupOptions select a page of groups. Nil and the zero value mean defaults.
type GroupOptions struct {
	// Queue is the queue of the groups. If empty, all.
	Queue string
	// Limit is how many groups a page has at most, up to 1,000. If zero, 100.
	Limit int
	// After is GroupPage.Next of the page before, of the same Queue. If empty, the first
	// page.
	After string
}

// GroupPage is a part of a list of groups.
type GroupPage struct {
	Groups []BlockedGroup
	// Next is where the next page begins, for [GroupOptions].After. It is empty on the
	// last page.
	Next string
}

// Groups returns a page of the groups whose members wait because one of them is dead,
// sorted by queue and name. [DeadLetters.Redrive] puts that one back to work before all
// others of its group, [DeadLetters.Purge] deletes it, and [Queue.SkipHead] leaves it
// where it is. Groups costs the same however many other groups there are.
func (q *Queue) Groups(ctx context.Context, o *GroupOptions) (GroupPage, error) {
	o = cmp.Or(o, &GroupOptions{})
	var f faults
	if o.Queue != "" {
		f.add(checkName("queue", o.Queue))
	}
	f.between("limit", o.Limit, maxPage)
	of := JobFilter{Queue: o.Queue}.hash(nil) + 1 // which is of no list of jobs
	after := readCursor(&f, "after", o.After, of)
	if err := f.err(); err != nil {
		return GroupPage{}, err
	}
	got, err := q.store.Groups(ctx, o.Queue, after, cmp.Or(o.Limit, defaultPage))
	if err != nil {
		return GroupPage{}, err
	}
	page := GroupPage{Next: cursor(got.Next, of)}
	for _, g := range got.Groups {
		page.Groups = append(page.Groups, BlockedGroup(g))
	}
	return page, nil
}

// SkipHead lets the members of a group pass the dead job that they wait for, which is the
// Head that [Queue.Groups] returns, and returns the ID of that one. It stays a dead letter;
// if it is redriven later, it runs before those that still wait. If an earlier or a later
// member is dead too, the group waits for that one from then on.
//
// SkipHead returns [ErrNotFound] if no dead job keeps the group back.
func (q *Queue) SkipHead(ctx context.Context, queue, group string) (ID, error) {
	var f faults
	f.add(checkName("queue", queue))
	f.group("group", group)
	if group == "" {
		f.field("group", group, "must not be empty")
	}
	if err := f.err(); err != nil {
		return ID{}, err
	}
	return q.store.SkipHead(ctx, queue, group)
}

// group checks the name of a group, which may be empty.
func (f *faults) group(field, name string) {
	switch {
	case len(name) > maxGroup:
		f.field(field, name, fmt.Sprintf("must be at most %d bytes", maxGroup))
	case !isText(name):
		f.field(field, name, "must be valid UTF-8 without NUL")
	}
}
