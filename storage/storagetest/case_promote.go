package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// promoter returns f.s as a [storage.Promoter], or skips the case.
func (f *fixture) promoter() storage.Promoter {
	f.Helper()
	p, ok := f.s.(storage.Promoter)
	if !ok {
		f.skip("storage.Promoter")
	}
	return p
}

// inLanes returns a job of each change in each of three lanes.
func inLanes(changes ...func(*storage.NewJob)) (out []storage.NewJob) {
	for _, l := range []storage.Lane{{Queue: queue, Kind: kind}, {Queue: queue, Kind: "other"}, {Queue: "other", Kind: kind}} {
		for _, change := range changes {
			out = append(out, newJob(lane(l.Queue, l.Kind), change))
		}
	}
	return out
}

// promotes is one Promote, or as many as are asked for, and checks which jobs end.
func (f *fixture) promotes(p storage.Promotion, want ...storage.ID) storage.Promoted {
	f.Helper()
	got := f.promote(f.promoter(), p)
	f.expired(storage.ExchangeResult{Expired: got.Expired}, want...)
	return got
}

var promoteCases = []testCase{
	{"promote_own_lanes", `due scheduled jobs of the lanes that match a Want are made ready before
Then jobs of these lanes end that have passed their StartBy or Deadline`, func(f *fixture) {
		for _, want := range []storage.Want{
			{Queues: []string{queue}, Kinds: []string{kind, "other"}},
			{Queues: []string{queue[:1] + "*", "none"}, Kinds: []string{"other", kind}},
		} {
			due := f.add(inLanes(delay(time.Minute))[:2]...)
			late := f.add(inLanes(startWithin(time.Minute))[:2]...)
			f.later(time.Minute)
			x := storage.Exchange{LeaseDuration: hold, Retention: kept(keep), Wants: wants(9, want)}
			res, err := f.s.Exchange(f.ctx, f.now, x)
			f.must(err)
			f.order("leased", leasedIDs(res.Leased), due)
			f.expired(res, late...)
			f.is(storage.Expired, late...)
			f.finishAll(f.s, res.Leased...)
		}
	}},

	{"promote_next_due_of_own_lanes", `NextDue is the earliest time at which a scheduled job is due
A Store that is a [Promoter] may leave out jobs of lanes that match no Want.`, func(f *fixture) {
		f.add(newJob(delay(3*time.Minute)), newJob(startWithin(2*time.Minute)), newJob(lane(queue, "other"), delay(5*time.Minute)))
		f.pause(queue, true)
		start := f.now
		for _, m := range []time.Duration{2, 3} {
			res, err := f.s.Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: hold, Wants: wants(1)})
			f.must(err)
			if f.now = start.Add(m * time.Minute); !res.NextDue.Equal(f.now) {
				f.Errorf("NextDue is %v, want %v", res.NextDue, f.now)
			}
		}
	}},

	{"promote_all_lanes", `Promote does for the jobs of all lanes what an Exchange that leases does before it leases: due scheduled jobs are made ready, and jobs end that have passed their StartBy or Deadline.
It leases nothing, and ends no job before its time.
Expired are the jobs that ended at their StartBy or Deadline, in any order.`, func(f *fixture) {
		p := storage.Promotion{Retention: kept(keep)}
		due := f.add(inLanes(delay(time.Minute))...)
		late := f.add(inLanes(startWithin(time.Minute))...)
		dead := f.add(inLanes(finishWithin(time.Minute))...)
		soon := f.add(inLanes(delay(time.Minute + time.Microsecond))...)
		waits := f.add(inLanes(startWithin(time.Minute + time.Microsecond))...)
		f.pause("other", true)
		f.later(time.Minute - time.Microsecond)
		f.promotes(p)
		f.is(storage.Scheduled, slices.Concat(due, soon)...)
		f.is(storage.Ready, slices.Concat(late, dead, waits)...)
		f.later(time.Microsecond)
		got := f.promotes(p, slices.Concat(late, dead)...)
		f.is(storage.Ready, slices.Concat(due, waits)...)
		f.is(storage.Scheduled, soon...)
		f.is(storage.Expired, late...)
		f.is(storage.Dead, dead...)
		for _, e := range got.Expired {
			r := f.record(e.ID)
			if e.Queue != r.Queue || e.Kind != r.Kind || e.State != r.State || e.Reason != r.Reason || e.Error != r.Error || !e.CreatedAt.Equal(r.CreatedAt) {
				f.Errorf("told of %+v, want %+v", e, r)
			}
		}
		f.later(keep)
		if n, _, err := f.s.PurgeFinished(f.ctx, f.now); n != len(late) || err != nil {
			f.Errorf("PurgeFinished deleted %d jobs (%v), want %d", n, err, len(late))
		}
		f.promotes(storage.Promotion{}, waits...) // without Retention
		f.is("", waits...)
	}},

	{"promote_follow", `Each field means what that of an [Exchange] does.
Follow, if not nil, returns what to enqueue when a job dies at its StartBy or Deadline, in the same transaction; nil for nothing.`, func(f *fixture) {
		f.promoter()
		ids := f.add(newJob(startWithin(time.Minute), diesUnstarted), newJob(startWithin(time.Minute)), newJob(lane("other", kind), finishWithin(time.Minute)))
		f.later(time.Minute)
		then, created := newJob(lane("other", "notice")), f.record(ids[0]).CreatedAt
		f.add(then) // whose lane is news
		p := storage.Promotion{Retention: kept(keep), Follow: func(e *storage.ExpiredJob) *storage.NewJob {
			if e.ID == ids[0] && e.CreatedAt.Equal(created) || e.State == storage.Expired {
				return &then
			}
			return nil
		}}
		f.promotes(p, ids...)
		notices := storage.Count{Queue: "other", Kind: "notice", State: storage.Ready, N: 2}
		f.counts(count(storage.Dead, 1), count(storage.Expired, 1), notices, storage.Count{Queue: "other", Kind: kind, State: storage.Dead, N: 1})
	}},

	{"promote_follow_notified", `Notify makes the Store call f after each commit, of this process or another, that may concern a worker.`, func(f *fixture) {
		f.promoter()
		id := f.add(newJob(finishWithin(time.Minute)))[0]
		f.later(time.Minute)
		then := newJob()
		p := storage.Promotion{Follow: func(*storage.ExpiredJob) *storage.NewJob { return &then }}
		told := false
		if n, ok := f.s.(storage.Notifier); ok {
			defer n.Notify(func(e storage.Event) { told = told || e.Due.IsZero() || !e.Due.After(f.now) })()
			f.promotes(p, id)
			if !told {
				f.Errorf("nobody was told of what follows a death")
			}
		}
	}},

	{"promote_next", `Next is when to call Promote again: at the earliest time at which a scheduled job is due, or a waiting job reaches its StartBy or Deadline. It is now if more jobs are due or late, and zero if nothing is to come.`, func(f *fixture) {
		start := f.now
		is := func(what string, want time.Time) {
			f.Helper()
			if got := f.promote(f.promoter(), storage.Promotion{}).Next; !got.Equal(want) || want.IsZero() != got.IsZero() {
				f.Errorf("%s: Next is %v, want %v", what, got, want)
			}
		}
		is("at first", time.Time{})
		f.add(newJob(lane("other", kind), startWithin(2*time.Minute)), newJob(delay(3*time.Minute)), newJob(lane(queue, "other"), finishWithin(4*time.Minute)))
		for _, m := range []time.Duration{2, 3, 4} {
			is("before", start.Add(m*time.Minute))
			f.now = start.Add(m*time.Minute - time.Microsecond)
			is("still", start.Add(m*time.Minute))
			f.now = start.Add(m * time.Minute)
		}
		is("at last", time.Time{})
	}},

	{"promote_step", `One call is one bounded step, and at least one job if there is any.
It is now if more jobs are due or late`, func(f *fixture) {
		const n = 1300
		p := f.promoter()
		due, late := f.add(times(n, newJob(delay(time.Second)))...), f.add(times(n, newJob(lane("other", kind), startWithin(time.Second)))...)
		f.later(time.Second)
		ended, left := 0, int64(n)
		for left > 0 || ended < n {
			step, err := p.Promote(f.ctx, f.now, storage.Promotion{})
			f.must(err)
			counts, err := f.s.Counts(f.ctx)
			f.must(err)
			before := left
			left = 0
			for _, c := range counts {
				if c.State == storage.Scheduled {
					left += c.N
				}
			}
			ended += len(step.Expired)
			if len(step.Expired) == 0 && left == before {
				f.Fatalf("a step does nothing, with %d due and %d late", left, n-ended)
			}
			if more := left > 0 || ended < n; more != step.Next.Equal(f.now) {
				f.Fatalf("Next is %v at %v, with %d due and %d late", step.Next, f.now, left, n-ended)
			}
		}
		f.is(storage.Ready, due...)
		f.is("", late...)
	}},

	{"promote_in_doubt", `StartWithin and FinishWithin begin anew with the first Exchange that leases, or Promote, that is not Doubtful.
A StartBy or Deadline that began with a Doubtful now counts only once it has begun anew.`, func(f *fixture) {
		doubtful := storage.Promotion{Doubtful: true}
		ids := f.add(inLanes(inDoubt, startWithin(time.Minute), func(n *storage.NewJob) { n.Doubtful, n.FinishWithin = true, time.Minute })...)
		for i := range ids { // each of three lanes has one without windows, and one in no doubt
			if i%3 == 2 {
				f.windowed(ids[i], time.Time{}, f.now.Add(time.Minute))
			}
		}
		f.later(time.Minute)
		if next := f.promotes(doubtful, ids[1], ids[4], ids[7]).Next; !next.IsZero() {
			f.Errorf("Next is %v though nothing counts", next)
		}
		f.is(storage.Ready, ids[2], ids[5], ids[8])
		f.promotes(storage.Promotion{})
		for _, id := range []storage.ID{ids[2], ids[5], ids[8]} {
			f.windowed(id, time.Time{}, f.now.Add(time.Minute))
		}
		f.later(time.Minute)
		f.promotes(doubtful, ids[2], ids[5], ids[8])
	}},

	{"promote_lets_in", `Promote does for the jobs of all lanes what an Exchange that leases does before it leases`, func(f *fixture) {
		grouped := func(n *storage.NewJob) { n.Group = "g" }
		late, next := f.add(newJob(grouped, startWithin(time.Minute)))[0], f.add(newJob(grouped, lane(queue, "other")))[0]
		f.is(storage.Blocked, next)
		f.later(time.Minute)
		f.promotes(storage.Promotion{}, late)
		f.is(storage.Ready, next)
	}},
}
