package storagetest

import (
	"reflect"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// aPause is the hold that a pause of the usual queue is.
var aPause = storage.Hold{Lane: storage.Lane{Queue: queue}, Reason: storage.HoldPaused}

func (f *fixture) hold(h storage.Hold) {
	f.Helper()
	f.must(f.s.Hold(f.ctx, f.now, h))
}

func (f *fixture) release(l storage.Lane, reason string) bool {
	f.Helper()
	was, err := f.s.Release(f.ctx, f.now, l, reason)
	f.must(err)
	return was
}

// holdsAre checks what Holds returns, of the first instance and of a new one.
func (f *fixture) holdsAre(what string, want ...storage.HoldState) {
	f.Helper()
	for _, s := range []storage.Store{f.s, f.db.Open()} {
		got, err := s.Holds(f.ctx, f.now)
		f.must(err)
		if got, want := plainHolds(got), plainHolds(want); !reflect.DeepEqual(got, want) {
			f.Errorf("%s: Holds returned\n %+v, want\n %+v", what, got, want)
		}
	}
}

func plainHolds(holds []storage.HoldState) (out []storage.HoldState) {
	for _, h := range holds {
		h.Since, h.Until, h.Through.Since = h.Since.UTC(), h.Until.UTC(), h.Through.Since.UTC()
		out = append(out, h)
	}
	return out
}

// lanes are two kinds in two queues.
var lanes = storage.Want{Queues: []string{queue, "b"}, Kinds: []string{kind, "y"}}

// leases checks which of jobs are leased now, and gives them back.
func (f *fixture) leases(what string, want ...storage.ID) {
	f.Helper()
	got := f.exchange(f.s, storage.Exchange{Wants: wants(99, lanes)}).Leased
	f.order(what, leasedIDs(got), want)
	x := storage.Exchange{}
	for _, l := range got {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeReturned})
	}
	f.exchange(f.s, x)
}

// four enqueues a job in each of lanes.
func (f *fixture) four() []storage.ID {
	f.Helper()
	return f.add(newJob(), newJob(lane(queue, "y")), newJob(lane("b", kind)), newJob(lane("b", "y")))
}

const untilSays = "Until is when the hold is over: an Exchange at Until leases again."

