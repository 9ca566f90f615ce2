package storagetest

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// on gives a job the key "a" and says what becomes of it if that is held.
func on(mode storage.ConflictMode, changes ...func(*storage.Conflict)) func(*storage.NewJob) {
	return func(n *storage.NewJob) {
		n.Unique, n.Conflict = "a", &storage.Conflict{Mode: mode}
		for _, change := range changes {
			change(n.Conflict)
		}
	}
}

func fresh(c *storage.Conflict) { c.Fresh = true }

func quiet(d, most time.Duration) func(*storage.Conflict) {
	return func(c *storage.Conflict) { c.Quiet, c.MaxWait = d, most }
}

func content(text string) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.Args = []byte(text) }
}
func uniqueFor(d time.Duration) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.Unique, n.UniqueFor = "a", d }
}

var replacing = []storage.ConflictMode{storage.Replace, storage.Debounce, storage.After}

// answers checks the answer to a job with the key "a".
func (f *fixture) answers(what string, want storage.Enqueued, changes ...func(*storage.NewJob)) {
	f.Helper()
	f.answered(what, f.enqueue(newJob(append([]func(*storage.NewJob){unique("a")}, changes...)...))[0], want)
}

// answered compares answers, also by what args are to be made of.
func (f *fixture) answered(what string, got, want storage.Enqueued) {
	f.Helper()
	if !reflect.DeepEqual(got, want) {
		f.Errorf("%s: the answer is %+v with %+v, want %+v with %+v", what, got, got.Unmerged, want, want.Unmerged)
	}
}

