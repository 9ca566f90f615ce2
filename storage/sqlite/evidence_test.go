package sqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// The last error of a job goes with it, whatever the lane in which it ends and
// whatever the Store knows of that lane.
//
//errand:shows an outage of the other side | | the last error of a job is deleted with the job, in whatever lane and by whatever process
func TestEvidence_ErrorsGoWithTheirJobs(t *testing.T) {
	ctx := context.Background()
	finish := func(t *testing.T, s storage.Store, f storage.Finish) {
		t.Helper()
		x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{f}}
		if res, err := s.Exchange(ctx, t0, x); err != nil || res.Finished[0] != storage.Applied {
			t.Fatal(res, err)
		}
	}
	t.Run("redriven to another queue", func(t *testing.T) {
		d := newDB(t, nil)
		s := d.open()
		enqueue(t, s, "a", 1)
		finish(t, s, storage.Finish{Lease: lease(t, s, 1, "a")[0].Lease, Outcome: storage.OutcomeUnavailable, Error: "no"})
		dead := lease(t, s, 1, "a")[0]
		finish(t, s, storage.Finish{Lease: dead.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Error: "gone"})
		if step, err := s.Redrive(ctx, t0, storage.Selection{IDs: []storage.ID{dead.ID}}, "other"); err != nil || step.N != 1 {
			t.Fatal(step, err)
		}
		if n := d.number("SELECT COUNT(*) FROM errand_error"); n != 0 {
			t.Errorf("%d errors are left", n)
		}
	})
	t.Run("cancelled by another process in Tx", func(t *testing.T) {
		d := newDB(t, nil)
		s, b := d.open(), d.open()
		enqueue(t, b, "a", 1)
		l := lease(t, s, 1, "a")[0]
		finish(t, s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeUnavailable, Error: "no"})
		err := inTx(ctx, b, func(tx *sql.Tx) error {
			_, err := b.CancelTx(ctx, tx, t0, l.ID, storage.Retention{})
			return err
		})
		if n := d.number("SELECT COUNT(*) FROM errand_error"); err != nil || n != 0 {
			t.Errorf("%v, %d errors are left", err, n)
		}
	})
}
