package storagetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// tags checks those of a job.
func (f *fixture) tags(id storage.ID, want ...string) {
	f.Helper()
	if got := f.record(id).Tags; !slices.Equal(got, want) {
		f.Errorf("a job that is %s has the tags %q, want %q", f.record(id).State, got, want)
	}
}

// society makes jobs in all states, one a second, and returns them in the order of a
// list, state by state. Those of the first three states are in other lanes than the
// others.
func (f *fixture) society() map[storage.State][]storage.ID {
	f.Helper()
	add := func(changes ...func(*storage.NewJob)) storage.ID {
		f.later(time.Second)
		return f.add(newJob(changes...))[0]
	}
	run := func(changes ...func(*storage.NewJob)) storage.Leased {
		f.later(time.Second)
		return f.run(f.s, changes...)
	}
	d1, d2, done, r1, r2 := run(), run(tagged("odd")), run(), run(tagged("odd", "r")), run()
	f.apply(f.s, died(d2.Lease, storage.ReasonExhausted, "Refused"))
	f.later(time.Second)
	f.apply(f.s, died(d1.Lease, storage.ReasonPermanent, "no"))
	f.keep(keep, f.s, storage.Finish{Lease: done.Lease, Outcome: storage.OutcomeDone})
	cancelled := add(tagged("odd"))
	f.cancel(cancelled)
	in := func(hours time.Duration) func(*storage.NewJob) { return dueAt(f.now.Add(hours * time.Hour)) }
	w5, w3, w1 := add(lane("b", "x")), add(lane("a", "x")), add(lane("a", "x"), priority(5), tagged("odd", "w"))
	w2, w4 := add(lane("a", "x"), in(-1)), add(lane("a", "y"), priority(9))
	s3, s1, s2 := add(lane("b", "x"), in(3)), add(lane("a", "x"), in(1), tagged("odd")), add(lane("a", "y"), in(2))
	return map[storage.State][]storage.ID{
		storage.Running: {r2.ID, r1.ID}, storage.Ready: {w1, w2, w3, w4, w5}, storage.Scheduled: {s1, s2, s3},
		storage.Dead: {d1.ID, d2.ID}, storage.Done: {done.ID}, storage.Cancelled: {cancelled},
	}
}

// inOrder returns the jobs of a society in the order of a list.
func inOrder(all map[storage.State][]storage.ID) []storage.ID {
	return slices.Concat(all[storage.Running], all[storage.Ready], all[storage.Scheduled], all[storage.Dead], all[storage.Cancelled], all[storage.Done])
}

// lists checks a list, in pages of several sizes.
func (f *fixture) lists(filter storage.Filter, want ...storage.ID) {
	f.Helper()
	for _, limit := range []int{1, 3, 100} {
		f.order(fmt.Sprintf("%+v in pages of %d", filter, limit), recordIDs(f.list(filter, limit)), want)
	}
}

