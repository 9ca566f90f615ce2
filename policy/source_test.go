package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/errandq/errand/policy"
)

// What is in effect for a topic's and a subscription's document, and whose it is.
func TestTopic_Sources(t *testing.T) {
	const (
		systemRetry = `"healthyRetryPolicy":{"minDelayTarget":20,"maxDelayTarget":20,"numRetries":3,"numNoDelayRetries":0,` +
			`"numMinDelayRetries":0,"numMaxDelayRetries":0,"backoffFunction":"linear"}`
		nineRetries = `"healthyRetryPolicy":{"minDelayTarget":20,"maxDelayTarget":20,"numRetries":9,"numNoDelayRetries":0,` +
			`"numMinDelayRetries":0,"numMaxDelayRetries":0,"backoffFunction":"linear"}`
		fiveRetries = `"healthyRetryPolicy":{"minDelayTarget":20,"maxDelayTarget":20,"numRetries":5,"numNoDelayRetries":0,` +
			`"numMinDelayRetries":0,"numMaxDelayRetries":0,"backoffFunction":"linear"}`
		systemRest = `"throttlePolicy":{},"requestPolicy":{"headerContentType":"text/plain; charset=UTF-8"}`
	)
	for _, c := range []struct {
		topic, subscription string
		effective           string
		sources             policy.Sources
	}{
		{`{"http":{}}`, `{}`, `{` + systemRetry + `,` + systemRest + `}`, policy.Sources{}},
		{
			`{"http":{"defaultHealthyRetryPolicy":{"numRetries":9},"defaultThrottlePolicy":{"maxReceivesPerSecond":2}}}`,
			`{"healthyRetryPolicy":{"numRetries":5},"requestPolicy":{"headerContentType":"application/json"}}`,
			`{` + fiveRetries + `,"throttlePolicy":{"maxReceivesPerSecond":2},"requestPolicy":{"headerContentType":"application/json"}}`,
			policy.Sources{Retry: policy.FromSubscription, Throttle: policy.FromTopic, Request: policy.FromSubscription},
		},
		{
			`{"http":{"defaultHealthyRetryPolicy":{"numRetries":9},"defaultRequestPolicy":{},"disableSubscriptionOverrides":true}}`,
			`{"healthyRetryPolicy":{"numRetries":5},"throttlePolicy":{"maxReceivesPerSecond":2}}`,
			`{` + nineRetries + `,` + systemRest + `}`,
			policy.Sources{Retry: policy.FromTopic, Request: policy.FromTopic},
		},
		{
			// null is absent
			`{"http":{"defaultThrottlePolicy":null,"disableSubscriptionOverrides":false}}`,
			`{"healthyRetryPolicy":null,"throttlePolicy":{"maxReceivesPerSecond":7}}`,
			`{` + systemRetry + `,"throttlePolicy":{"maxReceivesPerSecond":7},"requestPolicy":{"headerContentType":"text/plain; charset=UTF-8"}}`,
			policy.Sources{Throttle: policy.FromSubscription},
		},
	} {
		top, err := policy.ParseTopic([]byte(c.topic), policy.ProfileSNS)
		if err != nil {
			t.Fatal(err)
		}
		sub := parseDocument(t, c.subscription, policy.ProfileSNS)
		got, err := json.Marshal(top.Effective(sub, policy.SystemDefault()))
		if err != nil || string(got) != c.effective {
			t.Errorf("%s and %s: %s, %v, want %s", c.topic, c.subscription, got, err, c.effective)
		}
		if got := top.Sources(sub); got != c.sources {
			t.Errorf("%s and %s: %+v, want %+v", c.topic, c.subscription, got, c.sources)
		}
	}
}

// A retry section of the subscription decides about throttling errors too.
func TestTopic_Sources_throttledRetry(t *testing.T) {
	top := policy.Topic{Document: parseDocument(t, `{"throttledRetryPolicy":{"numRetries":9}}`, policy.ProfileQueue)}
	if got := top.Sources(policy.Document{}); got != (policy.Sources{ThrottledRetry: policy.FromTopic}) {
		t.Errorf("%+v", got)
	}
	own := parseDocument(t, `{"healthyRetryPolicy":{"numRetries":5}}`, policy.ProfileQueue)
	if got := top.Sources(own); got != (policy.Sources{Retry: policy.FromSubscription}) {
		t.Errorf("%+v", got)
	}
}

// Documents in Go may share sections.
func TestTopic_Sources_shared(t *testing.T) {
	retry := policy.Default()
	d := policy.Document{Retry: &retry}
	top := policy.Topic{Document: d}
	if got := top.Sources(d).Retry; got != policy.FromSubscription {
		t.Errorf("shared: %v", got)
	}
	top.DisableSubscriptionOverrides = true
	if got := top.Sources(d).Retry; got != policy.FromTopic {
		t.Errorf("shared, with overrides disabled: %v", got)
	}
}

func TestSource(t *testing.T) {
	for _, s := range []policy.Source{policy.FromSystem, policy.FromTopic, policy.FromSubscription} {
		text, err := s.MarshalText()
		var back policy.Source
		if err != nil || back.UnmarshalText(text) != nil || back != s || string(text) != s.String() {
			t.Errorf("%v became %s, %v, %v", s, text, err, back)
		}
	}
	var s policy.Source
	if err := s.UnmarshalText([]byte("queue")); err == nil {
		t.Error("there is a source queue")
	}
}
