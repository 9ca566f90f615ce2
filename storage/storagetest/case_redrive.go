package storagetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// redrive redrives in steps until there is no further one.
func (f *fixture) redrive(sel storage.Selection, to string) storage.Step {
	f.Helper()
	return takeSteps(f, sel, func(sel storage.Selection) (storage.Step, error) { return f.s.Redrive(f.ctx, f.now, sel, to) })
}

func (f *fixture) purgeDead(sel storage.Selection) storage.Step {
	f.Helper()
	return takeSteps(f, sel, func(sel storage.Selection) (storage.Step, error) { return f.s.Delete(f.ctx, sel) })
}

// takeSteps takes all steps of a change of many jobs.
func takeSteps(t interface {
	Helper()
	must(err error)
	Fatalf(format string, args ...any)
}, sel storage.Selection, call func(storage.Selection) (storage.Step, error),
) (sum storage.Step) {
	t.Helper()
	for range 1000 {
		step, err := call(sel)
		t.must(err)
		sum.N += step.N
		sum.Duplicates = append(sum.Duplicates, step.Duplicates...)
		sum.NotFound = append(sum.NotFound, step.NotFound...)
		sum.Live = append(sum.Live, step.Live...)
		if step.Next == (storage.Position{}) {
			return sum
		}
		sel.After, sel.Through = step.Next, step.Through
	}
	t.Fatalf("the steps have no end")
	return sum
}

// did checks what a redrive or purge did.
func (f *fixture) did(what string, got storage.Step, n int, duplicates, notFound []storage.ID) {
	f.Helper()
	if got.N != n || !slices.Equal(got.Duplicates, duplicates) || !slices.Equal(got.NotFound, notFound) {
		f.Errorf("%s: %d, duplicates %v, not found %v; want %d, %v, %v", what, got.N,
			keysOf(got.Duplicates), keysOf(got.NotFound), n, keysOf(duplicates), keysOf(notFound))
	}
}

