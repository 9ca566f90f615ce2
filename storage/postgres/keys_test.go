package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// waits waits until a session waits for the lock of another.
func (d *db) waits() {
	d.t.Helper()
	for waits := false; !waits; {
		const text = `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)`
		if err := d.conn.QueryRow(d.t.Context(), text).Scan(&waits); err != nil {
			d.t.Fatal(err)
		}
	}
}

// A key or a group that an open transaction has delays only the calls that name it.
func TestStore_HeldScopes(t *testing.T) {
	d := newDB(t)
	s := d.open()
	of := func(unique, group string) []storage.NewJob {
		all := newJobs(1, "q", "k")
		all[0].Unique, all[0].Group = unique, group
		return all
	}
	enqueue := func(jobs []storage.NewJob) storage.Enqueued {
		out, err := s.Enqueue(t.Context(), now, jobs)
		if err != nil || len(out) != 1 {
			t.Errorf("Enqueue of %+v returned %v, %v", jobs, out, err)
			return storage.Enqueued{}
		}
		return out[0]
	}
	first := enqueue(of("held", ""))
	for _, c := range []struct {
		what, text string
		jobs       []storage.NewJob
		duplicate  bool
	}{
		{"a key that a job has", `SELECT FROM errand_unique WHERE key = 'held' FOR UPDATE`, of("held", ""), true},
		{"a key that a transaction takes", `INSERT INTO errand_unique VALUES ('taken', 0, 1, 0, 0, 0)`, of("taken", ""), false},
		{"a group", `INSERT INTO errand_group VALUES ('q busy')`, of("", "busy"), false},
	} {
		d.exec("BEGIN")
		d.exec(c.text)
		var late storage.Enqueued
		var wg sync.WaitGroup
		wg.Go(func() { late = enqueue(c.jobs) })
		d.waits()
		for _, jobs := range [][]storage.NewJob{of("", ""), of("other "+c.what, ""), of("", "other"), of("another "+c.what, "another")} {
			if out := enqueue(jobs); out.Duplicate {
				t.Errorf("%s: %+v was not inserted", c.what, jobs)
			}
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 9}}}
		for n := 1; n > 0; {
			res, err := s.Exchange(t.Context(), now, x)
			if err != nil {
				t.Fatal(err)
			}
			x.Finish, n = nil, len(res.Leased)
			for _, l := range res.Leased {
				if l.ID != first.ID {
					x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				}
			}
		}
		d.exec("ROLLBACK")
		wg.Wait()
		if late.Duplicate != c.duplicate || c.duplicate && late.ID != first.ID {
			t.Errorf("%s: the call that waited has the answer %+v", c.what, late)
		}
	}
	d.Invariants(t)
}
