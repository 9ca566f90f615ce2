package errand_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/errandq/errand"
)

// ping is a job that does nothing.
type ping struct{ N int }

func (ping) Kind() string { return "ping" }

// pong is a job that nobody handles.
type pong struct{ N int }

func (pong) Kind() string { return "pong" }

func benchQueue(b *testing.B, o *errand.Options) *errand.Queue {
	b.Helper()
	q, err := errand.Open(context.Background(), filepath.Join(b.TempDir(), "jobs.db"), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := q.Close(); err != nil {
			b.Error(err)
		}
	})
	return q
}

func fill(b *testing.B, q *errand.Queue, n int, args func(i int) errand.Args) {
	b.Helper()
	for i := 0; i < n; {
		jobs := make([]errand.NewJob, min(n-i, 10_000))
		for k := range jobs {
			jobs[k] = errand.NewJob{Args: args(i)}
			i++
		}
		if _, err := q.EnqueueMany(context.Background(), jobs); err != nil {
			b.Fatal(err)
		}
	}
}

// drain runs a worker until it has done b.N pings.
func drain(b *testing.B, q *errand.Queue) {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := errand.NewWorker(q, nil)
	var n atomic.Int64
	errand.Handle(w, func(context.Context, *errand.Job[ping]) error {
		if n.Add(1) == int64(b.N) {
			stop()
		}
		return nil
	})
	b.ReportAllocs()
	b.ResetTimer()
	if err := w.Run(ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkDrain has 16 workers do no-op jobs, each commit with fsync.
func BenchmarkDrain(b *testing.B) {
	for name, o := range map[string]*errand.Options{"deleted": {Retention: -1}, "kept": nil} {
		b.Run(name, func(b *testing.B) {
			q := benchQueue(b, o)
			fill(b, q, b.N, func(i int) errand.Args { return ping{i} })
			drain(b, q)
		})
	}
}

// BenchmarkDrainBehind drains behind jobs of a kind that nobody handles.
func BenchmarkDrainBehind(b *testing.B) {
	for _, n := range []int{0, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := benchQueue(b, &errand.Options{Retention: -1})
			fill(b, q, n, func(i int) errand.Args { return pong{i} })
			fill(b, q, b.N, func(i int) errand.Args { return ping{i} })
			drain(b, q)
		})
	}
}

// BenchmarkEnqueue has one caller wait for each durable insert.
func BenchmarkEnqueue(b *testing.B) {
	q := benchQueue(b, nil)
	b.ReportAllocs()
	for i := range b.N {
		if _, err := q.Enqueue(context.Background(), ping{i}, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
