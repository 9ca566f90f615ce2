package storagetest

import (
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// prefixed wants the usual jobs of all queues that begin with "web/".
var prefixed = storage.Want{Queues: []string{"web/*"}, Kinds: []string{kind}}

var prefixCases = []testCase{
	{"prefix_queues", `an element that ends in "*" stands for all queues whose names begin with what is before the "*", also those whose first job is yet to come.`, func(f *fixture) {
		f.order("leased of nothing", f.leaseOf(9, prefixed), nil)
		f.add(newJob(lane("web", kind)), newJob(lane("we/b", kind)), newJob(lane("awe/web/", kind)), newJob(lane("web/a", "other")))
		ids := f.add(newJob(lane("web/a", kind)), newJob(lane("web/b/c", kind), priority(1)), newJob(lane("web/", kind)))
		f.order("leased", f.leaseOf(2, prefixed), pick(ids, 1, 0))
		ids = append(ids, f.add(newJob(lane("web/later", kind), priority(-1)), newJob(lane("web/d", kind)))...)
		f.order("leased with those that are new", f.leaseOf(9, prefixed), pick(ids, 2, 4, 3))
		var many []storage.ID
		for i := range 20 {
			many = append(many, f.add(newJob(lane(fmt.Sprintf("web/%d", i), kind)))...)
		}
		f.order("leased of many that are new", f.leaseOf(99, prefixed), many)
	}},

	{"prefix_all", `an element that ends in "*" stands for all queues whose names begin with what is before the "*"`, func(f *fixture) {
		ids := f.add(newJob(), newJob(lane("web/a", kind)), newJob(lane(queue, "other")))
		f.order("leased", f.leaseOf(9, storage.Want{Queues: []string{"*"}, Kinds: []string{kind}}), ids[:2])
	}},

	{"prefix_except", `Except are lanes of Queues and Kinds whose jobs are not wanted. A Queue of them may be a prefix.`, func(f *fixture) {
		ids := f.add(newJob(lane("web/a", kind)), newJob(lane("web/a", "other")), newJob(lane("web/b", kind)), newJob(lane("web/b", "other")), newJob(lane("web/b/c", kind)))
		want := storage.Want{
			Queues: []string{"web/*", "web/a"}, Kinds: []string{kind, "other"},
			Except: []storage.Lane{{Queue: "web/b", Kind: "other"}, {Queue: "web/b/*", Kind: kind}, {Queue: "web/a", Kind: kind}},
		}
		f.order("leased", f.leaseOf(9, want), pick(ids, 1, 2))
		want.Except = want.Except[:1]
		f.order("leased with fewer exceptions", f.leaseOf(9, want), pick(ids, 0, 4))
	}},

	{"prefix_urgent", `Urgent is how many urgent jobs to lease, before the others and in addition to them: of any lane that matches a Want`, func(f *fixture) {
		ids := f.add(newJob(lane("web/a", kind)), newJob(lane("web/b", kind)))
		for _, id := range ids {
			f.runNow(named(id), firstToo)
		}
		want := prefixed
		want.Except = []storage.Lane{{Queue: "web/a", Kind: kind}}
		f.order("leased", leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(0, want), Urgent: 9}).Leased), ids[1:])
	}},

	{"prefix_holds", `Hold stops leasing from a lane, also one that has no job yet, until the hold is over or released.
NextDue is the earliest time at which a scheduled job is due, all holds of a lane that matches a Want have ended`, func(f *fixture) {
		ids := f.add(newJob(lane("web/a", kind)), newJob(lane("web/b", kind)))
		f.hold(storage.Hold{Lane: storage.Lane{Queue: "web/a"}, Reason: "r", For: time.Minute})
		f.hold(storage.Hold{Lane: storage.Lane{Queue: "web", Kind: kind}, Reason: "r", For: time.Second})
		res := f.exchange(f.s, storage.Exchange{Wants: wants(9, prefixed)})
		f.order("leased", leasedIDs(res.Leased), ids[1:])
		if want := f.now.Add(time.Minute); !res.NextDue.Equal(want) {
			f.Errorf("NextDue is %v, want %v", res.NextDue, want)
		}
		f.later(time.Minute)
		f.order("leased then", f.leaseOf(9, prefixed), ids[:1])
	}},

	{"prefix_handoff", `A call of Enqueue, PublishMessages or Fire on this Store that has inserted a job of want as ready goes on to lease jobs of want in the same transaction`, func(f *fixture) {
		want := prefixed
		want.Except, want.Each, want.EachOf = []storage.Lane{{Queue: "web/c", Kind: kind}}, 2, map[string]int{"web/b": 0}
		w := f.offer(f.s, want, 9)
		w.took("handed over as the queue is new", f.add(newJob(lane("web/a", kind)))...)
		w.took("handed over as it is not", f.add(newJob(lane("web/a", kind)))...)
		ids := f.add(newJob(lane("web/a", kind)), newJob(lane("web/b", kind)), newJob(lane("web/a", kind)), newJob(lane("web/a", kind)), newJob(lane("web/c", kind)))
		w.took("handed over of many", pick(ids, 0, 2)...)
		f.add(newJob(lane("web/b", kind)))
		w.took("handed over then", pick(ids, 3)...)
	}},

	{"prefix_min", `only urgent jobs are leased from a lane with fewer than Min ready jobs`, func(f *fixture) {
		ids := f.add(newJob(lane("web/a", kind)), newJob(lane("web/b", kind)), newJob(lane("web/a", kind)))
		want := prefixed
		want.Min, want.Wait = 2, time.Minute
		f.order("leased", f.leaseOf(9, want), pick(ids, 0, 2))
	}},
}

