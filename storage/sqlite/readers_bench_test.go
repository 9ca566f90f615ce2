package sqlite_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage/sqlite"
)

// BenchmarkReaders enqueues for twenty seconds, while readers of 30 ms follow
// each other without a pause, and reports how long the log has become.
func BenchmarkReaders(b *testing.B) {
	for _, n := range []int{0, 1, 3} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for range b.N {
				besideReaders(b, n)
			}
		})
	}
}

func besideReaders(b *testing.B, n int) {
	d := newDB(b, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)})
	s := d.open()
	end := time.Now().Add(20 * time.Second)
	var readers sync.WaitGroup
	for range n {
		readers.Go(func() {
			raw := d.raw()
			defer raw.Close()
			for time.Now().Before(end) {
				readFor(b, raw, 30*time.Millisecond)
			}
		})
	}
	job := one()
	job[0].Args = make([]byte, 2000)
	var longest time.Duration
	var log int64
	writes := 0
	for time.Now().Before(end) {
		began := time.Now()
		if _, err := s.Enqueue(context.Background(), t0, job); err != nil {
			b.Error(err)
		}
		longest = max(longest, time.Since(began))
		if writes++; writes%100 == 0 {
			if info, err := os.Stat(d.path + "-wal"); err == nil {
				log = max(log, info.Size())
			}
		}
	}
	readers.Wait()
	b.ReportMetric(float64(log)/(1<<20), "MiB-log")
	b.ReportMetric(float64(longest.Milliseconds()), "ms-longest")
	b.ReportMetric(float64(writes)/20, "jobs/s")
}

// readFor holds a read transaction for so long.
func readFor(t testing.TB, db *sql.DB, d time.Duration) {
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Error(err)
		return
	}
	var n int
	if err := tx.QueryRow("SELECT n FROM errand_number LIMIT 1").Scan(&n); err != nil {
		t.Error(err)
	}
	time.Sleep(d)
	_ = tx.Rollback()
}
