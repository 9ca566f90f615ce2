package storagetest

import (
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// progress is how far a job has got, as of now.
func (f *fixture) progress(done int64) *storage.Progress {
	return &storage.Progress{Done: done, Total: 9, Note: fmt.Sprintf("page %d", done), At: f.now}
}

// far checks how far a job has got; nil for not known. What is returned belongs to the caller.
func (f *fixture) far(what string, id storage.ID, want *storage.Progress) {
	f.Helper()
	got := f.record(id).Progress
	switch {
	case got == nil && want == nil:
	case got == nil || want == nil:
		f.Errorf("%s: the progress is %+v, want %+v", what, got, want)
	case got.Done != want.Done || got.Total != want.Total || got.Note != want.Note || !got.At.Equal(want.At):
		f.Errorf("%s: the progress is %+v, want %+v", what, *got, *want)
	default:
		*got = storage.Progress{}
	}
}

// brought checks the result of a job; "" means that it has none.
func (f *fixture) brought(what string, id storage.ID, want string) {
	f.Helper()
	got := f.record(id).Result
	if string(got) != want || (got == nil) != (want == "") {
		f.Errorf("%s: the result is %s, want %.300q", what, show(got), want)
	}
	clear(got)
}

var resultCases = []testCase{
	{"progress_checkpoint", `Progress, if not nil, is kept in place of what was kept before.
Progress is how far the job was at its last checkpoint, or at its end.`, func(f *fixture) {
		l := f.run(f.s)
		f.far("at first", l.ID, nil)
		f.checkpoint(f.s, l.Lease, "a", storage.Applied)
		f.far("without a word", l.ID, nil)
		given := f.progress(1)
		want := *given
		f.says(f.s, storage.Checkpoint{Lease: l.Lease, Data: []byte("b"), Progress: given}, storage.Applied)
		*given = storage.Progress{}
		for range 2 {
			f.far("the first", l.ID, &want)
		}
		f.reached("with progress", l.ID, "b")
		f.later(time.Second)
		f.checkpoint(f.s, l.Lease, "c", storage.Applied)
		f.far("without a word again", l.ID, &want)
		want = storage.Progress{Done: 2, At: f.now} // without a total and a note
		f.says(f.s, storage.Checkpoint{Lease: l.Lease, Data: []byte("c"), Progress: &want}, storage.Applied)
		f.far("the second", l.ID, &want)
		for _, o := range putBack {
			f.back(l, o, f.now)
			f.far("after "+o.String(), l.ID, &want)
			l = f.leaseOne(f.s)
		}
		f.apply(f.s, died(l.Lease, storage.ReasonPermanent, "no"))
		f.redrive(storage.Selection{}, "")
		f.far("redriven", l.ID, &want)
	}},

	{"progress_end", `Progress, if not nil, is kept with any job that ends.
Progress is how far the job was at its last checkpoint, or at its end.`, func(f *fixture) {
		for _, before := range []bool{false, true} {
			for _, said := range []bool{false, true} {
				for what, fin := range map[string]storage.Finish{
					"done": {Outcome: storage.OutcomeDone}, "dead": died(storage.Lease{}, storage.ReasonPermanent, "no"),
					"cancelled": {Outcome: storage.OutcomeCancelled}, "asked to stop": {Outcome: storage.OutcomeRetry},
				} {
					var want *storage.Progress
					l := f.run(f.s)
					if before {
						want = f.progress(1)
						f.says(f.s, storage.Checkpoint{Lease: l.Lease, Data: []byte("x"), Progress: want}, storage.Applied)
					}
					f.later(time.Second)
					if fin.Lease = l.Lease; said {
						want = f.progress(2)
						given := *want
						fin.Progress = &given
					}
					if what == "asked to stop" {
						f.cancel(l.ID)
					}
					f.keep(keep, f.s, fin)
					f.far(fmt.Sprintf("%s, before: %t, at the end: %t", what, before, said), l.ID, want)
				}
			}
		}
		for _, o := range putBack {
			l := f.run(f.s)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now, Progress: f.progress(2)})
			f.far("put back after "+o.String(), l.ID, nil)
			f.cancel(l.ID)
		}
	}},

	{"result_done", `Result is kept with a job that ends with OutcomeDone, unless nil.
Result is what a job that is done has brought.`, func(f *fixture) {
		for _, large := range []string{"", string(noise(5000))} {
			for what, fin := range map[string]storage.Finish{
				"done": {Outcome: storage.OutcomeDone}, "dead": died(storage.Lease{}, storage.ReasonPermanent, "no"), "cancelled": {Outcome: storage.OutcomeCancelled},
			} {
				for _, result := range []string{"", what + large} {
					want := ""
					if what == "done" {
						want = result
					}
					for _, l := range []storage.Leased{f.run(f.s), f.stopped("x", rich)} {
						f.brought("that runs", l.ID, "")
						var given []byte
						if result != "" {
							given = []byte(result)
						}
						fin.Lease, fin.Result = l.Lease, given
						f.keep(keep, f.s, fin)
						clear(given)
						for range 2 {
							f.brought(what, l.ID, want)
						}
					}
				}
			}
		}
		for _, o := range putBack {
			l := f.run(f.s)
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now, Result: []byte("early")})
			f.brought("put back after "+o.String(), l.ID, "")
			f.keep(keep, f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
			f.brought("done without a result", l.ID, "")
		}
	}},

	{"result_gone", `Result is kept with a job that ends with OutcomeDone, unless nil.
Delete deletes dead and finished jobs for good, with all that belongs to them.
PurgeFinished deletes finished jobs whose time to be kept is over, in one bounded step.`, func(f *fixture) {
		end := func(keep time.Duration) storage.ID {
			l := f.stopped("x")
			f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone, Result: []byte("ok"), Progress: f.progress(9)})
			return l.ID
		}
		f.is("", end(0))
		kept, deleted := end(time.Minute), end(time.Minute)
		sel := states(storage.Done)
		sel.IDs = []storage.ID{deleted}
		f.did("delete", f.purgeDead(sel), 1, nil, nil)
		f.brought("the other", kept, "ok")
		f.far("the other", kept, f.progress(9))
		f.later(time.Minute)
		f.purge()
		f.is("", kept, deleted)
		f.did("delete of the dead", f.purgeDead(named(f.buried("x"))), 1, nil, nil)
		f.counts()
	}},

	{"result_spent", `If Spent takes effect, its Result and Progress count.`, func(f *fixture) {
		first := f.run(f.s) // from now on successes are noted
		f.back(first, storage.OutcomeUnavailable, f.now.Add(time.Hour))
		success := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: success.Lease, Outcome: storage.OutcomeDone})
		done, dead := storage.Finish{Outcome: storage.OutcomeDone, Result: []byte("spent")}, died(storage.Lease{}, storage.ReasonExhausted, "no")
		for _, spent := range []storage.Finish{done, dead} {
			for _, said := range []*storage.Progress{nil, f.progress(2)} {
				l := f.run(f.s)
				spent.Progress = said
				r := f.exchange(f.s, storage.Exchange{Retention: kept(keep), Finish: []storage.Finish{{
					Lease: l.Lease, Outcome: storage.OutcomeUnavailable, DueAt: f.now, Since: success.Token - 1, Spent: &spent,
					Result: []byte("own"), Progress: f.progress(1),
				}}}).Finished[0]
				if r != storage.Spent {
					f.Errorf("finishing as unavailable returned %d, want spent", r)
				}
				f.far(spent.Outcome.String(), l.ID, said)
				f.brought(spent.Outcome.String(), l.ID, string(spent.Result))
			}
		}
	}},
}
