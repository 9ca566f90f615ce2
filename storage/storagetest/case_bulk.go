package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// jobsOf returns the keys of the jobs of a list, sorted.
func (f *fixture) jobsOf(of storage.Filter) []storage.ID {
	f.Helper()
	page, err := f.s.Jobs(f.ctx, of, "", 100)
	f.must(err)
	var ids []storage.ID
	for _, r := range page.Jobs {
		ids = append(ids, r.ID)
	}
	slices.SortFunc(ids, func(a, b storage.ID) int { return int(a.Key() - b.Key()) })
	return ids
}

// runBulk enqueues a job of the queue that is apart, and leases it.
func (f *fixture) runBulk() storage.Leased {
	f.Helper()
	id := f.add(newJob(inBulk))[0]
	of := storage.Want{Queues: []string{storage.BulkQueue}, Kinds: []string{kind}}
	for _, l := range f.exchange(f.s, storage.Exchange{Wants: wants(1, of)}).Leased {
		if l.ID == id {
			return l
		}
	}
	f.Fatalf("the job just enqueued was not leased")
	return storage.Leased{}
}

// inBulk is a job of the queue that is apart.
var inBulk = lane(storage.BulkQueue, kind)

var bulkCases = []testCase{
	{"bulk_filter", `A Filter chooses its jobs only if it has the Queue or a Kind.`, func(f *fixture) {
		of := func(q, k string) storage.Selection {
			return storage.Selection{Filter: storage.Filter{Queue: q, Kind: k}}
		}
		dead := f.bury(storage.ReasonPermanent, "no", inBulk)
		finished := f.runBulk()
		f.keep(time.Hour, f.s, storage.Finish{Lease: finished.Lease, Outcome: storage.OutcomeDone})
		tagged := f.add(newJob(inBulk, delay(time.Hour), func(n *storage.NewJob) { n.Tags = []string{"red"} }))[0]
		all := []storage.ID{dead, finished.ID, tagged}
		slices.SortFunc(all, func(a, b storage.ID) int { return int(a.Key() - b.Key()) })
		l := f.run(f.s, lane(queue, kind))
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		f.order("listed without", f.jobsOf(storage.Filter{}), []storage.ID{l.ID})
		f.order("listed by tag", f.jobsOf(storage.Filter{Tag: "red"}), nil)
		f.order("listed by its queue", f.jobsOf(storage.Filter{Queue: storage.BulkQueue}), all)
		f.order("listed by its queue and tag", f.jobsOf(storage.Filter{Queue: storage.BulkQueue, Tag: "red"}), []storage.ID{tagged})
		f.order("listed by its kind", f.jobsOf(storage.Filter{Kind: kind}), append(all, l.ID))

		f.later(time.Second)
		f.did("redrive of all", f.redrive(storage.Selection{}, ""), 0, nil, nil)
		f.did("run now of all", f.runNow(storage.Selection{}, storage.Waiting{First: true}), 1, nil, nil)
		f.changes("change of all", f.change(storage.Selection{}, ranked(7)), 1, nil, nil)
		f.changes("delete of the dead", f.purgeDead(storage.Selection{}), 0, nil, nil)
		f.changes("delete of the finished", f.purgeDead(states(storage.Done)), 0, nil, nil)
		f.is(storage.Dead, dead)
		f.is(storage.Done, finished.ID)
		f.is(storage.Scheduled, tagged)

		f.did("redrive of the queue", f.redrive(of(storage.BulkQueue, ""), ""), 1, nil, nil)
		f.did("run now of the queue", f.runNow(of(storage.BulkQueue, ""), storage.Waiting{First: true}), 1, nil, nil)
		f.changes("change of the kind", f.change(of("", kind), ranked(3)), 3, nil, nil)
		sel := of(storage.BulkQueue, "")
		sel.Filter.States = []storage.State{storage.Done}
		f.changes("delete of the queue", f.purgeDead(sel), 1, nil, nil)
		for _, of := range []string{"b", "c"} {
			f.add(newJob(lane(storage.BulkQueue, of), delay(time.Hour)))
		}
		f.order("listed without any of its kinds", f.jobsOf(storage.Filter{}), []storage.ID{l.ID})
	}},

	{"bulk_caps", `Caps and SettingMinFree keep none of its jobs out.`, func(f *fixture) {
		f.caps(storage.Lane{}, 1, 0, storage.EvictOldest)
		f.configure(f.s, storage.Lane{Queue: storage.BulkQueue}, storage.Settings{storage.SettingMaxJobs: 1})
		waiting := f.add(newJob())[0]
		f.add(newJob(inBulk), newJob(inBulk))
		f.is(storage.Ready, waiting)
		f.configure(f.s, storage.Lane{}, storage.Settings{storage.SettingMinFree: tooMuch})
		f.add(newJob(inBulk))
	}},

	{"bulk_settings", `Settings of its jobs are those of the queue and of a kind in it. Those of a kind in all queues and of the database are for others.`, func(f *fixture) {
		windows := func(d time.Duration) storage.Settings {
			return storage.Settings{storage.SettingStartWithin: d.Microseconds(), storage.SettingRetention: -1}
		}
		f.configure(f.s, storage.Lane{}, windows(time.Minute))
		f.configure(f.s, storage.Lane{Kind: kind}, windows(time.Minute))
		l := f.runBulk()
		f.keep(time.Hour, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.is(storage.Done, l.ID)
		f.windowed(f.add(newJob(inBulk))[0], time.Time{}, time.Time{})
		f.configure(f.s, storage.Lane{Queue: storage.BulkQueue}, windows(time.Hour))
		f.windowed(f.add(newJob(inBulk))[0], f.now.Add(time.Hour), time.Time{})
		f.configure(f.s, storage.Lane{Queue: storage.BulkQueue, Kind: kind}, windows(2*time.Hour))
		f.windowed(f.add(newJob(inBulk))[0], f.now.Add(2*time.Hour), time.Time{})
	}},

	{"bulk_notify", `When a job comes to it, that is an [Event] with Schedules.`, func(f *fixture) {
		dead := f.bury(storage.ReasonPermanent, "no", inBulk)
		both := f.hearsBoth(f.db.Open())
		both("the first", schedules, func() { f.add(newJob(inBulk)) })
		both("another", schedules, func() { f.add(newJob(inBulk)) })
		both("a blocked one", schedules, func() { f.add(newJob(inBulk, grouped("g")), newJob(inBulk, grouped("g"))) })
		both("a redriven one", schedules, func() { f.did("redrive", f.redrive(named(dead), ""), 1, nil, nil) })
	}},

	{"redrive_limit", `Limit is the most jobs selected by Filter that one step changes. If zero, a step changes as many as it can.`, func(f *fixture) {
		for range 5 {
			f.bury(storage.ReasonPermanent, "no")
			f.later(time.Second)
		}
		step, err := f.s.Redrive(f.ctx, f.now, storage.Selection{Limit: 2}, "")
		f.must(err)
		if step.N != 2 || step.Next == (storage.Position{}) {
			f.Errorf("a step of 2 returned %+v", step)
		}
		step, err = f.s.Delete(f.ctx, storage.Selection{Limit: 1, After: step.Next})
		f.must(err)
		if step.N != 1 || step.Next == (storage.Position{}) {
			f.Errorf("a step of 1 returned %+v", step)
		}
		f.did("the rest", f.redrive(storage.Selection{After: step.Next, Limit: 2}, ""), 2, nil, nil)
		f.counts(count(storage.Ready, 4))
		for _, l := range f.lease(f.s, 4) {
			f.keep(time.Hour, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		sel := states(storage.Done)
		sel.Limit = 3
		step, err = f.s.Delete(f.ctx, sel)
		f.must(err)
		if step.N != 3 || step.Next == (storage.Position{}) {
			f.Errorf("a step of 3 returned %+v", step)
		}
	}},
}
