package errandtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/policy"
)

func returns(err error) func(context.Context, *errand.Job[SendEmail]) error {
	return func(context.Context, *errand.Job[SendEmail]) error { return err }
}

// What a handler returns has the effect that the documentation says, in the file.
func TestPerform_verdicts(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, &errand.Options{Policy: policy.Policy{Retries: 2, NoDelayRetries: 1, MinDelay: time.Minute, MaxDelay: time.Minute, MinDelayRetries: 1, Jitter: policy.NoJitter}})
		for _, c := range []struct {
			name     string
			err      error
			failures int
			verdict  errand.VerdictKind
			event    errand.EventType
			state    errand.State
			delay    time.Duration
			next     policy.Phase
		}{
			{name: "done", event: errand.EventDone, state: errand.Done},
			{name: "first", err: errDown, event: errand.EventRetried, state: errand.Ready, next: policy.PhaseImmediate},
			{name: "second", err: errDown, failures: 1, event: errand.EventRetried, state: errand.Scheduled, delay: time.Minute, next: policy.PhasePreBackoff},
			{name: "last", err: errDown, failures: 2, event: errand.EventDead, state: errand.Dead},
			{name: "permanent", err: errand.Permanent(errDown), verdict: errand.VerdictPermanent, event: errand.EventDead, state: errand.Dead},
			{name: "snooze", err: fmt.Errorf("not yet: %w", errand.Snooze(time.Hour, nil)), verdict: errand.VerdictSnooze, event: errand.EventSnoozed, state: errand.Scheduled, delay: time.Hour},
			{name: "cancel", err: errand.Cancel(nil), verdict: errand.VerdictCancel, event: errand.EventCancelled, state: errand.Cancelled},
			{name: "unavailable", err: errand.Unavailable(errDown), verdict: errand.VerdictUnavailable, event: errand.EventUnavailable, state: errand.Scheduled, delay: -1},
		} {
			a := errandtest.Perform(t, q, returns(c.err), SendEmail{"ada"}, &errandtest.PerformOptions{Failures: c.failures})
			if !errors.Is(a.Err, c.err) || a.Verdict.Kind != c.verdict || a.Event.Type != c.event || a.Job.State != c.state || a.NextPhase != c.next || a.Job.Attempt != c.failures+1 {
				t.Errorf("%s: %+v", c.name, a)
			}
			// Outside of a bubble a little time may pass, and due times are rounded.
			if late := (a.Delay - c.delay).Abs(); c.delay >= 0 && late > time.Second {
				t.Errorf("%s: due after %v, want %v", c.name, a.Delay, c.delay)
			}
		}
		if holds, err := q.Holds(t.Context()); err != nil || len(holds) > 0 {
			t.Errorf("holds are left: %v, %v", holds, err)
		}
	})
}

// The job of the attempt is like any other: its args go through JSON and its way through the
// middleware, whatever keeps others of the kind back.
func TestPerform_job(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		var way []string
		passes := func(name string) errand.Middleware {
			return func(next errand.HandlerFunc) errand.HandlerFunc {
				return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
					way = append(way, name)
					if err := next(ctx, job); err != nil {
						return errand.Cancel(err)
					}
					return nil
				}
			}
		}
		q := errandtest.New(t, &errand.Options{Middleware: []errand.Middleware{passes("enqueue")}})
		other := enqueue(t, q, SendEmail{"other"}, nil)
		check(t, q.Pause(t.Context(), "slow"))
		way = nil
		a := errandtest.Perform(t, q, func(_ context.Context, job *errand.Job[SendEmail]) error {
			way = append(way, job.Args.To+" "+job.Headers["trace"])
			return errDown
		}, SendEmail{"ada"}, &errandtest.PerformOptions{
			Job:     &errand.JobOptions{Queue: "slow", Delay: time.Hour, Headers: map[string]string{"trace": "17"}},
			Worker:  &errand.WorkerOptions{Middleware: []errand.Middleware{passes("worker")}},
			Handler: &errand.HandlerOptions{Middleware: []errand.Middleware{passes("handler")}},
		})
		if want := []string{"enqueue", "worker", "handler", "ada 17"}; !slices.Equal(way, want) {
			t.Errorf("the way was %v, want %v", way, want)
		}
		if a.Verdict.Kind != errand.VerdictCancel || a.Job.State != errand.Cancelled || a.Job.Queue != "slow" {
			t.Errorf("%+v", a)
		}
		if j, err := q.Job(t.Context(), other); err != nil || j.State != errand.Ready || j.Attempt != 0 {
			t.Errorf("another job of the kind is %s after %d attempts, %v", j.State, j.Attempt, err)
		}
	})
}

func TestPerform_then(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, &errand.Options{Retention: -1})
		a := errandtest.Perform(t, q, func(ctx context.Context, job *errand.Job[SendEmail]) error {
			check(t, job.Then(SendEmail{"ben"}, nil))
			check(t, job.Then(&Audit{"sent"}, nil))
			return job.Finish(ctx, func(*sql.Tx) error { return nil })
		}, SendEmail{"ada"}, nil)
		if a.Err != nil || a.Event.Type != errand.EventDone || len(a.Then) != 2 || a.Then[0].Kind != "send_email" || a.Then[1].Kind != "audit" {
			t.Errorf("%+v", a)
		}
		errandtest.RequireEnqueued(t, q, to("ben"))
		errandtest.RequireNone(t, q, to("ada")) // it is not kept
	})
}

