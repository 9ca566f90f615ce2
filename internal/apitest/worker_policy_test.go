package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// The document in effect is put together section by section, and goes into the
// dead letter.
func TestWorker_PolicySectionBySection(t *testing.T) {
	retries := func(n int) *policy.Policy { return &policy.Policy{Retries: n, NoDelayRetries: n} }
	content := func(s string) *policy.Request { return &policy.Request{ContentType: s} }
	options := policy.Document{Retry: retries(5), Throttle: &policy.Throttle{MaxReceivesPerSecond: 1000}}
	mail := policy.Document{Retry: retries(4), Request: content("text/plain")}
	kind := policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: &policy.Throttle{MaxReceivesPerSecond: 500}}
	job := policy.Document{Request: content("text/csv")}
	strict := policy.Topic{Document: mail, DisableSubscriptionOverrides: true}
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: &options, Queues: map[string]errand.QueueOptions{
			"mail": {Policy: &mail}, "strict": {Policy: strict}, "plain": {},
		}})
		// They belong to the caller again.
		options.Retry.Retries, mail.Retry.Retries, mail.Request.ContentType = 0, 0, ""
		mail.Request = content("text/plain")

		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "mail", "strict", "plain"}})
		errand.Handle(w, func(_ context.Context, j *errand.Job[note]) error {
			return policy.HTTPError(j.Args.N, nil, time.Time{})
		}, errand.HandlerOptions{Policy: kind})
		errand.Handle(w, func(_ context.Context, j *errand.Job[value]) error { return errors.New("down") })
		run(t, w)
		for _, c := range []struct {
			name   string
			args   errand.Args
			o      errand.JobOptions
			want   policy.Document
			reason errand.Reason
			used   int // retries
		}{
			{"kind and options", note{N: 500}, errand.JobOptions{},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle}, errand.ReasonExhausted, 3},
			{"throttled", note{N: 429}, errand.JobOptions{},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle}, errand.ReasonExhausted, 2},
			{"permanent", note{N: 400}, errand.JobOptions{},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle}, errand.ReasonPermanent, 0},
			{"all four", note{N: 500}, errand.JobOptions{Queue: "mail", Policy: job},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle, Request: job.Request}, errand.ReasonExhausted, 3},
			{"queue", value{}, errand.JobOptions{Queue: "mail"},
				policy.Document{Retry: retries(4), Throttle: options.Throttle, Request: mail.Request}, errand.ReasonExhausted, 4},
			{"overrides disabled", note{N: 500}, errand.JobOptions{Queue: "strict", Policy: job},
				policy.Document{Retry: retries(4), Throttle: options.Throttle, Request: mail.Request}, errand.ReasonExhausted, 4},
			{"options", value{}, errand.JobOptions{Queue: "plain"},
				policy.Document{Retry: retries(5), Throttle: options.Throttle}, errand.ReasonExhausted, 5},
			{"job", value{}, errand.JobOptions{Policy: policy.Policy{}},
				policy.Document{Retry: retries(0), Throttle: options.Throttle}, errand.ReasonExhausted, 0},
		} {
			id := enqueue(t, q, c.args, &c.o)
			time.Sleep(time.Minute)
			synctest.Wait()
			got := lookUp(t, q, id)
			if got.State != errand.Dead || got.Reason != c.reason || got.Retry != c.used {
				t.Errorf("%s: %s %q after %d retries, want %q after %d", c.name, got.State, got.Reason, got.Retry, c.reason, c.used)
			}
			if !reflect.DeepEqual(got.Policy, &c.want) {
				a, _ := json.Marshal(got.Policy)
				b, _ := json.Marshal(c.want)
				t.Errorf("%s: policy %s, want %s", c.name, a, b)
			}
		}
	})
}

// A hint that an error brings along is a floor, as errand.RetryAfter is.
func TestWorker_HintOfTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, &errand.WorkerOptions{MaxRetryAfter: time.Hour})
		errand.Handle(w, func(_ context.Context, j *errand.Job[note]) error {
			return fmt.Errorf("send: %w", &policy.StatusError{Status: 503, After: time.Duration(j.Args.N) * time.Minute})
		})
		run(t, w)
		for minutes, want := range map[int]time.Duration{10: 10 * time.Minute, 1000: time.Hour} {
			id := enqueue(t, q, note{N: minutes}, nil)
			synctest.Wait()
			if got := time.Until(lookUp(t, q, id).DueAt); got < want || got > want+want/10 {
				t.Errorf("%d minutes: due in %v, want %v or up to a tenth more", minutes, got, want)
			}
		}
	})
}

