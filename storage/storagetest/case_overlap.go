package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// overlapSays is what the cases of this file are about, and overlapJobs whose jobs they are.
const (
	overlapSays = "If the schedule is SkipOverlap and a job of it is live, a tick is skipped as [TickOverlap]; only a manual one is not."
	overlapJobs = overlapSays + `
The jobs of a schedule are those that firings of its name have enqueued: also manual ones, and those of a schedule of that name that was dropped or was not SkipOverlap.`
)

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
		f.overlaps("the last but one redriven", true)
		f.apply(f.s, died(f.leaseOne(f.s).Lease, storage.ReasonPermanent, "no"))
		f.redrive(storage.Selection{}, "elsewhere")
		f.overlaps("redriven to another queue", true)
		f.cancel(l.ID)
		f.overlaps("cancelled again", false)
		s = f.schedule(f.s, "a")
		s.SkipOverlap = false
		f.put(s)
		f.overlaps("overlap is allowed", false)
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
		f.cancel(id(5))
		f.cancel(id(0))
		f.overlaps("the one between them ready", true)
	}},

	{"overlap_any", overlapJobs + `
One that dies is live again once it is redriven.`, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		first := f.take("a", tick(f.now)).Ticks[0].ID
		f.leaseOne(f.s)
		second := f.take("a", manual(f.now)).Ticks[0].ID
		f.cancel(second)
		f.overlaps("one before that somebody asked for running", true)
		f.s = f.db.Open()
		f.overlaps("in another process", true)
		f.cancel(first)
		f.put(newSchedule("b", skipOverlap))
		f.overlaps("asked to stop", true)
		f.take("b", tick(f.now))
		third := f.take("a", manual(f.now)).Ticks[0].ID
		f.drop("a")
		f.cancel(third)
		f.put(newSchedule("a", skipOverlap))
		f.overlaps("one of a schedule that was dropped running", true)
	}},

	{"overlap_other_rule", overlapJobs, func(f *fixture) {
		f.put(newSchedule("a"))
		fired := f.take("a", tick(f.now), tick(f.now))
		s := f.schedule(f.s, "a")
		s.SkipOverlap, s.Job.Kind = true, "another"
		f.put(s)
		f.cancel(fired.Ticks[1].ID)
		f.overlaps("one from when overlap was allowed", true)
		f.cancel(fired.Ticks[0].ID)
		f.overlaps("none", false)
	}},

	{"overlap_not_its_own", overlapJobs + `
Headers make no job one of a schedule.`, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		f.put(newSchedule("b", skipOverlap))
		copies := func(n *storage.NewJob) { n.Headers = []byte(`{"errand-schedule":"a"}`) }
		f.add(newJob(copies, unique("u")))
		f.take("b", tick(f.now, copies))
		fired := f.take("a", manual(f.now, unique("u")))
		if got := fired.Ticks[0].Taken; got != storage.TickDuplicate {
			f.Errorf("the tick was taken as %s, want a duplicate", got)
		}
		f.overlaps("those of others", false)
	}},

	{"overlap_ends", overlapJobs, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		f.caps(storage.Lane{Queue: "small"}, 1, 0, storage.EvictOldest)
		small := lane("small", kind)
		id := f.take("a", tick(f.now, small)).Ticks[0].ID
		f.overlaps("to be evicted", true)
		f.add(newJob(small))
		f.states("evicted", []storage.ID{id}, "-")
		id = f.take("a", tick(f.now, grouped("g"))).Ticks[0].ID
		next := f.take("a", manual(f.now, grouped("g"))).Ticks[0].ID
		f.states("in a group", []storage.ID{id, next}, "ready blocked")
		f.cancel(id)
		f.changed(next, storage.Edit{Delay: time.Hour})
		f.overlaps("put off", true)
		f.changed(next, moved("elsewhere"))
		f.overlaps("in another queue", true)
		f.cancel(next)
		id = f.take("a", tick(f.now, unique("a"), finishWithin(time.Second))).Ticks[0].ID
		f.answers("the key is held", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(storage.Replace), content("another"))
		f.overlaps("replaced by another", true)
		f.later(time.Minute)
		f.ends(f.s, 1, id)
		f.is(storage.Dead, id)
		f.overlaps("at its deadline", false)
	}},

	{"overlap_blocked", overlapJobs, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		other := f.add(newJob(grouped("g")))[0]
		id := f.take("a", tick(f.now, grouped("g"))).Ticks[0].ID
		f.is(storage.Blocked, id)
		f.overlaps("blocked", true)
		f.done(other)
		f.overlaps("let in", true)
		f.done(id)
		f.overlaps("done", false)
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
