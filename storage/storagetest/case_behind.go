package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// behindDeadIs checks BehindDead, read in pages of one queue, and of all.
func (f *fixture) behindDeadIs(want ...storage.BehindDead) {
	f.Helper()
	for _, limit := range []int{1, len(want) + 1} {
		var got []storage.BehindDead
		for after := ""; ; {
			page, err := f.s.BehindDead(f.ctx, after, limit)
			f.must(err)
			if len(page) > limit {
				f.Fatalf("a page of at most %d queues has %d", limit, len(page))
			}
			for i := range page {
				page[i].Since = page[i].Since.UTC()
			}
			if got = append(got, page...); len(page) < limit || len(got) > len(want) {
				break
			}
			after = page[limit-1].Queue
		}
		if !slices.Equal(got, want) {
			f.Errorf("behind dead members, %d queues at a time:\n got %+v\nwant %+v", limit, got, want)
		}
	}
}

func member(queue, group string) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.Queue, n.Group = queue, group }
}

var behindCases = []testCase{
	{"behind_dead", `BehindDead returns the queues in which dead members block others, sorted by name.
It returns at most limit of those whose names come after the name given. Queues without blocked members behind a dead one are left out.
Groups is how many groups have blocked members with higher keys than a dead one that blocks them,
Jobs is how many such blocked members they have,
Since is when the first of their heads died.`, func(f *fixture) {
		f.behindDeadIs()
		buries := func(queue, group string, behind int) (head storage.ID, at time.Time) {
			f.later(time.Second)
			head, at = f.bury(storage.ReasonPermanent, "no", member(queue, group)), f.now
			f.later(time.Second)
			f.add(times(behind, newJob(member(queue, group)))...)
			return head, at
		}
		buries("a", "a", 0)
		_, first := buries("a", "c", 3)
		buries("a", "d", 0)
		last, _ := buries("a", "c\x01", 1)
		_, other := buries("a-", "g", 2)
		buries("other", "alone", 0)
		for _, alive := range [][2]string{{"a", "b"}, {"a", "c\x02"}, {"others", "g"}} {
			f.add(times(2, newJob(member(alive[0], alive[1])))...)
		}
		a, b := storage.BehindDead{Queue: "a", Groups: 2, Jobs: 4, Since: first}, storage.BehindDead{Queue: "a-", Groups: 1, Jobs: 2, Since: other}
		f.behindDeadIs(a, b)
		if got, err := f.s.BehindDead(f.ctx, "", 0); err != nil || len(got) > 0 {
			f.Errorf("at most 0 queues are %+v, %v", got, err)
		}

		f.configure(f.s, storage.Lane{Queue: "a-"}, storage.Settings{storage.SettingDeadHead: int64(storage.PassDead)})
		for after, again := "", true; again; again = after != "" {
			var err error
			after, err = f.s.Regroup(f.ctx, "a-", after)
			f.must(err)
		}
		f.behindDeadIs(a)
		f.skipHead("a", "c\x01", last)
		a.Groups, a.Jobs = 1, 3
		f.behindDeadIs(a)
	}},

	{"behind_dead_between", `Groups is how many groups have blocked members with higher keys than a dead one that blocks them,
The head of a group is the dead member with the lowest key that blocks it.`, func(f *fixture) {
		dies := func() storage.ID {
			f.later(time.Second)
			got := f.exchange(f.s, storage.Exchange{Wants: wants(1)}).Leased
			f.apply(f.s, died(got[0].Lease, storage.ReasonPermanent, "no"))
			return got[0].ID
		}
		f.add(times(3, newJob(grouped("g")))...)
		first := dies()
		f.skipHead(queue, "g", first)
		second := dies()
		f.skipHead(queue, "g", second)
		third := dies()
		at := f.now
		f.behindDeadIs()
		f.redrive(named(first), "")
		f.redrive(named(second), "")
		f.states("redriven", []storage.ID{first, second, third}, "ready blocked dead")
		f.behindDeadIs()
		f.add(newJob(grouped("g")))
		f.behindDeadIs(storage.BehindDead{Queue: queue, Groups: 1, Jobs: 1, Since: at})
	}},

	{"behind_dead_many", `Groups is how many groups have blocked members with higher keys than a dead one that blocks them, at most [BehindGroups].
Jobs is how many such blocked members they have, at most [BehindJobs].
More is true if there may be others: these were counted in the order of groups, up to one of the limits.`, func(f *fixture) {
		buries := func(in string, groups int) (heads []storage.NewJob) {
			for i := range groups {
				heads = append(heads, newJob(member(in, fmt.Sprintf("%06d", i))))
			}
			f.add(heads...)
			x := storage.Exchange{}
			for _, l := range f.exchange(f.s, storage.Exchange{Wants: wants(groups, storage.Want{Queues: []string{in}, Kinds: []string{kind}})}).Leased {
				x.Finish = append(x.Finish, died(l.Lease, storage.ReasonPermanent, "no"))
			}
			f.exchange(f.s, x)
			return heads
		}
		at := f.now
		heads := buries("many", storage.BehindGroups+1)
		f.add(heads[1:]...)
		many := storage.BehindDead{Queue: "many", Groups: storage.BehindGroups, Jobs: storage.BehindGroups, Since: at}
		f.behindDeadIs(many)
		f.add(heads[0])
		many.More = true
		heads = buries("long", 3)
		f.add(times(storage.BehindJobs/2, heads[0])...)
		f.add(times(storage.BehindJobs/2, heads[1])...)
		long := storage.BehindDead{Queue: "long", Groups: 2, Jobs: storage.BehindJobs, Since: at}
		f.behindDeadIs(long, many)
		f.add(heads[2])
		long.Groups, long.More = 3, true
		buries("more", 1)
		f.add(times(2, newJob(member("more", "000000")))...)
		f.behindDeadIs(long, many, storage.BehindDead{Queue: "more", Groups: 1, Jobs: 2, Since: at})
	}},
}
