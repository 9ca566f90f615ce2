package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// soon reports whether a NextDue lets a worker that was answered at now pause, and come back
// before it would without one.
func soon(next, now time.Time) bool { return next.After(now) && next.Before(now.Add(time.Second)) }

// Ready jobs that another transaction decides about are looked for again soon, but not at once:
// that would be a loop without a pause as long as that takes.
func TestExchange_PassedOverReady(t *testing.T) {
	one := storage.Want{Queues: []string{"q"}, Kinds: []string{"k"}, N: 5}
	other := storage.Want{Queues: []string{"q"}, Kinds: []string{"l"}, N: 5}
	for _, c := range []struct {
		what                 string
		wants                []storage.Want
		jobs, locked, leased int
		soon                 bool
	}{
		{"all", []storage.Want{one}, 2, 2, 0, true},
		{"some", []storage.Want{one}, 3, 1, 2, true},
		{"none", []storage.Want{one}, 3, 0, 3, false},
		{"some of more than are wanted", []storage.Want{one}, 7, 1, 5, false},
		{"all of several wants", []storage.Want{one, other}, 2, 2, 0, true},
		{"none of several wants", []storage.Want{one, other}, 2, 0, 2, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newDB(t)
			s := d.open()
			if _, err := s.Enqueue(t.Context(), now, newJobs(c.jobs, "q", "k")); err != nil {
				t.Fatal(err)
			}
			lease := func(want int, isSoon bool) {
				t.Helper()
				res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: c.wants})
				if err != nil || len(res.Leased) != want {
					t.Fatalf("leased %v, %v; want %d", res.Leased, err, want)
				}
				if isSoon && !soon(res.NextDue, now) || !isSoon && !res.NextDue.IsZero() {
					t.Errorf("NextDue is %v; want soon: %t", res.NextDue, isSoon)
				}
			}
			d.exec("BEGIN")
			d.exec(fmt.Sprintf("SELECT id FROM errand_job ORDER BY id LIMIT %d FOR UPDATE", c.locked))
			lease(c.leased, c.soon)
			d.exec("ROLLBACK")
			lease(c.jobs-c.leased, false)
			d.Invariants(t)
		})
	}
}

// A worker that chooses among several wants goes on at once if others have taken some of the jobs
// that it has chosen. What it has leased shows that it gets on.
func TestExchange_MissedSome(t *testing.T) {
	d := newDB(t)
	s := d.open()
	if _, err := s.Enqueue(t.Context(), now, newJobs(2, "q", "k")); err != nil {
		t.Fatal(err)
	}
	wants := []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 2}, {Queues: []string{"r"}, Kinds: []string{"k"}, N: 2}}
	d.exec("BEGIN")
	d.exec("SELECT id FROM errand_job ORDER BY id LIMIT 1 FOR UPDATE")
	for _, want := range []int{1, 0} {
		res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wants})
		if err != nil || len(res.Leased) != want || res.NextDue.Equal(now) != (want > 0) || want == 0 && !soon(res.NextDue, now) {
			t.Errorf("leased %v, NextDue %v, %v; want %d, and now if that is not none", res.Leased, res.NextDue, err, want)
		}
	}
	d.exec("ROLLBACK")
}

// Jobs that are left because those leased are heavy enough were not passed over.
func TestExchange_HeavyIsNotPassedOver(t *testing.T) {
	d := newDB(t)
	s := d.open()
	if _, err := s.Enqueue(t.Context(), now, newJobs(3, "q", "k")); err != nil {
		t.Fatal(err)
	}
	d.exec("UPDATE errand_job SET weight = $1", storage.LeaseBytes)
	wants := []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 5}}
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wants})
	if err != nil || len(res.Leased) != 1 || !res.NextDue.IsZero() {
		t.Errorf("leased %d, NextDue %v, %v; want one job, and nothing to come", len(res.Leased), res.NextDue, err)
	}
}
