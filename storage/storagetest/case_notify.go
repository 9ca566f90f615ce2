package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// patience is how long to wait for a notification, which another process may
// have to send. Only a fault makes a case wait that long.
const patience = 10 * time.Second

// heard collects the events that s tells of, until the case ends.
func (f *fixture) heard(s storage.Store) <-chan storage.Event {
	f.Helper()
	n, ok := s.(storage.Notifier)
	if !ok {
		f.skip("storage.Notifier")
	}
	events := make(chan storage.Event, 10_000)
	f.Cleanup(n.Notify(func(e storage.Event) {
		select {
		case events <- e:
		default: // f must not block
		}
	}))
	return events
}

// hears waits for an event that match accepts.
func (f *fixture) hears(what string, events <-chan storage.Event, match func(storage.Event) bool) {
	f.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		select {
		case e := <-events:
			if match(e) {
				return
			}
		case <-end.C:
			f.Fatalf("%s: no such event came", what)
		}
	}
}

func drain(events <-chan storage.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

// hearsBoth returns a function that does something and waits for the event of it,
// in the first instance and in other.
func (f *fixture) hearsBoth(other storage.Store) func(what string, match func(storage.Event) bool, do func()) {
	here, there := f.heard(f.s), f.heard(other)
	return func(what string, match func(storage.Event) bool, do func()) {
		f.Helper()
		drain(here)
		drain(there)
		do()
		f.hears(what+" here", here, match)
		f.hears(what+" there", there, match)
	}
}

// hearsDue is hearsBoth for events that make something available by due.
func (f *fixture) hearsDue(other storage.Store) func(what string, due time.Time, do func()) {
	both := f.hearsBoth(other)
	return func(what string, due time.Time, do func()) {
		f.Helper()
		both(what, func(e storage.Event) bool { return e.Due.IsZero() || !e.Due.After(due) }, do)
	}
}

// once does something, and checks that s tells of it once, also as it goes on to work.
func (f *fixture) once(s storage.Store, what string, match func(storage.Event) bool, do func()) {
	f.Helper()
	events := f.heard(s)
	do()
	for range 3 { // transactions, in which s sees what others have changed
		_, err := s.Enqueue(f.ctx, f.now, times(1, newJob()))
		f.must(err)
	}
	f.hears(what, events, match)
	for len(events) > 0 {
		if e := <-events; match(e) {
			f.Errorf("%s: another event tells of it: %+v", what, e)
		}
	}
}

func cancels(e storage.Event) bool   { return e.Cancel }
func schedules(e storage.Event) bool { return e.Schedules }

var notifyCases = []testCase{
	{"notify_due", `Notify makes the Store call f after each commit, of this process or another, that may concern a worker.
Due is when the earliest job it made available is due; the zero time means at once.`, func(f *fixture) {
		both := f.hearsDue(f.db.Open())
		both("ready", f.now, func() { f.add(newJob()) })
		both("scheduled", f.now.Add(time.Hour), func() {
			f.add(newJob(dueAt(f.now.Add(2*time.Hour))), newJob(dueAt(f.now.Add(time.Hour))))
		})
		l := f.leaseOne(f.s)
		both("retry", f.now.Add(time.Minute), func() {
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Minute)})
		})
		f.later(time.Minute)
		l = f.leaseOne(f.s)
		both("returned", f.now, func() { f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeReturned}) })
		l = f.leaseOne(f.s)
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		both("redriven", f.now, func() { f.redrive(storage.Selection{}, "") })
		f.pause(queue, true)
		both("resumed", f.now, func() { f.pause(queue, false) })
	}},

	{"notify_cancel", `Cancel is true if a running job may have been asked to stop, so that leases should be extended soon.`, func(f *fixture) {
		other := f.db.Open()
		both := f.hearsBoth(other)
		l := f.run(other)
		both("asked to stop", cancels, func() { f.cancel(l.ID) })
	}},

	{"cancel_alone", `It is false if only lanes, holds or schedules have changed: extending all leases writes much.`, func(f *fixture) {
		both := f.hearsBoth(f.db.Open())
		quiet := func(what string, do func()) {
			f.Helper()
			both(what, func(e storage.Event) bool {
				if e.Cancel {
					f.Errorf("%s: an event says that a running job was asked to stop", what)
				}
				return true
			}, func() {
				do()
				f.add(newJob()) // some event comes
			})
		}
		f.run(f.s)
		quiet("a new lane", func() { f.add(newJob(func(j *storage.NewJob) { j.Queue = "another queue" })) })
		quiet("a pause", func() { f.pause("another queue", true) })
		quiet("its end", func() { f.pause("another queue", false) })
		if _, ok := f.s.(storage.Scheduler); ok {
			quiet("a new schedule", func() { f.put(newSchedule("a")) })
			quiet("its end", func() { f.drop("a") })
		}
	}},

	{"notify_undo", `The result undoes it.`, func(f *fixture) {
		n, ok := f.s.(storage.Notifier)
		if !ok {
			f.skip("storage.Notifier")
		}
		undone := make(chan storage.Event, 100)
		cancel := n.Notify(func(e storage.Event) { undone <- e })
		cancel()
		cancel()
		events := f.heard(f.s)
		f.add(newJob())
		f.hears("enqueued", events, func(storage.Event) bool { return true })
		f.add(newJob())
		f.hears("enqueued again", events, func(storage.Event) bool { return true })
		if len(undone) > 0 {
			f.Errorf("%d events came after it was undone", len(undone))
		}
	}},

	{"notify_schedules", `Schedules is true if schedules should be read again, because they may have changed otherwise than by Fire.`, func(f *fixture) {
		both := f.hearsBoth(f.db.Open())
		both("added", schedules, func() { f.put(newSchedule("a")) })
		both("replaced", schedules, func() { f.put(f.schedule(f.s, "a")) })
		both("dropped", schedules, func() { f.drop("a") })
	}},

	{"told_once", `One change of holds, of schedules or of an urgent job is one Event with Holds, Schedules or Urgent.`, func(f *fixture) {
		other := f.db.Open()
		f.run(f.s) // from here on both are registered, and the lane is there
		f.run(other)
		for _, s := range []storage.Store{f.s, other} {
			f.once(s, "held", func(e storage.Event) bool { return len(e.Holds) > 0 }, func() { f.hold(aPause) })
			f.once(s, "released", func(e storage.Event) bool { return len(e.Holds) > 0 }, func() { f.release(aPause.Lane, aPause.Reason) })
			if _, ok := f.s.(storage.Scheduler); ok {
				f.once(s, "schedule", schedules, func() { f.put(newSchedule("a")) })
				f.once(s, "no schedule", schedules, func() { f.drop("a") })
			}
		}
		id := f.add(newJob())[0]
		f.once(f.s, "urgent", func(e storage.Event) bool { return e.Urgent }, func() {
			f.runNow(named(id), anyRun)
		})
	}},

	{"notify_fired", `Due is when the earliest job it made available is due; the zero time means at once.`, func(f *fixture) {
		both := f.hearsDue(f.db.Open())
		f.put(newSchedule("a"))
		both("fired", f.now, func() { f.take("a", tick(f.now)) })
		both("fired ahead", f.now.Add(time.Hour), func() {
			f.take("a", tick(f.now, dueAt(f.now.Add(2*time.Hour))), tick(f.now, delay(time.Hour)))
		})
	}},

	{"notify_shifted", `Notify makes the Store call f after each commit, of this process or another, that may concern a worker.
Due is when the earliest job it made available is due; the zero time means at once.`, func(f *fixture) {
		f.timekeeper(f.s)
		both := f.hearsDue(f.db.Open())
		f.later(month)
		f.add(newJob(delay(2*time.Hour)), newJob(delay(time.Hour)))
		f.later(-month)
		both("shifted", f.now.Add(time.Hour), func() { f.stepClock(f.now) })
	}},

	{"notify_clock", `Clock is the latest now that a write of another process was given, if that is known; else zero.`, func(f *fixture) {
		other := f.db.Open()
		events := f.heard(f.s)
		f.add(newJob())
		var latest time.Time // that other has given
		hears := func(what string) {
			f.Helper()
			f.hears(what, events, func(e storage.Event) bool {
				if e.Clock.After(latest) {
					f.Errorf("%s: Clock is %v, but no other process was later than %v", what, e.Clock, latest)
				}
				return true
			})
		}
		hears("before other writes")
		f.later(time.Hour)
		latest = f.now
		_, err := other.Enqueue(f.ctx, f.now, times(1, newJob()))
		f.must(err)
		hears("written by other")
		f.later(time.Hour)
		f.add(newJob())
		hears("written by itself")
	}},
}
