package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// causes returns the causes of a lane, or of all.
func (f *fixture) causes(lane storage.Lane, limit int) []storage.Cause {
	f.Helper()
	out, err := f.s.Causes(f.ctx, lane, limit)
	f.must(err)
	return out
}

// sameCauses checks causes but for their IDs, of which no two may be the same.
func (f *fixture) sameCauses(got []storage.Cause, want ...storage.Cause) {
	f.Helper()
	ids := map[int64]bool{}
	for i := range got {
		if got[i].ID <= 0 || ids[got[i].ID] {
			f.Errorf("the ID %d is not positive, or that of two causes", got[i].ID)
		}
		ids[got[i].ID] = true
		got[i].ID, got[i].First, got[i].Last = 0, got[i].First.UTC(), got[i].Last.UTC()
	}
	if !slices.Equal(got, want) {
		f.Errorf("causes:\n got %+v\nwant %+v", got, want)
	}
}

// causeOf is a cause of the usual lane, of jobs that have died in this order.
func causeOf(reason storage.Reason, text string, jobs ...storage.Record) storage.Cause {
	first, last := jobs[0], jobs[len(jobs)-1]
	return storage.Cause{
		Lane: storage.Lane{Queue: last.Queue, Kind: last.Kind}, Reason: reason, Text: text, N: int64(len(jobs)),
		First: first.EndedAt.UTC(), Last: last.EndedAt.UTC(), Job: last.ID,
	}
}

// dies lets n jobs die, one a second.
func (f *fixture) dies(n int, reason storage.Reason, text string, changes ...func(*storage.NewJob)) (out []storage.Record) {
	f.Helper()
	for range n {
		f.later(time.Second)
		out = append(out, f.record(f.bury(reason, text, changes...)))
	}
	return out
}

// buryAll lets a job die for each text, in one exchange.
func (f *fixture) buryAll(texts []string) {
	f.Helper()
	f.add(times(len(texts), newJob())...)
	var x storage.Exchange
	for i, l := range f.lease(f.s, len(texts)) {
		x.Finish = append(x.Finish, died(l.Lease, storage.ReasonPermanent, texts[i]))
	}
	for _, r := range f.exchange(f.s, x).Finished {
		if r != storage.Applied {
			f.Fatalf("a death returned result %d", r)
		}
	}
}

