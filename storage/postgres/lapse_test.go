package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// A lease that seems to have lapsed is not taken if its holder extends it before that, or if the job
// has another lease then.
func TestReclaim_LapsedNoMore(t *testing.T) {
	for what, meanwhile := range map[string]func(t *testing.T, s *postgres.Store, l storage.Lease) storage.ItemResult{
		"it is extended": func(t *testing.T, s *postgres.Store, l storage.Lease) storage.ItemResult {
			res, err := s.Exchange(t.Context(), now.Add(time.Second), storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{l}})
			if err != nil {
				t.Fatal(err)
			}
			return res.Extended[0]
		},
		"the job is leased anew": func(t *testing.T, s *postgres.Store, l storage.Lease) storage.ItemResult {
			x := storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne, Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeReturned}}}
			res, err := s.Exchange(t.Context(), now, x)
			if err != nil || len(res.Leased) != 1 {
				t.Fatalf("leased %v, %v", res.Leased, err)
			}
			return res.Finished[0]
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDB(t)
			s, other := d.open(), d.open()
			l := leaseOne(t, s)
			reclaims(t, other, 0, 0)
			reclaims(t, other, 59*time.Second, 0)
			d.exec("BEGIN")
			d.exec("SELECT FROM errand_instance WHERE name = $1 FOR UPDATE", postgres.Title(other))
			var wg sync.WaitGroup
			wg.Go(func() {
				got, err := other.Reclaim(t.Context(), now, time.Minute, time.Hour, 9)
				if err != nil || len(got) != 0 {
					t.Errorf("Reclaim returned %v, %v; want none", got, err)
				}
			})
			d.waits() // to promise longer leases, before it takes some
			if r := meanwhile(t, s, l.Lease); r != storage.Applied {
				t.Errorf("it returned %d", r)
			}
			d.exec("ROLLBACK")
			wg.Wait()
			d.Invariants(t)
		})
	}
}

// A lease about which another transaction decides is passed over, and taken later.
func TestReclaim_PassesOver(t *testing.T) {
	for _, gone := range []bool{true, false} {
		d := newDB(t)
		s, other := d.open(), d.open()
		leaseOne(t, s)
		var at time.Duration
		if reclaims(t, other, at, 0); gone {
			d.kill(s)
		} else {
			at = time.Minute // it has lapsed
		}
		d.exec("BEGIN")
		d.exec("SELECT id FROM errand_job FOR UPDATE")
		reclaims(t, other, at, 0)
		d.exec("ROLLBACK")
		reclaims(t, other, at, 1)
		d.Invariants(t)
	}
}
