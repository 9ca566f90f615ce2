package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// startWithin, finishWithin and diesUnstarted change a NewJob.
func startWithin(d time.Duration) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.StartWithin = d }
}

func finishWithin(d time.Duration) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.FinishWithin = d }
}

func diesUnstarted(n *storage.NewJob) { n.OnExpire = storage.Dead }
func endsUnstarted(n *storage.NewJob) { n.OnExpire = storage.Expired }
func inDoubt(n *storage.NewJob)       { n.Doubtful = true }

// ends is an Exchange of s that wants n of the usual jobs, and checks which jobs end in it.
func (f *fixture) ends(s storage.Store, n int, want ...storage.ID) storage.ExchangeResult {
	f.Helper()
	res := f.exchange(s, storage.Exchange{Wants: wants(n), Retention: kept(keep)})
	f.expired(res, want...)
	return res
}

func (f *fixture) expired(res storage.ExchangeResult, want ...storage.ID) {
	f.Helper()
	var got []storage.ID
	for _, e := range res.Expired {
		got = append(got, e.ID)
	}
	slices.SortFunc(got, func(a, b storage.ID) int { return int(a.Key() - b.Key()) })
	if !slices.Equal(got, want) {
		f.Fatalf("jobs %v ended, want %v", keysOf(got), keysOf(want))
	}
}

// windowed checks until when a job may begin and go on; zero for not at all.
func (f *fixture) windowed(id storage.ID, startBy, deadline time.Time) {
	f.Helper()
	r := f.record(id)
	if !r.StartBy.Equal(startBy) || !r.Deadline.Equal(deadline) {
		f.Errorf("job %d has StartBy %v and Deadline %v, want %v and %v", id.Key(), r.StartBy, r.Deadline, startBy, deadline)
	}
}

// back puts a lease back.
func (f *fixture) back(l storage.Leased, o storage.Outcome, due time.Time) {
	f.Helper()
	f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: due})
}

