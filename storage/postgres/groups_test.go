package postgres_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/rules/rowstest"
	"github.com/errandq/errand/storage/postgres"
)

func (d *db) Rows(s storage.Store, fn func(load func(rules.Need) (*rules.Tx, error)) error) error {
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

// The end of a job gives up its key and its place also if the Store that ends it has not leased
// it, and so has to ask what it has.
func TestExchange_EndsForOthers(t *testing.T) {
	d := newDB(t)
	s, other := d.open(), d.open()
	jobs := newJobs(3, "q", "k")
	jobs[0].Unique, jobs[1].Group, jobs[2].Group = "u", "g", "g"
	out, err := s.Enqueue(t.Context(), now, jobs)
	if err != nil {
		t.Fatal(err)
	}
	wants := []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 9}}
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wants})
	if err != nil || len(res.Leased) != 2 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: wants}
	for _, l := range res.Leased {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	res, err = other.Exchange(t.Context(), now, x)
	if err != nil || len(res.Leased) != 1 || res.Leased[0].ID != out[2].ID {
		t.Errorf("leased %v, %v; want the next member", res.Leased, err)
	}
	again, err := s.Enqueue(t.Context(), now, jobs[:1])
	if err != nil || again[0].Duplicate {
		t.Errorf("the key is not free: %v, %v", again, err)
	}
	d.Invariants(t)
}

// An exchange locks the rows of all jobs that it is about in order, those of members that others
// hold and of leases that it extends too.
func TestExchange_LocksInOrder(t *testing.T) {
	for what, exchange := range map[string]func(first storage.Lease, others []storage.Finish) storage.Exchange{
		"it extends one": func(first storage.Lease, others []storage.Finish) storage.Exchange {
			return storage.Exchange{Extend: []storage.Lease{first}, Finish: others[2:]}
		},
		"it ends a plain one, and one of a group": func(first storage.Lease, others []storage.Finish) storage.Exchange {
			return storage.Exchange{Finish: append(others[2:], storage.Finish{Lease: first, Outcome: storage.OutcomeRetry})}
		},
		"it ends plain ones": func(first storage.Lease, others []storage.Finish) storage.Exchange {
			return storage.Exchange{Finish: append(others[:1], storage.Finish{Lease: first, Outcome: storage.OutcomeRetry})}
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDB(t)
			s, leased := placedTwice(t, d)
			var ends []storage.Finish
			for _, l := range leased[1:] {
				ends = append(ends, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry})
			}
			x := exchange(leased[0].Lease, ends)
			x.LeaseDuration = time.Minute
			d.exec("BEGIN")
			d.exec("SELECT id FROM errand_job WHERE id = $1 FOR UPDATE", leased[0].Key)
			var wg sync.WaitGroup
			wg.Go(func() {
				res, err := s.Exchange(t.Context(), now, x)
				if err != nil || slices.Contains(slices.Concat(res.Extended, res.Finished), storage.Lost) {
					t.Errorf("Exchange returned %+v, %v", res, err)
				}
			})
			d.waits()
			for _, l := range leased[1:] {
				d.exec("SELECT id FROM errand_job WHERE id = $1 FOR UPDATE NOWAIT", l.Key)
			}
			d.exec("ROLLBACK")
			wg.Wait()
			d.Invariants(t)
		})
	}
}

// placedTwice returns leases of two plain jobs, and then of the two members of a group that has
// one place since.
func placedTwice(t *testing.T, d *db) (*postgres.Store, []storage.Leased) {
	t.Helper()
	s := d.open()
	limit(t, s, 2)
	jobs := newJobs(4, "q", "k")
	jobs[2].Group, jobs[3].Group = "g", "g"
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 9}}})
	if err != nil || len(res.Leased) != 4 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	limit(t, s, 1)
	slices.SortFunc(res.Leased, func(a, b storage.Leased) int { return int(a.Key - b.Key) })
	return s, res.Leased
}

func limit(t *testing.T, s *postgres.Store, n int64) {
	t.Helper()
	if err := s.Configure(t.Context(), storage.Lane{Queue: "q"}, storage.Settings{storage.SettingGroupLimit: n}); err != nil {
		t.Fatal(err)
	}
}

// A call about a group meets one setting of it, also if that is changed as it waits.
func TestExchange_LimitMeanwhile(t *testing.T) {
	d := newDB(t)
	s, leased := placedTwice(t, d)
	d.exec("BEGIN")
	d.exec("SELECT id FROM errand_job WHERE id = $1 FOR UPDATE", leased[2].Key)
	var wg sync.WaitGroup
	wg.Go(func() {
		res, err := s.Exchange(t.Context(), now, storage.Exchange{Finish: []storage.Finish{{Lease: leased[3].Lease, Outcome: storage.OutcomeDone}}})
		if err != nil || res.Finished[0] != storage.Applied {
			t.Errorf("Exchange returned %+v, %v", res, err)
		}
	})
	d.waits() // for the other member, which is read for the limit 1
	limit(t, s, 2)
	d.exec("ROLLBACK")
	wg.Wait()
	d.Invariants(t)
}

