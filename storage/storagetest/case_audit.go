package storagetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// auditor begins to look at what was done by hand.
func (f *fixture) auditor() {
	f.Helper()
	if _, ok := f.s.(storage.Auditor); !ok {
		f.skip("storage.Auditor")
	}
}

// audit checks what was done by hand, the newest first.
func (f *fixture) audit(what string, want ...storage.AuditEntry) {
	f.Helper()
	got, err := f.s.(storage.Auditor).Audit(f.ctx)
	f.must(err)
	for i := range got {
		got[i].At = got[i].At.UTC()
	}
	if !slices.Equal(got, want) {
		f.Fatalf("%s: the entries are\n%+v, want\n%+v", what, got, want)
	}
}

// byHand returns an entry, and a context with which it is written.
func (f *fixture) byHand(do string) (context.Context, storage.AuditEntry) {
	e := storage.AuditEntry{At: f.now.UTC().Truncate(time.Microsecond), By: "ada", Do: do, What: "what " + do, Note: "note"}
	return storage.WithAudit(f.ctx, e), e
}

var auditCases = []testCase{
	{"audit_calls", `A call with a context of [WithAudit] that changes something writes its entry, in the same transaction.
Such calls are Enqueue, PublishMessages and Fire that enqueue or replace a job; Cancel of a live job; Redrive, RunNow, Change and Delete of any job; SkipHead, ReleaseUnique, Hold, Release, Configure, PutSchedule, DropSchedule and PutEntries that have an effect;
All others write none.`, func(f *fixture) {
		f.auditor()
		var all []storage.AuditEntry
		// deed does something twice: it has an effect on so many jobs the first time, and none the second time.
		deed := func(do string, jobs int64, again bool, call func(ctx context.Context) error) {
			f.Helper()
			ctx, e := f.byHand(do)
			f.must(call(ctx))
			e.Jobs = jobs
			all = slices.Insert(all, 0, e)
			f.audit(do, all...)
			if again {
				ctx, _ = f.byHand("again")
				_ = call(ctx)
				f.audit(do+" again", all...)
			}
		}
		one := func(sel storage.Selection, do func(context.Context, storage.Selection) (storage.Step, error)) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				_, err := do(ctx, sel)
				return err
			}
		}
		f.add(newJob())
		f.audit("nothing by hand")
		deed("enqueue", 1, true, func(ctx context.Context) error {
			_, err := f.s.Enqueue(ctx, f.now, []storage.NewJob{newJob(unique("k"))})
			return err
		})
		deed("release key", 0, false, func(ctx context.Context) error { _, err := f.s.ReleaseUnique(ctx, "k"); return err })
		deed("hold", 0, false, func(ctx context.Context) error { return f.s.Hold(ctx, f.now, aPause) })
		deed("release", 0, true, func(ctx context.Context) error {
			_, err := f.s.Release(ctx, f.now, aPause.Lane, aPause.Reason)
			return err
		})
		deed("configure", 0, true, func(ctx context.Context) error {
			return f.s.Configure(ctx, wholeQueue, storage.Settings{storage.SettingMaxJobs: 1000})
		})
		id := f.add(newJob(delay(time.Hour)))[0]
		deed("cancel", 1, true, func(ctx context.Context) error {
			_, err := f.s.Cancel(ctx, f.now, id, storage.Retention{Default: keep})
			return err
		})
		deed("delete", 1, true, one(storage.Selection{IDs: []storage.ID{id}}, f.s.Delete))
		ids := f.add(newJob(delay(time.Hour)), newJob(delay(time.Hour)))
		deed("run now", 2, true, one(storage.Selection{IDs: ids}, func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			return f.s.RunNow(ctx, f.now, sel, storage.Waiting{})
		}))
		deed("hurry", 1, false, one(storage.Selection{IDs: ids[:1]}, func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			return f.s.RunNow(ctx, f.now, sel, storage.Waiting{})
		}))
		five := 5
		deed("change", 2, false, one(storage.Selection{IDs: ids}, func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			return f.s.Change(ctx, f.now, sel, storage.Edit{Priority: &five})
		}))
		f.leaseOne(f.s)
		deed("cancel all", 2, false, one(storage.Selection{IDs: ids}, func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			return f.s.Change(ctx, f.now, sel, storage.Edit{Cancel: &storage.Retention{}})
		}))
		dead := f.bury(storage.ReasonPermanent, "x", lane("dead", "k"))
		deed("redrive", 1, true, one(storage.Selection{IDs: []storage.ID{dead}}, func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			return f.s.Redrive(ctx, f.now, sel, "")
		}))
	}},

	{"audit_publish", `Such calls are Enqueue, PublishMessages and Fire that enqueue or replace a job;
those of these with Tx in their names.`, func(f *fixture) {
		f.auditor()
		t := f.topics(f.s)
		ctx, publish := f.byHand("publish")
		two := published("a", newJob(), newJob())
		two.Dedup, two.DedupFor = "d", time.Hour
		_, err := t.PublishMessages(ctx, f.now, []storage.Publication{two, published("b", newJob())})
		f.must(err)
		publish.Jobs = 3
		f.audit("two messages", publish)
		two.Message.ID = "c"
		for _, p := range []storage.Publication{two, published("d")} { // a duplicate, and one without a job
			ctx, _ = f.byHand("nothing")
			_, err := t.PublishMessages(ctx, f.now, []storage.Publication{p})
			f.must(err)
			f.audit("no job", publish)
		}
		ctx, replace := f.byHand("replace")
		on := func(n *storage.NewJob) { n.Unique, n.Conflict = "k", &storage.Conflict{Mode: storage.Replace} }
		f.add(newJob(on))
		_, err = f.s.Enqueue(ctx, f.now, []storage.NewJob{newJob(on)})
		f.must(err)
		replace.Jobs = 1
		f.audit("a job that is replaced", replace, publish)
		if s, ok := f.s.(storage.TxEnqueuer); ok {
			ctx, inTx := f.byHand("publish in a transaction")
			f.commits(f.s, func(tx any) {
				_, err := s.PublishMessagesTx(ctx, tx, f.now, []storage.Publication{published("e", newJob())})
				f.must(err)
			})
			inTx.Jobs = 1
			f.audit("in a transaction", inTx, replace, publish)
		}
	}},

	{"audit_deed", `Further calls with that context add their Jobs to it.`, func(f *fixture) {
		f.auditor()
		ctx, e := f.byHand("enqueue")
		for range 2 {
			_, err := f.s.Enqueue(ctx, f.now, []storage.NewJob{newJob(), newJob()})
			f.must(err)
		}
		e.Jobs = 4
		f.audit("two calls", e)
		none := storage.WithoutAudit(ctx)
		_, err := f.s.Enqueue(none, f.now, []storage.NewJob{newJob()})
		f.must(err)
		f.audit("a call that is none", e)
	}},

	{"audit_limit", `Audit returns the last AuditLimit entries, the newest first.`, func(f *fixture) {
		f.auditor()
		var all []storage.AuditEntry
		for i := range storage.AuditLimit + 5 {
			ctx, e := f.byHand(fmt.Sprint("hold ", i))
			f.must(f.s.Hold(ctx, f.now, aPause))
			all = slices.Insert(all, 0, e)
		}
		f.audit("more than are kept", all[:storage.AuditLimit]...)
	}},

	{"audit_schedule", `PutSchedule, DropSchedule and PutEntries that have an effect`, func(f *fixture) {
		f.auditor()
		s := f.scheduler(f.s)
		ctx, put := f.byHand("put")
		sched := newSchedule("s").Schedule
		revision, err := s.PutSchedule(ctx, f.now, sched)
		f.must(err)
		if _, err := s.PutSchedule(ctx, f.now, sched); err != nil {
			f.Fatal(err)
		}
		f.audit("one that is there", put)
		ctx, run := f.byHand("run")
		job := sched.Job
		_, err = s.Fire(ctx, f.now, []storage.Firing{{Name: "s", Revision: revision, Next: sched.Next, Through: sched.Through,
			Ticks: []storage.NewTick{{At: f.now, Taken: storage.TickManual, Job: &job}}}})
		f.must(err)
		run.Jobs = 1
		f.audit("a run", run, put)
		ctx, drop := f.byHand("drop")
		f.must(s.DropSchedule(ctx, f.now, "s"))
		_ = s.DropSchedule(ctx, f.now, "s")
		f.audit("a drop", drop, run, put)
	}},

	{"audit_tx", `those of these with Tx in their names.
A call with a context of [WithAudit] that changes something writes its entry, in the same transaction.`, func(f *fixture) {
		f.auditor()
		s := f.transacts(f.s)
		ctx, e := f.byHand("all")
		call := func(tx any) {
			added, err := s.EnqueueTx(ctx, tx, f.now, []storage.NewJob{newJob()})
			f.must(err)
			f.must(s.ConfigureTx(ctx, tx, wholeQueue, storage.Settings{storage.SettingMaxJobs: 1000}))
			_, err = s.PutEntriesTx(ctx, tx, f.now, []storage.Entry{newEntry("a", "f", "{}")})
			f.must(err)
			_, err = s.CancelTx(ctx, tx, f.now, added[0].ID, storage.Retention{})
			f.must(err)
		}
		for way, vanishes := range f.vanishes() {
			vanishes(f.s, call)
			f.audit("after " + way)
		}
		f.commits(f.s, call)
		e.Jobs = 2
		f.audit("after a commit", e)
	}},

	{"audit_topics", `DropSchedule and PutEntries that have an effect`, func(f *fixture) {
		f.auditor()
		t := f.topics(f.s)
		ctx, put := f.byHand("put")
		_, err := t.PutEntries(ctx, f.now, []storage.Entry{newEntry("a", "f", "{}")})
		f.must(err)
		_, _ = t.PutEntries(ctx, f.now, []storage.Entry{newEntry("a", "f", "{}")})
		f.audit("an entry", put)
	}},

	{"audit_group", `SkipHead, ReleaseUnique`, func(f *fixture) {
		f.auditor()
		f.bury(storage.ReasonPermanent, "x", grouped("g"))
		ctx, skip := f.byHand("skip")
		for range 2 {
			_, _ = f.s.SkipHead(ctx, queue, "g")
		}
		skip.Jobs = 1
		f.audit("a head that is skipped, once", skip)
	}},
}
