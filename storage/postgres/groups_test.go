package postgres_test

import (
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/rules/rowstest"
	"github.com/errandq/errand/storage/postgres"
)

func (d *db) Rows(s storage.Store, fn func(rules.Rows) error) error {
	return s.(*postgres.Store).Rows(d.t.Context(), fn)
}

func (d *db) Waits() { d.waits() }

func TestStore_Rows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rowstest.DB { return newDB(t) })
}

// Members that become due find places for a worker with several wants too, by the next exchange.
func TestExchange_PlacesForSeveralWants(t *testing.T) {
	d := newDB(t)
	s := d.open()
	if err := s.Configure(t.Context(), storage.Lane{Queue: "q"}, storage.Settings{storage.SettingGroupLimit: 2}); err != nil {
		t.Fatal(err)
	}
	jobs := newJobs(3, "q", "k")
	for i := range jobs {
		jobs[i].Group, jobs[i].DueAt = "g", now.Add(time.Second)
	}
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	later := now.Add(2 * time.Second)
	wants := []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 5}, {Queues: []string{"other"}, Kinds: []string{"k"}, N: 5}}
	for i, want := range []int{0, 2, 0} {
		res, err := s.Exchange(t.Context(), later, storage.Exchange{LeaseDuration: time.Minute, Wants: wants})
		if err != nil || len(res.Leased) != want {
			t.Fatalf("exchange %d leased %v, %v; want %d", i, res.Leased, err, want)
		}
		if more := i == 0; more != !res.NextDue.IsZero() {
			t.Errorf("after exchange %d NextDue is %v", i, res.NextDue)
		}
	}
	d.Invariants(t)
}
