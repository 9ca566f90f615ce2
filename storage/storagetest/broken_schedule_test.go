package storagetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// putting has f change the database, or the schedule, before each PutSchedule,
// and then, with the revision it returned, after it.
func putting(before, after func(m *Memory, s *storage.Schedule)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.put = func(ctx context.Context, now time.Time, s storage.Schedule) (int64, error) {
			in.m.locked(func() { before(in.m, &s) })
			r, err := in.PutSchedule(ctx, now, s)
			if s.Revision = r; r != 0 {
				in.m.locked(func() { after(in.m, &s) })
			}
			return s.Revision, err
		}
		return h
	}
}

func nothing(*Memory, *storage.Schedule) {}

// firing has f surround each Fire: the function it returns is called after it, unless nil.
func firing(f func(m *Memory, firings []storage.Firing) func(out []storage.Fired)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.fire = func(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
			firings = slices.Clone(firings)
			for i := range firings {
				firings[i].Ticks = slices.Clone(firings[i].Ticks)
			}
			var undo func([]storage.Fired)
			in.m.locked(func() { undo = f(in.m, firings) })
			out, err := in.Fire(ctx, now, firings)
			if undo != nil && err == nil {
				in.m.locked(func() { undo(out) })
			}
			return out, err
		}
		return h
	}
}

// plans returns all schedules, for their plans.
func plans(m *Memory) map[string]storage.ScheduleRecord {
	out := map[string]storage.ScheduleRecord{}
	for name, s := range m.schedules {
		out[name] = s.ScheduleRecord
	}
	return out
}

// histories returns the histories of all schedules.
func histories(m *Memory) map[string][]storage.Tick {
	out := map[string][]storage.Tick{}
	for name, s := range m.schedules {
		out[name] = slices.Clone(s.ticks)
	}
	return out
}

// eachTick has f change each tick, given the schedule of it.
func eachTick(f func(m *Memory, s *schedule, t *storage.NewTick)) func(in *instance) storage.Store {
	return firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		for _, fi := range firings {
			if s := m.schedules[fi.Name]; s != nil {
				for i := range fi.Ticks {
					f(m, s, &fi.Ticks[i])
				}
			}
		}
		return nil
	})
}

// blind has firings not see the live jobs for which f is true, of those that there were before.
func blind(f func(s *schedule, j *job) bool) func(in *instance) storage.Store {
	return firing(func(m *Memory, _ []storage.Firing) func([]storage.Fired) {
		was := map[*schedule]bool{}
		for _, s := range m.schedules {
			was[s] = s.SkipOverlap
			s.SkipOverlap = s.SkipOverlap && slices.ContainsFunc(m.where(func(j *job) bool { return j.schedule == s.Name && j.live() }, byKey),
				func(j *job) bool { return !f(s, j) })
		}
		return func([]storage.Fired) {
			for s, skip := range was {
				s.SkipOverlap = skip
			}
		}
	})
}

