package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// unmarked skips the case if f.s notes which handlers run.
func (f *fixture) unmarked() {
	f.Helper()
	if _, ok := f.s.(storage.Marker); ok {
		f.skip("no storage.Marker")
	}
}

// starts is an Exchange of s that writes starts, and checks what it answers.
func (f *fixture) starts(s storage.Store, want storage.ItemResult, leases ...storage.Lease) {
	f.Helper()
	for i, got := range f.exchange(s, storage.Exchange{Start: leases}).Started {
		if got != want {
			f.Errorf("the start of job %d is answered by %d, want %d", leases[i].Key, got, want)
		}
	}
}

// leasesOne leases one job to s, and checks whether its start is to be written.
func (f *fixture) leasesOne(what string, s storage.Store, write bool) storage.Leased {
	f.Helper()
	l := f.leaseOne(s)
	if l.WriteStart != write {
		f.Errorf("%s: WriteStart is %t, want %t", what, l.WriteStart, write)
	}
	return l
}

// cutOff lets another instance die that holds a job, which is put back.
func (f *fixture) cutOff() {
	f.Helper()
	a := f.db.Open()
	l := f.leaseOne(a)
	f.db.Kill(a)
	r := f.takes(f.s, 0, l.Lease, storage.Unstarted)
	if r.WriteStart {
		f.Errorf("a lease that was reclaimed has WriteStart")
	}
	f.back(r.Leased, storage.OutcomeInterrupted, time.Time{})
}

