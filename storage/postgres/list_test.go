package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// dies has the first ready job of q die with an error.
func dies(t *testing.T, s *postgres.Store, text string) storage.ID {
	t.Helper()
	l := leases(t, s, 1)[0]
	x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{
		{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Error: text},
	}}
	if res, err := s.Exchange(t.Context(), now, x); err != nil || res.Finished[0] != storage.Applied {
		t.Fatalf("finished %v, %v", res.Finished, err)
	}
	return l.ID
}

// A part of an error is found byte by byte, whatever bytes these are, and without regard to the
// case of ASCII alone.
func TestJobs_ErrorBytes(t *testing.T) {
	s := newDB(t).open()
	adds(t, s, newJobs(1, "q", "k")...)
	dies(t, s, "Refused \\ \x00 é ÀB \\101 \xff")
	for part, want := range map[string]int{
		"": 1, "REFUSED": 1, "\\": 1, "\\ \x00": 1, "é": 1, "Àb": 1, "\\101": 1, "\xff": 1,
		"àb": 0, "\\\\": 0, "251": 0, "\\303": 0, "000": 0, "A": 0, "\xfe": 0,
	} {
		p, err := s.Jobs(t.Context(), storage.Filter{Error: part}, "", 10)
		if err != nil || len(p.Jobs) != want {
			t.Errorf("%q is in %d errors, %v; want %d", part, len(p.Jobs), err, want)
		}
	}
}

// A page looks at a bounded number of jobs, and the list goes on where it has ended. What is no
// place is refused.
func TestJobs_Bounded(t *testing.T) {
	s := newDB(t).open()
	const n = 2500
	rare := adds(t, s, newJobs(1, "z", "rare")...)
	adds(t, s, newJobs(n, "q", "k")...)
	page := func(f storage.Filter, after string, jobs, looked int, more bool) string {
		t.Helper()
		p, err := s.Jobs(t.Context(), f, after, 10)
		if err != nil || len(p.Jobs) != jobs || p.Looked != looked || (p.Next != "") != more {
			t.Errorf("%+v after %q: %d jobs of %d, next %q, %v; want %d of %d", f, after, len(p.Jobs), p.Looked, p.Next, err, jobs, looked)
		}
		return p.Next
	}
	next := page(storage.Filter{Error: "no"}, "", 0, 2000, true)
	page(storage.Filter{Error: "no"}, next, 0, n+1-2000, false)
	page(storage.Filter{}, "", 10, 11, true)
	page(storage.Filter{Kind: "rare"}, "", 1, 1, false)
	page(storage.Filter{Queue: "none"}, "", 0, 0, false)
	page(storage.Filter{Tag: "none"}, "", 0, 0, false)
	page(storage.Filter{Cause: 1}, "", 0, 0, false)
	page(storage.Filter{CreatedFrom: now.Add(time.Hour)}, "", 0, 0, false)
	for _, bad := range []string{"x", "w1", "w1.2.3.x", "w99.0.0.0", "k1", "s"} {
		if p, err := s.Jobs(t.Context(), storage.Filter{}, bad, 10); err == nil {
			t.Errorf("%q was taken for a place: %+v", bad, p)
		}
	}
	states, err := s.States(t.Context(), []storage.ID{rare[0].ID, {1}, rare[0].ID})
	if err != nil || !slices.Equal(states, []storage.State{storage.Ready, "", storage.Ready}) {
		t.Errorf("the states are %q, %v", states, err)
	}
}

// Who deletes a dead member that keeps others back lets the next one in.
func TestDelete_Head(t *testing.T) {
	d := newDB(t)
	s := d.open()
	g := member("g", "", "1", nil)
	all := adds(t, s, g, g, g)
	dead := dies(t, s, "no")
	areIn(t, s, all[1:], isBlocked, isBlocked)
	step, err := s.Delete(t.Context(), storage.Selection{IDs: []storage.ID{dead, all[1].ID, {1}, dead}})
	if err != nil || step.N != 1 || !slices.Equal(step.Live, []storage.ID{all[1].ID}) || !slices.Equal(step.NotFound, []storage.ID{{1}, dead}) {
		t.Errorf("deleted %+v, %v", step, err)
	}
	areIn(t, s, all[1:], isReady, isBlocked)
	if _, err := s.Delete(t.Context(), storage.Selection{Under: &storage.Under{}}); err == nil {
		t.Error("a step under a lease was done")
	}
	d.Invariants(t)
}
