package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// putsBack are the outcomes after which a job is waiting again.
var putsBack = []storage.Outcome{
	storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeInterrupted, storage.OutcomeReturned,
	storage.OutcomeUnavailable,
}

var itemCases = []testCase{
	{"item_results", `Each item has its own result; a bad item never fails its exchange.
Applied: the lease was held, the item took effect.
Lost: the lease is no longer held; nothing was changed.
Refused: the item made no sense`, func(f *fixture) {
		f.add(times(5, newJob())...)
		l := f.lease(f.s, 5)
		f.cancel(l[1].ID)
		f.keep(keep, f.s, storage.Finish{Lease: l[4].Lease, Outcome: storage.OutcomeDone})
		res := f.exchange(f.s, storage.Exchange{
			Extend: []storage.Lease{l[0].Lease, {}, l[1].Lease, l[4].Lease, {Key: l[2].Key, Token: l[0].Token}, l[3].Lease},
			Finish: []storage.Finish{
				{Lease: l[0].Lease, Outcome: 0},
				{Lease: storage.Lease{Key: 1 << 40, Token: 1}, Outcome: storage.OutcomeDone},
				{Lease: l[2].Lease, Outcome: storage.OutcomeDone},
				{Lease: l[3].Lease, Outcome: storage.OutcomeUnavailable + 1},
				{Lease: l[2].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now},
				{Lease: l[4].Lease, Outcome: storage.OutcomeDone},
				{Lease: l[1].Lease, Outcome: storage.OutcomeCancelled},
			},
			Retention: kept(keep), Wants: wants(1),
		})
		if want := ([]storage.ItemResult{storage.Applied, storage.Lost, storage.Cancelling, storage.Lost, storage.Lost, storage.Applied}); !slices.Equal(res.Extended, want) {
			f.Errorf("extending returned %v, want %v", res.Extended, want)
		}
		if want := ([]storage.ItemResult{storage.Refused, storage.Lost, storage.Applied, storage.Refused, storage.Lost, storage.Lost, storage.Applied}); !slices.Equal(res.Finished, want) {
			f.Errorf("finishing returned %v, want %v", res.Finished, want)
		}
		f.is(storage.Running, l[0].ID, l[3].ID)
		f.is(storage.Done, l[2].ID, l[4].ID)
		f.is(storage.Cancelled, l[1].ID)
		f.apply(f.s, storage.Finish{Lease: l[0].Lease, Outcome: storage.OutcomeDone})
		f.apply(f.s, storage.Finish{Lease: l[3].Lease, Outcome: storage.OutcomeDone})
	}},

	{"item_refused_unchanged", `It is the zero Effect if f makes no sense: for an outcome that there is not, and for OutcomeDead without a Reason.
Refused: the item made no sense, see [Finish.Effect]; the lease is as it was.`, func(f *fixture) {
		l := f.run(f.s)
		before := f.record(l.ID)
		f.later(time.Second)
		for _, o := range []storage.Outcome{0, storage.OutcomeDead, storage.OutcomeUnavailable + 1, 255} {
			fin := storage.Finish{Lease: l.Lease, Outcome: o, Failure: &storage.NewFailure{Error: "x"}, Error: "x"}
			if r := f.finish(f.s, fin); r != storage.Refused {
				f.Errorf("outcome %d returned result %d, want refused", o, r)
			}
		}
		f.same("the job", f.record(l.ID), before)
		f.counts(count(storage.Running, 1))
	}},

	{"item_extend_first", `it extends leases, then finishes jobs, then begins and ends holds, then makes due scheduled jobs ready and leases ready ones.`, func(f *fixture) {
		l := f.run(f.s)
		res := f.exchange(f.s, storage.Exchange{
			Extend: []storage.Lease{l.Lease}, Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDone}}, Retention: kept(keep),
		})
		if res.Extended[0] != storage.Applied || res.Finished[0] != storage.Applied {
			f.Errorf("extending and finishing a lease at once returned %v and %v", res.Extended, res.Finished)
		}
		f.is(storage.Done, l.ID)
	}},

	{"item_extend", `Extend prolongs leases that are still held.
The wall clock takes nobody's lease.`, func(f *fixture) {
		l := f.run(f.s)
		before := f.record(l.ID)
		for range 3 {
			f.later(100 * hold)
			if r := f.extend(f.s, l.Lease); r != storage.Applied {
				f.Errorf("extending long after its end a lease that nobody took returned %d, want applied", r)
			}
		}
		f.same("the job", f.record(l.ID), before)
		f.later(100 * hold)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}},

	{"item_cancelling", `Cancelling: the lease was extended, and the job has been asked to stop.`, func(f *fixture) {
		l := f.run(f.s)
		f.cancel(l.ID)
		for range 2 {
			if r := f.extend(f.s, l.Lease); r != storage.Cancelling {
				f.Errorf("extending returned %d, want cancelling", r)
			}
		}
		// It was extended: another sees it change.
		b := f.db.Open()
		f.takesNothing(b, 0)
		f.later(time.Second)
		f.extend(f.s, l.Lease)
		f.takesNothing(b, hold)
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.is(storage.Done, l.ID)
	}},
}

