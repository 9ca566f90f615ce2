package apitest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// A worker that does jobs in batches waits for more of them, but not for longer than
// Wait since the first was due.
func TestQueue_Why_Batch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, &errand.Options{Logger: quiet})
		start := time.Now()
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
		errand.HandleMany(w, func(ctx context.Context, _ []*errand.Job[note]) error { <-ctx.Done(); return ctx.Err() },
			errand.BatchOptions{Max: 3, Min: 3, Wait: time.Hour})
		run(t, w)
		third := enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Minute})
		enqueue(t, q, note{}, nil)
		time.Sleep(30 * time.Second)
		last := enqueue(t, q, note{}, nil)
		synctest.Wait()
		r := wantWhy(t, q, last, "batch behind").Reasons[0]
		if r.Queue != "default" || r.Kind != "note" || r.Worker == "" || r.N != 2 || r.Of != 3 || !r.Until.Equal(start.Add(time.Hour)) {
			t.Errorf("%+v", r)
		}
		if want := "kind note in queue default waits until 3 jobs are ready, of which there are 2, or until " +
			start.Add(time.Hour).UTC().Format(time.RFC3339) + ", in worker " + r.Worker; r.Text != want {
			t.Errorf("%q, want %q", r.Text, want)
		}
		wantWhy(t, q, third, "not_due")
		time.Sleep(40 * time.Second)
		synctest.Wait()
		wantWhy(t, q, last, "running")
		alone := enqueue(t, q, note{}, nil)
		time.Sleep(10 * time.Second)
		wantWhy(t, q, alone, "batch concurrency behind")
		enough := []errand.ID{enqueue(t, q, note{}, nil), enqueue(t, q, note{}, nil)}
		wantWhy(t, q, alone, "concurrency behind")
		for _, id := range enough {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		wantWhy(t, q, alone, "concurrency behind")

		other := errand.NewWorker(q, nil)
		errand.Handle(other, func(ctx context.Context, _ *errand.Job[note]) error { <-ctx.Done(); return ctx.Err() })
		run(t, other)
		time.Sleep(10 * time.Second)
		wantWhy(t, q, alone, "running")
	})
}

// What workers show in the file has the wait in nanoseconds, for processes of all versions.
func TestWorkerLimit_JSON(t *testing.T) {
	for _, text := range []string{`{"batch_min":3,"batch_wait":1500000000}`, `{"batch_min":3,"batch_wait_s":1.5}`} {
		var n errand.WorkerLimit
		if err := json.Unmarshal([]byte(text), &n); err != nil || n.BatchMin != 3 || n.BatchWait != 1500*time.Millisecond {
			t.Errorf("%s is read as %+v, %v", text, n, err)
		}
		if b, err := json.Marshal(errand.WorkerInfo{Limits: []errand.WorkerLimit{n}}); err != nil || !strings.Contains(string(b), `"batch_wait_s":1.5`) {
			t.Errorf("shown as %s, %v", b, err)
		}
	}
}