var expiryCases = []testCase{
	{"expiry_set", `StartWithin, if positive, is how long after the job's due time its first attempt may begin, and FinishWithin how long after it any attempt may. They set its StartBy and its Deadline
If the job is due at or before now, both count from now.
zero if it does not matter.`, func(f *fixture) {
		both := func(n *storage.NewJob) { n.StartWithin, n.FinishWithin = time.Minute, time.Hour }
		ids := f.add(newJob(), newJob(startWithin(time.Minute)), newJob(finishWithin(time.Minute)), newJob(both),
			newJob(both, delay(time.Hour)), newJob(both, dueAt(f.now.Add(2*time.Hour))), newJob(both, dueAt(f.now.Add(-time.Hour))))
		at := func(d time.Duration) time.Time { return f.now.Add(d) }
		for i, want := range [][2]time.Time{
			{}, {at(time.Minute), {}}, {{}, at(time.Minute)}, {at(time.Minute), at(time.Hour)},
			{at(61 * time.Minute), at(2 * time.Hour)}, {at(121 * time.Minute), at(3 * time.Hour)}, {at(time.Minute), at(time.Hour)},
		} {
			f.windowed(ids[i], want[0], want[1])
		}
		page, err := f.s.Jobs(f.ctx, storage.Filter{}, "", 9)
		f.must(err)
		for _, r := range page.Jobs {
			f.windowed(r.ID, r.StartBy, r.Deadline)
		}
	}},

	{"expiry_start", `At its StartBy it is finished as [Expired], kept as Exchange.Retention says
A job that is scheduled, ready or blocked ends at its StartBy or at its Deadline, whatever its lane.
A Store that is no [Promoter] does both for the jobs of all lanes.`, func(f *fixture) {
		late := f.add(newJob(startWithin(time.Minute)), newJob(startWithin(time.Minute), lane("other", "kind")))
		kept := f.add(newJob(startWithin(2 * time.Minute)))[0]
		f.pause(queue, true)
		f.later(time.Minute - time.Microsecond)
		f.ends(f.s, 9)
		f.later(time.Microsecond)
		res := f.ends(f.s, 9, late...)
		if e := res.Expired[0]; e.Queue == "" || e.Kind == "" || e.State != storage.Expired || e.Reason != "" || e.Error != storage.ErrorExpired {
			f.Errorf("Expired has %+v", e)
		}
		f.is(storage.Expired, late...)
		f.is(storage.Ready, kept)
		f.windowed(late[0], time.Time{}, time.Time{})
		f.later(keep)
		if n, _, err := f.s.PurgeFinished(f.ctx, f.now); n != 2 || err != nil {
			f.Errorf("PurgeFinished deleted %d jobs (%v), want 2", n, err)
		}
		f.exchange(f.s, storage.Exchange{Wants: wants(1)}) // without Retention
		f.is("", kept)
	}},

	{"expiry_dies", `or dies with [ReasonExpired] if its OnExpire is Dead.
At its Deadline it dies with [ReasonDeadline]. Of a job that has passed both the StartBy counts. A job that dies has no entry in its history, its cause has the text of its error, and the policy in effect is its own.`, func(f *fixture) {
		own := func(n *storage.NewJob) { n.Policy = []byte(`{"numRetries":2}`) }
		ids := f.add(newJob(startWithin(time.Minute), diesUnstarted, own), newJob(finishWithin(time.Minute)),
			newJob(startWithin(time.Minute), finishWithin(time.Minute), diesUnstarted), newJob(startWithin(time.Minute), finishWithin(time.Second)))
		f.pause(queue, true)
		f.later(time.Minute)
		f.ends(f.s, 9, ids...)
		f.is(storage.Dead, ids[:3]...)
		f.is(storage.Expired, ids[3])
		for i, reason := range []storage.Reason{storage.ReasonExpired, storage.ReasonDeadline, storage.ReasonExpired} {
			r := f.record(ids[i])
			text := storage.ErrorExpired
			if reason == storage.ReasonDeadline {
				text = storage.ErrorDeadline
			}
			if r.Reason != reason || r.Error != text || len(r.History) != 0 || !r.EndedAt.Equal(f.now) {
				f.Errorf("job %d died of %q with %q at %v, and a history of %d", i, r.Reason, r.Error, r.EndedAt, len(r.History))
			}
		}
		if p := f.record(ids[0]).Policy; string(p) != `{"numRetries":2}` {
			f.Errorf("the policy in effect is %s", p)
		}
		causes, err := f.s.Causes(f.ctx, storage.Lane{}, 9)
		f.must(err)
		if len(causes) != 2 {
			f.Errorf("the causes are %+v, want two", causes)
		}
		f.counts(count(storage.Dead, 3), count(storage.Expired, 1))
	}},

	{"expiry_follow", `Follow, if not nil, returns what to enqueue when a job dies at its StartBy or Deadline, in the same transaction; nil for nothing.`, func(f *fixture) {
		ids := f.add(newJob(startWithin(time.Minute), diesUnstarted), newJob(startWithin(time.Minute)), newJob(finishWithin(time.Minute)))
		f.later(time.Minute)
		then, created := newJob(lane("other", "notice")), f.record(ids[0]).CreatedAt
		f.add(then) // whose lane is news
		x := storage.Exchange{Wants: wants(1), Retention: kept(keep), Follow: func(e *storage.ExpiredJob) *storage.NewJob {
			if e.ID == ids[0] && e.CreatedAt.Equal(created) || e.State == storage.Expired { // who does not die is not asked about
				return &then
			}
			return nil
		}}
		x.Follow(&storage.ExpiredJob{})
		f.hearsDue(f.db.Open())("followed", f.now, func() { f.expired(f.exchange(f.s, x), ids...) })
		f.counts(count(storage.Dead, 2), count(storage.Expired, 1), storage.Count{Queue: "other", Kind: "notice", State: storage.Ready, N: 2})
	}},

	{"expiry_unique", `UniqueLive holds the key until the job is finished or dead.`, func(f *fixture) {
		id := f.add(newJob(unique("k"), startWithin(time.Second)))[0]
		f.later(time.Second)
		f.ends(f.s, 1, id)
		f.add(newJob(unique("k")))
	}},

	{"expiry_begun", `StartBy counts until the first attempt begins. A lease that was returned is no attempt; one that ends otherwise sets StartBy to zero.
StartBy is zero too if an attempt has begun before.`, func(f *fixture) {
		l := f.run(f.s, startWithin(time.Minute))
		by := f.now.Add(time.Minute)
		if !l.StartBy.Equal(by) || !l.Deadline.IsZero() {
			f.Errorf("leased with StartBy %v and Deadline %v, want %v and none", l.StartBy, l.Deadline, by)
		}
		f.windowed(l.ID, by, time.Time{})
		f.back(l, storage.OutcomeReturned, time.Time{})
		f.windowed(l.ID, by, time.Time{})
		l = f.leaseOne(f.s)
		f.back(l, storage.OutcomeInterrupted, time.Time{})
		f.windowed(l.ID, time.Time{}, time.Time{})
		f.later(time.Hour)
		if l = f.leaseOne(f.s); !l.StartBy.IsZero() {
			f.Errorf("leased again with StartBy %v", l.StartBy)
		}

		l = f.run(f.s, startWithin(time.Minute))
		f.later(time.Minute)
		f.ends(f.s, 1)
		f.back(l, storage.OutcomeReturned, time.Time{})
		f.ends(f.s, 1, l.ID)
	}},

	{"expiry_running", `A running job goes on whatever the time; if it is put back, it ends then.`, func(f *fixture) {
		for _, outcome := range []storage.Outcome{storage.OutcomeReturned, storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeUnavailable} {
			l := f.run(f.s, finishWithin(time.Minute))
			by := f.now.Add(time.Minute)
			if !l.Deadline.Equal(by) {
				f.Errorf("leased with Deadline %v, want %v", l.Deadline, by)
			}
			f.later(time.Minute)
			f.ends(f.s, 1)
			f.is(storage.Running, l.ID)
			f.windowed(l.ID, time.Time{}, by)
			f.back(l, outcome, f.now.Add(time.Hour))
			f.windowed(l.ID, time.Time{}, by)
			waits := f.record(l.ID)
			res := f.ends(f.s, 1, l.ID)
			f.is(storage.Dead, l.ID)
			if c := f.record(l.ID).Counters; c != waits.Counters || c != res.Expired[0].Counters {
				f.Errorf("after %v the job waited with %+v, and ended with %+v, told of %+v", outcome, waits.Counters, c, res.Expired[0].Counters)
			}
		}
	}},

	{"expiry_next_due", `or a waiting job reaches its StartBy or Deadline.`, func(f *fixture) {
		start := f.now
		f.pause(queue, true)
		f.add(newJob(finishWithin(3*time.Minute)), newJob(startWithin(2*time.Minute)), newJob(delay(10*time.Minute)), newJob(lane("other", "kind"), finishWithin(time.Minute)))
		for _, m := range []time.Duration{1, 2, 3, 10} {
			res := f.exchange(f.s, storage.Exchange{Wants: wants(1)})
			if f.now = start.Add(m * time.Minute); !res.NextDue.Equal(f.now) {
				f.Fatalf("NextDue is %v, want %v", res.NextDue, f.now)
			}
		}
	}},

	{"expiry_step", `Then jobs of these lanes end that have passed their StartBy or Deadline, see [ExpiredJob]: all of them, or a bounded number.
If some are left, NextDue is not after now, and the next Exchange gets further.
NextDue is now if a job that was to be leased has ended, or if more jobs are past their StartBy or Deadline.`, func(f *fixture) {
		most := within(250, f.db.Bounds().Expired)
		n := most*2 + most*2/5
		f.add(times(n, newJob(startWithin(time.Second)))...)
		last := f.add(newJob())[0]
		f.later(time.Second)
		ended := 0
		for range n {
			res := f.exchange(f.s, storage.Exchange{Wants: wants(1)})
			if ended += len(res.Expired); len(res.Leased) > 0 {
				f.order("leased", leasedIDs(res.Leased), []storage.ID{last})
				break
			}
			if len(res.Expired) < most && ended < n || !res.NextDue.Equal(f.now) {
				f.Fatalf("an exchange ended %d jobs, of %d in all, and is due again at %v", len(res.Expired), ended, res.NextDue)
			}
		}
		if ended != n {
			f.Errorf("%d jobs have ended, want %d", ended, n)
		}

		f.add(times(n, newJob(lane("other", "kind"), startWithin(time.Second)))...)
		f.later(2 * time.Second)
		for ended = 0; ended < n; {
			res := f.exchange(f.s, storage.Exchange{Wants: wants(1)})
			if ended += len(res.Expired); ended < n && (len(res.Expired) < most || !res.NextDue.Equal(f.now)) {
				f.Fatalf("an exchange ended %d jobs elsewhere, of %d in all, and is due again at %v", len(res.Expired), ended, res.NextDue)
			}
		}
	}},

	{"expiry_leased_late", `No job is leased at its StartBy or Deadline or later: it ends instead, and counts for its Want.
NextDue is now if a job that was to be leased has ended`, func(f *fixture) {
		ids := f.add(newJob(startWithin(time.Hour), inDoubt), newJob(startWithin(2*time.Hour), inDoubt), newJob())
		f.later(time.Hour)
		x := storage.Exchange{Wants: wants(2), Doubtful: true}
		res := f.exchange(f.s, x)
		f.expired(res, ids[0])
		f.order("leased", leasedIDs(res.Leased), ids[1:2])
		if !res.NextDue.Equal(f.now) {
			f.Errorf("NextDue is %v, want now, %v", res.NextDue, f.now)
		}
		f.order("leased then", leasedIDs(f.exchange(f.s, x).Leased), ids[2:])
		urgent := f.add(newJob(startWithin(time.Hour), inDoubt))
		_, err := f.s.RunNow(f.ctx, f.now, storage.Selection{IDs: urgent}, storage.Waiting{})
		f.must(err)
		f.later(time.Hour)
		res = f.exchange(f.s, storage.Exchange{Wants: wants(0), Urgent: 1, Doubtful: true})
		f.expired(res, urgent...)
	}},

	{"expiry_elsewhere", `A job that is scheduled, ready or blocked ends at its StartBy or at its Deadline, whatever its lane.`, func(f *fixture) {
		other := f.db.Open()
		ids := f.add(newJob(startWithin(time.Minute)))
		f.later(time.Minute)
		f.ends(other, 1, ids...)
		ids = f.add(newJob(startWithin(time.Minute)))
		f.later(time.Minute)
		f.ends(other, 1, ids...)
	}},

	{"expiry_redriven", `StartBy is gone, and FinishWithin counts from now.`, func(f *fixture) {
		windows := func(n *storage.NewJob) {
			n.StartWithin, n.FinishWithin, n.OnExpire = time.Minute, time.Hour, storage.Dead
		}
		both := f.add(newJob(windows), newJob(windows))
		f.later(time.Hour)
		f.ends(f.s, 1, both...)
		f.later(time.Minute)
		id := both[0]
		sel := storage.Selection{IDs: []storage.ID{id}}
		_, err := f.s.Redrive(f.ctx, f.now, sel, "")
		f.must(err)
		f.windowed(id, time.Time{}, f.now.Add(time.Hour))
		f.later(time.Hour)
		f.ends(f.s, 1, id)
		sel.Doubtful = true
		_, err = f.s.Redrive(f.ctx, f.now, sel, "")
		f.must(err)
		f.later(59 * time.Minute)
		f.pause(queue, true)
		f.ends(f.s, 1)
		f.windowed(id, time.Time{}, f.now.Add(time.Hour))
	}},

	{"expiry_put_off", `Its StartWithin and FinishWithin count anew, as of a NewJob. Once it has begun, StartWithin counts no more.`, func(f *fixture) {
		both := func(n *storage.NewJob) { n.StartWithin, n.FinishWithin = time.Minute, time.Hour }
		id, begun := f.add(newJob(both))[0], f.run(f.s, priority(1), both)
		f.back(begun, storage.OutcomeRetry, f.now.Add(time.Second))
		f.later(time.Second)
		_, err := f.s.Change(f.ctx, f.now, storage.Selection{IDs: []storage.ID{id, begun.ID}}, storage.Edit{Delay: time.Hour})
		f.must(err)
		f.windowed(id, f.now.Add(61*time.Minute), f.now.Add(2*time.Hour))
		f.windowed(begun.ID, time.Time{}, f.now.Add(2*time.Hour))
		_, err = f.s.Change(f.ctx, f.now, storage.Selection{IDs: []storage.ID{id}}, storage.Edit{Priority: new(5)})
		f.must(err)
		f.windowed(id, f.now.Add(61*time.Minute), f.now.Add(2*time.Hour))
	}},

	{"expiry_replaced", `Its StartWithin and FinishWithin stay. They count on if its due time stays, and else anew, as of a NewJob. Once a job has begun, StartWithin counts no more.`, func(f *fixture) {
		both, other := []func(*storage.NewJob){startWithin(time.Minute), finishWithin(time.Hour)}, startWithin(5*time.Hour)
		id := f.add(newJob(append(both, unique("a"))...))[0]
		replaced := storage.Enqueued{ID: id, Duplicate: true, Replaced: true}
		at := f.now
		f.later(time.Second)
		f.answers("replaced", replaced, on(storage.Replace), other)
		f.windowed(id, at.Add(time.Minute), at.Add(time.Hour))
		f.answers("put off", replaced, on(storage.Debounce, quiet(10*time.Second, 0)), other)
		f.windowed(id, f.now.Add(70*time.Second), f.now.Add(time.Hour+10*time.Second))
		f.answers("not put off", replaced, on(storage.Debounce, quiet(time.Second, 0)))
		f.windowed(id, f.now.Add(70*time.Second), f.now.Add(time.Hour+10*time.Second))
		f.cancel(id)

		begun := f.run(f.s, append(both, unique("a"))...)
		replaced.ID = begun.ID
		at = f.now
		f.back(begun, storage.OutcomeRetry, f.now.Add(time.Minute))
		f.later(time.Second)
		f.answers("begun", replaced, on(storage.Replace))
		f.windowed(begun.ID, time.Time{}, at.Add(time.Hour))
		f.answers("fresh", replaced, on(storage.Replace, fresh))
		f.windowed(begun.ID, time.Time{}, f.now.Add(time.Hour))
		f.answers("put off", replaced, on(storage.Debounce, quiet(time.Minute, 0)))
		f.windowed(begun.ID, time.Time{}, f.now.Add(time.Hour+time.Minute))
	}},

	{"expiry_handed_over", `A job that such an Exchange would end is left to it.`, func(f *fixture) {
		h, ok := f.s.(storage.Handoff)
		if !ok {
			f.skip("storage.Handoff")
		}
		for _, doubtful := range []bool{false, true} {
			late := f.add(newJob(startWithin(time.Minute), func(n *storage.NewJob) { n.Doubtful = doubtful }))[0]
			var got []storage.Leased
			o := h.Offer(wants(5)[0], hold, func(jobs []storage.Leased, _ time.Time) { got = append(got, jobs...) })
			f.later(time.Minute)
			id := f.add(newJob(startWithin(time.Minute)))
			f.order("handed over", leasedIDs(got), id)
			if len(got) > 0 && !got[0].StartBy.Equal(f.now.Add(time.Minute)) {
				f.Errorf("handed over with StartBy %v", got[0].StartBy)
			}
			o.Close()
			f.windowed(id[0], f.now.Add(time.Minute), time.Time{})
			f.is(storage.Ready, late)
			f.expired(f.exchange(f.s, storage.Exchange{Wants: wants(5), Doubtful: doubtful}), late)
		}
	}},
}
