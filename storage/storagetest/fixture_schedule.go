package storagetest

import (
	"reflect"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// scheduler returns s as one that keeps schedules, or skips the case.
func (f *fixture) scheduler(s storage.Store) storage.Scheduler {
	f.Helper()
	sc, ok := s.(storage.Scheduler)
	if !ok {
		f.skip("storage.Scheduler")
	}
	return sc
}

// newSchedule is a schedule of the usual job, changed by each of changes.
func newSchedule(name string, changes ...func(*storage.ScheduleRecord)) storage.ScheduleRecord {
	s := storage.ScheduleRecord{Schedule: storage.Schedule{Name: name, Spec: "0 9 * * *", Zone: "Europe/Berlin", Missed: "one", Job: newJob()}}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func skipOverlap(s *storage.ScheduleRecord) { s.SkipOverlap = true }

// put adds or replaces a schedule, and returns its new revision.
func (f *fixture) put(s storage.ScheduleRecord) int64 {
	f.Helper()
	revision := f.tryPut(f.s, s)
	if revision == 0 {
		f.Fatalf("PutSchedule of %q at revision %d changed nothing", s.Name, s.Revision)
	}
	return revision
}

// tryPut is put, but it may change nothing.
func (f *fixture) tryPut(on storage.Store, s storage.ScheduleRecord) int64 {
	f.Helper()
	revision, err := f.scheduler(on).PutSchedule(f.ctx, f.now, s.Schedule)
	f.must(err)
	f.revised(s.Name, revision)
	return revision
}

// revised notes that a schedule was given this revision, unless it is zero.
func (f *fixture) revised(name string, revision int64) {
	f.Helper()
	if revision < 0 || revision > 0 && slices.Contains(f.revisions[name], revision) {
		f.Fatalf("schedule %q was given the revision %d, after %v", name, revision, f.revisions[name])
	}
	if revision > 0 {
		f.revisions[name] = append(f.revisions[name], revision)
	}
}

func (f *fixture) drop(name string) {
	f.Helper()
	f.must(f.scheduler(f.s).DropSchedule(f.ctx, f.now, name))
}

// schedule returns the schedule of that name as s has it.
func (f *fixture) schedule(s storage.Store, name string) storage.ScheduleRecord {
	f.Helper()
	all, err := f.scheduler(s).Schedules(f.ctx)
	f.must(err)
	i := slices.IndexFunc(all, func(s storage.ScheduleRecord) bool { return s.Name == name })
	if i < 0 {
		f.Fatalf("Schedules returned %d, none of them %q", len(all), name)
	}
	one, err := f.scheduler(s).Schedule(f.ctx, name)
	f.must(err)
	f.sameSchedule("Schedule and the one in Schedules", one, all[i])
	return all[i]
}

// tick is one that fires the usual job, changed by each of changes.
func tick(at time.Time, changes ...func(*storage.NewJob)) storage.NewTick {
	n := newJob(changes...)
	return storage.NewTick{At: at, Taken: storage.TickFired, Job: &n}
}

// manual is tick for one that somebody asked for.
func manual(at time.Time, changes ...func(*storage.NewJob)) storage.NewTick {
	t := tick(at, changes...)
	t.Taken = storage.TickManual
	return t
}

// fires is a firing of a schedule, given the plan it shall have.
func fires(name string, p storage.Plan, ticks ...storage.NewTick) storage.Firing {
	return storage.Firing{Name: name, Revision: p.Revision, Next: p.Next, Through: p.Through, Wall: p.Wall, Ticks: ticks}
}

// fire is one Fire of s.
func (f *fixture) fire(s storage.Store, firings ...storage.Firing) []storage.Fired {
	f.Helper()
	out, err := f.scheduler(s).Fire(f.ctx, f.now, firings)
	f.must(err)
	if len(out) != len(firings) {
		f.Fatalf("Fire of %d firings returned %d answers", len(firings), len(out))
	}
	for i, fired := range out {
		if !fired.Applied {
			if fired.Ticks != nil {
				f.Fatalf("a firing that was not applied returned ticks %v", fired.Ticks)
			}
			continue
		}
		if len(fired.Ticks) != len(firings[i].Ticks) {
			f.Fatalf("a firing of %d ticks returned %d", len(firings[i].Ticks), len(fired.Ticks))
		}
		f.revised(firings[i].Name, fired.Plan.Revision)
		for _, t := range fired.Ticks {
			if !t.ID.IsZero() && t.Taken != storage.TickDuplicate {
				f.ids[t.ID.Key()] = t.ID
			}
		}
	}
	return out
}

// take fires ticks of the schedule at its present plan, which must take effect.
func (f *fixture) take(name string, ticks ...storage.NewTick) storage.Fired {
	f.Helper()
	fired := f.fire(f.s, fires(name, f.schedule(f.s, name).Plan, ticks...))[0]
	if !fired.Applied {
		f.Fatalf("a firing at the revision of schedule %q came to nothing", name)
	}
	return fired
}

func (f *fixture) ticks(s storage.Store, name string) []storage.Tick {
	f.Helper()
	out, err := f.scheduler(s).Ticks(f.ctx, name)
	f.must(err)
	return out
}

// sameTicks checks entries of a history.
func (f *fixture) sameTicks(what string, got, want []storage.Tick) {
	f.Helper()
	if len(got) != len(want) {
		f.Errorf("%s: %d entries, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if g, w := plainTick(got[i]), plainTick(want[i]); !reflect.DeepEqual(g, w) {
			f.Errorf("%s: entry %d is %+v, want %+v", what, i, g, w)
		}
	}
}

// plainTick gives zero fields of what is wanted the value that they stand for.
func plainTick(t storage.Tick) storage.Tick {
	if t.Until.IsZero() {
		t.Until = t.At
	}
	t.N = max(t.N, 1)
	t.At, t.Until, t.Noted = t.At.UTC(), t.Until.UTC(), t.Noted.UTC()
	return t
}

// samePlan checks a plan, but for its revision.
func (f *fixture) samePlan(what string, got, want storage.Plan) {
	f.Helper()
	want.Revision = got.Revision
	if g, w := plainPlan(got), plainPlan(want); g != w {
		f.Errorf("%s: the plan is %+v, want %+v", what, g, w)
	}
}

func plainPlan(p storage.Plan) storage.Plan {
	p.Next, p.Through = p.Next.UTC(), p.Through.UTC()
	return p
}

// lastJob checks of which tick a schedule has enqueued a job last, and which.
func (f *fixture) lastJob(what, name string, at time.Time, id storage.ID) {
	f.Helper()
	if s := f.schedule(f.s, name); !s.LastTick.Equal(at) || s.LastJob != id {
		f.Errorf("%s: the last job is %v of %v, want %v of %v", what, s.LastJob, s.LastTick, id, at)
	}
}

// sameSchedule checks a schedule.
func (f *fixture) sameSchedule(what string, got, want storage.ScheduleRecord) {
	f.Helper()
	for _, s := range []*storage.ScheduleRecord{&got, &want} {
		s.Plan, s.LastTick = plainPlan(s.Plan), s.LastTick.UTC()
		s.Job.DueAt = s.Job.DueAt.UTC()
		for _, b := range []*[]byte{&s.Job.Args, &s.Job.Headers, &s.Job.Policy} {
			if len(*b) == 0 {
				*b = nil
			}
		}
	}
	for _, p := range [][2]reflect.Value{
		{reflect.ValueOf(got), reflect.ValueOf(want)},
		{reflect.ValueOf(got.Schedule), reflect.ValueOf(want.Schedule)}, {reflect.ValueOf(got.Job), reflect.ValueOf(want.Job)},
	} {
		for i := range p[0].NumField() {
			name := p[0].Type().Field(i).Name
			if a, b := p[0].Field(i).Interface(), p[1].Field(i).Interface(); name != "Job" && name != "Schedule" && !reflect.DeepEqual(a, b) {
				f.Errorf("%s: %s is %s, want %s", what, name, show(a), show(b))
			}
		}
	}
}
