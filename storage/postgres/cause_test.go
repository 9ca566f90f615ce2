package postgres_test

import (
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// How many dead letters a cause has is exact, whether their numbers are folded or not, also while others
// lock the cause, and if it is gone by then.
func TestCauses_Fold(t *testing.T) {
	d := newDB(t)
	s := d.open()
	fold := func(left int) {
		t.Helper()
		for range postgres.FoldAfter {
			adds(t, s, newJobs(1, "r", "k")...)
		}
		var n int
		if err := d.conn.QueryRow(t.Context(), `SELECT count(*) FROM errand_delta WHERE number = -4`).Scan(&n); err != nil || n != left {
			t.Errorf("%d rows of causes were not folded, %v; want %d", n, err, left)
		}
	}
	are := func(want ...int64) (all []storage.Cause) {
		t.Helper()
		all, err := s.Causes(t.Context(), storage.Lane{Queue: "q"}, 10)
		if err != nil || len(all) != len(want) {
			t.Fatalf("the causes are %+v, %v; want %v", all, err, want)
		}
		for i, c := range all {
			if c.N != want[i] {
				t.Errorf("the cause %+v has %d dead letters, want %d", c, c.N, want[i])
			}
		}
		return all
	}
	purge := func(of storage.Cause) {
		t.Helper()
		if step, err := s.Delete(t.Context(), storage.Selection{Filter: storage.Filter{Cause: of.ID}}); err != nil || int64(step.N) != of.N {
			t.Errorf("deleted %+v, %v; want %d", step, err, of.N)
		}
	}
	buries := func(n int, text string) {
		t.Helper()
		adds(t, s, newJobs(n, "q", "k")...)
		x := storage.Exchange{}
		for _, l := range leases(t, s, n) {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Cause: text})
		}
		if _, err := s.Exchange(t.Context(), now, x); err != nil {
			t.Fatal(err)
		}
	}
	buries(3, "no")
	buries(2, "refused")
	are(3, 2)
	d.exec("BEGIN")
	d.exec("SELECT FROM errand_cause WHERE text = 'no' FOR UPDATE")
	fold(1)
	d.exec("ROLLBACK")
	buries(1, "no")
	fold(0)
	all := are(4, 2)
	buries(1, "no")
	purge(are(5, 2)[0])
	buries(1, "no")
	fold(0)
	if again := are(2, 1); again[1].ID == all[0].ID {
		t.Errorf("the ID %d was given a second time", all[0].ID)
	}
	d.Invariants(t)
}
