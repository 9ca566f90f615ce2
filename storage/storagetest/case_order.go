package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// ordered sets the order of a queue.
func (f *fixture) ordered(queue string, order storage.Order, aging time.Duration) {
	f.Helper()
	f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingOrder: int64(order), storage.SettingAging: aging.Microseconds()})
}

// oneByOne leases so many jobs, as many at a time as sizes says, and returns them.
func (f *fixture) oneByOne(n int, want storage.Want, sizes ...int) (ids []storage.ID) {
	f.Helper()
	for i := 0; len(ids) < n; i++ {
		got := f.exchange(f.s, storage.Exchange{Wants: wants(min(sizes[i%len(sizes)], n-len(ids)), want)}).Leased
		if len(got) == 0 {
			f.Fatalf("%d were leased of %d", len(ids), n)
		}
		ids = append(ids, leasedIDs(got)...)
	}
	return ids
}

// ago returns a job of a priority that was due so many seconds before.
func (f *fixture) ago(seconds int, p int, change ...func(*storage.NewJob)) storage.NewJob {
	return newJob(append(change, dueAt(f.now.Add(-time.Duration(seconds)*time.Second)), priority(p))...)
}

const (
	newestFirst = `Newest is the reverse: the latest due goes first, then the last enqueued.`
	agedFirst   = `With a SettingAging that much waiting makes up for a step of priority: the ready job of a queue goes first whose due time, less SettingAging times its priority, is the earliest, then the first enqueued.`
	amongQueues = `Several queues are compared by their first jobs. Each counts with the highest priority of all jobs of its queue that could be leased. The highest priority goes first, then the earliest due, then the first enqueued.`
)

