package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

var wantOne = []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}

// leaseOne enqueues a job, and leases it.
func leaseOne(t *testing.T, s *postgres.Store) storage.Leased {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k")); err != nil {
		t.Fatal(err)
	}
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne})
	if err != nil || len(res.Leased) != 1 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	return res.Leased[0]
}

// reclaims fails unless s takes so many leases.
func reclaims(t *testing.T, s *postgres.Store, mono time.Duration, want int) {
	t.Helper()
	if got, err := s.Reclaim(t.Context(), now, mono, time.Minute, 9); err != nil || len(got) != want {
		t.Errorf("after %v Reclaim returned %v, %v; want %d", mono, got, err, want)
	}
}

// A context that ends while Reclaim reads does not end the session whose lock shows that the
// instance lives.
func TestReclaim_Withdrawn(t *testing.T) {
	d := newDB(t)
	s := d.open()
	leaseOne(t, s)
	reclaims(t, s, 0, 0)
	session := `SELECT pid FROM pg_locks JOIN errand_instance ON objid = instance WHERE locktype = 'advisory'
AND classid = (SELECT locks FROM errand_meta)::bigint AND granted`
	var before, after, waits int
	if err := d.conn.QueryRow(t.Context(), session).Scan(&before); err != nil {
		t.Fatal(err)
	}
	d.exec("BEGIN")
	d.exec("LOCK TABLE errand_lane IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.Reclaim(ctx, now, time.Second, time.Minute, 9)
		ended <- err
	}()
	for waits == 0 {
		if err := d.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted`, before).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	d.exec("COMMIT")
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	reclaims(t, s, 2*time.Second, 0) // by a new session, if the one before was ended
	if err := d.conn.QueryRow(t.Context(), session).Scan(&after); err != nil || after != before {
		t.Errorf("the lock is held by session %d, %v; want %d", after, err, before)
	}
}

// A lease of an instance without a row is taken like that of one that is gone.
func TestReclaim_Stray(t *testing.T) {
	d := newDB(t)
	s, other := d.open(), d.open()
	leaseOne(t, s)
	d.exec("DELETE FROM errand_instance")
	reclaims(t, other, 0, 1)
	d.Invariants(t)
}

// An instance that is registered anew while an exchange is under way promises its leases anew.
func TestInstance_PromisesAnew(t *testing.T) {
	d := newDB(t)
	s, other := d.open(), d.open()
	leaseOne(t, s)
	d.exec("DELETE FROM errand_job")
	d.exec("DELETE FROM errand_delta")
	for range 2 {
		d.exec("DELETE FROM errand_instance")
		if _, err := s.Reclaim(t.Context(), now, 0, time.Minute, 9); err != nil {
			t.Fatal(err)
		}
		leaseOne(t, s)
		var lease int64
		if err := d.conn.QueryRow(t.Context(), "SELECT max(lease) FROM errand_instance").Scan(&lease); err != nil || lease != time.Minute.Microseconds() {
			t.Errorf("the row promises %d, %v; want a minute", lease, err)
		}
	}
	reclaims(t, other, 0, 1) // that of the first registration, which has no row
}

// A due job that another transaction decides about is not forgotten.
func TestExchange_PassedOver(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := newJobs(1, "q", "k")
	jobs[0].DueAt = now.Add(time.Second)
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	d.exec("BEGIN")
	d.exec("SELECT id FROM errand_job FOR UPDATE")
	later := now.Add(2 * time.Second)
	res, err := s.Exchange(t.Context(), later, storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne})
	d.exec("ROLLBACK")
	if err != nil || len(res.Leased) != 0 || !soon(res.NextDue, later) {
		t.Errorf("leased %v, NextDue %v, %v; want none, and soon after %v", res.Leased, res.NextDue, err, later)
	}
	res, err = s.Exchange(t.Context(), later, storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne})
	if err != nil || len(res.Leased) != 1 || !res.NextDue.IsZero() {
		t.Errorf("leased %v, NextDue %v, %v; want one, and nothing to come", res.Leased, res.NextDue, err)
	}
}

// Close ends a registration whose session was cut off.
func TestClose_CutOff(t *testing.T) {
	d := newDB(t)
	s := d.open()
	reclaims(t, s, 0, 0)
	d.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_locks JOIN errand_instance ON objid = instance
WHERE locktype = 'advisory' AND classid = (SELECT locks FROM errand_meta)::bigint AND granted`)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	var left int
	if err := d.conn.QueryRow(t.Context(), "SELECT count(*) FROM errand_instance").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d instances are left, %v", left, err)
	}
}
