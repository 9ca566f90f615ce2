package cookbook_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
)

// collect enqueues what comes within a second in one call, and so in one commit. It returns
// once readings is closed.
func collect(ctx context.Context, q *errand.Queue, readings <-chan Reading) error {
	for first := range readings {
		jobs := []errand.NewJob{{Args: first}}
		for second := time.After(time.Second); second != nil && len(jobs) < 1000; {
			select {
			case r, more := <-readings:
				if more {
					jobs = append(jobs, errand.NewJob{Args: r})
				} else {
					second = nil
				}
			case <-second:
				second = nil
			}
		}
		if _, err := q.EnqueueMany(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

// Each commit writes some pages to the disk, however little is in it: readings of a second
// share one. What is not enqueued yet is lost with the process.
//
//errand:shows readings of a second share a commit | | what comes within a second is enqueued in one call, also when the channel is closed before
func TestExample_collect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Duration // when each job was enqueued
		began := time.Now()
		note := func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				calls = append(calls, time.Since(began))
				return next(ctx, job)
			}
		}
		q := errandtest.New(t, &errand.Options{Middleware: []errand.Middleware{note}})
		readings, ended := make(chan Reading), make(chan error)
		go func() { ended <- collect(t.Context(), q, readings) }()
		for i := range 20 {
			readings <- Reading{"boiler", float64(i)}
			time.Sleep(150 * time.Millisecond)
		}
		close(readings)
		check(<-ended)
		want := slices.Concat(
			slices.Repeat([]time.Duration{1000 * time.Millisecond}, 7), // of 0 to 0.9 s
			slices.Repeat([]time.Duration{2050 * time.Millisecond}, 7),
			slices.Repeat([]time.Duration{3000 * time.Millisecond}, 6), // as the channel is closed
		)
		if !slices.Equal(calls, want) {
			t.Errorf("enqueued at %v, want %v", calls, want)
		}
	})
}
