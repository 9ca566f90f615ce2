package storagetest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// compareStates checks what States says of jobs.
func (f *fixture) compareStates(what string, ids []storage.ID, want ...storage.State) {
	f.Helper()
	if got, err := f.s.States(f.ctx, ids); err != nil || !slices.Equal(got, want) {
		f.Errorf("%s: States returned %q, %v; want %q", what, got, err, want)
	}
}

var stateCases = []testCase{
	{"states_order", `States returns the states of jobs as of one moment, in the order of ids; empty for one that there is not.`, func(f *fixture) {
		f.compareStates("of none", nil)
		dead := f.bury(storage.ReasonPermanent, "no")
		expired := f.add(newJob(startWithin(time.Minute), endsUnstarted))[0]
		f.later(time.Minute)
		f.ends(f.s, 1, expired)
		done := f.run(f.s)
		f.keep(keep, f.s, storage.Finish{Lease: done.Lease, Outcome: storage.OutcomeDone})
		gone := f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: gone.Lease, Outcome: storage.OutcomeDone})
		cancelled := f.add(newJob())[0]
		f.cancel(cancelled)
		running := f.run(f.s)
		live := f.add(newJob(), newJob(delay(time.Hour)), newJob(grouped("g")), newJob(grouped("g")))
		unknown := storage.NewID(f.now, 1, 99999)
		salt := storage.NewID(f.now, running.ID.Salt()+1, running.Key)
		created := storage.NewID(f.now.Add(time.Second), dead.Salt(), dead.Key())
		ids := []storage.ID{live[1], dead, unknown, running.ID, expired, salt, live[0], done.ID, gone.ID, created, cancelled, live[3], {}, dead}
		want := []storage.State{
			storage.Scheduled, storage.Dead, "", storage.Running, storage.Expired, "", storage.Ready, storage.Done, "", "", storage.Cancelled, storage.Blocked, "", storage.Dead,
		}
		f.compareStates("all", ids, want...)
		slices.Reverse(ids)
		slices.Reverse(want)
		f.compareStates("in reverse", ids, want...)
		f.purgeDead(named(dead))
		f.compareStates("deleted", []storage.ID{dead, running.ID}, "", storage.Running)
	}},

	{"states_moment", `States returns the states of jobs as of one moment`, func(f *fixture) {
		ids := f.add(newJob(), newJob())
		l := f.leaseOne(f.s)
		swap := func() { // one is put back and the other one leased, in one transaction
			f.Helper()
			f.later(time.Second)
			res := f.exchange(f.s, storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now}}, Wants: wants(1)})
			if len(res.Leased) != 1 || res.Leased[0].ID == l.ID {
				f.Fatalf("leased %v after %v", res.Leased, l.ID)
			}
			l = res.Leased[0]
		}
		const repeats = 20
		many := slices.Repeat(ids, repeats)
		look := func() (sound bool) {
			f.Helper()
			got, err := f.s.States(f.ctx, many)
			one := []storage.State{storage.Ready, storage.Running}
			other := []storage.State{storage.Running, storage.Ready}
			sound = err == nil && (slices.Equal(got, slices.Repeat(one, repeats)) || slices.Equal(got, slices.Repeat(other, repeats)))
			if !sound {
				f.Errorf("States returned %q, %v; want one that is ready and one that runs, %d times the same", got, err, repeats)
			}
			return sound
		}
		for range 3 {
			look()
			swap()
		}
		var wg sync.WaitGroup
		var over atomic.Bool
		defer wg.Wait()
		defer over.Store(true)
		wg.Go(func() {
			for !over.Load() && look() {
			}
		})
		for range 100 {
			swap()
		}
	}},
}
