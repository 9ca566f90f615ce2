package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// Which jobs RunNow takes: those that have run, and the others too.
var anyRun, firstToo = storage.Waiting{}, storage.Waiting{First: true}

// runNow makes jobs ready in steps until there is no further one.
func (f *fixture) runNow(sel storage.Selection, which storage.Waiting) storage.Step {
	f.Helper()
	return takeSteps(f, sel, func(sel storage.Selection) (storage.Step, error) { return f.s.RunNow(f.ctx, f.now, sel, which) })
}

// named selects jobs by ID.
func named(ids ...storage.ID) storage.Selection { return storage.Selection{IDs: ids} }

// waiting enqueues jobs and has an attempt of each fail, so that they wait for a
// retry: the first for n hours, the next for one hour less, and so on.
func (f *fixture) waiting(n int, changes ...func(*storage.NewJob)) []storage.ID {
	f.Helper()
	j := newJob(changes...)
	all := f.add(times(n, j)...)
	src := storage.Want{Queues: []string{j.Queue}, Kinds: []string{j.Kind}}
	f.fail(f.exchange(f.s, storage.Exchange{Wants: wants(n, src)}).Leased, n)
	for _, id := range all {
		if r := f.record(id); r.State != storage.Scheduled {
			f.Fatalf("a job whose attempt has failed is %s", r.State)
		}
	}
	return all
}

// fail ends attempts as failed, with retries as those of waiting.
func (f *fixture) fail(leased []storage.Leased, hours int) {
	f.Helper()
	var finish []storage.Finish
	for i, l := range leased {
		finish = append(finish, storage.Finish{
			Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Duration(hours-i) * time.Hour),
			Failure: &storage.NewFailure{Phase: "backoff", Error: "Refused"},
		})
	}
	f.exchange(f.s, storage.Exchange{Finish: finish})
}

