package storagetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// change changes jobs in steps until there is no further one.
func (f *fixture) change(sel storage.Selection, e storage.Edit) storage.Step {
	f.Helper()
	return takeSteps(f, sel, func(sel storage.Selection) (storage.Step, error) { return f.s.Change(f.ctx, f.now, sel, e) })
}

// changed is change of one job, which it must change.
func (f *fixture) changed(id storage.ID, e storage.Edit) {
	f.Helper()
	f.changes(fmt.Sprintf("change of job %d", id.Key()), f.change(named(id), e), 1, nil, nil)
}

// changes checks what Change or Delete did.
func (f *fixture) changes(what string, got storage.Step, n int, live, notFound []storage.ID) {
	f.Helper()
	f.did(what, got, n, nil, notFound)
	f.order(what+", live", got.Live, live)
}

func states(s ...storage.State) storage.Selection {
	return storage.Selection{Filter: storage.Filter{States: s}}
}

func args(text string) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.Args = []byte(text) }
}

var (
	edited = func(text string) storage.Edit { return storage.Edit{Args: []byte(text)} }
	moved  = func(queue string) storage.Edit { return storage.Edit{Queue: queue} }
	off    = func(d time.Duration) storage.Edit { return storage.Edit{Delay: d} }
	ranked = func(priority int) storage.Edit { return storage.Edit{Priority: &priority} }
	ended  = storage.Edit{Cancel: &storage.Retention{Default: keep}}
)

// rich are the options of a job that has all there is.
func rich(n *storage.NewJob) {
	n.Policy, n.Headers, n.Timeout, n.Unique = []byte("own"), []byte("h"), time.Second, "key"
}

