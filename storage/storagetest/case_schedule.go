package storagetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// noise returns n bytes that are no text.
func noise(n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{2})
	_, _ = random.Read(b)
	return b
}

// full is a schedule with something in every field.
func full(f *fixture, name string) storage.ScheduleRecord {
	return storage.ScheduleRecord{Schedule: storage.Schedule{
		Name: name, Spec: "@every 1s % é '\"", Zone: "nowhere/at all", Missed: "all(7)", SkipOverlap: true, Jitter: 90 * time.Second,
		Job: storage.NewJob{
			Queue: "a.b/c:d-e_f", Kind: "K", Priority: -100, Timeout: 1500 * time.Millisecond, Args: noise(256 << 10),
			Headers: noise(16 << 10), Policy: []byte{0, 0xff, 0xfe, '{'}, Unique: "Key%_ '\"\\ é", UniqueScope: storage.UniqueForever,
			Tags: []string{"b%", "a:é"}, StartWithin: time.Hour, FinishWithin: 90 * time.Minute, OnExpire: storage.Expired,
		},
		Plan: storage.Plan{Paused: true, Next: f.now.Add(time.Hour), Through: f.now.Add(-time.Minute), Wall: "12:00 nowhere/at all"},
	}}
}

var scheduleCases = []testCase{
	{"schedule_add", `PutSchedule adds s if its Revision is zero
It returns the new revision, which is positive, or zero if nothing was changed because the schedule is at another revision, exists already, or exists no more.
Spec, Zone, Missed and Jitter mean nothing to the Store.
empty if nothing does
Slices passed in belong to the caller again when the call returns; slices returned belong to the caller.`, func(f *fixture) {
		given := full(f, "a")
		want := full(f, "a")
		want.Revision = f.put(given)
		for _, b := range [][]byte{given.Job.Args, given.Job.Headers, given.Job.Policy} {
			clear(b)
		}
		clear(given.Job.Tags)
		f.sameSchedule("the schedule", f.schedule(f.s, "a"), want)
		f.sameSchedule("the schedule in another process", f.schedule(f.db.Open(), "a"), want)
		clear(f.schedule(f.s, "a").Job.Args)
		f.sameSchedule("the schedule after its copy was changed", f.schedule(f.s, "a"), want)
		for _, s := range []storage.ScheduleRecord{full(f, "a"), newSchedule("a")} {
			if r := f.tryPut(f.s, s); r != 0 {
				f.Errorf("adding it again returned revision %d, want 0", r)
			}
		}
		f.sameSchedule("the schedule after it was added again", f.schedule(f.s, "a"), want)
		f.counts()
	}},

	{"schedule_bare", `Next is the next tick; zero if there is none, or none is known yet.
Through is the time up to which all ticks are decided; zero if none is.
Args []byte // not nil
Headers []byte // nil: none
Policy []byte // nil: decided when an attempt fails`, func(f *fixture) {
		s := newSchedule("a", func(s *storage.ScheduleRecord) { s.Spec, s.Zone, s.Missed, s.Job.Args = "", "", "", []byte{} })
		s.Revision = f.put(s)
		got := f.schedule(f.s, "a")
		f.sameSchedule("the schedule", got, s)
		if got.Job.Args == nil || got.Job.Headers != nil || got.Job.Policy != nil || got.Job.Tags != nil {
			f.Errorf("args %#v, headers %#v, policy %#v, tags %#v; want the last three nil, the first not",
				got.Job.Args, got.Job.Headers, got.Job.Policy, got.Job.Tags)
		}
		if !got.Next.IsZero() || !got.Through.IsZero() || !got.LastTick.IsZero() || !got.LastJob.IsZero() {
			f.Errorf("the plan is %+v, want it zero but for the revision", got.Plan)
		}
	}},

	{"schedule_replace", `else it replaces the schedule of that name and revision; its history stays.
LastTick is the tick of which a job was enqueued last, and LastJob that job; zero if there was none.
or zero if nothing was changed because the schedule is at another revision, exists already, or exists no more.`, func(f *fixture) {
		first := f.put(newSchedule("a"))
		b := f.put(newSchedule("b"))
		at := f.now.Add(-time.Minute)
		fired := f.take("a", tick(at))
		history := f.ticks(f.s, "a")
		for _, s := range []storage.ScheduleRecord{full(f, "a"), newSchedule("a")} {
			s.Revision = f.schedule(f.s, "a").Revision
			s.Revision = f.put(s)
			s.LastTick, s.LastJob = at, fired.Ticks[0].ID
			f.sameSchedule("the schedule replaced", f.schedule(f.s, "a"), s)
			f.sameTicks("its history", f.ticks(f.s, "a"), history)
		}
		before := f.schedule(f.s, "a")
		for _, revision := range []int64{0, first, fired.Plan.Revision, b, before.Revision + 1, -1} {
			s := full(f, "a")
			s.Revision = revision
			if r := f.tryPut(f.s, s); r != 0 {
				f.Errorf("PutSchedule at revision %d of one at %d returned %d, want 0", revision, before.Revision, r)
			}
		}
		f.sameSchedule("the schedule after puts at other revisions", f.schedule(f.s, "a"), before)
		f.drop("a")
		if r := f.tryPut(f.s, before); r != 0 {
			f.Errorf("PutSchedule of one that exists no more returned revision %d, want 0", r)
		}
		if all, err := f.scheduler(f.s).Schedules(f.ctx); err != nil || len(all) != 1 || all[0].Revision != b {
			f.Errorf("Schedules returned %v, %v; want only b, at revision %d", all, err, b)
		}
	}},

	{"schedule_revision", `Each schedule has a revision, which every change of it raises.`, func(f *fixture) {
		f.put(newSchedule("other"))
		last := f.put(newSchedule("a"))
		for range 3 {
			for what, change := range map[string]func() int64{
				"replacing it": func() int64 { return f.put(f.schedule(f.s, "a")) },
				"firing":       func() int64 { return f.take("a", tick(f.now)).Plan.Revision },
				"moving it on": func() int64 {
					p := storage.Plan{Revision: last, Next: f.now.Add(time.Hour), Through: f.now}
					return f.fire(f.s, fires("a", p))[0].Plan.Revision
				},
			} {
				f.later(time.Second)
				revision := change()
				if got := f.schedule(f.s, "a").Revision; revision <= last || got != revision {
					f.Errorf("%s returned revision %d and left %d, after %d", what, revision, got, last)
				}
				last = revision
			}
		}
	}},

	{"schedule_drop", `DropSchedule deletes a schedule with its history; jobs that it has enqueued go on.
It returns [ErrNotFound] if there is no schedule of this name.
A schedule that is added later under the same name never has a revision that was given before.`, func(f *fixture) {
		sc := f.scheduler(f.s)
		f.put(newSchedule("b", func(s *storage.ScheduleRecord) { s.Next = f.now }))
		kept := f.take("b", tick(f.now))
		for range 3 {
			f.put(newSchedule("a"))
			f.sameTicks("the history of a new one", f.ticks(f.s, "a"), nil)
			id := f.take("a", tick(f.now), tick(f.now)).Ticks[0].ID
			f.drop("a")
			for _, name := range []string{"a", "", "A"} {
				if err := sc.DropSchedule(f.ctx, f.now, name); !errors.Is(err, storage.ErrNotFound) {
					f.Errorf("DropSchedule of %q, which is not there, returned %v", name, err)
				}
			}
			f.sameTicks("the history of one that was dropped", f.ticks(f.s, "a"), nil)
			f.is(storage.Ready, id)
			f.must(f.s.Close()) // what was given before outlives the process
			f.s = f.db.Open()
			sc = f.scheduler(f.s)
			f.put(newSchedule("a"))
			f.samePlan("one that was added again", f.schedule(f.s, "a").Plan, storage.Plan{})
			f.sameTicks("the history of one that was added again", f.ticks(f.s, "a"), nil)
			f.take("a", tick(f.now))
			f.drop("a")
		}
		f.sameTicks("the history of the other", f.ticks(f.s, "b"), kept.Ticks)
		f.counts(count(storage.Ready, 10))
	}},

	{"schedule_one", `Schedule returns one schedule, and [ErrNotFound] if there is no schedule of this name.
slices returned belong to the caller.`, func(f *fixture) {
		sc := f.scheduler(f.s)
		want := full(f, "b")
		f.put(newSchedule("a"))
		want.Revision = f.put(want)
		got, err := sc.Schedule(f.ctx, "b")
		f.must(err)
		f.sameSchedule("the schedule", got, want)
		clear(got.Job.Args)
		f.sameSchedule("the schedule after its copy was changed", f.schedule(f.s, "b"), want)
		f.drop("a")
		for _, name := range []string{"a", "", "B"} {
			if got, err := sc.Schedule(f.ctx, name); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("Schedule of %q, which is not there, returned %v, %v", name, got, err)
			}
		}
	}},

	{"schedule_list", `Schedules returns all schedules, sorted by name.
when it returns nil all of it is durable`, func(f *fixture) {
		if all, err := f.scheduler(f.s).Schedules(f.ctx); err != nil || len(all) != 0 {
			f.Errorf("Schedules of an empty database returned %v, %v", all, err)
		}
		for _, name := range []string{"c", "a/b", "B", "b", "a", "0"} {
			f.put(newSchedule(name, func(s *storage.ScheduleRecord) { s.Job.Args = []byte(name) }))
		}
		f.drop("c")
		f.take("b", tick(f.now))
		entries := f.ticks(f.s, "b")
		f.must(f.s.Close())
		f.s = f.db.Open()
		all, err := f.scheduler(f.s).Schedules(f.ctx)
		f.must(err)
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
			if string(s.Job.Args) != s.Name || s.Revision == 0 {
				f.Errorf("schedule %q has args %q and revision %d", s.Name, s.Job.Args, s.Revision)
			}
		}
		if want := []string{"0", "B", "a", "a/b", "b"}; !slices.Equal(names, want) {
			f.Errorf("Schedules returned %q, want %q", names, want)
		}
		f.sameTicks("the history after opening again", f.ticks(f.s, "b"), entries)
	}},

	{"schedule_microseconds", `Times are kept in whole microseconds; due times are rounded up, so that no job starts early.`, func(f *fixture) {
		odd := f.now.Add(1)
		near := func(what string, got, want time.Time) {
			f.Helper()
			if d := got.Sub(want); got.Nanosecond()%1000 != 0 || d >= time.Microsecond || d <= -time.Microsecond {
				f.Errorf("%s is %v, want whole microseconds near %v", what, got, want)
			}
		}
		f.put(newSchedule("a", func(s *storage.ScheduleRecord) { s.Next, s.Through = odd, odd }))
		p := f.schedule(f.s, "a").Plan
		near("Next", p.Next, odd)
		near("Through", p.Through, odd)
		exact := f.now
		f.now = odd
		fired := f.fire(f.s, fires("a", storage.Plan{Revision: p.Revision, Next: odd, Through: odd}, tick(odd, dueAt(odd.Add(time.Second)))))[0]
		f.now = exact
		for _, p := range []storage.Plan{fired.Plan, f.schedule(f.s, "a").Plan} {
			near("Next after the firing", p.Next, odd)
			near("Through after the firing", p.Through, odd)
		}
		near("LastTick", f.schedule(f.s, "a").LastTick, odd)
		near("the tick", f.ticks(f.s, "a")[0].At, odd)
		near("the time it was noted", f.ticks(f.s, "a")[0].Noted, odd)
		if got, want := f.record(fired.Ticks[0].ID).DueAt, exact.Add(time.Second+time.Microsecond); !got.Equal(want) {
			f.Errorf("its job is due at %v, want %v", got, want)
		}
	}},

	{"schedule_calls", `later ones return [ErrClosed]
A context that ends before a write has begun withdraws it and returns the context's error`, func(f *fixture) {
		s := f.db.Open()
		sc := f.scheduler(s)
		revision := f.put(newSchedule("a"))
		changes := map[string]func(ctx context.Context) error{
			"PutSchedule": func(ctx context.Context) error {
				_, err := sc.PutSchedule(ctx, f.now, newSchedule("b").Schedule)
				return err
			},
			"Fire": func(ctx context.Context) error {
				_, err := sc.Fire(ctx, f.now, []storage.Firing{fires("a", storage.Plan{Revision: revision}, tick(f.now))})
				return err
			},
			"DropSchedule": func(ctx context.Context) error { return sc.DropSchedule(ctx, f.now, "a") },
		}
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		for name, call := range changes {
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				f.Errorf("%s with a cancelled context returned %v", name, err)
			}
		}
		f.must(s.Close())
		changes["Schedule"] = func(ctx context.Context) error { _, err := sc.Schedule(ctx, "a"); return err }
		changes["Schedules"] = func(ctx context.Context) error { _, err := sc.Schedules(ctx); return err }
		changes["Ticks"] = func(ctx context.Context) error { _, err := sc.Ticks(ctx, "a"); return err }
		for name, call := range changes {
			if err := call(f.ctx); !errors.Is(err, storage.ErrClosed) {
				f.Errorf("%s after Close returned %v, want ErrClosed", name, err)
			}
		}
		all, err := f.scheduler(f.s).Schedules(f.ctx)
		if err != nil || len(all) != 1 || all[0].Revision != revision {
			f.Errorf("Schedules returned %v, %v; want a as it was, at revision %d", all, err, revision)
		}
		f.counts()
	}},

	{"schedule_concurrent_adds", `PutSchedule adds s if its Revision is zero
exists already
It is safe for concurrent use.`, func(f *fixture) {
		stores := []storage.Scheduler{f.scheduler(f.s), f.scheduler(f.db.Open())}
		revisions := make([]int64, 16)
		var wg sync.WaitGroup
		for i := range revisions {
			wg.Go(func() {
				var err error
				revisions[i], err = stores[i%2].PutSchedule(f.ctx, f.now, newSchedule("a", func(s *storage.ScheduleRecord) { s.Job.Args = []byte{byte(i)} }).Schedule)
				if err != nil {
					f.Errorf("PutSchedule: %v", err)
				}
			})
		}
		wg.Wait()
		got := f.schedule(f.s, "a")
		for i, r := range revisions {
			if added := r != 0; added != (got.Job.Args[0] == byte(i)) || added && r != got.Revision {
				f.Errorf("caller %d was given revision %d; there is the one of caller %d, at revision %d", i, r, got.Job.Args[0], got.Revision)
			}
		}
	}},
}
