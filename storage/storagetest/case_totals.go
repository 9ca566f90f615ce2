package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// laneStats returns the numbers of a lane, zero if it is not listed.
func (f *fixture) laneStats(of storage.Lane) (s storage.LaneStats) {
	f.Helper()
	all, err := f.s.Stats(f.ctx)
	f.must(err)
	if i := slices.IndexFunc(all, func(s storage.LaneStats) bool { return s.Lane == of }); i >= 0 {
		s = all[i]
	}
	return s
}

// totals checks the totals of a lane: how many jobs were enqueued, and have ended as done,
// cancelled, expired and dead.
func (f *fixture) totals(what string, of storage.Lane, want ...int64) {
	f.Helper()
	t := f.laneStats(of).Total
	if got := []int64{t.Enqueued, t.Done, t.Cancelled, t.Expired, t.Dead}; !slices.Equal(got, want) {
		f.Errorf("%s: the totals of %v are %v, want %v", what, of, got, want)
	}
}

// expire has a job of the usual lane expire, with this retention.
func (f *fixture) expire(r storage.Retention) {
	f.Helper()
	f.add(newJob(startWithin(time.Second)))
	f.later(time.Minute)
	f.exchange(f.s, storage.Exchange{Wants: wants(1), Retention: r})
}

// endAll ends four jobs of the usual lane, of which two are cancelled, with this retention.
func (f *fixture) endAll(r storage.Retention) {
	f.Helper()
	done, dead := f.run(f.s), f.run(f.s)
	cancelled := f.add(newJob())[0]
	f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{{Lease: done.Lease, Outcome: storage.OutcomeDone}, died(dead.Lease, storage.ReasonPermanent, "no")}, Retention: r})
	_, err := f.s.Cancel(f.ctx, f.now, cancelled, r)
	f.must(err)
	running := f.run(f.s)
	f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{{Lease: running.Lease, Outcome: storage.OutcomeCancelled}}, Retention: r})
}

