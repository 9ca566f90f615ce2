package sqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// What few jobs have goes with the job, in whatever way it goes.
func TestOptions_goWithTheJob(t *testing.T) {
	ctx, d := context.Background(), newDB(t, nil)
	s := d.open()
	j := newJob("default", "a")
	j.StartWithin = time.Hour
	if _, err := s.Enqueue(ctx, t0, []storage.NewJob{j, j, j, j, newJob("default", "a")}); err != nil {
		t.Fatal(err)
	}
	options := func(when string, want int64) {
		t.Helper()
		if n := d.number("SELECT COUNT(*) FROM errand_option"); n != want {
			t.Errorf("%s: %d options, want %d", when, n, want)
		}
	}
	held := lease(t, s, 5, "a")
	end := func(l storage.Leased, keep time.Duration, o storage.Outcome) {
		t.Helper()
		x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: keep}, Finish: []storage.Finish{
			{Lease: l.Lease, Outcome: o, Reason: storage.ReasonPermanent, Error: "no"},
		}}
		if r, err := s.Exchange(ctx, t0, x); err != nil || r.Finished[0] != storage.Applied {
			t.Fatal(r, err)
		}
	}
	options("while they run", 4)
	end(held[0], 0, storage.OutcomeDone)
	options("done and not kept", 3)
	end(held[1], time.Hour, storage.OutcomeDone)
	options("done and kept", 3)
	if n, _, err := s.PurgeFinished(ctx, t0.Add(2*time.Hour)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	options("purged", 2)
	end(held[2], 0, storage.OutcomeDead)
	options("dead", 2)
	if step, err := s.Redrive(ctx, t0, storage.Selection{}, ""); step.N != 1 || err != nil {
		t.Fatal(step, err)
	}
	options("redriven", 2)
	end(lease(t, s, 1, "a")[0], 0, storage.OutcomeDead)
	if step, err := s.Delete(ctx, storage.Selection{}); step.N != 1 || err != nil {
		t.Fatal(step, err)
	}
	options("deleted from the dead", 1)
	end(held[3], 0, storage.OutcomeRetry)
	if _, err := s.Cancel(ctx, t0, held[3].ID, storage.Retention{}); err != nil {
		t.Fatal(err)
	}
	options("cancelled and not kept", 0)
}
