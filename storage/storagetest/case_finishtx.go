package storagetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// retentions are Retentions by whether they keep the usual jobs.
var retentions = map[bool]storage.Retention{
	true:  {Lanes: map[storage.Lane]time.Duration{{Queue: queue, Kind: kind}: keep}},
	false: {Default: keep, Lanes: map[storage.Lane]time.Duration{{Queue: queue, Kind: kind}: 0}},
}

// doneIf returns the state of a job that is done: none if it is not kept.
func doneIf(kept bool) storage.State {
	if kept {
		return storage.Done
	}
	return ""
}

var finishTxCases = []testCase{
	{"finishtx_commits", `FinishTx ends leases with OutcomeDone inside tx, in their order, as an Exchange ends them, with their Then: it takes effect if tx commits.`, func(f *fixture) {
		f.transacts(f.s)
		other := f.db.Open()
		for keeps, r := range retentions {
			key := unique(fmt.Sprint(keeps))
			a, b, c := f.begun(f.s, key), f.begun(f.s, grouped("g")), f.begun(f.s)
			ids := append(leasedIDs([]storage.Leased{a, b}), f.add(newJob(grouped("g"), lane(queue, "next")))...)
			f.later(time.Second)
			f.commits(f.s, func(tx any) {
				f.finishTxFor(f.s, tx, a, r, nil, storage.Applied)
				f.finishTxFor(f.s, tx, b, r, nil, storage.Applied)
				f.isTo(other, storage.Running, ids[:2]...)
				f.states("before the commit", ids, "running running blocked")
			})
			f.isTo(other, doneIf(keeps), ids[:2]...)
			f.is(storage.Ready, ids[2])
			f.keep(keep, f.s, storage.Finish{Lease: c.Lease, Outcome: storage.OutcomeDone})
			if keeps {
				want, got := f.record(c.ID), f.record(b.ID)
				want.ID, want.Key, want.Group = got.ID, got.Key, got.Group
				f.same("as an Exchange ends it", got, want)
				if !got.EndedAt.Equal(f.now) || got.Attempt != 1 {
					f.Errorf("the job has ended at %v after %d attempts", got.EndedAt, got.Attempt)
				}
			}
			f.add(newJob(key, delay(time.Hour))) // the key is free
			f.takesNothing(other, time.Hour)
			f.cancel(ids[2])
		}
	}},

	{"finishtx_many", `FinishTx ends leases with OutcomeDone inside tx, in their order, as an Exchange ends them, with their Then: it takes effect if tx commits.
An answer that is not [Applied] is the last one. After it, or after an error, tx cannot commit any more.
committed, if not nil, is called for each index of ends when tx has committed`, func(f *fixture) {
		s := f.transacts(f.s)
		is := func(what string, got, want any) {
			f.Helper()
			if !reflect.DeepEqual(got, want) {
				f.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		a, b, c := f.begun(f.s, unique("a")), f.begun(f.s), f.begun(f.s, grouped("g"))
		ids := leasedIDs([]storage.Leased{a, b, c})
		next := f.add(newJob(grouped("g")))[0]
		end := func(tx any, leases ...storage.Leased) (results []storage.ItemResult, then map[int][]storage.Enqueued, told *[]int) {
			f.Helper()
			told = new([]int)
			var ends []storage.Finish
			for i, l := range leases {
				e := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
				if i > 0 {
					e.Then = times(i, newJob())
				}
				ends = append(ends, e)
			}
			results, then, err := s.FinishTx(f.ctx, tx, f.now, ends, kept(keep), func(i int) { *told = append(*told, i) })
			f.must(err)
			return results, then, told
		}
		var told *[]int
		lost := storage.Leased{Lease: storage.Lease{Key: 1 << 40, Token: 1 << 40}}
		f.failsToCommit("one of several is lost", f.s, func(tx any) {
			var results []storage.ItemResult
			results, _, told = end(tx, a, lost, b)
			is("results", results, []storage.ItemResult{storage.Applied, storage.Lost})
		})
		f.isTo(f.s, storage.Running, ids...)
		is("told of a transaction that did not commit", *told, []int(nil))
		f.commits(f.s, func(tx any) {
			results, then, calls := end(tx, c, a, b)
			told = calls
			is("results", results, []storage.ItemResult{storage.Applied, storage.Applied, storage.Applied})
			if len(then) != 2 || len(then[1]) != 1 || len(then[2]) != 2 {
				f.Errorf("follow-ups %v", then)
			}
		})
		is("told", *told, []int{0, 1, 2})
		f.isTo(f.s, storage.Done, ids...)
		f.isTo(f.s, storage.Ready, next)
	}},

	{"finishtx_counts", `FinishTx ends leases with OutcomeDone inside tx, in their order, as an Exchange ends them
Succeeded is when an attempt ended with OutcomeDone for the last time
an attempt of the job's lane has ended with OutcomeDone under a lease later than Since.`, func(f *fixture) {
		f.transacts(f.s)
		unavailable := func(l storage.Leased, want storage.ItemResult) {
			f.Helper()
			r := f.finish(f.s, storage.Finish{
				Lease: l.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now.Add(time.Minute), Since: l.Previous,
				Spent: &storage.Finish{Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Minute)},
			})
			if r != want {
				f.Errorf("finishing as unavailable returned %d, want %d", r, want)
			}
		}
		l := f.run(f.s)
		unavailable(l, storage.Applied)
		good := f.begun(f.s)
		f.later(time.Second)
		f.declines(f.s, func(tx any) { f.finishTx(f.s, tx, good, storage.Applied) })
		f.later(time.Minute)
		l = f.leaseOne(f.s)
		unavailable(l, storage.Applied)
		f.commits(f.s, func(tx any) { f.finishTx(f.s, tx, good, storage.Applied) })
		stats, err := f.s.Stats(f.ctx)
		f.must(err)
		if len(stats) != 1 || stats[0].Succeeded.Sub(f.now).Abs() >= time.Second {
			f.Errorf("the numbers of the lane are %+v, want its last success at %v", stats, f.now)
		}
		f.later(time.Minute)
		first := f.leaseOne(f.s)
		first.Previous = good.Token - 1
		unavailable(first, storage.Spent)
	}},

	{"finishtx_vanishes", `it takes effect if tx commits.
otherwise, or if fn panics, it is rolled back.`, func(f *fixture) {
		f.transacts(f.s)
		l := f.begun(f.s, unique("key"))
		for name, vanishes := range f.vanishes() {
			vanishes(f.s, func(tx any) { f.finishTxFor(f.s, tx, l, kept(0), nil, storage.Applied) })
			f.is(storage.Running, l.ID)
			f.looks("after "+name, f.s, nil, l, storage.Applied)
			if r := f.extend(f.s, l.Lease); r != storage.Applied {
				f.Errorf("extending after %s returned %d, want applied", name, r)
			}
			if e := f.enqueue(newJob(unique("key")))[0]; !e.Duplicate {
				f.Errorf("the unique key is free after %s", name)
			}
		}
		f.commits(f.s, func(tx any) { f.finishTx(f.s, tx, l, storage.Applied) })
		f.is(storage.Done, l.ID)
	}},

	{"finishtx_lost", `After it, or after an error, tx cannot commit any more.
An answer is [Lost] if the lease is not held`, func(f *fixture) {
		f.transacts(f.s)
		holder := f.db.Open()
		reclaimed := f.begun(holder)
		retried, ended, sound := f.begun(f.s), f.begun(f.s), f.begun(f.s)
		f.apply(f.s, storage.Finish{Lease: retried.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		f.keep(keep, f.s, storage.Finish{Lease: ended.Lease, Outcome: storage.OutcomeDone})
		f.db.Kill(holder)
		f.takes(f.s, 0, reclaimed.Lease, storage.Crashed)
		before := f.record(ended.ID)
		for what, l := range map[string]storage.Leased{
			"reclaimed": reclaimed, "retried": retried, "ended": ended, "never held": {Lease: storage.Lease{Key: 1 << 40, Token: 1 << 40}},
		} {
			var ids []storage.ID
			f.failsToCommit(what, f.s, func(tx any) {
				ids = f.addTx(f.s, tx, newJob())
				f.finishTxFor(f.s, tx, sound, kept(keep), func() { f.Errorf("%s: committed was called", what) }, storage.Applied)
				f.finishTxFor(f.s, tx, l, kept(keep), func() { f.Errorf("%s: committed was called", what) }, storage.Lost)
			})
			f.is("", ids...)
			f.counts(count(storage.Done, 1), count(storage.Running, 2), count(storage.Scheduled, 1))
		}
		f.same("the job that had ended", f.record(ended.ID), before)
		f.commits(f.s, func(tx any) { f.finishTx(f.s, tx, sound, storage.Applied) })
	}},

	{"finishtx_spoiled", `SpoilTx has tx never commit, whoever ignores err.`, func(f *fixture) {
		s := f.transacts(f.s)
		l := f.begun(f.s)
		var ids []storage.ID
		f.failsToCommit("after SpoilTx", f.s, func(tx any) {
			ids = f.addTx(f.s, tx, newJob())
			f.finishTx(f.s, tx, l, storage.Applied)
			s.SpoilTx(tx, errors.New("spoiled"))
		})
		f.is("", ids...)
		f.is(storage.Running, l.ID)
	}},

	{"finishtx_cancelling", `[Cancelling] if the job was asked to stop.
After it, or after an error, tx cannot commit any more.`, func(f *fixture) {
		s := f.transacts(f.s)
		l, other := f.begun(f.s), f.begun(f.s)
		f.cancel(l.ID)
		var ids []storage.ID
		f.failsToCommit("after Cancel", f.s, func(tx any) {
			ids = f.addTx(f.s, tx, newJob())
			f.finishTx(f.s, tx, l, storage.Cancelling)
		})
		f.failsToCommit("after CancelTx", f.s, func(tx any) {
			_, err := s.CancelTx(f.ctx, tx, f.now, other.ID, kept(keep))
			f.must(err)
			f.finishTx(f.s, tx, other, storage.Cancelling)
		})
		f.is("", ids...)
		f.is(storage.Running, l.ID, other.ID)
		if r := f.extend(f.s, l.Lease); r != storage.Cancelling {
			f.Errorf("extending returned %d, want cancelling", r)
		}
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCancelled})
		f.is(storage.Cancelled, l.ID)
		f.commits(f.s, func(tx any) { f.finishTx(f.s, tx, other, storage.Applied) })
	}},

	{"finishtx_ended", `[Ended] if it has ended in this transaction or by another FinishTx
After it, or after an error, tx cannot commit any more.`, func(f *fixture) {
		f.transacts(f.s)
		for keeps, r := range retentions {
			l := f.begun(f.s)
			f.failsToCommit("twice in a transaction", f.s, func(tx any) {
				f.finishTxFor(f.s, tx, l, r, nil, storage.Applied)
				f.finishTxFor(f.s, tx, l, r, nil, storage.Ended)
			})
			f.is(storage.Running, l.ID)
			f.commits(f.s, func(tx any) { f.finishTxFor(f.s, tx, l, r, nil, storage.Applied) })
			var ids []storage.ID
			f.failsToCommit("in a second transaction", f.s, func(tx any) {
				ids = f.addTx(f.s, tx, newJob())
				f.finishTxFor(f.s, tx, l, r, func() { f.Errorf("committed was called") }, storage.Ended)
			})
			f.is("", ids...)
			f.is(doneIf(keeps), l.ID)
		}
	}},

	{"finishtx_ended_exchange", `Ended: [TxEnqueuer].FinishTx has ended the lease before; nothing was changed.
The Store whose FinishTx it was knows of a lease that it is [Ended] while the handler of the lease runs`, func(f *fixture) {
		f.transacts(f.s)
		for keeps, r := range retentions {
			for outcome := storage.OutcomeDone; outcome <= storage.OutcomeUnavailable; outcome++ {
				l := f.begun(f.s)
				f.commits(f.s, func(tx any) { f.finishTxFor(f.s, tx, l, r, nil, storage.Applied) })
				f.later(time.Second)
				fin := storage.Finish{Lease: l.Lease, Outcome: outcome, Failure: &storage.NewFailure{Error: "late"}}
				if outcome == storage.OutcomeDead {
					then := newJob()
					fin.Reason, fin.Error, fin.Then = storage.ReasonPermanent, "late", []storage.NewJob{then}
				}
				for range 2 {
					if got := f.extend(f.s, l.Lease); got != storage.Ended {
						f.Errorf("extending returned %d, want ended", got)
					}
				}
				if got := f.finish(f.s, fin); got != storage.Ended {
					f.Errorf("finishing with outcome %d returned %d, want ended", outcome, got)
				}
				f.is(doneIf(keeps), l.ID)
				if keeps {
					if r := f.record(l.ID); len(r.History) != 0 || r.Error != "" || !r.EndedAt.Equal(f.now.Add(-time.Second)) {
						f.Errorf("outcome %d has changed the job: %+v", outcome, r)
					}
				}
			}
			f.purge()
		}
		if got := f.lease(f.s, 1); len(got) != 0 {
			f.Errorf("leased %v", got)
		}
	}},

	{"finishtx_taken", `Lost: the lease is no longer held; nothing was changed.
An answer is [Lost] if the lease is not held`, func(f *fixture) {
		f.transacts(f.s)
		other, mono := f.db.Open(), time.Duration(0)
		lost := func(what string, l storage.Leased) {
			f.Helper()
			f.looks(what, f.s, nil, l, storage.Lost)
			if got := f.extend(f.s, l.Lease); got != storage.Lost {
				f.Errorf("%s: extending returned %d, want lost", what, got)
			}
			f.failsToCommit(what, f.s, func(tx any) { f.finishTx(f.s, tx, l, storage.Lost) })
		}
		for keeps, r := range retentions {
			for _, vanishes := range f.vanishes() {
				told, l := f.begun(f.s), f.begun(f.s)
				vanishes(f.s, func(tx any) {
					f.finishTxFor(f.s, tx, told, r, nil, storage.Applied)
					f.finishTxFor(f.s, tx, l, r, nil, storage.Applied)
				})
				f.takesNothing(other, mono+hold)
				mono += 2 * hold
				x := storage.Exchange{Retention: r}
				for _, taken := range f.reclaim(other, mono) {
					x.Finish = append(x.Finish, storage.Finish{Lease: taken.Lease, Outcome: storage.OutcomeDone})
				}
				lost("reclaimed", told)
				if got := f.exchange(other, x).Finished; !slices.Equal(got, []storage.ItemResult{storage.Applied, storage.Applied}) {
					f.Errorf("the other one finishes with %d", got)
				}
				lost(fmt.Sprintf("ended by another after it was known to be lost, kept: %v", keeps), told)
				lost(fmt.Sprintf("ended by another, kept: %v", keeps), l)
			}
		}
	}},

	{"finishtx_look", `LookTx says whether a lease is held, as tx sees it, or, with a nil tx, as was committed: [Applied], or one of the other answers of FinishTx. It changes nothing.`, func(f *fixture) {
		s, other := f.transacts(f.s), f.db.Open()
		a, b, asked, gone := f.begun(f.s), f.begun(f.s), f.begun(f.s), f.begun(f.s)
		f.cancel(asked.ID)
		f.keep(keep, f.s, storage.Finish{Lease: gone.Lease, Outcome: storage.OutcomeDone})
		f.later(time.Second)
		f.commits(f.s, func(tx any) {
			for _, in := range []any{tx, nil} {
				f.looks("at first", f.s, in, a, storage.Applied)
				f.looks("cancelled", f.s, in, asked, storage.Cancelling)
				f.looks("gone", f.s, in, gone, storage.Lost)
				f.looks("never held", f.s, in, storage.Leased{}, storage.Lost)
			}
			f.finishTxFor(f.s, tx, a, kept(0), nil, storage.Applied)
			_, err := s.CancelTx(f.ctx, tx, f.now, b.ID, kept(keep))
			f.must(err)
			f.looks("ended in the transaction", f.s, tx, a, storage.Ended)
			f.looks("ended, before the commit", f.s, nil, a, storage.Applied)
			f.looks("cancelled in the transaction", f.s, tx, b, storage.Cancelling)
			f.looks("cancelled, before the commit", f.s, nil, b, storage.Applied)
		})
		for range 2 {
			f.looks("ended", f.s, nil, a, storage.Ended)
		}
		f.looks("cancelled", f.s, nil, b, storage.Cancelling)
		f.is("", a.ID)
		f.is(storage.Running, b.ID, asked.ID)
		f.takesNothing(other, 0)
		f.takesNothing(other, hold-1)
		f.looks("after a second", f.s, nil, b, storage.Cancelling)
		if got := f.reclaim(other, hold); len(got) != 2 {
			f.Errorf("%d leases were taken, want 2: a look extends none", len(got))
		}
	}},

	{"finishtx_committed", `committed, if not nil, is called for each index of ends when tx has committed, before an Exchange of this Store can find the lease ended.`, func(f *fixture) {
		f.transacts(f.s)
		a, b := f.begun(f.s), f.begun(f.s)
		var told []string
		tell := func(l storage.Leased, name string) func() {
			return func() {
				f.looks("when it is told", f.s, nil, l, storage.Ended)
				f.is(storage.Done, l.ID)
				told = append(told, name)
			}
		}
		for _, vanishes := range f.vanishes() {
			vanishes(f.s, func(tx any) { f.finishTxFor(f.s, tx, a, kept(keep), tell(a, "rolled back"), storage.Applied) })
		}
		f.commits(f.s, func(tx any) {
			f.finishTxFor(f.s, tx, a, kept(keep), tell(a, "a"), storage.Applied)
			f.finishTxFor(f.s, tx, b, kept(keep), tell(b, "b"), storage.Applied)
			if len(told) != 0 {
				f.Errorf("%q were told before the commit", told)
			}
		})
		f.add(newJob()) // a write that follows
		if slices.Sort(told); !slices.Equal(told, []string{"a", "b"}) {
			f.Errorf("%q were told, want a and b", told)
		}
	}},

	{"finishtx_committed_first", `committed, if not nil, is called for each index of ends when tx has committed, before an Exchange of this Store can find the lease ended.`, func(f *fixture) {
		f.transacts(f.s)
		for range 20 {
			l := f.begun(f.s)
			var told atomic.Bool
			begun, got := make(chan struct{}), make(chan storage.ItemResult, 1)
			f.commits(f.s, func(tx any) {
				f.finishTxFor(f.s, tx, l, kept(keep), func() { told.Store(true) }, storage.Applied)
				go func() {
					close(begun)
					res, err := f.s.Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: hold, Extend: []storage.Lease{l.Lease}})
					if err != nil || len(res.Extended) != 1 {
						f.Errorf("Exchange beside a transaction: %v, %v", res, err)
					} else if !told.Load() {
						f.Errorf("an Exchange has found the lease ended before committed was called")
					}
					got <- append(res.Extended, storage.Lost)[0]
				}()
				<-begun
			})
			if r := <-got; r != storage.Ended {
				f.Errorf("extending beside a transaction returned %d, want ended", r)
			}
		}
	}},
}
