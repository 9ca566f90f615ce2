package storagetest

import (
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

// conflictForCases are about keys that are held for a time.
var conflictForCases = []testCase{
	{"conflict_for", `UniqueFor, if positive, holds the key with UniqueLive for that long, whatever becomes of the job. It counts from the enqueue, or from the first due time if that is later.
So does one with a UniqueFor.`, func(f *fixture) {
		for what, d := range map[string]time.Duration{"deleted": 0, "kept": keep} {
			for _, late := range []time.Duration{0, 10 * time.Second} {
				id := f.add(newJob(uniqueFor(time.Minute), delay(late)))[0]
				f.later(late)
				l := f.leaseOne(f.s)
				f.keep(d, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				f.later(time.Minute - time.Microsecond)
				f.answers(what+", in its time", storage.Enqueued{ID: id, Duplicate: true, Gone: d == 0})
				f.later(time.Microsecond)
				f.cancel(f.add(newJob(unique("a")))[0])
			}
		}
		l := f.run(f.s, uniqueFor(time.Minute))
		f.later(time.Hour)
		f.answers("still live", storage.Enqueued{ID: l.ID, Duplicate: true})
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.add(newJob(unique("a")))
	}},

	{"conflict_for_back", `If the clock is set back behind the enqueue of a job that has ended, it begins anew, once, with the next job that has the key or with StepClock, see [Timekeeper].`, func(f *fixture) {
		l := f.run(f.s, uniqueFor(time.Minute))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.later(-24 * time.Hour)
		f.answers("set back", storage.Enqueued{ID: l.ID, Duplicate: true, Gone: true})
		f.later(time.Minute - time.Microsecond)
		f.answers("in its time", storage.Enqueued{ID: l.ID, Duplicate: true, Gone: true})
		f.later(time.Microsecond)
		f.add(newJob(unique("a")))
	}},

	{"conflict_for_due", `If the holder has ended and only its UniqueFor is left, these three modes insert the new job, due at the end of UniqueFor or later.`, func(f *fixture) {
		for _, mode := range replacing {
			began := f.now
			l := f.run(f.s, uniqueFor(time.Minute))
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			f.later(time.Second)
			id := f.add(newJob(uniqueFor(time.Minute), on(mode, quiet(time.Second, 0))))[0]
			if r := f.record(id); !r.DueAt.Equal(began.Add(time.Minute)) || r.State != storage.Scheduled {
				f.Errorf("the next job is %s, due at %v; want %v", r.State, r.DueAt, began.Add(time.Minute))
			}
			f.answers("waiting", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(mode, quiet(time.Second, 0)))
			f.later(time.Minute)
			l = f.leaseOne(f.s)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			f.answers("in its own time", storage.Enqueued{ID: id, Duplicate: true, Gone: true})
			f.later(2 * time.Minute)
		}
	}},

	{"conflict_forgets", `It also frees keys held only by a UniqueFor that has passed
The time returned allows for the next of these too.`, func(f *fixture) {
		l := f.run(f.s, uniqueFor(time.Minute))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		live := f.run(f.s, uniqueFor(time.Hour), unique("b"))
		for _, want := range []time.Duration{time.Minute, time.Hour, 0} {
			_, next, err := f.s.PurgeFinished(f.ctx, f.now)
			f.must(err)
			if until := next.Sub(live.CreatedAt); until != want && (want != 0 || !next.IsZero()) {
				f.Fatalf("to be called again %v after, want %v", until, want)
			}
			if want > 0 {
				f.now = next
			}
		}
		if _, err := f.s.ReleaseUnique(f.ctx, "a"); !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("releasing a key that was forgotten returns %v", err)
		}
		if e := f.enqueue(newJob(unique("b")))[0]; e.ID != live.ID {
			f.Errorf("the key of a live job was forgotten")
		}
	}},

	{"conflict_for_delayed", `If the holder has ended and only its UniqueFor is left, these three modes insert the new job, due at the end of UniqueFor or later.`, func(f *fixture) {
		l := f.run(f.s, uniqueFor(time.Minute))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		id := f.add(newJob(on(storage.Replace), delay(time.Hour)))[0]
		f.due("with a longer delay", id, f.now.Add(time.Hour))
	}},

	{"conflict_for_behind", `It is [Blocked] until the holder has ended as done, cancelled, expired or dead, or was deleted;
It also frees keys held only by a UniqueFor that has passed`, func(f *fixture) {
		l := f.run(f.s, uniqueFor(time.Minute))
		id := f.add(newJob(on(storage.Replace)))[0]
		f.later(time.Hour)
		_, _, err := f.s.PurgeFinished(f.ctx, f.now) // which forgets the minute
		f.must(err)
		f.is(storage.Blocked, id)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.order("leased", leasedIDs(f.lease(f.s, 9)), []storage.ID{id})
	}},

	{"conflict_for_over", `It is ready then if it was due when it was inserted or changed last, else scheduled.`, func(f *fixture) {
		for _, late := range []time.Duration{0, time.Second} {
			l := f.run(f.s, uniqueFor(time.Minute))
			f.later(time.Minute + late)
			id := f.add(newJob(on(storage.Replace), dueAt(f.now.Add(-time.Hour))))[0]
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			if r := f.record(id); r.State != storage.Ready || !r.DueAt.Equal(f.now.Add(-time.Hour)) {
				f.Errorf("behind a time that is over the job is %s, due at %v; want ready, %v", r.State, r.DueAt, f.now.Add(-time.Hour))
			}
			f.cancel(id)
		}
	}},

	{"conflict_for_follower", `It also frees keys held only by a UniqueFor that has passed
The time returned allows for the next of these too.`, func(f *fixture) {
		for _, long := range []time.Duration{0, time.Minute} {
			l := f.run(f.s, unique("a"), func(n *storage.NewJob) { n.UniqueFor = long })
			id := f.add(newJob(on(storage.Replace), uniqueFor(time.Minute)))[0]
			f.forgets("before the time of the one behind is over", long)
			f.later(time.Hour)
			f.forgets("after it", 0)
			f.answers("the holder", storage.Enqueued{ID: l.ID, Duplicate: true})
			f.is(storage.Blocked, id)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			f.forgets("holding the key", 0)
			f.answers("live", storage.Enqueued{ID: id, Duplicate: true})
			f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
			f.cancel(f.add(newJob(unique("a")))[0])
		}
	}},

	{"conflict_for_follower_back", `So it does as a job gets the key that was behind another, if the clock was set back behind its enqueue, unless it waits for a date.`, func(f *fixture) {
		f.later(month)
		l := f.run(f.s, unique("a"))
		id := f.add(newJob(on(storage.Replace), uniqueFor(time.Hour)))[0]
		f.later(-month)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.later(time.Minute)
		f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.forgets("one that was behind", time.Hour-time.Minute)
		f.later(time.Hour - time.Minute - time.Microsecond)
		f.answers("in its time", storage.Enqueued{ID: id, Duplicate: true, Gone: true})
		f.later(time.Microsecond)
		f.cancel(f.add(newJob(unique("a")))[0])

		f.later(month)
		l = f.run(f.s, unique("a"))
		date := f.now.Add(time.Hour)
		f.add(newJob(on(storage.Replace), uniqueFor(time.Hour), dueAt(date)))
		f.later(-month)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.now = date
		f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.forgets("one that waited for a date", time.Hour)
	}},
}

// forgets calls PurgeFinished, and checks that it is to be called again so long after now,
// or never if that is not positive.
func (f *fixture) forgets(what string, want time.Duration) {
	f.Helper()
	_, next, err := f.s.PurgeFinished(f.ctx, f.now)
	f.must(err)
	if next.IsZero() != (want <= 0) || want > 0 && !next.Equal(f.now.Add(want)) {
		f.Errorf("%s: to be called again at %v, want %v after %v", what, next, want, f.now)
	}
}