var runNowCases = []testCase{
	{"run_now_record", `RunNow makes scheduled jobs ready; [Waiting] says which ones.
A job that was due later is due now; its counters, token and history are kept.`, func(f *fixture) {
		l := f.run(f.s, priority(3), unique("key"), func(n *storage.NewJob) {
			n.Policy, n.Headers, n.Timeout = []byte("own"), []byte("h"), time.Second
		})
		for _, o := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed} {
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now.Add(time.Hour), Failure: &storage.NewFailure{Error: "x"}})
			want := f.record(l.ID)
			f.later(time.Minute)
			f.did("run now", f.runNow(storage.Selection{}, anyRun), 1, nil, nil)
			want.State, want.DueAt = storage.Ready, f.now
			f.same("the job", f.record(l.ID), want)
			f.counts(count(storage.Ready, 1))
			again := f.leaseOne(f.s)
			if again.ID != l.ID || again.Attempt != want.Attempt+1 || again.Retry != want.Retry || again.Token <= l.Token || !again.DueAt.Equal(f.now) {
				f.Errorf("leased again: %+v", again)
			}
			l = again
		}
	}},

	{"run_now_first", `those that have run before, and all that are named by IDs.
First takes jobs that have not run yet too.`, func(f *fixture) {
		retry := f.waiting(1)[0]
		first := f.add(newJob(delay(time.Hour)), newJob(dueAt(f.now.Add(time.Hour))), newJob(delay(2*time.Hour)))
		f.did("retries", f.runNow(storage.Selection{}, anyRun), 1, nil, nil)
		f.is(storage.Ready, retry)
		f.is(storage.Scheduled, first...)
		f.did("retries again", f.runNow(storage.Selection{}, anyRun), 0, nil, nil)
		f.did("one by its ID", f.runNow(named(first[1]), anyRun), 1, nil, nil)
		f.is(storage.Ready, first[1])
		f.did("first runs", f.runNow(storage.Selection{}, firstToo), 2, nil, nil)
		f.is(storage.Ready, first...)
		f.order("leased", leasedIDs(f.lease(f.s, 9)), append([]storage.ID{retry}, first...))
	}},

	{"run_now_failed", `Failed takes, of the jobs that have run, only those whose last attempt failed: it is the last of their history, without RetryAfter,
or an OutcomeUnavailable whose Error is kept. Jobs whose last attempt crashed are left out.`, func(f *fixture) {
		const retry, snooze, crash, away = storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeUnavailable
		hour := f.now.Add(time.Hour)
		asks := storage.Outcome(100) // a retry with RetryAfter
		after := func(outcomes ...storage.Outcome) storage.ID {
			l := f.run(f.s)
			for i, o := range outcomes {
				fin := storage.Finish{Lease: l.Lease, Outcome: o, DueAt: hour}
				switch o {
				case asks:
					fin.Outcome, fin.Failure = retry, &storage.NewFailure{Error: "503", RetryAfter: true}
				case retry, crash:
					fin.Failure = &storage.NewFailure{Error: "refused"}
				case away:
					fin.Error = "no route"
				}
				if i < len(outcomes)-1 {
					fin.DueAt = f.now
				}
				f.apply(f.s, fin)
				if i < len(outcomes)-1 {
					l = f.leaseOne(f.s)
				}
			}
			f.is(storage.Scheduled, l.ID)
			return l.ID
		}
		failed := []storage.ID{after(retry), after(away), after(snooze, retry), after(retry, away), after(crash, retry), after(asks, retry)}
		others := []storage.ID{after(snooze), after(retry, snooze), after(away, snooze), after(crash), after(retry, crash), after(asks), after(retry, asks)}
		first := f.add(newJob(delay(time.Hour)))[0]
		f.did("the failed ones", f.runNow(storage.Selection{}, storage.Waiting{Failed: true}), len(failed), nil, nil)
		f.is(storage.Ready, failed...)
		f.is(storage.Scheduled, others...)
		f.did("one by its ID", f.runNow(named(others[0]), storage.Waiting{Failed: true}), 1, nil, nil)
		f.is(storage.Ready, others[0])
		f.did("first runs", f.runNow(storage.Selection{}, storage.Waiting{First: true, Failed: true}), 1, nil, nil)
		f.is(storage.Ready, first)
		f.did("the rest", f.runNow(storage.Selection{}, anyRun), len(others)-1, nil, nil)
		if h := f.record(others[6]).History; len(h) != 2 || h[0].RetryAfter || !h[1].RetryAfter {
			f.Errorf("the history is %+v", h)
		}
	}},

	{"run_now_ids", `Jobs that are ready, blocked or running are left as they are.
NotFound are the IDs of jobs that are not there, or in a state that the call is not for.`, func(f *fixture) {
		running := f.run(f.s)
		retries := f.waiting(2)
		dead := f.bury(storage.ReasonPermanent, "no")
		done := f.run(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: done.Lease, Outcome: storage.OutcomeDone})
		ready := f.add(newJob())[0]
		before := []storage.Record{f.record(running.ID), f.record(ready), f.record(retries[0])}
		gone := storage.NewID(f.now, 1, 99999)
		alike := storage.NewID(f.now, retries[0].Salt()+1, retries[0].Key())
		f.later(time.Second)
		got := f.runNow(named(running.ID, dead, retries[1], ready, done.ID, gone, alike, retries[1]), anyRun)
		f.did("run now", got, 1, nil, []storage.ID{dead, done.ID, gone, alike})
		f.is(storage.Ready, retries[1])
		f.same("the running job", f.record(running.ID), before[0])
		f.same("the ready job", f.record(ready), before[1])
		f.same("the job that was not named", f.record(retries[0]), before[2])
		if r := f.extend(f.s, running.Lease); r != storage.Applied {
			f.Errorf("extending the lease of the running job returned %d, want applied", r)
		}
		f.order("leased", leasedIDs(f.lease(f.s, 9)), []storage.ID{ready, retries[1]})
	}},

	{"run_now_filters", `or, if there are none, those that match Filter
Reason and Cause match only dead jobs, EndedFrom and EndedBefore only ended ones, DueFrom and DueBefore only scheduled, ready and blocked ones.
CreatedFrom and CreatedBefore bound the time when a job was enqueued, the former included, DueFrom and DueBefore that when it is due.
Error must occur in the last error, without regard to ASCII case.`, func(f *fixture) {
		all := []storage.ID{
			f.waiting(1)[0], f.waiting(1, lane("other", kind))[0], f.waiting(1, lane(queue, "other"))[0],
		}
		l := f.run(f.s)
		f.apply(f.s, storage.Finish{
			Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour), Failure: &storage.NewFailure{Error: "100% Lost"},
		})
		all = append(all, l.ID)
		l = f.run(f.s) // whose last error is in no history
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now, Failure: &storage.NewFailure{Error: "100%x"}})
		l = f.leaseOne(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now.Add(time.Hour), Error: "no Route"})
		all = append(all, l.ID)
		all = append(all, f.add(newJob(delay(3*time.Hour)))...)
		f.later(time.Minute)
		all = append(all, f.add(newJob(delay(3*time.Hour)))...)
		all = append(all, f.add(newJob(delay(2*time.Hour), tagged("b", "a")))...)
		left := len(all)
		for _, c := range []struct {
			storage.Filter
			want []int
		}{
			{storage.Filter{Queue: "none"}, nil},
			{storage.Filter{Kind: "none"}, nil},
			{storage.Filter{Error: "100%x"}, nil},
			{storage.Filter{Reason: storage.ReasonExhausted}, nil},
			{storage.Filter{EndedFrom: f.now.Add(-time.Hour)}, nil},
			{storage.Filter{EndedBefore: f.now.Add(time.Hour)}, nil},
			{storage.Filter{Queue: "other", Kind: "other"}, nil},
			{storage.Filter{States: []storage.State{storage.Ready}}, nil},
			{storage.Filter{Tag: "none"}, nil},
			{storage.Filter{Tag: "a", Queue: "none"}, nil},
			{storage.Filter{Tag: "a"}, []int{7}},
			{storage.Filter{CreatedBefore: f.now.Add(-time.Minute)}, nil},
			{storage.Filter{DueFrom: f.now.Add(3*time.Hour + time.Microsecond)}, nil},
			{storage.Filter{DueFrom: f.now.Add(3*time.Hour - time.Minute), DueBefore: f.now.Add(3 * time.Hour)}, []int{5}},
			{storage.Filter{CreatedFrom: f.now, CreatedBefore: f.now.Add(time.Microsecond), States: []storage.State{storage.Scheduled}}, []int{6}},
			{storage.Filter{Error: "100% lost"}, []int{3}},
			{storage.Filter{Error: "no route"}, []int{4}},
			{storage.Filter{Queue: "other", Kind: kind, Error: "refused"}, []int{1}},
			{storage.Filter{Kind: "other"}, []int{2}},
			{storage.Filter{Queue: queue}, []int{0}},
		} {
			f.did("run now", f.runNow(storage.Selection{Filter: c.Filter}, firstToo), len(c.want), nil, nil)
			f.is(storage.Ready, pick(all, c.want...)...)
			left -= len(c.want)
		}
		f.did("the rest", f.runNow(storage.Selection{}, firstToo), left, nil, nil)
	}},

	{"run_now_order", `over a filter in the order of keys: see [Step].
the highest priority goes first, then the earliest due, then the first enqueued.
A job that was due later is due now;`, func(f *fixture) {
		retries := f.waiting(5)
		high := f.waiting(2, priority(1))
		due := f.add(newJob(dueAt(f.now.Add(time.Minute))))[0] // before the others, and to be leased before them
		f.later(time.Minute)
		ready := f.add(newJob())[0]
		f.later(time.Minute)
		now := f.now
		f.did("run now", f.runNow(storage.Selection{}, firstToo), 8, nil, nil)
		f.later(time.Microsecond)
		later := f.add(newJob())[0]
		want := append(high, due, ready)
		want = append(want, retries...)
		leased := f.lease(f.s, 99)
		f.order("leased", leasedIDs(leased), append(want, later))
		if at := leased[2].DueAt; !at.Equal(now.Add(-time.Minute)) {
			f.Errorf("the job that was due already is due at %v, want when it was, %v", at, now.Add(-time.Minute))
		}
	}},

	{"run_now_steps", `One call is one bounded step, over a filter in the order of keys: see [Step].
A step over a filter holds the writer for a bounded time and may leave jobs to later steps: call again with After set to Next,
Limit is the most jobs selected by Filter that one step changes. If zero, a step changes as many as it can.
N is how many jobs were put back, deleted, made ready, changed or cancelled.`, func(f *fixture) {
		const n = 1100
		all := f.waiting(n)
		step, err := f.s.RunNow(f.ctx, f.now, storage.Selection{Limit: 3}, anyRun)
		f.must(err)
		if want := (storage.Position{Key: all[2].Key()}); step.N != 3 || step.Next != want || step.Through != all[n-1].Key() {
			f.Errorf("a step of 3 returned %+v, want Next %+v and Through %d", step, want, all[n-1].Key())
		}
		f.is(storage.Ready, all[:3]...)
		f.is(storage.Scheduled, all[3:]...)
		step, err = f.s.RunNow(f.ctx, f.now, storage.Selection{}, anyRun)
		f.must(err)
		if step.N == 0 || step.Next.Key != all[step.N+2].Key() {
			f.Fatalf("a step returned %+v", step)
		}
		f.did("the rest", f.runNow(storage.Selection{After: step.Next}, anyRun), n-3-step.N, nil, nil)
		f.counts(count(storage.Ready, n))
		f.order("leased", leasedIDs(f.lease(f.s, n)), all)
	}},

	{"run_now_through", `Through is the highest key of the live or finished jobs that Filter selects. If zero, the highest that a live job, or a finished one, has at the time of the call.
Through is the Through of the Selection, or what stood for zero. Pass it to further steps of RunNow, Change and Delete: they leave out jobs that come meanwhile.`, func(f *fixture) {
		all := f.waiting(4)
		sel := storage.Selection{Limit: 2}
		step, err := f.s.RunNow(f.ctx, f.now, sel, firstToo)
		f.must(err)
		// One that has been made ready fails again, another is enqueued.
		f.fail(f.lease(f.s, 1), 1)
		meanwhile := f.add(newJob(delay(time.Hour)))[0]
		sel.After, sel.Through = step.Next, step.Through
		f.did("further steps", f.runNow(sel, firstToo), 2, nil, nil)
		f.is(storage.Scheduled, meanwhile, all[0])
		f.is(storage.Ready, all[1:]...)
		f.did("up to a key", f.runNow(storage.Selection{Through: all[0].Key()}, firstToo), 1, nil, nil)
		f.is(storage.Scheduled, meanwhile)
		f.did("one more", f.runNow(storage.Selection{}, firstToo), 1, nil, nil)
	}},

	{"run_now_held", `Jobs of other kinds, other queues or held lanes cost it nothing.
RunNow makes scheduled jobs ready; [Waiting] says which ones.`, func(f *fixture) {
		all := f.waiting(2)
		f.pause(queue, true)
		f.did("run now", f.runNow(storage.Selection{}, anyRun), 2, nil, nil)
		f.order("leased of a paused queue", leasedIDs(f.lease(f.s, 9)), nil)
		f.pause(queue, false)
		f.order("leased", leasedIDs(f.lease(f.s, 9)), all)
	}},

	{"run_now_urgent", `A single job that IDs names, and that is scheduled or ready, becomes urgent until it is leased, is put off or ends: see [Exchange].
Urgent is how many urgent jobs to lease, before the others and in addition to them: of any lane that matches a Want, held or not, whatever its N.
Urgent jobs that were enqueued first go first.
Urgent is true if the job is one of Exchange.Urgent.`, func(f *fixture) {
		retries := f.waiting(3)
		other := f.waiting(1, lane("other", kind))[0]
		first := f.add(newJob(priority(9)))[0]
		ask := func(n, urgent int) []storage.Leased {
			return f.exchange(f.s, storage.Exchange{Wants: []storage.Want{{Queues: []string{queue}, Kinds: []string{kind}, N: n}}, Urgent: urgent}).Leased
		}
		is := func(what string, leased []storage.Leased, urgent int, want ...storage.ID) {
			f.Helper()
			f.order(what, leasedIDs(leased), want)
			for i, l := range leased {
				if l.Urgent != (i < urgent) {
					f.Errorf("%s: lease %d has Urgent %t", what, i, l.Urgent)
				}
			}
		}
		f.did("two at a time", f.runNow(named(retries[0], first), anyRun), 1, nil, nil)
		is("nothing urgent", ask(0, 9), 0)
		for _, id := range []storage.ID{retries[2], retries[1], other} {
			f.did("one by its ID", f.runNow(named(id), anyRun), 1, nil, nil)
		}
		f.pause(queue, true)
		is("of a held lane without permission", ask(9, 0), 0)
		is("the first", ask(0, 1), 1, retries[1])
		is("the next", ask(9, 9), 1, retries[2])
		is("no more", ask(9, 9), 0)
		f.did("one that is ready", f.runNow(named(first), anyRun), 0, nil, nil)
		f.did("again", f.runNow(named(first), anyRun), 0, nil, nil)
		f.pause(queue, false)
		is("beside the others", ask(1, 1), 1, first, retries[0])
		f.did("of another queue", f.runNow(named(other), anyRun), 0, nil, nil)
		src := storage.Want{Queues: []string{"other"}, Kinds: []string{kind}}
		is("as one of many", f.exchange(f.s, storage.Exchange{Wants: wants(1, src)}).Leased, 0, other)
		is("once more", f.exchange(f.s, storage.Exchange{Wants: wants(0, src), Urgent: 1}).Leased, 0)
		// What was leased, or has ended, is urgent no more.
		gone := f.waiting(1)[0]
		f.did("one to be cancelled", f.runNow(named(gone), anyRun), 1, nil, nil)
		if _, err := f.s.Cancel(f.ctx, f.now, gone, storage.Retention{Default: keep}); err != nil {
			f.Error(err)
		}
		is("nothing is left", ask(9, 9), 0)
	}},

	{"run_now_notify", `Urgent is true if a job may have become urgent.
Due is when the earliest job it made available is due; the zero time means at once.`, func(f *fixture) {
		both := f.hearsDue(f.db.Open())
		retry := f.waiting(2)
		both("by filter", f.now, func() { f.runNow(storage.Selection{Limit: 1, Through: retry[0].Key()}, anyRun) })
		both("by ID", f.now, func() { f.runNow(named(retry[1]), anyRun) })
		urgent := func(e storage.Event) bool { return e.Urgent }
		f.hearsBoth(f.db.Open())("urgent", urgent, func() { f.runNow(named(f.add(newJob())[0]), anyRun) })
	}},

	{"run_now_shifted", `A ready job that was due later is due now.
A job that was due later is due now;`, func(f *fixture) {
		f.timekeeper(f.s)
		f.later(month)
		first := f.add(newJob(delay(2 * time.Hour)))[0]
		retry := f.waiting(1)[0]
		f.did("run now", f.runNow(storage.Selection{}, firstToo), 2, nil, nil)
		f.later(-month)
		f.stepClock(f.now)
		for _, id := range []storage.ID{first, retry} {
			if r := f.record(id); r.State != storage.Ready || !r.DueAt.Equal(f.now) {
				f.Errorf("the job is %s, due at %v; want ready, %v", r.State, r.DueAt, f.now)
			}
		}
		f.order("leased", leasedIDs(f.lease(f.s, 9)), []storage.ID{first, retry})
	}},
}
