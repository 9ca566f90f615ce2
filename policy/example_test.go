package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/errandq/errand/policy"
)

func ExamplePolicy_Next() {
	p := policy.Policy{
		MinDelay: time.Second, MaxDelay: time.Minute, Backoff: policy.Exponential,
		Retries: 50, NoDelayRetries: 3, MinDelayRetries: 2, MaxDelayRetries: 35,
	}
	for _, retry := range []int{0, 3, 5, 13, 14, 15, 49, 50} {
		phase, delay, ok := p.Next(retry)
		fmt.Println(retry, phase, delay, ok)
	}
	// Output:
	// 0 immediate 0s true
	// 3 pre-backoff 1s true
	// 5 backoff 1s true
	// 13 backoff 22.7s true
	// 14 backoff 1m0s true
	// 15 post-backoff 1m0s true
	// 49 post-backoff 1m0s true
	// 50 first 0s false
}

func ExamplePolicy_All() {
	for step := range policy.QLDB().All() {
		fmt.Println(step.Retry, step.Phase, step.Delay, step.Cumulative)
	}
	// Output:
	// 0 backoff 20ms 20ms
	// 1 backoff 40ms 60ms
	// 2 backoff 80ms 140ms
	// 3 backoff 160ms 300ms
}

func ExamplePolicy_Lint() {
	p := policy.Policy{MinDelay: time.Second, MaxDelay: time.Hour, Retries: 40, Backoff: policy.Geometric}
	for _, warning := range p.Lint() {
		fmt.Println(warning)
	}
	// Output:
	// 33 of 40 delays of the backoff phase are nearly the minimum (1s): geometric grows only at the very end of so long a phase
}

func ExamplePolicy_Validate() {
	p := policy.Policy{MinDelay: time.Minute, MaxDelay: time.Second, Retries: 3, MaxDelayRetries: 4}
	fmt.Println(p.Validate())
	// Output:
	// policy: MaxDelay 1s: must be at least 1m0s, from the minimum delay up
	// policy: MaxDelayRetries 4: must be between 0 and 3, what is left of the retries
}

func ExampleJitter_Apply() {
	phase, delay, _ := policy.Default().Next(14)
	const u = 0.5 // usually rand.Float64()
	fmt.Println(delay, policy.EqualJitter.Apply(phase, delay, u), policy.FullJitter.Apply(phase, delay, u))
	// Output: 34m8s 25m36s 17m4s
}

func ExampleParseDocument() {
	d, err := policy.ParseDocument([]byte(`{
		"healthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 10},
		"throttlePolicy": {"maxReceivesPerSecond": 10}
	}`), policy.ProfileSNS)
	fmt.Println(d.Retry.Retries, d.Retry.Total(), d.Throttle.MaxReceivesPerSecond, err)

	_, err = policy.ParseDocument([]byte(`{
		"healthyRetryPolicy": {"minDelayTarget": 0.5, "numRetries": 500, "retries": 3}
	}`), policy.ProfileSNS)
	fmt.Println(err)
	// Output:
	// 10 5m5s 10 <nil>
	// policy: healthyRetryPolicy.retries 3: is not known
	// policy: healthyRetryPolicy.minDelayTarget 0.5: must be a whole number of seconds between 1 and 3600
	// policy: healthyRetryPolicy.numRetries 500: must be between 0 and 100
}

func ExampleDocument_Or() {
	var kind, queue policy.Document
	if err := json.Unmarshal([]byte(`{"healthyRetryPolicy": {"numRetries": 5}}`), &kind); err != nil {
		fmt.Println(err)
	}
	if err := json.Unmarshal([]byte(`{"healthyRetryPolicy": {"minDelayTarget": 1}, "throttlePolicy": {"maxReceivesPerSecond": 9}}`), &queue); err != nil {
		fmt.Println(err)
	}
	effective := kind.Or(queue).Or(policy.SystemDefault())
	// The section is the kind's as a whole: the 1 s of the queue is not in it.
	fmt.Println(effective.Retry.Retries, effective.Retry.MinDelay, effective.Throttle.MaxReceivesPerSecond, effective.Request.ContentType)
	// Output: 5 20s 9 text/plain; charset=UTF-8
}

