package storagetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// checkpoint keeps data for the job of a lease, and checks the answer.
func (f *fixture) checkpoint(s storage.Store, l storage.Lease, data string, want storage.ItemResult) {
	f.Helper()
	f.says(s, storage.Checkpoint{Lease: l, Data: []byte(data)}, want)
}

// says is checkpoint with all that there is to say.
func (f *fixture) says(s storage.Store, c storage.Checkpoint, want storage.ItemResult) {
	f.Helper()
	r, err := s.Checkpoint(f.ctx, c)
	f.able(err)
	if err != nil || r != want {
		f.Errorf("Checkpoint returned %d, %v; want %d", r, err, want)
	}
}

// reached checks where a job has got to; "" means nowhere.
func (f *fixture) reached(what string, id storage.ID, want string) {
	f.Helper()
	f.resumes(what, f.record(id).Checkpoint, want)
}

// resumes checks what a checkpoint is that was returned, and belongs to the caller.
func (f *fixture) resumes(what string, got []byte, want string) {
	f.Helper()
	if string(got) != want || (got == nil) != (want == "") {
		f.Errorf("%s: the checkpoint is %s, want %.300q", what, show(got), want)
	}
	clear(got)
}

// stopped enqueues a job and leases it to f.s, which says where it has got to.
func (f *fixture) stopped(data string, changes ...func(*storage.NewJob)) storage.Leased {
	f.Helper()
	l := f.run(f.s, changes...)
	f.checkpoint(f.s, l.Lease, data, storage.Applied)
	return l
}

// buried is stopped, and the job dies.
func (f *fixture) buried(data string, changes ...func(*storage.NewJob)) storage.ID {
	f.Helper()
	l := f.stopped(data, changes...)
	f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
	return l.ID
}

// putBack are the outcomes that put a job back.
var putBack = []storage.Outcome{
	storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeInterrupted, storage.OutcomeReturned, storage.OutcomeUnavailable,
}

