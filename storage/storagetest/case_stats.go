package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// stats checks Stats.
func (f *fixture) stats(what string, want ...storage.LaneStats) {
	f.Helper()
	got, err := f.s.Stats(f.ctx)
	f.must(err)
	for i := range got {
		got[i].OldestDue, got[i].Succeeded, got[i].Failed = got[i].OldestDue.UTC(), got[i].Succeeded.UTC(), got[i].Failed.UTC()
		got[i].Number, got[i].Total = 0, storage.Totals{} // see totalsCases
	}
	if !slices.Equal(got, want) {
		f.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

var usualLane = storage.Lane{Queue: queue, Kind: kind}

var statsCases = []testCase{
	{"stats_states", `Scheduled to Blocked are how many jobs of the lane are in each state.
Stats returns what is known of the lanes that have ever had a job, sorted by queue and kind.`, func(f *fixture) {
		f.stats("nothing")
		f.add(newJob(dueAt(f.now.Add(time.Hour))), newJob(lane("a", "z")), newJob(lane("a", "b")))
		done, dead, running, ready := f.run(f.s), f.run(f.s), f.run(f.s), f.add(newJob())[0]
		f.keep(keep, f.s, storage.Finish{Lease: done.Lease, Outcome: storage.OutcomeDone})
		f.apply(f.s, died(dead.Lease, storage.ReasonPermanent, "no"))
		given := int64(len(running.Args))
		all := []storage.LaneStats{
			{Lane: storage.Lane{Queue: "a", Kind: "b"}, Ready: 1, Bytes: given, OldestDue: f.now},
			{Lane: storage.Lane{Queue: "a", Kind: "z"}, Ready: 1, Bytes: given, OldestDue: f.now},
			{Lane: usualLane, Scheduled: 1, Ready: 1, Running: 1, Done: 1, Dead: 1, Bytes: 3 * given, RunningBytes: given, OldestDue: f.now,
				Succeeded: f.now, Failed: f.now, FailedJob: dead.ID, Error: "no"},
		}
		f.stats("of all states", all...)
		f.cancel(ready)
		u := &all[2]
		u.Ready, u.Cancelled, u.Bytes, u.OldestDue = 0, 1, 2*given, time.Time{}
		f.stats("cancelled", all...)
		e := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"a"}, Kinds: []string{"b"}})})
		f.apply(f.s, storage.Finish{Lease: e.Leased[0].Lease, Outcome: storage.OutcomeCancelled})
		all[0] = storage.LaneStats{Lane: all[0].Lane}
		f.stats("a lane without a job", all...)
	}},

	{"stats_bytes", `Bytes is how many bytes the args and headers of its live jobs have.
RunningBytes is how many of these its running jobs have.`, func(f *fixture) {
		size := func(args, headers int) func(*storage.NewJob) {
			return func(n *storage.NewJob) { n.Args, n.Headers = make([]byte, args), make([]byte, headers) }
		}
		bytes := func(what string, want int64) {
			f.Helper()
			all, err := f.s.Stats(f.ctx)
			f.must(err)
			if len(all) == 0 || all[len(all)-1].Bytes != want {
				f.Errorf("%s: %+v, want %d bytes", what, all, want)
			}
		}
		running := func(what string, want int64) {
			f.Helper()
			all, err := f.s.Stats(f.ctx)
			f.must(err)
			if got := all[len(all)-1].RunningBytes; got != want {
				f.Errorf("%s: %d bytes of running jobs, want %d", what, got, want)
			}
		}
		large := f.add(newJob(size(10_000, 17)))[0]
		small := f.add(newJob(size(10, 3)))[0]
		none := f.add(newJob(size(0, 0)), newJob(size(0, 0), delay(time.Hour)))[0]
		bytes("enqueued", 10_030)
		running("enqueued", 0)
		leased := f.lease(f.s, 3)
		bytes("leased", 10_030)
		running("leased", 10_030)
		f.apply(f.s, died(leased[0].Lease, storage.ReasonPermanent, "no"))
		bytes("a large one is dead", 13)
		f.apply(f.s, storage.Finish{Lease: leased[1].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		bytes("put back", 13)
		running("put back", 0)
		f.cancel(small)
		bytes("cancelled", 0)
		f.keep(keep, f.s, storage.Finish{Lease: leased[2].Lease, Outcome: storage.OutcomeDone})
		f.is(storage.Done, none)
		_, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{large}}, "")
		f.must(err)
		bytes("redriven", 10_017)
		other := f.db.Open()
		l := f.leaseOne(other)
		running("leased by another", 10_017)
		f.db.Kill(other)
		r := f.takes(f.s, 0, l.Lease, storage.Unstarted)
		bytes("reclaimed", 10_017)
		f.apply(f.s, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeDone})
		bytes("done", 0)
		large = f.add(newJob(size(10_000, 17)))[0]
		f.cancel(large)
		bytes("a large one was cancelled", 0)
	}},

	{"stats_oldest", `OldestDue is when the first of its ready jobs was due; zero if none is ready.`, func(f *fixture) {
		oldest := func(want time.Time) {
			f.Helper()
			all, err := f.s.Stats(f.ctx)
			f.must(err)
			if got := all[0].OldestDue; !got.Equal(want) || got.IsZero() != want.IsZero() {
				f.Errorf("the oldest was due at %v, want %v", got, want)
			}
		}
		at := func(seconds int) time.Time { return f.now.Add(time.Duration(seconds) * time.Second) }
		f.add(newJob(dueAt(at(10))))
		oldest(time.Time{})
		f.add(newJob(priority(100), dueAt(at(-2))), newJob(priority(100), dueAt(at(-3))))
		oldest(at(-3))
		f.add(newJob(priority(-100), dueAt(at(-5))), newJob(dueAt(at(-4))), newJob(lane("z", "z"), dueAt(at(-9))))
		oldest(at(-5))
		f.lease(f.s, 4)
		oldest(time.Time{})
	}},

	{"stats_last", `Succeeded is when an attempt ended with OutcomeDone for the last time, or less than a second from then; zero if none has.
Failed is when, for the last time, a Failure was added to a history or a job died; zero if none has.
FailedJob is the job of that, and Error its last error, if the job is there still.`, func(f *fixture) {
		began := f.now
		last := func(what string, succeeded, failed time.Time, job storage.ID, text string) {
			f.Helper()
			all, err := f.s.Stats(f.ctx)
			f.must(err)
			s := all[0]
			if off := s.Succeeded.Sub(succeeded).Abs(); s.Succeeded.IsZero() != succeeded.IsZero() || off >= time.Second ||
				!s.Failed.Equal(failed) || s.FailedJob != job || s.Error != text {
				f.Errorf("%s: %+v, want success at %v, and failure %q at %v of job %v", what, s, succeeded, text, failed, job)
			}
		}
		a := f.run(f.s)
		never := time.Time{}
		last("none has ended", never, never, storage.ID{}, "")
		f.apply(f.s, storage.Finish{Lease: a.Lease, Outcome: storage.OutcomeSnooze})
		last("a snooze", never, never, storage.ID{}, "")
		a = f.leaseOne(f.s)
		f.apply(f.s, storage.Finish{Lease: a.Lease, Outcome: storage.OutcomeDone})
		last("a success", began, never, storage.ID{}, "")
		for range 4 {
			f.later(600 * time.Millisecond)
			f.apply(f.s, storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeDone})
			last("one more", f.now, never, storage.ID{}, "")
		}
		succeeded := f.now
		f.later(time.Minute)
		b := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: b.Lease, Outcome: storage.OutcomeRetry, Failure: &storage.NewFailure{Error: "refused"}})
		last("a failure", succeeded, f.now, b.ID, "refused")
		failed := f.now
		f.later(time.Minute)
		b = f.leaseOne(f.s)
		f.apply(f.s, storage.Finish{Lease: b.Lease, Outcome: storage.OutcomeSnooze, DueAt: f.now.Add(time.Hour)})
		last("one that costs nothing", succeeded, failed, b.ID, "refused")
		c := f.bury(storage.ReasonSnoozed, "snoozed too often")
		last("a death", succeeded, f.now, c, "snoozed too often")
		failed = f.now
		_, err := f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{c}})
		f.must(err)
		last("a purge", succeeded, failed, storage.ID{}, "")
		f.now = began // the clock was set back
		f.apply(f.s, storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeDone})
		last("an earlier clock", f.now, failed, storage.ID{}, "")
		f.later(10 * time.Minute)
		second := f.db.Open()
		d := f.run(second)
		f.apply(second, storage.Finish{Lease: d.Lease, Outcome: storage.OutcomeDone})
		f.now = began
		f.apply(f.s, storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeDone})
		last("two instances", f.now, failed, storage.ID{}, "")
	}},

	{"stats_unavailable", `Failed is when, for the last time, a Failure was added to a history or a job died; zero if none has.
FailedJob is the job of that, and Error its last error, if the job is there still.`, func(f *fixture) {
		failed := f.now
		f.apply(f.s, storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeRetry, Failure: &storage.NewFailure{Error: "refused"}})
		f.later(time.Minute)
		l := f.leaseOne(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeUnavailable, Error: "no route", DueAt: f.now.Add(time.Hour)})
		all, err := f.s.Stats(f.ctx)
		f.must(err)
		if s := all[0]; !s.Failed.Equal(failed) || s.FailedJob != l.ID || s.Error != "no route" {
			f.Errorf("%+v, want a failure at %v of job %v with its last error", s, failed, l.ID)
		}
	}},
}
