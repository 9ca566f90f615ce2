package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// log returns how many pages of the write-ahead log there are, and how many of
// them are in the database already.
func (d *db) log() (length, moved int) {
	d.t.Helper()
	raw := d.raw()
	defer raw.Close()
	var busy int
	if err := raw.QueryRow("PRAGMA wal_checkpoint(NOOP)").Scan(&busy, &length, &moved); err != nil {
		d.t.Fatal(err)
	}
	return length, moved
}

func TestCheckpoint_InAPause(t *testing.T) {
	for _, tt := range []struct {
		name       string
		durability sqlite.Durability
		jobs       int
		moves      bool
	}{
		{"many pages", sqlite.Full, 20_000, true},
		{"few pages", sqlite.Full, 100, false},
		{"few pages that are not synced", sqlite.Relaxed, 100, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := t.TempDir() + "/jobs.db"
			synctest.Test(t, func(t *testing.T) {
				d := &db{t, path, &sqlite.Options{SingleProcess: true, Durability: tt.durability}}
				s := d.open()
				enqueue(t, s, "a", tt.jobs)
				if length, moved := d.log(); length == 0 || moved == length {
					t.Fatalf("%d pages of %d were moved before there was a pause", moved, length)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if length, moved := d.log(); moved < length == tt.moves {
					t.Errorf("%d pages of %d were moved in the pause", moved, length)
				}
			})
		})
	}
}

// The log is bounded whenever the writer's goroutine is scheduled, while all others write
// on their own.
func TestCheckpoint_UnderLoad(t *testing.T) {
	for name, deaf := range map[string]bool{"": false, ", not scheduled": true} {
		for what, c := range map[string]struct {
			writes, most int
			write        func(*sqlite.Store) error
		}{
			"calls": {4000, 5000, func(s *sqlite.Store) error { _, err := s.Enqueue(t.Context(), t0, one()); return err }},
			"transactions of the application": {8000, 12_000, func(s *sqlite.Store) error {
				return inTx(t.Context(), s, func(tx *sql.Tx) error {
					_, err := s.EnqueueTx(t.Context(), tx, t0, one())
					return err
				})
			}},
		} {
			t.Run(what+name, func(t *testing.T) {
				d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
				s, most := d.open(), 0
				if deaf {
					s.Deafen()
				}
				for i := range c.writes {
					if err := c.write(s); err != nil {
						t.Fatal(err)
					}
					if i%100 == 0 {
						length, _ := d.log()
						most = max(most, length)
					}
				}
				if most > c.most {
					t.Errorf("the log has grown to %d pages, want at most %d", most, c.most)
				}
			})
		}
	}
}

// A reader that does not end keeps the log from being emptied. That is said,
// and costs no time.
func TestCheckpoint_PinnedByAReader(t *testing.T) {
	var said bytes.Buffer
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	s := d.open()
	raw := d.raw()
	defer raw.Close()
	tx, err := raw.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRow("SELECT COUNT(*) FROM errand_job").Scan(&n); err != nil {
		t.Fatal(err)
	}
	large := newJob("default", "a")
	large.Args = bytes.Repeat([]byte("1"), 2000)
	write := func() {
		if _, err := s.Enqueue(context.Background(), t0, slices.Repeat([]storage.NewJob{large}, 2000)); err != nil {
			t.Fatal(err)
		}
	}
	for length := 0; length < 20_000; length, _ = d.log() {
		write()
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	write()
	if err := s.Close(); err != nil { // so that the writer has ended
		t.Fatal(err)
	}
	if got := bytes.Count(said.Bytes(), []byte("write-ahead log grows")); got != 1 {
		t.Errorf("it was said %d times that the log grows, want once:\n%s", got, said.String())
	}
	info, err := os.Stat(d.path)
	if err != nil || info.Size() < 10<<20 {
		t.Errorf("the database has %d bytes (%v), want what was in the log", info.Size(), err)
	}
}

// Readers that overlap, each of them short, never all come to the end of the log
// while somebody writes.
//
//errand:shows the log under steady readers | | the log is emptied, for which writers wait for at most 150 ms; a file that was longer is cut to 64 MiB
func TestCheckpoint_ReadersThatOverlap(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.open()
	over := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			raw := d.raw()
			defer raw.Close()
			for {
				select {
				case <-over:
					return
				default:
					readFor(t, raw, 20*time.Millisecond)
				}
			}
		})
	}
	large := newJob("default", "a")
	large.Args = bytes.Repeat([]byte("1"), 2000)
	for anew, last := 0, 0; anew < 3; {
		for range 50 { // small ones: each makes readers that have begun be late
			if _, err := s.Enqueue(context.Background(), t0, slices.Repeat([]storage.NewJob{large}, 10)); err != nil {
				t.Fatal(err)
			}
		}
		length, _ := d.log()
		if length < last {
			anew++
		}
		if last = length; length > 60_000 {
			t.Errorf("the log has %d pages, and was begun anew %d times", length, anew)
			break
		}
	}
	close(over)
	readers.Wait()
}

// A log that has been long does not keep its size.
//
//errand:shows the log under steady readers
func TestCheckpoint_LimitsTheFile(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	app := d.raw()
	defer app.Close()
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"CREATE TABLE large (b)", "INSERT INTO large VALUES (zeroblob(100000000))", "DROP TABLE large"} {
		if _, err := tx.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(d.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if size() < 90<<20 {
		t.Skipf("log of %d bytes: SQLite wrote less than was meant", size())
	}
	for range 10 { // the first of them has the log emptied, the next one begins it anew
		enqueue(t, s, "a", 500)
	}
	if limit := int64(64 << 20); size() > limit {
		t.Errorf("log of %d bytes: want at most %d", size(), limit)
	}
}

// Leases that are kept up write as much as any work, and no pause in between
// lets the log be emptied.
func TestCheckpoint_WhileLeasesAreKeptUp(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s, ctx := d.open(), context.Background()
	jobs := make([]storage.NewJob, 500)
	for i := range jobs {
		jobs[i] = newJob("default", "a")
		jobs[i].Args = make([]byte, 2000)
	}
	if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
		t.Fatal(err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute}
	for _, l := range lease(t, s, 500, "a") {
		x.Extend = append(x.Extend, l.Lease)
	}
	for i := range 100 {
		if _, err := s.Exchange(ctx, t0.Add(time.Duration(i)*time.Second), x); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(d.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(32 << 20); info.Size() > limit {
		t.Errorf("log of %d bytes after 100 heartbeats: want at most %d", info.Size(), limit)
	}
}
