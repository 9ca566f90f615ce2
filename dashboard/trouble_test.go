package dashboard_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/policy"
)

// runs has a worker run, and returns what ends it.
func runs(t *testing.T, w *errand.Worker) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	return func() {
		t.Helper()
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
}

// has checks which of some texts a page has.
func has(t *testing.T, what, text string, want bool, all ...string) {
	t.Helper()
	for _, s := range all {
		if strings.Contains(text, s) != want {
			t.Errorf("%s: %q is there: %v, in %s", what, s, !want, text)
		}
	}
}

// Jobs that have waited for long as all places are taken are a thing that holds up work. A worker
// that keeps up is none, though it is full all the time.
func TestFront_full(t *testing.T) {
	for name, c := range map[string]struct {
		o     errand.HandlerOptions
		takes time.Duration
		row   []string
	}{
		"worker": {takes: time.Hour, row: []string{"1 thing holds up 28 jobs.", "any queue · mail , all places taken", "All 2 places of the worker", "Raise Concurrency"}},
		"limit":  {o: errand.HandlerOptions{Concurrency: 1}, takes: time.Hour, row: []string{"1 thing holds up 29 jobs.", "run as may at a time, 1, in the worker", "Raise the Concurrency of mail in all queues"}},
		"busy":   {takes: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, q := counted(t)
				defer q.Close()
				w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "other"}, Concurrency: 2, Grace: time.Millisecond, Logger: quiet})
				errand.Handle(w, func(ctx context.Context, _ *errand.Job[mail]) error {
					select {
					case <-ctx.Done():
					case <-time.After(c.takes):
					}
					return ctx.Err()
				}, c.o)
				defer runs(t, w)()
				for i := range 30 {
					if len(c.row) == 0 { // it keeps up, and is full
						time.Sleep(time.Second)
					}
					queue := []string{"default", "other"}[i%2]
					if _, err := q.Enqueue(t.Context(), mail{"a"}, &errand.JobOptions{Queue: queue}); err != nil {
						t.Fatal(err)
					}
				}
				h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
				if len(c.row) > 0 {
					time.Sleep(20 * time.Second)
				}
				store.version.Add(1)
				time.Sleep(time.Second)
				_, page := get(h, "/")
				has(t, "before", plain(page), false, "What holds work up")
				if len(c.row) == 0 {
					return
				}
				time.Sleep(30 * time.Second)
				store.version.Add(1)
				time.Sleep(10 * time.Second)
				_, page = get(h, "/")
				has(t, "a minute later", plain(page), true, c.row...)
				has(t, "the page", page, true, `">See the jobs that run</a>`, `href="./jobs?`)
				_, list := get(h, "/jobs?state=ready")
				has(t, "the jobs", plain(list), true, "ready no free place")
			})
		})
	}
}

// A lane whose jobs only fail is something to look at. A job that fails beside others that are done
// is not.
func TestFront_failing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		var well atomic.Bool
		w := errand.NewWorker(q, &errand.WorkerOptions{Grace: time.Millisecond, Logger: quiet})
		errand.Handle(w, func(_ context.Context, job *errand.Job[mail]) error {
			if job.Args.To == "nobody" || !well.Load() {
				return errDisk
			}
			return nil
		}, errand.HandlerOptions{Policy: policy.Policy{MinDelay: 20 * time.Second, MaxDelay: 20 * time.Second, Retries: 100, MinDelayRetries: 100}})
		defer runs(t, w)()
		h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
		look(t, h, "")
		shows := func(what string, seconds int, want bool, each func(), texts ...string) {
			t.Helper()
			for range seconds {
				each()
				time.Sleep(time.Second)
				store.version.Add(1)
			}
			_, page := get(h, "/")
			has(t, what, plain(page), want, texts...)
		}
		send := func(to string) {
			if _, err := q.Enqueue(t.Context(), mail{to}, nil); err != nil {
				t.Fatal(err)
			}
		}
		send("nobody")
		shows("for less than a minute", 50, false, func() {}, "only fail", "What holds work up")
		shows("for longer", 30, true, func() {}, "default · mail , jobs only fail", "None was ever done; 1 job is scheduled")
		well.Store(true)
		shows("one of many fails", 100, false, func() { send("a") }, "only fail", "What holds work up")
		well.Store(false)
		shows("all fail", 100, true, func() {}, "1 thing to look at.", "default · mail , jobs only fail", "None was done since; ", " scheduled, for retries or for later.", errDisk.Error(), "See the job that failed last")
		well.Store(true)
		shows("well again", 100, false, func() { send("a") }, "only fail")
	})
}
