package storagetest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// usual wants the usual jobs.
var usual = storage.Want{Queues: []string{queue}, Kinds: []string{kind}}

// wants returns one Want of n jobs, of the usual ones unless from says otherwise.
func wants(n int, from ...storage.Want) []storage.Want {
	w := usual
	if len(from) > 0 {
		w = from[0]
	}
	w.N = n
	return []storage.Want{w}
}

var leaseCases = []testCase{
	{"lease_priority", `the highest priority goes first, then the earliest due, then the first enqueued.
Leased []Leased in the order they should start`, func(f *fixture) {
		ids := f.add(
			newJob(priority(-100), dueAt(f.now.Add(-3*time.Hour))), newJob(), newJob(priority(100)), newJob(priority(1)), newJob(priority(100)),
		)
		f.order("leased", leasedIDs(f.lease(f.s, 9)), pick(ids, 2, 4, 3, 1, 0))
	}},

	{"lease_due", `the highest priority goes first, then the earliest due, then the first enqueued.`, func(f *fixture) {
		ago := func(d time.Duration) storage.NewJob { return newJob(dueAt(f.now.Add(-d))) }
		ids := f.add(ago(time.Second), ago(3*time.Second), ago(2*time.Second), ago(3*time.Second), ago(time.Second))
		f.order("first", leasedIDs(f.lease(f.s, 2)), pick(ids, 1, 3))
		f.order("then", leasedIDs(f.lease(f.s, 2)), pick(ids, 2, 0))
		f.order("last", leasedIDs(f.lease(f.s, 2)), pick(ids, 4))
	}},

	{"lease_wants", `Wants are the jobs to lease. Of those that are due and match any of them, the highest priority goes first, then the earliest due, then the first enqueued.
A job counts for the first Want that matches it and has room: by N, and by Each for its queue. A job that fits none is passed over.`, func(f *fixture) {
		want := func(n int, queue string, kinds ...string) storage.Want {
			return storage.Want{Queues: []string{queue}, Kinds: kinds, N: n}
		}
		job := func(q, k string, p int) storage.NewJob { return newJob(lane(q, k), priority(p)) }
		for _, c := range []struct {
			what  string
			wants []storage.Want
			want  []int
		}{
			{"priorities across wants", []storage.Want{want(9, "a", "x"), want(9, "b", "x")}, []int{2, 4, 1, 3, 0, 5}},
			{"so many of each", []storage.Want{want(1, "a", "x"), want(2, "b", "x")}, []int{2, 4, 3}},
			{"none of one", []storage.Want{want(0, "a", "x"), want(1, "b", "x"), want(-1, "b", "y")}, []int{4}},
			{"two for the same jobs", []storage.Want{want(1, "a", "x"), want(1, "a", "x", "y"), want(1, "b", "x")}, []int{2, 4, 6}},
			{"the first that has room", []storage.Want{want(2, "a", "x", "y"), want(1, "a", "y")}, []int{2, 6}},
			{"one with all, one with none", []storage.Want{want(3, "a", "x", "y"), want(9, "c", "x")}, []int{2, 6, 1}},
		} {
			ids := f.add(job("a", "x", 0), job("a", "x", 2), job("a", "x", 4), job("b", "x", 1), job("b", "x", 3), job("b", "x", 0), job("a", "y", 3))
			leased := f.exchange(f.s, storage.Exchange{Wants: c.wants}).Leased
			f.order(c.what, leasedIDs(leased), pick(ids, c.want...))
			for _, id := range ids {
				f.cancel(id)
			}
			f.finishAll(f.s, leased...)
		}
	}},

	{"lease_lanes", `Want is jobs that a worker can take: ready jobs of these kinds in these queues, at most N.
Of those that are due and match any of them, the highest priority goes first, then the earliest due, then the first enqueued.`, func(f *fixture) {
		random := rand.New(rand.NewPCG(1, 2))
		src := storage.Want{Queues: []string{"a", "b", "c"}, Kinds: []string{"x", "y"}}
		var jobs []storage.NewJob
		for range 60 {
			jobs = append(jobs, newJob(
				lane(src.Queues[random.IntN(3)], src.Kinds[random.IntN(2)]),
				priority(random.IntN(3)), dueAt(f.now.Add(-time.Duration(random.IntN(4))*time.Second)),
			))
		}
		var want []int
		for i := range jobs {
			want = append(want, i)
		}
		slices.SortStableFunc(want, func(i, j int) int {
			return cmp.Or(cmp.Compare(jobs[j].Priority, jobs[i].Priority), jobs[i].DueAt.Compare(jobs[j].DueAt))
		})
		ids := f.add(jobs...)
		var got []storage.ID
		for len(got) < len(ids) {
			leased := f.exchange(f.s, storage.Exchange{Wants: wants(7, src)}).Leased
			if len(leased) != min(7, len(ids)-len(got)) {
				f.Fatalf("%d were leased of %d that waited", len(leased), len(ids)-len(got))
			}
			got = append(got, leasedIDs(leased)...)
		}
		f.order("leased", got, pick(ids, want...))
	}},

	{"lease_others", `Jobs of other kinds, other queues or held lanes cost it nothing.
Hold stops leasing from a lane, also one that has no job yet, until the hold is over or released.`, func(f *fixture) {
		f.pause("paused", true)
		f.pause("paused", true)
		others := f.add(
			newJob(lane(queue, "other"), priority(9)), newJob(lane("other", kind), priority(9)), newJob(lane("paused", kind), priority(9)),
		)
		ids := f.add(newJob())
		src := storage.Want{Queues: []string{queue, "paused", "unheard of"}, Kinds: []string{kind, "unheard of"}}
		lease := func() []storage.ID {
			return leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(9, src)}).Leased)
		}
		f.order("leased", lease(), ids)
		f.is(storage.Ready, others...)
		f.pause("paused", false)
		f.order("leased after resuming", lease(), pick(others, 2))
		f.pause("paused", false)
		f.pause(queue, true)
		more := f.add(newJob())
		f.order("leased from a paused queue", lease(), nil)
		f.pause(queue, false)
		f.order("leased after resuming", lease(), more)
		f.order("leased from nowhere", leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(9, storage.Want{Queues: []string{}, Kinds: []string{}})}).Leased), nil)
	}},

	{"lease_held_running", `Running jobs go on.`, func(f *fixture) {
		l := f.run(f.s)
		f.pause(queue, true)
		if r := f.extend(f.s, l.Lease); r != storage.Applied {
			f.Errorf("extending in a paused queue returned %d", r)
		}
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.is(storage.Done, l.ID)
	}},

	{"lease_due_boundary", `ready if DueAt is not after now, else scheduled.
A job due at or before now becomes ready, one due later scheduled, unless its group blocks it.`, func(f *fixture) {
		id := f.add(newJob(dueAt(f.now.Add(time.Second))))
		f.later(time.Second - time.Microsecond)
		f.order("leased a microsecond early", leasedIDs(f.lease(f.s, 1)), nil)
		f.is(storage.Scheduled, id...)
		f.later(time.Microsecond)
		f.order("leased when due", leasedIDs(f.lease(f.s, 1)), id)
	}},

	{"lease_promotion", `If an N is positive, due scheduled jobs of the lanes that match a Want are made ready before: all of them, or a bounded number of the earliest.
If some are left, NextDue is not after now, and the next Exchange gets further.`, func(f *fixture) {
		most := within(1000, f.db.Bounds().Promoted)
		n := most + most*3/10 + 1
		var jobs []storage.NewJob
		for i := range n {
			// The last enqueued is due first.
			jobs = append(jobs, newJob(dueAt(f.now.Add(time.Hour-time.Duration(i)*time.Second))))
		}
		ids := f.add(jobs...)
		slices.Reverse(ids)
		f.later(2 * time.Hour)
		f.exchange(f.s, storage.Exchange{})
		f.counts(count(storage.Scheduled, int64(n)))
		res := f.exchange(f.s, storage.Exchange{Wants: wants(most)})
		f.order("leased", leasedIDs(res.Leased), ids[:most])
		if left := n - within(n, f.db.Bounds().Promoted); left > 0 && (res.NextDue.IsZero() || res.NextDue.After(f.now)) {
			f.Errorf("with jobs left that are due NextDue is %v", res.NextDue)
		}
		f.order("leased then", leasedIDs(f.lease(f.s, most)), ids[most:])
	}},

	{"lease_promotion_others", `A Store that is no [Promoter] does both for the jobs of all lanes.`, func(f *fixture) {
		f.pause("paused", true)
		due := f.now.Add(time.Second)
		ids := f.add(newJob(lane("other", kind), dueAt(due)), newJob(lane(queue, "other"), dueAt(due)), newJob(lane("paused", kind), dueAt(due)), newJob(dueAt(due.Add(1))))
		f.later(time.Second)
		f.exchange(f.s, storage.Exchange{Extend: []storage.Lease{{Key: 1, Token: 1}}})
		f.is(storage.Scheduled, ids...)
		f.lease(f.s, 1)
		f.is(storage.Ready, ids[:3]...)
		f.is(storage.Scheduled, ids[3])
	}},

	{"lease_promotion_priority", `the highest priority goes first, then the earliest due, then the first enqueued.`, func(f *fixture) {
		ids := f.add(newJob(), newJob(dueAt(f.now.Add(time.Second)), priority(1)), newJob(dueAt(f.now.Add(time.Second))))
		f.later(time.Minute)
		more := f.add(newJob())
		f.order("leased", leasedIDs(f.lease(f.s, 9)), []storage.ID{ids[1], ids[0], ids[2], more[0]})
	}},

	{"lease_next_due", `NextDue is the earliest time at which a scheduled job is due
It is zero if nothing is to come, or if nothing was wanted.`, func(f *fixture) {
		next := func(want int) time.Time {
			f.Helper()
			return f.exchange(f.s, storage.Exchange{Wants: wants(want)}).NextDue
		}
		is := func(want time.Time) {
			f.Helper()
			if got := next(1); !got.Equal(want) || want.IsZero() != got.IsZero() {
				f.Errorf("NextDue is %v, want %v", got, want)
			}
		}
		f.add(newJob())
		is(time.Time{})
		at := f.now.Add(time.Hour)
		f.add(newJob(dueAt(at)))
		is(at)
		if got := next(0); !got.IsZero() {
			f.Errorf("NextDue is %v though nothing was wanted", got)
		}
		f.pause("paused", true)
		f.add(newJob(dueAt(at.Add(-time.Minute)), lane("paused", "other")))
		is(at.Add(-time.Minute))
		f.now = at.Add(-time.Minute)
		is(at)
		f.now = at
		is(time.Time{})
	}},

	{"lease_counters", `A lease raises the job's attempt by one.
Leased is a job with the lease on it.`, func(f *fixture) {
		n := storage.NewJob{
			Queue: queue, Kind: kind, Priority: 7, DueAt: f.now.Add(-time.Second), Timeout: time.Minute,
			Args: []byte("args"), Headers: []byte("headers"), Policy: []byte("policy"),
		}
		l := f.run(f.s, func(j *storage.NewJob) { *j = n })
		created := f.now
		if l.Key != l.ID.Key() || l.Queue != queue || l.Kind != kind || l.Priority != 7 || l.Counters != (storage.Counters{Attempt: 1}) ||
			!l.CreatedAt.Equal(created) || !l.DueAt.Equal(n.DueAt) || l.Timeout != n.Timeout ||
			string(l.Args) != "args" || string(l.Headers) != "headers" || string(l.Policy) != "policy" {
			f.Errorf("leased %+v", l)
		}
		r := f.record(l.ID)
		if r.State != storage.Running || r.Counters != l.Counters || r.Cancelling || string(r.Policy) != "policy" {
			f.Errorf("the running job is %+v", r)
		}
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		if got := f.leaseOne(f.s); got.Counters != (storage.Counters{Attempt: 2, Retry: 1}) || got.ID != l.ID {
			f.Errorf("the second attempt has counters %+v", got.Counters)
		}
	}},

	{"lease_bytes", `Leasing stops with the job that brings the args, headers and checkpoints of all together to [LeaseBytes]`, func(f *fixture) {
		sized := func(n int) storage.NewJob {
			return newJob(func(j *storage.NewJob) { j.Args = make([]byte, n) })
		}
		half := sized(storage.LeaseBytes / 2)
		ids := f.add(sized(storage.LeaseBytes+1), half, half, newJob(), newJob())
		f.order("leased", leasedIDs(f.lease(f.s, 9)), ids[:1])
		f.order("leased", leasedIDs(f.lease(f.s, 9)), ids[1:3])
		f.order("leased", leasedIDs(f.lease(f.s, 9)), ids[3:])
		ids = f.add(newJob(lane("other", kind)), half, sized(storage.LeaseBytes), newJob())
		other := storage.Want{Queues: []string{"other"}, Kinds: []string{kind}}
		both := f.exchange(f.s, storage.Exchange{Wants: append(wants(9), wants(9, other)...)}).Leased
		f.order("leased for two wants", leasedIDs(both), ids[:3])
		f.finishAll(f.s, f.lease(f.s, 1)...)
		w := f.offer(f.s, usual, 9)
		more := f.add(sized(storage.LeaseBytes), newJob())
		w.took("what is within bounds", more[0])
		f.is(storage.Ready, more[1])
	}},

	{"lease_once", `Exchange is one round of a worker: it extends leases, then finishes jobs, then begins and ends holds, then makes due scheduled jobs ready and leases ready ones.
Wants are the jobs to lease.`, func(f *fixture) {
		f.add(times(5, newJob())...)
		other := f.db.Open()
		a, b := f.lease(f.s, 2), f.lease(other, 9)
		if len(a) != 2 || len(b) != 3 {
			f.Errorf("two instances leased %d and %d of 5 jobs, want 2 and 3", len(a), len(b))
		}
		seen := map[int64]bool{}
		for _, l := range slices.Concat(a, b) {
			if seen[l.Key] {
				f.Errorf("job %d was leased twice", l.Key)
			}
			seen[l.Key] = true
		}
		f.counts(count(storage.Running, 5))
		// A job finished in an exchange can be leased in the same one.
		res := f.exchange(f.s, storage.Exchange{
			Finish: []storage.Finish{{Lease: a[0].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now}}, Wants: wants(5),
		})
		f.order("leased", leasedIDs(res.Leased), pick(leasedIDs(a), 0))
		if r := f.extend(f.s, a[0].Lease); r != storage.Lost {
			f.Errorf("the lease before returned %d, want lost", r)
		}
	}},

	{"lease_origin", `Origin is that of the job, as its tags say, see [OriginOf].`, func(f *fixture) {
		want := storage.Origin{Device: "pi", ID: "a:17"}
		tags := append([]string{"red", "errand.parent:17"}, storage.FromTags(want)...)
		has := func(when string, l storage.Leased) {
			f.Helper()
			if l.Origin != want {
				f.Errorf("%s: the job comes from %v, want %v", when, l.Origin, want)
			}
		}
		l := f.run(f.s, tagged(tags...))
		has("first", l)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		l = f.leaseOne(f.s)
		has("as it is retried", l)
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.did("redrive", f.redrive(named(l.ID), ""), 1, nil, nil)
		l = f.leaseOne(f.s)
		has("redriven", l)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		holder := f.db.Open()
		l = f.run(holder, tagged(tags...), func(n *storage.NewJob) { n.Args = noise(5000) })
		f.db.Reboot(holder)
		got := f.takes(f.s, 0, l.Lease, storage.Cut)
		has("reclaimed", got.Leased)
		f.apply(f.s, storage.Finish{Lease: got.Lease, Outcome: storage.OutcomeDone})
		want = storage.Origin{}
		has("of no origin", f.run(f.s, tagged("red", storage.FromTags(storage.Origin{Device: "pi"})[0])))
		has("without tags", f.run(f.s))
	}},
}
