package storagetest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// regroups is what is known of groups whose members are moved.
type regroups struct {
	ungrouped map[string]bool // queues whose settings of groups have changed since Regroup
	letIn     []*job          // not announced
	turn      time.Time       // of the exchange under way
	later     bool            // regroup only notes the groups
	noted     []storage.Lane  // queues and groups
}

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

// groupRule returns how many members of the groups of a queue are let in at a time, and
// whether they pass dead ones.
func (m *Memory) groupRule(queue string) (limit int64, pass bool) {
	set := m.settings[storage.Lane{Queue: queue}]
	limit = max(set[storage.SettingGroupLimit], 1)
	return limit, limit > 1 || set[storage.SettingDeadHead] == int64(storage.PassDead)
}

// join has a member wait for a place, unless it needs none.
func (m *Memory) join(j *job) {
	if limit, _ := m.groupRule(j.Queue); j.Group == "" || !j.live() || limit > 1 && j.State == storage.Scheduled {
		j.placed = false
		return
	}
	j.block()
}

// hasPlace reports whether a member may be let in into the group of j.
func (m *Memory) hasPlace(j *job) bool {
	limit, pass := m.groupRule(j.Queue)
	taken := int64(0)
	for _, o := range m.members(j.Queue, j.Group) {
		if o.placed || o.blocks && !pass {
			taken++
		}
	}
	return taken < limit
}

// passes reports whether a dead member of the group of j blocks others that are to pass it.
func (m *Memory) passes(j *job) bool {
	_, pass := m.groupRule(j.Queue)
	return pass && slices.ContainsFunc(m.members(j.Queue, j.Group), func(j *job) bool { return j.blocks })
}

// findPlaces finds places for members that have become ready and have none.
func (m *Memory) findPlaces(jobs ...*job) {
	for _, j := range jobs {
		if j.Group != "" && !j.placed {
			j.block()
		}
	}
	for _, j := range jobs {
		if j.State == storage.Blocked {
			m.regroup(j.Queue, j.Group, false)
		}
	}
}

// resettle finds the place of a member that was changed, given its state before.
func (m *Memory) resettle(j *job, was storage.State, moved, rescheduled bool) {
	limit, _ := m.groupRule(j.Queue)
	switch {
	case j.Group == "" || was == storage.Dead:
	case was == storage.Blocked:
		j.block()
	case limit > 1 && j.State == storage.Scheduled && (moved || rescheduled):
		j.placed = false
	case moved || !j.placed && j.State == storage.Ready:
		j.block()
	}
}

// block blocks a member that is scheduled or ready.
func (j *job) block() {
	if j.State != storage.Blocked {
		j.due, j.urgent, j.placed = j.State == storage.Ready, false, false
		j.State = storage.Blocked
	}
}

// letInto gives a blocked member a place.
func (m *Memory) letInto(j *job) {
	if turns := m.settings[storage.Lane{Queue: j.Queue}][storage.SettingOrder] == int64(storage.Turns); turns && !m.regroups.turn.IsZero() && !j.DueAt.After(m.regroups.turn) {
		j.DueAt, j.since, j.due = m.regroups.turn, time.Time{}, true
	}
	if j.State = storage.Scheduled; j.due {
		j.State = storage.Ready
	}
	j.placed = true
	m.regroups.letIn = append(m.regroups.letIn, j)
}

// regroup has the members of a group be in the states that they should. With anew,
// scheduled ones leave their places if there may be several.
func (m *Memory) regroup(queue, group string, anew bool) {
	if m.regroups.later {
		m.regroups.noted = append(m.regroups.noted, storage.Lane{Queue: queue, Kind: group})
		return
	}
	limit, pass := m.groupRule(queue)
	var members []*job
	var places int64
	for _, j := range m.members(queue, group) {
		switch {
		case j.State == storage.Dead && pass:
			j.blocks = false
			continue
		case j.placed:
			places++
		case j.State == storage.Scheduled: // it needs no place yet
			continue
		}
		members = append(members, j)
	}
	if limit > 1 {
		if anew || places > limit {
			places = leavePlaces(members, places, limit)
		}
		for _, j := range members {
			if j.State == storage.Blocked && places < limit {
				m.letInto(j)
				places++
			}
		}
		return
	}
	next := next(members)
	for _, j := range members {
		switch {
		case j == next && j.State == storage.Blocked:
			m.letInto(j)
		case j != next && j.live() && j.State != storage.Running:
			j.block()
		}
	}
}

// regroupNoted ends a time in which groups are only noted.
func (m *Memory) regroupNoted() {
	noted := m.regroups.noted
	m.regroups.later, m.regroups.noted = false, nil
	slices.SortFunc(noted, storage.Lane.Compare)
	for _, name := range slices.Compact(noted) {
		m.regroup(name.Queue, name.Kind, false)
	}
}