var editCases = []testCase{
	{"change_record", `Change changes scheduled, ready and blocked jobs as e says, and dead ones that IDs name.
What e leaves out is kept, as are the unique key, the counters, the token and the history.
those that are zero leave the job as it is.
Priority, if not nil, is the new priority.
Queue is where the job goes.
Policy, if not nil, takes the place of the job's own; if empty, the job has none.
Args, if not nil, take the place of the job's.`, func(f *fixture) {
		large := string(bytes.Repeat([]byte("x"), 5000))
		for _, size := range []string{"small", large} {
			l := f.run(f.s, priority(3), rich, args(size))
			for _, o := range []storage.Outcome{storage.OutcomeSnooze, storage.OutcomeRetry} {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now, Failure: &storage.NewFailure{Error: "x"}})
				l = f.leaseOne(f.s)
			}
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCrashed, DueAt: f.now.Add(time.Hour)})
			want := f.record(l.ID)
			for i, c := range []struct {
				edit storage.Edit
				want func()
			}{
				{storage.Edit{}, func() {}},
				{ranked(0), func() { want.Priority = 0 }},
				{moved("other"), func() { want.Queue = "other" }},
				{storage.Edit{Policy: []byte("new")}, func() { want.Policy = []byte("new") }},
				{storage.Edit{Policy: []byte{}}, func() { want.Policy = nil }},
				{edited("two"), func() { want.Args = []byte("two") }},
				{edited(large + "!"), func() { want.Args = []byte(large + "!") }},
				{edited(""), func() { want.Args = nil }},
				{off(time.Minute), func() { want.DueAt = f.now.Add(time.Minute) }},
				{storage.Edit{DueAt: f.now, Queue: queue, Args: []byte("end"), Priority: new(-7), Policy: []byte("own")}, func() {
					want.DueAt, want.State, want.Queue, want.Args, want.Priority, want.Policy = f.now, storage.Ready, queue, []byte("end"), -7, []byte("own")
				}},
			} {
				f.changed(l.ID, c.edit)
				c.want()
				got := f.record(l.ID)
				got.History = got.History[:len(want.History)]
				if want.Policy == nil && got.Policy != nil {
					f.Errorf("after change %d the policy is empty, want nil", i)
				}
				f.same(fmt.Sprintf("after change %d", i), got, want)
			}
			f.counts(count(storage.Ready, 1))
			if e := f.enqueue(newJob(unique("key")))[0]; e.ID != l.ID || !e.Duplicate {
				f.Errorf("enqueueing a job with the unique key returned %+v, want a duplicate of %v", e, l.ID)
			}
			again := f.leaseOne(f.s)
			if again.ID != l.ID || again.Attempt != want.Attempt+1 || again.Retry != want.Retry || again.Crashes != want.Crashes || again.Previous != l.Token ||
				string(again.Args) != "end" || string(again.Headers) != "h" || string(again.Policy) != "own" || again.Priority != -7 || again.Queue != queue {
				f.Errorf("leased again: %+v", again)
			}
			f.apply(f.s, storage.Finish{Lease: again.Lease, Outcome: storage.OutcomeDone})
			f.is("", l.ID)
		}
		f.counts()
	}},

	{"change_due", `DueAt is when the job is due, or Delay, if positive, how long after now: as in a [NewJob].
A job due at or before now becomes ready, one due later scheduled, and not urgent; a blocked one stays blocked.`, func(f *fixture) {
		ids := f.add(newJob(), newJob(), newJob(), newJob(delay(time.Hour)))
		due := func(id storage.ID, state storage.State, at time.Time) {
			f.Helper()
			if r := f.record(id); r.State != state || !r.DueAt.Equal(at) {
				f.Errorf("job %d is %s, due at %v; want %s, %v", id.Key(), r.State, r.DueAt, state, at)
			}
		}
		start := f.now
		f.later(time.Minute)
		f.did("urgent", f.runNow(named(ids[0]), anyRun), 0, nil, nil)
		f.changed(ids[0], off(time.Hour))
		due(ids[0], storage.Scheduled, f.now.Add(time.Hour))
		f.changed(ids[1], storage.Edit{DueAt: f.now.Add(time.Hour)})
		due(ids[1], storage.Scheduled, f.now.Add(time.Hour))
		f.changed(ids[2], storage.Edit{DueAt: start.Add(-time.Hour)})
		due(ids[2], storage.Ready, start.Add(-time.Hour))
		f.changed(ids[3], storage.Edit{DueAt: f.now})
		due(ids[3], storage.Ready, f.now)
		f.counts(count(storage.Ready, 2), count(storage.Scheduled, 2))
		both := storage.Exchange{Wants: wants(9), Urgent: 9}
		res := f.exchange(f.s, both)
		f.order("leased", leasedIDs(res.Leased), pick(ids, 2, 3))
		if !res.NextDue.Equal(f.now.Add(time.Hour)) {
			f.Errorf("NextDue is %v, want %v", res.NextDue, f.now.Add(time.Hour))
		}
		f.changed(ids[0], off(1)) // rounded up
		due(ids[0], storage.Scheduled, f.now.Add(time.Microsecond))
		f.later(time.Hour)
		for _, l := range f.exchange(f.s, both).Leased {
			if l.Urgent {
				f.Errorf("job %d is urgent, though it was put off", l.Key)
			}
		}
	}},

	{"change_shifted", `DueAt is when the job is due, or Delay, if positive, how long after now: as in a [NewJob].`, func(f *fixture) {
		f.timekeeper(f.s)
		f.later(month)
		ids := f.add(newJob(), newJob())
		f.changed(ids[0], off(2*time.Hour))
		at := f.now.Add(time.Hour)
		f.changed(ids[1], storage.Edit{DueAt: at})
		f.changed(ids[0], ranked(1))
		f.later(-month)
		f.stepClock(f.now)
		if r := f.record(ids[0]); !r.DueAt.Equal(f.now.Add(2 * time.Hour)) {
			f.Errorf("a delay that began in the wrong time ends at %v, want %v", r.DueAt, f.now.Add(2*time.Hour))
		}
		if r := f.record(ids[1]); !r.DueAt.Equal(at) {
			f.Errorf("a date has become %v, want %v", r.DueAt, at)
		}
	}},

	{"change_order", `A ready job goes to the place that it would have had with this priority from the start.
the highest priority goes first, then the earliest due, then the first enqueued.`, func(f *fixture) {
		all := f.add(times(9, newJob())...)
		other := f.add(times(6, newJob(lane("other", kind)))...)
		take := func(n int, want ...storage.ID) {
			f.Helper()
			src := storage.Want{Queues: []string{queue, "other"}, Kinds: []string{kind}}
			f.order("leased", leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(n, src)}).Leased), want)
		}
		take(1, all[0]) // what a store remembers of lanes must not be taken for granted afterwards
		f.changed(all[5], ranked(2))
		f.changed(other[3], ranked(1))
		take(2, all[5], other[3])
		f.changed(all[1], ranked(-1))
		f.changed(all[6], storage.Edit{DueAt: f.now.Add(-time.Minute)})
		take(2, all[6], all[2])
		f.changed(all[7], storage.Edit{Queue: "other", Priority: new(5)})
		f.changed(other[5], storage.Edit{Queue: "third", Priority: new(5)})
		f.changed(other[4], off(time.Hour))
		take(9, all[7], all[3], all[4], all[8], other[0], other[1], other[2], all[1])
		f.order("of the third queue", leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(9, storage.Want{Queues: []string{"third"}, Kinds: []string{kind}})}).Leased), other[5:])
	}},

	{"change_running", `Jobs that run stay as they are, and are reported as Live.
Live are the jobs that stay as they are. Of Change these are the running ones,`, func(f *fixture) {
		l := f.run(f.s, rich)
		ready := f.add(newJob())[0]
		want := f.record(l.ID)
		e := storage.Edit{DueAt: f.now.Add(time.Hour), Priority: new(1), Queue: "other", Policy: []byte("new"), Args: []byte("new")}
		f.changes("by ID", f.change(named(l.ID, ready), e), 1, []storage.ID{l.ID}, nil)
		f.changes("by filter", f.change(storage.Selection{}, ranked(2)), 1, []storage.ID{l.ID}, nil)
		f.same("the running job", f.record(l.ID), want)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		f.changes("afterwards", f.change(named(l.ID), e), 1, nil, nil)
	}},

	{"change_ids", `NotFound are the IDs of jobs that are not there, or in a state that the call is not for.
Dead jobs cannot be put off: neither is for them.`, func(f *fixture) {
		dead := f.bury(storage.ReasonPermanent, "no")
		done := f.run(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: done.Lease, Outcome: storage.OutcomeDone})
		cancelled := f.add(newJob())[0]
		f.cancel(cancelled)
		ready := f.add(newJob(), newJob())
		gone := storage.NewID(f.now, 1, 99999)
		alike := storage.NewID(f.now, ready[1].Salt()+1, ready[1].Key())
		unlike := storage.NewID(f.now, dead.Salt()+1, dead.Key())
		before := f.record(ready[1])
		all := named(dead, done.ID, ready[0], cancelled, gone, alike, unlike)
		f.changes("another priority", f.change(all, ranked(9)), 2, nil, []storage.ID{done.ID, cancelled, gone, alike, unlike})
		f.changes("put off", f.change(all, off(time.Hour)), 1, nil, []storage.ID{dead, done.ID, cancelled, gone, alike, unlike})
		f.same("the job that was not named", f.record(ready[1]), before)
		f.changes("the dead are in no filter", f.change(storage.Selection{}, moved("other")), 2, nil, nil)
		if r := f.record(dead); r.Priority != 9 || r.Queue != queue {
			f.Errorf("the dead job is %+v", r)
		}
	}},

	{"change_dead", `A dead job keeps the policy that was in effect at its end.
A dead job counts for the cause with the same text there.
Change changes scheduled, ready and blocked jobs as e says, and dead ones that IDs name.`, func(f *fixture) {
		second := f.bury(storage.ReasonDecode, "bad args", lane("other", kind))
		id := f.bury(storage.ReasonDecode, "bad args", rich, args("{"))
		want := f.record(id)
		f.later(time.Minute)
		f.changed(id, storage.Edit{Queue: "other", Args: []byte("{}"), Priority: new(4), Policy: []byte("mine")})
		want.Queue, want.Args, want.Priority = "other", []byte("{}"), 4
		got := f.record(id)
		if len(got.History) != 2 || got.Error != "bad args" {
			f.Errorf("the error is %q and the history %+v", got.Error, got.History)
		}
		got.History = got.History[:1]
		f.same("the dead job", got, want)
		f.counts(storage.Count{Queue: "other", Kind: kind, State: storage.Dead, N: 2})
		if c := f.causes(storage.Lane{}, 9); len(c) != 1 || c[0].N != 2 || c[0].Queue != "other" {
			f.Errorf("the causes are %+v", c)
		}
		f.did("purge", f.purgeDead(named(second)), 1, nil, nil)
		f.did("redrive", f.redrive(storage.Selection{}, ""), 1, nil, nil)
		l := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"other"}, Kinds: []string{kind}})}).Leased
		if len(l) != 1 || string(l[0].Args) != "{}" || string(l[0].Policy) != "mine" || l[0].Priority != 4 || string(l[0].Headers) != "h" || !l[0].Redriven {
			f.Errorf("leased: %+v", l)
		}
	}},

	{"change_args", `If they differ, the old ones are kept in an entry of the history, with PhaseEdited, the time of the call and the attempts so far.
HistoryLimit is how many entries of the history are kept per job, and EditLimit how many of them are edits at most; the oldest go first.
Args are what an edit has replaced.
that ran the attempt, or changed the args`, func(f *fixture) {
		id := f.add(newJob(args("0")))[0]
		for i := range storage.EditLimit + 3 {
			f.later(time.Second)
			for range 2 {
				f.changed(id, edited(fmt.Sprint(i+1)))
			}
			h := f.record(id).History
			if len(h) != min(i+1, storage.EditLimit) {
				f.Fatalf("after %d edits there are %d in the history", i+1, len(h))
			}
			last := h[len(h)-1]
			if last.Instance == "" {
				f.Errorf("nobody has made the edit: %+v", last)
			}
			last.Instance, last.At = "", last.At.UTC()
			if want := (storage.Failure{At: f.now, Phase: storage.PhaseEdited, Args: []byte(fmt.Sprint(i))}); !sameFailure(last, want) {
				f.Errorf("edit %d is %+v in the history, want %+v", i+1, last, want)
			}
		}
		// Failures and edits together.
		const n = storage.HistoryLimit + 2
		for i := range n {
			l := f.leaseOne(f.s)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now, Failure: &storage.NewFailure{Error: fmt.Sprint(i + 1)}})
			h := f.record(id).History
			if len(h) != min(storage.HistoryLimit, storage.EditLimit+i+1) || h[len(h)-1].Attempt != i+1 {
				f.Errorf("after %d failures there are %d in the history, the last one of attempt %d", i+1, len(h), h[len(h)-1].Attempt)
			}
		}
		f.changed(id, edited("end"))
		h := f.record(id).History
		if len(h) != storage.HistoryLimit || h[0].Error != "4" || h[len(h)-1].Attempt != n || string(h[len(h)-1].Args) != fmt.Sprint(storage.EditLimit+3) {
			f.Errorf("the history is %+v", h)
		}
		if s := f.cancel(id); s != storage.Cancelled {
			f.Errorf("Cancel returned %q", s)
		}
		f.changes("delete", f.delete(named(id)), 1, nil, nil)

		// What is kept goes with the job, also of one that has never failed.
		ids := f.add(times(3, newJob())...)
		for _, id := range ids {
			f.changed(id, edited("new"))
		}
		f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.keep(keep, f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.changes("cancel", f.change(named(ids[2]), storage.Edit{Cancel: &storage.Retention{}}), 1, nil, nil)
		if n, _, err := f.s.PurgeFinished(f.ctx, f.now.Add(2*keep)); n != 1 || err != nil {
			f.Errorf("PurgeFinished returned %d, %v", n, err)
		}
		f.counts()
	}},

	{"change_no_failure", `The entry is no failure: it is not the last error, and RunNow passes over it.`, func(f *fixture) {
		failed, snoozed := f.waiting(1, tagged("tagged"))[0], f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: snoozed.Lease, Outcome: storage.OutcomeSnooze, DueAt: f.now.Add(time.Hour)})
		away := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: away.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now.Add(time.Hour), Error: "no route"})
		for _, id := range []storage.ID{failed, snoozed.ID, away.ID} {
			f.changed(id, edited("new"))
		}
		for id, text := range map[storage.ID]string{failed: "Refused", snoozed.ID: "", away.ID: "no route"} {
			if r := f.record(id); r.Error != text {
				f.Errorf("the last error of job %d is %q, want %q", id.Key(), r.Error, text)
			}
		}
		f.lists(storage.Filter{Error: "refused"}, failed)
		f.lists(storage.Filter{Error: "refused", Tag: "tagged"}, failed)
		f.lists(storage.Filter{Error: "route"}, away.ID)
		if all := f.list(storage.Filter{}, 9); len(all) != 3 || all[0].Error+all[1].Error+all[2].Error != "Refusedno route" {
			f.Errorf("the list is %+v", all)
		}
		if all, err := f.s.Stats(f.ctx); err != nil || len(all) != 1 || all[0].FailedJob != failed || all[0].Error != "Refused" {
			f.Errorf("the stats are %+v, %v", all, err)
		}
		f.did("by error", f.runNow(storage.Selection{Filter: storage.Filter{Error: "refused"}}, anyRun), 1, nil, nil)
		f.did("the failed ones", f.runNow(storage.Selection{}, storage.Waiting{Failed: true}), 1, nil, nil)
		f.is(storage.Ready, failed, away.ID)
		f.is(storage.Scheduled, snoozed.ID)
	}},

	{"change_evidence", `If its last attempt was an OutcomeUnavailable, successes there count as evidence, see [Finish], from then on.`, func(f *fixture) {
		there := storage.Want{Queues: []string{"other"}, Kinds: []string{kind}}
		l := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now, Error: "no route"})
		f.changed(l.ID, moved("other"))
		if r := f.record(l.ID); r.Error != "no route" {
			f.Errorf("the last error is %q, want that of the attempt", r.Error)
		}
		first := f.add(newJob(lane("other", kind), priority(1)))[0]
		leased := f.exchange(f.s, storage.Exchange{Wants: wants(2, there)}).Leased
		f.order("leased", leasedIDs(leased), []storage.ID{first, l.ID})
		f.apply(f.s, storage.Finish{Lease: leased[0].Lease, Outcome: storage.OutcomeDone})
		fin := storage.Finish{Lease: leased[1].Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now, Since: leased[1].Previous,
			Spent: &storage.Finish{Outcome: storage.OutcomeRetry, DueAt: f.now, Failure: &storage.NewFailure{Error: "spent"}}}
		if r := f.finish(f.s, fin); r != storage.Spent {
			f.Errorf("finishing returned %d, want spent", r)
		}
		f.changed(l.ID, moved("third"))
		f.cancel(l.ID)
		f.changes("delete", f.delete(named(l.ID)), 1, nil, nil)
	}},

	{"change_filters", `One call is one bounded step, over a filter of live jobs in the order of keys: see [Step].
or, if there are none, those that match Filter`, func(f *fixture) {
		failed := f.waiting(1)[0]
		all := f.add(newJob(), newJob(lane("other", kind)), newJob(lane(queue, "other")), newJob(delay(time.Hour)))
		from := f.now.Add(time.Minute)
		f.later(2 * time.Minute)
		all = append(all, f.add(newJob(dueAt(f.now.Add(-time.Minute))))...)
		l := f.run(f.s, priority(9))
		f.bury(storage.ReasonPermanent, "refused", priority(9))
		for i, c := range []struct {
			storage.Filter
			want []int
			live []storage.ID
		}{
			{storage.Filter{Queue: "none"}, nil, nil},
			{storage.Filter{Queue: "other"}, []int{1}, nil},
			{storage.Filter{Kind: "other"}, []int{2}, nil},
			{storage.Filter{States: []storage.State{storage.Scheduled}}, []int{3, 5}, nil},
			{storage.Filter{States: []storage.State{storage.Running}}, nil, []storage.ID{l.ID}},
			{storage.Filter{States: []storage.State{storage.Dead}}, nil, nil},
			{storage.Filter{Reason: storage.ReasonPermanent}, nil, nil},
			{storage.Filter{Error: "REFUSED"}, []int{5}, nil},
			{storage.Filter{CreatedFrom: from, Queue: queue}, []int{4}, []storage.ID{l.ID}},
			{storage.Filter{CreatedBefore: from, Queue: queue, Kind: kind, States: []storage.State{storage.Ready}}, []int{0}, nil},
			{storage.Filter{DueFrom: f.now}, []int{3, 5}, nil},
			{storage.Filter{DueBefore: from, Kind: kind}, []int{0, 1}, nil},
		} {
			p := i - 100
			f.changes(fmt.Sprintf("%+v", c.Filter), f.change(storage.Selection{Filter: c.Filter}, storage.Edit{Priority: &p}), len(c.want), c.live, nil)
			for j, id := range append(slices.Clone(all), failed) {
				if got := f.record(id).Priority == p; got != slices.Contains(c.want, j) {
					f.Errorf("%+v: job %d was changed: %t", c.Filter, j, got)
				}
			}
		}
	}},

	{"change_steps", `A step over a filter holds the writer for a bounded time and may leave jobs to later steps: call again with After set to Next,
Limit is the most jobs selected by Filter that one step changes. If zero, a step changes as many as it can.
Pass it to further steps of RunNow, Change and Delete: they leave out jobs that come meanwhile.`, func(f *fixture) {
		const n = 700
		all := f.add(times(n, newJob())...)
		step, err := f.s.Change(f.ctx, f.now, storage.Selection{Limit: 3}, moved("other"))
		f.must(err)
		if want := (storage.Position{Key: all[2].Key()}); step.N != 3 || step.Next != want || step.Through != all[n-1].Key() {
			f.Errorf("a step of 3 returned %+v, want Next %+v and Through %d", step, want, all[n-1].Key())
		}
		late := f.add(newJob())[0]
		f.changes("the rest", f.change(storage.Selection{After: step.Next, Through: step.Through}, moved("other")), n-3, nil, nil)
		f.counts(count(storage.Ready, 1), storage.Count{Queue: "other", Kind: kind, State: storage.Ready, N: n})
		if r := f.record(late); r.Queue != queue {
			f.Errorf("a job that came meanwhile is in queue %q", r.Queue)
		}
	}},

	{"change_cancel", `Cancel ends the jobs as cancelled, kept as it says, and asks running ones to stop, as Store.Cancel does.
It is not for dead jobs.
Of Change these are the running ones, which were asked to stop if Edit.Cancel is set;`, func(f *fixture) {
		const n = 700
		l := f.run(f.s, lane(queue, kind))
		dead := f.bury(storage.ReasonPermanent, "no")
		waiting := f.add(newJob(), newJob(delay(time.Hour)))
		f.did("urgent", f.runNow(named(waiting[0]), anyRun), 0, nil, nil)
		f.add(times(n, newJob(lane("other", kind)))...)
		f.later(time.Second)
		f.changes("by filter", f.change(storage.Selection{Filter: storage.Filter{Queue: queue}}, ended), 2, []storage.ID{l.ID}, nil)
		f.is(storage.Cancelled, waiting...)
		if r := f.record(waiting[1]); !r.EndedAt.Equal(f.now) {
			f.Errorf("the cancelled job has ended at %v, want %v", r.EndedAt, f.now)
		}
		if r := f.extend(f.s, l.Lease); r != storage.Cancelling {
			f.Errorf("extending returned %d, want cancelling", r)
		}
		f.changes("by IDs", f.change(named(dead, waiting[0], l.ID), ended), 0, []storage.ID{l.ID}, []storage.ID{dead, waiting[0]})
		f.changes("the scheduled ones", f.change(states(storage.Scheduled), ended), 0, nil, nil)
		gone := storage.Edit{Cancel: &storage.Retention{Default: keep, Lanes: map[storage.Lane]time.Duration{{Queue: "other", Kind: kind}: 0}}}
		f.changes("the rest", f.change(storage.Selection{}, gone), n, []storage.ID{l.ID}, nil)
		f.is(storage.Dead, dead)
		f.counts(count(storage.Cancelled, 2), count(storage.Dead, 1), count(storage.Running, 1))
		f.order("urgent still", leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(0), Urgent: 9}).Leased), nil)
	}},

	{"change_urgent", `A single job that IDs names, and that is scheduled or ready, becomes urgent until it is leased, is put off or ends: see [Exchange].`, func(f *fixture) {
		id := f.add(newJob(grouped("g")))[0]
		f.did("urgent", f.runNow(named(id), anyRun), 0, nil, nil)
		f.changes("to another queue, where it has a place at once", f.change(named(id), moved("other")), 1, nil, nil)
		x := storage.Exchange{Wants: []storage.Want{{Queues: []string{"other"}, Kinds: []string{kind}}}, Urgent: 1}
		f.order("urgent still", leasedIDs(f.exchange(f.s, x).Leased), []storage.ID{id})
	}},

	{"change_notify", `Due is when the earliest job it made available is due; the zero time means at once.
Cancel is true if a running job may have been asked to stop, so that leases should be extended soon.`, func(f *fixture) {
		both := f.hearsDue(f.db.Open())
		id := f.add(newJob(delay(24 * time.Hour)))[0]
		both("earlier", f.now.Add(time.Hour), func() { f.changed(id, off(time.Hour)) })
		both("now", f.now, func() { f.changed(id, storage.Edit{DueAt: f.now}) })
		both("another queue", f.now, func() { f.changed(id, moved("other")) })
		l := f.run(f.s)
		f.hearsBoth(f.db.Open())("asked to stop", cancels, func() { f.change(storage.Selection{}, ended) })
		f.extend(f.s, l.Lease)
	}},
}