// Args of any form, and handlers that do not return.
func TestPerform_handlers(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		a := errandtest.Perform(t, q, func(_ context.Context, job *errand.Job[*Audit]) error {
			return errand.Permanent(errors.New(job.Args.What))
		}, &Audit{"pointer"}, nil)
		if a.Job.Error != "pointer" {
			t.Errorf("%+v", a)
		}
		a = errandtest.Perform(t, q, func(_ context.Context, job *errand.Job[errand.RawArgs]) error {
			return errand.Permanent(errors.New(string(job.Args.JSON)))
		}, errand.RawArgs{OfKind: "raw", JSON: []byte(`{"a": 1}`)}, nil)
		if a.Job.Error != `{"a":1}` {
			t.Errorf("%+v", a)
		}
		a = errandtest.Perform(t, q, func(context.Context, *errand.Job[SendEmail]) error { panic("no template") }, SendEmail{"ada"}, nil)
		if a.Err == nil || a.Err.Error() != "panic: no template" || a.Event.Type != errand.EventRetried {
			t.Errorf("%+v", a)
		}
	})
}

// What a job keeps: where it has got to, how far that is, and what it brings.
func TestPerform_keeps(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		handler := func(ctx context.Context, job *errand.Job[SendEmail]) error {
			at := 0
			if found, err := job.Resume(&at); err != nil || found != (job.Attempt > 1) {
				t.Errorf("resumed: %v, %v", found, err)
			}
			job.Progress(int64(at+10), 100, "pages") // kept with the checkpoint
			if err := job.Checkpoint(ctx, at+10); err != nil {
				return err
			}
			if at < 50 {
				return errDown
			}
			return job.SetResult(at)
		}
		a := errandtest.Perform(t, q, handler, SendEmail{"ada"}, nil)
		if p := a.Job.Progress; string(a.Job.Checkpoint) != "10" || p == nil || p.Done != 10 || a.Job.Retry != 1 {
			t.Errorf("%+v", a)
		}
		a = errandtest.Perform(t, q, handler, SendEmail{"ada"}, &errandtest.PerformOptions{Checkpoint: 40})
		if string(a.Job.Checkpoint) != "50" || a.Job.Attempt != 2 || a.Job.Retry != 2 {
			t.Errorf("%+v", a)
		}
		a = errandtest.Perform(t, q, handler, SendEmail{"ada"}, &errandtest.PerformOptions{Failures: 3, Checkpoint: 50})
		if got, err := errand.Result[int](a.Job); err != nil || got != 50 || a.Job.Attempt != 4 {
			t.Errorf("%d, %v: %+v", got, err, a)
		}
	})
}

// What keeps the attempt from being run, and one that lasts.
func TestPerform_fails(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t testing.TB, q *errand.Queue)
		want []string
	}{
		"failures": {func(t testing.TB, q *errand.Queue) {
			errandtest.Perform(t, q, done, SendEmail{"ada"}, &errandtest.PerformOptions{Failures: -1})
		}, []string{"failures -1"}},
		"more failures than retries": {func(t testing.TB, q *errand.Queue) {
			errandtest.Perform(t, q, done, SendEmail{"ada"}, &errandtest.PerformOptions{Failures: 2, Handler: &errand.HandlerOptions{Policy: policy.Policy{Retries: 1, NoDelayRetries: 1}}})
		}, []string{"attempt 2 of the 2 that fail before ended as dead"}},
		"a duplicate": {func(t testing.TB, q *errand.Queue) {
			o := &errand.JobOptions{Unique: &errand.Unique{Key: "ada"}}
			enqueue(t, q, SendEmail{"ada"}, o)
			errandtest.Perform(t, q, done, SendEmail{"ada"}, &errandtest.PerformOptions{Job: o})
		}, []string{"holds its unique key"}},
		"a blocked job": {func(t testing.TB, q *errand.Queue) {
			o := &errand.JobOptions{Group: "order-17"}
			enqueue(t, q, SendEmail{"ada"}, o)
			errandtest.Perform(t, q, done, SendEmail{"ben"}, &errandtest.PerformOptions{Job: o})
		}, []string{"the job cannot run", "of its group"}},
		"options of the job": {func(t testing.TB, q *errand.Queue) {
			errandtest.Perform(t, q, done, SendEmail{"ada"}, &errandtest.PerformOptions{Job: &errand.JobOptions{Priority: 1000}})
		}, []string{"priority"}},
		"options of the worker": {func(t testing.TB, q *errand.Queue) {
			errandtest.Perform(t, q, done, SendEmail{"ada"}, &errandtest.PerformOptions{Worker: &errand.WorkerOptions{Concurrency: -1}})
		}, []string{"concurrency"}},
		"a handler that goes on": {func(t testing.TB, q *errand.Queue) {
			errandtest.Perform(t, q, func(ctx context.Context, job *errand.Job[SendEmail]) error {
				check(t, job.Finish(ctx, func(*sql.Tx) error { return nil }))
				<-ctx.Done()
				return nil
			}, SendEmail{"ada"}, &errandtest.PerformOptions{Timeout: 10 * time.Minute})
		}, []string{"the attempt has not ended after 10m0s"}},
		"a checkpoint that is no JSON": {func(t testing.TB, q *errand.Queue) {
			errandtest.Perform(t, q, done, SendEmail{"ada"}, &errandtest.PerformOptions{Checkpoint: func() {}})
		}, []string{"the checkpoint was not kept", "checkpoint"}},
		"a handler that does not return": {func(t testing.TB, q *errand.Queue) {
			errandtest.Perform(t, q, func(ctx context.Context, _ *errand.Job[SendEmail]) error {
				<-ctx.Done()
				return ctx.Err()
			}, SendEmail{"ada"}, &errandtest.PerformOptions{Timeout: 10 * time.Minute})
		}, []string{"the attempt has not ended after 10m0s", "it runs, attempt 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				wantFailure(t, func(tb testing.TB) { c.do(tb, errandtest.New(tb, nil)) }, c.want...)
			})
		})
	}
}