var holdCases = []testCase{
	{"hold_lanes", `Lane is what is held. An empty Kind stands for all kinds of the queue, an empty Queue for the kind in all queues.
no job of the lane is leased, by an Exchange or to an [Offer].
Release ends the hold of just this lane for this reason.`, func(f *fixture) {
		ids := f.four()
		for _, c := range []struct {
			lane storage.Lane
			free []storage.ID
		}{
			{storage.Lane{Queue: queue}, pick(ids, 2, 3)},
			{storage.Lane{Kind: "y"}, pick(ids, 0, 2)},
			{storage.Lane{Queue: "b", Kind: kind}, pick(ids, 0, 1, 3)},
			{storage.Lane{Queue: "unheard of"}, ids},
			{storage.Lane{Kind: "unheard of"}, ids},
			{storage.Lane{Queue: "unheard of", Kind: kind}, ids},
		} {
			f.hold(storage.Hold{Lane: c.lane, Reason: "night"})
			f.leases("held "+c.lane.Queue+" "+c.lane.Kind, c.free...)
			for _, other := range []storage.Lane{{Queue: queue, Kind: kind}, {Queue: c.lane.Queue, Kind: c.lane.Kind + "x"}, {Queue: c.lane.Queue + "x", Kind: c.lane.Kind}} {
				f.release(other, "night")
			}
			f.release(c.lane, "other")
			f.leases("after other holds were released", c.free...)
			f.release(c.lane, "night")
			f.leases("released", ids...)
		}
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue}, Reason: "night"})
		f.hold(storage.Hold{Lane: storage.Lane{Kind: "y"}, Reason: "night"})
		f.leases("a queue and a kind", ids[2])
	}},

	{"hold_new_lane", `Hold stops leasing from a lane, also one that has no job yet, until the hold is over or released.`, func(f *fixture) {
		held := storage.Lane{Queue: queue, Kind: kind}
		f.hold(storage.Hold{Lane: held, Reason: "night"})
		ids := f.four()
		f.leases("held before its first job", ids[1:]...)
		f.release(held, "night")
		f.leases("released", ids...)
	}},

	{"hold_stacks", `A lane may have holds of several reasons: as long as one of them is in force no job of the lane is leased`, func(f *fixture) {
		id := f.add(newJob())[0]
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue}, Reason: "a", For: time.Minute})
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue}, Reason: "b"})
		f.hold(storage.Hold{Lane: storage.Lane{Kind: kind}, Reason: "a"})
		f.leases("held three times")
		f.release(storage.Lane{Kind: kind}, "a")
		f.leases("held twice")
		f.later(time.Minute)
		f.leases("held once")
		f.release(storage.Lane{Queue: queue}, "b")
		f.leases("released", id)
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue}, Reason: "a"})
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue}, Reason: "b"})
		f.release(storage.Lane{Queue: queue}, "b")
		f.leases("held for the first of two reasons")
	}},

	{"hold_released", `It reports whether there was one in force.`, func(f *fixture) {
		for _, c := range []struct {
			what string
			do   func()
			want bool
		}{
			{"none", func() {}, false},
			{"one", func() { f.hold(aPause) }, true},
			{"one that was released", func() {}, false},
			{"one that is over", func() {
				f.hold(storage.Hold{Lane: aPause.Lane, Reason: aPause.Reason, For: time.Second})
				f.later(time.Second)
			}, false},
			{"one held twice", func() { f.hold(aPause); f.hold(aPause) }, true},
			{"and no more", func() {}, false},
		} {
			c.do()
			if got := f.release(aPause.Lane, aPause.Reason); got != c.want {
				f.Errorf("Release of %s returned %v", c.what, got)
			}
			f.holdsAre("after " + c.what)
		}
	}},

	{"hold_until", untilSays + `
If zero, the hold lasts until it is released.`, func(f *fixture) {
		id := f.add(newJob())[0]
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "a", Until: f.now.Add(time.Minute + 1)})
		f.later(time.Minute)
		f.leases("a microsecond early")
		f.later(time.Microsecond)
		f.leases("at Until", id)
		f.hold(aPause)
		f.later(100 * 365 * 24 * time.Hour)
		f.leases("without an end, a hundred years later")
	}},

	{"hold_set_back", `If the clock is set back less than a day after Until, the hold is in force again.`, func(f *fixture) {
		end := f.now.Add(time.Hour)
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "a", Until: end})
		id := f.add(newJob())[0]
		f.later(25*time.Hour - time.Microsecond)
		f.leases("when it is over", id)
		f.later(time.Hour - 25*time.Hour)
		f.leases("a microsecond before its end")
		f.holdsAre("then", storage.HoldState{Lane: aPause.Lane, Reason: "a", Since: end.Add(-time.Hour), Until: end, Waiting: 1, Ready: 1})
		f.later(time.Microsecond)
		f.leases("at its end", id)
	}},

	{"hold_for", `For, if positive, is how long after now the hold is over; Until is zero then.`, func(f *fixture) {
		id := f.add(newJob())[0]
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "a", For: time.Minute})
		f.later(time.Minute - time.Microsecond)
		f.leases("a microsecond early")
		f.later(time.Microsecond)
		f.leases("at its end", id)
	}},

	{"hold_renewed", `A hold takes the place of the one with the same lane and reason; if that was in force, its Since and Through stay.
Since is when the hold began.`, func(f *fixture) {
		began := f.now
		night := storage.HoldState{Lane: aPause.Lane, Reason: "night", By: "ada", Since: began, Until: began.Add(time.Hour), For: time.Hour}
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "night", By: "ada", For: time.Hour})
		f.holdsAre("held", night)
		f.later(time.Minute)
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "night", By: "bob", For: time.Second})
		night.By, night.Until, night.For = "bob", f.now.Add(time.Second), time.Second
		f.holdsAre("again, for less", night)
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "night"})
		night.By, night.Until, night.For = "", time.Time{}, 0
		f.holdsAre("without an end", night)
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "night", Until: f.now.Add(time.Second)})
		f.later(time.Second)
		f.holdsAre("over")
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "night"})
		night.Since = f.now
		f.holdsAre("after it was over", night)
	}},

	{"hold_list", `Holds returns the holds in force at now, sorted by queue, kind and reason.
Waiting is how many jobs of the lane are ready or scheduled, and Ready how many of them are ready.
Until is when the hold is over, or with Probe when the next job is let through; zero if it lasts until it is released.`, func(f *fixture) {
		f.holdsAre("at first")
		f.run(f.s) // which does not wait
		f.keep(keep, f.s, storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeDone})
		f.bury(storage.ReasonPermanent, "no")
		f.four()
		f.add(newJob(delay(time.Hour)))
		var want []storage.HoldState
		for i, l := range []storage.Lane{{Queue: "b", Kind: "y"}, {Queue: queue}, {Kind: "y"}, {Queue: "B"}, {Queue: queue, Kind: kind}} {
			for _, reason := range []string{"b", "a"} {
				f.hold(storage.Hold{Lane: l, Reason: reason, By: "ada", For: time.Duration(i) * time.Hour})
			}
		}
		// In this order: upper case comes first.
		for _, h := range []storage.HoldState{
			{Lane: storage.Lane{Kind: "y"}, Until: f.now.Add(2 * time.Hour), Waiting: 2, Ready: 2},
			{Lane: storage.Lane{Queue: "B"}, Until: f.now.Add(3 * time.Hour)},
			{Lane: storage.Lane{Queue: "b", Kind: "y"}, Waiting: 1, Ready: 1},
			{Lane: storage.Lane{Queue: queue}, Until: f.now.Add(time.Hour), Waiting: 3, Ready: 2},
			{Lane: storage.Lane{Queue: queue, Kind: kind}, Until: f.now.Add(4 * time.Hour), Waiting: 2, Ready: 1},
		} {
			for _, reason := range []string{"a", "b"} {
				h.Reason, h.By, h.Since = reason, "ada", f.now
				if !h.Until.IsZero() {
					h.For = h.Until.Sub(f.now)
				}
				want = append(want, h)
			}
		}
		f.holdsAre("all", want...)
		f.later(time.Hour - time.Microsecond)
		f.holdsAre("before the first is over", want...)
		f.later(time.Microsecond)
		f.holdsAre("without those that are over", append(append(want[:0:0], want[:6]...), want[8:]...)...)
	}},

	{"hold_next_due", `NextDue is the earliest time at which a scheduled job is due, all holds of a lane that matches a Want have ended`, func(f *fixture) {
		next := func(what string, want time.Time) {
			f.Helper()
			if got := f.exchange(f.s, storage.Exchange{Wants: wants(1)}).NextDue; !got.Equal(want) || got.IsZero() != want.IsZero() {
				f.Errorf("%s: NextDue is %v, want %v", what, got, want)
			}
		}
		f.hold(storage.Hold{Lane: storage.Lane{Queue: "b"}, Reason: "a", For: time.Second})
		f.hold(storage.Hold{Lane: storage.Lane{Kind: "y"}, Reason: "a", For: time.Second})
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue, Kind: "y"}, Reason: "a", For: time.Second})
		f.hold(aPause)
		next("holds of other lanes, and one without an end", time.Time{})
		for i, l := range []storage.Lane{{Queue: queue, Kind: kind}, {Kind: kind}, {Queue: queue}} {
			f.release(aPause.Lane, aPause.Reason)
			end := f.now.Add(time.Hour - time.Duration(i)*time.Minute)
			f.hold(storage.Hold{Lane: l, Reason: "b", Until: end})
			f.hold(storage.Hold{Lane: l, Reason: "c", Until: end.Add(-time.Second)})
			next("two holds", end)
			f.hold(aPause)
		}
		f.release(aPause.Lane, aPause.Reason)
		f.add(newJob(delay(time.Hour + time.Minute)))
		next("a job due later", f.now.Add(58*time.Minute))
		f.add(newJob(delay(time.Minute)))
		next("a job due earlier", f.now.Add(time.Minute))
		f.later(58 * time.Minute)
		next("at the end of the first", f.now.Add(time.Minute))
		f.later(2 * time.Minute)
		next("after all", f.now.Add(time.Minute))
	}},

	{"hold_handoff", `no job of the lane is leased, by an Exchange or to an [Offer].`, func(f *fixture) {
		w := f.offer(f.s, lanes, 9)
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue, Kind: "y"}, Reason: "a", For: time.Minute})
		f.hold(storage.Hold{Lane: storage.Lane{Kind: kind}, Reason: "a"})
		ids := f.four()
		w.took("of the lanes that are not held", ids[3])
		held := f.add(newJob(lane(queue, "y")))[0]
		w.took("one job in a held lane")
		f.later(time.Minute)
		w.took("when the hold is over, with the next", ids[1], held, f.add(newJob(lane(queue, "y")))[0])
	}},

	{"hold_doubtful", `The hold is in force until an Exchange that leases decides. One that is Doubtful too ends the hold at its end; any other begins it anew, and For counts from then.
Without a For, or with an Until, Doubtful has no effect.`, func(f *fixture) {
		id := f.add(newJob())[0]
		night := storage.Hold{Lane: storage.Lane{Queue: queue, Kind: kind}, Reason: "night", For: time.Hour, Doubtful: true}
		leases := func(what string, doubtful bool, want ...storage.ID) {
			f.Helper()
			got := f.exchange(f.s, storage.Exchange{Wants: wants(9), Doubtful: doubtful}).Leased
			f.order(what, leasedIDs(got), want)
			for _, l := range got {
				f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeReturned}}})
			}
		}
		for what, begin := range map[string]func(){
			"Hold": func() { f.hold(night) },
			"Exchange": func() {
				f.exchange(f.s, storage.Exchange{Hold: []storage.Hold{night}, Doubtful: true})
			},
		} {
			begin()
			f.later(time.Hour - time.Microsecond)
			leases(what+": a microsecond early", true)
			f.later(time.Microsecond)
			leases(what+": at its end", true, id)
			begin()
			f.later(month)
			f.exchange(f.s, storage.Exchange{})
			f.holdsAre(what+": after its end", storage.HoldState{Lane: night.Lane, Reason: "night", Since: f.now.Add(-month),
				Until: f.now.Add(time.Hour - month), For: time.Hour, Waiting: 1, Ready: 1})
			leases(what+": at a time that is believed", false)
			f.holdsAre(what+": begun anew", storage.HoldState{Lane: night.Lane, Reason: "night", Since: f.now,
				Until: f.now.Add(time.Hour), For: time.Hour, Waiting: 1, Ready: 1})
			f.later(time.Hour - time.Microsecond)
			leases(what+": a microsecond early, begun anew", false)
			f.later(time.Microsecond)
			leases(what+": at its end, begun anew", false, id)
		}
		f.hold(night)
		f.later(month)
		if !f.release(night.Lane, night.Reason) {
			f.Error("Release reports that a doubtful hold after its end was not in force")
		}
		f.hold(storage.Hold{Lane: night.Lane, Reason: "night", Until: f.now.Add(time.Hour), Doubtful: true})
		f.later(time.Hour)
		leases("at a date", false, id)
		f.hold(storage.Hold{Lane: night.Lane, Reason: "night", Doubtful: true})
		f.later(time.Hour)
		leases("without an end", true)
	}},

	{"hold_doubtful_handoff", `The hold is in force until an Exchange that leases decides`, func(f *fixture) {
		w := f.offer(f.s, lanes, 9)
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "a", For: time.Minute, Doubtful: true})
		f.later(month)
		f.add(newJob())
		w.took("after the end of a doubtful hold")
	}},

	{"hold_shifted", `A hold whose end is more than its For after now ends that For after now.
and the Until of a hold without Probe.
A hold that began later began now; so did a job that it let through.`, func(f *fixture) {
		f.timekeeper(f.s)
		before := storage.HoldState{Lane: storage.Lane{Queue: "a"}, Reason: "a", Since: f.now, Until: f.now.Add(2 * month), For: 2 * month}
		f.hold(storage.Hold{Lane: before.Lane, Reason: "a", For: 2 * month})
		f.later(month)
		dated := storage.HoldState{Lane: storage.Lane{Queue: "b"}, Reason: "a", Until: f.now.Add(time.Hour)}
		f.hold(storage.Hold{Lane: dated.Lane, Reason: "a", Until: dated.Until})
		night := storage.HoldState{Lane: aPause.Lane, Reason: "night", For: time.Hour}
		f.hold(storage.Hold{Lane: night.Lane, Reason: "night", For: time.Hour})
		f.later(time.Minute - month)
		for range 2 {
			f.stepClock(f.now)
			dated.Since, night.Since, night.Until = f.now, f.now, f.now.Add(time.Hour)
			f.holdsAre("shifted", before, dated, night)
		}
		id := f.add(newJob())[0]
		f.later(time.Hour - time.Microsecond)
		f.leases("a microsecond early")
		f.later(time.Microsecond)
		f.leases("that For later", id)
	}},

	{"hold_shift_notify", `A due time or an end of a hold that becomes earlier is an [Event] of Notify.`, func(f *fixture) {
		f.timekeeper(f.s)
		both := f.hearsBoth(f.db.Open())
		f.later(month)
		f.hold(storage.Hold{Lane: aPause.Lane, Reason: "night", For: time.Hour})
		f.later(-month)
		both("shifted", func(e storage.Event) bool { return slices.Contains(e.Holds, aPause.Lane) }, func() { f.stepClock(f.now) })
	}},

	{"hold_notify", `Holds are the lanes that may have been held or released, as the holds name them.`, func(f *fixture) {
		both := f.hearsBoth(f.db.Open())
		holds := func(e storage.Event) bool { return slices.Contains(e.Holds, aPause.Lane) }
		both("held", holds, func() { f.hold(aPause) })
		both("held again", holds, func() { f.hold(storage.Hold{Lane: aPause.Lane, Reason: aPause.Reason, For: time.Hour}) })
		both("released", holds, func() { f.release(aPause.Lane, aPause.Reason) })
	}},

	{"hold_told_first", `A Hold, Release or Exchange of this Store that does so calls f before it returns.`, func(f *fixture) {
		n, ok := f.s.(storage.Notifier)
		if !ok {
			f.skip("storage.Notifier")
		}
		told := make(chan storage.Event, 1000)
		f.Cleanup(n.Notify(func(e storage.Event) {
			if len(e.Holds) > 0 {
				told <- e
			}
		}))
		for _, c := range []struct {
			what string
			do   func()
		}{
			{"Hold", func() { f.hold(aPause) }},
			{"Release", func() { f.release(aPause.Lane, aPause.Reason) }},
			{"Exchange with a hold", func() { f.exchange(f.s, storage.Exchange{Hold: []storage.Hold{aProbe}}) }},
			{"Exchange without it", func() { f.exchange(f.s, storage.Exchange{Release: []storage.Hold{aProbe}}) }},
			{"Exchange that lets a job through", func() {
				f.hold(aProbe)
				f.add(newJob())
				f.later(aProbe.For)
				drain(told)
				f.leaseOne(f.s)
			}},
		} {
			drain(told)
			c.do()
			if len(told) == 0 {
				f.Errorf("%s returned before f was called", c.what)
			}
		}
	}},
}
