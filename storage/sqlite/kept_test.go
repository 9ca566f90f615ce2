package sqlite_test

import (
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// What a job brings at its end is written only if the job is kept.
func TestFinish_BringsNothingWhereNothingIsKept(t *testing.T) {
	for _, tt := range []struct {
		name string
		keep time.Duration
		rows int64
	}{{"kept", time.Hour, 1}, {"not kept", 0, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDB(t, &sqlite.Options{SingleProcess: true})
			s := d.open()
			enqueue(t, s, "a", 4)
			jobs := lease(t, s, 4, "a")
			end := func(job storage.Leased, p *storage.Progress) {
				t.Helper()
				f := storage.Finish{Lease: job.Lease, Outcome: storage.OutcomeDone, Progress: p}
				r, err := s.Exchange(t.Context(), t0, storage.Exchange{Finish: []storage.Finish{f}, Retention: storage.Retention{Default: tt.keep}})
				if err != nil || r.Finished[0] != storage.Applied {
					t.Fatalf("%v, %v", r.Finished, err)
				}
			}
			end(jobs[0], nil) // the first one may write pages of its own
			before := len(d.logged())
			end(jobs[1], nil)
			plain := d.logged()[before:]
			end(jobs[2], &storage.Progress{Done: 1, Total: 2, At: t0})
			with := d.logged()[before+len(plain):]
			slices.Sort(plain)
			slices.Sort(with)
			if same := slices.Equal(plain, with); same == (tt.rows > 0) {
				t.Errorf("pages %d were written without a progress, %d with one", plain, with)
			}
			if n := d.number("SELECT count(*) FROM errand_kept"); n != tt.rows {
				t.Errorf("%d rows are kept, want %d", n, tt.rows)
			}
		})
	}
}
