package storagetest

import (
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

var jobCases = []testCase{
	{"job_not_found", `It returns [ErrNotFound] if there is none.
It returns [ErrNotFound] if there is no such job.
ErrNotFound: no job has this ID`, func(f *fixture) {
		id := f.add(newJob())[0]
		other := storage.NewID(f.now, id.Salt()+1, id.Key())
		for _, id := range []storage.ID{{}, storage.NewID(f.now, 1, 12345), other} {
			if _, err := f.s.Job(f.ctx, id); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("Job(%v) returned %v, want ErrNotFound", id, err)
			}
			if _, err := f.s.Cancel(f.ctx, f.now, id, kept(keep)); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("Cancel(%v) returned %v, want ErrNotFound", id, err)
			}
		}
		f.is(storage.Ready, id)
	}},

	{"job_cancel_waiting", `Cancel ends a scheduled, ready or blocked job as cancelled, kept as keep says.
It returns the state of the job after the call: of a job that had ended already, the state in which it ended.`, func(f *fixture) {
		ids := f.add(newJob(), newJob(dueAt(f.now.Add(time.Hour))), newJob(), newJob(dueAt(f.now.Add(time.Hour))))
		f.later(time.Second)
		for _, id := range ids[:2] {
			for range 2 {
				if s := f.cancel(id); s != storage.Cancelled {
					f.Errorf("Cancel returned %q, want cancelled", s)
				}
			}
			if r := f.record(id); r.State != storage.Cancelled || !r.EndedAt.Equal(f.now) || r.Attempt != 0 {
				f.Errorf("the cancelled job is %+v", r)
			}
		}
		for _, id := range ids[2:] {
			if s, err := f.s.Cancel(f.ctx, f.now, id, kept(0)); s != storage.Cancelled || err != nil {
				f.Errorf("Cancel returned %q, %v, want cancelled", s, err)
			}
			f.is("", id)
		}
		f.counts(count(storage.Cancelled, 2))
		f.later(2 * time.Hour)
		f.order("leased", leasedIDs(f.lease(f.s, 9)), nil)
		if n, _, err := f.s.PurgeFinished(f.ctx, f.now); n != 2 || err != nil {
			f.Errorf("PurgeFinished returned %d, %v; want the two that were kept", n, err)
		}
	}},

	{"job_cancel_running", `For a running job it notes the wish: the holder learns of it with its next extension
Cancelling is true of a running job that was asked to stop.`, func(f *fixture) {
		a := f.db.Open()
		l := f.run(a)
		for range 2 {
			if s := f.cancel(l.ID); s != storage.Running {
				f.Errorf("Cancel returned %q, want running", s)
			}
		}
		if r := f.record(l.ID); r.State != storage.Running || !r.Cancelling || !r.EndedAt.IsZero() {
			f.Errorf("the job is %+v, want running and cancelling", r)
		}
		if r := f.extend(a, l.Lease); r != storage.Cancelling {
			f.Errorf("extending returned %d, want cancelling", r)
		}
		f.keep(keep, a, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCancelled, Error: "stopped"})
		if r := f.record(l.ID); r.State != storage.Cancelled || r.Cancelling || r.Error != "stopped" {
			f.Errorf("the job is %+v, want cancelled", r)
		}
	}},

	{"job_cancel_ended", `of a job that had ended already, the state in which it ended.`, func(f *fixture) {
		dead := f.bury(storage.ReasonPermanent, "no")
		l := f.run(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		if s := f.cancel(dead); s != storage.Dead {
			f.Errorf("Cancel of a dead job returned %q", s)
		}
		if s := f.cancel(l.ID); s != storage.Done {
			f.Errorf("Cancel of a done job returned %q", s)
		}
		f.is(storage.Dead, dead)
		f.is(storage.Done, l.ID)
	}},

	{"job_counts", `Counts returns the number of jobs by queue, kind and state, without rows for zero, sorted by these three.
They are exact, unless the Store documents that they may lag behind`, func(f *fixture) {
		f.counts()
		row := func(q, k string, s storage.State, n int64) storage.Count {
			return storage.Count{Queue: q, Kind: k, State: s, N: n}
		}
		f.add(newJob(lane("b", "y")), newJob(lane("a", "y"), dueAt(f.now.Add(time.Hour))), newJob(lane("b", "x")), newJob(lane("a", "y")), newJob(lane("a", "y")))
		f.counts(
			row("a", "y", storage.Ready, 2), row("a", "y", storage.Scheduled, 1),
			row("b", "x", storage.Ready, 1), row("b", "y", storage.Ready, 1),
		)
		l := f.exchange(f.s, storage.Exchange{Wants: wants(9, storage.Want{Queues: []string{"a", "b"}, Kinds: []string{"y"}})}).Leased
		f.counts(
			row("a", "y", storage.Running, 2), row("a", "y", storage.Scheduled, 1),
			row("b", "x", storage.Ready, 1), row("b", "y", storage.Running, 1),
		)
		for _, l := range l {
			switch l.Queue {
			case "b":
				f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
			default:
				f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			}
		}
		f.counts(
			row("a", "y", storage.Done, 2), row("a", "y", storage.Scheduled, 1),
			row("b", "x", storage.Ready, 1), row("b", "y", storage.Dead, 1),
		)
		_, err := f.s.Redrive(f.ctx, f.now, storage.Selection{}, "c")
		f.must(err)
		f.later(2 * time.Hour)
		_, _, err = f.s.PurgeFinished(f.ctx, f.now)
		f.must(err)
		f.lease(f.s, 1)
		f.counts(
			row("a", "y", storage.Ready, 1), row("b", "x", storage.Ready, 1), row("c", "y", storage.Ready, 1),
		)
	}},
}
