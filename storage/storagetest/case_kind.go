package storagetest

import (
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// anyKinds wants the jobs of all kinds in the usual queue.
var anyKinds = storage.Want{Queues: []string{queue}, Kinds: []string{storage.AnyKind}}

var kindCases = []testCase{
	{"kinds_all", `[AnyKind] stands for all kinds, also those whose first job is yet to come`, func(f *fixture) {
		f.order("leased of nothing", f.leaseOf(9, anyKinds), nil)
		f.add(newJob(lane("other", kind)))
		ids := f.add(newJob(), newJob(lane(queue, "other"), priority(1)), newJob(lane(queue, "third")))
		f.order("leased", f.leaseOf(2, anyKinds), pick(ids, 1, 0))
		ids = append(ids, f.add(newJob(lane(queue, "later")))...)
		f.order("leased with one that is new", f.leaseOf(9, anyKinds), ids[2:])
		var many []storage.ID
		for i := range 20 {
			many = append(many, f.add(newJob(lane(queue, fmt.Sprintf("later/%d", i))))...)
		}
		f.order("leased of many that are new", f.leaseOf(99, anyKinds), many)
	}},

	{"kinds_bulk", `but for the kinds of [BulkQueue].`, func(f *fixture) {
		f.add(newJob(inBulk))
		ids := f.add(newJob(), newJob(lane("other", "other")))
		want := storage.Want{Queues: []string{"*", storage.BulkQueue}, Kinds: []string{storage.AnyKind}}
		f.order("leased", f.leaseOf(9, want), ids)
	}},

	{"kinds_except", `Except are lanes of Queues and Kinds whose jobs are not wanted. A Queue of them may be a prefix. A Kind of them may be AnyKind.`, func(f *fixture) {
		ids := f.add(newJob(), newJob(lane(queue, "other")), newJob(lane("web/a", kind)), newJob(lane("web/a", "other")))
		want := storage.Want{Queues: []string{"*"}, Kinds: []string{storage.AnyKind}, Except: []storage.Lane{{Queue: queue, Kind: "other"}, {Queue: "web/*", Kind: storage.AnyKind}}}
		f.order("leased", f.leaseOf(9, want), ids[:1])
		want.Kinds = []string{kind, "other"}
		want.Except = want.Except[1:]
		f.order("leased of kinds that are named", f.leaseOf(9, want), ids[1:2])
	}},

	{"kinds_holds", `NextDue is the earliest time at which a scheduled job is due, all holds of a lane that matches a Want have ended`, func(f *fixture) {
		ids := f.add(newJob(), newJob(lane(queue, "other")))
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue, Kind: "other"}, Reason: "r", For: time.Minute})
		f.hold(storage.Hold{Lane: storage.Lane{Queue: "another", Kind: kind}, Reason: "r", For: time.Second})
		res := f.exchange(f.s, storage.Exchange{Wants: wants(9, anyKinds)})
		f.order("leased", leasedIDs(res.Leased), ids[:1])
		if want := f.now.Add(time.Minute); !res.NextDue.Equal(want) {
			f.Errorf("NextDue is %v, want %v", res.NextDue, want)
		}
		f.later(time.Minute)
		f.order("leased then", f.leaseOf(9, anyKinds), ids[1:])
	}},

	{"kinds_handoff", `A call of Enqueue, PublishMessages or Fire on this Store that has inserted a job of want as ready goes on to lease jobs of want in the same transaction`, func(f *fixture) {
		w := f.offer(f.s, anyKinds, 9)
		w.took("handed over as the kind is new", f.add(newJob(lane(queue, "new")))...)
		w.took("handed over of several", f.add(newJob(), newJob(lane(queue, "other")))...)
	}},

	{"together_kinds", brings + `
With AnyKind the kinds of a call may differ.
With AnyKind one of another kind stops it only if w does not want its lane, or if that is held.`, func(f *fixture) {
		w := anyKinds
		w.ByGroup = 3
		g, h := grouped("g"), grouped("h")
		ids := f.add(newJob(g), newJob(g, lane(queue, "other")), newJob(g, lane(queue, "third")), newJob(g), newJob(), newJob(lane(queue, "other")))
		res := f.exchange(f.s, storage.Exchange{Wants: wants(3, w)})
		f.order("leased of one call", leasedIDs(res.Leased), ids[:3])
		for i, l := range res.Leased {
			if l.Behind != i {
				f.Errorf("job %d is behind %d others", i, l.Behind)
			}
		}
		f.order("of one without a group", f.leaseOf(3, w), ids[4:])
		ids = f.add(newJob(h), newJob(h, lane(queue, "other")), newJob(h, lane(queue, "third")))
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue, Kind: "other"}, Reason: "r", For: time.Minute})
		f.order("before a kind that is held", f.leaseOf(3, w), ids[:1])
		w.Except = []storage.Lane{{Queue: queue, Kind: "third"}}
		h = grouped("i")
		ids = f.add(newJob(h), newJob(h, lane(queue, "third")), newJob(h))
		f.order("before a kind that is not wanted", f.leaseOf(3, w), ids[:1])
	}},
}