// sameFailure compares entries of the history.
func sameFailure(a, b storage.Failure) bool {
	same := bytes.Equal(a.Args, b.Args)
	a.Args, b.Args = nil, nil
	return same && fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

func (f *fixture) delete(sel storage.Selection) storage.Step {
	f.Helper()
	return takeSteps(f, sel, func(sel storage.Selection) (storage.Step, error) { return f.s.Delete(f.ctx, sel) })
}

var deleteCases = []testCase{
	{"delete_ids", `Delete deletes dead and finished jobs for good, with all that belongs to them.
Live jobs that IDs name stay, and are reported as Live.
Jobs that IDs name have to be in one of Filter.States, unless that is empty.`, func(f *fixture) {
		finished := func() storage.ID {
			l := f.run(f.s, rich, priority(9))
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now, Failure: &storage.NewFailure{Error: "x"}})
			l = f.leaseOne(f.s)
			f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			return l.ID
		}
		all := []storage.ID{finished(), finished(), f.bury(storage.ReasonPermanent, "no"), f.bury(storage.ReasonPermanent, "no")}
		cancelled := f.add(newJob(), newJob())
		for _, id := range cancelled {
			f.cancel(id)
		}
		live := f.add(newJob(delay(time.Hour)), newJob(), newJob(priority(9)))
		f.leaseOne(f.s)
		gone := storage.NewID(f.now, 1, 99999)
		alike := storage.NewID(f.now, all[0].Salt()+1, all[0].Key())
		sel := named(all[0], all[2], cancelled[0], live[0], live[1], live[2], gone, alike)
		sel.Filter.States = []storage.State{storage.Dead, storage.Cancelled}
		f.changes("in some states", f.delete(sel), 2, live, []storage.ID{all[0], gone, alike})
		sel.Filter.States = nil
		f.changes("in any state", f.delete(sel), 1, live, []storage.ID{all[2], cancelled[0], gone, alike})
		f.is("", all[0], all[2], cancelled[0])
		f.counts(count(storage.Cancelled, 1), count(storage.Dead, 1), count(storage.Done, 1), count(storage.Ready, 1), count(storage.Running, 1), count(storage.Scheduled, 1))
		if n, _, err := f.s.PurgeFinished(f.ctx, f.now.Add(2*keep)); n != 2 || err != nil {
			f.Errorf("PurgeFinished returned %d, %v; want those that are left", n, err)
		}
	}},

	{"delete_filters", `A filter selects dead jobs. If it has States without Dead, it selects finished ones, in the order of keys.`, func(f *fixture) {
		var all []storage.ID
		for i := range 8 {
			f.later(time.Second)
			l := f.run(f.s, priority(9))
			outcome := []storage.Outcome{storage.OutcomeDone, storage.OutcomeCancelled}[i%2]
			if i == 6 {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeReturned})
				f.changed(l.ID, moved("other"))
				l = f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"other"}, Kinds: []string{kind}})}).Leased[0]
			}
			f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: outcome, Error: fmt.Sprint("Error ", i)})
			all = append(all, l.ID)
		}
		start := f.now.Add(-7 * time.Second)
		dead := f.bury(storage.ReasonPermanent, "error 1")
		failed := f.waiting(1)[0]
		f.did("run now", f.runNow(named(failed), anyRun), 1, nil, nil)
		f.keep(keep, f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		all = append(all, failed)
		f.add(newJob(), newJob(delay(time.Hour)))
		finished := []storage.State{storage.Done, storage.Cancelled}
		for _, c := range []struct {
			storage.Filter
			want []int
		}{
			{storage.Filter{States: finished, Queue: "none"}, nil},
			{storage.Filter{States: finished, Reason: storage.ReasonPermanent}, nil},
			{storage.Filter{States: finished, DueFrom: f.now.Add(-time.Hour)}, nil},
			{storage.Filter{States: []storage.State{storage.Ready, storage.Scheduled}}, nil},
			{storage.Filter{States: finished, Error: "ERROR 1"}, []int{1}},
			{storage.Filter{States: finished, Error: "refused"}, []int{8}}, // before it was done
			{storage.Filter{States: finished, Queue: "other"}, []int{6}},
			{storage.Filter{States: finished[1:], EndedFrom: start.Add(3 * time.Second), EndedBefore: start.Add(6 * time.Second)}, []int{3, 5}},
			{storage.Filter{States: finished, CreatedBefore: start.Add(time.Second)}, []int{0}},
			{storage.Filter{States: finished[:1]}, []int{2, 4}},
		} {
			f.changes(fmt.Sprintf("%+v", c.Filter), f.delete(storage.Selection{Filter: c.Filter}), len(c.want), nil, nil)
			f.is("", pick(all, c.want...)...)
		}
		f.is(storage.Cancelled, all[7])
		f.changes("the dead", f.delete(states(storage.Dead)), 1, nil, nil)
		f.is("", dead)
		f.counts(count(storage.Cancelled, 1), count(storage.Ready, 1), count(storage.Scheduled, 1))
	}},

	{"delete_steps", `Pass it to further steps of RunNow, Change and Delete: they leave out jobs that come meanwhile.
Through is the highest key of the live or finished jobs that Filter selects. If zero, the highest that a live job, or a finished one, has at the time of the call.`, func(f *fixture) {
		const n = 600
		all := f.add(times(n+1, newJob())...)
		finish := func(n int) {
			var done []storage.Finish
			for _, l := range f.lease(f.s, n) {
				done = append(done, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			}
			f.exchange(f.s, storage.Exchange{Finish: done, Retention: kept(keep)})
		}
		finish(n)
		sel := states(storage.Done)
		step, err := f.s.Delete(f.ctx, sel)
		f.must(err)
		if step.N == 0 || step.N == n || step.Next.Key != all[step.N-1].Key() || step.Through != all[n-1].Key() {
			f.Fatalf("a step returned %+v", step)
		}
		finish(1)
		sel.After, sel.Through = step.Next, step.Through
		f.changes("the rest", f.delete(sel), n-step.N, nil, nil)
		f.is(storage.Done, all[n])
	}},
}
