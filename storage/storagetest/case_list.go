package storagetest

import (
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

var listCases = []testCase{
	{"tags_stay", `Tags []string // distinct, none of them empty or with a space
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
