package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// unreadable is a database whose answers the Store can be kept from reading, although they come.
type unreadable struct {
	*db
	s *postgres.Store
}

func newUnreadable(t *testing.T) unreadable {
	d := newDBIn(t, pgtest.NewSchema(t))
	u := unreadable{d, d.open()}
	if _, err := u.s.Enqueue(t.Context(), now, newJobs(1, "q", "k")); err != nil {
		t.Fatal(err)
	}
	return u
}

// refuse has each commit of a call fail, at its end.
func (u unreadable) refuse() {
	u.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$`)
	u.exec(`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON errand_call DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (NEW.keys IS NULL OR NEW.keys <> '{}') EXECUTE FUNCTION refuse()`)
}

func (u unreadable) states(want ...storage.Count) {
	u.t.Helper()
	counts, err := u.s.Counts(u.t.Context())
	if err != nil || len(counts) != len(want) {
		u.t.Errorf("counts %v, %v; want %v", counts, err, want)
		return
	}
	for i := range want {
		want[i].Queue, want[i].Kind = "q", "k"
		if counts[i] != want[i] {
			u.t.Errorf("counts %v, want %v", counts, want)
		}
	}
}

// An exchange that has leased a job which cannot be read is not taken for one that has done
// nothing.
func TestExchange_Unreadable(t *testing.T) {
	u := newUnreadable(t)
	u.exec("ALTER TABLE errand_job ALTER salt DROP NOT NULL")
	u.exec("UPDATE errand_job SET salt = NULL")
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: usual}
	_, err := u.s.Exchange(t.Context(), now, x)
	lost, ok := errors.AsType[*storage.UnknownOutcomeError](err)
	if !ok {
		t.Fatalf("Exchange returned %v, want an UnknownOutcomeError", err)
	}
	u.states(storage.Count{State: storage.Running, N: 1})
	u.exec("UPDATE errand_job SET salt = 1")
	x.Repeats = lost.Call
	res, err := u.s.Exchange(t.Context(), now, x)
	if err != nil || len(res.Leased) != 1 {
		t.Errorf("repeated, it has leased %v, %v; want the job", res.Leased, err)
	}
	u.Invariants(t)
}

// If the commit fails too, nothing was written, and the call says so.
func TestExchange_UnreadableRefused(t *testing.T) {
	u := newUnreadable(t)
	u.exec("ALTER TABLE errand_job ALTER salt DROP NOT NULL")
	u.exec("UPDATE errand_job SET salt = NULL")
	u.refuse()
	res, err := u.s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual})
	if !errors.Is(err, storage.ErrIO) || errors.Is(err, storage.ErrUnknownOutcome) {
		t.Errorf("Exchange returned %+v, %v; want an error that says that nothing was written", res, err)
	}
	u.states(storage.Count{State: storage.Ready, N: 1})
}

// An Enqueue of which the server has inserted less than it was asked for is not taken for one
// that has inserted nothing: a caller who repeats it would have jobs twice.
func TestEnqueue_Unreadable(t *testing.T) {
	u := newUnreadable(t)
	u.exec(`CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`)
	u.exec(`CREATE TRIGGER skip BEFORE INSERT ON errand_job FOR EACH ROW WHEN (NEW.priority = 7) EXECUTE FUNCTION skip()`)
	jobs := newJobs(2, "q", "k")
	jobs[1].Priority = 7
	_, err := u.s.Enqueue(t.Context(), now, jobs)
	if _, ok := errors.AsType[*storage.UnknownOutcomeError](err); !ok {
		t.Errorf("Enqueue returned %v, want an UnknownOutcomeError", err)
	}
	u.refuse()
	if _, err := u.s.Enqueue(t.Context(), now, jobs); !errors.Is(err, storage.ErrIO) || errors.Is(err, storage.ErrUnknownOutcome) {
		t.Errorf("a refused Enqueue returned %v; want an error that says that nothing was written", err)
	}
}

// noUndo are connections that are cut off when a transaction is to be undone.
type noUndo struct{ net.Conn }

func (c noUndo) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(postgres.RollbackName())) && !bytes.Contains(p, []byte("ROLLBACK")) { // which is being prepared
		return 0, errors.Join(c.Close(), net.ErrClosed)
	}
	return c.Conn.Write(p)
}

// What an exchange has written is not taken for undone if that fails which comes after its commit:
// to find places for members that are due.
func TestExchange_PlaceUndone(t *testing.T) {
	d := newDB(t)
	s, err := postgres.OpenBy(t.Context(), pgtest.Server(t)+" lock_timeout=10ms", &postgres.Options{Schema: d.schema}, func(dial postgres.Dial) postgres.Dial {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return noUndo{conn}, err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.kill(s) })
	if err := s.Configure(t.Context(), storage.Lane{Queue: "q"}, storage.Settings{storage.SettingGroupLimit: 2}); err != nil {
		t.Fatal(err)
	}
	l := leaseOne(t, s)
	member := newJobs(1, "q", "k")
	member[0].Group, member[0].DueAt = "g", now.Add(time.Second)
	if _, err := s.Enqueue(t.Context(), now, member); err != nil {
		t.Fatal(err)
	}
	d.exec("BEGIN")
	d.exec("INSERT INTO errand_group VALUES ('q g')")
	later := now.Add(time.Minute)
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: usual, Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDone}}}
	res, err := s.Exchange(t.Context(), later, x)
	if err != nil || len(res.Finished) != 1 || res.Finished[0] != storage.Applied || !res.NextDue.Equal(later) {
		t.Errorf("Exchange returned %+v, %v; want the end of the lease applied, and the next exchange at once", res, err)
	}
	d.exec("ROLLBACK")
	if res, err = s.Exchange(t.Context(), later, storage.Exchange{LeaseDuration: time.Minute, Wants: usual}); err != nil || len(res.Leased) != 1 {
		t.Errorf("the next exchange has leased %v, %v; want the member", res.Leased, err)
	}
	d.Invariants(t)
}
