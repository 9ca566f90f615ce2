package errand_test

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
