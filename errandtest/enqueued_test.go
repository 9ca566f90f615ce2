package errandtest_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/storage/sqlite"
)

// Jobs of all states are found, those that were enqueued first before others.
func TestRequireEnqueued(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		errandtest.RequireNone[SendEmail](t, q)
		for i := range 3 {
			enqueue(t, q, SendEmail{"ada"}, nil)
			enqueue(t, q, SendEmail{fmt.Sprint(i)}, &errand.JobOptions{Queue: "slow"})
		}
		errandtest.Drain(t, q, worker(q, done), nil)
		enqueue(t, q, &Audit{"sent"}, &errand.JobOptions{Headers: map[string]string{"trace": "17"}})
		slow := func(e errandtest.Enqueued[SendEmail]) error {
			if e.Queue != "slow" {
				return fmt.Errorf("it is in queue %s", e.Queue)
			}
			return nil
		}
		got := errandtest.RequireEnqueued(t, q, slow)
		for i, e := range got {
			if e.Args.To != fmt.Sprint(i) || e.State != errand.Ready {
				t.Errorf("job %d goes to %s, and is %s", i, e.Args.To, e.State)
			}
		}
		if len(got) != 3 {
			t.Errorf("%d jobs, want 3", len(got))
		}
		if got := errandtest.RequireEnqueued[SendEmail](t, q); len(got) != 6 || got[0].State != errand.Done {
			t.Errorf("%d jobs, the first is %s", len(got), got[0].State)
		}
		if got := errandtest.RequireEnqueued[*Audit](t, q)[0]; got.Args.What != "sent" || got.Headers["trace"] != "17" {
			t.Errorf("%+v", got)
		}
		errandtest.RequireNone(t, q, slow, to("ada"))
	})
}

// A failure lists what there is, and why it does not match.
//
//errand:shows tests of users | | RequireEnqueued and RequireNone fail with a list of the jobs of the kind, and why each does not match
func TestRequireEnqueued_fails(t *testing.T) {
	t.Parallel()
	q := errandtest.New(t, nil)
	require := func(t testing.TB) { errandtest.RequireEnqueued(t, q, to("bob")) }
	wantFailure(t, require, "no job of kind send_email was enqueued")
	for range 12 {
		enqueue(t, q, SendEmail{"ada"}, nil)
	}
	wantFailure(t, require, "no job of kind send_email matches:", `in queue default, ready, with args {"To":"ada"}: it goes to ada`, "and 2 more")
	wantFailure(t, func(t testing.TB) { errandtest.RequireNone(t, q, to("ada")) }, "jobs of kind send_email were enqueued that should not be there:", `{"To":"ada"}`)
	enqueue(t, q, errand.RawArgs{OfKind: "audit", JSON: []byte(`17`)}, nil)
	wantFailure(t, func(t testing.TB) { errandtest.RequireEnqueued[*Audit](t, q) }, "its args do not decode")
	wantFailure(t, func(t testing.TB) { errandtest.RequireEnqueued[errand.RawArgs](t, q) }, "is of many kinds")
	wantFailure(t, func(t testing.TB) { errandtest.RequireEnqueued[errand.Args](t, q) }, "is an interface")
}

// A transaction is seen from inside before it commits, whoever began it.
//
//errand:shows tests of users | | a transaction of Queue.Tx, or of the application, is seen from inside before it commits; another database is refused
func TestRequireEnqueuedTx(t *testing.T) {
	open := func(t *testing.T) (*errand.Queue, *sql.DB) {
		q := errandtest.New(t, nil)
		enqueue(t, q, SendEmail{"before"}, nil)
		db, err := sqlite.OpenDB(errandtest.Path(q))
		check(t, err)
		t.Cleanup(func() { check(t, db.Close()) })
		return q, db
	}
	inside := func(t *testing.T, q *errand.Queue, tx *sql.Tx) {
		errandtest.RequireNoneTx(t, q, tx, to("ada"))
		_, err := q.EnqueueTx(t.Context(), tx, SendEmail{"ada"}, &errand.JobOptions{Tags: []string{"a"}, Headers: map[string]string{"body": strings.Repeat("x", 5000)}})
		check(t, err)
		got := errandtest.RequireEnqueuedTx(t, q, tx, to("ada"))
		if len(got) != 1 || got[0].Headers["body"] == "" || got[0].Tags[0] != "a" {
			t.Errorf("%+v", got)
		}
		errandtest.RequireEnqueuedTx(t, q, tx, to("before"))
		errandtest.RequireNone(t, q, to("ada"))
		wantFailure(t, func(t testing.TB) { errandtest.RequireNoneTx(t, q, tx, to("ada")) }, "should not be there")
		wantFailure(t, func(t testing.TB) { errandtest.RequireEnqueuedTx(t, q, tx, to("bob")) }, "it goes to ada", "it goes to before")
	}
	inBoth(t, func(t *testing.T) {
		q, _ := open(t)
		check(t, q.Tx(t.Context(), func(tx *sql.Tx) error {
			inside(t, q, tx)
			return nil
		}))
		errandtest.RequireEnqueued(t, q, to("ada"))
	})
	t.Run("application", func(t *testing.T) {
		t.Parallel()
		q, db := open(t)
		tx, err := db.BeginTx(context.Background(), nil)
		check(t, err)
		inside(t, q, tx)
		check(t, tx.Rollback())
		errandtest.RequireNone(t, q, to("ada"))
	})
	t.Run("another database", func(t *testing.T) {
		t.Parallel()
		q := errandtest.New(t, nil)
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "other.db"))
		check(t, err)
		tx, err := db.BeginTx(context.Background(), nil)
		check(t, err)
		wantFailure(t, func(t testing.TB) { errandtest.RequireNoneTx[SendEmail](t, q, tx) }, "database")
		wantFailure(t, func(t testing.TB) { errandtest.RequireNoneTx[SendEmail](t, q, nil) }, "tx nil: must not be nil")
		check(t, tx.Rollback())
		check(t, db.Close())
	})
}
