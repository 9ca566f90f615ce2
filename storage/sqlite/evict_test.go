package sqlite_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Edits of 60 keys go into a queue of 20, beside a worker: each has room, and each one that
// was acknowledged is done, waits, is in the args of one that came later, or was in a job
// that the store has said is evicted.
//
//errand:shows caps | | of edits with a unique key that a full queue takes in each is done, waits, was replaced by a later one, or was in a job that the store says is evicted
func TestEvict_BesideConflicts(t *testing.T) {
	ctx, random := context.Background(), rand.New(rand.NewPCG(1, 2))
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, Logger: slog.New(slog.DiscardHandler)}).open()
	const most = 20
	capped(t, s, most, storage.EvictOldest)
	latest := map[storage.ID]string{} // edits of the jobs that are there, as acknowledged
	evicted, inserted, done := 0, 0, 0
	s.NotifyEvicted(func(_ time.Time, jobs []storage.Evicted) {
		for _, j := range jobs {
			if _, ok := latest[j.ID]; !ok {
				t.Errorf("%v was evicted, and was not there", j.ID)
			}
			delete(latest, j.ID)
			evicted++
		}
	})
	edits, now := 0, t0
	edit := func() {
		t.Helper()
		jobs := make([]storage.NewJob, 1+random.IntN(6))
		for i := range jobs {
			edits++
			c := &storage.Conflict{Mode: storage.After}
			if random.IntN(2) == 0 {
				c = &storage.Conflict{Mode: storage.Debounce, Quiet: 2 * time.Second, MaxWait: 5 * time.Second}
			}
			j := newJob("default", string(rune('a'+random.IntN(3))))
			j.Unique, j.Conflict, j.Args = strconv.Itoa(random.IntN(60)), c, []byte(strconv.Itoa(edits))
			jobs[i] = j
		}
		out, err := s.Enqueue(ctx, now, jobs)
		if err != nil {
			t.Fatalf("edits of up to %d: %v", edits, err)
		}
		for i, e := range out {
			if _, there := latest[e.ID]; there != e.Replaced && e.ID.Key() < out[0].ID.Key() {
				t.Errorf("edit %s: %+v, and the job is there: %v", jobs[i].Args, e, there)
			}
			if !e.Duplicate {
				inserted++
			}
			latest[e.ID] = string(jobs[i].Args)
		}
	}
	var held []storage.Leased
	work := func() {
		t.Helper()
		x := storage.Exchange{LeaseDuration: time.Hour, Wants: want(2, "a", "b", "c")}
		for _, l := range held {
			f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
			if random.IntN(3) == 0 {
				f = storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: now.Add(time.Second)}
			} else {
				delete(latest, l.ID)
				done++
			}
			x.Finish = append(x.Finish, f)
		}
		r, err := s.Exchange(ctx, now, x)
		if err != nil {
			t.Fatal(err)
		}
		held = r.Leased
		for _, l := range held {
			if string(l.Args) != latest[l.ID] {
				t.Errorf("%v runs with edit %s, want %q", l.ID, l.Args, latest[l.ID])
			}
		}
	}
	for range 2000 {
		edit()
		work()
		now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
		c := counts(t, s)
		if waiting := c[storage.Scheduled] + c[storage.Ready] + c[storage.Blocked]; int(waiting)+len(held) != len(latest) ||
			evicted+done+len(latest) != inserted || waiting > 2*most {
			t.Fatalf("%d evicted, %d done, %v of which %d are to be there: want %d", evicted, done, c, len(latest), inserted)
		}
	}
	if evicted < 500 || done < 500 || edits-inserted < 500 {
		t.Errorf("%d edits: %d inserted, of which %d were evicted and %d done: want more of each", edits, inserted, evicted, done)
	}
}
