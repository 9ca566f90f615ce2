package errandtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/policy"
)

// mixed is a handler whose jobs end in all ways.
func mixed(q *errand.Queue) func(context.Context, *errand.Job[SendEmail]) error {
	return func(ctx context.Context, job *errand.Job[SendEmail]) error {
		switch job.Args.To {
		case "permanent":
			return errand.Permanent(errDown)
		case "cancel":
			return errand.Cancel(nil)
		case "snooze":
			if job.Snoozes == 0 {
				return errand.Snooze(time.Hour, nil)
			}
		case "then":
			return job.Then(SendEmail{"following"}, nil)
		case "more":
			_, err := q.Enqueue(ctx, SendEmail{"more of it"}, nil)
			return err
		case "retry":
			if job.Retry == 0 {
				return errDown
			}
		case "unavailable":
			if job.Attempt == 1 {
				return errand.Unavailable(errDown)
			}
		}
		return nil
	}
}

// Jobs are done and counted, with all that they enqueue, and what is due later on request.
func TestDrain(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		for _, name := range []string{"ada", "permanent", "cancel", "snooze", "then", "more", "retry", "unavailable"} {
			enqueue(t, q, SendEmail{name}, nil)
		}
		enqueue(t, q, &Audit{"left"}, nil)
		later := enqueue(t, q, SendEmail{"later"}, &errand.JobOptions{Delay: 90 * 24 * time.Hour})
		enqueue(t, q, SendEmail{"expires"}, &errand.JobOptions{Delay: time.Hour, StartWithin: time.Second})
		check(t, q.Hold(t.Context(), errand.Lane{Queue: "slow"}, &errand.HoldOptions{For: 48 * time.Hour}))
		enqueue(t, q, SendEmail{"held"}, &errand.JobOptions{Queue: "slow"})

		work := func() *errand.Worker {
			w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "slow"}})
			errand.Handle(w, mixed(q))
			return w
		}
		want := errandtest.Counts{Attempts: 11, Done: 6, Dead: 1, Cancelled: 1, Snoozed: 1, Retried: 1, Unavailable: 1}
		if got := errandtest.Drain(t, q, work(), nil); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		began := q.Clock().Now
		got := errandtest.Drain(t, q, work(), &errandtest.DrainOptions{Scheduled: true})
		if want := (errandtest.Counts{Attempts: 5, Done: 5}); got != want {
			t.Errorf("what is due later: %+v, want %+v", got, want)
		}
		if passed := q.Clock().Now.Sub(began); passed < 89*24*time.Hour || passed > 91*24*time.Hour {
			t.Errorf("the clock has moved on by %v, want 90 days", passed)
		}
		if j, err := q.Job(t.Context(), later); err != nil || j.State != errand.Done {
			t.Errorf("the job that was due last is %s, %v", j.State, err)
		}
		errandtest.RequireEnqueued(t, q, func(e errandtest.Enqueued[*Audit]) error {
			if e.State != errand.Ready {
				return fmt.Errorf("it is %s", e.State)
			}
			return nil
		})
	})
}

// A job that is retried by its policy comes again in the time of the queue, until it is dead.
func TestDrain_retries(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		enqueue(t, q, SendEmail{"ada"}, nil)
		began := q.Clock().Now
		got := errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error { return errDown }),
			&errandtest.DrainOptions{Scheduled: true})
		if want := (errandtest.Counts{Attempts: 28, Retried: 27, Dead: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if passed := q.Clock().Now.Sub(began); passed < 6*time.Hour || passed > 14*time.Hour {
			t.Errorf("the retries of the default policy took %v", passed)
		}
	})
}

// In a bubble, time passes for handlers too.
func TestDrain_handlersSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		enqueue(t, q, SendEmail{"ada"}, nil)
		got := errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error {
			time.Sleep(20 * time.Minute)
			return nil
		}), nil)
		if got.Done != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// Jobs of a lane that is held since nobody is reached are done when the time is there.
