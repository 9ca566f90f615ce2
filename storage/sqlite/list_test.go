package sqlite_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// The tags of a job go with it, in whatever way it goes.
func TestTags_goWithTheJob(t *testing.T) {
	ctx, d := context.Background(), newDB(t, nil)
	s := d.open()
	j := newJob("default", "a")
	j.Tags = []string{"x", "y"}
	var inTx []storage.Enqueued
	err := s.Tx(ctx, func(tx *sql.Tx) (err error) {
		inTx, err = s.EnqueueTx(ctx, tx, t0, []storage.NewJob{j})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Job(ctx, inTx[0].ID); err != nil || !slices.Equal(r.Tags, j.Tags) {
		t.Errorf("a job of a transaction has the tags %q, %v", r.Tags, err)
	}
	if _, err := s.Enqueue(ctx, t0, []storage.NewJob{j, j, j}); err != nil {
		t.Fatal(err)
	}
	tags := func(when string, want int64) {
		t.Helper()
		if n := d.number("SELECT COUNT(*) FROM errand_tag"); n != want {
			t.Errorf("%s: %d tags, want %d", when, n, want)
		}
	}
	held := lease(t, s, 4, "a")
	end := func(l storage.Leased, keep time.Duration, o storage.Outcome) {
		t.Helper()
		x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: keep}, Finish: []storage.Finish{
			{Lease: l.Lease, Outcome: o, Reason: storage.ReasonPermanent, Error: "no"},
		}}
		if r, err := s.Exchange(ctx, t0, x); err != nil || r.Finished[0] != storage.Applied {
			t.Fatal(r, err)
		}
	}
	tags("while they run", 8)
	end(held[0], 0, storage.OutcomeDone)
	tags("done and not kept", 6)
	end(held[1], time.Hour, storage.OutcomeDone)
	tags("done and kept", 6)
	if n, _, err := s.PurgeFinished(ctx, t0.Add(2*time.Hour)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	tags("purged", 4)
	end(held[2], 0, storage.OutcomeDead)
	tags("dead", 4)
	if step, err := s.PurgeDead(ctx, storage.Selection{}); step.N != 1 || err != nil {
		t.Fatal(step, err)
	}
	tags("purged from the dead", 2)
	end(held[3], 0, storage.OutcomeRetry)
	if _, err := s.Cancel(ctx, t0, held[3].ID, storage.Retention{}); err != nil {
		t.Fatal(err)
	}
	tags("cancelled and not kept", 0)
}
