package storagetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

var fireCases = []testCase{
	{"fire_plan", `Firing moves one schedule on, if it is at Revision: its Next, Through and Wall are set,
It means nothing to the Store.
Plan is that of the schedule after the call.
Applied is true if the firing took effect.`, func(f *fixture) {
		for _, paused := range []bool{false, true} {
			name := fmt.Sprint("paused ", paused)
			s := full(f, name)
			s.Paused = paused
			s.Revision = f.put(s)
			for _, p := range []storage.Plan{
				{Next: f.now.Add(2 * time.Hour), Through: f.now.Add(time.Hour), Wall: "at % é '\" noon"},
				{Next: f.now.Add(-time.Hour)},
				{Through: f.now.Add(-2 * time.Hour)},
			} {
				p.Revision = s.Revision
				fired := f.fire(f.s, fires(name, p))[0]
				if !fired.Applied {
					f.Fatalf("a firing without ticks came to nothing")
				}
				s.Plan = storage.Plan{Revision: fired.Plan.Revision, Paused: paused, Next: p.Next, Through: p.Through, Wall: p.Wall}
				f.samePlan("the answer", fired.Plan, s.Plan)
				f.sameSchedule("the schedule after it", f.schedule(f.s, name), s)
				if got := f.schedule(f.s, name); got.Next.IsZero() != p.Next.IsZero() || got.Through.IsZero() != p.Through.IsZero() {
					f.Errorf("the plan is %+v, want %+v", got.Plan, p)
				}
			}
			f.sameTicks("the history", f.ticks(f.s, name), nil)
		}
		f.counts()
	}},

	{"fire_jobs", `and the ticks are taken in order. Each becomes an entry of the history, and one that has a Job enqueues it.
Ticks are those of the firing as they are in the history
when the entry was made
ID is the job that was enqueued, or that holds the unique key.
nil for a tick that is skipped
LastTick is the tick of which a job was enqueued last, and LastJob that job
Slices passed in belong to the caller again when the call returns`, func(f *fixture) {
		f.put(full(f, "a"))
		at := f.now.Add(-3 * time.Minute)
		ready := tick(at, func(n *storage.NewJob) { *n = full(f, "a").Job })
		later := manual(at.Add(time.Minute), dueAt(f.now.Add(1)), priority(3))
		last := tick(at.Add(2*time.Minute), func(n *storage.NewJob) { n.Args, n.DueAt = noise(3000), f.now })
		missed := storage.NewTick{At: at.Add(3 * time.Minute), Taken: storage.TickMissed}
		f.now = f.now.Add(time.Second)
		// It is SkipOverlap, so there is one firing each but for the manual tick.
		fired := f.take("a", ready, later)
		f.lastJob("after the first firing", "a", later.At, fired.Ticks[1].ID)
		clear(ready.Job.Args)
		f.keep(keep, f.s, storage.Finish{Lease: f.leaseFrom(ready).Lease, Outcome: storage.OutcomeDone})
		f.keep(keep, f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.later(time.Second)
		more := f.take("a", last, missed)

		want := []storage.Tick{
			{At: missed.At, Taken: storage.TickMissed, Noted: f.now},
			{At: last.At, Taken: storage.TickFired, Noted: f.now, ID: more.Ticks[0].ID},
			{At: later.At, Taken: storage.TickManual, Noted: f.now.Add(-time.Second), ID: fired.Ticks[1].ID},
			{At: at, Taken: storage.TickFired, Noted: f.now.Add(-time.Second), ID: fired.Ticks[0].ID},
		}
		f.sameTicks("the history", f.ticks(f.s, "a"), want)
		f.sameTicks("the first answer", fired.Ticks, []storage.Tick{want[3], want[2]})
		f.sameTicks("the second answer", more.Ticks, []storage.Tick{want[1], want[0]})
		for _, plan := range []storage.Plan{fired.Plan, more.Plan, f.schedule(f.db.Open(), "a").Plan} {
			f.samePlan("the schedule", plan, storage.Plan{
				Paused: true, Next: full(f, "").Next.Add(-2 * time.Second), Through: full(f, "").Through.Add(-2 * time.Second), Wall: full(f, "").Wall,
			})
		}
		f.lastJob("after the second firing", "a", last.At, more.Ticks[0].ID)
		job := full(f, "a").Job
		f.same("the first job", f.record(fired.Ticks[0].ID), storage.Record{
			Key: fired.Ticks[0].ID.Key(), ID: fired.Ticks[0].ID, Queue: job.Queue, Kind: job.Kind, State: storage.Done, Priority: job.Priority,
			Counters: storage.Counters{Attempt: 1}, CreatedAt: f.now.Add(-time.Second), EndedAt: f.now.Add(-time.Second), Timeout: job.Timeout,
			Unique: job.Unique, Policy: job.Policy, Args: job.Args, Headers: job.Headers, Tags: []string{"a:é", "b%"}, OnExpire: job.OnExpire,
		})
		f.same("the last job", f.record(more.Ticks[0].ID), storage.Record{
			Key: more.Ticks[0].ID.Key(), ID: more.Ticks[0].ID, Queue: queue, Kind: kind, State: storage.Ready,
			CreatedAt: f.now, DueAt: last.Job.DueAt, Args: noise(3000),
		})
		if e := f.enqueue(newJob(unique(job.Unique)))[0]; e != (storage.Enqueued{ID: fired.Ticks[0].ID, Duplicate: true}) {
			f.Errorf("its unique key, held for ever, returned %v", e)
		}
	}},

	{"fire_due", `A job due at or before now becomes ready, one due later scheduled, unless its group blocks it.
A job with a Delay is due that long after now.`, func(f *fixture) {
		f.put(newSchedule("a"))
		fired := f.take("a", tick(f.now), tick(f.now, dueAt(f.now.Add(time.Hour))), tick(f.now, delay(time.Minute)))
		ids := []storage.ID{fired.Ticks[0].ID, fired.Ticks[1].ID, fired.Ticks[2].ID}
		f.is(storage.Ready, ids[0])
		f.is(storage.Scheduled, ids[1:]...)
		f.later(time.Minute)
		f.order("leased after a minute", leasedIDs(f.lease(f.s, 9)), pick(ids, 0, 2))
		f.later(time.Hour - time.Minute)
		f.order("leased after an hour", leasedIDs(f.lease(f.s, 9)), pick(ids, 1))
	}},

	{"fire_start", `A firing with Start takes effect only if no instance has started the schedule, but for those that are gone.
Then this instance has started it, also if the firing has taken no effect because another had.
An instance is gone once it is closed and no handler of it runs, or its process has ended.
Who drops a schedule and adds it again adds one that nobody has started.
It is that of a firing with Start that takes no effect because an instance has started the schedule.`, func(f *fixture) {
		f.put(newSchedule("a"))
		f.put(newSchedule("b"))
		starts := func(what string, s storage.Store, name string, want bool) {
			f.Helper()
			before := f.schedule(s, name)
			p := storage.Plan{Revision: before.Revision, Next: f.now.Add(time.Hour), Through: f.now}
			fi := fires(name, p, storage.NewTick{At: f.now, Taken: storage.TickStart, Job: tick(f.now).Job})
			fi.Start = true
			stale := fi
			stale.Revision--
			if f.fire(s, stale)[0].Applied {
				f.Errorf("%s: a start at another revision took effect", what)
			}
			out := f.fire(s, fi, fi) // the second by an instance that has started it
			if out[0].Applied != want || out[1].Applied {
				f.Fatalf("%s: applied: %v, then %v; want %v, then false", what, out[0].Applied, out[1].Applied, want)
			}
			after := f.schedule(s, name)
			if !want {
				f.sameSchedule(what, after, before)
			}
			for _, fired := range out {
				if fired.Plan.Revision != after.Revision || (after.Revision == before.Revision) == want {
					f.Errorf("%s: revision %d in the answer, %d of the schedule, %d before", what, fired.Plan.Revision, after.Revision, before.Revision)
				}
			}
		}
		a, b := f.db.Open(), f.db.Open()
		starts("the first", a, "a", true)
		f.later(time.Second)
		starts("the same one again", a, "a", false)
		starts("another beside it", b, "a", false)
		starts("another schedule", b, "b", true)
		f.db.Kill(a)
		starts("one more, beside one that was refused", f.s, "a", false)
		f.must(b.Close())
		f.must(f.s.Close())
		f.s = f.db.Open()
		starts("when all are gone", f.s, "a", true)
		starts("when the one that started it is closed", f.s, "b", true)
		f.take("a", tick(f.now)) // which is no start
		c := f.db.Open()
		starts("beside it", c, "a", false)
		f.drop("a")
		f.put(newSchedule("a"))
		starts("one that was added again", c, "a", true)
		f.db.Kill(f.s)
		f.db.Reboot(c)
		f.s = f.db.Open()
		starts("after the machine went down", f.s, "a", true)
		var states []storage.TickOutcome
		for _, t := range f.ticks(f.s, "a") {
			states = append(states, t.Taken)
		}
		if !slices.Equal(states, []storage.TickOutcome{storage.TickStart, storage.TickStart}) {
			f.Errorf("the history is %v", states)
		}
	}},

	{"fire_start_running", `An instance is gone once it is closed and no handler of it runs`, func(f *fixture) {
		f.put(newSchedule("a"))
		start := func(s storage.Store) bool {
			f.Helper()
			fi := fires("a", f.schedule(s, "a").Plan, tick(f.now))
			fi.Start = true
			return f.fire(s, fi)[0].Applied
		}
		a := f.db.Open()
		if !start(a) {
			f.Error("the first start took no effect")
		}
		l := f.leaseOne(a).Lease
		f.begin(a, l)
		f.must(a.Close())
		if start(f.s) {
			f.Error("a start took effect while a handler of the one before ran")
		}
		b := f.db.Open()
		f.ended(a, l)
		f.must(f.s.Close())
		f.s = b
		if !start(b) {
			f.Error("a start took no effect after the handler had returned")
		}
	}},

	{"fire_order", `Fire takes firings in order, all in one transaction, and answers for each in the same order. A firing whose schedule is at another revision changes nothing.
Its Revision is zero if there is no schedule of this name.
nil unless Applied.`, func(f *fixture) {
		var firings []storage.Firing
		for i := range 30 {
			name := fmt.Sprint("schedule ", 30-i)
			s := newSchedule(name, func(s *storage.ScheduleRecord) { s.Next = f.now.Add(time.Minute) })
			s.Revision = f.put(s)
			fi := fires(name, s.Plan)
			for t := range 5 {
				fi.Ticks = append(fi.Ticks, tick(f.now.Add(time.Duration(t)*time.Second)))
			}
			firings = append(firings, fi)
		}
		before := f.schedule(f.s, "schedule 20")
		firings[10].Revision++
		firings[10].Next = f.now.Add(time.Hour)
		firings[10].Ticks[0].Job.Unique = "untaken"
		twice := slices.Insert(slices.Clone(firings), 12, firings[11], storage.Firing{Name: "unheard of", Ticks: firings[0].Ticks})
		twice = append([]storage.Firing{{Name: firings[0].Name, Revision: 1 << 40}}, twice...)
		var last int64
		for i, fired := range f.fire(f.s, twice...) {
			switch i {
			case 0, 11, 13, 14:
				if fired.Applied {
					f.Errorf("firing %d at the wrong revision was applied", i)
				}
			default:
				if !fired.Applied {
					f.Fatalf("firing %d came to nothing", i)
				}
				for _, t := range fired.Ticks {
					if t.ID.Key() <= last {
						f.Errorf("firing %d enqueued job %d after %d", i, t.ID.Key(), last)
					}
					last = t.ID.Key()
				}
			}
			if i == 14 {
				if fired.Plan != (storage.Plan{}) {
					f.Errorf("a schedule that there is not has the plan %+v", fired.Plan)
				}
				continue
			}
			if now := f.schedule(f.s, twice[i].Name); plainPlan(fired.Plan) != plainPlan(now.Plan) {
				f.Errorf("answer %d has the plan %+v, the schedule %+v", i, fired.Plan, now.Plan)
			}
		}
		f.sameSchedule("the schedule at another revision", f.schedule(f.s, "schedule 20"), before)
		f.sameTicks("its history", f.ticks(f.s, "schedule 20"), nil)
		f.sameTicks("the history of none", f.ticks(f.s, "unheard of"), nil)
		f.add(newJob(unique("untaken")))
		f.counts(count(storage.Ready, 29*5+1))
		f.fire(f.s)
	}},

	{"fire_duplicate", `A tick whose unique key is held is skipped as [TickDuplicate].
ID is the job that was enqueued, or that holds the unique key.
LastTick is the tick of which a job was enqueued last, and LastJob that job`, func(f *fixture) {
		holder := f.add(newJob(unique("held")))[0]
		f.put(newSchedule("a"))
		f.put(newSchedule("b"))
		at := func(i int) time.Time { return f.now.Add(time.Duration(i) * time.Second) }
		first := f.take("a", tick(at(0), unique("u")))
		a, b := f.schedule(f.s, "a"), f.schedule(f.s, "b")
		fired := f.fire(f.s,
			fires("a", a.Plan, tick(at(1), unique("u")), tick(at(2), unique("held")), manual(at(3), unique("held")), tick(at(4), unique("v")), tick(at(5), unique("v"))),
			fires("b", b.Plan, tick(at(6), unique("v"))),
		)
		v := fired[0].Ticks[3].ID
		entry := func(i int, taken storage.TickOutcome, id storage.ID) storage.Tick {
			return storage.Tick{At: at(i), Taken: taken, Noted: f.now, ID: id}
		}
		f.sameTicks("the ticks of a", fired[0].Ticks, []storage.Tick{
			entry(1, storage.TickDuplicate, first.Ticks[0].ID), entry(2, storage.TickDuplicate, holder), entry(3, storage.TickDuplicate, holder),
			entry(4, storage.TickFired, v), entry(5, storage.TickDuplicate, v),
		})
		f.sameTicks("the ticks of b", fired[1].Ticks, []storage.Tick{entry(6, storage.TickDuplicate, v)})
		f.sameTicks("the history of b", f.ticks(f.s, "b"), fired[1].Ticks)
		f.lastJob("a", "a", at(4), v)
		f.lastJob("b", "b", time.Time{}, storage.ID{})
		f.counts(count(storage.Ready, 3))
	}},

	{"fire_ranges", `NewTick is a tick to take, or a number of them in a row to note as skipped for one reason.
the last of them; zero: At
how many; zero: 1
Ticks returns the history of a schedule, the latest entry first`, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		given := []storage.NewTick{
			{At: f.now.Add(-time.Hour), Until: f.now.Add(-time.Minute), N: 1 << 40, Taken: storage.TickMissed},
			tick(f.now),
			{At: f.now.Add(-2 * time.Hour), Until: f.now.Add(-time.Hour), N: 2, Taken: storage.TickPaused},
			{At: f.now, Taken: storage.TickMissed},
		}
		fired := f.take("a", given...)
		var want []storage.Tick
		for _, t := range given {
			want = append(want, storage.Tick{At: t.At, Until: t.Until, N: t.N, Taken: t.Taken, Noted: f.now})
		}
		want[1].ID = fired.Ticks[1].ID
		f.sameTicks("the answer", fired.Ticks, want)
		slices.Reverse(want)
		f.sameTicks("the history", f.ticks(f.s, "a"), want)
		f.lastJob("the schedule", "a", f.now, fired.Ticks[1].ID)
	}},

	{"fire_limit", `Ticks returns the history of a schedule, the latest entry first, at most [TickLimit]. It is empty if there is no such schedule.
TickLimit is how many entries of its history a schedule keeps; the oldest go first.`, func(f *fixture) {
		f.put(newSchedule("b"))
		f.take("b", tick(f.now))
		f.put(newSchedule("a"))
		n := 0
		for _, more := range []int{1, storage.TickLimit - 2, 1, 1, storage.TickLimit, 2*storage.TickLimit + 7, 3} {
			f.later(time.Second)
			var ticks []storage.NewTick
			for range more {
				n++
				// The time of an entry is no measure for its age: clocks go back.
				ticks = append(ticks, storage.NewTick{At: f.now.Add(-time.Duration(n) * time.Hour), N: int64(n), Taken: storage.TickMissed})
			}
			if more == 3 {
				ticks[1].Taken, ticks[1].Job = storage.TickManual, tick(f.now).Job
			}
			fired := f.take("a", ticks...)
			if more == 3 && fired.Ticks[1].ID.IsZero() {
				f.Errorf("the answer names no job")
			}
			got := f.ticks(f.s, "a")
			if len(got) != min(n, storage.TickLimit) {
				f.Fatalf("after %d entries there are %d in the history", n, len(got))
			}
			for i, t := range got {
				if plainTick(t).N != int64(n-i) {
					f.Fatalf("after %d entries the one at %d is the %dth", n, i, t.N)
				}
			}
		}
		if got := f.ticks(f.s, "b"); len(got) != 1 {
			f.Errorf("the other schedule has a history of %d", len(got))
		}
		f.sameTicks("the history of none", f.ticks(f.s, "c"), nil)
	}},

	{"fire_concurrent", `A change names the revision that it was made for, and changes nothing if the schedule is at another: so each tick becomes one job, however many processes wait for it.
It is safe for concurrent use.`, func(f *fixture) {
		const n = storage.TickLimit
		f.put(newSchedule("a", func(s *storage.ScheduleRecord) { s.Next = f.now }))
		stores := []storage.Scheduler{f.scheduler(f.s), f.scheduler(f.db.Open())}
		start := f.schedule(f.s, "a").Plan
		end := f.now.Add(n * time.Second)
		var wg sync.WaitGroup
		var applied atomic.Int64
		for i := range 8 {
			wg.Go(func() {
				for plan := start; plan.Next.Before(end); {
					p := plan
					p.Next, p.Through = plan.Next.Add(time.Second), plan.Next
					fired, err := stores[i%2].Fire(f.ctx, f.now, []storage.Firing{fires("a", p, tick(plan.Next))})
					if err != nil || len(fired) != 1 || !fired[0].Plan.Next.After(plan.Next) {
						f.Errorf("Fire at %v returned %v, %v", plan.Next, fired, err)
						return
					}
					if fired[0].Applied {
						applied.Add(1)
					}
					plan = fired[0].Plan
				}
			})
		}
		wg.Wait()
		if got := applied.Load(); got != n {
			f.Errorf("%d firings were applied, want %d", got, n)
		}
		f.counts(count(storage.Ready, n))
		for i, t := range f.ticks(f.s, "a") {
			if want := end.Add(-time.Duration(i+1) * time.Second); !t.At.Equal(want) || t.Taken != storage.TickFired {
				f.Errorf("entry %d is %s at %v, want fired at %v", i, t.Taken, t.At, want)
			}
		}
	}},
}

// leaseFrom leases one job of the queue and kind of t's.
func (f *fixture) leaseFrom(t storage.NewTick) storage.Leased {
	f.Helper()
	src := storage.Want{Queues: []string{t.Job.Queue}, Kinds: []string{t.Job.Kind}}
	got := f.exchange(f.s, storage.Exchange{Wants: wants(1, src)}).Leased
	if len(got) != 1 {
		f.Fatalf("no job was leased, want one")
	}
	return got[0]
}