func TestDrain_outage(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		for i := range 10 {
			enqueue(t, q, SendEmail{fmt.Sprint(i)}, nil)
		}
		var down atomic.Int64
		got := errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error {
			if down.Add(1) < 30 {
				return errand.Unavailable(errDown)
			}
			return nil
		}), &errandtest.DrainOptions{Scheduled: true})
		if got.Done != 10 || got.Unavailable != 29 || got.Dead != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// Drain ends, whatever jobs do, and says why jobs wait.
//
//errand:shows tests of users | | Drain ends with a failure that says why jobs wait: when jobs go on without end, when one does not return, and when jobs are held, gated or behind a dead one
func TestDrain_ends(t *testing.T) {
	jobs := func(t testing.TB, q *errand.Queue, o *errand.JobOptions) { enqueue(t, q, SendEmail{"ada"}, o) }
	for name, c := range map[string]struct {
		do   func(t testing.TB)
		want []string
	}{
		"jobs enqueue jobs": {func(t testing.TB) {
			q := errandtest.New(t, nil)
			jobs(t, q, nil)
			errandtest.Drain(t, q, worker(q, func(ctx context.Context, job *errand.Job[SendEmail]) error {
				return job.Then(SendEmail{"next"}, nil)
			}), &errandtest.DrainOptions{Max: 50})
		}, []string{"jobs go on without end: more than 50 attempts", "of kind send_email in queue default is "}},
		"a job snoozes": {func(t testing.TB) {
			q := errandtest.New(t, nil)
			jobs(t, q, nil)
			errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error { return errand.Snooze(time.Hour, nil) }),
				&errandtest.DrainOptions{Scheduled: true, Max: 50})
		}, []string{"more than 50 attempts"}},
		"a handler does not return": {func(t testing.TB) {
			q := errandtest.New(t, nil)
			jobs(t, q, nil)
			errandtest.Drain(t, q, worker(q, func(ctx context.Context, _ *errand.Job[SendEmail]) error {
				<-ctx.Done()
				return ctx.Err()
			}), &errandtest.DrainOptions{Timeout: 10 * time.Minute})
		}, []string{"nothing has happened for 10m", "is running: it runs, attempt 1"}},
		"a pause": {func(t testing.TB) {
			q := errandtest.New(t, nil)
			jobs(t, q, nil)
			check(t, q.Pause(context.Background(), "default"))
			errandtest.Drain(t, q, worker(q, done), &errandtest.DrainOptions{Scheduled: true})
		}, []string{"jobs are left that no time will have run", "queue default is paused"}},
		"a gate": {func(t testing.TB) {
			shut := new(errand.Switch)
			shut.Close("no carrier")
			q := errandtest.New(t, &errand.Options{Queues: map[string]errand.QueueOptions{"default": {Gate: shut}}})
			jobs(t, q, nil)
			errandtest.Drain(t, q, worker(q, done), nil)
		}, []string{"jobs are left that no time will have run", "no carrier"}},
		"a dead job": {func(t testing.TB) {
			q := errandtest.New(t, nil)
			for range 2 {
				jobs(t, q, &errand.JobOptions{Group: "order-17"})
			}
			errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error { return errand.Permanent(errDown) }), nil)
		}, []string{"jobs are left that no time will have run", "order-17"}},
		"options of the worker": {func(t testing.TB) {
			q := errandtest.New(t, nil)
			errandtest.Drain(t, q, errand.NewWorker(q, &errand.WorkerOptions{Concurrency: -1}), nil)
		}, []string{"concurrency"}},
		"a worker that has been run": {func(t testing.TB) {
			q := errandtest.New(t, nil)
			w := worker(q, done)
			errandtest.Drain(t, q, w, nil)
			errandtest.Drain(t, q, w, nil)
		}, []string{"worker has been run already"}},
		"max": {func(t testing.TB) { errandtest.Drain(t, nil, nil, &errandtest.DrainOptions{Max: -1}) }, []string{"max -1"}},
		"timeout": {func(t testing.TB) {
			errandtest.Drain(t, errandtest.New(t, nil), nil, &errandtest.DrainOptions{Timeout: -1})
		}, []string{"timeout -1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { wantFailure(t, c.do, c.want...) })
		})
	}
}

