package postgres_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// restarted is a server of its own that ends in the middle of everything, and comes back.
type restarted struct {
	t      *testing.T
	server *pgtest.Instance
}

func newRestarted(t *testing.T) restarted {
	pgtest.Need(t)
	server, err := pgtest.Start() // with fsync
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return restarted{t, server}
}

func (r restarted) open() *postgres.Store {
	r.t.Helper()
	s, err := postgres.Open(r.t.Context(), r.server.DSN(), &postgres.Options{MaxConns: 8})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Kill() })
	return s
}

func (r restarted) again() {
	r.t.Helper()
	if err := r.server.Again(); err != nil {
		r.t.Fatal(err)
	}
}

// connected has a Store have so many connections in its pool.
func (r restarted) connected(s *postgres.Store, n int) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.server.DSN())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	(&db{t: r.t, conn: conn}).connects(s, n)
}

// connects has a Store have so many connections in its pool.
func (d *db) connects(s *postgres.Store, n int) {
	d.t.Helper()
	d.exec("BEGIN")
	d.exec("LOCK TABLE errand_lane IN ACCESS EXCLUSIVE MODE")
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := s.Counts(d.t.Context()); err != nil {
				d.t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < n && !d.t.Failed(); {
		if err := d.conn.QueryRow(d.t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&waiting); err != nil {
			d.t.Fatal(err)
		}
	}
	d.exec("COMMIT")
	wg.Wait()
}

// away checks the error of a call while there is no server, and reports whether its outcome is unknown.
func (r restarted) away(what string, err error) (unknown bool) {
	r.t.Helper()
	_, unknown = errors.AsType[*storage.UnknownOutcomeError](err)
	if !unknown && !errors.Is(err, storage.ErrIO) {
		r.t.Errorf("without a server %s returned %v, want ErrIO or an UnknownOutcomeError", what, err)
	}
	return unknown
}

// lease leases n jobs.
func (r restarted) lease(s *postgres.Store, n int) []storage.Leased {
	r.t.Helper()
	want := usual[0]
	want.N = n
	res, err := s.Exchange(r.t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{want}})
	if err != nil || len(res.Leased) != n {
		r.t.Fatalf("%d jobs were leased, want %d: %v", len(res.Leased), n, err)
	}
	return res.Leased
}

