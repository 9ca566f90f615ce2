package sqlite_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// BenchmarkRival writes unbroken for twelve seconds, while a rival that knows
// nothing of turns inserts a row each 5 ms: through the pool that New was given
// ("app"), through one of its own ("other"), or not at all ("none").
func BenchmarkRival(b *testing.B) {
	for _, load := range []string{"enqueue", "drain"} {
		for _, rival := range []string{"none", "app", "other"} {
			b.Run(load+"-"+rival, func(b *testing.B) {
				for range b.N {
					besideRival(b, load, rival)
				}
			})
		}
	}
}

func besideRival(b *testing.B, load, rival string) {
	d := newDB(b, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)})
	app := appDB(b, "file:"+d.path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	if _, err := app.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
		b.Fatal(err)
	}
	s, err := sqlite.New(app, d.opts)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if load == "drain" {
		for range 60 {
			enqueue(b, s, "a", 10_000)
		}
	}
	end := time.Now().Add(12 * time.Second)
	jobs := make(chan int, 1)
	go func() { jobs <- writeUnbroken(b, s, load, end) }()
	switch rival {
	case "app":
		reportRival(b, app, end)
	case "other":
		raw := d.raw()
		defer raw.Close()
		reportRival(b, raw, end)
	}
	b.ReportMetric(float64(<-jobs)/12, "jobs/s")
}

func writeUnbroken(b *testing.B, s *sqlite.Store, load string, end time.Time) (n int) {
	x := storage.Exchange{LeaseDuration: 30 * time.Second, Wants: want(64, "a")}
	for time.Now().Before(end) {
		if load == "enqueue" {
			if _, err := s.Enqueue(context.Background(), t0, one()); err != nil {
				b.Error(err)
			}
			n++
			continue
		}
		r, err := s.Exchange(context.Background(), t0, x)
		if err != nil {
			b.Error(err)
		}
		n += len(x.Finish)
		x.Finish = x.Finish[:0]
		for _, l := range r.Leased {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}
	return n
}

// reportRival inserts a row each 5 ms, and reports how long that took. The
// first is apart: it makes the rival known.
func reportRival(b *testing.B, db *sql.DB, end time.Time) {
	var took []time.Duration
	busy := 0
	for time.Now().Before(end) {
		began := time.Now()
		if _, err := db.Exec("INSERT INTO orders DEFAULT VALUES"); err != nil {
			busy++
		}
		took = append(took, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(float64(len(took)), "writes")
	b.ReportMetric(float64(busy), "busy")
	b.ReportMetric(ms(took[0]), "ms-first")
	if took = took[1:]; len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(ms(took[len(took)/2]), "ms-p50")
	b.ReportMetric(ms(took[len(took)*99/100]), "ms-p99")
	b.ReportMetric(ms(took[len(took)-1]), "ms-max")
}
