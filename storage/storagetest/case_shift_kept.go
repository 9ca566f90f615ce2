package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

const (
	endedSays     = "A finished job that ended later ended now, and the time for which it is kept counts from now."
	publishedSays = "A message that was published later was published now: its KeepUntil, and the end of its DedupFor, come earlier by as much."
	windowSays    = "A key is held for a UniqueFor that was counted from a later time for that long from now, unless its job waits for a date."
)

// purges checks how many jobs PurgeFinished deletes now, and when it is to be called again.
func (f *fixture) purges(what string, want int, after time.Duration) {
	f.Helper()
	n, next, err := f.s.PurgeFinished(f.ctx, f.now)
	f.must(err)
	if n != want || next.IsZero() != (after == 0) || after != 0 && !next.Equal(f.now.Add(after)) {
		f.Errorf("%s: %d were deleted, to be called again at %v; want %d, %v after %v", what, n, next, want, after, f.now)
	}
}

// shiftKeptCases are about what is kept for a time.
var shiftKeptCases = []testCase{
	{"shift_finished", endedSays, func(f *fixture) {
		f.timekeeper(f.s)
		before := f.run(f.s)
		f.keep(time.Hour, f.s, storage.Finish{Lease: before.Lease, Outcome: storage.OutcomeDone})
		was := f.record(before.ID)
		f.later(month)
		l := f.run(f.s)
		f.keep(time.Minute, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		long := f.run(f.s)
		f.keep(2*month, f.s, storage.Finish{Lease: long.Lease, Outcome: storage.OutcomeCancelled})
		want := []storage.Record{f.record(l.ID), f.record(long.ID)}
		f.later(time.Second - month)
		f.stepClock(f.now)
		for i, id := range []storage.ID{l.ID, long.ID} {
			want[i].EndedAt = f.now
			f.same("the finished job", f.record(id), want[i])
		}
		f.same("the one that ended before", f.record(before.ID), was)
		f.stepClock(f.now.Add(time.Second)) // which changes nothing
		f.purges("at once", 0, time.Minute)
		f.later(time.Minute)
		f.purges("after a minute", 1, time.Hour-time.Minute-time.Second)
		f.later(time.Hour - time.Minute - time.Second)
		f.purges("after an hour", 1, 2*month-time.Hour+time.Second)
		f.later(2*month - time.Hour + time.Second)
		f.purges("after two months", 1, 0)
		f.is("", l.ID, long.ID, before.ID)
	}},

	{"shift_finished_steps", endedSays + `
call again with after set to the result until that is zero.`, func(f *fixture) {
		const n = 2500
		f.timekeeper(f.s)
		f.later(month)
		f.add(times(n, newJob())...)
		for left := n; left > 0; {
			var finish []storage.Finish
			for _, l := range f.lease(f.s, 1000) {
				finish = append(finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			}
			f.exchange(f.s, storage.Exchange{Finish: finish, Retention: kept(time.Hour)})
			left -= len(finish)
		}
		f.later(-month)
		if steps := f.stepClock(f.now); steps < 2 {
			f.Errorf("%d step was enough for %d finished jobs", steps, n)
		}
		f.later(time.Hour - time.Microsecond)
		f.purges("a microsecond early", 0, time.Microsecond)
		f.later(time.Microsecond)
		for deleted, calls := 0, 0; deleted < n; calls++ {
			some, _, err := f.s.PurgeFinished(f.ctx, f.now)
			f.must(err)
			if deleted += some; some == 0 || calls > n {
				f.Fatalf("only %d of %d are deleted after an hour", deleted, n)
			}
		}
	}},

	{"shift_messages", publishedSays, func(f *fixture) {
		f.timekeeper(f.s)
		kept := func(id string, keep time.Duration, dedup string) storage.Publication {
			p := published(id)
			p.Message.KeepUntil = f.now.Add(keep)
			if p.Dedup = dedup; dedup != "" {
				p.DedupFor = time.Minute
			}
			return p
		}
		before := kept("before", 2*month, "").Message
		f.publishes(kept("before", 2*month, ""))
		before.PublishedAt = f.now
		f.later(time.Second)
		start := f.now
		f.later(month)
		job := published("job", newJob())
		job.Message.KeepUntil = f.now.Add(time.Hour)
		bare := published("bare", newJob())
		out := f.publishes(kept("a", 2*time.Hour, ""), kept("d", time.Second, "d"), job, bare)
		f.later(-month)
		f.stepClock(f.now)
		for id, until := range map[string]time.Duration{"a": 2 * time.Hour, "d": time.Minute, "job": time.Hour, "bare": 0} {
			want := published(id).Message
			if want.PublishedAt = f.now; until > 0 {
				want.KeepUntil = f.now.Add(until)
			}
			f.messageIs(want)
		}
		f.messageIs(before)
		f.later(time.Minute - time.Microsecond)
		if r := f.publishes(kept("e", time.Second, "d"))[0]; !r.Duplicate || r.ID != "d" {
			f.Errorf("in the time of the first one: %+v, want a duplicate of d", r)
		}
		f.later(time.Microsecond)
		if r := f.publishes(kept("e", time.Second, "d"))[0]; r.Duplicate {
			f.Errorf("after the time of the first one: %+v", r)
		}
		_, err := f.s.Cancel(f.ctx, f.now, out[2].Jobs[0].ID, storage.Retention{})
		f.must(err)
		f.now = start.Add(2*time.Hour - time.Microsecond)
		f.purges("in time", 0, time.Microsecond)
		f.there(true, "a", "bare", "before")
		f.there(false, "job", "d")
		f.later(time.Microsecond)
		f.purges("over", 0, 2*month-2*time.Hour-time.Second)
		f.there(false, "a")
		if r := f.publishes(published("a"))[0]; r.Duplicate {
			f.Errorf("the ID is used again: %+v", r)
		}
	}},

	{"shift_entries", `An entry that was written later was written now; its CreatedAt stays.`, func(f *fixture) {
		f.timekeeper(f.s)
		e := newEntry("a", "", "1")
		f.later(month)
		e.CreatedAt, e.UpdatedAt, e.Revision = f.now, f.now, f.putEntries(e)
		f.later(-month)
		f.stepClock(f.now)
		e.UpdatedAt = f.now
		f.hasEntry(e)
		f.later(time.Hour)
		f.stepClock(f.now)
		f.hasEntry(e)
	}},

	{"shift_keys", windowSays + `
If the clock is set back behind the enqueue of a job that has ended, it begins anew, once, with the next job that has the key or with StepClock, see [Timekeeper].`, func(f *fixture) {
		f.timekeeper(f.s)
		for what, forgets := range map[string]bool{"by a step": true, "by a duplicate": false} {
			f.later(month)
			l := f.run(f.s, uniqueFor(2*month))
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			f.later(-month)
			if forgets {
				f.stepClock(f.now)
			}
			f.answers(what+", set back", storage.Enqueued{ID: l.ID, Duplicate: true, Gone: true})
			for range 9 {
				f.later(month / 5)
				f.stepClock(f.now)
				f.answers(what+", in its time", storage.Enqueued{ID: l.ID, Duplicate: true, Gone: true})
			}
			f.later(month/5 - time.Microsecond)
			f.answers(what+", a microsecond early", storage.Enqueued{ID: l.ID, Duplicate: true, Gone: true})
			f.forgets(what, time.Microsecond)
			f.later(time.Microsecond)
			f.forgets(what+", over", 0)
			f.cancel(f.add(newJob(unique("a")))[0])
		}
		f.later(month)
		live := f.run(f.s, uniqueFor(time.Hour))
		dated := f.add(newJob(unique("b"), dueAt(f.now.Add(time.Hour)), func(n *storage.NewJob) { n.UniqueFor = time.Hour }))[0]
		late := f.add(newJob(unique("c"), delay(time.Hour), func(n *storage.NewJob) { n.UniqueFor = time.Hour }))[0]
		f.later(-month)
		f.stepClock(f.now)
		f.forgets("a live job", time.Hour)
		f.apply(f.s, storage.Finish{Lease: live.Lease, Outcome: storage.OutcomeDone})
		f.later(time.Hour)
		f.forgets("a job with a delay", time.Hour)
		f.later(time.Hour)
		f.forgets("a job with a date", month)
		f.cancel(dated)
		f.cancel(late)
	}},

	{"shift_lasts", "A lane whose last success or failure was later had it now.", func(f *fixture) {
		f.timekeeper(f.s)
		f.later(month)
		f.apply(f.s, storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeDone})
		f.bury(storage.ReasonPermanent, "no")
		f.later(-month)
		for range 2 {
			f.stepClock(f.now)
			all, err := f.s.Stats(f.ctx)
			f.must(err)
			for _, s := range all {
				if !s.Succeeded.Equal(f.now) || !s.Failed.Equal(f.now) {
					f.Errorf("the last success was at %v, the last failure at %v, want %v", s.Succeeded, s.Failed, f.now)
				}
			}
			f.later(-time.Hour)
		}
	}},
}
