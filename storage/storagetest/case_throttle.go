package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// throttle sets the shared throttle of a queue or kind.
func (f *fixture) throttle(lane storage.Lane, n int64, per time.Duration, burst int64) {
	f.Helper()
	f.configure(f.s, lane, storage.Settings{
		storage.SettingStarts: n, storage.SettingStartsPer: per.Microseconds(), storage.SettingStartsBurst: burst,
	})
}

// grants checks how many jobs an exchange leases, and when there are more.
func (f *fixture) grants(what string, s storage.Store, n int, next time.Time, from ...storage.Want) []storage.Leased {
	f.Helper()
	res := f.exchange(s, storage.Exchange{Wants: wants(99, from...)})
	if len(res.Leased) != n || !res.NextDue.Equal(next) {
		f.Errorf("%s: %d were leased and NextDue is %v, want %d and %v", what, len(res.Leased), res.NextDue, n, next)
	}
	return res.Leased
}

var throttleCases = []testCase{
	{"throttle_queue", `A queue or kind with [SettingStarts] has a bucket of tokens, which holds Burst of them and is full at first. One token comes in each Interval, by the times that calls are given.
An [Exchange], and an [Offer], leases a job only while there is a token in each of the buckets of its queue and its kind, and takes these.
NextDue is no later than when the bucket has one.`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 10, time.Minute, 3)
		for range 20 {
			f.add(newJob(), newJob(lane(queue, "other")))
		}
		free := f.add(newJob(lane("other", kind)))
		both := storage.Want{Queues: []string{queue, "other"}, Kinds: []string{kind, "other"}}
		began := f.now
		got := f.grants("at first", f.s, 4, began.Add(6*time.Second), both)
		f.order("beside them", leasedIDs(got[3:]), free)
		f.grants("at once again, by another", f.db.Open(), 0, began.Add(6*time.Second), both)
		f.later(6*time.Second - time.Microsecond)
		f.grants("too early", f.s, 0, began.Add(6*time.Second))
		f.later(time.Microsecond)
		f.grants("after an interval", f.s, 1, began.Add(12*time.Second))
		f.later(15 * time.Second)
		f.grants("after two and a half", f.s, 2, began.Add(24*time.Second))
		f.later(time.Hour)
		f.grants("after a pause", f.s, 3, f.now.Add(6*time.Second))
	}},

	{"throttle_kind", `Starts is how many jobs of a queue, or of a kind in all queues, are leased in a time by all instances together.
leases a job only while there is a token in each of the buckets of its queue and its kind, and takes these.`, func(f *fixture) {
		f.throttle(storage.Lane{Kind: kind}, 1, time.Second, 4)
		f.throttle(storage.Lane{Queue: "a"}, 1, time.Minute, 1)
		for range 5 {
			f.add(newJob(lane("a", kind)), newJob(lane("b", kind)), newJob(lane("b", "other")))
		}
		got := f.grants("at first", f.s, 4, f.now.Add(time.Second), storage.Want{Queues: []string{"a", "b"}, Kinds: []string{kind}})
		for i, want := range []string{"a", "b", "b", "b"} {
			if i < len(got) && got[i].Queue != want {
				f.Errorf("job %d is of queue %s", i, got[i].Queue)
			}
		}
		f.grants("of another kind", f.s, 5, time.Time{}, storage.Want{Queues: []string{"a", "b"}, Kinds: []string{"other"}})
	}},

	{"throttle_defaults", `SettingStarts is how many jobs are leased in SettingStartsPer, which is in microseconds, and a second if it is not set.
if it is not set, as many as come in a tenth of a second, and at least 2`, func(f *fixture) {
		for range 99 {
			f.add(newJob())
		}
		f.throttle(storage.Lane{Queue: queue}, 4, 0, 0)
		f.grants("4 a second", f.s, 2, f.now.Add(250*time.Millisecond))
		f.throttle(storage.Lane{Queue: queue}, 0, 0, 0)
		f.throttle(storage.Lane{Queue: queue}, 50, 0, 0)
		f.grants("50 a second", f.s, 5, f.now.Add(20*time.Millisecond))
		f.throttle(storage.Lane{Queue: queue}, 0, 0, 0)
		f.grants("without", f.s, 92, time.Time{})
	}},

	{"throttle_nothing", `If a ready job lacks a token, and a Want that it matches has room in the end, NextDue is no later than when the bucket has one.`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 1, time.Minute, 1)
		f.grants("of nothing", f.s, 0, time.Time{})
		f.add(newJob())
		f.grants("the only one", f.s, 1, time.Time{})
		f.add(newJob())
		f.later(20 * time.Second)
		f.grants("the next", f.s, 0, f.now.Add(40*time.Second))
		f.grants("of which none counts", f.s, 0, time.Time{}, storage.Want{Queues: []string{queue}, Kinds: []string{"other"}})
	}},

	{"throttle_urgent", `An urgent job needs no token and takes none.`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 1, time.Minute, 1)
		ids := f.add(newJob(), newJob(), newJob())
		for _, id := range ids[1:] {
			f.runNow(named(id), firstToo)
		}
		got := f.exchange(f.s, storage.Exchange{Wants: wants(9), Urgent: 2})
		f.order("leased", leasedIDs(got.Leased), pick(ids, 1, 2, 0))
	}},

	{"throttle_returned", `A job that comes back with [OutcomeReturned] brings a token back into each, as far as there is room.`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 1, time.Minute, 2)
		f.add(newJob(), newJob(), newJob(), newJob())
		got := f.grants("at first", f.s, 2, f.now.Add(time.Minute))
		f.finish(f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeReturned})
		got = append(got, f.grants("after one has come back", f.s, 1, f.now.Add(time.Minute))...)
		f.finish(f.s, storage.Finish{Lease: got[1].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		f.grants("after one has failed", f.s, 0, f.now.Add(time.Minute))
		if len(got) < 3 {
			return
		}
		f.later(time.Hour)
		f.finish(f.s, storage.Finish{Lease: got[2].Lease, Outcome: storage.OutcomeReturned})
		f.grants("with room for none", f.s, 2, f.now.Add(time.Minute))
	}},

	{"throttle_clock", `If the clock is set back so far that a bucket would need more than Burst intervals to be full, it has one token then. As soon as that is taken the bucket is empty, and fills from there.`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 1, time.Second, 3)
		for range 20 {
			f.add(newJob(dueAt(f.now.Add(-2 * time.Hour))))
		}
		f.grants("at first", f.s, 3, f.now.Add(time.Second))
		f.now = f.now.Add(-time.Hour)
		f.grants("an hour before", f.s, 1, f.now.Add(time.Second))
		f.later(time.Second)
		f.grants("a second later", f.s, 1, f.now.Add(time.Second))
		f.later(10 * time.Second)
		f.grants("a burst", f.s, 3, f.now.Add(time.Second))
	}},

	{"throttle_ahead", `OfQueue and OfKind are the buckets of tokens of the queue and of the kind of a ready job, see [Starts].
Without an Interval there is no such bucket.`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 10, time.Minute, 2)
		ids := f.add(newJob(), newJob(), newJob(), newJob(delay(time.Hour)))
		f.grants("at first", f.s, 2, f.now.Add(6*time.Second))
		want := storage.Ahead{OfQueue: storage.Bucket{Starts: storage.Starts{Interval: 6 * time.Second, Burst: 2}, Full: f.now.Add(12 * time.Second).UTC()}}
		f.ahead(ids[2], 9, want)
		f.throttle(storage.Lane{Kind: kind}, 1, time.Second, 1)
		f.later(6 * time.Second)
		f.lease(f.s, 1)
		id := f.add(newJob())[0]
		want.OfQueue.Full = want.OfQueue.Full.Add(6 * time.Second)
		want.OfKind = storage.Bucket{Starts: storage.Starts{Interval: time.Second, Burst: 1}, Full: f.now.Add(time.Second).UTC()}
		f.ahead(id, 9, want)
		f.ahead(ids[3], 9, storage.Ahead{})
	}},

	{"throttle_handoff", `An [Exchange], and an [Offer], leases a job only while there is a token in each of the buckets of its queue and its kind, and takes these.`, func(f *fixture) {
		f.throttle(storage.Lane{Queue: queue}, 1, time.Minute, 2)
		w := f.offer(f.s, usual, 9)
		w.took("the first", f.add(newJob())...)
		ids := f.add(newJob(), newJob())
		w.took("the second", ids[0])
		f.is(storage.Ready, ids[1])
		f.grants("then", f.s, 0, f.now.Add(time.Minute))
	}},
}
