package errand_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
	"github.com/errandq/errand/policy"
)

var errNoAddress = errors.New("no such address")

// once enqueues a job, has a worker run it until the handler says that it is
// the last time, and returns what became of it.
func once(handle func(job *errand.Job[SendEmail]) (last bool, err error)) errand.JobInfo {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	e := must(q.Enqueue(ctx, SendEmail{To: "ada"}, nil))
	w := errand.NewWorker(q, nil)
	var over atomic.Bool
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		last, err := handle(job)
		over.Store(last)
		return err
	})
	kit.WorkUntil(q, w, over.Load)
	return must(q.Job(ctx, e.ID))
}

func ExamplePermanent() {
	j := once(func(*errand.Job[SendEmail]) (bool, error) {
		// Verdicts survive wrapping.
		return true, fmt.Errorf("send: %w", errand.Permanent(errNoAddress))
	})
	fmt.Printf("%s, %s: %s\n", j.State, j.Reason, j.Error)
	// Output:
	// dead, permanent: send: no such address
}

func ExampleRetryAfter() {
	var failed time.Time
	j := once(func(job *errand.Job[SendEmail]) (bool, error) {
		if job.Retry == 0 {
			failed = time.Now()
			return false, errand.RetryAfter(50*time.Millisecond, errors.New("too many requests"))
		}
		fmt.Println(job.Phase, "retry, not before asked:", time.Since(failed) >= 50*time.Millisecond)
		return true, nil
	})
	fmt.Printf("%s after %d attempts; first: %s\n", j.State, j.Attempt, j.History[0].Error)
	// Output:
	// immediate retry, not before asked: true
	// done after 2 attempts; first: too many requests
}

func ExampleUnderPolicy() {
	ofCustomer := policy.Policy{Retries: 1, NoDelayRetries: 1} // looked up, say
	j := once(func(job *errand.Job[SendEmail]) (bool, error) {
		return job.Attempt == 2, errand.UnderPolicy(ofCustomer, errors.New("mailbox is full"))
	})
	fmt.Printf("%s, %s after %d attempts\n", j.State, j.Reason, j.Attempt)
	// Output:
	// dead, exhausted after 2 attempts
}

func ExampleUnavailable() {
	j := once(func(job *errand.Job[SendEmail]) (bool, error) {
		if job.Attempt == 1 {
			return false, errand.Unavailable(errors.New("no route to host"))
		}
		return true, nil
	})
	fmt.Printf("%s after %d attempts, retries %d, failures %d\n", j.State, j.Attempt, j.Retry, len(j.History))
	// Output:
	// done after 2 attempts, retries 0, failures 0
}

// The limit of an account is for all jobs of the kind: none of the others is sent before
// the service asks for more.
func ExampleHoldLane() {
	sent := 0
	j := once(func(job *errand.Job[SendEmail]) (bool, error) {
		if sent++; sent == 1 {
			return false, errand.HoldLane(time.Second, errors.New("429: 1000 mails a day are enough"))
		}
		return true, nil
	})
	fmt.Printf("%s after %d attempts, retries %d\n", j.State, j.Attempt, j.Retry)
	// Output:
	// done after 2 attempts, retries 0
}

func ExampleSnooze() {
	j := once(func(job *errand.Job[SendEmail]) (bool, error) {
		if job.Snoozes == 0 {
			return false, errand.Snooze(100*time.Millisecond, errors.New("not before the office opens"))
		}
		return true, nil
	})
	fmt.Printf("%s, snoozes %d, retries %d, failures %d\n", j.State, j.Snoozes, j.Retry, len(j.History))
	// Output:
	// done, snoozes 1, retries 0, failures 0
}

func ExampleCancel() {
	j := once(func(*errand.Job[SendEmail]) (bool, error) {
		return true, errand.Cancel(errors.New("the account is gone"))
	})
	fmt.Printf("%s: %s\n", j.State, j.Error)
	// Output:
	// cancelled: the account is gone
}

