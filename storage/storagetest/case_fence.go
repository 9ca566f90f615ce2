package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

var fenceCases = []testCase{
	{"fence_finished", `A job that is leased again has another token, so a late holder names a lease that no longer exists.
Lost: the lease is no longer held; nothing was changed.`, func(f *fixture) {
		old := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: old.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		f.late("a waiting job", old.Lease)
		l := f.leaseOne(f.s)
		f.late("a job leased again", old.Lease)
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.late("a finished job", l.Lease)

		dead := f.run(f.s)
		f.apply(f.s, died(dead.Lease, storage.ReasonPermanent, "no"))
		f.late("a dead job", dead.Lease)
		_, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{dead.ID}}, "")
		f.must(err)
		f.late("a redriven job", dead.Lease)
		l = f.leaseOne(f.s)
		f.late("a redriven job leased again", dead.Lease)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}},

	{"fence_twice", `Lost: the lease is no longer held; nothing was changed.`, func(f *fixture) {
		l := f.run(f.s)
		res := f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{
			{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now},
			{Lease: l.Lease, Outcome: storage.OutcomeDone},
		}})
		if res.Finished[0] != storage.Applied || res.Finished[1] != storage.Lost {
			f.Errorf("finishing twice in one exchange returned %v, want applied and lost", res.Finished)
		}
		f.is(storage.Ready, l.ID)
	}},

	{"fence_emptied", `Job keys and lease tokens are positive and rise from each call to the calls that begin after it
Neither is ever reused, also not after every job was deleted.`, func(f *fixture) {
		var old []storage.Leased
		for round := range 3 {
			f.add(times(3, newJob())...)
			l := f.lease(f.s, 3)
			f.apply(f.s, storage.Finish{Lease: l[0].Lease, Outcome: storage.OutcomeDone})
			f.apply(f.s, died(l[1].Lease, storage.ReasonPermanent, "no"))
			f.apply(f.s, storage.Finish{Lease: l[2].Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
			if _, err := f.s.Cancel(f.ctx, f.now, l[2].ID, kept(0)); err != nil {
				f.Fatalf("Cancel: %v", err)
			}
			if _, err := f.s.Delete(f.ctx, storage.Selection{}); err != nil {
				f.Fatalf("Delete: %v", err)
			}
			f.counts()
			old = append(old, l...)
			if round == 1 { // the counters outlive the process
				f.must(f.s.Close())
				f.s = f.db.Open()
			}
		}
		// The helpers have checked that no key and no token came twice.
		fresh := f.run(f.s)
		for _, l := range old {
			if l.Key <= 0 || l.Token <= 0 || fresh.Key <= l.Key || fresh.Token <= l.Token {
				f.Errorf("key %d and token %d, after %d and %d", fresh.Key, fresh.Token, l.Key, l.Token)
			}
			f.late("a stranger", l.Lease)
			f.late("a stranger", storage.Lease{Key: fresh.Key, Token: l.Token})
			f.is("", l.ID)
		}
		f.is(storage.Running, fresh.ID)
	}},
}

// late checks that a lease which is no longer held can do nothing.
func (f *fixture) late(what string, l storage.Lease) {
	f.Helper()
	all := func() []storage.Record {
		r, err := f.s.Job(f.ctx, f.ids[l.Key])
		if err != nil {
			return nil
		}
		return []storage.Record{r}
	}
	before := all()
	if r := f.extend(f.s, l); r != storage.Lost {
		f.Errorf("%s: extending returned %d, want lost", what, r)
	}
	for o := storage.OutcomeDone; o <= storage.OutcomeDead; o++ {
		fin := storage.Finish{Lease: l, Outcome: o, DueAt: f.now.Add(time.Hour), Reason: storage.ReasonPermanent, Error: "late", Failure: &storage.NewFailure{Error: "late"}}
		if r := f.finish(f.s, fin); r != storage.Lost {
			f.Errorf("%s: outcome %d returned %d, want lost", what, o, r)
		}
	}
	after := all()
	if len(before) != len(after) {
		f.Errorf("%s: the late holder made it come or go", what)
		return
	}
	for i := range before {
		f.same(what+" after its late holder", after[i], before[i])
	}
}
