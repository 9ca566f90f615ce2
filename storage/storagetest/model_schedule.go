package storagetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// schedule is a schedule with its history, the oldest entry first.
type schedule struct {
	storage.ScheduleRecord
	ticks     []storage.Tick
	startedBy []*instance
}

// PutSchedule implements [storage.Scheduler].
func (in *instance) PutSchedule(ctx context.Context, now time.Time, n storage.Schedule) (revision int64, err error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return 0, err
	}
	m.wrote(now)
	old := m.schedules[n.Name]
	switch {
	case old == nil && n.Revision == 0:
		old = &schedule{}
		m.schedules[n.Name] = old
	case old == nil || old.Revision != n.Revision:
		m.mu.Unlock()
		return 0, nil
	}
	n = cloneSchedule(n)
	n.Next, n.Through = floor(n.Next), floor(n.Through)
	n.Revision = m.revision()
	old.Schedule = n
	m.did(ctx, 0, false)
	m.mu.Unlock()
	m.emit(in, now, &storage.Event{Schedules: true})
	return n.Revision, nil
}

// Fire implements [storage.Scheduler].
func (in *instance) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return nil, err
	}
	m.wrote(now)
	var inserted []*job
	var evicted evictions
	out := make([]storage.Fired, len(firings))
	for i, f := range firings {
		s := m.schedules[f.Name]
		if s == nil || s.Revision != f.Revision || f.Start && !s.start(in) {
			continue
		}
		s.Revision, s.Next, s.Through, s.Wall = m.revision(), floor(f.Next), floor(f.Through), f.Wall
		taken := make([]storage.Tick, 0, len(f.Ticks))
		for _, t := range f.Ticks {
			entry, j := m.tick(now, s, t, &evicted)
			taken = append(taken, entry)
			if j != nil {
				inserted = append(inserted, j)
			}
		}
		s.ticks = append(s.ticks, taken...)
		s.ticks = s.ticks[max(0, len(s.ticks)-storage.TickLimit):]
		out[i].Applied, out[i].Ticks = true, taken
	}
	for i, f := range firings {
		if s := m.schedules[f.Name]; s != nil {
			out[i].Plan = s.Plan
		}
	}
	m.did(ctx, len(inserted), true)
	pass := in.handOver(floor(now), inserted)
	event := availableOf(inserted)
	m.mu.Unlock()
	in.tellEvicted(now, &evicted)
	pass()
	m.emit(in, now, event)
	return out, nil
}

// start notes that an instance has started s, and reports whether none had but for those
// that are gone.
func (s *schedule) start(in *instance) (first bool) {
	first = true
	for _, other := range s.startedBy {
		first = first && other.gone
	}
	s.startedBy = append(s.startedBy, in)
	return first
}

// tick takes a tick of s. It returns the entry of the history, and the job that
// was enqueued, if one was.
func (m *Memory) tick(now time.Time, s *schedule, t storage.NewTick, evicted *evictions) (storage.Tick, *job) {
	entry := storage.Tick{
		At: floor(t.At), Until: floor(t.Until), N: max(t.N, 1), Taken: t.Taken, Noted: floor(now),
	}
	if t.Until.IsZero() {
		entry.Until = entry.At
	}
	if t.Job == nil {
		return entry, nil
	}
	if s.SkipOverlap && t.Taken != storage.TickManual && m.overlaps(s.Name) {
		entry.Taken = storage.TickOverlap
		return entry, nil
	}
	by := m.newEvictions()
	e, j, err := m.admit(now, *t.Job, by)
	if err != nil {
		entry.Taken = storage.TickFull
		return entry, nil
	}
	evicted.jobs = append(evicted.jobs, by.jobs...)
	entry.ID = e.ID
	if e.Duplicate {
		entry.Taken = storage.TickDuplicate
		return entry, nil
	}
	s.LastTick, s.LastJob = entry.At, e.ID
	m.find(e.ID).schedule = s.Name
	return entry, j
}

// overlaps reports whether a job that schedules of this name have enqueued is live.
func (m *Memory) overlaps(name string) bool {
	return m.anyLive(func(j *job) bool { return j.schedule == name })
}

func (j *job) live() bool { return j.EndedAt.IsZero() }

// DropSchedule implements [storage.Scheduler].
func (in *instance) DropSchedule(ctx context.Context, now time.Time, name string) error {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return err
	}
	m.wrote(now)
	if m.schedules[name] == nil {
		m.mu.Unlock()
		return storage.ErrNotFound
	}
	delete(m.schedules, name)
	m.did(ctx, 0, false)
	m.mu.Unlock()
	m.emit(in, now, &storage.Event{Schedules: true})
	return nil
}

// Schedule implements [storage.Scheduler].
func (in *instance) Schedule(ctx context.Context, name string) (storage.ScheduleRecord, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return storage.ScheduleRecord{}, err
	}
	defer in.m.mu.Unlock()
	s := in.m.schedules[name]
	if s == nil {
		return storage.ScheduleRecord{}, storage.ErrNotFound
	}
	return s.clone(), nil
}

// Schedules implements [storage.Scheduler].
func (in *instance) Schedules(ctx context.Context) ([]storage.ScheduleRecord, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	var out []storage.ScheduleRecord
	for _, name := range slices.Sorted(maps.Keys(in.m.schedules)) {
		out = append(out, in.m.schedules[name].clone())
	}
	return out, nil
}

// Ticks implements [storage.Scheduler].
func (in *instance) Ticks(ctx context.Context, name string) ([]storage.Tick, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	s := in.m.schedules[name]
	if s == nil {
		return nil, nil
	}
	out := slices.Clone(s.ticks)
	slices.Reverse(out)
	return out, nil
}

// revision returns a revision that no schedule has had. They come from the
// counter of the lease tokens.
func (m *Memory) revision() int64 {
	m.lastToken++
	return m.lastToken
}

func (s *schedule) clone() storage.ScheduleRecord {
	out := s.ScheduleRecord
	out.Schedule = cloneSchedule(out.Schedule)
	return out
}

func cloneSchedule(s storage.Schedule) storage.Schedule {
	s.Job.Args, s.Job.Headers, s.Job.Policy = bytes.Clone(s.Job.Args), bytes.Clone(s.Job.Headers), bytes.Clone(s.Job.Policy)
	s.Job.Tags = slices.Clone(s.Job.Tags)
	return s
}
