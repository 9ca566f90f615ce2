package gate_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
)

type upload struct{}

func (upload) Kind() string { return "upload" }

// A worker that has found no jobs behind an open gate does not wait at it. So an idle
// queue makes no requests, and a job starts after the first success.
//
//errand:shows closed gates | | a request goes out only for those who wait; a captive portal counts as closed; a window follows daylight saving
func TestQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		carrier := new(errand.Switch)
		online := must(gate.All(carrier, m.check(gate.CheckOptions{Jitter: -1})))
		q := must(errand.Open(t.Context(), path, &errand.Options{
			SQLite: errand.SQLiteOptions{Durability: errand.Relaxed},
			Queues: map[string]errand.QueueOptions{"default": {Gate: online}},
			Logger: slog.New(slog.DiscardHandler),
		}))
		w := errand.NewWorker(q, nil)
		ran := make(chan time.Time, 1)
		errand.Handle(w, func(context.Context, *errand.Job[upload]) error {
			ran <- time.Now()
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()

		for round := range 2 {
			time.Sleep(time.Hour) // the worker finds out that there is nothing
			quiet := len(m.times())
			time.Sleep(10 * time.Hour)
			if n := len(m.times()) - quiet; n > 0 {
				t.Errorf("round %d: %d requests while no job waits", round, n)
			}
			m.set(errLow)
			start := time.Now()
			must(q.Enqueue(ctx, upload{}, nil))
			time.Sleep(40 * time.Second)
			if got := m.after(start); len(got) < 5 || len(got) > 7 || len(ran) > 0 {
				t.Errorf("round %d: asked after %v s, want about 0, 1, 3, 7, 15, 31; %d ran", round, got, len(ran))
			}
			m.set(nil)
			if took := (<-ran).Sub(start); took > 64*time.Second {
				t.Errorf("round %d: ran after %v", round, took)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		rest()
	})
}
