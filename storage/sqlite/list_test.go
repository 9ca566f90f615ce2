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
	if step, err := s.Delete(ctx, storage.Selection{}); step.N != 1 || err != nil {
		t.Fatal(step, err)
	}
	tags("purged from the dead", 2)
	end(held[3], 0, storage.OutcomeRetry)
	if _, err := s.Cancel(ctx, t0, held[3].ID, storage.Retention{}); err != nil {
		t.Fatal(err)
	}
	tags("cancelled and not kept", 0)
}

// A page looks at a bounded number of jobs, and the list goes on where it has ended.
// What an index finds is found behind any number of others.
func TestJobs_bounded(t *testing.T) {
	ctx, s := context.Background(), newDB(t, nil).open()
	const n = 3000
	last := newJob("z", "rare")
	last.Tags = []string{"rare"}
	if _, err := s.Enqueue(ctx, t0, []storage.NewJob{last}); err != nil {
		t.Fatal(err)
	}
	all := slices.Repeat([]storage.NewJob{newJob("a", "many")}, n)
	all[n/2].Tags = []string{"one"}
	if _, err := s.Enqueue(ctx, t0.Add(time.Hour), all); err != nil {
		t.Fatal(err)
	}
	page := func(f storage.Filter, after string, jobs, looked int, more bool) string {
		t.Helper()
		p, err := s.Jobs(ctx, f, after, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Jobs) != jobs || p.Looked != looked || (p.Next != "") != more {
			t.Errorf("%+v after %q: %d jobs of %d, next %q; want %d of %d", f, after, len(p.Jobs), p.Looked, p.Next, jobs, looked)
		}
		return p.Next
	}
	next := page(storage.Filter{Error: "no"}, "", 0, 2000, true)
	page(storage.Filter{Error: "no"}, next, 0, n+1-2000, false)
	page(storage.Filter{}, "", 10, 11, true)
	page(storage.Filter{Kind: "rare"}, "", 1, 1, false)
	page(storage.Filter{Queue: "z", States: []storage.State{storage.Ready}}, "", 1, 1, false)
	page(storage.Filter{Tag: "rare"}, "", 1, 1, false)
	page(storage.Filter{Tag: "one"}, "", 1, 1, false)
	page(storage.Filter{CreatedBefore: t0.Add(time.Minute)}, "", 1, 1, false)
	page(storage.Filter{Queue: "none"}, "", 0, 0, false)
	page(storage.Filter{States: []storage.State{storage.Dead, storage.Scheduled, storage.Done}}, "", 0, 0, false)
	for _, bad := range []string{"x", "w1", "w1.2.3.4.5", "w1.2.3.x", "w99.0.0.0", "k1", "s"} {
		if p, err := s.Jobs(ctx, storage.Filter{}, bad, 10); err == nil {
			t.Errorf("%q was taken for a place: %+v", bad, p)
		}
	}
}