// The policy in effect for a subscription, and whose each of its sections is.
func ExampleTopic_Sources() {
	topic, err := policy.ParseTopic([]byte(`{"http": {"defaultHealthyRetryPolicy": {"numRetries": 9},
		"defaultThrottlePolicy": {"maxReceivesPerSecond": 2}}}`), policy.ProfileSNS)
	if err != nil {
		fmt.Println(err)
	}
	subscription, err := policy.ParseDocument([]byte(`{"healthyRetryPolicy": {"numRetries": 5}}`), policy.ProfileSNS)
	if err != nil {
		fmt.Println(err)
	}
	effective, sources := topic.Effective(subscription, policy.SystemDefault()), topic.Sources(subscription)
	fmt.Println(effective.Retry.Retries, "retries:", sources.Retry)
	fmt.Println(effective.Throttle.MaxReceivesPerSecond, "a second:", sources.Throttle)
	fmt.Println(effective.Request.ContentType+":", sources.Request)
	// Output:
	// 5 retries: subscription
	// 2 a second: topic
	// text/plain; charset=UTF-8: system
}

func ExampleClassify() {
	header := http.Header{"Retry-After": {"30"}}
	for _, err := range []error{
		policy.HTTPError(503, nil, time.Now()),
		policy.HTTPError(429, header, time.Now()),
		policy.HTTPError(404, nil, time.Now()),
		policy.HTTPError(401, nil, time.Now()),
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		policy.Mark(errors.New("no such customer"), policy.Permanent),
		errors.New("something else"),
	} {
		fmt.Printf("%v: %v\n", err, policy.Classify(err))
	}
	// Output:
	// http status 503: retryable
	// http status 429, retry after 30s: throttled
	// http status 404: permanent
	// http status 401: unavailable
	// dial tcp: connection refused: unavailable
	// no such customer: permanent
	// something else: retryable
}

// The rules of Amazon SNS, for who wants them: an expired token is the end of a job.
func ExampleRules() {
	sns := policy.Rules{policy.ByMark, policy.ByCode, policy.BySNSStatus, policy.ByContext, policy.ByNet}
	for _, status := range []int{302, 401, 404, 408, 429, 503} {
		err := policy.HTTPError(status, nil, time.Now())
		fmt.Printf("%d: %v, SNS: %v\n", status, policy.Classify(err), sns.Classify(err))
	}
	// Output:
	// 302: unavailable, SNS: permanent
	// 401: unavailable, SNS: permanent
	// 404: permanent, SNS: permanent
	// 408: retryable, SNS: permanent
	// 429: throttled, SNS: throttled
	// 503: retryable, SNS: retryable
}

// What endpoints of others answer is tried again for up to three days, except for 410.
func ExampleWebhook() {
	p := policy.Webhook()
	for _, retry := range []int{0, 1, 12, 13, 20} {
		_, delay, _ := p.Next(retry)
		fmt.Printf("retry %d after %v\n", retry, delay)
	}
	fmt.Println("in all:", p.ShortestTotal(), "to", p.Total())
	rules := policy.Rules{policy.ByMark, policy.ByWebhookStatus, policy.ByConnect, policy.ByContext, policy.ByNet}
	for _, status := range []int{302, 404, 410, 429, 500} {
		fmt.Printf("%d: %v\n", status, rules.Classify(policy.HTTPError(status, nil, time.Now())))
	}
	// Output:
	// retry 0 after 5s
	// retry 1 after 10s
	// retry 12 after 5h41m20s
	// retry 13 after 8h0m0s
	// retry 20 after 8h0m0s
	// in all: 37h41m17.5s to 75h22m35s
	// 302: retryable
	// 404: retryable
	// 410: permanent
	// 429: throttled
	// 500: retryable
}

func ExampleIsLocal() {
	for _, err := range []error{
		&net.DNSError{Name: "shop.example", Err: "i/o timeout", IsTimeout: true},
		&net.DNSError{Name: "shop.example", Err: "no such host", IsNotFound: true},
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH},
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
	} {
		fmt.Printf("%v: %t\n", err, policy.IsLocal(err))
	}
	// Output:
	// lookup shop.example: i/o timeout: true
	// lookup shop.example: no such host: false
	// dial tcp: network is unreachable: true
	// dial tcp: connection refused: false
}

func ExampleBudget() {
	budget := policy.NewBudget(&policy.BudgetOptions{Capacity: 10})
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 3 {
		_, ok := budget.Take(now, false)
		at, _ := budget.Ready(now, false)
		fmt.Println(ok, budget.Tokens(now), at.Sub(now).Round(time.Millisecond))
	}
	// Output:
	// true 5 0s
	// true 0 1s
	// false 0 1s
}

func ExampleDo() {
	p := policy.Policy{MinDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, Retries: 5, Backoff: policy.Doubling}
	attempts := 0
	err := policy.Do(context.Background(), p, func(context.Context) error {
		if attempts++; attempts < 3 {
			return errors.New("down")
		}
		return nil
	})
	fmt.Println(attempts, err)
	// Output: 3 <nil>
}
