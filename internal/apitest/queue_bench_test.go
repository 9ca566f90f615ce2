package apitest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
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

// BenchmarkRunNow has a job that is due in an hour start in another queue on the
// same file, which stands for another process.
func BenchmarkRunNow(b *testing.B) {
	path, ctx := filepath.Join(b.TempDir(), "jobs.db"), context.Background()
	open := func() *errand.Queue {
		q, err := errand.Open(ctx, path, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = q.Close() })
		return q
	}
	here, there := open(), open()
	started, ended := make(chan time.Time, 1), make(chan error, 1)
	w := errand.NewWorker(there, nil)
	errand.Handle(w, func(context.Context, *errand.Job[ping]) error {
		started <- time.Now()
		return nil
	})
	ctx, stop := context.WithCancel(ctx)
	go func() { ended <- w.Run(ctx) }()
	var longest time.Duration
	run := func(o *errand.JobOptions) time.Duration {
		e, err := here.Enqueue(ctx, ping{}, o)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if o != nil {
			if r, err := here.RunNow(ctx, errand.JobFilter{IDs: []errand.ID{e.ID}}, nil); err != nil || r.Ready != 1 {
				b.Fatal(r, err)
			}
		}
		return (<-started).Sub(began)
	}
	run(nil) // until the worker is there
	for b.Loop() {
		longest = max(longest, run(&errand.JobOptions{Delay: time.Hour}))
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-start")
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

// The application writes a row each 5 ms into the queue's file while 20,000 jobs drain: by
// a pool of its own, and by Queue.Tx. p99-ms and max-ms are of these writes, jobs/s of the
// drain. Run it with -benchtime 5x.
func BenchmarkTx_BesideDrain(b *testing.B) {
	const jobs, pace = 20_000, 5 * time.Millisecond
	const insert = `INSERT INTO orders (email) VALUES ('ada@example.org')`
	for name, by := range map[string]func(q *errand.Queue, pool *sql.DB) error{
		"pool": func(_ *errand.Queue, pool *sql.DB) error {
			_, err := pool.ExecContext(context.Background(), insert)
			return err
		},
		"Tx": func(q *errand.Queue, _ *sql.DB) error {
			return q.Tx(context.Background(), func(tx *sql.Tx) error {
				_, err := tx.ExecContext(context.Background(), insert)
				return err
			})
		},
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			var drained time.Duration
			for range b.N {
				path := filepath.Join(b.TempDir(), "jobs.db")
				q := must(errand.Open(context.Background(), path, &errand.Options{Retention: -1, Logger: quiet}))
				check(q.Tx(context.Background(), func(tx *sql.Tx) error {
					_, err := tx.ExecContext(context.Background(), `CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)`)
					return err
				}))
				pool := must(sqlite.OpenDB(path, "busy_timeout(10000)"))
				fill(b, q, jobs, func(i int) errand.Args { return ping{i} })
				ctx, stop := context.WithCancel(context.Background())
				var n atomic.Int64
				w := errand.NewWorker(q, nil)
				errand.Handle(w, func(context.Context, *errand.Job[ping]) error {
					if n.Add(1) == jobs {
						stop()
					}
					return nil
				})
				ended, began := make(chan error, 1), time.Now()
				go func() { ended <- w.Run(ctx) }()
				for next := time.NewTicker(pace); ctx.Err() == nil; <-next.C {
					at := time.Now()
					check(by(q, pool))
					took = append(took, time.Since(at))
				}
				check(<-ended)
				drained += time.Since(began)
				check(pool.Close())
				check(q.Close())
			}
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
			b.ReportMetric(ms(took[len(took)-1]), "max-ms")
			b.ReportMetric(float64(len(took))/float64(b.N), "writes/op")
			b.ReportMetric(float64(jobs*b.N)/drained.Seconds(), "jobs/s")
		})
	}
}
