package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"os"
	"slices"
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
			x := storage.Exchange{LeaseDuration: 30 * time.Second, Wants: want(bench.batch, "a")}
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
		err := inTx(ctx, s, func(tx *sql.Tx) error {
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

// BenchmarkCheck checks a million jobs with 500 bytes of args while others are
// enqueued one by one.
func BenchmarkCheck(b *testing.B) {
	d := newDB(b, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)})
	s, ctx := d.open(), context.Background()
	j := newJob("default", "a")
	j.Args = bytes.Repeat([]byte("1"), 500)
	for range 100 {
		if _, err := s.Enqueue(ctx, t0, slices.Repeat([]storage.NewJob{j}, 10_000)); err != nil {
			b.Fatal(err)
		}
	}
	lease(b, s, 1, "a")
	s.Kill()
	var longest time.Duration
	var log, n int64
	for b.Loop() {
		s := d.open()
		for over := false; !over; {
			began := time.Now()
			if _, err := s.Enqueue(ctx, t0, one()); err != nil {
				b.Fatal(err)
			}
			n++
			longest = max(longest, time.Since(began))
			if info, err := os.Stat(d.path + "-wal"); err == nil {
				log = max(log, info.Size())
			}
			select {
			case <-s.CheckOver():
				over = true
			default:
			}
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-write")
	b.ReportMetric(float64(n)/float64(b.N), "writes/op")
	b.ReportMetric(float64(log>>10), "KiB-log")
}

// BenchmarkRunNow makes all jobs ready that wait, of a million live ones, while
// others are enqueued one by one.
func BenchmarkRunNow(b *testing.B) {
	const live = 1_000_000
	for _, waiting := range []int{100_000, 10} {
		b.Run(strconv.Itoa(waiting), func(b *testing.B) {
			s, ctx := newDB(b, nil).open(), context.Background()
			j := newJob("default", "a")
			for i := 0; i < live; i += 10_000 {
				jobs := slices.Repeat([]storage.NewJob{j}, 10_000)
				for k := 0; k < len(jobs); k += live / waiting {
					if i%(live/waiting) == 0 || waiting > 100 {
						jobs[k].Delay = time.Hour
					}
				}
				if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
					b.Fatal(err)
				}
			}
			began := time.Now()
			if r, err := s.RunNow(ctx, t0, storage.Selection{Filter: storage.Filter{Kind: "other"}}, storage.Waiting{First: true}); err != nil || r.N != 0 {
				b.Fatal(r, err)
			}
			none := time.Since(began)
			for b.Loop() {
				b.ReportMetric(float64(none.Microseconds())/1000, "ms-none-matches")
				var longest, step time.Duration
				stop, stopped := make(chan struct{}), make(chan int)
				go func() {
					n := 0
					defer func() { stopped <- n }()
					for ; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						began := time.Now()
						if _, err := s.Enqueue(ctx, t0, one()); err != nil {
							b.Error(err)
							return
						}
						longest = max(longest, time.Since(began))
					}
				}()
				n := 0
				began := time.Now()
				for sel := (storage.Selection{}); ; {
					at := time.Now()
					r, err := s.RunNow(ctx, t0, sel, storage.Waiting{First: true})
					if err != nil {
						b.Fatal(err)
					}
					step = max(step, time.Since(at))
					n += r.N
					if sel.After, sel.Through = r.Next, r.Through; r.Next == (storage.Position{}) {
						break
					}
				}
				took := time.Since(began)
				close(stop)
				enqueued := <-stopped
				if n != waiting {
					b.Fatalf("%d were made ready, want %d", n, waiting)
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-enqueue")
				b.ReportMetric(float64(step.Microseconds())/1000, "ms-longest-step")
				b.ReportMetric(took.Seconds()*1000, "ms-all")
				b.ReportMetric(float64(enqueued), "enqueued")
			}
		})
	}
}

// BenchmarkRedrive_Group makes all dead letters of one group ready again, and deletes them, in steps.
func BenchmarkRedrive_Group(b *testing.B) {
	const n = 100_000
	for _, name := range []string{"redrive", "delete"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				d, ctx := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed}), context.Background()
				if err := d.open().Close(); err != nil {
					b.Fatal(err)
				}
				const c = `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?1) `
				d.exec(`INSERT INTO errand_lane VALUES (1, 'q', 'k')`)
				d.exec(c+`INSERT INTO errand_dead (id, lane, priority, due_at, token, attempt, retry, crashes, snoozes, salt, created_at, ended_at, timeout, policy,
in_effect, reason, error, args, options) SELECT i, 1, 0, ?2, 0, 1, 0, 0, 0, 0, ?2, ?2 + i * 7919 % 1000003, 0, 0, 0, 'permanent', 'no', x'7b7d', 1 FROM c`, n, t0.UnixMicro())
				d.exec(c+`INSERT INTO errand_option (job, group_key, role) SELECT i, 'q g', 3 FROM c`, n)
				d.exec(`INSERT INTO errand_number VALUES (32 + 6, ?1), (32 + 23, ?1)`, n)
				d.exec(`UPDATE errand_number SET n = ?1 + 1 WHERE id = 1`, n)
				s := d.open()
				b.StartTimer()
				sel, done := storage.Selection{Filter: storage.Filter{Queue: "q", Group: "g"}}, 0
				var last time.Duration
				for more := true; more; more = sel.After != (storage.Position{}) {
					began := time.Now()
					step, err := storage.Step{}, error(nil)
					if name == "delete" {
						step, err = s.Delete(ctx, sel)
					} else {
						step, err = s.Redrive(ctx, t0, sel, "")
					}
					if err != nil {
						b.Fatal(err)
					}
					last = max(last, time.Since(began))
					done, sel.After, sel.Through = done+step.N, step.Next, step.Through
				}
				if done != n {
					b.Fatalf("%d were taken, want %d", done, n)
				}
				b.ReportMetric(float64(last.Microseconds())/1000, "ms-longest-step")
			}
		})
	}
}

// BenchmarkSample enqueues one job at a time, with a sample in the transaction of each or with none,
// in a file in which so many lanes have jobs. What the two differ by is the sample.
func BenchmarkSample(b *testing.B) {
	for _, lanes := range []int{100, 10_000} {
		for _, each := range []time.Duration{0, storage.SampleEach} {
			b.Run(strconv.Itoa(lanes)+"-lanes-each-"+each.String(), func(b *testing.B) {
				s := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed}).open()
				jobs := make([]storage.NewJob, lanes)
				for i := range jobs {
					jobs[i] = newJob("q"+strconv.Itoa(i), "a")
				}
				now := t0.Truncate(storage.SampleEach)
				for range 2 { // as it fills the cache
					now = now.Add(storage.SampleEach)
					if _, err := s.Enqueue(b.Context(), now, jobs); err != nil {
						b.Fatal(err)
					}
				}
				b.ResetTimer()
				for range b.N {
					now = now.Add(each)
					if _, err := s.Enqueue(b.Context(), now, jobs[:1]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
