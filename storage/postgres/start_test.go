package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

var usual = []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}

// The start of a job is to be written from its takeover until its crashes begin anew. Of a
// job that was never taken over nothing is kept.
func TestStore_WriteStart(t *testing.T) {
	d := newDB(t)
	s := d.open()
	if _, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k")); err != nil {
		t.Fatal(err)
	}
	lease := func(s storage.Store, write bool) storage.Lease {
		t.Helper()
		res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual})
		if err != nil || len(res.Leased) != 1 || res.Leased[0].WriteStart != write {
			t.Fatalf("leased %+v, %v; want one job, WriteStart %t", res.Leased, err, write)
		}
		return res.Leased[0].Lease
	}
	end := func(l storage.Lease, start bool, outcome storage.Outcome) {
		t.Helper()
		x := storage.Exchange{Finish: []storage.Finish{{Lease: l, Outcome: outcome}}}
		if start {
			x.Start = []storage.Lease{l}
		}
		if _, err := s.Exchange(t.Context(), now, x); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(want string) {
		t.Helper()
		var got string
		err := d.conn.QueryRow(t.Context(), `SELECT concat_ws(' ', started_at, doubt) FROM errand_job`).Scan(&got)
		if err != nil || got != want {
			t.Errorf("the start and the doubt kept are %q, %v; want %q", got, err, want)
		}
	}
	for i, settles := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze} {
		kept("")
		l := lease(s, false)
		kept("")
		end(l, true, storage.OutcomeInterrupted)
		kept("")
		other := d.open()
		lease(other, false)
		d.kill(other)
		got, err := s.Reclaim(t.Context(), now, time.Duration(i)*time.Hour, time.Minute, 9)
		if err != nil || len(got) != 1 || got[0].Fate != storage.Cut || got[0].WriteStart {
			t.Fatalf("reclaimed %+v, %v", got, err)
		}
		kept("2")
		end(got[0].Lease, false, storage.OutcomeInterrupted)
		for _, keeps := range []storage.Outcome{storage.OutcomeReturned, storage.OutcomeCrashed} {
			kept("1")
			l := lease(s, true)
			if end(l, true, 99); t.Failed() { // which makes no sense: the start counts all the same
				return
			}
			kept(fmt.Sprint(now.UnixMicro(), " 1"))
			end(l, false, keeps)
		}
		end(lease(s, true), false, settles)
	}
	kept("")
}

// Of a job whose old lease and new one are ended in one exchange, the new one ends.
func TestStore_StaleLease(t *testing.T) {
	d := newDB(t)
	s, gone := d.open(), d.open()
	if _, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k")); err != nil {
		t.Fatal(err)
	}
	res, err := gone.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual})
	if err != nil || len(res.Leased) != 1 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	d.kill(gone)
	got, err := s.Reclaim(t.Context(), now, 0, time.Minute, 9)
	if err != nil || len(got) != 1 {
		t.Fatalf("reclaimed %v, %v", got, err)
	}
	old, renewed := storage.Finish{Lease: res.Leased[0].Lease, Outcome: storage.OutcomeDone}, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeDone}
	res, err = s.Exchange(t.Context(), now, storage.Exchange{Finish: []storage.Finish{old, renewed}})
	if want := []storage.ItemResult{storage.Lost, storage.Applied}; err != nil || !slices.Equal(res.Finished, want) {
		t.Errorf("ending both returned %d, %v; want %d", res.Finished, err, want)
	}
}
