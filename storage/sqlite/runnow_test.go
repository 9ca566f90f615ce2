package sqlite_test

import (
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// A job that RunNow has chosen may have been called, and put off without an error,
// before RunNow gets to it: it is none of those that failed.
func TestRunNow_SnoozedInBetween(t *testing.T) {
	s := newDB(t, nil).open()
	id := enqueue(t, s, "a", 1)[0].ID
	l := lease(t, s, 1, "a")[0]
	if err := s.Started(l.Lease, t0); err != nil {
		t.Fatal(err)
	}
	f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeSnooze, DueAt: t0.Add(time.Hour)}
	r, err := s.Exchange(t.Context(), t0, storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{f}})
	if err != nil || r.Finished[0] != storage.Applied {
		t.Fatalf("%v, %v", r.Finished, err)
	}
	step, err := s.RunNowChosen(t.Context(), t0, []storage.ID{id}, storage.Waiting{First: true, Failed: true})
	if err != nil || step.N != 0 {
		t.Errorf("%d jobs, %v: want none", step.N, err)
	}
}

// An urgent job is leased out of the order in which a connection has read the jobs of its
// lane ahead: what it has read is of no more use.
func TestRunNow_ReadAhead(t *testing.T) {
	const each = 6
	s := newDB(t, nil).open()
	kinds := []string{"a", "b", "c", "d", "e", "f"}
	var urgent storage.ID
	for round := range each { // in turn, or only one lane is read
		for _, kind := range kinds {
			if id := enqueue(t, s, kind, 1)[0].ID; round == each/2 {
				urgent = id
			}
		}
	}
	leased := len(lease(t, s, len(kinds), kinds...)) // one of each, and others are read
	if _, err := s.RunNow(t.Context(), t0, storage.Selection{IDs: []storage.ID{urgent}}, storage.Waiting{First: true}); err != nil {
		t.Fatal(err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Urgent: 1, Wants: want(0, kinds...)}
	r, err := s.Exchange(t.Context(), t0, x)
	if err != nil || len(r.Leased) != 1 || r.Leased[0].ID != urgent {
		t.Fatalf("leased %v, %v: want %v", r.Leased, err, urgent)
	}
	for range each {
		leased += len(lease(t, s, len(kinds), kinds...))
	}
	if want := len(kinds)*each - 1; leased != want {
		t.Errorf("%d others were leased, want %d", leased, want)
	}
}
