package engine_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// BenchmarkDrain has 16 workers run jobs that do nothing, each finished in a
// durable commit; go test -bench Drain -benchtime 20000x drains 20,000.
func BenchmarkDrain(b *testing.B) {
	for _, bench := range []struct {
		name string
		opts sqlite.Options
	}{
		{"full", sqlite.Options{}},
		{"relaxed", sqlite.Options{Durability: sqlite.Relaxed}},
	} {
		b.Run(bench.name, func(b *testing.B) { drain(b, &bench.opts) })
	}
}

func drain(b *testing.B, opts *sqlite.Options) {
	store, err := sqlite.Open(filepath.Join(b.TempDir(), "jobs.db"), opts)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for left := b.N; left > 0; left -= 1000 {
		jobs := make([]storage.NewJob, min(left, 1000))
		for i := range jobs {
			jobs[i] = storage.NewJob{Queue: "q", Kind: "k", Args: []byte(`{}`)}
		}
		if _, err := store.Enqueue(context.Background(), time.Now(), jobs); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var left atomic.Int64
	left.Store(int64(b.N))
	cfg := engine.Config{
		Store: store, Queues: []string{"q"}, Concurrency: 16, LeaseDuration: lease, Grace: grace, StuckAfter: stuck,
		MaxCrashes: 3, MaxSnoozes: 3, MaxRetryAfter: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]engine.Handler{"k": {Run: func(context.Context, *storage.Leased) error {
			if left.Add(-1) == 0 {
				cancel()
			}
			return nil
		}}},
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := engine.New(cfg).Run(ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