var outcomeCases = []testCase{
	{"outcome_table", `Fields that do not apply to its state are zero.
State is where the job goes: Done, Cancelled or Dead. Ready means that it is put back: ready if DueAt is not after now, else scheduled.
Add is added to the counters of the job.
KeepCrashes: the crashes so far are kept. Every other outcome sets them to zero first.
KeepPlace: a job that is put back without a DueAt keeps its old due time, and is ready. With every other outcome it is due now.
OutcomeRetry: {State: Ready, Add: Counters{Retry: 1}},
OutcomeSnooze: {State: Ready, Add: Counters{Snoozes: 1}},
OutcomeCrashed: {State: Ready, Add: Counters{Crashes: 1}, KeepCrashes: true},
OutcomeInterrupted: {State: Ready, KeepCrashes: true},
OutcomeReturned: {State: Ready, Add: Counters{Attempt: -1}, KeepCrashes: true, KeepPlace: true},
OutcomeUnavailable: {State: Ready},`, func(f *fixture) {
		counters := func(attempt, retry, crashes, snoozes int) storage.Counters {
			return storage.Counters{Attempt: attempt, Retry: retry, Crashes: crashes, Snoozes: snoozes}
		}
		was := counters(4, 1, 1, 1) // as begin makes it, once leased
		begin := func() storage.Leased {
			l := f.run(f.s, dueAt(f.now.Add(-time.Minute)))
			for _, o := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed} {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now.Add(-time.Minute)})
				l = f.leaseOne(f.s)
			}
			if l.Counters != was {
				f.Fatalf("after a retry, a snooze and a crash the counters are %+v, want %+v", l.Counters, was)
			}
			return l
		}
		for _, o := range []struct {
			name    string
			outcome storage.Outcome
			want    storage.Counters
		}{
			{"retry", storage.OutcomeRetry, counters(4, 2, 0, 1)},
			{"snooze", storage.OutcomeSnooze, counters(4, 1, 0, 2)},
			{"crashed", storage.OutcomeCrashed, counters(4, 1, 2, 1)},
			{"interrupted", storage.OutcomeInterrupted, counters(4, 1, 1, 1)},
			{"returned", storage.OutcomeReturned, counters(3, 1, 1, 1)},
			{"unavailable", storage.OutcomeUnavailable, counters(4, 1, 0, 1)},
		} {
			for _, due := range []struct {
				at    time.Time
				state storage.State
				due   time.Time
			}{
				{f.now.Add(-time.Second), storage.Ready, f.now.Add(-time.Second)},
				{f.now, storage.Ready, f.now},
				{f.now.Add(1), storage.Scheduled, f.now.Add(time.Microsecond)},
				{f.now.Add(time.Hour), storage.Scheduled, f.now.Add(time.Hour)},
				{time.Time{}, storage.Ready, f.now},
			} {
				state, at := due.state, due.due
				if o.outcome == storage.OutcomeReturned && due.at.IsZero() {
					at = f.now.Add(-time.Minute)
				}
				l := begin()
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o.outcome, DueAt: due.at})
				r := f.record(l.ID)
				if r.State != state || !r.DueAt.Equal(at) || r.Counters != o.want {
					f.Errorf("%s at %v: %s at %v with %+v, want %s at %v with %+v",
						o.name, due.at, r.State, r.DueAt, r.Counters, state, at, o.want)
				}
				if !r.EndedAt.IsZero() || r.Reason != "" || r.Cancelling {
					f.Errorf("%s: a waiting job has ended at %v, reason %q, cancelling %v", o.name, r.EndedAt, r.Reason, r.Cancelling)
				}
				f.cancel(l.ID)
			}
		}
	}},

	{"outcome_finished", `OutcomeDone: {State: Done},
OutcomeCancelled: {State: Cancelled},
Zero or less deletes a job at once, with all that belongs to it.`, func(f *fixture) {
		for o, state := range map[storage.Outcome]storage.State{storage.OutcomeDone: storage.Done, storage.OutcomeCancelled: storage.Cancelled} {
			l := f.run(f.s)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCrashed, DueAt: f.now})
			l = f.leaseOne(f.s)
			f.later(time.Second)
			fin := storage.Finish{Lease: l.Lease, Outcome: o}
			if o == storage.OutcomeCancelled {
				fin.Error = "enough"
			}
			f.keep(keep, f.s, fin)
			r := f.record(l.ID)
			if r.State != state || !r.EndedAt.Equal(f.now) || r.Counters != (storage.Counters{Attempt: 2}) || r.Error != fin.Error || string(r.Args) != string(l.Args) {
				f.Errorf("the finished job is %+v", r)
			}
			f.add()
		}
		f.counts(count(storage.Cancelled, 1), count(storage.Done, 1))
		for _, d := range []time.Duration{0, -time.Hour} {
			for _, o := range []storage.Outcome{storage.OutcomeDone, storage.OutcomeCancelled} {
				l := f.run(f.s)
				f.keep(d, f.s, storage.Finish{Lease: l.Lease, Outcome: o, Failure: &storage.NewFailure{Error: "x"}})
				f.is("", l.ID)
			}
		}
		f.counts(count(storage.Cancelled, 1), count(storage.Done, 1))
	}},

	{"outcome_retention", `Retention says how long finished jobs are kept.
Lanes map[Lane]time.Duration // lanes with another than Default
Retention is how long the jobs that end here are kept.
kept as keep says.`, func(f *fixture) {
		want := map[storage.Lane]time.Duration{
			{Queue: "a", Kind: "x"}: time.Second, {Queue: "b", Kind: "y"}: 0, {Queue: "a", Kind: "y"}: time.Minute, {Queue: "b", Kind: "x"}: time.Minute,
		}
		r := storage.Retention{Default: time.Minute, Lanes: map[storage.Lane]time.Duration{
			{Queue: "a", Kind: "x"}: time.Second, {Queue: "b", Kind: "y"}: 0,
		}}
		for at, d := range want {
			ids := f.add(times(3, newJob(lane(at.Queue, at.Kind)))...)
			src := storage.Want{Queues: []string{at.Queue}, Kinds: []string{at.Kind}}
			l := f.exchange(f.s, storage.Exchange{Wants: wants(2, src)}).Leased
			f.cancel(ids[1])
			f.exchange(f.s, storage.Exchange{Retention: r, Finish: []storage.Finish{
				{Lease: l[0].Lease, Outcome: storage.OutcomeDone}, {Lease: l[1].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now},
			}})
			if s, err := f.s.Cancel(f.ctx, f.now, ids[2], r); s != storage.Cancelled || err != nil {
				f.Errorf("Cancel returned %q, %v", s, err)
			}
			if d == 0 {
				f.is("", ids...)
				continue
			}
			early, next, err := f.s.PurgeFinished(f.ctx, f.now)
			f.must(err)
			f.later(d)
			n, _, err := f.s.PurgeFinished(f.ctx, f.now)
			f.must(err)
			if early != 0 || n != 3 || !next.Equal(f.now) {
				f.Errorf("%v: %d were purged at once and %d after %v, the next at %v; want 0, and 3 at %v", at, early, n, d, next, f.now)
			}
		}
	}},

	{"outcome_dead", `OutcomeDead: {State: Dead},
The job keeps Reason, Error and Policy.
ReasonCrashed keeps the crashes. With a Failure it counts one more; without, the last one is counted already, and the lease is no attempt, as the handler was not called. ReasonSnoozed counts one more snooze.
Policy []byte the job's own; of a dead job the one in effect at its end`, func(f *fixture) {
		for reason, want := range map[storage.Reason]storage.Counters{
			storage.ReasonExhausted: {Attempt: 3, Snoozes: 1},
			storage.ReasonPermanent: {Attempt: 3, Snoozes: 1},
			storage.ReasonDecode:    {Attempt: 3, Snoozes: 1},
			storage.ReasonSnoozed:   {Attempt: 3, Snoozes: 2},
			storage.ReasonCrashed:   {Attempt: 3, Snoozes: 1, Crashes: 2},
		} {
			l := f.run(f.s, func(n *storage.NewJob) { n.Policy = []byte("own") })
			for _, o := range []storage.Outcome{storage.OutcomeSnooze, storage.OutcomeCrashed} {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now})
				l = f.leaseOne(f.s)
			}
			f.later(time.Second)
			f.apply(f.s, died(l.Lease, reason, "it's 100% \"broken\"\n\t– é"))
			r := f.record(l.ID)
			if r.State != storage.Dead || r.Reason != reason || r.Error != "it's 100% \"broken\"\n\t– é" || !r.EndedAt.Equal(f.now) ||
				string(r.Policy) != `{"numRetries":3}` || r.Counters != want {
				f.Errorf("%s: the dead job is %+v, want counters %+v", reason, r, want)
			}
		}
		l := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCrashed, DueAt: f.now})
		counted := died(f.leaseOne(f.s).Lease, storage.ReasonCrashed, "before")
		counted.Failure = nil
		f.apply(f.s, counted)
		if c := f.record(l.ID).Counters; c != (storage.Counters{Attempt: 1, Crashes: 1}) {
			f.Errorf("a crash that was counted: %+v", c)
		}
		f.counts(count(storage.Dead, 6))
	}},

	{"outcome_dead_then", `Then are jobs to enqueue, in the same transaction and in this order, only if the Outcome is OutcomeDone or OutcomeDead and the item ends its job so. If Spent takes effect, those of Spent count.`, func(f *fixture) {
		then := newJob(func(n *storage.NewJob) { n.Queue, n.Kind, n.Args = "notices", "notice", []byte(`{"of":"it"}`) })
		waiting := func(n int) {
			f.Helper()
			var got int64
			counts, err := f.s.Counts(f.ctx)
			f.must(err)
			for _, c := range counts {
				if c.Kind == "notice" {
					got += c.N
				}
			}
			if got != int64(n) {
				f.Fatalf("%d jobs were enqueued by deaths, want %d", got, n)
			}
		}
		for o := storage.OutcomeCancelled; o <= storage.OutcomeUnavailable; o++ {
			if o == storage.OutcomeDead {
				continue
			}
			fin := storage.Finish{Lease: f.run(f.s).Lease, Outcome: o, DueAt: f.now.Add(time.Hour), Then: []storage.NewJob{then}}
			if o == storage.OutcomeUnavailable {
				fin.Spent = new(died(fin.Lease, storage.ReasonExhausted, "x"))
				fin.Spent.Then = []storage.NewJob{then}
			}
			f.apply(f.s, fin)
		}
		gone := died(f.run(f.s).Lease, storage.ReasonPermanent, "x")
		gone.Then = []storage.NewJob{then}
		late := gone
		late.Token++
		if r := f.finish(f.s, late); r != storage.Lost {
			f.Errorf("a late holder got %d", r)
		}
		waiting(0)
		f.apply(f.s, gone)
		waiting(1)
		if r := f.finish(f.s, gone); r != storage.Lost {
			f.Errorf("a second end got %d", r)
		}
		waiting(1)
		x := storage.Exchange{Wants: []storage.Want{{Queues: []string{"notices"}, Kinds: []string{"notice"}, N: 10}}}
		if l := f.exchange(f.s, x).Leased; len(l) != 1 || string(l[0].Args) != `{"of":"it"}` || l[0].Attempt != 1 || !l[0].CreatedAt.Equal(f.now) {
			f.Fatalf("leased are %+v, want what was enqueued", l)
		}

		// An attempt that could not reach the other side, while others could.
		first := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: first.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now.Add(time.Minute)})
		f.apply(f.s, storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeDone})
		f.later(time.Minute)
		again := f.leaseOne(f.s)
		spent := died(again.Lease, storage.ReasonExhausted, "x")
		spent.Then = []storage.NewJob{then}
		fin := storage.Finish{Lease: again.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now, Spent: &spent, Since: first.Token}
		if r := f.finish(f.s, fin); r != storage.Spent {
			f.Errorf("finishing gave %d, want Spent", r)
		}
		waiting(2)
	}},

	{"outcome_done_then", `Then are jobs to enqueue, in the same transaction and in this order
The job has ended before, so that they can have its unique key. One whose key is held and whose Conflict says Fail is a duplicate, and fails nothing.
Then are the answers to the jobs of Finish.Then, or of Finish.Spent.Then, that were to be enqueued, by the index of the Finish. It is nil if there are none.`, func(f *fixture) {
		key := newJob(unique("key"))
		first, other := f.add(key)[0], f.add(newJob(unique("taken"), lane("b", kind)))[0]
		l := f.leaseOne(f.s)
		plain := f.run(f.s)
		refused := newJob(unique("taken"))
		refused.Conflict = &storage.Conflict{Mode: storage.Fail}
		next := newJob(unique("key"), lane("next", kind))
		again := newJob(unique("key"), lane("next", kind))
		late := newJob(unique("key"), lane("next", kind))
		late.Conflict = refused.Conflict
		res := f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{
			{Lease: plain.Lease, Outcome: storage.OutcomeDone},
			{Lease: l.Lease, Outcome: storage.OutcomeDone, Then: []storage.NewJob{next, again, refused, newJob(lane("next", kind)), late}},
		}, Retention: storage.Retention{Default: keep}})
		f.is(storage.Done, first, plain.ID)
		if len(res.Then) != 1 || len(res.Then[1]) != 5 {
			f.Fatalf("the answers are %+v, want five of the second item", res.Then)
		}
		got := res.Then[1]
		if got[0].Duplicate || got[3].Duplicate || !got[1].Duplicate || got[1].ID != got[0].ID || !got[2].Duplicate || got[2].ID != other {
			f.Errorf("the answers are %+v", got)
		}
		f.answered("refused, and its key taken by a job of Then", got[4], storage.Enqueued{ID: got[0].ID, Duplicate: true})
		f.is(storage.Ready, got[0].ID, got[3].ID)
		x := storage.Exchange{Wants: []storage.Want{{Queues: []string{"next"}, Kinds: []string{kind}, N: 10}}}
		f.order("leased", leasedIDs(f.exchange(f.s, x).Leased), []storage.ID{got[0].ID, got[3].ID})
	}},

	{"outcome_returned_place", `KeepPlace: a job that is put back without a DueAt keeps its old due time, and is ready.`, func(f *fixture) {
		ids := f.add(newJob(), newJob(), newJob())
		l := f.lease(f.s, 2)
		f.later(time.Minute)
		f.apply(f.s, storage.Finish{Lease: l[1].Lease, Outcome: storage.OutcomeReturned})
		f.apply(f.s, storage.Finish{Lease: l[0].Lease, Outcome: storage.OutcomeReturned})
		again := f.lease(f.s, 3)
		f.order("leased again", leasedIDs(again), ids)
		for _, l := range again {
			if l.Attempt != 1 {
				f.Errorf("job %d is at attempt %d, want 1: the first lease was returned", l.Key, l.Attempt)
			}
		}
		// It was ready: a clock that has gone back makes it no less so.
		f.later(-time.Hour)
		f.apply(f.s, storage.Finish{Lease: again[1].Lease, Outcome: storage.OutcomeReturned})
		f.is(storage.Ready, ids[1])
		f.order("leased once more", leasedIDs(f.lease(f.s, 3)), ids[1:2])
	}},

	{"outcome_interrupted_place", `With every other outcome it is due now.`, func(f *fixture) {
		ids := f.add(newJob(), newJob())
		l := f.leaseOne(f.s)
		f.later(time.Minute)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeInterrupted})
		f.order("leased again", leasedIDs(f.lease(f.s, 3)), pick(ids, 1, 0))
	}},

	{"outcome_stopped", `asked says that the job was asked to stop: OutcomeCancelled then takes the place of an outcome that would put it back. A lease whose handler was not called is still no attempt.
OutcomeReturned leaves it out.`, func(f *fixture) {
		for _, o := range putsBack {
			attempts, failures := 1, 1
			switch o {
			case storage.OutcomeReturned:
				attempts, failures = 0, 0
			case storage.OutcomeUnavailable:
				failures = 0
			}
			for _, keep := range []time.Duration{keep, 0} {
				l := f.run(f.s)
				f.cancel(l.ID)
				f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now.Add(time.Second), Failure: &storage.NewFailure{Error: "x"}})
				if keep == 0 {
					f.is("", l.ID)
					continue
				}
				r := f.record(l.ID)
				if r.State != storage.Cancelled || r.Counters != (storage.Counters{Attempt: attempts}) || r.Cancelling || len(r.History) != failures {
					f.Errorf("outcome %d: the job is %+v, want it cancelled after %d attempts", o, r, attempts)
				}
			}
		}
		f.counts(count(storage.Cancelled, int64(len(putsBack))))
		l := f.run(f.s)
		f.cancel(l.ID)
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.is(storage.Dead, l.ID)
	}},

	{"outcome_unavailable", `Previous is the token of the job's last lease before this one, even if that lease was returned. It is zero for the first lease.
Spent, if not nil, takes the place of an OutcomeUnavailable if there is evidence: an attempt of the job's lane has ended with OutcomeDone under a lease later than Since.
Without evidence Failure is left out of the history, and Error is the last error of the job until its next lease.
A success before the lane's first OutcomeUnavailable need not count.
If zero, there is no evidence.
Unreached is true of a job that waits if its last attempt ended as an [OutcomeUnavailable].
Spent: the lease was held, and Finish.Spent took the place of the item.`, func(f *fixture) {
		b := f.db.Open()
		urgent := func(n *storage.NewJob) { n.Priority = 9 }
		succeed := func(s storage.Store, l storage.Leased) {
			f.apply(s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		l := f.run(f.s)
		id, retries := l.ID, 0
		fail := func(want storage.ItemResult, since int64, spent *storage.Finish) {
			f.Helper()
			r := f.finish(f.s, storage.Finish{
				Lease: l.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now, Error: "refused",
				Failure: &storage.NewFailure{Error: "left out"}, Since: since, Spent: spent,
			})
			if r != want {
				f.Errorf("finishing returned result %d, want %d", r, want)
			}
		}
		again := func(evidence bool, since int64, spent *storage.Finish) {
			f.Helper()
			attempt, text, result := l.Attempt, "refused", storage.Applied
			if evidence {
				text, result = "spent", storage.Spent
				retries++
			}
			fail(result, since, spent)
			if r := f.record(id); r.State != storage.Ready || r.Attempt != attempt || r.Retry != retries || len(r.History) != retries || r.Error != text {
				f.Fatalf("evidence %v: the job is %+v; want it ready after %d attempts and %d retries, with error %q", evidence, r, attempt, retries, text)
			}
			page, err := f.s.Jobs(f.ctx, storage.Filter{States: []storage.State{storage.Ready}}, "", 1)
			if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Unreached == evidence || f.record(id).Unreached == evidence {
				f.Errorf("evidence %v: the job is %+v, and listed as %+v, %v", evidence, f.record(id), page.Jobs, err)
			}
			token := l.Token
			if l = f.leaseOne(f.s); l.ID != id || l.Previous != token {
				f.Fatalf("leased job %d, after token %d; want job %d, after %d", l.Key, l.Previous, id.Key(), token)
			}
			if r := f.record(id); r.Error == "refused" || r.Unreached {
				f.Errorf("the error of the attempt before is that of the one under way")
			}
		}
		if l.Previous != 0 {
			f.Errorf("the first lease is after token %d", l.Previous)
		}
		retry := &storage.Finish{Outcome: storage.OutcomeRetry, DueAt: f.now, Failure: &storage.NewFailure{Error: "spent"}}
		again(false, 0, retry)
		again(false, l.Previous, retry) // no success
		succeed(f.s, f.run(f.s, urgent))
		again(true, l.Previous, retry)
		again(true, l.Previous, retry) // it was leased after the attempt before this one, too
		again(false, l.Previous, retry)
		f.add(newJob(lane(queue, "other")))
		other := storage.Want{Queues: []string{queue}, Kinds: []string{"other"}}
		succeed(f.s, f.exchange(f.s, storage.Exchange{Wants: wants(1, other)}).Leased[0])
		again(false, l.Previous, retry) // in another lane
		slow := f.run(f.s, urgent)
		again(false, l.Previous, retry) // it has not ended
		again(false, l.Previous, retry)
		succeed(f.s, slow)
		again(false, l.Previous, retry) // it was leased before
		succeed(b, f.run(b, urgent))
		again(false, 0, retry)
		again(false, slow.Token, nil)
		fail(storage.Spent, slow.Token, &storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonExhausted, Error: "the end"})
		if r := f.record(id); r.State != storage.Dead || r.Error != "the end" || r.Retry != retries {
			f.Errorf("the job is %+v, want it dead", r)
		}
	}},

	{"history_entries", `Failure is appended to the history, with the attempt of the job and the time of the call, unless nil.
Instance string that ran the attempt; empty: this one
Error string last error: of the last failure, or of the end`, func(f *fixture) {
		l := f.run(f.s)
		var want []storage.Failure
		for i, o := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeInterrupted} {
			f.later(time.Second)
			failure := storage.NewFailure{
				Phase: "backoff", Error: fmt.Sprint("error ", i), Stack: "stack\n", Duration: 1500 * time.Millisecond, Instance: "elsewhere",
			}
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now, Error: failure.Error, Failure: &failure})
			want = append(want, entry(failure, i+1, f.now, ""))
			r := f.record(l.ID)
			f.same("the job", r, func() storage.Record { r := r; r.History, r.Error = want, failure.Error; return r }())
			l = f.leaseOne(f.s)
		}
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		if r := f.record(l.ID); len(r.History) != len(want) || r.Error != "error 3" {
			f.Errorf("after an end without a failure there are %d in the history, the last error is %q", len(r.History), r.Error)
		}
		l = f.leaseOne(f.s)
		f.apply(f.s, died(l.Lease, storage.ReasonExhausted, "the end"))
		r := f.record(l.ID)
		if len(r.History) != len(want)+1 || r.History[len(want)].Error != "the end" || r.Error != "the end" {
			f.Errorf("the dead job has the error %q and the history %v", r.Error, r.History)
		} else if by := r.History[len(want)].Instance; by == "" || by == "elsewhere" {
			f.Errorf("the entry without an instance has %q, want the name of this one", by)
		}
	}},

	{"history_limit", `HistoryLimit is how many entries of the history are kept per job, and EditLimit how many of them are edits at most; the oldest go first.
History []Failure oldest first, at most HistoryLimit`, func(f *fixture) {
		const n = storage.HistoryLimit + 5
		l := f.run(f.s)
		for i := range n {
			text := fmt.Sprint("error ", i+1)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now, Error: text, Failure: &storage.NewFailure{Error: text}})
			h := f.record(l.ID).History
			if len(h) != min(i+1, storage.HistoryLimit) {
				f.Fatalf("after %d failures there are %d in the history", i+1, len(h))
			}
			for k, entry := range h {
				if want := i + 1 - len(h) + k + 1; entry.Attempt != want || entry.Error != fmt.Sprint("error ", want) {
					f.Fatalf("after %d failures entry %d is of attempt %d (%s), want %d", i+1, k, entry.Attempt, entry.Error, want)
				}
			}
			l = f.leaseOne(f.s)
		}
	}},
}
