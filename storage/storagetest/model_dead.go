package storagetest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// position is that of a dead job in a change of those that f chooses.
func (j *job) position(f *storage.Filter) storage.Position {
	if f.Group != "" {
		return storage.Position{Key: j.Key}
	}
	return storage.Position{At: j.EndedAt, Key: j.Key}
}

func comparePositions(a, b storage.Position) int {
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	return cmp.Compare(a.Key, b.Key)
}

// matches reports whether j is dead and f chooses it.
func matches(f storage.Filter, j *job) bool {
	return j.State == storage.Dead && chooses(f, j)
}

// chooses reports whether f chooses j.
func chooses(f storage.Filter, j *job) bool {
	within := func(at, from, before time.Time) bool {
		return (from.IsZero() || !at.Before(from)) && (before.IsZero() || at.Before(before))
	}
	waits := j.State == storage.Scheduled || j.State == storage.Ready || j.State == storage.Blocked
	return (len(f.States) == 0 || slices.Contains(f.States, j.State)) &&
		f.Reaches(j.Queue) &&
		(f.Queue == "" || f.Queue == j.Queue) &&
		(f.Kind == "" || f.Kind == j.Kind) &&
		(f.Group == "" || f.Group == j.Group) &&
		(f.Tag == "" || slices.Contains(j.Tags, f.Tag)) &&
		within(j.CreatedAt, f.CreatedFrom, f.CreatedBefore) &&
		(f.DueFrom.IsZero() && f.DueBefore.IsZero() || waits && within(j.DueAt, f.DueFrom, f.DueBefore)) &&
		(f.Reason == "" || f.Reason == j.Reason) &&
		(f.Cause == 0 || j.cause != nil && f.Cause == j.cause.id) &&
		(f.EndedFrom.IsZero() || !j.live() && !j.EndedAt.Before(f.EndedFrom)) &&
		(f.EndedBefore.IsZero() || !j.live() && j.EndedAt.Before(f.EndedBefore)) &&
		(f.Error == "" || strings.Contains(lowerASCII(j.record().Error), lowerASCII(f.Error)))
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Redrive implements [storage.Store].
func (in *instance) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.Step{}, err
	}
	if r := in.under(sel.Under); r != storage.Applied {
		m.mu.Unlock()
		return storage.Step{Refused: r}, nil
	}
	given := now
	now = m.wrote(now)
	var event *storage.Event
	dead, step := m.selectDead(sel)
	for _, j := range dead {
		m.renew(now, j.Unique)
		if holder, held := m.holder(now, j.Unique); held && holder != j.ID {
			step.Duplicates = append(step.Duplicates, j.ID)
			continue
		} else if j.Unique != "" && !held {
			m.claim(j, time.Time{})
		}
		j.Retry, j.Crashes, j.Snoozes, j.redriven = 0, 0, 0, true
		if sel.FromStart {
			j.Checkpoint, j.Progress = nil, nil
		}
		from := j.Queue
		if queue != "" {
			j.Queue = queue
			m.meet(storage.Lane{Queue: queue, Kind: j.Kind})
		}
		j.Reason, j.endError, j.endPolicy, j.EndedAt, j.cause, j.blocks = "", "", nil, time.Time{}, nil, false
		j.putAt(now, now)
		m.put(j)
		j.windows.startWithin = 0
		j.windows.begin(given, j.DueAt, false, sel.Doubtful)
		m.join(j)
		m.regroup(from, j.Group, false)
		m.regroup(j.Queue, j.Group, false)
		if sel.Edit != nil {
			in.edit(given, j, sel.Edit, sel.Doubtful)
		}
		event = available(event, j)
		step.N++
	}
	m.did(ctx, step.N, true)
	in.keepPlace(sel.Under, &step)
	m.mu.Unlock()
	m.emit(in, now, event)
	return step, nil
}

