package apitest

import (
	"context"
	"database/sql"
	"maps"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
	"github.com/errandq/errand/policy"
)

// totalsOf returns the totals of charges in the queue "default".
func (s *shop) totalsOf() (t errand.LaneTotals) {
	s.t.Helper()
	for _, t = range must(s.q.Totals(s.t.Context())) {
		if t.Queue == "default" && t.Kind == "charge" {
			return t
		}
	}
	return errand.LaneTotals{}
}

// Each attempt counts for its verdict, and each job for its end, also if it is not kept, and
// stay counted when the file is opened again.
func TestQueue_Totals(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]time.Duration{"kept": 0, "not kept": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, errand.Options{Retention: keep})
			w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
			errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
				switch job.Args.N {
				case 1:
					if job.Attempt == 1 {
						return errDeclined
					}
					return nil
				case 2:
					return errand.Permanent(errDeclined)
				case 3:
					return errand.Cancel(errDeclined)
				case 4:
					return job.Finish(ctx, func(*sql.Tx) error { return nil })
				}
				return errand.Snooze(time.Hour, nil)
			}, errand.HandlerOptions{Policy: &policy.Policy{Retries: 1, NoDelayRetries: 1}})
			for n := range 5 {
				must(s.q.Enqueue(t.Context(), charge{n + 1}, nil))
			}
			check(s.q.Tx(t.Context(), func(tx *sql.Tx) error {
				_, err := s.q.EnqueueTx(t.Context(), tx, charge{6}, &errand.JobOptions{Delay: time.Hour})
				return err
			}))
			kit.Work(s.q, w, 6)
			got := s.totalsOf()
			if got.Enqueued != 6 || got.Done != 2 || got.Dead != 1 || got.Cancelled != 1 || got.Expired != 0 || got.Number != 1 {
				t.Errorf("the totals are %+v", got)
			}
			want := map[errand.EventType]int64{
				errand.EventDone: 2, errand.EventRetried: 1, errand.EventDead: 1, errand.EventCancelled: 1, errand.EventSnoozed: 1,
			}
			if !maps.Equal(got.Attempts, want) {
				t.Errorf("attempts: %v, want %v", got.Attempts, want)
			}
			for what, h := range map[string]errand.Histogram{"wait": got.Wait, "run": got.Run} {
				if last := h.Buckets[len(h.Buckets)-1]; h.Count != 6 || last.N != 6 || last.UpTo != 7200 || h.Sum <= 0 {
					t.Errorf("%s: %+v", what, h)
				}
			}
			q := must(errand.Open(t.Context(), s.path, &errand.Options{Logger: quiet}))
			defer q.Close()
			again := must(q.Totals(t.Context()))
			if len(again) != 1 || again[0].Done != 2 || again[0].Enqueued != 6 || len(again[0].Attempts) != 0 || again[0].Run.Count != 0 {
				t.Errorf("by another process they are %+v", again)
			}
			if stats := must(q.Stats(t.Context())); !reflect.DeepEqual(again[0].Stats, stats[0]) {
				t.Errorf("they are with %+v, of which Stats says %+v", again[0].Stats, stats[0])
			}
		})
	}
}

// Waits add up also if jobs were due long ago.
func TestQueue_Totals_long(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, errand.Options{})
		const n = 12
		for i := range n {
			must(s.q.Enqueue(t.Context(), charge{i}, &errand.JobOptions{DueAt: time.Unix(1, 0)}))
		}
		w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
		errand.Handle(w, func(context.Context, *errand.Job[charge]) error { return nil })
		stop := run(t, w)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got, one := s.totalsOf().Wait, time.Since(time.Unix(1, 0)).Seconds(); got.Count != n || got.Sum < n*one-60 || got.Sum > n*one+60 {
			t.Errorf("%d have waited %v s, each %v", got.Count, got.Sum, one)
		}
	})
}

// The times of attempts are those of the queue's clock and of the handlers.
func TestQueue_Totals_times(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, errand.Options{})
		must(s.q.Enqueue(t.Context(), charge{1}, nil))
		time.Sleep(20 * time.Second)
		w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
		over := make(chan struct{})
		errand.Handle(w, func(context.Context, *errand.Job[charge]) error {
			defer close(over)
			time.Sleep(3 * time.Second)
			return errand.Permanent(errDeclined)
		})
		stop := run(t, w)
		<-over
		synctest.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		got := s.totalsOf()
		if got.Wait.Sum < 20 || got.Wait.Sum > 21 || got.Run.Sum < 3 || got.Run.Sum > 3.1 {
			t.Errorf("waited %v s, ran %v s", got.Wait.Sum, got.Run.Sum)
		}
		for _, h := range []errand.Histogram{got.Wait, got.Run} {
			for _, b := range h.Buckets {
				if (b.N == 1) != (b.UpTo >= h.Sum) {
					t.Errorf("of %v s %d are counted up to %v s", h.Sum, b.N, b.UpTo)
				}
			}
		}
	})
}
