package errand_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// A queue takes a delivery policy as SNS attaches it to a topic, and a job one
// as SNS attaches it to a subscription.
func ExampleQueueOptions_document() {
	topic := must(policy.ParseTopic([]byte(`{"http": {
		"defaultHealthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 50, "numNoDelayRetries": 3},
		"defaultThrottlePolicy": {"maxReceivesPerSecond": 10}}}`), policy.ProfileSNS))
	own := must(policy.ParseDocument([]byte(`{"requestPolicy": {"headerContentType": "application/json"}}`), policy.ProfileSNS))

	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Policy: topic}}})
	defer remove()
	ctx := context.Background()
	e := must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "mail", Policy: own}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail"}})
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error {
		return errand.Permanent(errNoAddress)
	})
	workOff(q, w, 1)

	// The dead letter has the document that was in effect.
	j := must(q.Job(ctx, e.ID))
	fmt.Println(j.Policy.Retry.Retries, "retries, at most", j.Policy.Throttle.MaxReceivesPerSecond, "attempts a second")
	fmt.Println(string(must(json.Marshal(j.Policy.Request))))
	// Output:
	// 50 retries, at most 10 attempts a second
	// {"headerContentType":"application/json"}
}

// What an HTTP status means for a job need not be said by the handler.
func ExampleHandle_classification() {
	for _, status := range []int{200, 404, 503} {
		j := once(func(job *errand.Job[SendEmail]) (bool, error) {
			if job.Retry > 0 {
				return true, nil
			}
			return status != 503, policy.HTTPError(status, nil, time.Now())
		})
		fmt.Println(status, j.State, j.Reason, "after", j.Retry, "retries")
	}
	// Output:
	// 200 done  after 0 retries
	// 404 dead permanent after 0 retries
	// 503 done  after 1 retries
}

// With a retry budget, an outage of the other side does not turn into a flood
// of retries: those that nothing pays for wait, and use up nothing.
func ExampleQueue_Budgets() {
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"mail": {Budget: &policy.BudgetOptions{Capacity: 10, RetryCost: 5, RetriesPerSecond: 0.01}},
	}})
	defer remove()
	ctx := context.Background()
	for range 5 {
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "mail"}))
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail"}, Concurrency: 1})
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error { return errNoAddress })
	workOff(q, w, 5+2) // first attempts, and the retries that the budget can pay for
	b := q.Budgets()[0]
	fmt.Printf("queue %s: %.0f of %.0f tokens\n", b.Queue, b.Tokens, b.Capacity)
	// Output:
	// queue mail: 0 of 10 tokens
}

// A queue's document can say how many attempts a second its receiver bears.
func ExampleQueueOptions_throttle() {
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"mail": {Policy: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 40}}},
	}})
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	const jobs = 24
	for range jobs {
		must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "mail"}))
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail"}, Concurrency: 1})
	n, began := 0, time.Now()
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error {
		if n++; n == jobs {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))
	// 4 are sent at once, the other 20 take half a second.
	fmt.Println(n, "mails, no faster than allowed:", time.Since(began) > 450*time.Millisecond)
	// Output:
	// 24 mails, no faster than allowed: true
}
