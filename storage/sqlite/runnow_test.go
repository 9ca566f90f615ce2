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
