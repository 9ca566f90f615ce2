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
		f.Skip("the store is no storage.Notifier")
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

var notifyCases = []testCase{
	{"notify_due", `Notify has f called after each commit, of this process or another, that may concern a worker.
Due is when the earliest job it made available is due; the zero time means at once.`, func(f *fixture) {
		other := f.db.Open()
		here, there := f.heard(f.s), f.heard(other)
		by := func(t time.Time) func(storage.Event) bool {
			return func(e storage.Event) bool { return e.Due.IsZero() || !e.Due.After(t) }
		}
		both := func(what string, due time.Time, do func()) {
			f.Helper()
			drain(here)
			drain(there)
			do()
			f.hears(what+" here", here, by(due))
			f.hears(what+" there", there, by(due))
		}
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
		both("redriven", f.now, func() { f.redrive(storage.DeadSelection{}, "") })
		f.pause(queue, true)
		both("resumed", f.now, func() { f.pause(queue, false) })
	}},

	{"notify_control", `Control is set if leases should be extended soon, because a running job may have been asked to stop`, func(f *fixture) {
		other := f.db.Open()
		here, there := f.heard(f.s), f.heard(other)
		l := f.run(other)
		drain(here)
		drain(there)
		f.cancel(l.ID)
		control := func(e storage.Event) bool { return e.Control }
		f.hears("asked to stop, here", here, control)
		f.hears("asked to stop, there", there, control)
	}},

	{"notify_undo", `The result undoes it.`, func(f *fixture) {
		n, ok := f.s.(storage.Notifier)
		if !ok {
			f.Skip("the store is no storage.Notifier")
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
}