var causeCases = []testCase{
	{"cause_list", `Cause is what dead jobs have in common: the lane in which they died, the reason, and the text that Finish.Cause gave.
N is how many jobs with this cause are dead.
Last is when the last job died of the cause.
Job is that last job.
Causes lists the causes of a lane, at most limit of them: those of most dead jobs first, and of equally many the older one.
An empty name of lane stands for any.`, func(f *fixture) {
		f.sameCauses(f.causes(storage.Lane{}, 10))
		mixed := f.dies(1, storage.ReasonExhausted, "refused")
		other := f.dies(1, storage.ReasonExhausted, "timeout")
		mixed = append(mixed, f.dies(2, storage.ReasonExhausted, "refused")...)
		reason := f.dies(2, storage.ReasonPermanent, "refused")
		elsewhere := f.dies(1, storage.ReasonExhausted, "refused", lane("a", kind))
		empty := f.dies(1, storage.ReasonExhausted, "", lane("a", "other"))
		all := []storage.Cause{
			causeOf(storage.ReasonExhausted, "refused", mixed...),
			causeOf(storage.ReasonPermanent, "refused", reason...),
			causeOf(storage.ReasonExhausted, "timeout", other...),
			causeOf(storage.ReasonExhausted, "refused", elsewhere...),
			causeOf(storage.ReasonExhausted, "", empty...),
		}
		f.sameCauses(f.causes(storage.Lane{}, 10), all...)
		f.sameCauses(f.causes(storage.Lane{}, 2), all[:2]...)
		f.sameCauses(f.causes(storage.Lane{}, 0))
		f.sameCauses(f.causes(storage.Lane{Queue: queue, Kind: kind}, 10), all[:3]...)
		f.sameCauses(f.causes(storage.Lane{Queue: "a"}, 10), all[3:]...)
		f.sameCauses(f.causes(storage.Lane{Kind: "other"}, 10), all[4:]...)
		f.sameCauses(f.causes(storage.Lane{Queue: "none"}, 10))
	}},

	{"cause_gone", `It is there as long as one of them is dead.
ID is positive, and never given to another cause, even after this one is gone.
First is when the first job died that the cause has counted, which may have been redriven or deleted since.`, func(f *fixture) {
		jobs := f.dies(3, storage.ReasonPermanent, "no")
		id := f.causes(storage.Lane{}, 1)[0].ID
		_, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{jobs[2].ID}}, "")
		f.must(err)
		if got := f.causes(storage.Lane{}, 1)[0].ID; got != id {
			f.Errorf("the cause has the ID %d, and had %d", got, id)
		}
		f.sameCauses(f.causes(storage.Lane{}, 10), causeOf(storage.ReasonPermanent, "no", jobs[:2]...))
		_, err = f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{jobs[0].ID}})
		f.must(err)
		left := causeOf(storage.ReasonPermanent, "no", jobs[1])
		left.First = jobs[0].EndedAt.UTC()
		f.sameCauses(f.causes(storage.Lane{}, 10), left)
		_, err = f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{jobs[1].ID}})
		f.must(err)
		f.sameCauses(f.causes(storage.Lane{}, 10))
		again := f.leaseOne(f.s)
		f.apply(f.s, died(again.Lease, storage.ReasonPermanent, "no"))
		if got := f.causes(storage.Lane{}, 1)[0]; got.ID == id {
			f.Errorf("the ID %d was given a second time", id)
		}
		f.sameCauses(f.causes(storage.Lane{}, 10), causeOf(storage.ReasonPermanent, "no", f.record(again.ID)))
	}},

	{"cause_first", `First is when the first job died that the cause has counted, which may have been redriven or deleted since.`, func(f *fixture) {
		early := f.dies(1, storage.ReasonPermanent, "no")[0]
		there := f.dies(2, storage.ReasonPermanent, "no", lane("a", kind))
		_, err := f.s.Change(f.ctx, f.now, storage.Selection{IDs: []storage.ID{early.ID}}, storage.Edit{Queue: "a"})
		f.must(err)
		want := causeOf(storage.ReasonPermanent, "no", early, there[0], there[1])
		want.Queue = "a"
		f.sameCauses(f.causes(storage.Lane{}, 10), want)
		_, err = f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{early.ID, there[0].ID}})
		f.must(err)
		want.N = 1
		f.sameCauses(f.causes(storage.Lane{}, 10), want)
	}},

	{"cause_deaths", `Deaths counts the dead jobs of each of the causes by when they died: in n times that follow each other, of a length each, the first of which begins at from.
Of each time it counts at most most. There are none of a cause that is gone.`, func(f *fixture) {
		from := f.now
		jobs := f.dies(4, storage.ReasonPermanent, "no") // after 1 to 4 seconds
		f.dies(2, storage.ReasonPermanent, "other")
		jobs = append(jobs, f.dies(3, storage.ReasonPermanent, "no")...) // after 7 to 9
		all := f.causes(storage.Lane{}, 10)
		check := func(cause int64, from time.Time, each time.Duration, n, most int, want ...int) {
			f.Helper()
			got, err := f.s.Deaths(f.ctx, []int64{cause}, from, each, n, most)
			if f.must(err); len(got) != 1 || !slices.Equal(got[0], want) {
				f.Errorf("Deaths(%v after %v, %d times, at most %d) = %v, want %v", each, from, n, most, got, want)
			}
		}
		check(all[0].ID, from, 2*time.Second, 5, 10, 1, 2, 1, 1, 2)
		check(all[0].ID, from, 2*time.Second, 3, 10, 1, 2, 1)
		check(all[0].ID, from.Add(time.Second), 4*time.Second, 3, 10, 4, 2, 1)
		check(all[0].ID, from.Add(time.Second), 4*time.Second, 3, 3, 3, 2, 1)
		check(all[0].ID, from.Add(time.Second), 4*time.Second, 3, 0, 0, 0, 0)
		check(all[0].ID, from, time.Second, 0, 10)
		check(all[1].ID, from, 10*time.Second, 2, 10, 2, 0)
		for _, causes := range [][]int64{nil, {all[1].ID, 1 << 60, all[0].ID, all[1].ID}} {
			got, err := f.s.Deaths(f.ctx, causes, from, 5*time.Second, 2, 10)
			f.must(err)
			want := [][]int{{0, 2}, {0, 0}, {4, 3}, {0, 2}}[:len(causes)]
			if !slices.EqualFunc(got, want, slices.Equal) {
				f.Errorf("Deaths of the causes %v are %v, want %v", causes, got, want)
			}
		}
		_, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{jobs[0].ID, jobs[6].ID}}, "")
		f.must(err)
		check(all[0].ID, from, 2*time.Second, 5, 10, 0, 2, 1, 1, 1)
		_, err = f.s.Delete(f.ctx, storage.Selection{Filter: storage.Filter{Cause: all[0].ID}})
		f.must(err)
		check(all[0].ID, from, 2*time.Second, 5, 10, 0, 0, 0, 0, 0)
	}},

	{"cause_lane", `the lane in which they died`, func(f *fixture) {
		job := f.dies(1, storage.ReasonPermanent, "no")[0]
		_, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{job.ID}}, "a")
		f.must(err)
		f.sameCauses(f.causes(storage.Lane{}, 10))
		l := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"a"}, Kinds: []string{kind}})}).Leased[0]
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.sameCauses(f.causes(storage.Lane{}, 10), causeOf(storage.ReasonPermanent, "no", f.record(job.ID)))
	}},

	{"cause_spent", `the text that Finish.Cause gave.
Spent, if not nil, takes the place of an OutcomeUnavailable
Lost: the lease is no longer held; nothing was changed.`, func(f *fixture) {
		lost := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: lost.Lease, Outcome: storage.OutcomeDone})
		if r := f.finish(f.s, died(lost.Lease, storage.ReasonPermanent, "late")); r != storage.Lost {
			f.Errorf("a late death returned %d, want lost", r)
		}
		f.sameCauses(f.causes(storage.Lane{}, 10))

		f.add(times(2, newJob())...)
		two := f.lease(f.s, 2)
		unreached := storage.Finish{Lease: two[0].Lease, Outcome: storage.OutcomeUnavailable, Error: "no route"}
		f.apply(f.s, unreached)
		f.apply(f.s, storage.Finish{Lease: two[1].Lease, Outcome: storage.OutcomeDone})
		again := f.leaseOne(f.s)
		spent := died(storage.Lease{}, storage.ReasonExhausted, "in vain")
		unreached.Lease, unreached.Since, unreached.Spent = again.Lease, again.Previous, &spent
		if r := f.finish(f.s, unreached); r != storage.Spent {
			f.Errorf("an attempt without luck returned %d, want spent", r)
		}
		f.sameCauses(f.causes(storage.Lane{}, 10), causeOf(storage.ReasonExhausted, "in vain", f.record(two[0].ID)))
	}},

	{"cause_limit", `A lane has at most [CauseLimit] causes.
A death that would make another one counts for the cause [OtherCause] of its reason, which comes in addition.`, func(f *fixture) {
		texts := make([]string, storage.CauseLimit)
		for i := range texts {
			texts[i] = fmt.Sprint("cause ", i)
		}
		f.buryAll(texts)
		f.later(time.Second)
		count := func() (n int64, others map[storage.Reason]int64) {
			others = map[storage.Reason]int64{}
			for _, c := range f.causes(storage.Lane{Queue: queue, Kind: kind}, 2*storage.CauseLimit) {
				if n++; c.Text == storage.OtherCause {
					n--
					others[c.Reason] += c.N
				}
			}
			return n, others
		}
		check := func(what string, known, exhausted, permanent int64) {
			n, others := count()
			if n != known || others[storage.ReasonExhausted] != exhausted || others[storage.ReasonPermanent] != permanent {
				f.Errorf("%s: %d causes and %v others, want %d, %d and %d", what, n, others, known, exhausted, permanent)
			}
		}
		check("at the limit", storage.CauseLimit, 0, 0)
		f.dies(1, storage.ReasonPermanent, texts[0])
		f.dies(2, storage.ReasonPermanent, "new")
		f.dies(1, storage.ReasonExhausted, "newer")
		f.dies(1, storage.ReasonPermanent, "new", lane("a", kind))
		check("beyond the limit", storage.CauseLimit, 1, 2)
		first := f.causes(storage.Lane{Queue: queue}, 3)[2].ID // of those with one job the oldest
		_, err := f.s.Delete(f.ctx, storage.Selection{Filter: storage.Filter{Cause: first}})
		f.must(err)
		f.dies(1, storage.ReasonExhausted, "newest")
		check("with room again", storage.CauseLimit, 1, 2)
	}},

	{"cause_filter", `Fields that are zero choose all; the others must all match. Reason and Cause match only dead jobs, EndedFrom and EndedBefore only ended ones,
Cause int64 the ID of a [Cause]`, func(f *fixture) {
		no, late, elsewhere := f.dies(5, storage.ReasonPermanent, "no"), f.dies(3, storage.ReasonPermanent, "late"), f.dies(2, storage.ReasonPermanent, "no", lane("a", kind))
		f.later(time.Second)
		waits := f.add(newJob(dueAt(f.now.Add(time.Hour))))
		all := f.causes(storage.Lane{}, 10)
		if len(all) != 3 {
			f.Fatalf("%d causes, want 3", len(all))
		}
		list := func(what string, filter storage.Filter, want ...storage.Record) {
			ids := recordIDs(want)
			slices.Reverse(ids)
			for _, limit := range []int{1, 2, 100} {
				f.order(what, recordIDs(f.deadList(filter, limit)), ids)
			}
		}
		list("the first", storage.Filter{Cause: all[0].ID}, no...)
		list("the second", storage.Filter{Cause: all[1].ID}, late...)
		list("the third", storage.Filter{Cause: all[2].ID}, elsewhere...)
		list("none", storage.Filter{Cause: all[2].ID + 1<<40})
		list("of another queue", storage.Filter{Cause: all[0].ID, Queue: "a"})
		list("of a time", storage.Filter{Cause: all[0].ID, EndedFrom: no[1].EndedAt, EndedBefore: no[3].EndedAt}, no[1:3]...)

		step, err := f.s.RunNow(f.ctx, f.now, storage.Selection{Filter: storage.Filter{Cause: all[0].ID}}, storage.Waiting{First: true})
		f.must(err)
		if f.is(storage.Scheduled, waits...); step.N != 0 {
			f.Errorf("%d live jobs have a cause", step.N)
		}
		after := storage.Position{At: no[0].EndedAt, Key: no[0].Key}
		step, err = f.s.Redrive(f.ctx, f.now, storage.Selection{Filter: storage.Filter{Cause: all[0].ID}, After: after}, "")
		f.must(err)
		f.is(storage.Ready, recordIDs(no[1:])...)
		f.is(storage.Dead, append(recordIDs(slices.Concat(late, elsewhere)), no[0].ID)...)
		if step.N != 4 {
			f.Errorf("%d were redriven, want 4", step.N)
		}
		_, err = f.s.Delete(f.ctx, storage.Selection{Filter: storage.Filter{Cause: all[2].ID}})
		f.must(err)
		f.is("", recordIDs(elsewhere)...)
		f.is(storage.Dead, recordIDs(late)...)
	}},
}
