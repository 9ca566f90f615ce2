package apitest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// The limits of queue and kind both hold, for each worker by itself.
func TestWorker_Concurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Concurrency: 3}}})
		var notes, values [2]atomic.Int64
		for i := range 2 {
			w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "mail"}, Concurrency: 8, Grace: -1})
			errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error {
				notes[i].Add(1)
				<-ctx.Done()
				return ctx.Err()
			}, errand.HandlerOptions{Concurrency: 2})
			errand.Handle(w, func(ctx context.Context, _ *errand.Job[value]) error {
				values[i].Add(1)
				<-ctx.Done()
				return ctx.Err()
			})
			run(t, w)
		}
		for range 5 {
			enqueue(t, q, note{}, &errand.JobOptions{Queue: "mail"})
			enqueue(t, q, note{}, nil)
		}
		for range 10 {
			enqueue(t, q, value{}, &errand.JobOptions{Queue: "mail"})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := range 2 {
			if n, v := notes[i].Load(), values[i].Load(); n != 2 || v < 1 || v > 3 {
				t.Errorf("worker %d runs %d notes and %d values, want 2, and 1 to 3", i, n, v)
			}
		}
	})
}

func TestWorker_SetConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		var running atomic.Int64
		w := errand.NewWorker(q, &errand.WorkerOptions{Grace: -1})
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error {
			running.Add(1)
			<-ctx.Done()
			return ctx.Err()
		})
		if err := w.SetConcurrency(3); err != nil {
			t.Fatal(err)
		}
		end := run(t, w)
		for range 30 {
			enqueue(t, q, note{}, nil)
		}
		for _, c := range []struct {
			n    int
			runs int64
		}{{3, 3}, {20, 20}, {1, 20}} {
			if err := w.SetConcurrency(c.n); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if now := running.Load(); now != c.runs {
				t.Errorf("with %d there run %d, want %d", c.n, now, c.runs)
			}
		}
		for _, n := range []int{-1, 0, 10_001} {
			wantFaults(t, w.SetConcurrency(n), fault{"concurrency", fmt.Sprint(n), "must be between 1 and 10000"})
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if err := w.SetConcurrency(5); err != nil {
			t.Errorf("after Run: %v", err)
		}
	})
}

// After a long pause a queue opens with one job at a time, by default at once.
func TestQueue_OpensGently(t *testing.T) {
	for _, c := range []struct {
		queue, kind, least time.Duration
	}{{}, {queue: time.Hour, least: time.Second}, {kind: time.Hour, least: time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{"default": {OpenJitter: c.queue}}})
			var running, most, done atomic.Int64
			var opened time.Time
			w := errand.NewWorker(q, nil)
			errand.Handle(w, func(context.Context, *errand.Job[note]) error {
				if n := running.Add(1); done.Load() == 0 {
					most.Store(max(most.Load(), n))
					if waited := time.Since(opened); waited < c.least || waited > max(c.queue, c.kind) {
						t.Errorf("the first job waited for %v", waited)
					}
				}
				time.Sleep(time.Second)
				running.Add(-1)
				done.Add(1)
				return nil
			}, errand.HandlerOptions{OpenJitter: c.kind})
			run(t, w)
			if err := q.Pause(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			for range 40 {
				enqueue(t, q, note{}, nil)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			opened = time.Now()
			if err := q.Resume(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if n := done.Load(); n != 40 || most.Load() != 1 {
				t.Errorf("%d of 40 were done, %d at a time at first", n, most.Load())
			}
		})
	}
}

func TestOpenJitter_IsChecked(t *testing.T) {
	for value, d := range map[string]time.Duration{"-1ns": -1, "24h0m0.000000001s": 24*time.Hour + 1} {
		const limit = "must be between 0 and 24h0m0s"
		_, err := errand.New(t.Context(), nil, &errand.Options{Queues: map[string]errand.QueueOptions{"mail": {OpenJitter: d}}})
		wantFaults(t, err, fault{"store", "nil", "must not be nil"}, fault{`queues["mail"].open_jitter`, value, limit})

		func() {
			q, _ := memoryQueue(t, errand.Options{})
			defer func() {
				if got, want := fmt.Sprint(recover()), "open_jitter "+value+": "+limit; !strings.Contains(got, want) {
					t.Errorf("panic with %q, want %q in it", got, want)
				}
			}()
			errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil }, errand.HandlerOptions{OpenJitter: d})
		}()
	}
}

func TestConcurrency_IsChecked(t *testing.T) {
	for _, n := range []int{-1, 10_001} {
		value := fmt.Sprint(n)
		_, err := errand.New(t.Context(), nil, &errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Concurrency: n}}})
		wantFaults(t, err, fault{"store", "nil", "must not be nil"}, fault{`queues["mail"].concurrency`, value, "must be between 0 and 10000"})

		func() {
			q, _ := memoryQueue(t, errand.Options{})
			defer func() {
				if got, want := fmt.Sprint(recover()), "concurrency "+value+": must be between 0 and 10000"; !strings.Contains(got, want) {
					t.Errorf("panic with %q, want %q in it", got, want)
				}
			}()
			errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil }, errand.HandlerOptions{Concurrency: n})
		}()
	}
}