// end ends leases as done.
func (r restarted) end(s *postgres.Store, all []storage.Leased) {
	r.t.Helper()
	var x storage.Exchange
	for _, l := range all {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	res, err := s.Exchange(r.t.Context(), now, x)
	if err != nil || slices.ContainsFunc(res.Finished, func(r storage.ItemResult) bool { return r != storage.Applied }) {
		r.t.Errorf("ending leases returned %v, %v", res.Finished, err)
	}
}

// A Store goes on when its server has started anew. What was acknowledged is there, the leases of
// who comes back are kept, and those of who does not are taken over.
func TestStore_Restart(t *testing.T) {
	r := newRestarted(t)
	s, other, gone := r.open(), r.open(), r.open()
	out, err := s.Enqueue(t.Context(), now, newJobs(9, "q", "k"))
	if err != nil {
		t.Fatal(err)
	}
	ended, kept, lost := r.lease(s, 1), r.lease(s, 3), r.lease(gone, 2)
	r.end(s, ended)
	reclaims(t, s, 0, 0)
	reclaims(t, other, 0, 0)
	r.connected(s, 8) // of which one call finds out that they are of no use
	gone.Kill()
	r.server.Crash()

	x := storage.Exchange{LeaseDuration: time.Minute}
	for _, l := range kept {
		x.Extend = append(x.Extend, l.Lease)
	}
	_, err = s.Exchange(t.Context(), now, x)
	if r.away("Exchange", err); errors.Is(err, storage.ErrUnknownOutcome) {
		unknown, _ := errors.AsType[*storage.UnknownOutcomeError](err)
		x.Repeats = unknown.Call
	}
	_, err = s.Enqueue(t.Context(), now, newJobs(1, "q", "k"))
	if r.away("Enqueue", err) {
		t.Errorf("Enqueue returned %v though it could not connect", err)
	}
	_, err = s.Counts(t.Context())
	r.away("Counts", err)
	_, err = s.Reclaim(t.Context(), now, 0, time.Minute, 9)
	r.away("Reclaim", err)
	_, err = s.Cancel(t.Context(), now, out[8].ID, storage.Retention{})
	r.away("Cancel", err)

	r.again()
	res, err := s.Exchange(t.Context(), now, x)
	if want := slices.Repeat([]storage.ItemResult{storage.Applied}, 3); err != nil || !slices.Equal(res.Extended, want) {
		t.Errorf("extending returned %v, %v; want %v", res.Extended, err, want)
	}
	// Nobody has the lock of s before its next Reclaim.
	reclaims(t, other, 250*time.Millisecond, 0)
	reclaims(t, s, 250*time.Millisecond, 0)
	var taken []storage.Leased
	for mono := 500 * time.Millisecond; mono <= 3*time.Second; mono += 250 * time.Millisecond {
		got, err := other.Reclaim(t.Context(), now, mono, time.Minute, 9)
		if err != nil {
			t.Error(err)
		}
		for _, l := range got {
			taken = append(taken, l.Leased)
			if !slices.ContainsFunc(lost, func(o storage.Leased) bool { return o.ID == l.ID }) || mono < 2*time.Second {
				t.Errorf("after %v the lease of job %d was taken over", mono, l.Key)
			}
		}
	}
	if len(taken) != len(lost) {
		t.Errorf("%d leases were taken over, want %d", len(taken), len(lost))
	}
	more, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k"))
	if err != nil || more[0].ID.Key() <= out[8].ID.Key() {
		t.Errorf("Enqueue returned %v, %v; want a key after %d", more, err, out[8].ID.Key())
	}
	left := r.lease(s, 4)
	for _, l := range left {
		if l.Token <= lost[1].Token {
			t.Errorf("the token %d comes after %d", l.Token, lost[1].Token)
		}
	}
	r.end(other, taken)
	r.end(s, append(left, kept...))
	if counts, err := s.Counts(t.Context()); err != nil || len(counts) != 0 {
		t.Errorf("counts %v, %v; want none", counts, err)
	}
}

// Of what is under way when the server ends no more is lost than the calls say.
func TestStore_RestartUnderWay(t *testing.T) {
	r := newRestarted(t)
	s := r.open()
	var mu sync.Mutex
	var acknowledged []storage.ID
	unknown := 0
	enough := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				out, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k"))
				mu.Lock()
				if err != nil {
					if r.away("Enqueue", err) {
						unknown++
					}
					mu.Unlock()
					return
				}
				if acknowledged = append(acknowledged, out[0].ID); len(acknowledged) == 50 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	r.server.Crash()
	wg.Wait()
	r.again()
	for _, id := range acknowledged {
		if job, err := s.Job(t.Context(), id); err != nil || job.State != storage.Ready {
			t.Fatalf("a job that was acknowledged is %q, %v", job.State, err)
		}
	}
	counts, err := s.Counts(t.Context())
	if n := int64(len(acknowledged)); err != nil || len(counts) != 1 || counts[0].N < n || counts[0].N > n+int64(unknown) {
		t.Errorf("counts %v, %v; want %d, and at most %d more", counts, err, n, unknown)
	}
}

// Connections that were cut off while nobody used them fail no call.
func TestStore_StaleConnections(t *testing.T) {
	schema := pgtest.Schema(t)
	s, err := postgres.Open(t.Context(), pgtest.Server(t)+" application_name=stale", &postgres.Options{Schema: schema, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	d := newDBIn(t, schema)
	for _, c := range []struct {
		what string
		call func() error
	}{
		{"Enqueue", func() error {
			_, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k"))
			return err
		}},
		{"Exchange", func() error {
			res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual})
			if err == nil && len(res.Leased) != 1 {
				t.Errorf("%d jobs were leased, want one", len(res.Leased))
			}
			return err
		}},
		{"Counts", func() error {
			_, err := s.Counts(t.Context())
			return err
		}},
	} {
		d.connects(s, 4)
		d.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'stale'`)
		if err := c.call(); err != nil {
			t.Errorf("%s returned %v", c.what, err)
		}
	}
}
