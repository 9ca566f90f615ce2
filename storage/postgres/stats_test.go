package postgres_test

import (
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// foldAll has all numbers be folded.
func foldAll(t *testing.T, s *postgres.Store) {
	t.Helper()
	for range postgres.FoldAfter {
		adds(t, s, newJobs(1, "r", "k")...)
	}
}

// When attempts of a lane have ended last is known in the order of the transactions that have ended them,
// whatever their clocks say, and whether their numbers are folded or not.
func TestStats_Last(t *testing.T) {
	d := newDB(t)
	s := d.open()
	var failed storage.ID
	ends := func(at time.Time, as storage.Outcome) {
		t.Helper()
		adds(t, s, newJobs(1, "q", "k")...)
		l := leases(t, s, 1)[0]
		f := storage.Finish{Lease: l.Lease, Outcome: as, Reason: storage.ReasonPermanent, Error: "of " + at.String()}
		if as == storage.OutcomeDead {
			failed = l.ID
		}
		if _, err := s.Exchange(t.Context(), at, storage.Exchange{Finish: []storage.Finish{f}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(at time.Time) {
		t.Helper()
		all, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l := all[0]; !l.Succeeded.Equal(at) || !l.Failed.Equal(at) || l.FailedJob != failed || l.Error != "of "+at.String() {
			t.Errorf("%+v, want success and failure of %v at %v", l, failed, at)
		}
	}
	for _, after := range []time.Duration{0, time.Hour, time.Minute} { // the clock was set back
		ends(now.Add(after), storage.OutcomeDone)
		ends(now.Add(after), storage.OutcomeDead)
		check(now.Add(after))
	}
	foldAll(t, s)
	check(now.Add(time.Minute))
	ends(now, storage.OutcomeDone)
	ends(now, storage.OutcomeDead)
	check(now)
	foldAll(t, s)
	check(now)
	all, err := s.Stats(t.Context())
	if want := (storage.Totals{Enqueued: 8, Done: 4, Dead: 4}); err != nil || len(all) != 2 || all[0].Total != want || all[0].Bytes != 0 {
		t.Errorf("%+v, %v; want the totals %+v", all, err, want)
	}
	d.Invariants(t)
}

// What a transaction has written that began before others, and is committed after these, does not come
// after them, not even if theirs is folded.
func TestStats_LastOfOverlapping(t *testing.T) {
	d := newDB(t)
	s := d.open()
	adds(t, s, newJobs(2, "q", "k")...)
	first := leases(t, s, 2)
	d.exec("BEGIN")
	d.exec(`INSERT INTO errand_delta (lane, number, n, bytes, at) SELECT lane, 116, 0, 0, $1::bigint FROM errand_lane WHERE queue = 'q'`, now.UnixMicro())
	later := now.Add(time.Hour)
	if _, err := s.Exchange(t.Context(), later, storage.Exchange{Finish: []storage.Finish{{Lease: first[0].Lease, Outcome: storage.OutcomeDone}}}); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		all, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l := all[0]; !l.Succeeded.Equal(later) {
			t.Errorf("%s the last success is at %v, want %v", when, l.Succeeded, later)
		}
	}
	foldAll(t, s)
	d.exec("COMMIT")
	check("once the other is there")
	foldAll(t, s)
	check("once both are folded")
	d.Invariants(t)
}