var orderCases = []testCase{
	{"order_newest", newestFirst + `
Order is a SettingOrder: which of the ready jobs of a queue with the same priority goes first.`, func(f *fixture) {
		f.ordered(queue, storage.Newest, time.Minute)
		ids := f.add(f.ago(2, 0), f.ago(1, 0), f.ago(3, 1), f.ago(0, 0), f.ago(0, 0), f.ago(0, -1), f.ago(2, 1), f.ago(9000, 0))
		f.order("leased", f.oneByOne(len(ids), usual, 1, 2, 3), pick(ids, 6, 2, 4, 3, 1, 0, 7, 5))
	}},

	{"order_newest_lanes", newestFirst, func(f *fixture) {
		f.ordered(queue, storage.Newest, 0)
		other := lane(queue, "other")
		ids := f.add(f.ago(2, 0), f.ago(1, 0, other), f.ago(3, 1), f.ago(0, 0), f.ago(0, 0, other), f.ago(4, 1, other), f.ago(4, 0))
		both := storage.Want{Queues: []string{queue}, Kinds: []string{kind, "other"}}
		f.order("leased", f.oneByOne(3, both, 2), pick(ids, 2, 5, 4))
		more := f.add(f.ago(0, 0))
		f.order("and then", f.oneByOne(5, both, 1, 3), append(more, pick(ids, 3, 1, 0, 6)...))
	}},

	{"order_aging", agedFirst, func(f *fixture) {
		f.ordered(queue, storage.Oldest, time.Minute)
		exactly := f.ago(120, 0)
		exactly.DueAt = exactly.DueAt.Add(-time.Microsecond)
		ids := f.add(f.ago(0, 2), f.ago(180, -1), f.ago(120, 0), exactly, f.ago(3600, -100), f.ago(61, 1), f.ago(1, 100))
		f.order("leased", f.oneByOne(len(ids), usual, 1, 2, 3), pick(ids, 6, 5, 3, 0, 1, 2, 4))
	}},

	{"order_aging_lanes", agedFirst, func(f *fixture) {
		f.ordered(queue, storage.Oldest, time.Minute)
		want := storage.Want{Queues: []string{queue}, Kinds: []string{kind}}
		var jobs []storage.NewJob
		var order []int
		for i := range 48 { // of a dozen lanes, so that some are read ahead
			k := string(rune('a' + i%12))
			want.Kinds = append(want.Kinds, k)
			jobs = append(jobs, f.ago(60*(7*i%48), i%5-2, lane(queue, k)))
			order = append(order, i)
		}
		ids := f.add(jobs...)
		rank := func(i int) time.Time { return jobs[i].DueAt.Add(-time.Minute * time.Duration(jobs[i].Priority)) }
		slices.SortStableFunc(order, func(i, j int) int { return rank(i).Compare(rank(j)) })
		f.order("leased", f.oneByOne(20, want, 3), pick(ids, order[:20]...))
		urgent := f.add(f.ago(7200, 9))
		f.order("and then", f.oneByOne(29, want, 2, 5), append(urgent, pick(ids, order[20:]...)...))
	}},

	{"order_starving", agedFirst, func(f *fixture) {
		low := f.add(f.ago(0, 0))
		for range 30 { // a new one each second, of a higher priority
			f.add(f.ago(0, 5))
			f.oneByOne(1, usual, 1)
			f.later(time.Second)
		}
		f.is(storage.Ready, low...)
		f.ordered(queue, storage.Oldest, 5*time.Second) // it has waited for more than five of these
		f.add(f.ago(0, 5))
		f.order("after the waiting of five steps", f.oneByOne(1, usual, 1), low)
	}},

	{"order_queues", amongQueues, func(f *fixture) {
		f.ordered("a", storage.Oldest, time.Minute)
		f.ordered("c", storage.Newest, 0)
		in := func(queue string) func(*storage.NewJob) { return lane(queue, kind) }
		ids := f.add(
			f.ago(600, 0, in("a")), f.ago(1, 3, in("a")), f.ago(3600, 2, in("b")), f.ago(0, 5, in("b")), f.ago(3600, 0, in("b")), f.ago(7200, 0, in("c")), f.ago(0, 0, in("c")),
			f.ago(9000, 2, lane("a", "other")),
		)
		want := storage.Want{Queues: []string{"a", "b", "c"}, Kinds: []string{kind}}
		f.order("leased", f.oneByOne(7, want, 2, 1), pick(ids, 3, 0, 1, 2, 4, 6, 5))
		want.Kinds = append(want.Kinds, "other")
		ids = append(ids, f.add(f.ago(0, 1, in("b")), f.ago(0, 9, in("a")), f.ago(30_000, -1, in("a")))...)
		f.hold(storage.Hold{Lane: storage.Lane{Queue: "a", Kind: "other"}, Reason: "r"})
		f.order("beside one that is held", f.oneByOne(3, want, 1), pick(ids, 10, 9, 8))
	}},

	{"order_at_once", `Settings apply at once to the jobs that are ready. Only the due times of Turns are stored in jobs.
A queue with the order Newest does not age.
A setting that is missing or zero is not set.`, func(f *fixture) {
		jobs := func(n int) (all []storage.NewJob) {
			for i := range n {
				all = append(all, f.ago(600*(n-i), i%3))
			}
			return all
		}
		ids := f.add(jobs(6)...) // 3600 3000 2400 1800 1200 600, priorities 0 1 2 0 1 2
		f.order("unset", f.oneByOne(1, usual, 1), pick(ids, 2))
		f.configure(f.db.Open(), storage.Lane{Queue: queue}, storage.Settings{storage.SettingAging: time.Minute.Microseconds()})
		f.order("aging", f.oneByOne(1, usual, 1), pick(ids, 0))
		f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingOrder: int64(storage.Newest)})
		f.order("newest", f.oneByOne(2, usual, 2), pick(ids, 5, 4))
		f.ordered(queue, storage.Oldest, 0)
		f.order("unset again", f.oneByOne(2, usual, 2), pick(ids, 1, 3))
	}},

	{"order_turns", `Turns is Oldest with the groups in rotation: a due member that an Exchange lets into its group is ready, and its due time becomes the time of the call, if that is later.`, func(f *fixture) {
		f.ordered(queue, storage.Turns, 0)
		many, few := grouped("many"), grouped("few")
		ids := f.add(newJob(many), newJob(many), newJob(many, delay(time.Second)), newJob(many, delay(time.Hour)))
		f.later(2 * time.Second)
		ids = append(ids, f.add(newJob(few), newJob(few))...)
		f.later(time.Second)
		last := f.record(ids[3]).DueAt
		for _, id := range pick(ids, 0, 4, 1, 5, 2) {
			f.apply(f.s, storage.Finish{Lease: f.leased(1, id)[0].Lease, Outcome: storage.OutcomeDone})
			f.later(time.Second)
		}
		f.states("the last", ids[3:4], "scheduled")
		f.dueWhen("the last", ids[3], last)
		f.cancel(ids[3])

		elsewhere := lane("other", kind)
		ids = f.add(newJob(many), newJob(many), newJob(many), newJob(elsewhere, many), newJob(elsewhere, many))
		was := f.now
		f.later(time.Minute)
		other := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"other"}, Kinds: []string{kind}})}).Leased[0]
		f.apply(f.s, storage.Finish{Lease: other.Lease, Outcome: storage.OutcomeDone})
		f.dueWhen("of a queue without turns", ids[4], was)
		f.cancel(ids[0])
		f.dueWhen("let in by another call", ids[1], was)
		f.done(ids[1])
		f.dueWhen("let in by an exchange", ids[2], f.now)
	}},

	{"order_ahead", `Ahead counts, up to most, the jobs before a job. Of a ready job these are the ready jobs of its lane that an Exchange leases before it;`, func(f *fixture) {
		ids := f.add(f.ago(600, 0), f.ago(300, 1), f.ago(0, 2), f.ago(0, 0), f.ago(60, 1), f.ago(600, 0))
		f.add(f.ago(9000, 9, lane(queue, "other")))
		for _, c := range []struct {
			order storage.Order
			aging time.Duration
			want  []int // the order
		}{
			{storage.Oldest, 0, []int{2, 1, 4, 0, 5, 3}},
			{storage.Newest, 0, []int{2, 4, 1, 3, 5, 0}},
			{storage.Turns, 0, []int{2, 1, 4, 0, 5, 3}},
			{storage.Oldest, 5 * time.Minute, []int{0, 1, 2, 5, 4, 3}},
		} {
			f.ordered(queue, c.order, c.aging)
			for n, i := range c.want {
				f.ahead(ids[i], 9, storage.Ahead{N: n})
				if n > 0 {
					f.ahead(ids[i], n-1, storage.Ahead{N: n - 1, More: true})
				}
			}
		}
		f.order("leased", f.oneByOne(len(ids), usual, 9), pick(ids, 0, 1, 2, 5, 4, 3))
	}},
}
