package sqlite_test

import (
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// A head that turns out to be too late while it is leased has the others of its group
// blocked, which were to be leased beside it.
func TestExpiry_EndsHeadAmongLeased(t *testing.T) {
	for name, c := range map[string]struct {
		others int // jobs that a sweep ends first
		doubt  bool
		urgent int
	}{
		"doubt":  {doubt: true},
		"many":   {others: 300},
		"urgent": {doubt: true, urgent: 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDB(t, nil).open()
			limit := func(n int64) {
				t.Helper()
				if err := s.Configure(t.Context(), storage.Lane{Queue: "default"}, storage.Settings{storage.SettingGroupLimit: n}); err != nil {
					t.Fatal(err)
				}
			}
			limit(3)
			jobs := make([]storage.NewJob, c.others, c.others+3)
			for i := range jobs {
				jobs[i] = storage.NewJob{Queue: "other", Kind: "a", StartWithin: time.Second}
			}
			for i := range 3 {
				job := storage.NewJob{Queue: "default", Kind: "a", Group: "g", Doubtful: c.doubt}
				if i == 0 {
					job.StartWithin = 2 * time.Second
				}
				jobs = append(jobs, job)
			}
			out, err := s.Enqueue(t.Context(), t0, jobs)
			if err != nil {
				t.Fatal(err)
			}
			if c.urgent > 0 {
				for _, e := range out {
					if _, err := s.RunNow(t.Context(), t0, storage.Selection{IDs: []storage.ID{e.ID}}, storage.Waiting{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			limit(0)
			if _, err := s.Regroup(t.Context(), "default", ""); err != nil {
				t.Fatal(err)
			}
			late := t0.Add(time.Minute)
			ended, leased := 0, 0
			for range 4 {
				res := exchangeAt(t, s, late, storage.Exchange{Urgent: c.urgent, Doubtful: c.doubt})
				ended += len(res.Expired)
				leased += len(res.Leased)
			}
			if ended != c.others+1 || leased != 1 {
				t.Errorf("%d expired and %d leased, want %d and 1", ended, leased, c.others+1)
			}
		})
	}
}

// An option of a job that is gone is damage, and does not keep others from their lease.
func TestExpiry_JobIsGone(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	add := func(within time.Duration) {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), t0, []storage.NewJob{{Queue: "default", Kind: "a", StartWithin: within}}); err != nil {
			t.Fatal(err)
		}
	}
	add(time.Second)
	d.exec("DELETE FROM errand_job")
	add(0)
	if n := len(exchangeAt(t, s, t0.Add(time.Minute), storage.Exchange{}).Leased); n != 1 {
		t.Errorf("%d jobs were leased, want 1", n)
	}
}

// Nothing stays of a time of doubt once its last job has ended, so that the next ones cost
// no more.
func TestExpiry_ForgetsEpochs(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	for _, within := range []time.Duration{time.Second, time.Hour} {
		if _, err := s.Enqueue(t.Context(), t0, []storage.NewJob{{Queue: "other", Kind: "a", StartWithin: within, Doubtful: true}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		at   time.Time
		left int64
	}{{t0, 1}, {t0.Add(time.Second), 1}, {t0.Add(time.Hour), 0}} {
		exchangeAt(t, s, c.at, storage.Exchange{})
		if _, err := s.Enqueue(t.Context(), c.at, []storage.NewJob{{Queue: "default", Kind: "a"}}); err != nil {
			t.Fatal(err)
		}
		exchangeAt(t, s, c.at, storage.Exchange{}) // the next one that writes
		if n := d.number("SELECT COUNT(*) FROM errand_epoch"); n != c.left {
			t.Errorf("%v later there are %d epochs, want %d", c.at.Sub(t0), n, c.left)
		}
	}
}

// exchangeAt leases up to nine jobs.
func exchangeAt(t *testing.T, s *sqlite.Store, now time.Time, x storage.Exchange) storage.ExchangeResult {
	t.Helper()
	x.Wants, x.LeaseDuration = []storage.Want{{N: 9, Queues: []string{"default"}, Kinds: []string{"a"}}}, time.Minute
	res, err := s.Exchange(t.Context(), now, x)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
