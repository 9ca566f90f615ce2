package storagetest

import (
	"reflect"
	"time"

	"github.com/errandq/errand/storage"
)

// marker returns s as one that notes which handlers run, or skips the case.
func (f *fixture) marker(s storage.Store) storage.Marker {
	f.Helper()
	m, ok := s.(storage.Marker)
	if !ok {
		f.skip("storage.Marker")
	}
	return m
}

// begin notes that the handler of l is running, and ended that it has returned.
func (f *fixture) begin(s storage.Store, l storage.Lease) {
	f.Helper()
	f.must(f.marker(s).Started(l, f.now))
}
func (f *fixture) ended(s storage.Store, l storage.Lease) { f.Helper(); f.must(f.marker(s).Ended(l)) }
func (f *fixture) stopping(s storage.Store, l storage.Lease) {
	f.Helper()
	f.must(f.marker(s).Stopping(l))
}

// fates checks what s reclaims, by job.
func (f *fixture) fates(s storage.Store, mono time.Duration, want map[int64]storage.Fate) {
	f.Helper()
	got := f.reclaim(s, mono)
	for _, r := range got {
		if w, ok := want[r.Key]; !ok || r.Fate != f.known(w) {
			f.Errorf("job %d was reclaimed with fate %s, want %s", r.Key, fateName(r.Fate), fateName(w))
		}
	}
	if len(got) != len(want) {
		f.Errorf("%d leases were reclaimed, want %d", len(got), len(want))
	}
}

// three leases three jobs to s: one is not started, one is running, the
// handler of the last has returned.
func (f *fixture) three(s storage.Store) (unstarted, running, returned storage.Leased) {
	f.Helper()
	f.add(times(3, newJob())...)
	l := f.lease(s, 3)
	f.begin(s, l[1].Lease)
	f.begin(s, l[2].Lease)
	f.ended(s, l[2].Lease)
	return l[0], l[1], l[2]
}

