package storagetest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

// members returns the members of a group that count, in the order of keys: the live
// ones, and the dead ones that block it.
func (m *Memory) members(queue, group string) []*job {
	return m.where(func(j *job) bool {
		return group != "" && j.Queue == queue && j.Group == group && (j.live() || j.blocks)
	}, byKey)
}

// next returns the member of a group that is not blocked, or nil if a dead one blocks all.
func next(members []*job) *job {
	for _, j := range members {
		if j.State == storage.Running {
			return j
		}
	}
	if len(members) == 0 || members[0].State == storage.Dead {
		return nil
	}
	return members[0]
}

// regroup has the members of a group be in the states that they should.
func (m *Memory) regroup(queue, group string) {
	members := m.members(queue, group)
	next := next(members)
	for _, j := range members {
		switch {
		case j == next && j.State == storage.Blocked:
			if j.State = storage.Scheduled; j.due {
				j.State = storage.Ready
			}
			m.letIn = append(m.letIn, j)
		case j != next && j.live() && j.State != storage.Blocked:
			j.due, j.urgent = j.State == storage.Ready, false
			j.State = storage.Blocked
		}
	}
}

// Groups implements [storage.Grouper].
func (in *instance) Groups(ctx context.Context, queue, after string, limit int) (page storage.GroupPage, err error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return page, err
	}
	defer m.mu.Unlock()
	var from storage.Lane // a queue and a group
	if after != "" {
		if err := json.Unmarshal([]byte(after), &from); err != nil {
			return page, err
		}
	}
	name := func(j *job) storage.Lane { return storage.Lane{Queue: j.Queue, Kind: j.Group} }
	heads := m.where(func(j *job) bool {
		return j.blocks && (queue == "" || queue == j.Queue) && name(j).Compare(from) > 0
	}, func(a, b *job) int { return name(a).Compare(name(b)) })
	heads = slices.CompactFunc(heads, func(a, b *job) bool { return name(a) == name(b) })
	for _, j := range heads[:min(len(heads), max(limit, 0))] {
		g := storage.GroupState{
			Queue: j.Queue, Group: j.Group, Head: j.ID, Kind: j.Kind, Reason: j.Reason, Error: j.record().Error,
			Cause: j.cause.id, DiedAt: j.EndedAt,
		}
		for _, other := range m.members(j.Queue, j.Group) {
			if other.State == storage.Blocked && g.Blocked < storage.GroupCount {
				g.Blocked++
			}
		}
		page.Groups = append(page.Groups, g)
	}
	if n := len(page.Groups); n > 0 && len(heads) > n {
		next, err := json.Marshal(name(heads[n-1]))
		page.Next = string(next)
		return page, err
	}
	return page, nil
}

// SkipHead implements [storage.Grouper].
func (in *instance) SkipHead(ctx context.Context, queue, group string) (storage.ID, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return storage.ID{}, err
	}
	members := m.members(queue, group)
	i := slices.IndexFunc(members, func(j *job) bool { return j.blocks })
	if i < 0 {
		m.mu.Unlock()
		return storage.ID{}, storage.ErrNotFound
	}
	members[i].blocks = false
	m.regroup(queue, group)
	mark := m.mark
	m.mu.Unlock()
	m.emit(in, mark, nil)
	return members[i].ID, nil
}

// groupName is what blocked jobs are listed by: a space is in no name of a queue or a
// group, and lower than all that is.
func (j *job) groupName() string {
	if j.Group == "" {
		return "\x7f" // behind the holder of its key: after all groups
	}
	return strings.Join([]string{j.Queue, j.Group}, " ")
}
