package sqlite_test

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// BenchmarkExchange leases and finishes in batches, as a worker does: the
// finished of one batch go with the lease of the next.
func BenchmarkExchange(b *testing.B) {
	for _, bench := range []struct {
		name  string
		batch int
		opts  sqlite.Options
	}{
		{"full-16", 16, sqlite.Options{}},
		{"full-256", 256, sqlite.Options{}},
		{"relaxed-256", 256, sqlite.Options{Durability: sqlite.Relaxed}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := newDB(b, &bench.opts).open()
			enqueue(b, s, "a", b.N)
			x := storage.Exchange{Length: 30 * time.Second, Want: bench.batch, Source: source("a")}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				r, err := s.Exchange(context.Background(), t0, x)
				if err != nil {
					b.Fatal(err)
				}
				x.Finish = x.Finish[:0]
				for _, l := range r.Leased {
					x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				}
				n += len(r.Leased)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// BenchmarkClaimBehind leases and finishes one job at a time, behind jobs of a
// kind that nobody here handles.
func BenchmarkClaimBehind(b *testing.B) {
	for _, n := range []int{0, 200_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed}).open()
			enqueue(b, s, "unknown", n)
			enqueue(b, s, "a", b.N)
			b.ResetTimer()
			for range b.N {
				finish(b, s, lease(b, s, 1, "a")...)
			}
		})
	}
}

// BenchmarkTx enqueues a job beside a row of the application.
func BenchmarkTx(b *testing.B) {
	d := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.open()
	d.exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
	ctx := context.Background()
	jobs := []storage.NewJob{newJob("default", "a")}
	for b.Loop() {
		err := s.Tx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders DEFAULT VALUES"); err != nil {
				return err
			}
			_, err := s.EnqueueTx(ctx, tx, t0, jobs)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEnqueue has 64 callers wait each for its own durable insert.
func BenchmarkEnqueue(b *testing.B) {
	s := newDB(b, nil).open()
	jobs := []storage.NewJob{newJob("default", "a")}
	b.SetParallelism(32) // of GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Enqueue(context.Background(), t0, jobs); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
