package sqlite_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// What few jobs have goes with the job, in whatever way it goes.
func TestJobs_belongings(t *testing.T) {
	ctx, d := context.Background(), newDB(t, nil)
	s := d.open()
	j := newJob("default", "a")
	j.Tags, j.StartWithin = []string{"x", "y"}, time.Hour
	var within []storage.Enqueued
	err := inTx(ctx, s, func(tx *sql.Tx) (err error) {
		within, err = s.EnqueueTx(ctx, tx, t0, []storage.NewJob{j})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Job(ctx, within[0].ID); err != nil || !slices.Equal(r.Tags, j.Tags) {
		t.Errorf("a job of a transaction has the tags %q, %v", r.Tags, err)
	}
	if _, err := s.Enqueue(ctx, t0, []storage.NewJob{j, j, j, newJob("default", "a")}); err != nil {
		t.Fatal(err)
	}
	left := func(when string, want int64) {
		t.Helper()
		tags, options := d.number("SELECT COUNT(*) FROM errand_tag"), d.number("SELECT COUNT(*) FROM errand_option")
		if tags != 2*want || options != want {
			t.Errorf("%s: %d tags and %d options, want those of %d jobs", when, tags, options, want)
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
	left("while they run", 4)
	end(held[0], 0, storage.OutcomeDone)
	left("done and not kept", 3)
	end(held[1], time.Hour, storage.OutcomeDone)
	left("done and kept", 3)
	if n, _, err := s.PurgeFinished(ctx, t0.Add(2*time.Hour)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	left("purged", 2)
	end(held[2], 0, storage.OutcomeDead)
	left("dead", 2)
	if step, err := s.Redrive(ctx, t0, storage.Selection{}, ""); step.N != 1 || err != nil {
		t.Fatal(step, err)
	}
	left("redriven", 2)
	end(lease(t, s, 1, "a")[0], 0, storage.OutcomeDead)
	if step, err := s.Delete(ctx, storage.Selection{}); step.N != 1 || err != nil {
		t.Fatal(step, err)
	}
	left("deleted from the dead", 1)
	end(held[3], 0, storage.OutcomeRetry)
	if _, err := s.Cancel(ctx, t0, held[3].ID, storage.Retention{}); err != nil {
		t.Fatal(err)
	}
	left("cancelled and not kept", 0)
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
	all = slices.Repeat([]storage.NewJob{newJob("a", "rare")}, 5)
	for i := range all {
		all[i].Group = []string{"g", "g h"}[i%2]
	}
	if _, err := s.Enqueue(ctx, t0.Add(time.Hour), all); err != nil {
		t.Fatal(err)
	}
	page(storage.Filter{Queue: "a", Group: "g"}, "", 3, 3, false)
	page(storage.Filter{Queue: "a", Group: "g", States: []storage.State{storage.Blocked}}, "", 2, 2, false)
	page(storage.Filter{Queue: "a", Group: "g h"}, "", 2, 2, false)
	page(storage.Filter{Queue: "a", Group: "g", CreatedFrom: t0}, "", 3, 3, false)
	if _, err := s.Change(ctx, t0, storage.Selection{Filter: storage.Filter{Queue: "a", Kind: "rare"}}, storage.Edit{Cancel: &storage.Retention{}}); err != nil {
		t.Fatal(err)
	}
	page(storage.Filter{Queue: "a", Group: "g", States: []storage.State{storage.Scheduled, storage.Done}}, "", 0, 0, false) // none is kept
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

// A glance at many jobs has those that are live, in the order of the IDs, and nothing of others.
func TestGlance(t *testing.T) {
	ctx, s := context.Background(), newDB(t, nil).open()
	j := newJob("default", "a")
	j.Tags, j.Group, j.StartWithin, j.Headers = []string{"y", "x"}, "g", time.Hour, []byte(`{"h":"v"}`)
	rich, err := s.Enqueue(ctx, t0, []storage.NewJob{j})
	if err != nil {
		t.Fatal(err)
	}
	all := enqueue(t, s, "b", 4)
	ended := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: time.Hour}}
	leased := lease(t, s, 3, "b")
	for i, o := range []storage.Outcome{storage.OutcomeDone, storage.OutcomeDead} {
		ended.Finish = append(ended.Finish, storage.Finish{Lease: leased[i].Lease, Outcome: o, Reason: storage.ReasonPermanent, Error: "no"})
	}
	if r, err := s.Exchange(ctx, t0, ended); err != nil || r.Finished[0] != storage.Applied || r.Finished[1] != storage.Applied {
		t.Fatal(r, err)
	}
	var waits storage.ID // of the last, which is not leased
	for _, e := range all {
		if !slices.ContainsFunc(leased, func(l storage.Leased) bool { return l.ID == e.ID }) {
			waits = e.ID
		}
	}
	running := leased[2].ID
	unknown, alike := storage.ID{1}, waits
	alike[0]++ // its key may be that of another job
	got, err := s.Glance(ctx, []storage.ID{running, leased[0].ID, unknown, rich[0].ID, leased[1].ID, alike, waits})
	if err != nil {
		t.Fatal(err)
	}
	var ids []storage.ID
	for _, r := range got {
		ids = append(ids, r.ID)
	}
	if want := []storage.ID{running, rich[0].ID, waits}; !slices.Equal(ids, want) {
		t.Fatalf("the jobs are %v, want %v", ids, want)
	}
	if r := got[1]; !slices.Equal(r.Tags, []string{"x", "y"}) || r.Group != "g" || !r.StartBy.Equal(t0.Add(time.Hour)) || r.State != storage.Ready {
		t.Errorf("%+v", r)
	}
	if got[0].State != storage.Running || len(got[1].Args) != 0 {
		t.Errorf("%s, with args %q", got[0].State, got[1].Args)
	}
	if got, err := s.Glance(ctx, nil); err != nil || len(got) != 0 {
		t.Errorf("of none: %v, %v", got, err)
	}
	if got, err := s.Glance(ctx, []storage.ID{unknown}); err != nil || len(got) != 0 {
		t.Errorf("of one that is not there: %v, %v", got, err)
	}
}
