package sqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// What a Store remembers of its leases is not believed once the lease is another one, or lost.
func TestLeases_StaleFacts(t *testing.T) {
	ctx := context.Background()
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ends := map[string]func(l storage.Lease) storage.Exchange{
		"retry": func(l storage.Lease) storage.Exchange {
			return storage.Exchange{Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeRetry, DueAt: t0.Add(time.Hour), Failure: &storage.NewFailure{Phase: "returned"}}}}
		},
		"return": func(l storage.Lease) storage.Exchange {
			return storage.Exchange{Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeReturned}}}
		},
		"extend": func(l storage.Lease) storage.Exchange { return storage.Exchange{Extend: []storage.Lease{l}} },
	}
	for name, c := range map[string]struct {
		stale func(s storage.Store, d *db, l storage.Leased)
		want  map[string]storage.ItemResult // storage.Lost if it has none
	}{
		"asked to stop": {
			stale: func(s storage.Store, _ *db, l storage.Leased) {
				_, err := s.Cancel(ctx, t0, l.ID, storage.Retention{Default: time.Hour})
				step(err)
			},
			want: map[string]storage.ItemResult{"retry": storage.Applied, "return": storage.Applied, "extend": storage.Cancelling},
		},
		"taken": {
			stale: func(_ storage.Store, d *db, l storage.Leased) {
				d.exec(`UPDATE errand_job SET token = (SELECT n FROM errand_number WHERE id = 2) WHERE id = ?1`, l.Key)
				d.exec(`UPDATE errand_number SET n = n + 1 WHERE id = 2`)
			},
		},
		"moved to another lane": {
			stale: func(s storage.Store, _ *db, l storage.Leased) {
				_, err := s.Exchange(ctx, t0, storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeSnooze}}})
				step(err)
				_, err = s.Change(ctx, t0, storage.Selection{IDs: []storage.ID{l.ID}}, storage.Edit{Queue: "other"})
				step(err)
			},
		},
		"moved, and leased again": {
			stale: func(s storage.Store, _ *db, l storage.Leased) {
				_, err := s.Exchange(ctx, t0, storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeSnooze}}})
				step(err)
				_, err = s.Change(ctx, t0, storage.Selection{IDs: []storage.ID{l.ID}}, storage.Edit{Queue: "other"})
				step(err)
				got, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"other"}, Kinds: []string{"a"}, N: 1}}})
				if step(err); len(got.Leased) != 1 {
					t.Fatalf("leased %v", got.Leased)
				}
			},
		},
		"ended": {
			stale: func(s storage.Store, _ *db, l storage.Leased) { finish(t, s, l) },
		},
	} {
		for end, exchange := range ends {
			t.Run(name+"/"+end, func(t *testing.T) {
				d := newDB(t, nil)
				s := d.open()
				enqueue(t, s, "a", 1)
				l := lease(t, s, 1, "a")[0]
				plant := s.Facts(l.Token)
				c.stale(s, d, l)
				plant()
				rec, err := s.Job(ctx, l.ID)
				x := exchange(l.Lease)
				x.Retention.Default, x.LeaseDuration = time.Hour, time.Minute
				got, exchangeErr := s.Exchange(ctx, t0, x)
				step(exchangeErr)
				want, ok := c.want[end]
				if !ok {
					want = storage.Lost
				}
				if r := append(got.Finished, got.Extended...); len(r) != 1 || r[0] != want {
					t.Errorf("got %v, want %v", r, want)
				}
				after, errAfter := s.Job(ctx, l.ID)
				switch {
				case want == storage.Applied:
					if after.State != storage.Cancelled {
						t.Errorf("the job is %v: want what it was asked for", after.State)
					}
				case after.State != rec.State || after.Queue != rec.Queue || after.Counters != rec.Counters || (err == nil) != (errAfter == nil):
					t.Errorf("the job was %+v, %v, and is %+v, %v", rec, err, after, errAfter)
				}
				d.Invariants(t)
			})
		}
	}
}