var redriveCases = []testCase{
	{"redrive_record", `Redrive puts dead jobs back to work: ready and due now, or blocked by their group. They go to queue, or, if that is empty, to their own. Retry index, crashes and snoozes begin at zero; attempts, token and history are kept.
Redriven is true if the job was dead once, and redriven.`, func(f *fixture) {
		for _, to := range []string{"", "other"} {
			l := f.run(f.s, priority(3), dueAt(f.now.Add(-time.Minute)), unique("key "+to), func(n *storage.NewJob) {
				n.Policy, n.Headers, n.Timeout = []byte("own"), []byte("h"), time.Second
			})
			for _, o := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed} {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now, Failure: &storage.NewFailure{Error: "x"}})
				l = f.leaseOne(f.s)
			}
			if l.Redriven {
				f.Errorf("Redriven is true before: %+v", l)
			}
			f.apply(f.s, died(l.Lease, storage.ReasonCrashed, "no"))
			want := f.record(l.ID)
			if want.Retry == 0 || want.Crashes == 0 || want.Snoozes == 0 || len(want.History) != 4 {
				f.Fatalf("the dead job is %+v", want)
			}
			f.later(time.Minute)
			f.did("redrive", f.redrive(storage.Selection{IDs: []storage.ID{l.ID}}, to), 1, nil, nil)
			want.State, want.DueAt, want.EndedAt = storage.Ready, f.now, time.Time{}
			want.Counters, want.Reason, want.Policy = storage.Counters{Attempt: 4}, "", []byte("own")
			if to != "" {
				want.Queue = to
			}
			f.same("the redriven job", f.record(l.ID), want)
			again := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{want.Queue}, Kinds: []string{kind}})}).Leased
			if len(again) != 1 || again[0].ID != l.ID || again[0].Attempt != 5 || again[0].Token <= l.Token || !again[0].Redriven {
				f.Errorf("leased again: %+v", again)
			}
		}
		f.counts(count(storage.Running, 1), storage.Count{Queue: "other", Kind: kind, State: storage.Running, N: 1})
	}},

	{"redrive_ids", `Selection is what a change of many jobs is about: the jobs named by IDs
NotFound are the IDs of jobs that are not there, or in a state that the call is not for.`, func(f *fixture) {
		all := f.morgue()
		live := f.add(newJob())[0]
		gone := storage.NewID(f.now, 1, 99999)
		alike := storage.NewID(f.now, all[2].ID.Salt()+1, all[2].Key)
		got := f.redrive(storage.Selection{IDs: []storage.ID{all[3].ID, live, all[7].ID, gone, alike}}, "")
		f.did("redrive", got, 2, nil, []storage.ID{live, gone, alike})
		f.is(storage.Ready, all[3].ID, all[7].ID, live)
		f.did("redrive again", f.redrive(storage.Selection{IDs: []storage.ID{all[3].ID}}, ""), 0, nil, []storage.ID{all[3].ID})
		if n := len(f.deadList(storage.Filter{}, 100)); n != 10 {
			f.Errorf("%d are still dead, want 10", n)
		}
	}},

	{"redrive_filters", `or, if there are none, those that match Filter and come after After, the earliest first.`, func(f *fixture) {
		f.narrow(f.morgue(), storage.Ready, func(sel storage.Selection) storage.Step { return f.redrive(sel, "") })
	}},

	{"redrive_after", `those that match Filter and come after After, the earliest first.`, func(f *fixture) {
		all := f.morgue()
		after := storage.Position{At: all[5].EndedAt, Key: all[5].Key} // the next died at the same time
		f.did("redrive after", f.redrive(storage.Selection{After: after}, "q"), 6, nil, nil)
		f.is(storage.Dead, recordIDs(all[:6])...)
		f.is(storage.Ready, recordIDs(all[6:])...)
	}},

	{"redrive_steps", `One call is one bounded step: see [Step].
A step over a filter holds the writer for a bounded time and may leave jobs to later steps: call again with After set to Next, until Next is zero. Set Filter.EndedBefore, so that a job that dies again meanwhile is not met twice.
N is how many jobs were put back, deleted, made ready, changed or cancelled.`, func(f *fixture) {
		const n = 1100
		f.add(times(n, newJob())...)
		var finish []storage.Finish
		for _, l := range f.lease(f.s, n) {
			finish = append(finish, died(l.Lease, storage.ReasonPermanent, "no"))
		}
		f.exchange(f.s, storage.Exchange{Finish: finish})
		f.counts(count(storage.Dead, n))
		f.later(time.Second)
		sel := storage.Selection{Filter: storage.Filter{EndedBefore: f.now}}
		f.did("redrive", f.redrive(sel, ""), n, nil, nil)
		f.counts(count(storage.Ready, n))
		finish = nil
		for _, l := range f.lease(f.s, n) {
			finish = append(finish, died(l.Lease, storage.ReasonPermanent, "no"))
		}
		f.exchange(f.s, storage.Exchange{Finish: finish})
		f.did("redrive of what died before", f.redrive(sel, ""), 0, nil, nil)
		f.did("purge", f.purgeDead(storage.Selection{}), n, nil, nil)
		f.counts()
	}},

	{"redrive_duplicates", `A job whose unique key another job holds stays dead and is reported as a duplicate.
Duplicates stayed dead because another job holds their unique key.`, func(f *fixture) {
		dead := f.bury(storage.ReasonPermanent, "no", unique("a"))
		f.later(time.Second)
		free := f.bury(storage.ReasonPermanent, "no", unique("b"))
		holder := f.add(newJob(unique("a"), dueAt(f.now.Add(time.Hour))))[0]
		before := f.record(dead)
		f.did("redrive by ids", f.redrive(storage.Selection{IDs: []storage.ID{dead}}, ""), 0, []storage.ID{dead}, nil)
		f.did("redrive by filter", f.redrive(storage.Selection{}, ""), 1, []storage.ID{dead}, nil)
		f.same("the duplicate", f.record(dead), before)
		f.is(storage.Ready, free)
		f.cancel(holder)
		f.did("redrive once the key is free", f.redrive(storage.Selection{}, ""), 1, nil, nil)
		f.is(storage.Ready, dead)
	}},

	{"redrive_takes_key", `UniqueLive holds the key until the job is finished or dead.
A job whose unique key another job holds stays dead and is reported as a duplicate.`, func(f *fixture) {
		first := f.bury(storage.ReasonPermanent, "no", unique("a"))
		f.later(time.Second)
		second := f.bury(storage.ReasonPermanent, "no", unique("a"))
		f.did("redrive of two with one key", f.redrive(storage.Selection{}, ""), 1, []storage.ID{second}, nil)
		if e := f.enqueue(newJob(unique("a")))[0]; e != (storage.Enqueued{ID: first, Duplicate: true}) {
			f.Errorf("the redriven job does not hold its key: %v", e)
		}
		l := f.leaseOne(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.did("redrive of the other", f.redrive(storage.Selection{}, ""), 1, nil, nil)
	}},

	{"redrive_forever", `UniqueForever holds the key until Store.ReleaseUnique frees it.`, func(f *fixture) {
		dead := f.bury(storage.ReasonPermanent, "no", unique("a"), forever)
		f.did("redrive of the key's holder", f.redrive(storage.Selection{IDs: []storage.ID{dead}}, ""), 1, nil, nil)
		l := f.leaseOne(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		if e := f.enqueue(newJob(unique("a")))[0]; e != (storage.Enqueued{ID: dead, Duplicate: true, Gone: true}) {
			f.Errorf("the key was released: %v", e)
		}
		// A dead job with a key that was live when it was enqueued, and is held
		// for ever by another since.
		other := f.bury(storage.ReasonPermanent, "no", unique("b"))
		f.add(newJob(unique("b"), forever))
		f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.did("redrive", f.redrive(storage.Selection{IDs: []storage.ID{other}}, ""), 0, []storage.ID{other}, nil)
	}},

	{"redrive_edit", `Edit, if not nil, changes the jobs that are redriven, as Change does and in the transaction that puts them back.
A job that stays dead stays as it is.`, func(f *fixture) {
		e := storage.Edit{Priority: new(7), Policy: []byte("new"), Args: []byte("two")}
		with := func(sel storage.Selection) storage.Selection {
			sel.Edit = &e
			return sel
		}
		for _, size := range []int{1, 5000} {
			dead := f.bury(storage.ReasonPermanent, "no", args(strings.Repeat("1", size)), rich)
			was := f.record(dead)
			f.did("redrive", f.redrive(with(named(dead)), ""), 1, nil, nil)
			got := f.record(dead)
			if got.State != storage.Ready || got.Queue != queue || got.Priority != 7 || string(got.Policy) != "new" || string(got.Args) != "two" {
				f.Errorf("the redriven job is %+v", got)
			}
			last := got.History[len(got.History)-1]
			if last.Phase != storage.PhaseEdited || !bytes.Equal(last.Args, was.Args) || last.Attempt != 1 || !last.At.Equal(f.now) {
				f.Errorf("the last entry of the history is %+v, want one with the args before", last)
			}
			f.did("redrive of a ready job", f.redrive(with(named(dead)), ""), 0, nil, []storage.ID{dead})
			f.same("the ready job", f.record(dead), got)
			l := f.leaseOne(f.s)
			if l.ID != dead || string(l.Args) != "two" || string(l.Policy) != "new" {
				f.Errorf("leased: %+v", l)
			}
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		held := f.bury(storage.ReasonPermanent, "no", unique("a"))
		f.later(time.Second)
		free := f.bury(storage.ReasonPermanent, "no", grouped("g"))
		holder := f.add(newJob(unique("a"), dueAt(f.now.Add(time.Hour))))[0]
		before := f.record(held)
		f.did("redrive by filter", f.redrive(with(storage.Selection{}), "other"), 1, []storage.ID{held}, nil)
		f.same("the duplicate", f.record(held), before)
		if got := f.record(free); got.State != storage.Ready || got.Queue != "other" || string(got.Args) != "two" {
			f.Errorf("the job of a group is %+v", got)
		}
		f.cancel(holder)
	}},
}

// narrow calls act with one filter after the other, the narrow ones first,
// each of which takes those jobs of the morgue that it chooses to state.
func (f *fixture) narrow(all []storage.Record, state storage.State, act func(storage.Selection) storage.Step) {
	f.Helper()
	left := slices.Clone(all)
	for _, c := range slices.Backward(filters(all)) {
		chosen := recordIDs(pick(all, c.want...))
		var taken []storage.ID
		left = slices.DeleteFunc(left, func(r storage.Record) bool {
			take := slices.Contains(chosen, r.ID)
			if take {
				taken = append(taken, r.ID)
			}
			return take
		})
		f.did(fmt.Sprintf("%+v", c.Filter), act(storage.Selection{Filter: c.Filter}), len(taken), nil, nil)
		f.is(state, taken...)
		f.is(storage.Dead, recordIDs(left)...)
	}
}

var purgeCases = []testCase{
	{"purge_dead", `Delete deletes dead and finished jobs for good, with all that belongs to them.
N is how many jobs were put back, deleted, made ready, changed or cancelled.`, func(f *fixture) {
		all := f.morgue()
		f.add(newJob())
		f.did("purge by ids", f.purgeDead(storage.Selection{IDs: []storage.ID{all[0].ID, all[11].ID}}), 2, nil, nil)
		f.is("", all[0].ID, all[11].ID)
		f.did("again", f.purgeDead(storage.Selection{IDs: []storage.ID{all[0].ID}}), 0, nil, []storage.ID{all[0].ID})
		f.did("purge of all", f.purgeDead(storage.Selection{}), 10, nil, nil)
		f.counts(count(storage.Ready, 1))
	}},

	{"purge_dead_filters", `those that match Filter and come after After, the earliest first.`, func(f *fixture) {
		f.narrow(f.morgue(), "", f.purgeDead)
		f.counts()
	}},

	{"purge_dead_after", `those that match Filter and come after After, the earliest first.`, func(f *fixture) {
		all := f.morgue()
		after := storage.Position{At: all[8].EndedAt, Key: all[8].Key}
		f.did("purge", f.purgeDead(storage.Selection{After: after}), 3, nil, nil)
		f.is(storage.Dead, recordIDs(all[:9])...)
		f.is("", recordIDs(all[9:])...)
	}},

	{"purge_finished", `PurgeFinished deletes finished jobs whose time to be kept is over, in one bounded step. It returns how many it deleted, and when to call it again: now if the time of more jobs is over, zero if no finished job is kept.`, func(f *fixture) {
		purge := func(n int, next time.Time) {
			f.Helper()
			sum := 0
			for range 1000 {
				got, again, err := f.s.PurgeFinished(f.ctx, f.now)
				f.must(err)
				sum += got
				if !again.Equal(f.now) {
					if sum != n || !again.Equal(next) || next.IsZero() != again.IsZero() {
						f.Errorf("PurgeFinished returned %d and %v, want %d and %v", sum, again, n, next)
					}
					return
				}
				if got == 0 {
					f.Fatalf("PurgeFinished deleted nothing, though there is more")
				}
			}
			f.Fatalf("PurgeFinished has no end")
		}
		purge(0, time.Time{})
		start := f.now
		var ids []storage.ID
		for _, after := range []time.Duration{3 * time.Minute, time.Minute, 2 * time.Minute} {
			l := f.run(f.s)
			f.keep(after, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			ids = append(ids, l.ID)
		}
		waiting := f.add(newJob(), newJob(dueAt(f.now)))
		dead := f.bury(storage.ReasonPermanent, "no", lane("other", kind))
		if s, err := f.s.Cancel(f.ctx, f.now, waiting[0], kept(90*time.Second)); s != storage.Cancelled || err != nil {
			f.Fatalf("Cancel returned %v, %v", s, err)
		}
		purge(0, start.Add(time.Minute))
		f.later(time.Minute - time.Microsecond)
		purge(0, start.Add(time.Minute))
		f.later(time.Microsecond)
		purge(1, start.Add(90*time.Second))
		f.is("", ids[1])
		f.is(storage.Done, ids[0], ids[2])
		f.now = start.Add(2 * time.Minute)
		purge(2, start.Add(3*time.Minute))
		f.is("", ids[2], waiting[0])
		f.later(time.Hour)
		purge(1, time.Time{})
		f.is(storage.Ready, waiting[1])
		f.is(storage.Dead, dead)

		const n = 1100
		f.add(times(n, newJob())...)
		var finish []storage.Finish
		for _, l := range f.lease(f.s, n+1) {
			finish = append(finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		f.exchange(f.s, storage.Exchange{Finish: finish, Retention: kept(time.Second)})
		f.later(time.Second)
		purge(n+1, time.Time{})
		f.counts(storage.Count{Queue: "other", Kind: kind, State: storage.Dead, N: 1})
	}},
}