var checkpointCases = []testCase{
	{"checkpoint_kept", `Checkpoint keeps the data of a leased job, in place of what was kept before. The next lease of the job has it, whatever ends this one
Checkpoint is what Checkpoint has kept; nil: nothing.
Slices passed in belong to the caller again when the call returns; slices returned belong to the caller.`, func(f *fixture) {
		l := f.run(f.s)
		f.resumes("at first", l.Checkpoint, "")
		f.reached("at first", l.ID, "")
		f.later(time.Second)
		for _, large := range []string{"", string(noise(5000))} {
			for _, o := range putBack {
				for _, due := range []time.Time{{}, f.now.Add(time.Minute)} {
					what, data := o.String(), fmt.Sprint(o, due.IsZero(), large)
					f.checkpoint(f.s, l.Lease, "replaced"+data, storage.Applied)
					given := []byte(data)
					f.says(f.s, storage.Checkpoint{Lease: l.Lease, Data: given}, storage.Applied)
					clear(given)
					f.reached("before "+what, l.ID, data)
					f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: due})
					f.reached("after "+what, l.ID, data)
					if !due.IsZero() {
						f.later(time.Minute)
					}
					l = f.leaseOne(f.s)
					f.resumes("leased after "+what, l.Checkpoint, data)
					f.back(l, storage.OutcomeRetry, f.now) // without a word
					l = f.leaseOne(f.s)
					f.resumes("leased again after "+what, l.Checkpoint, data)
				}
			}
		}
		f.counts(count(storage.Running, 1))
	}},

	{"checkpoint_held", `The next lease of the job has it, whatever ends this one`, func(f *fixture) {
		l := f.stopped("page 2")
		f.pause(queue, true)
		f.back(l, storage.OutcomeReturned, time.Time{})
		f.later(time.Hour)
		if got := f.lease(f.s, 9); len(got) != 0 {
			f.Fatalf("leased %v from a lane that is held", got)
		}
		f.reached("held", l.ID, "page 2")
		f.runNow(named(l.ID), anyRun)
		got := f.exchange(f.s, storage.Exchange{Wants: wants(1), Urgent: 1}).Leased
		if len(got) != 1 {
			f.Fatalf("%d urgent jobs were leased", len(got))
		}
		f.resumes("urgent", got[0].Checkpoint, "page 2")
		f.back(got[0], storage.OutcomeRetry, f.now)
		f.pause(queue, false)
		f.resumes("released", f.leaseOne(f.s).Checkpoint, "page 2")
	}},

	{"checkpoint_reclaimed", `The next lease of the job has it, whatever ends this one
when it returns nil all of it is durable`, func(f *fixture) {
		for what, die := range map[string]func(storage.Store){"killed": f.db.Kill, "rebooted": f.db.Reboot} {
			holder := f.db.Open()
			l := f.begun(holder)
			f.checkpoint(holder, l.Lease, what, storage.Applied)
			f.reached("running", l.ID, what)
			die(holder)
			fate := storage.Crashed
			if what == "rebooted" {
				fate = storage.Cut
			}
			got := f.takes(f.s, 0, l.Lease, fate)
			f.resumes("taken from one that was "+what, got.Checkpoint, what)
			f.apply(f.s, storage.Finish{Lease: got.Lease, Outcome: storage.OutcomeCrashed, DueAt: f.now})
			again := f.leaseOne(f.s)
			f.resumes("leased again", again.Checkpoint, what)
			f.apply(f.s, storage.Finish{Lease: again.Lease, Outcome: storage.OutcomeDone})
		}
	}},

	{"checkpoint_durable", `when it returns nil all of it is durable`, func(f *fixture) {
		other := f.db.Open()
		l := f.stopped("page 2")
		r, err := other.Job(f.ctx, l.ID)
		f.must(err)
		f.resumes("to another instance", r.Checkpoint, "page 2")
		f.must(f.s.Close())
		f.s = f.db.Open()
		f.reached("after opening again", l.ID, "page 2")
	}},

	{"checkpoint_dead", `A dead job keeps it, as does one that is redriven, unless [Selection].FromStart drops it.
FromStart drops the checkpoints of the jobs that are redriven.
Checkpoint is where a job has got to that is live or dead.`, func(f *fixture) {
		for _, sel := range []func(ids ...storage.ID) storage.Selection{named, func(...storage.ID) storage.Selection { return storage.Selection{} }} {
			for _, fromStart := range []bool{false, true} {
				free, taken := f.buried("free"), f.buried("taken", unique("key"))
				f.reached("dead", free, "free")
				holder := f.add(newJob(unique("key"), delay(time.Hour)))
				redriven := sel(free, taken)
				redriven.FromStart = fromStart
				f.did("redrive", f.redrive(redriven, ""), 1, []storage.ID{taken}, nil)
				f.reached("a job that stays dead", taken, "taken")
				want := "free"
				if fromStart {
					want = ""
				}
				f.reached("redriven", free, want)
				l := f.leaseOne(f.s)
				f.resumes("leased", l.Checkpoint, want)
				f.checkpoint(f.s, l.Lease, "anew", storage.Applied)
				f.reached("later", free, "anew")
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				f.cancel(holder[0])
				f.purgeDead(named(taken))
			}
		}
	}},

	{"checkpoint_ended", `until the job is done, cancelled or expired
Checkpoint is where a job has got to that is live or dead.`, func(f *fixture) {
		end := func(id storage.ID, state storage.State, want string) {
			f.Helper()
			f.is(state, id)
			f.reached(string(state), id, want)
		}
		l := f.stopped("x")
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		end(l.ID, storage.Done, "")
		l = f.stopped("x")
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCancelled})
		end(l.ID, storage.Cancelled, "")
		l = f.stopped("x")
		f.cancel(l.ID)
		f.reached("asked to stop", l.ID, "x")
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		end(l.ID, storage.Cancelled, "")
		l = f.stopped("x")
		f.back(l, storage.OutcomeRetry, f.now.Add(time.Hour))
		f.cancel(l.ID)
		end(l.ID, storage.Cancelled, "")
		for state, changes := range map[storage.State][]func(*storage.NewJob){
			storage.Expired: {startWithin(time.Minute), endsUnstarted}, storage.Dead: {startWithin(time.Minute), diesUnstarted},
		} {
			want := map[storage.State]string{storage.Dead: "x"}[state]
			l = f.stopped("x", changes...)
			f.back(l, storage.OutcomeReturned, time.Time{})
			f.later(time.Minute)
			f.ends(f.s, 1, l.ID)
			end(l.ID, state, want)
		}
	}},

	{"checkpoint_args", `until the job is done, cancelled or expired, [Edit].Args change its args
If they differ, the old ones are kept in an entry of the history, with PhaseEdited, the time of the call and the attempts so far. The entry is no failure: it is not the last error, and RunNow passes over it. The job has no checkpoint then.`, func(f *fixture) {
		dead := f.buried("x", args("1"))
		l := f.stopped("x", args("1"))
		f.back(l, storage.OutcomeRetry, f.now)
		for _, id := range []storage.ID{l.ID, dead} {
			f.changed(id, storage.Edit{Priority: new(3), Policy: []byte("{}")})
			f.changed(id, edited("1"))
			f.reached("with the same args", id, "x")
			f.changed(id, edited("2"))
			f.reached("with other args", id, "")
		}
		l = f.leaseOne(f.s)
		f.resumes("leased", l.Checkpoint, "")
		f.checkpoint(f.s, l.Lease, "y", storage.Applied)
		f.back(l, storage.OutcomeRetry, f.now.Add(time.Hour))
		f.changed(l.ID, edited("2"))
		f.reached("later, with the same args", l.ID, "y")
	}},

	{"checkpoint_replaced", `or another job replaces it, see [Conflict].
Its checkpoint is dropped.`, func(f *fixture) {
		for _, mode := range replacing {
			l := f.stopped("x", unique("a"))
			again := newJob(on(mode, quiet(time.Minute, 0)))
			behind := f.add(again)[0]
			f.reached("that runs", l.ID, "x")
			f.cancel(behind)
			f.back(l, storage.OutcomeReturned, time.Time{})
			duplicate := storage.Enqueued{ID: l.ID, Duplicate: true}
			f.answers("kept", duplicate, on(storage.Keep), content("new"))
			stale := &storage.Merge{Old: []byte("stale")}
			unmerged := duplicate
			unmerged.Unmerged = &storage.Unmerged{Found: again.Args}
			f.answers("of other args", unmerged, on(mode, func(c *storage.Conflict) { c.Merge = stale }))
			f.reached("that was not replaced", l.ID, "x")
			duplicate.Replaced = true
			f.answers("replaced", duplicate, on(mode, quiet(time.Minute, 0)))
			f.reached("that was replaced", l.ID, "")
			f.later(time.Minute)
			l = f.leaseOne(f.s)
			f.resumes("leased", l.Checkpoint, "")
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}},

	{"checkpoint_crashes", `The crashes of the job become zero if the data differ from what was kept before
What e leaves out is kept, as are the unique key, the counters, the token and the history.`, func(f *fixture) {
		l := f.run(f.s)
		crash := func() {
			f.Helper()
			f.back(l, storage.OutcomeCrashed, f.now)
			l = f.leaseOne(f.s)
		}
		crashes := func(what string, want int) {
			f.Helper()
			if r := f.record(l.ID); r.Crashes != want {
				f.Errorf("%s: the job has %d crashes, want %d", what, r.Crashes, want)
			}
		}
		crash()
		crash()
		f.checkpoint(f.s, l.Lease, "1", storage.Applied)
		crashes("the first", 0)
		crash()
		if l.Crashes != 1 {
			f.Errorf("leased with %d crashes after one", l.Crashes)
		}
		f.checkpoint(f.s, l.Lease, "1", storage.Applied)
		crashes("the same", 1)
		crash()
		f.checkpoint(f.s, l.Lease, "1", storage.Applied)
		crashes("the same again", 2)
		f.checkpoint(f.s, l.Lease, "2", storage.Applied)
		crashes("another", 0)
		f.back(l, storage.OutcomeRetry, f.now)
		f.changed(l.ID, edited("other args"))
		l = f.leaseOne(f.s)
		crash()
		f.checkpoint(f.s, l.Lease, "2", storage.Applied)
		crashes("the same after it was dropped", 0)
		if want := (storage.Counters{Attempt: 7, Retry: 1}); f.record(l.ID).Counters != want {
			f.Errorf("the counters are %+v, want %+v", f.record(l.ID).Counters, want)
		}
	}},

	{"checkpoint_resets", `at most [CheckpointResets] times in the life of the job.
CheckpointResets is how often checkpoints set the crashes of one job to zero.`, func(f *fixture) {
		l := f.run(f.s)
		for i := range storage.CheckpointResets + 1 { // which have nothing to set to zero
			f.checkpoint(f.s, l.Lease, fmt.Sprint("before ", i), storage.Applied)
		}
		crashed := func(n int) {
			f.Helper()
			f.back(l, storage.OutcomeCrashed, f.now)
			l = f.leaseOne(f.s)
			f.checkpoint(f.s, l.Lease, [...]string{"odd", "even"}[n%2], storage.Applied) // two in turn
		}
		for i := range storage.CheckpointResets {
			crashed(i)
			if r := f.record(l.ID); r.Crashes != 0 {
				f.Fatalf("after %d times the job has %d crashes", i, r.Crashes)
			}
		}
		for i := range 3 {
			crashed(i)
			if r := f.record(l.ID); r.Crashes != i+1 {
				f.Errorf("crash %d after the last time: the job has %d", i, r.Crashes)
			}
		}
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.redrive(storage.Selection{FromStart: true}, "")
		l = f.leaseOne(f.s)
		crashed(0)
		if r := f.record(l.ID); r.Crashes != 1 {
			f.Errorf("redriven, the job has %d crashes, want 1", r.Crashes)
		}
		other := f.run(f.s)
		f.back(other, storage.OutcomeCrashed, f.now)
		other = f.leaseOne(f.s)
		f.checkpoint(f.s, other.Lease, "odd", storage.Applied)
		if r := f.record(other.ID); r.Crashes != 0 {
			f.Errorf("another job has %d crashes", r.Crashes)
		}
	}},

	{"checkpoint_answers", `The answer is [Applied], or one of the other answers of LookTx, see [TxEnqueuer]: then nothing was kept.
It is [Lost] for a lease that another Store holds.`, func(f *fixture) {
		holder, before := f.db.Open(), "before"
		reclaimed := f.begun(holder)
		f.checkpoint(holder, reclaimed.Lease, before, storage.Applied)
		retried, ended, asked, gone := f.stopped(before), f.stopped(before), f.stopped(before), f.stopped(before)
		f.checkpoint(f.s, reclaimed.Lease, "of another", storage.Lost)
		f.reached("held by another", reclaimed.ID, before)
		f.db.Kill(holder)
		taken := f.takes(f.s, 0, reclaimed.Lease, storage.Crashed)
		f.back(retried, storage.OutcomeRetry, f.now.Add(time.Hour))
		f.apply(f.s, died(ended.Lease, storage.ReasonPermanent, "no"))
		f.apply(f.s, storage.Finish{Lease: gone.Lease, Outcome: storage.OutcomeDone})
		f.cancel(asked.ID)
		late := func(l storage.Lease, want storage.ItemResult) {
			f.Helper()
			f.says(f.s, storage.Checkpoint{Lease: l, Data: []byte("late"), Progress: &storage.Progress{Done: 1, At: f.now}}, want)
		}
		late(reclaimed.Lease, storage.Lost)
		late(retried.Lease, storage.Lost)
		late(ended.Lease, storage.Lost)
		late(gone.Lease, storage.Lost)
		late(storage.Lease{Key: 1 << 40, Token: 1 << 40}, storage.Lost)
		late(storage.Lease{Key: asked.Key, Token: retried.Token}, storage.Lost)
		late(asked.Lease, storage.Cancelling)
		for _, l := range []storage.Leased{reclaimed, retried, ended, asked} {
			f.reached("after its late holder", l.ID, before)
			if p := f.record(l.ID).Progress; p != nil {
				f.Errorf("after its late holder the progress is %+v", p)
			}
		}
		f.is("", gone.ID)
		f.checkpoint(f.s, taken.Lease, "of the next", storage.Applied)
		f.reached("reclaimed", reclaimed.ID, "of the next")
		f.keep(keep, f.s, storage.Finish{Lease: asked.Lease, Outcome: storage.OutcomeDone})
	}},

	{"checkpoint_bytes", `Leasing stops with the job that brings the args, headers and checkpoints of all together to [LeaseBytes]
LeaseBytes is how many bytes of args, headers and checkpoints one exchange leases: its last job is the one that reaches them.`, func(f *fixture) {
		var jobs []storage.Leased
		half := bytes.Repeat([]byte("x"), storage.LeaseBytes/2)
		for i := range 4 {
			l := f.run(f.s)
			if i < 2 {
				f.says(f.s, storage.Checkpoint{Lease: l.Lease, Data: half}, storage.Applied)
			}
			jobs = append(jobs, l)
		}
		for _, l := range jobs {
			f.back(l, storage.OutcomeReturned, time.Time{})
		}
		ids := leasedIDs(jobs)
		first := f.lease(f.s, 9)
		f.order("leased", leasedIDs(first), ids[:2])
		f.order("leased then", leasedIDs(f.lease(f.s, 9)), ids[2:])
		f.back(first[1], storage.OutcomeReturned, time.Time{})
		f.back(first[0], storage.OutcomeReturned, time.Time{})
		f.add(newJob())
		f.runNow(named(ids[0]), anyRun)
		got := f.exchange(f.s, storage.Exchange{Wants: wants(9), Urgent: 1}).Leased
		f.order("with an urgent one", leasedIDs(got), ids[:2])
	}},
}
