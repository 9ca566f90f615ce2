package apitest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// BenchmarkHandleMany drains jobs whose handler makes a request of a millisecond, one for
// each job and one for up to 500.
func BenchmarkHandleMany(b *testing.B) {
	const n = 20_000
	for _, many := range []bool{false, true} {
		name := "single"
		if many {
			name = "batches"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				q, err := errand.Open(b.Context(), b.TempDir()+"/jobs.db", &errand.Options{SQLite: sqlite.Options{Durability: sqlite.Relaxed}})
				if err != nil {
					b.Fatal(err)
				}
				jobs := make([]errand.NewJob, n/4)
				for i := range jobs {
					jobs[i].Args = note{N: i}
				}
				for range 4 {
					if _, err := q.EnqueueMany(b.Context(), jobs); err != nil {
						b.Fatal(err)
					}
				}
				ctx, stop := context.WithCancel(b.Context())
				var done atomic.Int64
				ran := func(jobs int) {
					time.Sleep(time.Millisecond)
					if done.Add(int64(jobs)) == n {
						stop()
					}
				}
				w := errand.NewWorker(q, nil)
				if many {
					errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
						ran(len(jobs))
						return nil
					}, errand.BatchOptions{Max: 500})
				} else {
					errand.Handle(w, func(context.Context, *errand.Job[note]) error {
						ran(1)
						return nil
					})
				}
				b.StartTimer()
				if err := w.Run(ctx); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := q.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
