package storagetest

import (
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// aProbe is a hold of the usual lane that lets jobs through after a minute.
var aProbe = storage.Hold{Lane: storage.Lane{Queue: queue, Kind: kind}, Reason: storage.HoldUnavailable, For: time.Minute, Probe: true}

// gets checks which jobs an exchange of s leases, and returns them.
func (f *fixture) gets(what string, s storage.Store, want ...storage.ID) []storage.Leased {
	f.Helper()
	got := f.exchange(s, storage.Exchange{Wants: wants(99, lanes)}).Leased
	f.order(what, leasedIDs(got), want)
	if len(got) != len(want) {
		f.FailNow()
	}
	return got
}

// forReason is aProbe for another reason and time.
func forReason(reason string, d time.Duration) storage.Hold {
	h := aProbe
	h.Reason, h.For = reason, d
	return h
}

// through is what is known of a job that a hold has let through now.
func (f *fixture) through(l storage.Leased) storage.Through {
	return storage.Through{Lease: l.Lease, Job: l.ID, Since: f.now}
}

var probeCases = []testCase{
	{"hold_probe_one", `From its end on, the hold lets one job through, the probe
an Exchange leases it, which moves the end to the end of the lease.
So one job is let through at a time, in all processes together, and the next one if nobody releases the hold or begins it anew.
Probe is true if a hold has let the job through.`, func(f *fixture) {
		other := f.db.Open()
		f.hold(aProbe)
		ids := f.add(newJob(), newJob(priority(1)), newJob(lane("b", kind)), newJob(), newJob(lane("b", kind)), newJob(lane("b", kind)))
		f.later(time.Minute - time.Microsecond)
		f.order("other lanes", leasedIDs(f.exchange(other, storage.Exchange{Wants: wants(1, lanes)}).Leased), pick(ids, 2))
		f.later(time.Microsecond)
		for _, l := range f.gets("the first of the lane, and all of others", f.s, pick(ids, 1, 4, 5)...) {
			if l.Probe != (l.ID == ids[1]) {
				f.Errorf("Probe of job %v is %v", l.ID, l.Probe)
			}
		}
		f.gets("one was let through", f.s)
		f.gets("one was let through, by another instance", other)
		more := f.add(newJob(priority(9)))[0]
		f.later(hold - time.Microsecond)
		f.gets("before the end of its lease", other)
		f.later(time.Microsecond)
		f.gets("at the end of its lease", other, more)
		f.gets("and no more", f.s)
		f.later(hold)
		f.gets("the next", other, ids[0])
		f.later(time.Hour)
		f.gets("the last", f.s, ids[3])
		f.later(time.Hour)
		f.gets("none was left", f.s)
		late := f.add(newJob(), newJob())
		f.gets("a job that came later", other, late[0])
		f.gets("and no more", f.s)
	}},

	{"hold_probe_together", `So one job is let through at a time, in all processes together`, func(f *fixture) {
		stores := []storage.Store{f.s, f.db.Open()}
		f.hold(aProbe)
		f.add(times(40, newJob())...)
		f.later(time.Minute)
		for range 5 {
			var wg sync.WaitGroup
			leased := make(chan storage.Leased, 40)
			for i := range 8 {
				wg.Go(func() {
					res, err := stores[i%2].Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: hold, Wants: wants(1 + i)})
					if err != nil {
						f.Errorf("unexpected error: %v", err)
					}
					for _, l := range res.Leased {
						leased <- l
					}
				})
			}
			wg.Wait()
			if n := len(leased); n != 1 {
				f.Errorf("%d jobs were let through, want one", n)
			}
			f.later(hold)
		}
	}},

	{"hold_probe_anew", `Probe keeps the hold in force until it is released.
and the next one if nobody releases the hold or begins it anew.`, func(f *fixture) {
		ids := f.add(times(5, newJob())...)
		f.hold(aProbe)
		f.later(time.Minute)
		f.gets("the first", f.s, ids[0])
		f.hold(forReason(aProbe.Reason, time.Hour))
		f.later(time.Hour - time.Microsecond)
		f.gets("held anew", f.s)
		f.later(time.Microsecond)
		f.hold(forReason(aProbe.Reason, time.Second))
		f.gets("held anew when it was ajar", f.s)
		f.later(time.Second)
		f.gets("the second", f.s, ids[1])
		f.hold(storage.Hold{Lane: aProbe.Lane, Reason: aProbe.Reason, Probe: true})
		f.later(100 * 24 * time.Hour)
		f.gets("without an end", f.s)
		f.hold(aProbe)
		f.later(time.Minute)
		if !f.release(aProbe.Lane, aProbe.Reason) {
			f.Errorf("Release of a hold that lets jobs through returned false")
		}
		f.gets("released", f.s, ids[2:]...)
		f.hold(aProbe)
		h := aProbe
		h.Probe = false
		f.hold(h)
		f.later(time.Minute)
		ids = f.add(times(2, newJob())...)
		f.gets("after one that does not let jobs through", f.s, ids...)
	}},

	{"hold_probe_offer", `An [Offer] gets none.`, func(f *fixture) {
		other := f.db.Open()
		w := f.offer(f.s, lanes, 9)
		f.hold(aProbe)
		f.later(time.Minute)
		one := f.add(newJob())[0]
		w.took("one job of a lane that is ajar")
		ids := f.four()
		w.took("of other lanes", ids[1:]...)
		free := f.add(newJob(lane("b", kind)))
		w.took("one job of another lane", free...)
		f.gets("of an exchange", other, one)
		f.later(hold)
		f.gets("of an exchange of the instance with the offer", f.s, ids[0])
		f.release(aProbe.Lane, aProbe.Reason)
		w.took("released", f.add(newJob())...)
	}},

	{"hold_probe_stacks", `Another hold of the lane may keep probes back.`, func(f *fixture) {
		ids := f.add(times(9, newJob())...)
		f.hold(aProbe)
		f.hold(forReason(storage.HoldBrake, 2*time.Minute))
		f.hold(aPause)
		f.hold(storage.Hold{Lane: storage.Lane{Kind: kind}, Reason: "a", For: 3 * time.Minute})
		f.hold(storage.Hold{Lane: aProbe.Lane, Reason: "b", For: 4 * time.Minute})
		f.later(4*time.Minute - time.Microsecond)
		f.release(aPause.Lane, aPause.Reason)
		f.gets("one reason is left", f.s)
		f.hold(aPause)
		f.later(time.Microsecond)
		f.gets("paused", f.s)
		f.release(aPause.Lane, aPause.Reason)
		f.gets("two that let jobs through", f.s, ids[0])
		f.later(hold - time.Microsecond)
		f.gets("before the lease ends", f.s)
		f.later(time.Microsecond)
		f.gets("after it", f.s, ids[1])
		f.release(aProbe.Lane, aProbe.Reason)
		f.gets("released for one of two reasons", f.s)
		f.later(hold)
		f.gets("which lets jobs through", f.s, ids[2])
		f.later(hold)
		f.hold(aProbe)
		f.gets("held anew for one of them", f.s)
		f.release(aProbe.Lane, aProbe.Reason)
		f.release(aProbe.Lane, storage.HoldBrake)
		f.gets("released", f.s, ids[3:]...)
	}},

	{"hold_probe_next_due", `all holds of a lane that matches a Want have ended`, func(f *fixture) {
		next := func(what string, n int, want time.Time) {
			f.Helper()
			res := f.exchange(f.s, storage.Exchange{Wants: wants(1)})
			if len(res.Leased) != n || !res.NextDue.Equal(want) || res.NextDue.IsZero() != want.IsZero() {
				f.Errorf("%s: %d were leased and NextDue is %v, want %d and %v", what, len(res.Leased), res.NextDue, n, want)
			}
		}
		f.hold(aProbe)
		next("held", 0, f.now.Add(time.Minute))
		f.later(time.Minute)
		next("ajar", 0, time.Time{})
		f.add(times(3, newJob())...)
		next("let through", 1, f.now.Add(hold))
		f.later(time.Second)
		next("held again", 0, f.now.Add(hold-time.Second))
		f.add(newJob(delay(time.Second)))
		f.later(hold - time.Second)
		f.add(newJob(delay(time.Second)))
		next("a job due earlier", 1, f.now.Add(time.Second))
		res := f.exchange(f.s, storage.Exchange{Hold: []storage.Hold{forReason(aProbe.Reason, time.Millisecond)}, Wants: wants(1)})
		if want := f.now.Add(time.Millisecond); !res.NextDue.Equal(want) {
			f.Errorf("held anew by the exchange: NextDue is %v, want %v", res.NextDue, want)
		}
	}},

	{"hold_probe_list", `Until is when the hold is over, or with Probe when the next job is let through; zero if it lasts until it is released.
For is the For of the Hold, rounded up to whole microseconds.
Probe is that of the Hold.
By is who holds the lane, and Detail why, for people.
if that was in force, its Since and Through stay.`, func(f *fixture) {
		h := aProbe
		h.By, h.Detail = "worker", "no route to host"
		state := storage.HoldState{
			Lane: h.Lane, Reason: h.Reason, By: h.By, Detail: h.Detail, Since: f.now, Until: f.now.Add(time.Minute), For: time.Minute,
			Probe: true, Waiting: 2, Ready: 2,
		}
		f.add(newJob(), newJob())
		f.hold(h)
		f.holdsAre("held", state)
		f.later(time.Hour)
		f.holdsAre("ajar", state)
		state.Through = f.through(f.leaseOne(f.s))
		state.Until, state.Waiting, state.Ready = f.now.Add(hold), 1, 1
		f.holdsAre("one was let through", state)
		f.later(hold)
		h.Detail, h.For = "", 90*time.Second
		f.now = f.now.Add(1) // a nanosecond
		f.hold(h)
		f.now = f.now.Add(-1)
		state.Detail, state.For, state.Until = "", h.For, f.now.Add(h.For+time.Microsecond)
		f.holdsAre("again", state)
		f.later(h.For + time.Microsecond)
		f.release(h.Lane, h.Reason)
		f.holdsAre("released")
		h.Probe = false
		f.hold(h)
		f.later(h.For)
		f.holdsAre("one that lets none through is over")
	}},

	{"hold_probe_through", `Through is the last job that the hold has let through, while its lease is held; zero from then on.
if that was in force, its Since and Through stay.
A probe that still runs at the end does not keep the next one back.
The Hold then takes effect only if a hold with its lane and reason is in force, and that probe is the last one that it has let through.
Hanging is that of the Hold.`, func(f *fixture) {
		other := f.db.Open()
		f.add(times(4, newJob())...)
		f.hold(aProbe)
		state := storage.HoldState{Lane: aProbe.Lane, Reason: aProbe.Reason, Since: f.now, For: time.Minute, Probe: true}
		at := func(what string, until time.Time, waiting int64) {
			f.Helper()
			state.Until, state.Waiting, state.Ready = until, waiting, waiting
			f.holdsAre(what, state)
		}
		f.later(time.Minute)
		first := f.leaseOne(f.s)
		state.Through = f.through(first)
		at("the first", f.now.Add(hold), 3)
		f.later(time.Second)
		extends := func(l storage.Leased, d time.Duration) storage.Hold {
			h := forReason(aProbe.Reason, time.Minute)
			h.Until, h.Through, h.Hanging = f.now.Add(d), l.Lease, 7
			return h
		}
		f.hold(extends(first, hold))
		state.Hanging = 7
		at("put off for the first", f.now.Add(hold), 3)
		if f.extend(f.s, first.Lease) != storage.Applied {
			f.Errorf("the lease of the first was not extended")
		}
		f.exchange(f.s, storage.Exchange{Hold: []storage.Hold{extends(first, 0)}})
		at("the next at once", f.now, 3)
		second := f.leaseOne(other)
		state.Through = f.through(second)
		at("the second, while the first runs", f.now.Add(hold), 2)
		f.hold(extends(first, time.Hour))
		f.exchange(f.s, storage.Exchange{Hold: []storage.Hold{extends(first, time.Hour)}})
		f.exchange(f.s, storage.Exchange{Hold: []storage.Hold{{Lane: aProbe.Lane, Reason: storage.HoldBrake, For: hold, Probe: true, Through: second.Lease}}})
		wrong := second
		wrong.Key++
		f.hold(extends(wrong, time.Hour))
		at("put off for the first, and for another reason", f.now.Add(hold), 2)
		x := storage.Exchange{Finish: []storage.Finish{{Lease: second.Lease, Outcome: storage.OutcomeReturned}}}
		x.Hold = []storage.Hold{extends(second, time.Minute)}
		f.exchange(other, x)
		state.Through = storage.Through{}
		at("renewed as the second ends", f.now.Add(time.Minute), 3)
		f.hold(extends(first, time.Hour))
		at("put off for the first when the second has ended", f.now.Add(time.Minute), 3)
		state.Hanging = 0
		f.hold(aProbe)
		at("begun anew", f.now.Add(time.Minute), 3)
		f.hold(extends(second, time.Hour))
		state.Hanging = 7
		at("what it has let through stays", f.now.Add(time.Hour), 3)
		f.release(aProbe.Lane, aProbe.Reason)
		f.hold(extends(second, time.Hour))
		f.exchange(other, storage.Exchange{Hold: []storage.Hold{extends(second, time.Hour)}})
		f.holdsAre("put off when it is released")
		f.hold(aProbe)
		f.hold(extends(second, time.Hour))
		state.Since, state.Hanging = f.now, 0
		at("put off for what another one has let through", f.now.Add(time.Minute), 3)
	}},

	{"hold_probe_reclaimed", `A Reclaim that takes the lease of the last probe moves an end that is later to now.`, func(f *fixture) {
		a, b, c := f.db.Open(), f.db.Open(), f.db.Open()
		ids := f.add(times(9, newJob())...)
		began := f.run(b, priority(1))
		f.hold(aProbe)
		f.hold(forReason(storage.HoldBrake, time.Second))
		state := storage.HoldState{Lane: aProbe.Lane, Reason: aProbe.Reason, Since: f.now, For: time.Minute, Probe: true}
		until := func(what string, until time.Time, waiting int64) {
			f.Helper()
			state.Until, state.Waiting, state.Ready = until, waiting, waiting
			brake := state
			brake.Reason, brake.For = storage.HoldBrake, time.Second
			f.holdsAre(what, brake, state)
		}
		f.later(time.Minute)
		first := f.gets("the first", a, ids[0])[0]
		state.Through = f.through(first)
		f.later(time.Second)
		f.db.Kill(b)
		f.takes(f.s, 0, began.Lease, storage.Unstarted)
		until("the holder of another job is gone", f.now.Add(hold-time.Second), 8)
		f.db.Kill(a)
		taken := f.takes(c, 0, first.Lease, storage.Unstarted)
		state.Through = storage.Through{}
		until("the holder of the first is gone", f.now, 8)
		second := f.gets("the second", f.s, ids[1])[0]
		state.Through = f.through(second)
		f.later(time.Second)
		f.db.Kill(c)
		f.takes(f.s, 0, taken.Lease, storage.Unstarted)
		until("who has taken the first is gone too", f.now.Add(hold-time.Second), 7)
		f.later(hold)
		a = f.db.Open()
		third := f.gets("the third", a, ids[2])[0]
		f.takesNothing(f.s, 0)
		f.later(2 * hold)
		state.Through = storage.Through{Lease: third.Lease, Job: third.ID, Since: f.now.Add(-2 * hold)}
		at := f.now.Add(-hold)
		f.takes(f.s, hold, third.Lease, storage.Cut)
		state.Through = storage.Through{}
		until("the lease of the third has lapsed", at, 6)
		f.later(time.Second)
		for i, h := range []storage.Hold{{}, aProbe} {
			a = f.db.Open()
			probe := f.gets("the next", a, ids[3+i])[0]
			h.Lane, h.Reason = aProbe.Lane, aProbe.Reason
			h.Probe = i == 0
			f.hold(h)
			f.release(aProbe.Lane, storage.HoldBrake)
			f.db.Kill(a)
			f.takes(f.s, hold, probe.Lease, storage.Unstarted)
			n := int64(5 - i)
			state = storage.HoldState{Lane: h.Lane, Reason: h.Reason, Since: state.Since, For: h.For, Probe: h.Probe, Waiting: n, Ready: n}
			if h.For > 0 {
				state.Until = f.now.Add(h.For)
			}
			f.holdsAre("begun anew meanwhile", state)
			f.gets("begun anew meanwhile", f.s)
			f.hold(storage.Hold{Lane: h.Lane, Reason: h.Reason, Probe: true, For: time.Microsecond})
			f.later(time.Second)
		}
	}},

	{"hold_probe_dated", `With Probe both may be set: Until is the end then, and For is kept as the length.
Without a For, or with an Until, Doubtful has no effect.`, func(f *fixture) {
		ids := f.add(times(4, newJob())...)
		state := storage.HoldState{Lane: aProbe.Lane, Reason: aProbe.Reason, Since: f.now, For: time.Hour, Probe: true, Waiting: 4, Ready: 4}
		h := forReason(aProbe.Reason, time.Hour)
		for i, doubtful := range []bool{false, true} {
			h.Until, h.Doubtful = f.now, doubtful
			f.hold(h)
			n := int64(4 - 2*i)
			state.Until, state.Waiting, state.Ready = f.now, n, n
			f.holdsAre("ajar at once", state)
			state.Through = f.through(f.gets("ajar at once", f.s, ids[2*i])[0])
			h.Until = f.now.Add(time.Minute)
			f.hold(h)
			state.Until, state.Waiting, state.Ready = h.Until, n-1, n-1
			f.holdsAre("until a date", state)
			f.later(time.Minute - time.Microsecond)
			f.gets("a microsecond early", f.s)
			f.later(time.Microsecond)
			state.Through = f.through(f.gets("at that date", f.s, ids[2*i+1])[0])
		}
	}},

	{"hold_probe_shifted", `A hold whose end is more than its For after now ends that For after now. With Probe but no For it ends now.
A hold that began later began now; so did a job that it let through.`, func(f *fixture) {
		f.timekeeper(f.s)
		ids := f.add(newJob(), newJob())
		f.later(month)
		f.hold(forReason(aProbe.Reason, time.Second))
		f.later(time.Second)
		l := f.gets("let through at a wrong time", f.s, ids[0])[0]
		f.later(-month)
		f.stepClock(f.now)
		f.holdsAre("what was let through", storage.HoldState{Lane: aProbe.Lane, Reason: aProbe.Reason, Since: f.now,
			Until: f.now.Add(time.Second), For: time.Second, Probe: true, Through: f.through(l), Waiting: 1, Ready: 1})
		f.later(time.Second - time.Microsecond)
		f.gets("a microsecond early", f.s)
		f.later(time.Microsecond)
		f.gets("that For later", f.s, ids[1])
		f.release(aProbe.Lane, aProbe.Reason)
		for _, length := range []time.Duration{0, time.Second} {
			f.later(month)
			h := forReason(aProbe.Reason, length)
			h.Until = f.now.Add(time.Hour)
			f.hold(h)
			id := f.add(newJob())[0]
			f.later(-month)
			for range 2 {
				f.stepClock(f.now)
				f.holdsAre("with an Until", storage.HoldState{Lane: h.Lane, Reason: h.Reason, Since: f.now,
					Until: f.now.Add(length), For: length, Probe: true, Waiting: 1, Ready: 1})
			}
			f.later(length)
			f.gets("with an Until", f.s, id)
			f.release(h.Lane, h.Reason)
		}
	}},

	{"exchange_hold", `Hold begins holds as [Holder.Hold] does, after Finish and before anything is leased.
Release ends holds as [Holder.Release] does, after those of Hold have begun. Only the lane and the reason of each count.`, func(f *fixture) {
		other := f.db.Open()
		gone := f.run(f.s)
		ids := f.four()
		exchange := func(what string, x storage.Exchange, want ...storage.ID) storage.ExchangeResult {
			f.Helper()
			x.Wants = wants(99, lanes)
			res := f.exchange(f.s, x)
			f.order(what, leasedIDs(res.Leased), want)
			return res
		}
		began := f.now
		x := storage.Exchange{
			Hold:   []storage.Hold{aProbe, {Lane: storage.Lane{Queue: "b", Kind: "y"}, Reason: "a"}},
			Finish: []storage.Finish{{Lease: gone.Lease, Outcome: storage.OutcomeReturned}},
		}
		if res := exchange("both held", x, ids[1], ids[2]); res.Finished[0] != storage.Applied {
			f.Errorf("finishing returned result %d, want applied", res.Finished[0])
		}
		f.holdsAre("both",
			storage.HoldState{Lane: storage.Lane{Queue: "b", Kind: "y"}, Reason: "a", Since: began, Waiting: 1, Ready: 1},
			storage.HoldState{Lane: aProbe.Lane, Reason: aProbe.Reason, Since: began, Until: began.Add(time.Minute), For: time.Minute, Probe: true, Waiting: 2, Ready: 2})
		f.gets("held for all", other)
		f.exchange(f.s, storage.Exchange{Release: []storage.Hold{{Lane: storage.Lane{Queue: "b", Kind: "y"}, Reason: "a"}}})
		f.gets("released by an exchange that does nothing else", other, ids[3])
		f.later(time.Minute)
		l := f.gets("let through", other, gone.ID)[0]
		x = storage.Exchange{Hold: []storage.Hold{aProbe}, Release: []storage.Hold{{Lane: aProbe.Lane, Reason: aProbe.Reason, By: "any"}}}
		f.exchange(f.s, x)
		f.holdsAre("begun and ended")
		f.exchange(f.s, storage.Exchange{Hold: []storage.Hold{aProbe}})
		f.gets("held by an exchange that does nothing else", other)
		f.now = f.now.Add(time.Minute)
		x = storage.Exchange{Hold: []storage.Hold{aProbe}, Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now}}}
		f.exchange(other, x)
		exchange("held anew when it was ajar", storage.Exchange{})
		exchange("released", storage.Exchange{Release: []storage.Hold{aProbe}}, ids[0], gone.ID)
	}},
}