// A Regroup waits for settings that are being changed, and applies these.
func TestRegroup_SettingsMeanwhile(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := newJobs(4, "q", "k")
	for i := range jobs {
		jobs[i].Group = "g"
	}
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	limit(t, s, 2)
	d.exec("BEGIN")
	d.exec("UPDATE errand_meta SET settings = settings + 1")
	d.exec("UPDATE errand_setting SET value = 3 WHERE name = 'group_limit'")
	var wg sync.WaitGroup
	wg.Go(func() {
		for after, more := "", true; more; more = after != "" {
			var err error
			if after, err = s.Regroup(t.Context(), "q", after); err != nil {
				t.Error(err)
			}
		}
	})
	d.waits()
	d.exec("COMMIT")
	wg.Wait()
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 9}}})
	if err != nil || len(res.Leased) != 3 {
		t.Errorf("leased %v, %v; want 3", res.Leased, err)
	}
	var marks int
	if err := d.conn.QueryRow(t.Context(), "SELECT count(*) FROM errand_setting WHERE name = ''").Scan(&marks); err != nil || marks != 0 {
		t.Errorf("%d queues are to be settled after it, %v", marks, err)
	}
	d.Invariants(t)
}

// The only member of a group stays in it as it dies.
func TestExchange_DeadAlone(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := newJobs(1, "q", "k")
	jobs[0].Group = "g"
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne}
	for range 2 {
		res, err := s.Exchange(t.Context(), now, x)
		if err != nil {
			t.Fatal(err)
		}
		x = storage.Exchange{}
		for _, l := range res.Leased {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent})
		}
	}
	d.Invariants(t)
	if id, err := s.SkipHead(t.Context(), "q", "g"); err != nil || id.IsZero() {
		t.Errorf("SkipHead returned %v, %v", id, err)
	}
	d.Invariants(t)
}

// A worker does not ask without a pause if members that are due can find no place.
func TestExchange_MissedPlaces(t *testing.T) {
	d := newDB(t)
	s := d.open()
	if err := s.Configure(t.Context(), storage.Lane{Queue: "q"}, storage.Settings{storage.SettingGroupLimit: 2}); err != nil {
		t.Fatal(err)
	}
	jobs := newJobs(1, "q", "k")
	jobs[0].Group, jobs[0].DueAt = "g", now.Add(time.Second)
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	later := now.Add(2 * time.Second)
	mend := d.keepsJobs("true")
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne}
	if res, err := s.Exchange(t.Context(), later, x); err != nil || len(res.Leased) > 0 || !soon(res.NextDue, later) {
		t.Errorf("Exchange returned %+v, %v; want that it is asked again soon", res, err)
	}
	mend()
	if res, err := s.Exchange(t.Context(), later, x); err != nil || len(res.Leased) != 1 {
		t.Errorf("without the fault Exchange returned %+v, %v", res, err)
	}
	d.Invariants(t)
}

// keepsJobs has updates of jobs for which a condition is true change nothing, until mend is called.
func (d *db) keepsJobs(when string) (mend func()) {
	d.exec(`CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	d.exec(`CREATE TRIGGER nothing BEFORE UPDATE ON errand_job FOR EACH ROW WHEN (` + when + `) EXECUTE FUNCTION nothing()`)
	return func() { d.exec(`DROP FUNCTION nothing CASCADE`) }
}

// runsBefore enqueues a job, which runs, and another one like it, which waits for the first. It returns
// the job as it was enqueued, and the exchange in which the first is done.
func runsBefore(t *testing.T, s *postgres.Store, job storage.NewJob) (storage.NewJob, storage.Exchange) {
	t.Helper()
	job.Queue, job.Kind, job.Args = "q", "k", []byte("{}")
	var x storage.Exchange
	for range 2 {
		if _, err := s.Enqueue(t.Context(), now, []storage.NewJob{job}); err != nil {
			t.Fatal(err)
		}
		res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range res.Leased {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}
	if len(x.Finish) != 1 {
		t.Fatalf("leased %d jobs, want one", len(x.Finish))
	}
	return job, x
}

// A job that is not blocked, although others say that it waits, is not let in, and not counted as if it were.
func TestExchange_Damaged(t *testing.T) {
	for what, job := range map[string]storage.NewJob{
		"a member":          {Group: "g"},
		"the heir of a key": {Unique: "u", Conflict: &storage.Conflict{Mode: storage.Replace}},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDB(t)
			s := d.open()
			_, x := runsBefore(t, s, job)
			d.exec("UPDATE errand_job SET state = 3 WHERE state = 7")
			if res, err := s.Exchange(t.Context(), now, x); err != nil || len(res.Finished) != 1 || res.Finished[0] != storage.Applied {
				t.Fatalf("Exchange returned %+v, %v", res, err)
			}
			d.exec("UPDATE errand_job SET state = 7")
			counts, err := s.Counts(t.Context())
			if want := (storage.Count{Queue: "q", Kind: "k", State: storage.Blocked, N: 1}); err != nil || len(counts) != 1 || counts[0] != want {
				t.Errorf("counts %v, %v; want %v", counts, err, want)
			}
		})
	}
}

// A job that is not written, although it was read, and it or its group or key was locked, is an error, and
// nothing else is written either.
func TestExchange_Missed(t *testing.T) {
	for what, job := range map[string]storage.NewJob{
		"a member that is let in":      {Group: "g"},
		"a job that follows, replaced": {Unique: "u", Conflict: &storage.Conflict{Mode: storage.Replace}},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDB(t)
			s := d.open()
			job, x := runsBefore(t, s, job)
			if job.Unique != "" {
				x.Finish[0].Then = []storage.NewJob{job}
			}
			mend := d.keepsJobs("OLD.state = 7")
			if _, err := s.Exchange(t.Context(), now, x); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("Exchange returned %v, want ErrCorrupt", err)
			}
			d.Invariants(t)
			mend()
			if res, err := s.Exchange(t.Context(), now, x); err != nil || res.Finished[0] != storage.Applied {
				t.Errorf("without the fault Exchange returned %+v, %v", res, err)
			}
			d.Invariants(t)
		})
	}
}
