package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// groupLimit sets how many members of a group of the usual queue run at a time, and what
// a dead one is to the others.
func (f *fixture) groupLimit(n int64, dead storage.DeadHead) {
	f.Helper()
	f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingGroupLimit: n, storage.SettingDeadHead: int64(dead)})
}

// regroup takes the steps of Regroup, and returns how many there were.
func (f *fixture) regroup() (steps int) {
	f.Helper()
	for after := ""; steps < 1000; {
		next, err := f.s.Regroup(f.ctx, queue, after)
		f.must(err)
		if steps++; next == "" {
			return steps
		}
		after = next
	}
	f.Fatalf("the steps have no end")
	return steps
}

// leased leases at most n jobs, which must be those given.
func (f *fixture) leased(n int, want ...storage.ID) []storage.Leased {
	f.Helper()
	got := f.lease(f.s, n)
	if ids := leasedIDs(got); !slices.Equal(ids, want) {
		f.Fatalf("leased keys %v, want %v", keysOf(ids), keysOf(want))
	}
	return got
}

const manyLive = `With a SettingGroupLimit above 1 that many members are ready or running at a time, in no order, and a dead one blocks nobody.`

var groupLimitCases = []testCase{
	{"group_limit", manyLive + `
A free place goes to the blocked member with the lowest key.`, func(f *fixture) {
		f.groupLimit(3, storage.BlockDead)
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g), newJob(g), newJob(g, lane("other", kind)), newJob(g, lane("other", kind)))
		f.states("enqueued", ids, "ready ready ready blocked blocked ready blocked")
		got := f.leased(9, ids[:3]...)
		f.states("one comes", f.add(newJob(g)), "blocked")
		f.apply(f.s, storage.Finish{Lease: got[1].Lease, Outcome: storage.OutcomeDone})
		f.states("one is done", ids[:5], "running - running ready blocked")
		f.apply(f.s, died(got[0].Lease, storage.ReasonPermanent, "no"))
		f.states("one is dead", ids[:5], "dead - running ready ready")
		f.groupsAre(queue)
		f.did("redriven", f.redrive(named(ids[0]), ""), 1, nil, nil)
		f.states("redriven", ids[:5], "blocked - running ready ready")
		f.cancel(ids[3])
		f.states("one is cancelled", ids[:5], "ready - running cancelled ready")
	}},

	{"group_limit_scheduled", `A scheduled member needs no place. When due, it takes a free one or is blocked. One that was let in, or put back with Stays, keeps its place.`, func(f *fixture) {
		f.groupLimit(2, storage.BlockDead)
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g, delay(time.Hour)))
		f.states("enqueued", ids, "ready ready blocked scheduled")
		got := f.leased(9, ids[:2]...)
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Minute)})
		f.states("a retry frees its place", ids, "scheduled running ready scheduled")
		f.later(time.Minute)
		again := f.leased(9, ids[2])
		f.states("and finds none", ids, "blocked running running scheduled")
		f.did("run now", f.runNow(named(ids[3]), firstToo), 1, nil, nil)
		f.states("run now", ids, "blocked running running blocked")
		f.apply(f.s, storage.Finish{Lease: again[0].Lease, Outcome: storage.OutcomeReturned})
		f.states("returned, it keeps its place", ids, "blocked running ready blocked")
		f.apply(f.s, storage.Finish{Lease: got[1].Lease, Outcome: storage.OutcomeDone})
		f.states("done", ids, "ready - ready blocked")
		f.changed(ids[0], off(time.Hour))
		f.states("put off", ids, "scheduled - ready ready")
		f.changed(ids[0], storage.Edit{DueAt: f.now})
		f.states("and back", ids, "blocked - ready ready")
		f.changed(ids[2], storage.Edit{Queue: "other"})
		f.states("moved", ids, "ready - ready ready")
	}},

	{"group_limit_stays", `A scheduled member needs no place. When due, it takes a free one or is blocked. One that was let in, or put back with Stays, keeps its place.
Stays is true if a member of a group that is put back for later keeps its place in the group, whatever the limit`, func(f *fixture) {
		f.groupLimit(2, storage.BlockDead)
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g))
		got := f.leased(9, ids[:2]...)
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeReturned, DueAt: f.now.Add(time.Minute), Stays: true})
		f.states("it stays", ids, "scheduled running blocked")
		f.apply(f.s, storage.Finish{Lease: got[1].Lease, Outcome: storage.OutcomeDone})
		f.states("another is done", ids, "scheduled - ready")
		last := f.add(newJob(g))
		f.states("one comes", last, "blocked")
		f.later(time.Minute)
		got = f.leased(9, ids[2], ids[0])
		f.apply(f.s, storage.Finish{Lease: got[1].Lease, Outcome: storage.OutcomeReturned, DueAt: f.now.Add(time.Minute)})
		f.states("it does not", ids, "scheduled - running")
		f.states("the one that came", last, "ready")
	}},

	{"group_pass", "With PassDead a dead member blocks nobody either.\n" + oneLives, func(f *fixture) {
		f.groupLimit(0, storage.PassDead)
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g))
		f.diesOf(ids[0], "no")
		f.states("one is dead", ids, "dead ready blocked")
		f.groupsAre("")
		f.did("redriven", f.redrive(named(ids[0]), ""), 1, nil, nil)
		f.states("redriven", ids, "ready blocked blocked")
		for _, id := range ids {
			f.done(id)
		}
	}},

	{"group_regroup", `Regroup applies the settings of a queue to its groups with blocked members
One call is one bounded step over the groups whose names come after the name given: call again with the result until that is empty.`, func(f *fixture) {
		const n = 150
		var jobs []storage.NewJob
		for range 3 {
			for i := range n {
				jobs = append(jobs, newJob(grouped(fmt.Sprintf("%03d", i))))
			}
		}
		ids := f.add(jobs...)
		other := f.add(newJob(lane("other", kind), grouped("g")), newJob(lane("other", kind), grouped("g")))
		f.diesOfFirst(ids[0])
		f.groupLimit(2, storage.BlockDead)
		if f.regroup() < 2 {
			f.Errorf("%d groups were one step", n)
		}
		f.counts(count(storage.Blocked, n-1), count(storage.Dead, 1), count(storage.Ready, 2*n),
			storage.Count{Queue: "other", Kind: kind, State: storage.Blocked, N: 1}, storage.Count{Queue: "other", Kind: kind, State: storage.Ready, N: 1})
		f.states("of another queue", other, "ready blocked")
		got := f.leased(2, pick(ids, 1, 2)...)
		f.groupLimit(0, storage.BlockDead)
		f.regroup()
		f.states("fewer", pick(ids, 1, n+1, 2*n+1), "running blocked blocked")
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeDone})
		f.states("the next", pick(ids, 1, n+1, 2*n+1), "- ready blocked")
	}},

	{"group_regroup_lower", `or with more members that are ready, running or scheduled with a place than SettingGroupLimit.
If there are still too many, the ready ones with the highest keys are blocked; running ones go on.`, func(f *fixture) {
		for limit := range int64(3) {
			f.groupLimit(5, storage.BlockDead)
			f.regroup()
			g := grouped(fmt.Sprint(limit))
			ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g), newJob(g))
			got := f.leased(1, ids[0])
			f.groupLimit(limit, storage.BlockDead)
			f.regroup()
			f.states("fewer", ids, []string{"running blocked blocked blocked blocked", "running blocked blocked blocked blocked", "running ready blocked blocked blocked"}[limit])
			f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeDone})
			for _, id := range ids[1:] {
				f.cancel(id)
			}
		}
		f.groupLimit(4, storage.BlockDead)
		f.regroup()
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g))
		got := f.leased(9, ids...)
		f.groupLimit(2, storage.BlockDead)
		f.regroup()
		f.states("all run", ids, "running running running running")
		f.apply(f.s, storage.Finish{Lease: got[3].Lease, Outcome: storage.OutcomeDone})
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeReturned})
		f.states("one comes back", ids, "blocked running running -")
		f.apply(f.s, storage.Finish{Lease: got[1].Lease, Outcome: storage.OutcomeDone})
		f.states("and has a place", ids, "ready - running -")
	}},

	{"group_regroup_scheduled", `If the limit is above 1, scheduled members leave their places.
Once they apply to all groups, Regroup does nothing until they change.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g))
		got := f.leased(1, ids[0])
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Minute)})
		f.groupLimit(2, storage.BlockDead)
		f.regroup()
		f.states("it waits for its retry", ids, "scheduled ready ready blocked")
		got = f.leased(9, ids[1:3]...)
		f.apply(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeReturned, DueAt: f.now.Add(time.Minute), Stays: true})
		if f.regroup() != 1 {
			f.Errorf("there was more to do")
		}
		f.states("again", ids, "scheduled scheduled running blocked")
	}},

	{"group_regroup_place", `A free place goes to the blocked member with the lowest key.
Before that, the settings apply to a group from the next call about one of its members on.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g))
		f.groupLimit(2, storage.BlockDead)
		f.states("nothing has happened", ids, "ready blocked blocked")
		ids = append(ids, f.add(newJob(g))...)
		f.states("another comes", ids, "ready ready blocked blocked")
		f.groupLimit(3, storage.BlockDead)
		f.changed(ids[3], storage.Edit{DueAt: f.now})
		f.states("one is changed", ids, "ready ready ready blocked")
	}},

	{"group_regroup_joined", `Before that, the settings apply to a group from the next call about one of its members on.`, func(f *fixture) {
		for _, places := range []int64{1, 2} {
			g := grouped(fmt.Sprint(places))
			f.bury(storage.ReasonPermanent, "no", g)
			f.groupLimit(places, storage.PassDead)
			ids := f.add(newJob(g))
			f.groupLimit(1, storage.BlockDead)
			ids = append(ids, f.add(newJob(g))...)
			f.states("others have come", ids, "ready blocked")
			f.behindDeadIs()
			f.cancel(ids[0])
			f.states("the dead one was passed", ids, "cancelled ready")
			f.cancel(ids[1])
		}
	}},
}

// diesOfFirst has the first job that can be leased die, which must be id.
func (f *fixture) diesOfFirst(id storage.ID) {
	f.Helper()
	l := f.leaseOne(f.s)
	f.order("leased", []storage.ID{l.ID}, []storage.ID{id})
	f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
}
