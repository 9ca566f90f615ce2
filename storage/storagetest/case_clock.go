package storagetest

import (
	"context"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

// timekeeper returns s as one that remembers how late it was, or skips the case.
func (f *fixture) timekeeper(s storage.Store) storage.Timekeeper {
	f.Helper()
	tk, ok := s.(storage.Timekeeper)
	if !ok {
		f.skip("storage.Timekeeper")
	}
	return tk
}

// clock checks what Clock tells: the latest now.
func (f *fixture) clock(what string, s storage.Store, want time.Time, shifting bool) {
	f.Helper()
	got, shift, err := f.timekeeper(s).Clock(f.ctx)
	f.must(err)
	if !got.Equal(want) {
		f.Errorf("%s: Clock returned %v, want %v", what, got, want)
	}
	if shift != shifting {
		f.Errorf("%s: shifting is %v, want %v", what, shift, shifting)
	}
}

// stepClock is a whole pass of StepClock. It returns how many steps it took.
func (f *fixture) stepClock(now time.Time) int {
	f.Helper()
	var after int64
	for n := 1; ; n++ {
		next, err := f.timekeeper(f.s).StepClock(f.ctx, now, after)
		f.must(err)
		if next == 0 {
			return n
		}
		if next <= after {
			f.Fatalf("StepClock after %d returned %d", after, next)
		}
		after = next
	}
}

// clockSays is what Clock returns.
const clockSays = "Clock returns the latest now that a write was given"

var clockCases = []testCase{
	{"clock_new", `zero if there was none.
shifting is true if a pass of StepClock was begun and not finished.`, func(f *fixture) {
		for _, s := range []storage.Store{f.s, f.db.Open()} {
			got, shifting, err := f.timekeeper(s).Clock(f.ctx)
			f.must(err)
			if !got.IsZero() || shifting {
				f.Errorf("Clock of an empty database returned %v, %v", got, shifting)
			}
		}
	}},

	{"clock_writes", clockSays, func(f *fixture) {
		other := f.db.Open()
		f.timekeeper(f.s)
		var l storage.Leased
		var id storage.ID
		writes := []struct {
			name string
			do   func()
		}{
			{"Enqueue", func() { f.add(times(3, newJob())...) }},
			{"Exchange that leases", func() { l = f.leaseOne(f.s) }},
			{"Exchange that extends", func() { f.extend(f.s, l.Lease) }},
			{"Exchange that puts back", func() {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Second)})
			}},
			{"Exchange that makes ready", func() { f.later(time.Second); l = f.lease(f.s, 9)[0] }},
			{"Exchange that ends", func() { f.keep(time.Millisecond, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}) }},
			{"PurgeFinished", func() {
				if n, _, err := f.s.PurgeFinished(f.ctx, f.now); n != 1 || err != nil {
					f.Fatalf("PurgeFinished returned %d, %v", n, err)
				}
			}},
			{"Enqueue of one", func() { id = f.add(newJob())[0] }},
			{"Cancel", func() { f.cancel(id) }},
			{"Hold", func() { f.pause("other", true) }},
			{"Release", func() { f.pause("other", false) }},
			{"burying", func() { id = f.bury(storage.ReasonPermanent, "no") }},
			{"Redrive", func() { f.redrive(storage.Selection{IDs: []storage.ID{id}}, "") }},
			{"Enqueue in another process", func() { _, err := other.Enqueue(f.ctx, f.now, times(1, newJob())); f.must(err) }},
			{"leasing there", func() { l = f.leaseOne(other) }},
			{"Reclaim", func() { f.db.Kill(other); f.takes(f.s, 0, l.Lease, storage.Unstarted) }},
		}
		for _, w := range writes {
			f.later(100 * time.Millisecond)
			w.do()
			f.clock(w.name, f.s, f.now, false)
		}
	}},

	{"clock_schedules", clockSays, func(f *fixture) {
		f.timekeeper(f.s)
		f.scheduler(f.s)
		for _, w := range []struct {
			name string
			do   func()
		}{
			{"PutSchedule", func() { f.put(newSchedule("a")) }},
			{"replacing", func() { f.put(f.schedule(f.s, "a")) }},
			{"Fire of a job", func() { f.take("a", tick(f.now)) }},
			{"Fire of none", func() { f.take("a", storage.NewTick{At: f.now, Taken: storage.TickMissed}) }},
			{"DropSchedule", func() { f.drop("a") }},
		} {
			f.later(100 * time.Millisecond)
			w.do()
			f.clock(w.name, f.s, f.now, false)
		}
	}},

	{"clock_creeps", clockSays, func(f *fixture) {
		f.timekeeper(f.s)
		for range 20 {
			f.add(newJob())
			f.clock("enqueued", f.s, f.now, false)
			f.later(370 * time.Millisecond)
		}
	}},

	{"clock_nothing", `The now of a write that changed nothing, such as an Enqueue of a duplicate, may be
missing if it is less than a second later than what is returned; Close keeps it.`, func(f *fixture) {
		tk := f.timekeeper(f.s)
		n := newJob(unique("k"))
		id := f.add(n)[0]
		for range 8 {
			f.later(370 * time.Millisecond)
			if out := f.enqueue(n); !out[0].Duplicate || out[0].ID != id {
				f.Fatalf("Enqueue returned %v, want a duplicate of %v", out, id)
			}
			got, _, err := tk.Clock(f.ctx)
			f.must(err)
			if got.After(f.now) || f.now.Sub(got) >= time.Second {
				f.Errorf("Clock returned %v, want %v or less than a second before it", got, f.now)
			}
		}
		f.must(f.s.Close())
		f.s = f.db.Open()
		f.clock("after Close", f.s, f.now, false)
	}},

	{"clock_kept", clockSays + `
when it returns nil all of it is durable`, func(f *fixture) {
		f.timekeeper(f.s)
		latest := f.now.Add(1000 * time.Hour)
		f.now = latest
		f.add(newJob())
		f.now = latest.Add(-500 * time.Hour)
		f.pause(queue, false)
		f.leaseOne(f.s)
		other := f.db.Open()
		f.clock("after writes with earlier times", f.s, latest, false)
		f.clock("in another process", other, latest, false)
		f.db.Kill(other)
		f.must(f.s.Close())
		f.s = f.db.Open()
		f.clock("after opening again", f.s, latest, false)
		f.add(newJob())
		f.clock("after one more write", f.s, latest, false)
	}},

	{"clock_step", `StepClock says that it is no later than now, whatever earlier writes were given. The time that Clock returns becomes now if it was later.`, func(f *fixture) {
		f.timekeeper(f.s)
		f.add(newJob())
		f.stepClock(f.now.Add(-1000 * time.Hour))
		right := f.now.Add(-1000 * time.Hour)
		f.clock("after the step", f.s, right, false)
		f.clock("after the step, in another process", f.db.Open(), right, false)
		f.must(f.s.Close())
		f.s = f.db.Open()
		f.clock("after opening again", f.s, right, false)
		f.now = right.Add(time.Hour)
		f.add(newJob())
		f.clock("after a write", f.s, f.now, false)
	}},

	{"clock_calls", `later ones return [ErrClosed]
A context that ends before a write has begun withdraws it and returns the context's error`, func(f *fixture) {
		s := f.db.Open()
		tk := f.timekeeper(s)
		id := f.add(newJob(delay(time.Hour)))[0]
		before := f.record(id)
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		if _, err := tk.StepClock(ctx, f.now.Add(-time.Hour), 0); !errors.Is(err, context.Canceled) {
			f.Errorf("StepClock with a cancelled context returned %v", err)
		}
		f.must(s.Close())
		if _, err := tk.StepClock(f.ctx, f.now.Add(-time.Hour), 0); !errors.Is(err, storage.ErrClosed) {
			f.Errorf("StepClock after Close returned %v, want ErrClosed", err)
		}
		if _, _, err := tk.Clock(f.ctx); !errors.Is(err, storage.ErrClosed) {
			f.Errorf("Clock after Close returned %v, want ErrClosed", err)
		}
		f.same("the job", f.record(id), before)
		f.clock("after that", f.s, f.now, false)
	}},
}