var fateCases = []testCase{
	{"fate_killed", `Started notes that the handler of a lease is about to be called.
Ended notes that the handler has returned.
A holder is gone if its instance is
Unstarted: its process died before the handler was called.
Crashed: its process died while the handler ran
or the handler had returned and its outcome was not written.
The notes outlive the process`, func(f *fixture) {
		a := f.db.Open()
		unstarted, running, returned := f.three(a)
		f.takesNothing(f.s, 0)
		f.db.Kill(a)
		f.fates(f.s, 0, map[int64]storage.Fate{unstarted.Key: storage.Unstarted, running.Key: storage.Crashed, returned.Key: storage.Cut})
		f.takesNothing(f.s, time.Hour)
	}},

	{"fate_started_again", `It may come again after Ended, if the handler was not called the first time.`, func(f *fixture) {
		a := f.db.Open()
		unstarted, running, again := f.three(a)
		f.begin(a, again.Lease)
		f.db.Kill(a)
		f.fates(f.s, 0, map[int64]storage.Fate{unstarted.Key: storage.Unstarted, running.Key: storage.Crashed, again.Key: storage.Crashed})
	}},

	{"fate_stopping", `Stopping notes that the worker of a lease is being stopped. It means nothing for a lease that is not started.
Cut: the handler may have run but is not to blame: the machine went down, the worker was being stopped`, func(f *fixture) {
		a := f.db.Open()
		unstarted, running, returned := f.three(a)
		another := f.run(a)
		f.begin(a, another.Lease)
		for _, l := range []storage.Leased{unstarted, running, returned} {
			f.stopping(a, l.Lease)
		}
		f.takesNothing(f.s, 0)
		f.db.Kill(a)
		f.fates(f.s, 0, map[int64]storage.Fate{
			unstarted.Key: storage.Unstarted, running.Key: storage.Cut, returned.Key: storage.Cut, another.Key: storage.Crashed,
		})
	}},

	{"fate_started_at", `StartedAt is when the handler was called, as Started was told, or as the Exchange was that wrote the start; zero if that is not known: the holder lives, or was closed after the handler had returned, its machine went down, or another reclaimer has died since.`, func(f *fixture) {
		f.add(newJob())
		a, b := f.db.Open(), f.db.Open()
		f.begin(a, f.lease(a, 1)[0].Lease)
		began := f.now
		f.later(time.Minute)
		f.db.Kill(a)
		for _, r := range f.reclaim(b, 0) {
			if !r.StartedAt.Equal(began) {
				f.Errorf("StartedAt is %v, want %v", r.StartedAt, began)
			}
		}
		f.db.Kill(b)
		for _, r := range f.reclaim(f.s, 0) {
			if !r.StartedAt.IsZero() {
				f.Errorf("StartedAt is %v after another reclaimer has died, want zero", r.StartedAt)
			}
		}
		f.add(newJob())
		c := f.db.Open()
		l := f.lease(c, 1)[0].Lease
		f.begin(c, l)
		f.ended(c, l)
		f.must(c.Close())
		for _, r := range f.reclaim(f.s, 0) {
			if !r.StartedAt.IsZero() || r.Key != l.Key {
				f.Errorf("StartedAt of job %d is %v after Close, want zero", r.Key, r.StartedAt)
			}
		}
	}},

	{"record_started_at", `StartedAt is when the handler of a running job was called, as Started was told. It is zero for a job that is leased and not started, or if the time is not known.`, func(f *fixture) {
		a := f.db.Open()
		f.add(newJob(), newJob())
		f.marker(a)
		all := f.lease(a, 2)
		began := f.now
		f.begin(a, all[0].Lease)
		f.later(time.Minute)
		is := func(when string, want ...time.Time) {
			f.Helper()
			page, err := f.s.Jobs(f.ctx, storage.Filter{}, "", 10)
			f.must(err)
			listed := map[storage.ID]time.Time{}
			for _, r := range page.Jobs {
				listed[r.ID] = r.StartedAt
			}
			for i, l := range all {
				if got := f.record(l.ID).StartedAt; !got.Equal(want[i]) || !listed[l.ID].Equal(want[i]) {
					f.Errorf("%s StartedAt of job %d is %v, and in a list %v; want %v", when, l.Key, got, listed[l.ID], want[i])
				}
			}
		}
		is("while one of two handlers runs,", began, time.Time{})
		f.ended(a, all[0].Lease)
		f.back(all[0], storage.OutcomeReturned, time.Time{})
		is("once it is given back,", time.Time{}, time.Time{})
		f.begin(a, all[1].Lease)
		is("once the other one runs,", time.Time{}, f.now)
		f.db.Kill(a)
		f.reclaim(f.s, 0)
		is("after a takeover,", time.Time{}, time.Time{})
	}},

	{"fate_rebooted", `Cut: the handler may have run but is not to blame: the machine went down
The notes outlive the process but not the machine`, func(f *fixture) {
		a := f.db.Open()
		unstarted, running, returned := f.three(a)
		f.db.Reboot(a)
		f.fates(f.s, 0, map[int64]storage.Fate{unstarted.Key: storage.Cut, running.Key: storage.Cut, returned.Key: storage.Cut})
	}},

	{"fate_lapsed", `the lease lapsed in a living process (which may call the handler even now)`, func(f *fixture) {
		a := f.db.Open()
		unstarted, running, returned := f.three(a)
		f.takesNothing(f.s, 0)
		f.fates(f.s, hold, map[int64]storage.Fate{unstarted.Key: storage.Cut, running.Key: storage.Cut, returned.Key: storage.Cut})
	}},

	{"fate_unmarked", `Reclaim returns an attempt as [Crashed] if its start was written, as Exchange.Start says, and not taken back by Exchange.Stop, and its holder's instance is gone; it returns any other as [Cut].
Close takes the handlers of all leases for running.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		if _, ok := a.(storage.Marker); ok {
			f.skip("no storage.Marker")
		}
		la, lb := f.run(a), f.run(b)
		f.db.Kill(a)
		f.takes(f.s, 0, la.Lease, storage.Cut)
		f.must(b.Close())
		f.takesNothing(f.s, 0)
		f.takesNothing(f.s, 10*hold)
		f.db.Kill(b)
		f.takes(f.s, 10*hold, lb.Lease, storage.Cut)
	}},

	{"fate_alone", `Alone reports whether a further call of Reclaim would find nothing: no other instance was registered, and no lease was left without its instance, when this one last called Reclaim`, func(f *fixture) {
		alone := func(what string, want bool) {
			f.Helper()
			f.takesNothing(f.s, 0)
			p, ok := f.s.(storage.Peers)
			if !ok {
				f.skip("storage.Peers")
			}
			if got := p.Alone(); got != want {
				f.Errorf("%s: alone is %t, want %t", what, got, want)
			}
		}
		f.finishAll(f.s, f.run(f.s))
		alone("at first", true)
		a := f.db.Open()
		l := f.run(a)
		alone("beside another", false)
		f.db.Kill(a)
		f.takes(f.s, 0, l.Lease, storage.Unstarted)
		alone("when the other is gone", true)
	}},

	{"fate_many_holders", `Reclaim takes leases from holders that are gone`, func(f *fixture) {
		a, b, c := f.db.Open(), f.db.Open(), f.db.Open()
		_, a1, _ := f.three(a)
		b0, b1, b2 := f.three(b)
		f.three(c)
		f.apply(a, storage.Finish{Lease: a1.Lease, Outcome: storage.OutcomeDone})
		f.db.Kill(b)
		f.fates(f.s, 0, map[int64]storage.Fate{b0.Key: storage.Unstarted, b1.Key: storage.Crashed, b2.Key: storage.Cut})
		f.counts(count(storage.Running, 8))
	}},

	{"fate_leased_answer", `Reclaimed is a job whose lease was taken from a holder that is gone.
gives each a new token held by this instance until it is finished
Holder is the instance it was taken from.
Cancelling is true if the job had been asked to stop.`, func(f *fixture) {
		a := f.db.Open()
		l := f.run(a, priority(5), func(n *storage.NewJob) {
			n.Headers, n.Policy, n.Timeout, n.DueAt = []byte("h"), []byte("p"), time.Second, f.now.Add(-time.Second)
		})
		f.apply(a, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCrashed, DueAt: f.now, Failure: &storage.NewFailure{Error: "x"}})
		name := f.record(l.ID).History[0].Instance
		l = f.leaseOne(a)
		asked := f.run(a)
		f.cancel(asked.ID)
		f.later(time.Second)
		f.db.Kill(a)
		got := f.reclaim(f.s, 0)
		if len(got) != 2 {
			f.Fatalf("%d leases were reclaimed, want 2", len(got))
		}
		for _, r := range got {
			want := l
			if r.Key == asked.Key {
				want = asked
			}
			if r.Token <= want.Token {
				f.Errorf("the new token is %d, the old was %d", r.Token, want.Token)
			}
			if r.Holder != name || name == "" {
				f.Errorf("job %d was taken from %q, want %q", r.Key, r.Holder, name)
			}
			if r.Cancelling != (r.Key == asked.Key) {
				f.Errorf("job %d: cancelling is %v", r.Key, r.Cancelling)
			}
			r.Token, want.Previous = want.Token, want.Token
			for _, l := range []*storage.Leased{&r.Leased, &want} {
				l.CreatedAt, l.DueAt = l.CreatedAt.UTC(), l.DueAt.UTC()
			}
			if !reflect.DeepEqual(r.Leased, want) {
				f.Errorf("reclaimed:\n got %+v\nwant %+v", r.Leased, want)
			}
		}
		f.is(storage.Running, l.ID, asked.ID)
	}},

	{"fate_held_by_reclaimer", `gives each a new token held by this instance until it is finished: the old holder can neither extend nor finish any more.`, func(f *fixture) {
		a, c := f.db.Open(), f.db.Open()
		l := f.run(a)
		f.begin(a, l.Lease)
		f.takesNothing(f.s, 0)
		r := f.takes(f.s, hold, l.Lease, storage.Cut)
		f.late("a reclaimed job", l.Lease)
		if got := f.extend(a, l.Lease); got != storage.Lost {
			f.Errorf("the old holder's extension returned %d, want lost", got)
		}
		if got := f.finish(a, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}); got != storage.Lost {
			f.Errorf("the old holder's outcome returned %d, want lost", got)
		}
		f.ended(a, l.Lease)
		f.takesNothing(c, 0)
		f.takesNothing(a, 0)
		if got := f.extend(f.s, r.Lease); got != storage.Applied {
			f.Errorf("the new holder's extension returned %d, want applied", got)
		}
		f.order("leased meanwhile", leasedIDs(f.lease(c, 1)), nil)
		f.apply(f.s, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeInterrupted})
		f.is(storage.Ready, l.ID)
		f.late("a reclaimed job put back", l.Lease)
	}},

	{"fate_survives", `It survives a reclaimer that dies itself before the job is finished.`, func(f *fixture) {
		a, b, c, d := f.db.Open(), f.db.Open(), f.db.Open(), f.db.Open()
		unstarted, running, returned := f.three(a)
		want := map[int64]storage.Fate{unstarted.Key: storage.Unstarted, running.Key: storage.Crashed, returned.Key: storage.Cut}
		f.db.Kill(a)
		f.fates(b, 0, want)
		f.db.Kill(b)
		f.fates(c, 0, want)
		f.db.Reboot(c)
		f.fates(d, 0, want)
		f.takesNothing(f.s, 0)
		f.fates(f.s, hold, want) // lapsed at d
	}},

	{"fate_of_one_attempt", `Fate is what is known of the attempt.`, func(f *fixture) {
		a, b, c := f.db.Open(), f.db.Open(), f.db.Open()
		l := f.run(a)
		f.begin(a, l.Lease)
		f.db.Kill(a)
		r := f.takes(b, 0, l.Lease, storage.Crashed)
		f.apply(b, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeCrashed, DueAt: f.now})
		next := f.leaseOne(c)
		f.db.Kill(c)
		f.takes(b, 0, next.Lease, storage.Unstarted)
	}},

	{"fate_finished", `A lease that is finished needs no further note.`, func(f *fixture) {
		a := f.db.Open()
		l := f.run(a)
		f.begin(a, l.Lease)
		f.apply(a, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		again := f.leaseOne(a)
		f.db.Kill(a)
		f.takes(f.s, 0, again.Lease, storage.Unstarted)
	}},

	{"fate_many_notes", `The notes outlive the process but not the machine, cost no transaction, and show Reclaim which handlers were running.`, func(f *fixture) {
		a := f.db.Open()
		want := map[int64]storage.Fate{}
		for round := range 5 {
			f.add(times(60, newJob())...)
			for i, l := range f.lease(a, 60) {
				if i%3 > 0 {
					f.begin(a, l.Lease)
				}
				if i%3 == 2 {
					f.ended(a, l.Lease)
				}
				if (i+round)%2 == 0 {
					f.apply(a, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
					continue
				}
				want[l.Key] = []storage.Fate{storage.Unstarted, storage.Crashed, storage.Cut}[i%3]
			}
		}
		f.db.Kill(a)
		f.fates(f.s, 0, want)
	}},
}

var lapseCases = []testCase{
	{"lapse_full_lease", `or if calls of Reclaim on this Store have seen no extension of the lease for as long as the longest lease that the holder has asked for. mono measures that: it is a reading of a monotonic clock with any origin.`, func(f *fixture) {
		for _, origin := range []time.Duration{0, 1_000_000 * time.Hour, -time.Hour} {
			a, b := f.db.Open(), f.db.Open()
			l := f.run(a)
			f.takesNothing(b, origin)
			f.takesNothing(b, origin+hold/2)
			f.takesNothing(b, origin+hold-time.Microsecond)
			r := f.takes(b, origin+hold, l.Lease, storage.Cut)
			f.apply(b, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeDone})
		}
	}},

	{"lapse_own_observation", `calls of Reclaim on this Store have seen no extension of the lease`, func(f *fixture) {
		a, b, c := f.db.Open(), f.db.Open(), f.db.Open()
		f.takesNothing(b, 0) // before there was a lease: shows nothing
		l := f.run(a)
		f.takesNothing(b, 10*hold)
		f.takesNothing(c, 20*hold)
		f.takesNothing(b, 11*hold-1000)
		f.takes(b, 11*hold, l.Lease, storage.Cut)
	}},

	{"lapse_wall_clock", `The wall clock takes nobody's lease.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		l := f.run(a)
		start := f.now
		for i, ahead := range []time.Duration{0, time.Hour, -time.Hour, 1000 * time.Hour, hold} {
			f.now = start.Add(ahead)
			f.takesNothing(b, time.Duration(i)*time.Second)
		}
		f.now = start.Add(time.Second)
		if r := f.extend(a, l.Lease); r != storage.Applied {
			f.Errorf("extending returned %d, want applied", r)
		}
		// Nor does it save one.
		f.takesNothing(b, time.Minute)
		f.now = start.Add(-24 * time.Hour)
		f.takes(b, time.Minute+hold, l.Lease, storage.Cut)
	}},

	{"lapse_wall_clock_of_holder", `The wall clock takes nobody's lease.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		start := f.now
		f.add(newJob(dueAt(start.Add(-100 * time.Hour))))
		f.now = start.Add(-time.Hour) // the lease is over by the clock of b
		l := f.leaseOne(a)
		f.now = start
		f.takesNothing(b, 0)
		f.takesNothing(b, time.Second)
		f.takes(b, hold, l.Lease, storage.Cut)
	}},

	{"lapse_extension", `have seen no extension of the lease for as long as the longest lease that the holder has asked for`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		l := f.run(a)
		f.takesNothing(b, 0)
		for i := range 5 {
			f.later(time.Second)
			f.extend(a, l.Lease)
			f.takesNothing(b, time.Duration(i+1)*hold) // sees it for the first time so
		}
		f.takesNothing(b, 6*hold-1000)
		f.takes(b, 6*hold, l.Lease, storage.Cut)
	}},

	{"lapse_pulse", `Pulse makes all later calls of Reclaim take the leases of this instance for extended.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		p, ok := a.(storage.Pulser)
		if !ok {
			f.skip("storage.Pulser")
		}
		l, other := f.run(a), f.run(b)
		f.takesNothing(f.s, 0)
		f.must(p.Pulse())
		f.takesNothing(f.s, hold-1000)
		f.must(p.Pulse())
		f.takes(f.s, hold, other.Lease, storage.Cut)
		f.takesNothing(f.s, 2*hold-1000)
		f.later(time.Second)
		if got := f.extend(a, l.Lease); got != storage.Applied {
			f.Errorf("extending returns %d, want applied", got)
		}
		f.takesNothing(f.s, 5*hold/2)
		f.takes(f.s, 7*hold/2, l.Lease, storage.Cut)
	}},

	{"lapse_leased_again", `calls of Reclaim on this Store have seen no extension of the lease`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		l := f.run(a)
		f.takesNothing(b, 0)
		// The same until, but another token.
		f.apply(a, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		l = f.leaseOne(a)
		f.takesNothing(b, hold)
		f.takes(b, 2*hold, l.Lease, storage.Cut)
	}},

	{"lapse_lease_of_holder", `the longest lease that the holder has asked for
lease is the length of the new leases.`, func(f *fixture) {
		a, b, c := f.db.Open(), f.db.Open(), f.db.Open()
		f.add(newJob())
		l := f.exchange(a, storage.Exchange{Wants: wants(1), LeaseDuration: 4 * hold}).Leased[0]
		f.takesNothing(b, 0)
		f.takesNothing(b, hold)
		f.takesNothing(b, 4*hold-1000)
		got := f.reclaimFor(b, 4*hold, hold/2, 9)
		if len(got) != 1 || got[0].Key != l.Key {
			f.Fatalf("reclaimed %v, want the job", got)
		}
		f.takesNothing(c, 0)
		f.takesNothing(c, hold/2-1000)
		f.takes(c, hold/2, got[0].Lease, storage.Cut)
	}},

	{"lapse_longest_lease", `for as long as the longest lease that the holder has asked for
LeaseDuration is how long leases granted or extended here last from now.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		l := f.run(a)
		f.takesNothing(b, 0)
		f.later(time.Second)
		f.exchange(a, storage.Exchange{Extend: []storage.Lease{l.Lease}, LeaseDuration: 4 * hold})
		f.takesNothing(b, hold)
		f.takesNothing(b, 5*hold-1000)
		f.takes(b, 5*hold, l.Lease, storage.Cut)
	}},

	{"lapse_own_leases", `Leases of this instance are never reclaimed, but for those whose answer was lost`, func(f *fixture) {
		l := f.run(f.s)
		for i := range 5 {
			f.later(10 * hold)
			f.takesNothing(f.s, time.Duration(i)*10*hold)
		}
		a := f.db.Open()
		other := f.run(a)
		f.db.Kill(a)
		f.takes(f.s, 100*hold, other.Lease, storage.Unstarted)
		f.takesNothing(f.s, 200*hold)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}},

	{"lapse_limit", `at most limit of them`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		f.add(times(7, newJob())...)
		f.lease(a, 7)
		f.reclaimFor(b, 0, hold, 2) // sees them all, whatever the limit
		for _, want := range []int{2, 2} {
			if got := f.reclaimFor(b, hold, hold, 2); len(got) != want {
				f.Errorf("reclaimed %d lapsed leases, want %d", len(got), want)
			}
		}
		f.db.Kill(a)
		for _, want := range []int{2, 1, 0} {
			if got := f.reclaimFor(b, hold, hold, 2); len(got) != want {
				f.Errorf("reclaimed %d leases of the dead, want %d", len(got), want)
			}
		}
	}},
}