var listCases = []testCase{
	{"list_order", `Any other list is in the order of states, and jobs of one state are in this order:
running          the highest key first
ready            by queue and kind; those of a lane as they are leased in the order Oldest
scheduled        the earliest due first, then the lowest key
dead             the latest end first, then the highest key
finished         the highest key first, of all three states together`, func(f *fixture) {
		all := f.society()
		f.lists(storage.Filter{}, inOrder(all)...)
		for state, ids := range all {
			f.lists(storage.Filter{States: []storage.State{state}}, ids...)
		}
		two := []storage.State{storage.Done, storage.Ready, storage.Cancelled}
		f.lists(storage.Filter{States: two}, slices.Concat(all[storage.Ready], all[storage.Cancelled], all[storage.Done])...)
	}},

	{"list_filters", `Filter chooses jobs. Fields that are zero choose all; the others must all match.
Reason and Cause match only dead jobs, EndedFrom and EndedBefore only ended ones, DueFrom and DueBefore only scheduled, ready and blocked ones.
CreatedFrom and CreatedBefore bound the time when a job was enqueued, the former included, DueFrom and DueBefore that when it is due.
Error must occur in the last error, without regard to ASCII case.`, func(f *fixture) {
		all := f.society()
		waits, later, dead := all[storage.Ready], all[storage.Scheduled], all[storage.Dead]
		f.lists(storage.Filter{Queue: "a"}, waits[0], waits[1], waits[2], waits[3], later[0], later[1])
		f.lists(storage.Filter{Kind: "x"}, waits[0], waits[1], waits[2], waits[4], later[0], later[2])
		f.lists(storage.Filter{Queue: "a", Kind: "y"}, waits[3], later[1])
		f.lists(storage.Filter{Queue: "a", Kind: "y", States: []storage.State{storage.Scheduled}}, later[1])
		f.lists(storage.Filter{Queue: "none"})
		f.lists(storage.Filter{Error: "REFUSED"}, dead[1])
		f.lists(storage.Filter{Reason: storage.ReasonPermanent}, dead[0])
		end := f.record(dead[0]).EndedAt
		f.lists(storage.Filter{EndedFrom: end}, dead[0], all[storage.Cancelled][0], all[storage.Done][0])
		f.lists(storage.Filter{EndedBefore: end}, dead[1])
		due := f.record(later[1]).DueAt
		f.lists(storage.Filter{DueFrom: due}, later[1], later[2])
		f.lists(storage.Filter{DueBefore: due}, append(slices.Clone(waits), later[0])...)
		f.lists(storage.Filter{DueBefore: due, States: []storage.State{storage.Scheduled}}, later[0])
		f.lists(storage.Filter{Tag: "odd", States: []storage.State{storage.Ready}}, waits[0])
		f.lists(storage.Filter{Tag: "odd", Error: "refused"}, dead[1])
		f.lists(storage.Filter{Tag: "odd", Queue: "a"}, later[0], waits[0])
		f.lists(storage.Filter{Tag: "od"})
	}},

	{"list_by_key", `A list whose filter has a Group, Tag, CreatedFrom or CreatedBefore is in the order of keys, the highest first.`, func(f *fixture) {
		all := f.society()
		byKey := inOrder(all)
		slices.SortFunc(byKey, func(a, b storage.ID) int { return cmp.Compare(b.Key(), a.Key()) })
		f.lists(storage.Filter{Tag: "odd"}, all[storage.Scheduled][0], all[storage.Ready][0], all[storage.Cancelled][0], all[storage.Running][1], all[storage.Dead][1])
		f.lists(storage.Filter{Tag: "w"}, all[storage.Ready][0])
		f.lists(storage.Filter{CreatedFrom: f.record(byKey[len(byKey)-1]).CreatedAt}, byKey...)
		for i, id := range byKey {
			at := f.record(id).CreatedAt
			f.lists(storage.Filter{CreatedFrom: at}, byKey[:i+1]...)
			f.lists(storage.Filter{CreatedBefore: at}, byKey[i+1:]...)
			f.lists(storage.Filter{CreatedFrom: at, CreatedBefore: at.Add(time.Microsecond)}, id)
		}
		f.lists(storage.Filter{CreatedFrom: f.now.Add(time.Second)})
		f.lists(storage.Filter{CreatedBefore: f.now, States: []storage.State{storage.Dead}}, all[storage.Dead][1], all[storage.Dead][0])
	}},

	{"list_pages", `Jobs lists jobs that match f, at most limit of them. after is the Next of the page before, of a list with the same f, or empty for the first page.
Next is where the next page begins, in a form that only the Store knows. It is empty if no job is left.
A job that stays as it is while a list is read is on one page of it.`, func(f *fixture) {
		all := f.morgue()
		slices.Reverse(all)
		dead := storage.Filter{States: []storage.State{storage.Dead}}
		page, err := f.s.Jobs(f.ctx, dead, "", 6)
		f.must(err)
		f.order("the first page", recordIDs(page.Jobs), recordIDs(all[:6]))
		if page.Next == "" {
			f.Fatalf("there is no place after the first page")
		}
		// What dies meanwhile is before the place, what is gone is not missed.
		f.bury(storage.ReasonPermanent, "no")
		_, err = f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{all[5].ID, all[6].ID}})
		f.must(err)
		page, err = f.s.Jobs(f.ctx, dead, page.Next, 5)
		f.must(err)
		f.order("the second page", recordIDs(page.Jobs), recordIDs(all[7:]))
		if page.Next != "" {
			f.Errorf("the place is %q though nothing is left", page.Next)
		}
		for _, limit := range []int{0, -1, 5} {
			page, err = f.s.Jobs(f.ctx, storage.Filter{Queue: "none"}, "", limit)
			if len(page.Jobs) != 0 || page.Next != "" || err != nil {
				f.Errorf("an empty list returned %v, %v", page, err)
			}
		}
	}},

	{"list_records", `Jobs come without headers, history, and what attempts have kept, see [Kept], and without args unless the filter has Args.`, func(f *fixture) {
		f.morgue()
		done, waits := f.stopped("x"), f.run(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: done.Lease, Outcome: storage.OutcomeDone, Result: []byte("ok")})
		f.says(f.s, storage.Checkpoint{Lease: waits.Lease, Data: []byte("x"), Progress: f.progress(1)}, storage.Applied)
		f.back(waits, storage.OutcomeRetry, f.now.Add(time.Hour))
		f.society()
		f.waiting(2, func(n *storage.NewJob) {
			n.Headers, n.Policy, n.Args = []byte("h"), []byte("own"), make([]byte, 10_000)
		})
		got := f.list(storage.Filter{}, 100)
		if len(got) != 30 {
			f.Fatalf("%d are listed, want 30", len(got))
		}
		with := f.list(storage.Filter{Args: true}, 100)
		if len(with) != len(got) {
			f.Fatalf("%d are listed with args, want %d", len(with), len(got))
		}
		for i, r := range got {
			want := f.record(r.ID)
			want.Headers, want.History = nil, nil
			want.Kept = storage.Kept{}
			f.same(fmt.Sprintf("a job that is %s, with args", r.State), with[i], want)
			want.Args = nil
			f.same(fmt.Sprintf("a job that is %s", r.State), r, want)
		}
	}},

	{"list_args", `If MaxArgs is not zero, args of more bytes are left out, and Record.ArgsBytes says how many these have.`, func(f *fixture) {
		const most = 5000
		sizes := []int64{1, 2000, most - 1, most, most + 1, 100_000}
		var ids []storage.ID
		for _, n := range sizes {
			ids = append(ids, f.add(newJob(func(j *storage.NewJob) { j.Args, j.Headers = make([]byte, n), []byte("h") }))...)
		}
		for _, limit := range []int64{1, 100, most} {
			for _, r := range f.list(storage.Filter{Args: true, MaxArgs: limit}, 100) {
				n := sizes[slices.Index(ids, r.ID)]
				left := int64(0)
				if n > limit {
					n, left = 0, n
				}
				if int64(len(r.Args)) != n || r.ArgsBytes != left {
					f.Errorf("with at most %d there are %d bytes of args, and %d were left out; want %d and %d", limit, len(r.Args), r.ArgsBytes, n, left)
				}
			}
		}
		for _, r := range f.list(storage.Filter{MaxArgs: most}, 100) {
			if r.Args != nil || r.ArgsBytes != 0 {
				f.Errorf("nobody has asked for args, and %d bytes come, and %d are said to be left out", len(r.Args), r.ArgsBytes)
			}
		}
	}},

	{"list_group", `Group is the group of the jobs in Queue, which must be set too.`, func(f *fixture) {
		add := func(changes ...func(*storage.NewJob)) storage.ID {
			f.later(time.Second)
			return f.add(newJob(changes...))[0]
		}
		g := grouped("g")
		done := f.run(f.s, g)
		f.keep(keep, f.s, storage.Finish{Lease: done.Lease, Outcome: storage.OutcomeDone})
		cancelled := add(g, tagged("odd"))
		f.cancel(cancelled)
		dead := f.bury(storage.ReasonPermanent, "no", g)
		others := f.add(newJob(), newJob(grouped("f")), newJob(grouped("g ")), newJob(grouped("g ")), newJob(grouped("gg")), newJob(grouped("gg"), delay(time.Hour)),
			newJob(g, lane("other", kind)), newJob(g, lane("other", kind), tagged("odd")))
		b1, b2 := add(g), add(g, lane(queue, "a"), tagged("odd"))
		of := storage.Filter{Queue: queue, Group: "g"}
		f.lists(of, b2, b1, dead, cancelled, done.ID)
		f.lists(storage.Filter{Queue: "other", Group: "g"}, others[7], others[6])
		f.lists(storage.Filter{Queue: queue, Group: "g "}, others[3], others[2])
		f.lists(storage.Filter{Queue: queue, Group: "none"})
		f.skipHead(queue, "g", dead)
		f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingGroupLimit: 4})
		r1, later, r2, b3 := add(g, priority(5), tagged("odd")), add(g, delay(time.Hour)), add(g), add(g, lane(queue, "b"))
		f.states("ready", []storage.ID{b2, r1, b1, r2}, "ready ready ready ready")
		all := []storage.ID{b3, r2, later, r1, b2, b1, dead, cancelled, done.ID}
		f.lists(of, all...)
		f.order("leased", leasedIDs(f.lease(f.s, 1)), []storage.ID{r1})
		f.lists(of, all...)
		for want, filter := range map[storage.ID]storage.Filter{
			r1: {States: []storage.State{storage.Running}}, b2: {Kind: "a"}, later: {DueFrom: f.now.Add(time.Minute)}, b3: {States: []storage.State{storage.Blocked}},
			dead: {Error: "no"}, cancelled: {Tag: "odd", States: []storage.State{storage.Cancelled}}, done.ID: {CreatedBefore: f.record(cancelled).CreatedAt},
		} {
			filter.Queue, filter.Group = of.Queue, of.Group
			f.lists(filter, want)
		}
		for _, states := range [][]storage.State{{storage.Ready}, {storage.Scheduled}, {storage.Dead}, {storage.Done, storage.Cancelled}, {storage.Ready, storage.Dead}} {
			want := slices.DeleteFunc(slices.Clone(all), func(id storage.ID) bool { return !slices.Contains(states, f.record(id).State) })
			f.lists(storage.Filter{Queue: queue, Group: "g", States: states}, want...)
		}
	}},

	{"dead_group", `Dead jobs of a Group are in the order of keys.`, func(f *fixture) {
		f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingGroupLimit: 3})
		g := grouped("g")
		first, second, third := f.run(f.s, g), f.run(f.s, g), f.run(f.s, g)
		for _, l := range []storage.Leased{third, first, second} { // the order of their deaths
			f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
			f.later(time.Second)
		}
		sel := storage.Selection{Filter: storage.Filter{Queue: queue, Group: "g", States: []storage.State{storage.Dead}}, Limit: 1}
		for i, l := range []storage.Leased{first, second, third} {
			var step storage.Step
			var err error
			if i == 1 {
				step, err = f.s.Delete(f.ctx, sel)
			} else {
				step, err = f.s.Redrive(f.ctx, f.now, sel, "")
			}
			if f.must(err); step.N != 1 || !step.Next.At.IsZero() || i < 2 && step.Next.Key != l.ID.Key() {
				f.Fatalf("step %d was %+v, want it to be about job %v", i, step, l.ID)
			}
			r, err := f.s.Job(f.ctx, l.ID)
			if deleted := errors.Is(err, storage.ErrNotFound); deleted != (i == 1) || r.State == storage.Dead {
				f.Errorf("after step %d job %v is %q, %v", i, l.ID, r.State, err)
			}
			sel.After, sel.Through = step.Next, step.Through
		}
	}},

	{"change_group", `Selection is what a change of many jobs is about: the jobs named by IDs, or, if there are none, those that match Filter and come after After, the earliest first.`, func(f *fixture) {
		g := grouped("g")
		add := func(changes ...func(*storage.NewJob)) storage.ID { return f.add(newJob(append(changes, g)...))[0] }
		end := func(group string) storage.ID {
			l := f.run(f.s, grouped(group))
			f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			return l.ID
		}
		d1, d2 := end("g"), end("g")
		end("h")
		f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingGroupLimit: 2})
		passed := f.bury(storage.ReasonPermanent, "no", g)
		lone, keeper := f.bury(storage.ReasonPermanent, "no", grouped("i")), f.bury(storage.ReasonPermanent, "no", lane("third", kind), g)
		f.later(time.Second)
		retried := f.run(f.s, g)
		f.add(newJob(lane("fourth", kind), g))
		alone := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"fourth"}, Kinds: []string{kind}})}).Leased[0]
		for _, l := range []storage.Leased{retried, alone} {
			f.back(l, storage.OutcomeRetry, f.now.Add(time.Hour))
		}
		first, r1, r2, b := add(delay(time.Hour)), add(), add(), add()
		live := []storage.ID{retried.ID, first, r1, r2, b}
		others := append(f.add(newJob(g, lane("other", kind)), newJob(g, lane("other", kind)), newJob(grouped("h")), newJob(delay(time.Hour), grouped("h"))), lone)
		sel := storage.Selection{Filter: storage.Filter{Queue: queue, Group: "g"}, Limit: 1}
		step := func(what string, want int, call func(storage.Selection) (storage.Step, error)) {
			f.Helper()
			n, s := 0, sel
			for more := true; more; more = s.After != (storage.Position{}) {
				got, err := call(s)
				f.must(err)
				n, s.After, s.Through = n+got.N, got.Next, got.Through
			}
			if n != want {
				f.Errorf("%s took %d jobs of the group, want %d", what, n, want)
			}
		}
		step("RunNow", 1, func(s storage.Selection) (storage.Step, error) { return f.s.RunNow(f.ctx, f.now, s, storage.Waiting{}) })
		f.states("run now", live, "blocked scheduled ready ready blocked")
		step("RunNow of all", 1, func(s storage.Selection) (storage.Step, error) {
			return f.s.RunNow(f.ctx, f.now, s, storage.Waiting{First: true})
		})
		f.states("run now", live, "blocked blocked ready ready blocked")
		sel.Filter.Queue = "fourth"
		step("RunNow of one that has its place", 1, func(s storage.Selection) (storage.Step, error) {
			return f.s.RunNow(f.ctx, f.now, s, storage.Waiting{})
		})
		sel.Filter.Queue = queue
		urgent := 7
		step("Change", 5, func(s storage.Selection) (storage.Step, error) {
			return f.s.Change(f.ctx, f.now, s, storage.Edit{Priority: &urgent})
		})
		for _, id := range live {
			if got := f.record(id).Priority; got != urgent {
				f.Errorf("a job of the group has priority %d, want %d", got, urgent)
			}
		}
		for _, id := range others {
			if got := f.record(id).Priority; got != 0 {
				f.Errorf("a job of another group has priority %d", got)
			}
		}
		step("Redrive", 1, func(s storage.Selection) (storage.Step, error) { return f.s.Redrive(f.ctx, f.now, s, "") })
		sel.Filter.Queue = "third"
		step("Redrive of one that keeps others back", 1, func(s storage.Selection) (storage.Step, error) { return f.s.Redrive(f.ctx, f.now, s, queue) })
		f.states("redriven", []storage.ID{passed, keeper}, "blocked blocked")
		sel.Filter.Queue, sel.Filter.States = queue, []storage.State{storage.Done}
		step("Delete", 2, func(s storage.Selection) (storage.Step, error) { return f.s.Delete(f.ctx, s) })
		for _, id := range []storage.ID{d1, d2} {
			if _, err := f.s.Job(f.ctx, id); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("a deleted job is found: %v", err)
			}
		}
		cancel := func(s storage.Selection) (storage.Step, error) {
			return f.s.Change(f.ctx, f.now, s, storage.Edit{Cancel: &storage.Retention{}})
		}
		sel.Filter.States = []storage.State{storage.Blocked}
		step("Cancel of those that are blocked", 5, cancel)
		f.states("what was not blocked", []storage.ID{r1, r2}, "ready ready")
		sel.Filter.States = nil
		step("Cancel", 2, cancel)
		f.states("the others", append(others, alone.ID), "ready blocked ready scheduled dead ready")
		f.bury(storage.ReasonPermanent, "no", lane("third", kind), g)
		sel.Filter.Queue = "third"
		step("Delete of a dead one", 1, func(s storage.Selection) (storage.Step, error) { return f.s.Delete(f.ctx, s) })
	}},

	{"tags_stay", `Tags []string // distinct, none of them empty or with a space, and those of at most one Origin, see [FromTags]
Tags []string // sorted; nil: none
Slices passed in belong to the caller again when the call returns; slices returned belong to the caller.`, func(f *fixture) {
		given := []string{"b%", "a", "é:c"}
		want := slices.Sorted(slices.Values(given))
		for _, o := range []storage.Outcome{storage.OutcomeDone, storage.OutcomeCancelled, storage.OutcomeRetry, storage.OutcomeDead} {
			l := f.run(f.s, tagged(given...))
			f.tags(l.ID, want...)
			f.keep(keep, f.s, storage.Finish{
				Lease: l.Lease, Outcome: o, Reason: storage.ReasonPermanent, DueAt: f.now.Add(time.Hour), Failure: &storage.NewFailure{Error: "no"},
			})
			f.tags(l.ID, want...)
			if o == storage.OutcomeDead {
				f.did("redrive", f.redrive(named(l.ID), "elsewhere"), 1, nil, nil)
				f.tags(l.ID, want...)
			}
		}
		id := f.add(newJob(tagged(given...)))[0]
		clear(given)
		clear(f.record(id).Tags)
		f.tags(id, want...)
		f.cancel(id)
		f.tags(id, want...)
		if r := f.record(f.add(newJob())[0]); r.Tags != nil {
			f.Errorf("a job without tags has %#v, want nil", r.Tags)
		}
		a := f.add(newJob(unique("key"), tagged("own")))[0]
		if e := f.enqueue(newJob(unique("key"), tagged("other")))[0]; !e.Duplicate {
			f.Fatalf("a second job took the key")
		}
		f.tags(a, "own")
	}},
}
