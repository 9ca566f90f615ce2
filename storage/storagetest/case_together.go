package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// together leases jobs for calls of up to three, of as many as n jobs fill. Each is named by
// its place in ids and by how many it is behind.
func (f *fixture) together(what string, ids []storage.ID, n int, want ...[2]int) []storage.Leased {
	f.Helper()
	w := storage.Want{Queues: []string{queue}, Kinds: []string{kind}, ByGroup: 3}
	got := f.exchange(f.s, storage.Exchange{Wants: wants(n, w)}).Leased
	var all [][2]int
	for _, l := range got {
		all = append(all, [2]int{slices.Index(ids, l.ID), l.Behind})
	}
	if !slices.Equal(all, want) {
		f.Fatalf("%s: leased %v, want %v", what, all, want)
	}
	return got
}

const brings = `If the members of a group run one at a time, one that is leased brings those blocked right behind it, in the order of keys, as far as N, ByGroup and the tokens of a shared throttle go`

var togetherCases = []testCase{
	{"together_brings", brings, func(f *fixture) {
		g, h := grouped("g"), grouped("h")
		ids := f.add(newJob(g), newJob(h), newJob(g, priority(9)), newJob(h), newJob(g), newJob(g))
		f.together("of one call", ids, 1, [2]int{0, 0})
		f.together("of two, as far as N goes", ids, 4, [2]int{1, 0}, [2]int{3, 1})
		f.states("leased", ids, "running running blocked running blocked blocked")
		f.counts(count(storage.Blocked, 3), count(storage.Running, 3))
	}},

	{"together_calls", `Jobs are leased for as many calls as N jobs fill. Leasing for w stops at the first job that fits no call begun so far and cannot begin another.`, func(f *fixture) {
		ids := f.add(newJob(), newJob(grouped("g")), newJob(), newJob(grouped("g")), newJob(), newJob(grouped("h")), newJob())
		f.together("of two calls", ids, 6, [2]int{0, 0}, [2]int{1, 0}, [2]int{3, 1}, [2]int{2, 0}, [2]int{4, 0})
		f.together("of one", ids, 3, [2]int{5, 0})
		f.together("of the last", ids, 3, [2]int{6, 0})
		f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingGroupLimit: 3})
		ids = f.add(newJob(grouped("i")), newJob(grouped("i")), newJob(grouped("k")), newJob(grouped("i")), newJob(grouped("i")))
		f.together("with a limit above one", ids, 3, [2]int{0, 0}, [2]int{1, 0})
	}},

	{"together_ends", `It stops before the first that is of another kind, is not due, has crashed, or has reached its StartBy or Deadline.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g, lane(queue, "other")), newJob(g))
		f.together("before another kind", ids, 3, [2]int{0, 0})
		g = grouped("h")
		ids = f.add(newJob(g), newJob(g, delay(time.Minute)), newJob(g))
		f.together("before one that is not due", ids, 3, [2]int{0, 0})
		g = grouped("i")
		ids = f.add(newJob(g), newJob(g, delay(time.Minute)), newJob(g))
		f.later(time.Minute)
		f.together("that is due since", ids, 3, [2]int{0, 0}, [2]int{1, 1}, [2]int{2, 2})
	}},

	{"together_crashed", `A member brings none if it has crashed itself, if a hold has let it through, or if another member has a place or blocks it.
It stops before the first that is of another kind, is not due, has crashed`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g))
		got := f.together("before", ids, 3, [2]int{0, 0}, [2]int{1, 1}, [2]int{2, 2})
		f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{
			{Lease: got[1].Lease, Outcome: storage.OutcomeCrashed}, {Lease: got[0].Lease, Outcome: storage.OutcomeRetry}, {Lease: got[2].Lease, Outcome: storage.OutcomeReturned},
		}})
		f.states("put back", ids, "ready blocked blocked")
		got = f.together("before one that has crashed", ids, 3, [2]int{0, 0})
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeDone})
		f.together("one that has crashed", ids, 3, [2]int{1, 0})
	}},

	{"together_back", `Only members that were leased together, see [Want.ByGroup], run together. If one of these is put back it is blocked until the others have ended; then the member with the lowest key is next.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g))
		got := f.together("all that fit", ids, 3, [2]int{0, 0}, [2]int{1, 1}, [2]int{2, 2})
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Minute)})
		f.states("the first failed", ids, "blocked running running blocked")
		f.apply(f.s, storage.Finish{Lease: got[2].Lease, Outcome: storage.OutcomeDone})
		f.states("the last is done", ids, "blocked running - blocked")
		f.together("nobody passes", ids, 3)
		f.apply(f.s, storage.Finish{Lease: got[1].Lease, Outcome: storage.OutcomeReturned})
		f.states("the other went back", ids, "scheduled blocked - blocked")
		f.later(time.Minute)
		got = f.together("again", ids, 3, [2]int{0, 0}, [2]int{1, 1}, [2]int{3, 2})
		f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{
			died(got[1].Lease, storage.ReasonExhausted, "no"), {Lease: got[2].Lease, Outcome: storage.OutcomeReturned}, {Lease: got[0].Lease, Outcome: storage.OutcomeDone},
		}})
		f.states("one is dead", ids, "- dead - blocked")
	}},

	{"together_throttle", brings + `
An [Exchange], and an [Offer], leases a job only while there is a token in each of the buckets of its queue and its kind, and takes these.
A job that comes back with [OutcomeReturned] brings a token back into each`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 1, time.Minute, 2)
		f.throttle(storage.Lane{Kind: kind}, 1, time.Minute, 3)
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g), newJob(grouped("h")))
		got := f.together("as far as tokens go", ids, 3, [2]int{0, 0}, [2]int{1, 1})
		f.together("with none", ids, 9)
		f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{
			{Lease: got[0].Lease, Outcome: storage.OutcomeDone}, {Lease: got[1].Lease, Outcome: storage.OutcomeReturned},
		}})
		f.together("with one that has come back", ids, 3, [2]int{1, 0})
		f.later(2 * time.Minute)
		f.together("of another group, which are all that are ready", ids, 9, [2]int{4, 0})
		f.states("at last", ids, "- running blocked blocked running")
	}},

	{"together_windows", `It stops before the first that is of another kind, is not due, has crashed, or has reached its StartBy or Deadline.
A member brings none if it has crashed itself, if a hold has let it through, or if another member has a place or blocks it.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g, startWithin(time.Minute)), newJob(g, startWithin(time.Hour)), newJob(g, startWithin(time.Minute), diesUnstarted), newJob(g))
		f.later(time.Minute - time.Microsecond)
		w := storage.Want{Queues: []string{queue}, Kinds: []string{kind}, ByGroup: 9}
		res := f.exchange(f.s, storage.Exchange{Wants: wants(1, w), Retention: kept(keep)})
		f.order("alone", leasedIDs(res.Leased), ids[:1])
		f.later(time.Microsecond)
		f.apply(f.s, storage.Finish{Lease: res.Leased[0].Lease, Outcome: storage.OutcomeReturned})
		res = f.exchange(f.s, storage.Exchange{Wants: wants(9, w), Retention: kept(keep)})
		f.expired(res, ids[1], ids[3])
		f.states("one behind is dead", ids, "running expired blocked dead blocked")
		f.apply(f.s, storage.Finish{Lease: res.Leased[0].Lease, Outcome: storage.OutcomeReturned})
		f.purgeDead(named(ids[3]))
		res = f.exchange(f.s, storage.Exchange{Wants: wants(9, w), Retention: kept(keep)})
		f.states("none is", ids, "running expired running - running")
		f.order("leased", leasedIDs(res.Leased), pick(ids, 0, 2, 4))
		f.back(res.Leased[1], storage.OutcomeReturned, time.Time{})
		if f.windowed(ids[2], f.record(ids[2]).CreatedAt.Add(time.Hour), time.Time{}); res.Leased[1].Behind != 1 {
			f.Errorf("the second is behind %d others", res.Leased[1].Behind)
		}
	}},
}