var eachCases = []testCase{
	{"each_queue", `Each, if positive, is the most jobs of one queue that are leased for w.`, func(f *fixture) {
		ids := f.add(
			newJob(lane("web/a", kind), priority(9)), newJob(lane("web/a", "other"), priority(8)), newJob(lane("web/a", kind), priority(7)),
			newJob(lane("web/b", kind)), newJob(lane("web/c", kind), priority(-1)), newJob(lane("web/b", kind)), newJob(lane("web/b", kind)),
		)
		want := prefixed
		want.Kinds, want.Each = []string{kind, "other"}, 2
		f.order("leased", f.leaseOf(4, want), pick(ids, 0, 1, 3, 5))
		f.order("leased then", f.leaseOf(9, want), pick(ids, 2, 6, 4))
	}},

	{"each_of", `EachOf takes the place of Each for single queues, also with zero for none.`, func(f *fixture) {
		var ids []storage.ID
		for _, q := range []string{"web/a", "web/b", "web/c"} {
			ids = append(ids, f.add(newJob(lane(q, kind)), newJob(lane(q, kind)), newJob(lane(q, kind)))...)
		}
		want := prefixed
		want.Each, want.EachOf = 1, map[string]int{"web/a": 0, "web/b": 2, "none": 5}
		f.order("leased", f.leaseOf(9, want), pick(ids, 3, 4, 6))
		want.EachOf = map[string]int{"web/a": 1, "web/b": -1}
		f.order("leased then", f.leaseOf(9, want), pick(ids, 0, 7))
		want.Each = 0
		f.order("leased without Each", f.leaseOf(9, want), pick(ids, 1, 2, 5, 8))
	}},

	{"each_wants", `A job counts for the first Want that matches it and has room: by N, and by Each for its queue. A job that fits none is passed over.
Jobs of the queue that the same Exchange leases for other Wants count too; urgent ones do not.`, func(f *fixture) {
		ids := f.add(newJob(), newJob(), newJob(), newJob(), newJob(lane("other", kind)))
		f.runNow(named(ids[3]), firstToo)
		first, second := usual, storage.Want{Queues: []string{queue, "other"}, Kinds: []string{kind}, N: 2, Each: 2}
		first.N, first.Each = 9, 1
		got := f.exchange(f.s, storage.Exchange{Wants: []storage.Want{first, second}, Urgent: 1}).Leased
		f.order("leased", leasedIDs(got), pick(ids, 3, 0, 1, 4))
	}},

	{"each_next", `nothing is to come`, func(f *fixture) {
		f.add(newJob(lane("web/a", kind)))
		want := prefixed
		want.Each, want.EachOf = 1, map[string]int{"web/a": 0}
		if res := f.exchange(f.s, storage.Exchange{Wants: wants(1, want)}); !res.NextDue.IsZero() || len(res.Leased) > 0 {
			f.Errorf("leased %d, and NextDue is %v", len(res.Leased), res.NextDue)
		}
	}},
}