var conflictCases = []testCase{
	{"conflict_replaces", `Replace has the args, headers and priority of the new job take the place of those of the waiting job.
Its ID, its place, its queue, its policy, its timeout, its tags, its counters and its history stay, and nothing is added to its history; the answer is a duplicate with Replaced that names it.`, func(f *fixture) {
		for _, size := range []int{1, 5000} {
			for _, due := range []time.Duration{0, time.Hour} {
				was := newJob(on(storage.Replace), func(n *storage.NewJob) {
					n.Delay, n.Policy, n.Timeout, n.Tags = due, []byte("{}"), time.Minute, []string{"red"}
				})
				id := f.add(was)[0]
				want := f.record(id)
				f.later(time.Second)
				want.Args, want.Headers, want.Priority = slices.Repeat([]byte("x"), size), []byte("new"), 7
				f.answers("waiting", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(storage.Replace), func(n *storage.NewJob) {
					n.Queue, n.Args, n.Headers, n.Priority, n.Tags, n.Timeout = "elsewhere", want.Args, want.Headers, 7, []string{"blue"}, time.Second
				})
				f.same("the job", f.record(id), want)
				f.answers("without headers", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(storage.Replace))
				if r := f.record(id); string(r.Args) != string(newJob().Args) || r.Headers != nil || r.Priority != 0 {
					f.Errorf("the job has args %q, headers %q and priority %d", r.Args, r.Headers, r.Priority)
				}
				f.answers("heavy again", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(storage.Replace), content(string(want.Args)))
				f.cancel(id)
			}
		}
	}},

	{"conflict_keep", `Keep keeps the job that holds the key: the answer is a duplicate that names this job.`, func(f *fixture) {
		id := f.add(newJob(unique("a")))[0]
		want := f.record(id)
		f.answers("kept", storage.Enqueued{ID: id, Duplicate: true}, on(storage.Keep), content(`"new"`))
		f.same("the job", f.record(id), want)
	}},

	{"conflict_urgent", `A waiting job is put off to Quiet after now, never to an earlier time than it had`, func(f *fixture) {
		id := f.add(newJob(unique("a")))[0]
		f.runNow(storage.Selection{IDs: []storage.ID{id}}, storage.Waiting{})
		f.answers("put off", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(storage.Debounce, quiet(time.Minute, 0)))
		f.order("leased at once", leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(1), Urgent: 1}).Leased), nil)
		f.due("put off", id, f.now.Add(time.Minute))
	}},

	{"conflict_place", `A ready job goes to the place that it would have had with its new priority from the start.`, func(f *fixture) {
		ids := f.add(newJob(on(storage.Replace)), newJob(), newJob(priority(1)))
		f.lease(f.s, 0)
		f.answers("ready", storage.Enqueued{ID: ids[0], Duplicate: true, Replaced: true}, on(storage.Replace), priority(2), content(`"new"`))
		got := f.lease(f.s, 9)
		f.order("leased", leasedIDs(got), pick(ids, 0, 2, 1))
		if string(got[0].Args) != `"new"` || got[0].Priority != 2 {
			f.Errorf("leased with args %s and priority %d", got[0].Args, got[0].Priority)
		}
	}},

	{"conflict_one_call", `Replace has the args, headers and priority of the new job take the place of those of the waiting job.
Merge has a job replaced only if its args are still those that the new args were made of.
Then are jobs to enqueue, in the same transaction and in this order`, func(f *fixture) {
		for what, call := range map[string]func(jobs ...storage.NewJob) []storage.Enqueued{
			"Enqueue": f.enqueue,
			"Then": func(jobs ...storage.NewJob) []storage.Enqueued {
				fin := storage.Finish{Lease: f.run(f.s).Lease, Outcome: storage.OutcomeDone, Then: jobs}
				return f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{fin}}).Then[0]
			},
		} {
			first := newJob(unique("a"), content(`"first"`))
			out := call(first, newJob(on(storage.Replace), content(`"second"`), priority(7), func(n *storage.NewJob) { n.Headers = []byte("h") }))
			f.answered(what, out[1], storage.Enqueued{ID: out[0].ID, Duplicate: true, Replaced: true})
			if r := f.record(out[0].ID); string(r.Args) != `"second"` || string(r.Headers) != "h" || r.Priority != 7 {
				f.Errorf("%s: the job has args %s, headers %q and priority %d", what, r.Args, r.Headers, r.Priority)
			}
			f.cancel(out[0].ID)
			merge := on(storage.Replace, func(c *storage.Conflict) { c.Merge = &storage.Merge{} })
			out = call(first, newJob(merge, content(`"second"`)))
			f.answered(what+", made of none", out[1], storage.Enqueued{ID: out[0].ID, Duplicate: true, Unmerged: &storage.Unmerged{Found: first.Args}})
			f.cancel(out[0].ID)
		}
	}},

	{"conflict_behind", `A job that is leased does not wait, even if its handler was not called yet: it may have been read.
If no job waits and the holder is live, these three modes insert the new job behind the holder, as the waiting job. It is [Blocked] until the holder has ended as done, cancelled, expired or dead, or was deleted; a holder that is put back has not ended. In the same transaction the job then takes over the key.
It is ready then if it was due when it was inserted or changed last, else scheduled.`, func(f *fixture) {
		for _, mode := range replacing {
			for what, end := range map[string]storage.Finish{
				"done": {Outcome: storage.OutcomeDone}, "cancelled": {Outcome: storage.OutcomeCancelled}, "dead": died(storage.Lease{}, storage.ReasonExhausted, "no"),
			} {
				l := f.run(f.s, unique("a"))
				id := f.add(newJob(on(mode, quiet(time.Second, 0))))[0]
				for _, o := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeInterrupted, storage.OutcomeReturned} {
					before := f.record(l.ID)
					f.answers("behind", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(mode, quiet(time.Second, 0)), content(o.String()))
					f.same("the holder", f.record(l.ID), before)
					f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now.Add(time.Minute)})
					f.is(storage.Blocked, id)
					f.answers("put back", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(mode, quiet(time.Second, 0)), content(o.String()))
					f.answers("kept", storage.Enqueued{ID: l.ID, Duplicate: true})
					f.later(time.Minute)
					got := f.lease(f.s, 9)
					if len(got) != 1 || got[0].ID != l.ID {
						f.Fatalf("%s: leased %v, want the holder", what, got)
					}
					l = got[0]
				}
				f.answers("last", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(mode, quiet(time.Second, 0)), content("last"))
				end.Lease = l.Lease
				f.keep(keep, f.s, end)
				if mode == storage.Debounce {
					f.is(storage.Scheduled, id)
					f.later(time.Second)
				} else {
					f.is(storage.Ready, id)
				}
				f.answers("holder", storage.Enqueued{ID: id, Duplicate: true})
				if l = f.leaseOne(f.s); l.ID != id || string(l.Args) != "last" {
					f.Errorf("%s: leased %v with args %q, want %v with the last ones", what, l.ID, l.Args, id)
				}
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				f.cancel(f.add(newJob(unique("a")))[0])
			}
		}
	}},

	{"conflict_behind_ends", `A holder that has died and is redriven finds its key held.
The same holds behind a live holder with a UniqueFor.
If the job waits behind the holder of its unique key, Head is that holder.`, func(f *fixture) {
		l := f.run(f.s, unique("a"))
		id := f.add(newJob(on(storage.After)))[0]
		if page, err := f.s.Jobs(f.ctx, storage.Filter{States: []storage.State{storage.Blocked}}, "", 9); err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != id {
			f.Errorf("the list of blocked jobs has %v, %v", page.Jobs, err)
		}
		if a, err := f.s.Ahead(f.ctx, id, 9); err != nil || a.Head != l.ID {
			f.Errorf("ahead of it is %+v, %v", a, err)
		}
		_, err := f.s.RunNow(f.ctx, f.now, storage.Selection{IDs: []storage.ID{id}}, storage.Waiting{First: true})
		f.must(err)
		_, err = f.s.Change(f.ctx, f.now, storage.Selection{IDs: []storage.ID{id}}, storage.Edit{DueAt: f.now})
		f.must(err)
		f.is(storage.Blocked, id)
		f.cancel(id)
		f.answers("when it is cancelled", storage.Enqueued{ID: l.ID, Duplicate: true})
		id = f.add(newJob(on(storage.After)))[0]
		if _, err := f.s.ReleaseUnique(f.ctx, "a"); err != nil {
			f.Errorf("ReleaseUnique: %v", err)
		}
		f.keep(keep, f.s, died(l.Lease, storage.ReasonExhausted, "no"))
		f.is(storage.Ready, id)
		if step, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{l.ID}}, ""); err != nil || len(step.Duplicates) != 1 {
			f.Errorf("Redrive returns %+v, %v", step, err)
		}
		f.cancel(id)

		began := f.now
		l = f.run(f.s, uniqueFor(time.Minute))
		id = f.add(newJob(on(storage.Replace)))[0]
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		if r := f.record(id); r.State != storage.Scheduled || !r.DueAt.Equal(began.Add(time.Minute)) {
			f.Errorf("the next is %s, due at %v", r.State, r.DueAt)
		}
		f.cancel(id)
	}},

	{"conflict_kept", `The holder is kept instead if it has the key for ever and does not wait, or if it is live, no job waits and the new job has a Group.`, func(f *fixture) {
		l := f.run(f.s, unique("a"))
		f.answers("with a group", storage.Enqueued{ID: l.ID, Duplicate: true}, on(storage.Replace), func(n *storage.NewJob) { n.Group = "g" })
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		l = f.run(f.s, unique("a"), forever)
		f.answers("for ever", storage.Enqueued{ID: l.ID, Duplicate: true}, on(storage.Replace))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		if _, err := f.s.ReleaseUnique(f.ctx, "a"); err != nil {
			f.Errorf("ReleaseUnique: %v", err)
		}

		l = f.run(f.s, unique("a"), forever)
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		for _, mode := range append(replacing, storage.Keep) {
			f.answers("for ever", storage.Enqueued{ID: l.ID, Duplicate: true}, on(mode, quiet(time.Second, 0)))
		}
	}},

	{"conflict_after", `After is Replace for a job of which no attempt has begun.
The waiting job is the holder of the key while it is scheduled, ready or blocked; for After, only if no attempt of it has begun.`, func(f *fixture) {
		l := f.run(f.s, unique("a"))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeReturned})
		f.answers("returned", storage.Enqueued{ID: l.ID, Duplicate: true, Replaced: true}, on(storage.After), content(`"new"`))
		l = f.leaseOne(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		f.answers("in retry", storage.Enqueued{ID: l.ID, Duplicate: true, Replaced: true}, on(storage.Replace))
		before := f.record(l.ID)
		id := f.add(newJob(on(storage.After), content(`"newest"`)))[0]
		f.same("the job in retry", f.record(l.ID), before)
		f.is(storage.Blocked, id)
	}},

	{"conflict_fresh", `Fresh begins the retries, crashes and snoozes of a waiting job at zero. If an attempt has put it off, it is due now, or as Debounce says.`, func(f *fixture) {
		for _, d := range []time.Duration{0, time.Second} {
			l := f.run(f.s, unique("a"))
			fin := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour), Failure: &storage.NewFailure{Error: "no"}}
			f.apply(f.s, fin)
			mode, c := storage.Replace, quiet(0, 0)
			if d > 0 {
				mode, c = storage.Debounce, quiet(d, 0)
			}
			f.answers("in retry", storage.Enqueued{ID: l.ID, Duplicate: true, Replaced: true}, on(mode, c))
			if r := f.record(l.ID); r.Retry != 1 || r.State != storage.Scheduled || !r.DueAt.Equal(fin.DueAt) {
				f.Errorf("the job is %s, due at %v, with %d retries; want as it was", r.State, r.DueAt, r.Retry)
			}
			f.answers("fresh", storage.Enqueued{ID: l.ID, Duplicate: true, Replaced: true}, on(mode, c, fresh))
			r := f.record(l.ID)
			if r.Counters != (storage.Counters{Attempt: 1}) || len(r.History) != 1 || !r.DueAt.Equal(f.now.Add(d)) || r.State == storage.Ready != (d == 0) {
				f.Errorf("the fresh job is %s, due at %v, with counters %+v and %d failures", r.State, r.DueAt, r.Counters, len(r.History))
			}
			f.cancel(l.ID)
		}
		for _, o := range []storage.Outcome{storage.OutcomeCrashed, storage.OutcomeSnooze} {
			l := f.run(f.s, unique("a"))
			f.back(l, o, f.now.Add(time.Hour))
			f.answers(o.String(), storage.Enqueued{ID: l.ID, Duplicate: true, Replaced: true}, on(storage.Replace, fresh))
			if r := f.record(l.ID); r.Counters != (storage.Counters{Attempt: 1}) {
				f.Errorf("after %v a fresh job has counters %+v", o, r.Counters)
			}
			f.cancel(l.ID)
		}
		id := f.add(newJob(unique("a"), delay(time.Hour)))[0]
		f.answers("delayed", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, on(storage.Replace, fresh))
		if r := f.record(id); !r.DueAt.Equal(f.now.Add(time.Hour)) {
			f.Errorf("a delayed job is due at %v, want as it was", r.DueAt)
		}
	}},

	{"conflict_debounce", `Quiet is how long after now a job that Debounce inserts is due
A waiting job is put off to Quiet after now, never to an earlier time than it had, and at most to MaxWait after its enqueue.
If MaxWait is zero, there is no such limit.`, func(f *fixture) {
		due := func(what string, id storage.ID, want time.Time, state storage.State) {
			f.Helper()
			if r := f.record(id); !r.DueAt.Equal(want) || r.State != state {
				f.Errorf("%s: the job is %s, due at %v; want %s, %v", what, r.State, r.DueAt, state, want)
			}
		}
		for _, most := range []time.Duration{0, 25 * time.Second} {
			mode, began := on(storage.Debounce, quiet(10*time.Second, most)), f.now
			id := f.add(newJob(mode))[0]
			replaced := storage.Enqueued{ID: id, Duplicate: true, Replaced: true}
			due("inserted", id, f.now.Add(10*time.Second), storage.Scheduled)
			f.later(9 * time.Second)
			f.answers("again", replaced, mode)
			due("again", id, f.now.Add(10*time.Second), storage.Scheduled)
			f.answers("with less", replaced, on(storage.Debounce, quiet(time.Second, most)))
			due("with less", id, f.now.Add(10*time.Second), storage.Scheduled)
			f.later(9 * time.Second)
			f.answers("late", replaced, mode)
			want := f.now.Add(10 * time.Second)
			if most > 0 {
				want = began.Add(most)
			}
			due("late", id, want, storage.Scheduled)
			f.later(want.Sub(f.now) - time.Microsecond)
			if got := f.lease(f.s, 1); len(got) != 0 {
				f.Errorf("a job was leased a microsecond early")
			}
			f.later(time.Microsecond)
			f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"none"}, Kinds: []string{kind}})})
			due("ready", id, want, storage.Ready)
			f.answers("ready", replaced, mode)
			if most > 0 {
				due("at last", id, want, storage.Ready)
			} else {
				due("without a limit", id, f.now.Add(10*time.Second), storage.Scheduled)
			}
			f.cancel(id)
		}
	}},

	{"conflict_fail", `Fail refuses the call with a [DuplicateError].
Nothing was written. It unwraps to [ErrDuplicate].`, func(f *fixture) {
		id := f.add(newJob(on(storage.Fail)))[0]
		for _, jobs := range [][]storage.NewJob{{newJob(on(storage.Fail))}, {newJob(), newJob(on(storage.Fail)), newJob()}} {
			_, err := f.s.Enqueue(f.ctx, f.now, jobs)
			var d *storage.DuplicateError
			if !errors.As(err, &d) || !errors.Is(err, storage.ErrDuplicate) || d.ID != id || d.Index != len(jobs)/2 || d.Gone {
				f.Errorf("%d jobs: the error is %#v", len(jobs), err)
			}
		}
		f.counts(count(storage.Ready, 1))
		f.cancel(id)
		if _, err := f.s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob(unique("a")), newJob(on(storage.Fail))}); !errors.Is(err, storage.ErrDuplicate) {
			f.Errorf("a duplicate in one call returns %v", err)
		}
		f.cancel(f.add(newJob(on(storage.Fail)))[0])
		// Nor has the time of the key begun anew.
		l := f.run(f.s, uniqueFor(time.Minute))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.later(-time.Hour)
		if _, err := f.s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob(on(storage.Fail))}); !errors.Is(err, storage.ErrDuplicate) {
			f.Errorf("after the clock was set back: %v", err)
		}
		f.later(time.Hour + time.Minute - time.Microsecond)
		f.answers("after a call that was refused", storage.Enqueued{ID: l.ID, Duplicate: true, Gone: true})
	}},

	{"conflict_merge", `Merge has a job replaced only if its args are still those that the new args were made of. Old are these; nil if no job waited. Otherwise nothing is changed. The answer is then a duplicate that names the holder if there is one, with an [Unmerged].
Found []byte // the args of the waiting job; nil if no job waits
The Store does not change it.`, func(f *fixture) {
		try := func(what, old, found string, again bool, want string) {
			f.Helper()
			m := &storage.Merge{}
			if old != "" {
				m.Old = []byte(old)
			}
			n := newJob(on(storage.Replace, func(c *storage.Conflict) { c.Merge = m }), content(`"new"`))
			out, err := f.s.Enqueue(f.ctx, f.now, []storage.NewJob{n}) // which may name no job
			f.must(err)
			e := out[0]
			if string(m.Old) != old || (m.Old == nil) != (old == "") {
				f.Errorf("%s: Old is %q now", what, m.Old)
			}
			answer := storage.Enqueued{ID: e.ID, Duplicate: again || old != "", Replaced: !again && old != ""}
			if again {
				answer.Unmerged = &storage.Unmerged{}
			}
			if found != "" {
				answer.Unmerged.Found = []byte(found)
			}
			f.answered(what, e, answer)
			page, err := f.s.Jobs(f.ctx, storage.Filter{States: []storage.State{storage.Ready, storage.Running}}, "", 9)
			f.must(err)
			have := ""
			if len(page.Jobs) > 0 {
				have = string(f.record(page.Jobs[0].ID).Args)
			}
			if len(page.Jobs) > 1 || have != want {
				f.Errorf("%s: there are %d jobs, with args %s; want %s", what, len(page.Jobs), have, want)
			}
		}
		try("none waits", "x", "", true, "")
		try("none waits", "", "", false, `"new"`)
		try("one waits", "", `"new"`, true, `"new"`)
		try("another waits", "x", `"new"`, true, `"new"`)
		try("it waits", `"new"`, "", false, `"new"`)
		l := f.leaseOne(f.s)
		try("it was leased", `"new"`, "", true, `"new"`)
		f.add(newJob(on(storage.Replace, func(c *storage.Conflict) { c.Merge = &storage.Merge{} }), content(`"newest"`)))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}},

	{"conflict_merge_large", `Merge has a job replaced only if its args are still those that the new args were made of.`, func(f *fixture) {
		large := slices.Repeat([]byte("1"), 5000)
		id := f.add(newJob(unique("a"), content(string(large))))[0]
		m := &storage.Merge{}
		merge := on(storage.Replace, func(c *storage.Conflict) { c.Merge = m })
		f.answers("made of none", storage.Enqueued{ID: id, Duplicate: true, Unmerged: &storage.Unmerged{Found: large}}, merge)
		m.Old = large
		f.answers("made of it", storage.Enqueued{ID: id, Duplicate: true, Replaced: true}, merge)
	}},
}
