package storagetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// shiftSays is what StepClock does to jobs that wait.
const shiftSays = "What was counted from a later time counts from now: - A scheduled job with a Delay, or put back by an outcome with a DueAt, is due that Delay after now if its delay began after now"

// month is how far the clock of these cases is ahead, while it is wrong.
const month = 30 * 24 * time.Hour

// due checks when a job that is scheduled is due.
func (f *fixture) due(what string, id storage.ID, want time.Time) {
	f.Helper()
	if r := f.record(id); r.State != storage.Scheduled || !r.DueAt.Equal(want) {
		f.Errorf("%s: the job is %s, due at %v; want scheduled, %v", what, r.State, r.DueAt, want)
	}
}

// dueIn checks that jobs are due d after the time: leased then, and not before.
func (f *fixture) dueIn(what string, d time.Duration, ids ...storage.ID) {
	f.Helper()
	for _, id := range ids {
		f.due(what, id, f.now.Add(d))
	}
	f.later(d - time.Microsecond)
	f.order(what+", leased a microsecond early", leasedIDs(f.lease(f.s, 99)), nil)
	f.later(time.Microsecond)
	f.order(what+", leased when due", leasedIDs(f.lease(f.s, 99)), ids)
}

var shiftCases = []testCase{
	{"shift_delays", shiftSays, func(f *fixture) {
		f.timekeeper(f.s)
		f.later(month)
		ids := f.add(newJob(delay(time.Hour)), newJob(delay(2*time.Hour)), newJob(delay(2*month)))
		f.later(time.Second)
		ids = append(ids, f.add(newJob(delay(time.Hour)))...)
		f.later(-month)
		before := f.record(ids[0])
		f.stepClock(f.now)
		before.DueAt = f.now.Add(time.Hour)
		f.same("the job", f.record(ids[0]), before)
		f.counts(count(storage.Scheduled, 4))
		f.due("the longest", ids[2], f.now.Add(2*month))
		f.dueIn("one hour", time.Hour, pick(ids, 0, 3)...)
		f.dueIn("two hours", time.Hour, ids[1])
		f.dueIn("two months", 2*month-2*time.Hour, ids[2])
	}},

	{"shift_outcomes", shiftSays, func(f *fixture) {
		f.timekeeper(f.s)
		puts := []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeReturned}
		// Whether a job was enqueued with a DueAt does not matter once an outcome has given it another.
		f.add(newJob(), newJob(dueAt(f.now.Add(-time.Minute))), newJob(delay(time.Second)), newJob(dueAt(f.now.Add(time.Second))))
		f.later(month)
		var ids []storage.ID
		for i, l := range f.lease(f.s, len(puts)) {
			ids = append(ids, l.ID)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: puts[i], DueAt: f.now.Add(time.Hour)})
		}
		f.later(-month)
		f.stepClock(f.now)
		slices.SortFunc(ids, func(a, b storage.ID) int { return cmp.Compare(a.Key(), b.Key()) })
		f.dueIn("put back", time.Hour, ids...)
	}},

	{"shift_began_before", shiftSays, func(f *fixture) {
		f.timekeeper(f.s)
		start := f.now
		ids := f.add(newJob(delay(time.Hour)), newJob(delay(2*month)))
		l := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(3 * time.Hour)})
		f.later(time.Minute)
		ids = append(ids, f.add(newJob(delay(time.Hour)))...)
		f.later(month)
		f.pause("other", true)
		f.later(-month)
		f.stepClock(f.now)
		f.stepClock(f.now.Add(month))
		f.due("begun long before", ids[0], start.Add(time.Hour))
		f.due("due after the wrong time", ids[1], start.Add(2*month))
		f.due("a retry", l.ID, start.Add(3*time.Hour))
		f.due("begun at that moment", ids[2], f.now.Add(time.Hour))
		f.stepClock(f.now.Add(-time.Microsecond))
		f.due("begun a microsecond after it", ids[2], f.now.Add(time.Hour-time.Microsecond))
	}},

	{"shift_dates", `Dates stay: a DueAt that a job was enqueued with and has not reached,
DueAt is zero then. It makes a difference if the clock turns out to have been wrong, see [Timekeeper].`, func(f *fixture) {
		f.timekeeper(f.s)
		early := f.add(newJob(dueAt(f.now.Add(time.Hour))))[0]
		start := f.now
		f.later(month)
		late := f.add(newJob(dueAt(f.now.Add(time.Hour))))[0]
		f.later(-month)
		f.stepClock(f.now)
		f.stepClock(f.now.Add(-month))
		f.due("enqueued before", early, start.Add(time.Hour))
		f.due("enqueued at the wrong time", late, start.Add(month+time.Hour))
	}},

	{"shift_ticks", `Dates stay: a DueAt that a job was enqueued with and has not reached,
A scheduled job with a Delay`, func(f *fixture) {
		f.timekeeper(f.s)
		f.put(newSchedule("a"))
		start := f.now
		f.later(month)
		fired := f.take("a", tick(f.now, dueAt(f.now.Add(time.Hour))), tick(f.now, delay(time.Hour)))
		before := f.schedule(f.s, "a")
		history := f.ticks(f.s, "a")
		f.later(-month)
		f.stepClock(f.now)
		f.due("with a date", fired.Ticks[0].ID, start.Add(month+time.Hour))
		f.due("with a delay", fired.Ticks[1].ID, start.Add(time.Hour))
		f.sameSchedule("the schedule", f.schedule(f.s, "a"), before)
		f.sameTicks("its history", f.ticks(f.s, "a"), history)
	}},

	{"shift_ready", `A ready job that was due later is due now`, func(f *fixture) {
		f.timekeeper(f.s)
		before := f.add(newJob(dueAt(f.now.Add(-time.Hour))), newJob(delay(time.Hour)))
		start := f.now
		f.later(month)
		ids := f.add(newJob(), newJob(delay(time.Second)), newJob())
		f.later(time.Second)
		l := f.lease(f.s, 3)
		f.order("leased", leasedIDs(l), []storage.ID{before[0], before[1], ids[0]})
		for _, l := range l {
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeReturned})
		}
		f.now = start.Add(time.Minute)
		f.stepClock(f.now)
		f.is(storage.Ready, before...)
		f.is(storage.Ready, ids...)
		for i, id := range append(before, ids...) {
			want := f.now
			if i == 0 {
				want = start.Add(-time.Hour)
			}
			if got := f.record(id).DueAt; !got.Equal(want) {
				f.Errorf("ready job %d is due at %v, want %v", i, got, want)
			}
		}
		f.later(time.Second)
		next := f.add(newJob())
		f.order("leased", leasedIDs(f.lease(f.s, 9)), append(append(before, ids...), next...))
	}},

	{"shift_dead", `A dead job that died later died now.`, func(f *fixture) {
		f.timekeeper(f.s)
		first := f.bury(storage.ReasonPermanent, "no")
		start := f.now
		f.later(month)
		ids := []storage.ID{f.bury(storage.ReasonPermanent, "no"), f.bury(storage.ReasonPermanent, "no")}
		f.now = start.Add(time.Minute)
		want := f.record(ids[1])
		f.stepClock(f.now)
		want.EndedAt = f.now
		f.same("the dead job", f.record(ids[1]), want)
		f.order("dead letters", recordIDs(f.deadList(storage.Filter{}, 2)), []storage.ID{ids[1], ids[0], first})
		f.order("died before", recordIDs(f.deadList(storage.Filter{EndedBefore: f.now}, 2)), []storage.ID{first})
		f.order("died from then on", recordIDs(f.deadList(storage.Filter{EndedFrom: f.now}, 2)), []storage.ID{ids[1], ids[0]})
		f.counts(count(storage.Dead, 3))
	}},

	{"shift_causes", `A First of a cause that was later is now.`, func(f *fixture) {
		f.timekeeper(f.s)
		f.later(month)
		gone := f.bury(storage.ReasonPermanent, "no")
		left := f.dies(1, storage.ReasonPermanent, "no")[0].ID
		f.later(-month)
		f.stepClock(f.now)
		_, err := f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{gone}})
		f.must(err)
		f.sameCauses(f.causes(storage.Lane{}, 10), causeOf(storage.ReasonPermanent, "no", f.record(left)))
	}},

	{"shift_running", `The wall clock takes nobody's lease.
What was counted from a later time counts from now`, func(f *fixture) {
		f.timekeeper(f.s)
		b := f.db.Open()
		f.later(month)
		l := f.run(f.s, delay(-1))
		gone := f.run(f.db.Open())
		before := f.record(l.ID)
		if got := len(f.reclaim(b, 0)); got != 0 {
			f.Fatalf("%d leases were reclaimed of holders that live", got)
		}
		f.later(-month)
		f.stepClock(f.now)
		f.same("the running job", f.record(l.ID), before)
		if r := f.extend(f.s, l.Lease); r != storage.Applied {
			f.Errorf("extending its lease returned %d, want applied", r)
		}
		// The step has not prolonged the other, which nobody extends.
		f.takes(b, hold, gone.Lease, storage.Cut)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		f.stepClock(f.now)
		f.dueIn("its retry", time.Hour, l.ID)
	}},

	{"shift_again", shiftSays, func(f *fixture) {
		f.timekeeper(f.s)
		f.later(month)
		ids := f.add(newJob(delay(time.Hour)))
		f.later(-month / 2)
		for range 2 {
			f.stepClock(f.now)
			f.due("half way", ids[0], f.now.Add(time.Hour))
		}
		f.stepClock(f.now.Add(time.Minute))
		f.due("after a step to a later time", ids[0], f.now.Add(time.Hour))
		f.later(-month / 2)
		f.stepClock(f.now)
		f.dueIn("the second time", time.Hour, ids[0])
	}},

	{"shift_steps", `One call is one bounded step, first over the jobs whose key is greater than after: call again with after set to the result until that is zero.
shifting is true if a pass of StepClock was begun and not finished.`, func(f *fixture) {
		const n = 3000
		tk := f.timekeeper(f.s)
		f.later(month)
		absolute := f.now.Add(time.Hour)
		var jobs []storage.NewJob
		for i := range n {
			switch i % 3 {
			case 0:
				jobs = append(jobs, newJob(delay(time.Hour)))
			case 1:
				jobs = append(jobs, newJob())
			case 2:
				jobs = append(jobs, newJob(dueAt(absolute)))
			}
		}
		ids := f.add(jobs...)
		f.later(-month)
		right := f.now
		next, err := tk.StepClock(f.ctx, f.now, 0)
		f.must(err)
		if next == 0 {
			f.Fatalf("one step was enough for %d jobs", n)
		}
		f.clock("after the first step", f.s, right, true)
		f.must(f.s.Close())
		f.s = f.db.Open()
		f.clock("after the first step, and opening again", f.s, right, true)
		// So it begins from the start again, a while later.
		f.later(time.Second / 2)
		if steps := f.stepClock(f.now); steps < 2 {
			f.Errorf("%d step was enough for %d jobs", steps, n)
		}
		f.clock("after the pass", f.s, right, false)
		f.counts(count(storage.Ready, n/3), count(storage.Scheduled, n/3*2))
		for i, id := range ids {
			if i >= 30 && i < n-30 && i%97 != 0 && id.Key() != next {
				continue
			}
			r, began := f.record(id), f.now
			if id.Key() <= next {
				began = right
			}
			switch want := []time.Time{began.Add(time.Hour), began, absolute}[i%3]; {
			case !r.DueAt.Equal(want):
				f.Errorf("job %d of %d is due at %v, want %v", i, n, r.DueAt, want)
			case (r.State == storage.Ready) != (i%3 == 1):
				f.Errorf("job %d of %d is %s", i, n, r.State)
			}
		}
	}},

	{"shift_after", `One call is one bounded step, first over the jobs whose key is greater than after`, func(f *fixture) {
		tk := f.timekeeper(f.s)
		dead := f.bury(storage.ReasonPermanent, "no")
		f.later(month)
		all := f.add(times(4, newJob(delay(time.Hour)))...)
		late := f.bury(storage.ReasonPermanent, "no")
		wrong := f.now
		f.later(-month)
		next, err := tk.StepClock(f.ctx, f.now, all[1].Key())
		f.must(err)
		if next != 0 {
			f.Errorf("a step over a few jobs returned %d", next)
		}
		for i, id := range all {
			want := f.now
			if i < 2 {
				want = wrong
			}
			f.due("a delay", id, want.Add(time.Hour))
		}
		if got := f.record(late).EndedAt; !got.Equal(f.now) {
			f.Errorf("the dead job died at %v, want %v", got, f.now)
		}
		if got := f.record(dead).EndedAt; !got.Equal(f.now) {
			f.Errorf("the job dead before died at %v, want %v", got, f.now)
		}
	}},

	{"shift_causes_steps", `call again with after set to the result until that is zero.
A First of a cause that was later is now.`, func(f *fixture) {
		const n, moved = 1100, 10
		tk := f.timekeeper(f.s)
		f.later(month)
		f.buryAll(make([]string, n))
		dead := f.deadList(storage.Filter{}, n)
		f.later(-month)
		next, err := tk.StepClock(f.ctx, f.now, 0)
		f.must(err)
		slices.SortFunc(dead, func(a, b storage.Record) int { return cmp.Compare(b.ID.Key(), a.ID.Key()) })
		sel := storage.Selection{}
		for _, r := range dead[:moved] { // they come last
			sel.IDs = append(sel.IDs, r.ID)
		}
		step, err := f.s.Change(f.ctx, f.now, sel, storage.Edit{Queue: "a"})
		f.must(err)
		if step.N != moved {
			f.Fatalf("%d jobs were moved between two steps, want %d", step.N, moved)
		}
		for next != 0 {
			next, err = tk.StepClock(f.ctx, f.now, next)
			f.must(err)
		}
		all := f.causes(storage.Lane{}, 10)
		if len(all) != 2 {
			f.Fatalf("%d causes, want 2", len(all))
		}
		for _, c := range all {
			if !c.First.Equal(f.now) || !c.Last.Equal(f.now) {
				f.Errorf("the first job of queue %s died at %v, the last at %v, want %v", c.Queue, c.First, c.Last, f.now)
			}
		}
	}},

	{"shift_dead_steps", `call again with after set to the result until that is zero.
A dead job that died later died now.`, func(f *fixture) {
		const n = 1100
		f.timekeeper(f.s)
		f.later(month)
		f.add(times(n, newJob())...)
		live := f.add(newJob(delay(time.Hour)))[0]
		var finish []storage.Finish
		for _, l := range f.lease(f.s, n) {
			finish = append(finish, died(l.Lease, storage.ReasonPermanent, "no"))
		}
		f.exchange(f.s, storage.Exchange{Finish: finish})
		f.later(-month)
		f.stepClock(f.now)
		f.clock("after the pass", f.s, f.now, false)
		f.due("the one that lives", live, f.now.Add(time.Hour))
		dead := f.deadList(storage.Filter{}, n)
		if len(dead) != n {
			f.Errorf("%d are dead, want %d", len(dead), n)
		}
		for _, r := range dead {
			if !r.EndedAt.Equal(f.now) {
				f.Fatalf("job %d died at %v, want %v", r.Key, r.EndedAt, f.now)
			}
		}
	}},
}