// A handler is a function, and what it returns can be asked for its verdict: no
// queue is needed to test it.
func ExampleVerdictOf() {
	handle := func(_ context.Context, job *errand.Job[SendEmail]) error {
		if job.Args.To == "" {
			return fmt.Errorf("send: %w", errand.Permanent(errNoAddress))
		}
		if job.Attempt == 1 {
			return errand.Snooze(time.Minute, errors.New("not before the office opens"))
		}
		return errors.New("connection refused")
	}
	ada := SendEmail{To: "ada@example.org"}
	for _, job := range []*errand.Job[SendEmail]{
		{Attempt: 1}, {Attempt: 1, Args: ada}, {Attempt: 2, Args: ada},
	} {
		err := handle(context.Background(), job)
		if v, ok := errand.VerdictOf(err); ok {
			fmt.Println("verdict:", v, "| permanent:", v.Kind == errand.VerdictPermanent)
		} else {
			fmt.Println("retried by the policy:", err)
		}
	}
	// Output:
	// verdict: permanent: no such address | permanent: true
	// verdict: snooze 1m0s: not before the office opens | permanent: false
	// retried by the policy: connection refused
}

// A panic is a failed attempt like any other, and its stack is kept.
func ExampleHandle_panic() {
	j := once(func(job *errand.Job[SendEmail]) (bool, error) {
		if job.Retry == 0 {
			panic("oops")
		}
		return true, nil
	})
	fmt.Printf("%s: %s, stack kept: %t\n", j.State, j.History[0].Error, j.History[0].Stack != "")
	// Output:
	// done: panic: oops, stack kept: true
}

// The policy of a job goes before that of its kind, that before the one of its
// queue, and that before the one of the options.
func ExampleJobOptions_policy() {
	ctx := context.Background()
	retries := func(n int) *policy.Policy { return &policy.Policy{Retries: n, NoDelayRetries: n} }
	q, remove := tempQueue(&errand.Options{
		Policy: retries(4),
		Queues: map[string]errand.QueueOptions{"mail": {Policy: retries(3)}},
	})
	defer remove()

	must(q.Enqueue(ctx, Fetch{}, &errand.JobOptions{Queue: "mail", Policy: retries(1)}))
	must(q.Enqueue(ctx, Fetch{}, &errand.JobOptions{Queue: "mail"}))
	must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "mail"}))
	must(q.Enqueue(ctx, SendEmail{}, nil))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail", "default"}})
	fail := func() error { return errors.New("down") }
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error { return fail() })
	errand.Handle(w, func(context.Context, *errand.Job[Fetch]) error { return fail() },
		errand.HandlerOptions{Policy: retries(2)})
	workOff(q, w, 2+3+4+5)

	page := must(q.DeadLetters().List(ctx, errand.JobFilter{}, nil))
	for _, j := range page.Jobs {
		fmt.Println(j.Kind, "in", j.Queue, "dead after", j.Attempt, "attempts,", j.Policy.Retry.Retries, "retries")
	}
	// Unordered output:
	// fetch in mail dead after 2 attempts, 1 retries
	// fetch in mail dead after 3 attempts, 2 retries
	// send_email in mail dead after 4 attempts, 3 retries
	// send_email in default dead after 5 attempts, 4 retries
}

// Fetch is another type of job.
type Fetch struct{ URL string }

// Kind names the type of job.
func (Fetch) Kind() string { return "fetch" }

// The four phases of a policy, as the attempts of a job see them.
func ExampleJob_phase() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Policy: &policy.Policy{
		MinDelay: time.Millisecond, MaxDelay: 4 * time.Millisecond, Backoff: policy.Exponential,
		Retries: 5, NoDelayRetries: 1, MinDelayRetries: 1, MaxDelayRetries: 1,
	}}))
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		fmt.Println("attempt", job.Attempt, "retry", job.Retry, job.Phase)
		return errors.New("down")
	})
	workOff(q, w, 6)
	// Output:
	// attempt 1 retry 0 first
	// attempt 2 retry 1 immediate
	// attempt 3 retry 2 pre-backoff
	// attempt 4 retry 3 backoff
	// attempt 5 retry 4 backoff
	// attempt 6 retry 5 post-backoff
}