var startCases = []testCase{
	{"start_items", `Start are held leases whose handlers are about to be called.
Each item has its own result; a bad item never fails its exchange.
before any of Finish takes effect`, func(f *fixture) {
		a := f.db.Open()
		gone, moved, done, kept := f.run(a), f.run(a), f.run(f.s), f.run(f.s)
		f.finishAll(a, gone)
		f.db.Kill(a)
		f.takes(f.s, 0, moved.Lease, storage.Unstarted)
		res := f.exchange(f.s, storage.Exchange{
			Start:  []storage.Lease{gone.Lease, done.Lease, moved.Lease, kept.Lease, {Key: 1000, Token: 1000}},
			Finish: []storage.Finish{{Lease: done.Lease, Outcome: storage.OutcomeDone}},
		})
		want := []storage.ItemResult{storage.Lost, storage.Applied, storage.Lost, storage.Applied, storage.Lost}
		if !slices.Equal(res.Started, want) || res.Finished[0] != storage.Applied {
			f.Errorf("the starts are answered by %d, want %d, and the outcome by %d", res.Started, want, res.Finished[0])
		}
		f.starts(f.s, storage.Lost, done.Lease)
		f.starts(f.s, storage.Applied, kept.Lease)
		f.is(storage.Running, kept.ID, moved.ID)
		if got := f.extend(f.s, kept.Lease); got != storage.Applied {
			f.Errorf("extending after the start returned %d, want applied", got)
		}
	}},

	{"start_marked", `A Store that is a [Marker] writes nothing.
WriteStart is false of a lease that was reclaimed, and of all leases of a [Marker].`, func(f *fixture) {
		f.marker(f.s)
		a := f.db.Open()
		l := f.run(a)
		f.starts(a, storage.Applied, l.Lease)
		f.db.Kill(a)
		r := f.takes(f.s, 0, l.Lease, storage.Unstarted)
		f.back(r.Leased, storage.OutcomeInterrupted, time.Time{})
		f.leasesOne("after a crash", f.s, false)
	}},

	{"start_to_write", `Leases of the job have WriteStart from then on, until the job has ended or an outcome has set its crashes to zero.
WriteStart is true if a death of the process is a crash of the job only once Exchange.Start has been applied to the lease.
WriteStart is false of a lease that was reclaimed`, func(f *fixture) {
		f.unmarked()
		f.add(newJob())
		f.back(f.leasesOne("at first", f.s, false), storage.OutcomeInterrupted, time.Time{})
		for _, settles := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeUnavailable} {
			f.cutOff()
			f.add(newJob(priority(1)))
			f.finishAll(f.s, f.leasesOne("another job", f.s, false))
			for _, keeps := range []storage.Outcome{storage.OutcomeReturned, storage.OutcomeInterrupted, storage.OutcomeCrashed} {
				l := f.leasesOne("after a takeover", f.s, true)
				f.starts(f.s, storage.Applied, l.Lease)
				f.back(l, keeps, time.Time{})
			}
			f.back(f.leasesOne("while nothing is settled", f.s, true), settles, time.Time{})
			for range 2 {
				f.back(f.leasesOne("settled by "+settles.String(), f.s, false), storage.OutcomeInterrupted, time.Time{})
			}
		}

		b, c := f.db.Open(), f.db.Open()
		l := f.leaseOne(b)
		f.takesNothing(c, 0)
		r := f.takes(c, hold, l.Lease, storage.Cut) // the holder lives
		f.apply(c, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeInterrupted})
		f.leasesOne("after a lapse", f.s, true)
	}},

	{"start_ended", `until the job has ended`, func(f *fixture) {
		f.unmarked()
		id := f.add(newJob())[0]
		f.cutOff()
		l := f.leasesOne("after a takeover", f.s, true)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonCrashed, Failure: &storage.NewFailure{Error: "x"}})
		_, err := f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{id}}, "")
		f.must(err)
		f.leasesOne("after a redrive", f.s, false)
	}},

	{"start_crashed", `That is written, before any of Finish takes effect: if the process dies now, the attempt has crashed.
Reclaim returns an attempt as [Crashed] if its start was written, as Exchange.Start says, and not taken back by Exchange.Stop, and its holder's instance is gone; it returns any other as [Cut].
StartedAt is when the handler was called, as Started was told, or as the Exchange was that wrote the start`, func(f *fixture) {
		f.unmarked()
		a := f.db.Open()
		f.add(times(3, newJob())...)
		l := f.lease(a, 3)
		f.starts(a, storage.Applied, l[0].Lease, l[1].Lease)
		began := f.now
		f.later(time.Second)
		f.back(l[1], storage.OutcomeReturned, time.Time{}) // and is leased again
		l[1] = f.leaseOne(a)
		f.takesNothing(f.s, 0)
		f.db.Kill(a)
		got := f.reclaim(f.s, 0)
		if len(got) != 3 {
			f.Fatalf("%d leases were reclaimed, want 3", len(got))
		}
		for _, r := range got {
			want, at := storage.Cut, time.Time{}
			if r.Key == l[0].Key {
				want, at = storage.Crashed, began
			}
			if r.Fate != want || !r.StartedAt.Equal(at) {
				f.Errorf("job %d was reclaimed as %s, started at %v; want %s, %v", r.Key, fateName(r.Fate), r.StartedAt, fateName(want), at)
			}
		}
	}},

	{"start_stopped", `What Start has written of them is taken back after all of Start, before any of Finish takes effect: if the process dies now, the attempt is cut off.
It means nothing for a lease that is not held, or whose start was not written, and has no result.`, func(f *fixture) {
		f.unmarked()
		a := f.db.Open()
		f.add(times(5, newJob())...)
		l := f.lease(a, 5)
		f.starts(a, storage.Applied, l[0].Lease, l[1].Lease, l[4].Lease)
		unheld := storage.Lease{Key: l[1].Key, Token: l[1].Token - 1}
		f.exchange(a, storage.Exchange{
			Start: []storage.Lease{l[2].Lease}, Stop: []storage.Lease{l[0].Lease, l[2].Lease, l[3].Lease, l[4].Lease, unheld, {Key: 1000, Token: 1000}},
			Finish: []storage.Finish{{Lease: l[3].Lease, Outcome: storage.OutcomeDone}},
		})
		for range 2 { // it may come twice, and takes back no later start
			f.exchange(a, storage.Exchange{Stop: []storage.Lease{l[0].Lease}})
		}
		f.starts(a, storage.Applied, l[4].Lease)
		f.db.Kill(a)
		got := f.reclaim(f.s, 0)
		if len(got) != 4 {
			f.Fatalf("%d leases were reclaimed, want 4", len(got))
		}
		for _, r := range got {
			want := storage.Cut
			if r.Key == l[1].Key || r.Key == l[4].Key {
				want = storage.Crashed
			}
			if r.Fate != want || r.StartedAt.IsZero() != (want == storage.Cut) {
				f.Errorf("job %d was reclaimed as %s, started at %v; want %s", r.Key, fateName(r.Fate), r.StartedAt, fateName(want))
			}
		}
	}},

	{"start_stopped_marked", `A Store that is a [Marker] changes nothing.`, func(f *fixture) {
		a := f.db.Open()
		m := f.marker(a)
		l := f.run(a)
		f.exchange(a, storage.Exchange{Stop: []storage.Lease{l.Lease}})
		f.must(m.Started(l.Lease, f.now))
		f.exchange(a, storage.Exchange{Stop: []storage.Lease{l.Lease}})
		f.db.Kill(a)
		f.takes(f.s, 0, l.Lease, storage.Crashed)
	}},

	{"start_lapsed", `the lease lapsed in a living process (which may call the handler even now)`, func(f *fixture) {
		f.unmarked()
		a := f.db.Open()
		l := f.run(a)
		f.starts(a, storage.Applied, l.Lease)
		f.takesNothing(f.s, 0)
		f.takes(f.s, hold, l.Lease, storage.Cut)
	}},

	{"start_fate_survives", `It survives a reclaimer that dies itself before the job is finished.`, func(f *fixture) {
		f.unmarked()
		a, b := f.db.Open(), f.db.Open()
		f.add(times(2, newJob())...)
		l := f.lease(a, 2)
		f.starts(a, storage.Applied, l[0].Lease)
		f.db.Kill(a)
		for _, s := range []storage.Store{b, f.s} {
			for _, r := range f.reclaim(s, 0) {
				if crashed := r.Fate == storage.Crashed; crashed != (r.Key == l[0].Key) {
					f.Errorf("job %d was reclaimed as %s", r.Key, fateName(r.Fate))
				}
			}
			f.db.Kill(b)
		}
	}},

	{"start_poison", `So a job that kills its process is cut off once before its crashes count, and any other job costs one write more.`, func(f *fixture) {
		f.unmarked()
		f.add(newJob())
		for i, want := range []storage.Fate{storage.Cut, storage.Crashed, storage.Crashed, storage.Crashed} {
			a := f.db.Open()
			l := f.leasesOne("attempt", a, i > 0)
			if l.Crashes != max(i-1, 0) {
				f.Errorf("attempt %d begins after %d crashes", l.Attempt, l.Crashes)
			}
			if l.WriteStart {
				f.starts(a, storage.Applied, l.Lease)
			}
			f.db.Kill(a)
			got := f.reclaim(f.s, 0)
			if len(got) != 1 || got[0].Fate != want {
				f.Fatalf("attempt %d: reclaimed %v, want one as %s", l.Attempt, got, fateName(want))
			}
			f.back(got[0].Leased, map[storage.Fate]storage.Outcome{storage.Cut: storage.OutcomeInterrupted, storage.Crashed: storage.OutcomeCrashed}[want], time.Time{})
		}
	}},

	{"start_together", `A job with WriteStart counts as one that has crashed.`, func(f *fixture) {
		f.unmarked()
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g))
		a := f.db.Open()
		first := f.leaseOne(a)
		f.db.Kill(a)
		r := f.takes(f.s, 0, first.Lease, storage.Cut)
		f.back(r.Leased, storage.OutcomeInterrupted, time.Time{})
		got := f.together("by one that was cut off", ids, 3, [2]int{0, 0})
		f.finishAll(f.s, got...)
		f.together("by others", ids, 3, [2]int{1, 0}, [2]int{2, 1})
	}},
}