// leavePlaces has scheduled members leave their places, and the last ready ones, until no
// more than limit are taken. It returns how many are.
func leavePlaces(members []*job, places, limit int64) int64 {
	for _, j := range members {
		if j.State == storage.Scheduled && j.placed {
			j.placed = false
			places--
		}
	}
	for _, j := range slices.Backward(members) {
		if j.State == storage.Ready && places > limit {
			j.block()
			places--
		}
	}
	return places
}

// Regroup implements [storage.Grouper].
func (in *instance) Regroup(ctx context.Context, queue, after string) (next string, err error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return "", err
	}
	if after != "" || m.regroups.ungrouped[queue] {
		next = m.regroupNext(queue, after)
	}
	if next == "" {
		delete(m.regroups.ungrouped, queue)
	}
	mark := m.mark
	m.mu.Unlock()
	m.emit(in, mark, nil)
	return next, nil
}

// regroupNext regroups the first group of a queue after one that needs it, and returns it.
func (m *Memory) regroupNext(queue, after string) (group string) {
	limit, _ := m.groupRule(queue)
	for _, j := range m.where(func(j *job) bool {
		return j.Queue == queue && j.Group > after && (j.live() || j.blocks)
	}, func(a, b *job) int { return strings.Compare(a.Group, b.Group) }) {
		heads := int64(0)
		for _, o := range m.members(queue, j.Group) {
			if o.placed || o.blocks {
				heads++
			}
		}
		if j.State == storage.Blocked || heads > limit {
			m.regroup(queue, j.Group, true)
			return j.Group // one group is a step
		}
	}
	return ""
}

// Groups implements [storage.Grouper].
func (in *instance) Groups(ctx context.Context, of storage.GroupFilter, after string, limit int) (page storage.GroupPage, err error) {
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
		listed := j.blocks
		if of.Waiting {
			listed = j.Group != "" && j.State == storage.Blocked
		}
		return listed && (of.Queue == "" || of.Queue == j.Queue) && name(j).Compare(from) > 0
	}, func(a, b *job) int { return name(a).Compare(name(b)) })
	heads = slices.CompactFunc(heads, func(a, b *job) bool { return name(a) == name(b) })
	for _, j := range heads[:min(len(heads), max(limit, 0))] {
		if of.Waiting {
			j = m.headOf(j)
		}
		g := storage.GroupState{Queue: j.Queue, Group: j.Group, Head: j.ID, Kind: j.Kind, State: j.State}
		if j.State == storage.Dead {
			g.Reason, g.Error, g.Cause, g.DiedAt = j.Reason, j.record().Error, j.cause.id, j.EndedAt
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

// BehindDead implements [storage.Grouper].
func (in *instance) BehindDead(ctx context.Context, after string, limit int) ([]storage.BehindDead, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	name := func(j *job) storage.Lane { return storage.Lane{Queue: j.Queue, Kind: j.Group} }
	heads := m.where(func(j *job) bool { return j.blocks && j.Queue > after }, func(a, b *job) int { return name(a).Compare(name(b)) })
	heads = slices.CompactFunc(heads, func(a, b *job) bool { return name(a) == name(b) })
	of, behind := map[storage.Lane]*job{}, map[*job]int{}
	for _, head := range heads {
		of[name(head)] = head
	}
	for _, j := range m.where(func(j *job) bool { return j.State == storage.Blocked }, byKey) {
		if head := of[name(j)]; head != nil && j.ID.Key() > head.ID.Key() {
			behind[head]++
		}
	}
	var all []storage.BehindDead
	for _, head := range heads {
		if behind[head] == 0 {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Queue != head.Queue {
			if len(all) >= limit {
				break
			}
			all = append(all, storage.BehindDead{Queue: head.Queue, Since: head.EndedAt})
		}
		is := &all[len(all)-1]
		if is.More = is.More || is.Groups == storage.BehindGroups; is.More {
			continue
		}
		is.Groups++
		is.Jobs += behind[head]
		if is.More = is.Jobs > storage.BehindJobs; is.More {
			is.Jobs = storage.BehindJobs
		}
		if head.EndedAt.Before(is.Since) {
			is.Since = head.EndedAt
		}
	}
	return all, nil
}

// headOf returns what a blocked member waits for.
func (m *Memory) headOf(j *job) *job {
	members := m.members(j.Queue, j.Group)
	if i := slices.IndexFunc(members, func(j *job) bool { return j.placed && j.live() }); i >= 0 {
		return members[i]
	}
	return members[slices.IndexFunc(members, func(j *job) bool { return j.blocks })]
}

// SkipHead implements [storage.Grouper].
func (in *instance) SkipHead(ctx context.Context, queue, group string) (storage.ID, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.ID{}, err
	}
	members := m.members(queue, group)
	i := slices.IndexFunc(members, func(j *job) bool { return j.blocks })
	if i < 0 {
		m.mu.Unlock()
		return storage.ID{}, storage.ErrNotFound
	}
	members[i].blocks = false
	m.regroup(queue, group, false)
	m.did(ctx, 1, false)
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
