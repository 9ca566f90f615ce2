package storagetest

import (
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

var txCases = []testCase{
	{"tx_entries", `PutEntriesTx, EntryTx and EntriesTx are PutEntries, Entry and Entries inside tx: what is written is there if tx commits, and what is read is as tx sees it.`, func(f *fixture) {
		s, topics := f.transacts(f.s), f.topics(f.s)
		entry := storage.Entry{Class: "topic", Name: "orders", Family: "orders", Doc: []byte("{}")}
		put := func(tx any) {
			revision, err := s.PutEntriesTx(f.ctx, tx, f.now, []storage.Entry{entry})
			f.must(err)
			if e, err := s.EntryTx(f.ctx, tx, entry.Class, entry.Name); err != nil || e.Revision != revision {
				f.Errorf("EntryTx returned %+v, %v; want revision %d", e, err, revision)
			}
			if all, of, err := s.EntriesTx(f.ctx, tx, entry.Class, entry.Family, "", 10); err != nil || len(all) != 1 || of != revision {
				f.Errorf("EntriesTx returned %+v, %d, %v; want revision %d", all, of, err, revision)
			}
			if _, err := topics.Entry(f.ctx, entry.Class, entry.Name); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("before the commit Entry returned %v", err)
			}
			if _, err := s.PutEntriesTx(f.ctx, tx, f.now, []storage.Entry{entry}); !errors.Is(err, storage.ErrStale) {
				f.Errorf("a second entry of the name: %v", err)
			}
		}
		for way, vanishes := range f.vanishes() {
			vanishes(f.s, put)
			if _, err := topics.Entry(f.ctx, entry.Class, entry.Name); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("after %s Entry returned %v", way, err)
			}
		}
		f.commits(f.s, put)
		if e, err := topics.Entry(f.ctx, entry.Class, entry.Name); err != nil || string(e.Doc) != "{}" || e.Family != "orders" {
			f.Errorf("Entry returned %+v, %v", e, err)
		}
	}},

	{"tx_configure", `ConfigureTx is Configure inside tx: each call of any instance that begins after tx has committed obeys the settings.`, func(f *fixture) {
		s, other := f.transacts(f.s), f.db.Open()
		limit := func(tx any) {
			f.must(s.ConfigureTx(f.ctx, tx, wholeQueue, storage.Settings{storage.SettingMaxJobs: 1}))
		}
		for way, vanishes := range f.vanishes() {
			vanishes(f.s, limit)
			if all, err := f.s.Settings(f.ctx); err != nil || len(all) != 0 {
				f.Errorf("after %s the settings are %+v, %v", way, all, err)
			}
		}
		f.commits(f.s, limit)
		f.add(newJob())
		var full *storage.QueueFullError
		for _, s := range []storage.Store{f.s, other} {
			if _, err := s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob()}); !errors.As(err, &full) {
				f.Errorf("Enqueue above the cap returned %v", err)
			}
		}
	}},

	{"tx_enqueue", `EnqueueTx is Enqueue inside tx: the jobs exist if tx commits.
Tx runs fn in a write transaction on the store's database and commits it if fn returns nil`, func(f *fixture) {
		s, other := f.transacts(f.s), f.db.Open()
		before := f.add(newJob(unique("before")))[0]
		jobs := []storage.NewJob{
			newJob(unique("key"), tagged("red")), newJob(delay(time.Hour)), newJob(unique("key")), newJob(unique("before")),
		}
		var out []storage.Enqueued
		f.commits(f.s, func(tx any) {
			var err error
			out, err = s.EnqueueTx(f.ctx, tx, f.now, jobs)
			f.must(err)
			clear(jobs[0].Args)
			again, err := s.EnqueueTx(f.ctx, tx, f.now, []storage.NewJob{newJob(unique("key"))})
			f.must(err)
			if !again[0].Duplicate || again[0].ID != out[0].ID {
				f.Errorf("a second call in the transaction answered %+v", again)
			}
			f.is("", out[0].ID, out[1].ID)
			f.isTo(other, "", out[0].ID, out[1].ID)
			f.counts(count(storage.Ready, 1))
		})
		if len(out) != 4 || out[0].Duplicate || out[1].Duplicate || !out[2].Duplicate || out[2].ID != out[0].ID || !out[3].Duplicate || out[3].ID != before {
			f.Fatalf("EnqueueTx answered %+v", out)
		}
		f.isTo(other, storage.Ready, out[0].ID)
		f.is(storage.Scheduled, out[1].ID)
		if r := f.record(out[0].ID); string(r.Args) != string(newJob().Args) || !r.CreatedAt.Equal(f.now) || !slices.Equal(r.Tags, []string{"red"}) {
			f.Errorf("the job is %+v", r)
		}
		if e := f.enqueue(newJob(unique("key")))[0]; !e.Duplicate || e.ID != out[0].ID {
			f.Errorf("the unique key is not held: %+v", e)
		}
		f.order("leased", leasedIDs(f.lease(other, 9)), []storage.ID{before, out[0].ID})
	}},

	{"tx_enqueue_vanishes", `EnqueueTx is Enqueue inside tx: the jobs exist if tx commits.
otherwise, or if fn panics, it is rolled back.`, func(f *fixture) {
		f.transacts(f.s)
		for _, vanishes := range f.vanishes() {
			var ids []storage.ID
			vanishes(f.s, func(tx any) { ids = f.addTx(f.s, tx, newJob(unique("key"), grouped("g")), newJob(delay(time.Second))) })
			f.is("", ids...)
			f.counts()
			if got := f.lease(f.s, 9); len(got) != 0 {
				f.Errorf("leased %v", got)
			}
			l := f.run(f.s, unique("key"), grouped("g"))
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}},

	{"tx_cancel", `CancelTx is Cancel inside tx: it takes effect if tx commits, and the holder of a running job learns of it with its next extension after that.`, func(f *fixture) {
		s, other := f.transacts(f.s), f.db.Open()
		ran := f.run(other)
		ids := append(f.add(newJob(unique("key")), newJob(delay(time.Hour))), ran.ID)
		cancel := func(tx any) {
			f.Helper()
			for i, want := range []storage.State{storage.Cancelled, storage.Cancelled, storage.Running} {
				if state, err := s.CancelTx(f.ctx, tx, f.now, ids[i], kept(keep)); err != nil || state != want {
					f.Errorf("CancelTx returned %q, %v; want %q", state, err, want)
				}
			}
			f.isTo(other, storage.Ready, ids[0])
			f.isTo(other, storage.Scheduled, ids[1])
		}
		for _, vanishes := range f.vanishes() {
			vanishes(f.s, cancel)
			f.states("rolled back", ids, "ready scheduled running")
			if r := f.extend(other, ran.Lease); r != storage.Applied {
				f.Errorf("extending after a rollback returned %d, want applied", r)
			}
		}
		f.commits(f.s, cancel)
		f.states("committed", ids, "cancelled cancelled running")
		f.add(newJob(unique("key")))
		if r := f.extend(other, ran.Lease); r != storage.Cancelling {
			f.Errorf("extending after the commit returned %d, want cancelling", r)
		}
	}},

	{"tx_cancel_answers", `CancelTx is Cancel inside tx
It returns [ErrNotFound] if there is no such job.`, func(f *fixture) {
		s := f.transacts(f.s)
		l := f.run(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.declines(f.s, func(tx any) {
			if state, err := s.CancelTx(f.ctx, tx, f.now, l.ID, kept(keep)); err != nil || state != storage.Done {
				f.Errorf("CancelTx of a job that has ended returned %q, %v", state, err)
			}
			id := f.addTx(f.s, tx, newJob())[0]
			if state, err := s.CancelTx(f.ctx, tx, f.now, id, kept(0)); err != nil || state != storage.Cancelled {
				f.Errorf("CancelTx of a job of the transaction returned %q, %v", state, err)
			}
			if state, err := s.CancelTx(f.ctx, tx, f.now, id, kept(0)); !errors.Is(err, storage.ErrNotFound) || state != "" {
				f.Errorf("CancelTx of a job that is gone returned %q, %v; want ErrNotFound", state, err)
			}
		})
	}},

	{"tx_wrong", `any other is a transaction on another database.
It returns [ErrWrongDatabase] for a transaction on another database.
FinishTx and LookTx return [ErrWrongDatabase] for a transaction on another database.`, func(f *fixture) {
		s := f.transacts(f.s)
		l := f.begun(f.s)
		type otherTx struct{}
		calls := map[string]func(tx any) error{
			"EnqueueTx": func(tx any) error {
				_, err := s.EnqueueTx(f.ctx, tx, f.now, times(1, newJob()))
				return err
			},
			"CancelTx": func(tx any) error {
				_, err := s.CancelTx(f.ctx, tx, f.now, l.ID, kept(0))
				return err
			},
			"FinishTx": func(tx any) error {
				_, _, err := finishOneTx(s)(f.ctx, tx, f.now, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}, kept(0), func() { f.Errorf("committed was called") })
				return err
			},
			"LookTx": func(tx any) error {
				_, err := s.LookTx(f.ctx, tx, l.Lease)
				return err
			},
			"CheckpointTx": func(tx any) error {
				_, err := s.CheckpointTx(f.ctx, tx, storage.Checkpoint{Lease: l.Lease, Data: []byte("x")})
				return err
			},
		}
		if _, ok := f.s.(storage.Topics); ok {
			calls["PublishMessagesTx"] = func(tx any) error {
				_, err := s.PublishMessagesTx(f.ctx, tx, f.now, []storage.Publication{published("a", newJob())})
				return err
			}
			calls["PutEntriesTx"] = func(tx any) error {
				_, err := s.PutEntriesTx(f.ctx, tx, f.now, []storage.Entry{{Class: "topic", Name: "orders", Doc: []byte("{}")}})
				return err
			}
			calls["EntryTx"] = func(tx any) error {
				_, err := s.EntryTx(f.ctx, tx, "topic", "orders")
				return err
			}
			calls["EntriesTx"] = func(tx any) error {
				_, _, err := s.EntriesTx(f.ctx, tx, "topic", "", "", 1)
				return err
			}
		}
		for name, call := range calls {
			if err := call(otherTx{}); !errors.Is(err, storage.ErrWrongDatabase) {
				f.Errorf("%s returned %v, want ErrWrongDatabase", name, err)
			}
		}
		f.counts(count(storage.Running, 1))
		f.looks("after these", f.s, nil, l, storage.Applied)
		f.reached("after these", l.ID, "")
	}},

	{"tx_busy", `Another call of the Store that writes, made by fn itself, returns [ErrBusy] at once: it would wait for fn.`, func(f *fixture) {
		s := f.transacts(f.s)
		l := f.run(f.s)
		calls := map[string]func() error{
			"Enqueue": func() error {
				_, err := f.s.Enqueue(f.ctx, f.now, times(1, newJob()))
				return err
			},
			"Exchange": func() error {
				_, err := f.s.Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: hold, Extend: []storage.Lease{l.Lease}})
				return err
			},
			"Cancel": func() error {
				_, err := f.s.Cancel(f.ctx, f.now, l.ID, kept(0))
				return err
			},
			"Hold": func() error { return f.s.Hold(f.ctx, f.now, aPause) },
			"Checkpoint": func() error {
				_, err := f.s.Checkpoint(f.ctx, storage.Checkpoint{Lease: l.Lease, Data: []byte("x")})
				return err
			},
			"Tx": func() error { return s.Tx(f.ctx, func(any) error { return nil }) },
		}
		var ids []storage.ID
		f.commits(f.s, func(tx any) {
			for name, call := range calls {
				if err := call(); !errors.Is(err, storage.ErrBusy) {
					f.Errorf("%s in a transaction returned %v, want ErrBusy", name, err)
				}
			}
			ids = f.addTx(f.s, tx, newJob())
		})
		f.is(storage.Ready, ids...)
		if r := f.extend(f.s, l.Lease); r != storage.Applied {
			f.Errorf("extending returned %d, want applied", r)
		}
	}},

	{"tx_publish", `PublishMessagesTx is PublishMessages inside tx: what it wrote is there if tx commits.`, func(f *fixture) {
		s := f.transacts(f.s)
		f.topics(f.s)
		publish := func(tx any) {
			f.Helper()
			_, err := s.PublishMessagesTx(f.ctx, tx, f.now, []storage.Publication{published("a", newJob())})
			f.must(err)
			f.there(false, "a")
			f.counts()
		}
		for _, vanishes := range f.vanishes() {
			vanishes(f.s, publish)
			f.there(false, "a")
			f.counts()
		}
		f.commits(f.s, publish)
		f.there(true, "a")
		f.counts(count(storage.Ready, 1))
	}},

	{"notify_tx", `Notify makes the Store call f after each commit, of this process or another, that may concern a worker.
Cancel is true if a running job may have been asked to stop, so that leases should be extended soon.`, func(f *fixture) {
		s, other := f.transacts(f.s), f.db.Open()
		due, both := f.hearsDue(other), f.hearsBoth(other)
		due("enqueued", f.now, func() { f.commits(f.s, func(tx any) { f.addTx(f.s, tx, newJob()) }) })
		l := f.leaseOne(f.s)
		both("asked to stop", cancels, func() {
			f.commits(f.s, func(tx any) {
				_, err := s.CancelTx(f.ctx, tx, f.now, l.ID, kept(keep))
				f.must(err)
			})
		})
		ids := f.add(newJob(grouped("g")), newJob(grouped("g")))
		l = f.leaseOne(f.s)
		f.begins(f.s, l)
		due("let in", f.now, func() { f.commits(f.s, func(tx any) { f.finishTx(f.s, tx, l, storage.Applied) }) })
		f.is(storage.Ready, ids[1])
	}},
}