var totalsCases = []testCase{
	{"totals_ended", `Total is how many of its jobs have come and ended, ever.
Totals count jobs of a lane since there is the database.
None of them ever falls.
Done to Dead are how many have come to these states.`, func(f *fixture) {
		f.totals("nothing", usualLane, 0, 0, 0, 0, 0)
		f.endAll(kept(keep))
		f.totals("kept", usualLane, 4, 1, 2, 0, 1)
		f.endAll(storage.Retention{})
		f.totals("not kept", usualLane, 8, 2, 4, 0, 2)
		f.later(2 * keep)
		for {
			_, next, err := f.s.PurgeFinished(f.ctx, f.now)
			f.must(err)
			if next.IsZero() {
				break
			}
		}
		f.totals("purged", usualLane, 8, 2, 4, 0, 2)
		f.endAll(kept(keep))
		for _, states := range [][]storage.State{{storage.Dead}, {storage.Done, storage.Cancelled}} {
			_, err := f.s.Delete(f.ctx, storage.Selection{Filter: storage.Filter{States: states}})
			f.must(err)
		}
		f.totals("deleted", usualLane, 12, 3, 6, 0, 3)
		f.add(newJob(), newJob(delay(time.Hour)), newJob(grouped("g")), newJob(grouped("g")))
		f.lease(f.s, 1)
		f.totals("in each state", usualLane, 16, 3, 6, 0, 3)
		f.enqueue(newJob(unique("k")), newJob(unique("k")))
		f.totals("a duplicate", usualLane, 17, 3, 6, 0, 3)
	}},

	{"totals_expired", `Done to Dead are how many have come to these states.
None of them ever falls.`, func(f *fixture) {
		f.expire(kept(keep))
		f.totals("kept", usualLane, 1, 0, 0, 1, 0)
		f.expire(storage.Retention{})
		f.totals("not kept", usualLane, 2, 0, 0, 2, 0)
		f.later(2 * keep)
		_, _, err := f.s.PurgeFinished(f.ctx, f.now)
		f.must(err)
		f.totals("purged", usualLane, 2, 0, 0, 2, 0)
		f.expire(kept(keep))
		_, err = f.s.Delete(f.ctx, storage.Selection{Filter: storage.Filter{States: []storage.State{storage.Expired}}})
		f.must(err)
		f.totals("deleted", usualLane, 3, 0, 0, 3, 0)
	}},

	{"totals_redriven", `A redrive changes none of them: a job that dies again counts as Dead again.
A job that is changed to another queue, or redriven to one, counts as Enqueued only in its first lane, and its end in the lane in which it ends.`, func(f *fixture) {
		id := f.bury(storage.ReasonPermanent, "no")
		redrive := func(to string) {
			f.Helper()
			step, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{id}}, to)
			f.must(err)
			if step.N != 1 {
				f.Fatalf("redriven: %+v", step)
			}
		}
		redrive("")
		f.totals("redriven", usualLane, 1, 0, 0, 0, 1)
		l := f.leaseOne(f.s)
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.totals("dead again", usualLane, 1, 0, 0, 0, 2)
		redrive("other")
		other := storage.Lane{Queue: "other", Kind: kind}
		f.totals("redriven to another", usualLane, 1, 0, 0, 0, 2)
		f.totals("which it has come to", other, 0, 0, 0, 0, 0)
		e := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"other"}, Kinds: []string{kind}})})
		f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{{Lease: e.Leased[0].Lease, Outcome: storage.OutcomeDone}}})
		f.totals("done", usualLane, 1, 0, 0, 0, 2)
		f.totals("there", other, 0, 1, 0, 0, 0)
	}},

	{"totals_changed", `A job that is changed to another queue, or redriven to one, counts as Enqueued only in its first lane, and its end in the lane in which it ends.`, func(f *fixture) {
		waits, dead := f.add(newJob(delay(time.Hour)))[0], f.bury(storage.ReasonPermanent, "no")
		other := storage.Lane{Queue: "other", Kind: kind}
		change := func(e storage.Edit, ids ...storage.ID) {
			f.Helper()
			step, err := f.s.Change(f.ctx, f.now, storage.Selection{IDs: ids}, e)
			f.must(err)
			if step.N != len(ids) {
				f.Fatalf("changed: %+v", step)
			}
		}
		change(storage.Edit{Priority: new(7)}, waits, dead)
		f.totals("changed where they are", usualLane, 2, 0, 0, 0, 1)
		change(storage.Edit{Queue: "other"}, waits, dead)
		f.totals("which they have left", usualLane, 2, 0, 0, 0, 1)
		f.totals("which they have come to", other, 0, 0, 0, 0, 0)
		f.cancel(waits)
		f.totals("cancelled there", other, 0, 0, 1, 0, 0)
		change(storage.Edit{Queue: queue}, dead)
		f.totals("back", usualLane, 2, 0, 0, 0, 1)
		_, err := f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{dead}})
		f.must(err)
		f.totals("deleted", usualLane, 2, 0, 0, 0, 1)
		f.totals("once there", other, 0, 0, 1, 0, 0)
	}},

	{"totals_evicted", `Total is how many of its jobs have come and ended, ever.`, func(f *fixture) {
		f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingMaxJobs: 1, storage.SettingWhenFull: int64(storage.EvictOldest)})
		f.add(newJob())
		f.add(newJob())
		f.totals("one was evicted", usualLane, 2, 0, 0, 0, 0)
	}},

	{"totals_tx", `EnqueueTx is Enqueue inside tx: the jobs exist if tx commits.
FinishTx ends leases with OutcomeDone inside tx, in their order, as an Exchange ends them, with their Then: it takes effect if tx commits.`, func(f *fixture) {
		f.transacts(f.s)
		for _, r := range retentions {
			was := f.laneStats(usualLane).Total
			l := f.begun(f.s)
			for _, vanish := range f.vanishes() {
				vanish(f.s, func(tx any) {
					f.addTx(f.s, tx, newJob())
					f.finishTxFor(f.s, tx, l, r, nil, storage.Applied)
				})
			}
			f.totals("rolled back", usualLane, was.Enqueued+1, was.Done, 0, 0, 0)
			f.commits(f.s, func(tx any) {
				f.addTx(f.s, tx, newJob(delay(time.Hour)))
				f.finishTxFor(f.s, tx, l, r, nil, storage.Applied)
			})
			f.totals("committed", usualLane, was.Enqueued+2, was.Done+1, 0, 0, 0)
		}
	}},

	{"totals_number", `Number is positive, never changes, and is higher than those of lanes that had their first job before.
A job that is changed to the lane may be the first.
Stats returns what is known of the lanes that have ever had a job, sorted by queue and kind.`, func(f *fixture) {
		last := int64(0)
		for _, of := range []storage.Lane{{Queue: "m", Kind: "z"}, {Queue: "a", Kind: "z"}, {Queue: "a", Kind: "a"}} {
			f.add(newJob(lane(of.Queue, of.Kind)))
			n := f.laneStats(of).Number
			if n <= last {
				f.Errorf("the number of %v is %d, after %d", of, n, last)
			}
			last = n
		}
		if n := f.laneStats(storage.Lane{Queue: "a", Kind: "a"}).Number; n != last {
			f.Errorf("the number was %d, and is %d", last, n)
		}
		moved := storage.Lane{Queue: "b", Kind: kind}
		ids := f.add(newJob(delay(time.Hour)))
		for _, to := range []string{moved.Queue, queue} {
			_, err := f.s.Change(f.ctx, f.now, storage.Selection{IDs: ids}, storage.Edit{Queue: to})
			f.must(err)
		}
		if was := f.laneStats(usualLane).Number; f.laneStats(moved).Number <= was || was <= last {
			f.Errorf("the numbers are %d, then %d, then %d", last, was, f.laneStats(moved).Number)
		}
	}},
}