// Time that is moved on is no progress: a throttle goes by the time that passes.
func TestDrain_throttled(t *testing.T) {
	t.Parallel()
	wantFailure(t, func(t testing.TB) {
		q := errandtest.New(t, &errand.Options{Queues: map[string]errand.QueueOptions{"default": {GroupThrottle: errand.GroupThrottle{Starts: 1, Per: time.Hour}}}})
		for range 3 {
			enqueue(t, q, SendEmail{"ada"}, &errand.JobOptions{Group: "ada"})
		}
		errandtest.Drain(t, q, worker(q, done), &errandtest.DrainOptions{Scheduled: true, Timeout: 100 * time.Millisecond})
	}, "nothing has happened for 100ms")
}

// A job that can never run is left on request.
func TestDrain_allowStuck(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		enqueue(t, q, SendEmail{"ada"}, nil)
		check(t, q.Pause(t.Context(), "default"))
		if got := errandtest.Drain(t, q, worker(q, done), &errandtest.DrainOptions{AllowStuck: true}); got != (errandtest.Counts{}) {
			t.Errorf("%+v", got)
		}
	})
}

// Only a queue of New has a clock that can be moved on.
func TestDrain_otherQueue(t *testing.T) {
	t.Parallel()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	t.Cleanup(func() { check(t, q.Close()) })
	enqueue(t, q, SendEmail{"ada"}, &errand.JobOptions{Policy: policy.Policy{}})
	wantFailure(t, func(t testing.TB) {
		errandtest.Drain(t, q, worker(q, done), &errandtest.DrainOptions{Scheduled: true})
	}, "Scheduled needs a queue of errandtest.New")
	if got := errandtest.Drain(t, q, worker(q, done), nil); got.Attempts > 1 {
		t.Errorf("%+v", got)
	}
	wantFailure(t, func(t testing.TB) { errandtest.Crash(t, q) }, "must be one of errandtest.New")
}

// Drain waits for a bulk job that a handler starts, though the worker shows late that it does it.
func TestDrain_bulk(t *testing.T) {
	t.Parallel()
	for range 20 {
		q := errandtest.New(t, nil)
		w := errand.NewWorker(q, nil)
		args := errand.RawArgs{OfKind: "starts", JSON: []byte("{}")}
		var bulk errand.BulkInfo
		errand.HandleRaw(w, "starts", func(ctx context.Context, _ *errand.Job[errand.RawArgs]) (err error) {
			bulk, err = q.StartBulk(ctx, errand.Bulk{Do: errand.BulkDelete, Filter: errand.JobFilter{All: true}})
			return err
		})
		if _, err := q.Enqueue(t.Context(), args, nil); err != nil {
			t.Fatal(err)
		}
		errandtest.Drain(t, q, w, nil)
		all, err := q.Bulks(t.Context(), bulk.ID)
		if err != nil || len(all) != 1 || all[0].State != errand.Done {
			t.Fatalf("after Drain: %+v, %v", all, err)
		}
	}
}

// A ready job is due, also while the time stands still before its due time, which is rounded up.
func TestDrain_timeStandsStill(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 500, time.UTC)
	q := errandtest.New(t, &errand.Options{Clock: func() time.Time { return now }})
	if _, err := q.Enqueue(t.Context(), SendEmail{}, &errand.JobOptions{DueAt: now}); err != nil {
		t.Fatal(err)
	}
	if got := errandtest.Drain(t, q, worker(q, done), nil); got.Done != 1 {
		t.Errorf("Drain ended with %+v, want the job done", got)
	}
}
