package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// historian begins to look at the samples of the store.
func (f *fixture) historian() {
	f.Helper()
	if _, ok := f.s.(storage.Historian); !ok {
		f.skip("storage.Historian")
	}
	f.samples("at first", time.Time{})
}

// samples checks from when on there are samples, and returns these.
func (f *fixture) samples(what string, since time.Time, want ...time.Time) []storage.Sample {
	f.Helper()
	got, err := f.s.(storage.Historian).History(f.ctx, since)
	f.must(err)
	if !slices.EqualFunc(got, want, func(s storage.Sample, at time.Time) bool { return s.At.Equal(at) }) {
		f.Fatalf("%s: the samples since %v are %+v, want those of %v", what, since, got, want)
	}
	return got
}

// numbers checks a sample.
func (f *fixture) numbers(what string, s storage.Sample, want ...storage.SampledLane) {
	f.Helper()
	if !slices.Equal(s.Lanes, want) {
		f.Errorf("%s: the sample is\n%+v, want\n%+v", what, s.Lanes, want)
	}
}

var historyCases = []testCase{
	{"history_before", `A sample is taken by the first call in each SampleEach that changes a number of a lane, by the now that calls are given, unless an earlier one that has written something else took it.
It has the numbers before that call: so what changes from one sample to the next one, or to now, has changed in the SampleEach of the first.
At is the start of the SampleEach in which the sample was taken.
Lanes are sorted by Number; the one without a name, if there is one, is last.
Scheduled to Dead are how many jobs were in each state.
OldestDue is that of [LaneStats]; zero too if a hold keeps the lane, and of the lanes together.`, func(f *fixture) {
		f.historian()
		at := func(after time.Duration) time.Time { return f.now.Truncate(storage.SampleEach).Add(after) }
		first, begun := at(0), f.now
		f.add(newJob(lane("z", "z")))
		f.numbers("nothing yet", f.samples("the first job", time.Time{}, first)[0])
		f.add(newJob(delay(time.Hour)), newJob(grouped("g")), newJob(grouped("g")))
		f.samples("more in the same time", time.Time{}, first)
		l := f.lease(f.s, 1)[0]
		f.later(2 * storage.SampleEach)
		second := at(0)
		f.samples("nothing has changed since", time.Time{}, first)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		all := f.samples("a job has ended", time.Time{}, first, second)
		f.hold(storage.Hold{Lane: storage.Lane{Queue: "z"}, Reason: "held"})
		z := storage.SampledLane{Lane: storage.Lane{Queue: "z", Kind: "z"}, Total: storage.Totals{Enqueued: 1}, Ready: 1, OldestDue: begun}
		u := storage.SampledLane{Lane: usualLane, Total: storage.Totals{Enqueued: 3}, Scheduled: 1, Running: 1, Blocked: 1}
		f.numbers("before", all[1], z, u)
		were := []storage.SampledLane{z, u}
		f.later(storage.SampleEach)
		third := at(0)
		z.OldestDue = time.Time{}
		l = f.lease(f.s, 1)[0]
		f.numbers("before a lease", f.samples("a lease", time.Time{}, first, second, third)[2], z,
			storage.SampledLane{Lane: usualLane, Total: storage.Totals{Enqueued: 3, Done: 1}, Scheduled: 1, Ready: 1, OldestDue: begun})
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.later(storage.SampleEach)
		f.add(newJob())
		all = f.samples("another job", time.Time{}, first, second, third, at(0))
		f.numbers("still", all[1], were...)
		f.numbers("with a dead job", all[3], z,
			storage.SampledLane{Lane: usualLane, Total: storage.Totals{Enqueued: 3, Done: 1, Dead: 1, Failed: 1}, Scheduled: 1, Dead: 1})
	}},

	{"history_since", "History returns the samples from a time on, the oldest first, and the last one before it.", func(f *fixture) {
		f.historian()
		var at []time.Time
		for range 5 {
			f.add(newJob())
			at = append(at, f.now.Truncate(storage.SampleEach))
			f.later(storage.SampleEach)
		}
		f.samples("all", at[0].Add(-time.Hour), at...)
		f.samples("from the first on", at[0], at...)
		f.samples("from one on", at[2], at[1:]...)
		f.samples("after one", at[2].Add(time.Microsecond), at[2:]...)
		f.samples("after all", f.now, at[4])
	}},

	{"history_kept", `SamplesEachFor is for how long all samples are kept.
Then the first one of each hour is, for SamplesFor, and the last one before these.`, func(f *fixture) {
		f.historian()
		hour := f.now.Truncate(time.Hour)
		f.now = hour.Add(10 * time.Minute)
		var at []time.Time
		for range 18 { // three hours, of which the first begins late
			f.add(newJob())
			at = append(at, f.now)
			f.later(2 * storage.SampleEach)
		}
		next := func(t time.Time) {
			f.now = t
			f.add(newJob())
		}
		last := hour.Add(25*time.Hour + 30*time.Minute)
		next(last)
		f.samples("a day later", time.Time{}, append([]time.Time{at[0], at[5], at[8]}, append(slices.Clone(at[9:]), last)...)...)
		far := hour.Add(storage.SamplesFor + 2*time.Hour)
		next(far)
		f.samples("a week later", time.Time{}, at[10], at[11], at[17], last, far)
	}},

	{"history_lanes", `SampledLanes is how many lanes a sample has, the first by their Number.
The others are one without a name.`, func(f *fixture) {
		f.historian()
		jobs := make([]storage.NewJob, storage.SampledLanes+2)
		for i := range jobs {
			jobs[i] = newJob(lane(fmt.Sprintf("queue-%03d", len(jobs)-i), "k"))
		}
		f.add(jobs...)
		f.later(storage.SampleEach)
		f.add(newJob(lane("queue-001", "k")))
		f.later(storage.SampleEach)
		f.add(newJob())
		all, err := f.s.(storage.Historian).History(f.ctx, f.now)
		f.must(err)
		s := all[len(all)-1].Lanes
		if len(s) != storage.SampledLanes+1 || s[0].Queue != jobs[0].Queue || s[storage.SampledLanes-1].Queue != jobs[storage.SampledLanes-1].Queue {
			f.Fatalf("%d lanes: %+v", len(s), s)
		}
		if want := (storage.SampledLane{Total: storage.Totals{Enqueued: 3}, Ready: 3}); s[storage.SampledLanes] != want {
			f.Errorf("the others are %+v, want %+v", s[storage.SampledLanes], want)
		}
	}},

	{"history_clock", "If StepClock sets the clock back, samples that were taken later are gone, and it takes one.", func(f *fixture) {
		f.timekeeper(f.s)
		f.historian()
		f.add(newJob())
		f.later(month)
		f.add(newJob())
		f.later(-month)
		back := f.now.Truncate(storage.SampleEach)
		f.samples("too late", time.Time{}, back, f.now.Add(month).Truncate(storage.SampleEach))
		f.stepClock(f.now)
		f.samples("set back", time.Time{}, back)
		f.later(storage.SampleEach)
		f.add(newJob())
		f.samples("as before", time.Time{}, back, f.now.Truncate(storage.SampleEach))
		if n := f.laneStats(usualLane).Total.Enqueued; n != 3 {
			f.Errorf("%d jobs were enqueued, want 3", n)
		}
	}},

	{"history_tx", `A sample is taken by the first call in each SampleEach that changes a number of a lane, by the now that calls are given, unless an earlier one that has written something else took it.`, func(f *fixture) {
		f.transacts(f.s)
		f.historian()
		for _, vanish := range f.vanishes() {
			vanish(f.s, func(tx any) { f.addTx(f.s, tx, newJob()) })
		}
		f.samples("rolled back", time.Time{})
		begun, at := f.now, f.now.Truncate(storage.SampleEach)
		f.commits(f.s, func(tx any) {
			f.addTx(f.s, tx, newJob())
			f.addTx(f.s, tx, newJob())
		})
		f.numbers("nothing yet", f.samples("committed", time.Time{}, at)[0])
		f.later(storage.SampleEach)
		f.add(newJob())
		f.numbers("two", f.samples("after it", time.Time{}, at, at.Add(storage.SampleEach))[1],
			storage.SampledLane{Lane: usualLane, Total: storage.Totals{Enqueued: 2}, Ready: 2, OldestDue: begun})
	}},

	{"totals_failed", "Failed is how many attempts have failed: a Failure was added to a history by [OutcomeRetry], [OutcomeCrashed] or [OutcomeDead].", func(f *fixture) {
		f.historian()
		for _, o := range []storage.Outcome{
			storage.OutcomeRetry, storage.OutcomeCrashed, storage.OutcomeDead, storage.OutcomeUnavailable, storage.OutcomeInterrupted, storage.OutcomeSnooze,
		} {
			fin := storage.Finish{Lease: f.run(f.s).Lease, Outcome: o, DueAt: f.now.Add(time.Hour), Failure: &storage.NewFailure{Phase: "backoff", Error: "no"}}
			if o == storage.OutcomeDead {
				fin.DueAt, fin.Reason, fin.Error = time.Time{}, storage.ReasonPermanent, "no"
			}
			f.apply(f.s, fin)
			if o == storage.OutcomeUnavailable || o == storage.OutcomeInterrupted { // that they can be told apart
				f.later(time.Second)
			}
		}
		if n := f.laneStats(usualLane).Total.Failed; n != 3 {
			f.Errorf("%d attempts have failed, want 3", n)
		}
	}},
}