var scheduleFaults = []fault{
	{"a firing needs no revision", "fire_concurrent", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		for i, f := range firings {
			if s := m.schedules[f.Name]; s != nil {
				firings[i].Revision = s.Revision
			}
		}
		return nil
	})},
	{"a firing at another revision notes its ticks", "fire_order", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		for _, f := range firings {
			if s := m.schedules[f.Name]; s != nil && s.Revision != f.Revision {
				s.ticks = append(s.ticks, make([]storage.Tick, len(f.Ticks))...)
			}
		}
		return nil
	})},
	{"a firing that came to nothing tells the plan before the call", "fire_order", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		was := plans(m)
		return func(out []storage.Fired) {
			for i := range out {
				if !out[i].Applied {
					out[i].Plan = was[firings[i].Name].Plan
				}
			}
		}
	})},
	{"any firing starts", "fire_start", firing(func(_ *Memory, firings []storage.Firing) func([]storage.Fired) {
		for i := range firings {
			firings[i].Start = false
		}
		return nil
	})},
	{"a schedule starts once for ever", "fire_start", firing(func(m *Memory, _ []storage.Firing) func([]storage.Fired) {
		return func([]storage.Fired) {
			for _, s := range m.schedules {
				for i := range s.startedBy {
					s.startedBy[i] = &instance{}
				}
			}
		}
	})},
	{"who was refused has not started", "fire_start", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		return func(out []storage.Fired) {
			for i, f := range firings {
				if s := m.schedules[f.Name]; f.Start && !out[i].Applied && len(s.startedBy) > 0 {
					s.startedBy = s.startedBy[:len(s.startedBy)-1]
				}
			}
		}
	})},
	{"who is closed has not started", "fire_start_running", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		for _, s := range m.schedules {
			s.startedBy = slices.DeleteFunc(s.startedBy, func(in *instance) bool { return in.closed })
		}
		return nil
	})},
	{"a start at any revision", "fire_start", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		for i, f := range firings {
			if s := m.schedules[f.Name]; f.Start && s != nil {
				firings[i].Revision = s.Revision
			}
		}
		return nil
	})},
	{"a firing does not raise the revision", "schedule_revision", firing(func(m *Memory, _ []storage.Firing) func([]storage.Fired) {
		was := plans(m)
		return func(out []storage.Fired) {
			for name, s := range m.schedules {
				s.Revision = was[name].Revision
			}
		}
	})},
	{"a firing resumes", "fire_plan", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		return func(out []storage.Fired) {
			for i, f := range firings {
				if out[i].Applied {
					m.schedules[f.Name].Paused = false
				}
			}
		}
	})},
	{"a firing forgets the wall", "fire_plan", firing(func(_ *Memory, firings []storage.Firing) func([]storage.Fired) {
		for i := range firings {
			firings[i].Wall = ""
		}
		return nil
	})},
	{"a put keeps the wall", "schedule_replace", putting(func(m *Memory, s *storage.Schedule) {
		if old := m.schedules[s.Name]; old != nil {
			s.Wall = old.Wall
		}
	}, nothing)},
	{"a put at any revision replaces", "schedule_replace", putting(func(m *Memory, s *storage.Schedule) {
		if old := m.schedules[s.Name]; old != nil && s.Revision != 0 {
			s.Revision = old.Revision
		}
	}, nothing)},
	{"adding replaces what is there", "schedule_add", putting(func(m *Memory, s *storage.Schedule) {
		if old := m.schedules[s.Name]; old != nil && s.Revision == 0 {
			s.Revision = old.Revision
		}
	}, nothing)},
	{"the last to add at once wins", "schedule_concurrent_adds", putting(func(m *Memory, s *storage.Schedule) {
		if s.Revision == 0 {
			delete(m.schedules, s.Name)
		}
	}, nothing)},
	{"a put forgets the last job", "schedule_replace", putting(nothing, func(m *Memory, s *storage.Schedule) {
		m.schedules[s.Name].LastTick, m.schedules[s.Name].LastJob = time.Time{}, storage.ID{}
	})},
	{"a put forgets the history", "schedule_replace", putting(nothing, func(m *Memory, s *storage.Schedule) {
		m.schedules[s.Name].ticks = nil
	})},
	{"revisions begin anew for one that is added again", "schedule_drop", putting(func(m *Memory, s *storage.Schedule) {
		if m.schedules[s.Name] == nil {
			s.Jitter++ // to tell it by
		}
	}, func(m *Memory, s *storage.Schedule) {
		if s.Jitter%2 == 1 {
			m.schedules[s.Name].Revision, s.Revision = 1, 1
		}
	})},
	{"a drop leaves the history", "schedule_drop", func(in *instance) storage.Store {
		h, left := sound(in), map[string][]storage.Tick{}
		h.drop = func(ctx context.Context, now time.Time, name string) error {
			in.m.locked(func() { maps.Copy(left, histories(in.m)) })
			return in.DropSchedule(ctx, now, name)
		}
		h.put = func(ctx context.Context, now time.Time, s storage.Schedule) (int64, error) {
			r, err := in.PutSchedule(ctx, now, s)
			in.m.locked(func() {
				if sched := in.m.schedules[s.Name]; sched != nil && s.Revision == 0 {
					sched.ticks = slices.Clone(left[s.Name])
				}
			})
			return r, err
		}
		return h
	}},
	{"a schedule that there is not is an empty one", "schedule_one", func(in *instance) storage.Store {
		h := sound(in)
		h.one = func(ctx context.Context, name string) (storage.ScheduleRecord, error) {
			s, err := in.Schedule(ctx, name)
			if errors.Is(err, storage.ErrNotFound) {
				err = nil
			}
			return s, err
		}
		return h
	}},
	{"a name in another case is the same", "schedule_one", func(in *instance) storage.Store {
		h := sound(in)
		h.one = func(ctx context.Context, name string) (storage.ScheduleRecord, error) {
			return in.Schedule(ctx, strings.ToLower(name))
		}
		return h
	}},
	{"ticks of a schedule without limit", "fire_limit", firing(func(m *Memory, _ []storage.Firing) func([]storage.Fired) {
		was := histories(m)
		return func(out []storage.Fired) {
			for name, s := range m.schedules {
				if n := len(was[name]); n > 0 && len(s.ticks) == storage.TickLimit && !slices.Contains(s.ticks, was[name][0]) {
					s.ticks = slices.Concat(was[name][:1], s.ticks)
				}
			}
		}
	})},
	{"ticks sorted by their time", "fire_limit", firing(func(m *Memory, _ []storage.Firing) func([]storage.Fired) {
		return func([]storage.Fired) {
			for _, s := range m.schedules {
				slices.SortStableFunc(s.ticks, func(a, b storage.Tick) int { return a.At.Compare(b.At) })
			}
		}
	})},
	{"many ticks in a row count as one", "fire_ranges", eachTick(func(_ *Memory, _ *schedule, t *storage.NewTick) { t.N = 1 })},
	{"overlap only with a running job", "overlap_states", blind(func(_ *schedule, j *job) bool { return j.State != storage.Running })},
	{"overlap with a dead job", "overlap_states", eachTick(func(m *Memory, s *schedule, t *storage.NewTick) {
		if j := m.find(s.LastJob); s.SkipOverlap && j != nil && j.State == storage.Dead {
			t.Taken, t.Job = storage.TickOverlap, nil
		}
	})},
	{"overlap with a job that has just been fired goes unseen", "overlap_batch", blind(func(*schedule, *job) bool { return false })},
	{"overlap only with the last job", "overlap_any", blind(func(s *schedule, j *job) bool { return j.ID != s.LastJob })},
	{"overlap not with a job that has died once", "overlap_states", blind(func(_ *schedule, j *job) bool { return j.redriven })},
	{"overlap not with a job that is blocked", "overlap_blocked", blind(func(_ *schedule, j *job) bool { return j.State == storage.Blocked })},
	{"overlap not with a job of another kind", "overlap_other_rule", blind(func(s *schedule, j *job) bool { return j.Kind != s.Job.Kind })},
	{"overlap not with a job in another queue", "overlap_ends", blind(func(s *schedule, j *job) bool { return j.Queue != s.Job.Queue })},
	{"overlap not with a job that others have changed", "overlap_ends", blind(func(_ *schedule, j *job) bool { return string(j.Args) == "another" })},
	{"a drop forgets the jobs", "overlap_any", func(in *instance) storage.Store {
		h := sound(in)
		h.drop = func(ctx context.Context, now time.Time, name string) error {
			err := in.DropSchedule(ctx, now, name)
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					if j.schedule == name && err == nil {
						j.schedule = ""
					}
				}
			})
			return err
		}
		return h
	}},
	{"a header makes a job one of the schedule", "overlap_not_its_own", eachTick(func(m *Memory, s *schedule, t *storage.NewTick) {
		for _, j := range m.jobs {
			if string(j.Headers) == `{"errand-schedule":"`+s.Name+`"}` {
				j.schedule = s.Name
			}
		}
	})},
	{"the holder of the unique key is one of the schedule", "overlap_not_its_own", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		return func(out []storage.Fired) {
			for i, f := range firings {
				for _, t := range out[i].Ticks {
					if t.Taken == storage.TickDuplicate {
						m.find(t.ID).schedule = f.Name
					}
				}
			}
		}
	})},
	{"a job that was evicted overlaps", "overlap_ends", func(in *instance) storage.Store {
		h := sound(in)
		gone := map[string]bool{}
		in.NotifyEvicted(func(_ time.Time, jobs []storage.Evicted) { gone["a"] = len(jobs) > 0 })
		h.fire = func(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
			for i := range firings {
				for k := range firings[i].Ticks {
					if t := &firings[i].Ticks[k]; gone[firings[i].Name] && t.Taken == storage.TickFired {
						t.Taken, t.Job = storage.TickOverlap, nil
					}
				}
			}
			return in.Fire(ctx, now, firings)
		}
		return h
	}},
	{"overlap skips what somebody asked for", "overlap_batch", eachTick(func(m *Memory, s *schedule, t *storage.NewTick) {
		if t.Taken == storage.TickManual {
			t.Taken = storage.TickFired
		}
	})},
	{"the holder of the unique key is taken for the last job", "fire_duplicate", firing(func(m *Memory, firings []storage.Firing) func([]storage.Fired) {
		return func(out []storage.Fired) {
			for i, f := range firings {
				for _, t := range out[i].Ticks {
					if t.Taken == storage.TickDuplicate {
						m.schedules[f.Name].LastTick, m.schedules[f.Name].LastJob = t.At, t.ID
						out[i].Plan = m.schedules[f.Name].Plan
					}
				}
			}
		}
	})},
	{"the last job is that of the tick furthest ahead", "overlap_clock_back", firing(func(m *Memory, _ []storage.Firing) func([]storage.Fired) {
		was := plans(m)
		return func(out []storage.Fired) {
			for name, s := range m.schedules {
				if p := was[name]; p.LastTick.After(s.LastTick) {
					s.LastTick, s.LastJob = p.LastTick, p.LastJob
				}
			}
		}
	})},
}
