//go:build unix

package torture_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// mouthful is a job of about a kilobyte.
type mouthful struct{ Text string }

func (mouthful) Kind() string { return "mouthful" }

// A queue of 10 MB, a producer that does not stop, and a worker behind a gate that is
// mostly closed: the file grows no further than that, and each job that was acknowledged
// was evicted, was done or waits.
//
//errand:shows caps | | with a cap of 10 MB the file stays below 1.3 times that and 1 MiB, and each job that was acknowledged was evicted, was done or waits
func TestCaps_ProducerWithoutEnd(t *testing.T) {
	const most, logMost = 10_000_000, 21 << 20
	jobs := 18_000
	if full() {
		jobs = 500_000
	}
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "jobs.db")
	var door errand.Switch
	door.Close("behind the producer")
	q, err := errand.Open(ctx, path, &errand.Options{
		SQLite: errand.SQLiteOptions{Durability: errand.Relaxed}, Retention: -1, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]errand.QueueOptions{"default": {Gate: &door}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	err = q.Configure(ctx, errand.Lane{Queue: "default"}, errand.Settings{MaxBytes: new(int64(most)), WhenFull: new(errand.EvictOldest)})
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	some := make(chan struct{})
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[mouthful]) error {
		if done.Add(1) == 1 {
			close(some)
		}
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()

	text := mouthful{string(make([]byte, 150))} // 900 bytes, as a NUL takes six
	batch := make([]errand.NewJob, 100)
	for i := range batch {
		batch[i].Args = text
	}
	acknowledged, largest, largestLog := int64(0), int64(0), int64(0)
	for i := 0; i < jobs; i += len(batch) {
		added, err := q.EnqueueMany(ctx, batch)
		if err != nil {
			t.Fatal(err)
		}
		acknowledged += int64(len(added))
		switch i % 5000 {
		case 2000:
			door.Open()
		case 2500:
			select {
			case <-some: // on a busy machine the worker is late
			case <-time.After(time.Minute):
				t.Fatal("the gate is open, and no job was done")
			}
			door.Close("again")
		}
		largest, largestLog = max(largest, bytesIn(t, path)), max(largestLog, bytesIn(t, path+"-wal"))
	}
	if err := w.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	stats, err := q.Stats(ctx)
	if err != nil || len(stats) != 1 {
		t.Fatalf("%+v, %v", stats, err)
	}
	s := stats[0]
	if sum := s.Evicted + done.Load() + s.Ready + s.Scheduled; sum != acknowledged || s.Running != 0 {
		t.Errorf("%d evicted, %d done, %d wait, %d run: %d, want the %d that were acknowledged",
			s.Evicted, done.Load(), s.Ready+s.Scheduled, s.Running, sum, acknowledged)
	}
	if done.Load() == 0 || s.Evicted < acknowledged/6 {
		t.Errorf("%d evicted and %d done: want some of both", s.Evicted, done.Load())
	}
	if limit := int64(most*13/10 + 1<<20); largest > limit {
		t.Errorf("the file had %d bytes: want at most %d", largest, limit)
	}
	if largestLog > logMost {
		t.Errorf("the log had %d bytes: want at most %d", largestLog, int64(logMost))
	}
	t.Logf("%d acknowledged: %d evicted, %d done, %d wait; the file had %d bytes, the log %d", acknowledged, s.Evicted, done.Load(), s.Ready, largest, largestLog)
}

func bytesIn(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