func TestWorker_RulesOfKindAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{
			Policy: policy.Policy{Retries: 1, NoDelayRetries: 1},
			Queues: map[string]errand.QueueOptions{"mail": {Rules: policy.Rules{policy.Otherwise(policy.Permanent)}}},
		})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "mail"}})
		fail := func() error { return policy.HTTPError(404, nil, time.Time{}) }
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return fail() },
			errand.HandlerOptions{Rules: policy.Rules{}})
		errand.Handle(w, func(_ context.Context, j *errand.Job[value]) error {
			if j.Queue == "mail" {
				return errors.New("plain")
			}
			return fail()
		})
		run(t, w)
		for _, c := range []struct {
			args  errand.Args
			queue string
			want  errand.Reason
		}{
			{note{}, "default", errand.ReasonExhausted}, {note{}, "mail", errand.ReasonExhausted},
			{value{}, "default", errand.ReasonPermanent}, {value{}, "mail", errand.ReasonPermanent},
		} {
			id := enqueue(t, q, c.args, &errand.JobOptions{Queue: c.queue})
			synctest.Wait()
			if got := lookUp(t, q, id); got.Reason != c.want {
				t.Errorf("%T in %s: %s %q, want %q", c.args, c.queue, got.State, got.Reason, c.want)
			}
		}
	})
}

// Ten jobs that always fail are each dead within the totals of their policy, which
// are what "errand policy show" prints. Of the policies with more than 1,000 retries,
// only the first of the last phase are kept.
func TestWorker_PolicyTotals(t *testing.T) {
	const jobs, most = 10, 120
	for name, p := range map[string]policy.Policy{
		"Default": policy.Default(), "SNSManaged": policy.SNSManaged(), "SNSCustomer": policy.SNSCustomer(),
		"SNSHTTP": policy.SNSHTTP(), "SDKStandard": policy.SDKStandard(), "QLDB": policy.QLDB(), "Webhook": policy.Webhook(),
		"Exponential100ms": policy.Exponential100ms(10, time.Minute), "Forever": policy.Forever(time.Hour),
	} {
		if p.Retries > 1000 {
			p.MaxDelayRetries -= p.Retries - most
			p.Retries = most
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := memoryQueue(t, errand.Options{Policy: p})
				w := errand.NewWorker(q, &errand.WorkerOptions{LeaseDuration: time.Hour})
				var first [jobs]time.Time
				errand.Handle(w, func(_ context.Context, j *errand.Job[note]) error {
					if j.Attempt == 1 {
						first[j.Args.N] = time.Now()
					}
					return errors.New("down")
				})
				stop := run(t, w)
				var ids [jobs]errand.ID
				for i := range ids {
					ids[i] = enqueue(t, q, note{N: i}, nil)
				}
				time.Sleep(p.Total() + time.Minute)
				synctest.Wait()
				for i, id := range ids {
					j := lookUp(t, q, id)
					took := j.EndedAt.Sub(first[i])
					if j.State != errand.Dead || j.Retry != p.Retries || took < p.ShortestTotal() || took > p.Total() {
						t.Errorf("job %d: %s, %d retries in %v, want %d in %v to %v",
							i, j.State, j.Retry, took, p.Retries, p.ShortestTotal(), p.Total())
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The retries to come are those that the policy has left, each after the one before.
func TestJobInfo_Coming(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := policy.Policy{Retries: 4, NoDelayRetries: 1, MinDelay: time.Minute, MaxDelay: time.Minute}
	text := func(j errand.JobInfo) string {
		var all []string
		for _, c := range j.Coming(p, now) {
			all = append(all, fmt.Sprintf("%d %s %s", c.Retry, c.Phase, c.At.Sub(now)))
		}
		return strings.Join(all, ", ")
	}
	if forever := (&errand.JobInfo{State: errand.Running}).Coming(policy.Forever(time.Hour), now); len(forever) != 10 {
		t.Errorf("%d retries of a policy without an end", len(forever))
	}
	for want, j := range map[string]errand.JobInfo{
		"1 immediate 0s, 2 backoff 1m0s, 3 backoff 2m0s, 4 backoff 3m0s":           {State: errand.Running, DueAt: now.Add(-time.Hour)},
		"2 backoff 30s, 3 backoff 1m30s, 4 backoff 2m30s":                          {State: errand.Scheduled, Retry: 2, DueAt: now.Add(30 * time.Second)},
		"1 immediate 1h0m0s, 2 backoff 1h1m0s, 3 backoff 1h2m0s, 4 backoff 1h3m0s": {State: errand.Scheduled, DueAt: now.Add(time.Hour)},
		"": {State: errand.Dead, Retry: 2},
	} {
		if got := text(j); got != want {
			t.Errorf("%s, retry %d: %q, want %q", j.State, j.Retry, got, want)
		}
	}
}
