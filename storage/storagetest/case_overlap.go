package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// overlapSays is what the cases of this file are about.
const overlapSays = "If the schedule is SkipOverlap and its LastJob is live, a tick is skipped as [TickOverlap]; only a manual one is not."

// overlaps fires one tick of a and checks whether it was skipped.
func (f *fixture) overlaps(what string, want bool) {
	f.Helper()
	before := f.schedule(f.s, "a")
	f.later(time.Second)
	fired := f.take("a", tick(f.now))
	entry := storage.Tick{At: f.now, Taken: storage.TickFired, Noted: f.now, ID: fired.Ticks[0].ID}
	at, id := f.now, entry.ID
	if want {
		entry.Taken, entry.ID = storage.TickOverlap, storage.ID{}
		at, id = before.LastTick, before.LastJob
	} else if entry.ID.IsZero() {
		f.Errorf("%s: the entry names no job", what)
	}
	f.sameTicks(what, fired.Ticks, []storage.Tick{entry})
	f.sameTicks(what+", the history", f.ticks(f.s, "a")[:1], []storage.Tick{entry})
	f.lastJob(what, "a", at, id)
}

var overlapCases = []testCase{
	{"overlap_states", overlapSays, func(f *fixture) {
		s := newSchedule("a", skipOverlap)
		f.put(s)
		f.overlaps("no job yet", false)
		f.overlaps("ready", true)
		l := f.leaseOne(f.s)
		f.overlaps("running", true)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		f.overlaps("waiting for its retry", true)
		f.cancel(l.ID)
		f.overlaps("cancelled", false)
		f.keep(keep, f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.overlaps("done", false)
		f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.overlaps("deleted", false)
		l = f.leaseOne(f.s)
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.overlaps("dead", false)
		other := f.leaseOne(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: other.Lease, Outcome: storage.OutcomeDone})
		f.redrive(storage.Selection{IDs: []storage.ID{l.ID}}, "")
		f.overlaps("the last but one redriven", false)
		f.apply(f.s, died(f.leaseLast().Lease, storage.ReasonPermanent, "no"))
		f.redrive(storage.Selection{}, "")
		f.overlaps("redriven", true)
		s = f.schedule(f.s, "a")
		s.SkipOverlap = false
		f.put(s)
		f.overlaps("redriven, but overlap is allowed", false)
	}},

	{"overlap_due_later", overlapSays, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		id := f.take("a", tick(f.now, dueAt(f.now.Add(time.Hour)))).Ticks[0].ID
		f.is(storage.Scheduled, id)
		f.overlaps("scheduled", true)
	}},

	{"overlap_batch", overlapSays + `
one that has a Job enqueues it`, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		at := func(i int) time.Time { return f.now.Add(time.Duration(i) * time.Second) }
		fired := f.take("a", tick(at(0)), tick(at(1)), storage.NewTick{At: at(2), Taken: storage.TickMissed}, manual(at(3)), tick(at(4)), manual(at(5)))
		entry := func(i int, taken storage.TickOutcome, id storage.ID) storage.Tick {
			return storage.Tick{At: at(i), Taken: taken, Noted: f.now, ID: id}
		}
		id := func(i int) storage.ID { return fired.Ticks[i].ID }
		f.sameTicks("the answer", fired.Ticks, []storage.Tick{
			entry(0, storage.TickFired, id(0)), entry(1, storage.TickOverlap, storage.ID{}), entry(2, storage.TickMissed, storage.ID{}),
			entry(3, storage.TickManual, id(3)), entry(4, storage.TickOverlap, storage.ID{}), entry(5, storage.TickManual, id(5)),
		})
		f.lastJob("the schedule", "a", at(5), id(5))
		f.is(storage.Ready, id(0), id(3), id(5))
		f.counts(count(storage.Ready, 3))
		// Only the last job counts.
		for range 2 {
			f.leaseOne(f.s)
		}
		f.cancel(id(5))
		f.overlaps("two before it running", false)
	}},

	{"overlap_before_unique", overlapSays + `
A tick whose unique key is held is skipped as [TickDuplicate].`, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		id := f.take("a", tick(f.now, unique("u"))).Ticks[0].ID
		fired := f.take("a", tick(f.now, unique("u")), manual(f.now, unique("u")))
		f.sameTicks("the answer", fired.Ticks, []storage.Tick{
			{At: f.now, Taken: storage.TickOverlap, Noted: f.now}, {At: f.now, Taken: storage.TickDuplicate, Noted: f.now, ID: id},
		})
		f.counts(count(storage.Ready, 1))
	}},

	{"overlap_clock_back", overlapSays + `
LastTick is the tick of which a job was enqueued last, and LastJob that job`, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		f.later(1000 * time.Hour)
		ahead := f.take("a", tick(f.now)).Ticks[0].ID
		f.cancel(ahead)
		f.later(-1000 * time.Hour)
		f.overlaps("cancelled, ahead of time", false)
		f.overlaps("ready", true)
	}},
}

// leaseLast leases the last job of a, and ends all others that wait.
func (f *fixture) leaseLast() (last storage.Leased) {
	f.Helper()
	want := f.schedule(f.s, "a").LastJob
	for _, l := range f.lease(f.s, 100) {
		if l.ID == want {
			last = l
		} else {
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCancelled})
		}
	}
	return last
}
