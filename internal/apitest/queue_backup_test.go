package apitest

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// A queue restored after five hours runs again what was running, which nobody is
// blamed for, and treats the ticks since the backup as missed.
func TestBackup_restored(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		open := func(path string) (*errand.Queue, *errand.Worker) {
			q, err := errand.Open(t.Context(), path, &errand.Options{SQLite: errand.SQLiteOptions{SingleProcess: true}})
			if err != nil {
				t.Fatal(err)
			}
			return q, errand.NewWorker(q, nil)
		}
		start := func(w *errand.Worker) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			return func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		path, copied := filepath.Join(dir, "jobs.db"), filepath.Join(dir, "copy.db")
		q, w := open(path)
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error { <-ctx.Done(); return nil })
		errand.Handle(w, func(context.Context, *errand.Job[tick]) error { return nil })
		id := enqueue(t, q, note{}, nil)
		if err := q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@every 1h", Args: tick{}, Missed: errand.MissedAll(100)}); err != nil {
			t.Fatal(err)
		}
		stop := start(w)
		time.Sleep(90 * time.Minute)
		if err := q.Backup(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}

		time.Sleep(5 * time.Hour)
		q, w = open(copied)
		var crashes, attempt int
		var ticks atomic.Int64
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			attempt, crashes = job.Attempt, job.Crashes
			return nil
		})
		errand.Handle(w, func(context.Context, *errand.Job[tick]) error { ticks.Add(1); return nil })
		stop = start(w)
		time.Sleep(10 * time.Second)
		stop()
		if attempt != 2 || crashes != 0 || ticks.Load() != 5 {
			t.Errorf("attempt %d with %d crashes, %d ticks: want attempt 2, no crash, 5 ticks", attempt, crashes, ticks.Load())
		}
		if j := lookUp(t, q, id); j.State != errand.Done {
			t.Errorf("the job that ran is %v, want done", j.State)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

type tick struct{}

func (tick) Kind() string { return "tick" }

func TestBackup_refused(t *testing.T) {
	q := openQueue(t, nil)
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := q.Backup(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if err := q.Backup(t.Context(), path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v, want fs.ErrExist", err)
	}
	wantFaults(t, q.Backup(t.Context(), ""), fault{"path", `""`, "must name a file"})
	other, _ := memoryQueue(t, errand.Options{})
	if err := other.Backup(t.Context(), path+"2"); !errors.Is(err, errand.ErrUnsupportedDB) {
		t.Errorf("a store that cannot: %v, want ErrUnsupportedDB", err)
	}
}