// RunNow implements [storage.Store].
func (in *instance) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.Step{}, err
	}
	if r := in.under(sel.Under); r != storage.Applied {
		m.mu.Unlock()
		return storage.Step{Refused: r}, nil
	}
	now = m.wrote(now)
	var event *storage.Event
	hurried := 0
	waiting, step := m.selectLive(sel, func(j *job) bool { return j.waits(which) })
	for _, j := range waiting {
		if len(sel.IDs) == 1 && (j.State == storage.Scheduled || j.State == storage.Ready) {
			j.urgent = true
			event = &storage.Event{Urgent: true}
		}
		if j.State != storage.Scheduled {
			if len(sel.IDs) == 1 && j.urgent {
				hurried++
			}
			continue
		}
		if j.DueAt.After(now) {
			j.DueAt = now
		}
		j.State, j.since = storage.Ready, time.Time{}
		urgent := j.urgent
		m.findPlaces(j)
		j.urgent = urgent && j.State == storage.Ready // also if it has a place at once
		if event == nil || !event.Urgent {            // that is due at once
			event = available(event, j)
		}
		step.N++
	}
	m.did(ctx, step.N+hurried, true)
	in.keepPlace(sel.Under, &step)
	m.mu.Unlock()
	m.emit(in, now, event)
	return step, nil
}

// waits reports whether RunNow takes j.
func (j *job) waits(which storage.Waiting) bool {
	history := j.failures()
	n := len(history)
	failed := j.Crashes == 0 && (j.unspent != 0 && j.unspent == j.token ||
		n > 0 && history[n-1].Attempt == j.Attempt && !history[n-1].RetryAfter)
	return j.State == storage.Scheduled && (j.Attempt == 0 && which.First || j.Attempt > 0 && (failed || !which.Failed))
}

// selectLive returns the jobs of one step over live jobs, and the step's NotFound,
// Next and Through. A filter is for those that match too.
func (m *Memory) selectLive(sel storage.Selection, match func(*job) bool) (live []*job, step storage.Step) {
	if step.Through = sel.Through; len(sel.IDs) > 0 {
		step.Taken = len(sel.IDs)
		for _, id := range sel.IDs {
			if j := m.find(id); j != nil && j.live() {
				live = append(live, j)
			} else {
				step.NotFound = append(step.NotFound, id)
			}
		}
		return live, step
	}
	if all := m.liveWhere(all, byKey); step.Through == 0 && len(all) > 0 {
		step.Through = all[len(all)-1].Key
	}
	live = m.liveWhere(func(j *job) bool {
		return match(j) && chooses(sel.Filter, j) && j.Key > sel.After.Key && j.Key <= step.Through
	}, byKey)
	if limit := stepOf(sel); len(live) > limit {
		live = live[:limit]
		step.Next.Key = live[limit-1].Key
	}
	step.Taken = len(live)
	return live, step
}

// stepOf returns how many jobs one step over a filter changes at most.
func stepOf(sel storage.Selection) int {
	if sel.Limit > 0 {
		return min(bulkStep, sel.Limit)
	}
	return bulkStep
}

// selectDead returns the jobs of one step, and the step's NotFound and Next.
func (m *Memory) selectDead(sel storage.Selection) (dead []*job, step storage.Step) {
	if len(sel.IDs) == 0 {
		dead = m.where(func(j *job) bool {
			return matches(sel.Filter, j) &&
				(sel.After == storage.Position{} || comparePositions(j.position(&sel.Filter), sel.After) > 0)
		}, func(a, b *job) int { return comparePositions(a.position(&sel.Filter), b.position(&sel.Filter)) })
		if limit := stepOf(sel); len(dead) > limit {
			dead = dead[:limit]
			step.Next = dead[limit-1].position(&sel.Filter)
		}
		step.Taken = len(dead)
		return dead, step
	}
	step.Taken = len(sel.IDs)
	for _, id := range sel.IDs {
		j := m.find(id)
		switch {
		case j == nil || j.State != storage.Dead:
			step.NotFound = append(step.NotFound, id)
		case !slices.Contains(dead, j):
			dead = append(dead, j)
		}
	}
	return dead, step
}

// PurgeFinished implements [storage.Store].
func (in *instance) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return 0, time.Time{}, err
	}
	defer m.mu.Unlock()
	m.wrote(now)
	n, next := m.purgeFinished(now)
	return n, earlier(next, m.purgeMessages(floor(now))), nil
}

func (m *Memory) purgeFinished(now time.Time) (int, time.Time) {
	n, next := 0, m.forgetWindows(floor(now))
	for _, j := range m.where(func(j *job) bool { return j.finished() }, byKeep) {
		switch {
		case j.keepUntil.After(now):
			return n, earlier(j.keepUntil, next)
		case n == bulkStep:
			return n, now
		}
		delete(m.jobs, j.Key)
		n++
	}
	return n, next
}
