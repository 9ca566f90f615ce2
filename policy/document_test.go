package policy_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
)

// The subscription document of the SNS documentation's form, normalised.
const subscription = `{"healthyRetryPolicy":{"minDelayTarget":1,"maxDelayTarget":60,"numRetries":50,"numNoDelayRetries":3,` +
	`"numMinDelayRetries":2,"numMaxDelayRetries":35,"backoffFunction":"exponential"},` +
	`"throttlePolicy":{"maxReceivesPerSecond":10},"requestPolicy":{"headerContentType":"application/json"}}`

const topic = `{"http":{"defaultHealthyRetryPolicy":{"minDelayTarget":20,"maxDelayTarget":20,"numRetries":3,"numNoDelayRetries":0,` +
	`"numMinDelayRetries":0,"numMaxDelayRetries":0,"backoffFunction":"linear"},` +
	`"defaultRequestPolicy":{"headerContentType":"text/plain; charset=UTF-8"},"disableSubscriptionOverrides":true}}`

func parseDocument(t *testing.T, in string, profile policy.Profile) policy.Document {
	t.Helper()
	d, err := policy.ParseDocument([]byte(in), profile)
	if err != nil {
		t.Fatalf("%s: %v", in, err)
	}
	return d
}

func TestParseDocument_RoundTrip(t *testing.T) {
	for _, profile := range []policy.Profile{policy.ProfileQueue, policy.ProfileSNS, policy.ProfileSNSRaw} {
		d := parseDocument(t, subscription, profile)
		if d.Retry.Retries != 50 || d.Retry.Backoff != policy.Exponential || d.Throttle.MaxReceivesPerSecond != 10 {
			t.Errorf("read %+v", d)
		}
		if data, err := json.Marshal(d); err != nil || string(data) != subscription {
			t.Errorf("wrote %s %v", data, err)
		}
		top, err := policy.ParseTopic([]byte(topic), profile)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := json.Marshal(top); err != nil || string(data) != topic {
			t.Errorf("wrote %s %v", data, err)
		}
	}
}

// The file is the document with the members in another order, comments of the
// service, nulls and whitespace.
func TestParseDocument_Normalises(t *testing.T) {
	data, err := os.ReadFile("testdata/subscription.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(parseDocument(t, string(data), policy.ProfileSNS))
	if err != nil || string(got) != subscription {
		t.Errorf("wrote %s %v", got, err)
	}
}

func TestParseDocument_Absent(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: `{}`,
		`{"healthyRetryPolicy":null,"throttlePolicy":null,"requestPolicy":null}`: `{}`,
		`{"sicklyRetryPolicy":{"x":1},"guaranteed":false}`:                       `{}`,
		`{"throttlePolicy":{},"requestPolicy":{"headerContentType":null}}`:       `{"throttlePolicy":{},"requestPolicy":{"headerContentType":"text/plain; charset=UTF-8"}}`,
		`{"requestPolicy":{"headerContentType":"Application/JSON;Charset=x"}}`:   `{"requestPolicy":{"headerContentType":"application/json; charset=x"}}`,
	} {
		if got, err := json.Marshal(parseDocument(t, in, policy.ProfileSNS)); err != nil || string(got) != want {
			t.Errorf("%s: wrote %s %v, want %s", in, got, err, want)
		}
	}
	if top, err := policy.ParseTopic([]byte(`{"http":null}`), policy.ProfileSNS); err != nil || !reflect.DeepEqual(top, policy.Topic{}) {
		t.Errorf("%+v %v", top, err)
	}
}

func TestParseDocument_FaultsOfSNS(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{`{"healthyRetryPolicy":{"minDelayTarget":0,"maxDelayTarget":3601,"numRetries":101,"backoffFunction":"Linear"},"throttlePolicy":{"maxReceivesPerSecond":0}}`, `
policy: healthyRetryPolicy.minDelayTarget 0: must be between 1 and 3600
policy: healthyRetryPolicy.maxDelayTarget 3601: must be between 1 and 3600
policy: healthyRetryPolicy.numRetries 101: must be between 0 and 100
policy: healthyRetryPolicy.backoffFunction "Linear": must be one of linear, arithmetic, geometric, exponential
policy: throttlePolicy.maxReceivesPerSecond 0: must be a whole number between 1 and 2147483647`},
		{`{"healthyRetryPolicy":{"minDelayTarget":1.5,"maxDelayTarget":"20s","backoffFunction":"doubling","jitter":"full"}}`, `
policy: healthyRetryPolicy.jitter "full": is not known
policy: healthyRetryPolicy.minDelayTarget 1.5: must be a whole number of seconds between 1 and 3600
policy: healthyRetryPolicy.maxDelayTarget "20s": must be a whole number of seconds between 1 and 3600
policy: healthyRetryPolicy.backoffFunction "doubling": must be one of linear, arithmetic, geometric, exponential`},
		{`{"healthyRetryPolicy":{"numRetries":2,"numNoDelayRetries":1,"numMinDelayRetries":2}}`,
			`policy: healthyRetryPolicy.numMinDelayRetries 2: must be between 0 and 1, what is left of the retries`},
		{`{"healthyRetryPolicy":{"minDelayTarget":37,"maxDelayTarget":37,"numRetries":100}}`,
			`policy: healthyRetryPolicy.total 3700: the sum of all delays must be at most 3600`},
		{`{"healthyRetryPolicy":{"minDelayTarget":5000}}`,
			`policy: healthyRetryPolicy.minDelayTarget 5000: must be between 1 and 3600`},
		{`{"healthyRetryPolicy":{"minDelayTarget":100,"maxDelayTarget":100,"numRetries":"many"}}`,
			`policy: healthyRetryPolicy.numRetries "many": must be a whole number between 0 and 100`},
		{`{"healthyRetryPolicy":{"minDelayTarget":20.0000000001,"maxDelayTarget":2.00000000001e1}}`, `
policy: healthyRetryPolicy.minDelayTarget 20.0000000001: must be a whole number of seconds between 1 and 3600
policy: healthyRetryPolicy.maxDelayTarget 2.00000000001e1: must be a whole number of seconds between 1 and 3600`},
		{`{"healthyRetryPolicy":{"numRetries":3,"numNoDelayRetries":5,"numMinDelayRetries":-1}}`, `
policy: healthyRetryPolicy.numNoDelayRetries 5: must be between 0 and 3, what is left of the retries
policy: healthyRetryPolicy.numMinDelayRetries -1: must be between 0 and 0, what is left of the retries`},
		{`{"throttlePolicy":{"maxReceivesPerSecond":3000000000}}`,
			`policy: throttlePolicy.maxReceivesPerSecond 3000000000: must be a whole number between 1 and 2147483647`},
		{`{"healthyRetryPolicy":{"maxDelayTarget":99999999999999999999}}`,
			`policy: healthyRetryPolicy.maxDelayTarget 99999999999999999999: must be a whole number of seconds between 1 and 3600`},
		{`{"healthyRetryPolicy":{"minDelayTarget":40}}`,
			`policy: healthyRetryPolicy.maxDelayTarget 20 (the default): must be between 40 and 3600, from the minimum delay up`},
		{`{"healthyRetryPolicy":5,"throttlePolicy":{"x":{"y": 1}},"http":{},"throttledRetryPolicy":{}}`, `
policy: healthyRetryPolicy 5: must be an object
policy: throttlePolicy.x {"y":1}: is not known
policy: http {}: is not known
policy: throttledRetryPolicy {}: is not known`},
		{`{"requestPolicy":{"headerContentType":"text/html"}}`,
			`policy: requestPolicy.headerContentType "text/html": must be one of application/json, text/plain; a charset may follow`},
		{`{"requestPolicy":{"headerContentType":"text/plain; boundary=x"}}`,
			`policy: requestPolicy.headerContentType "text/plain; boundary=x": must be one of application/json, text/plain; a charset may follow`},
		{`{"requestPolicy":{"headerContentType":"text/plain; charset=x; boundary=y"}}`,
			`policy: requestPolicy.headerContentType "text/plain; charset=x; boundary=y": must be one of application/json, text/plain; a charset may follow`},
		{`{"a b\n":1}`, `policy: "a b\n" 1: is not known`},
		{`{"guaranteed":true`, `policy: document: is not JSON: unexpected end of JSON input`},
		{`null`, `policy: document null: must be an object`},
	} {
		_, err := policy.ParseDocument([]byte(test.in), policy.ProfileSNS)
		if want := strings.TrimSpace(test.want); err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v\nwant\n%s", test.in, err, want)
		}
	}
}

func TestParseTopic_Faults(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{`{"http":{"healthyRetryPolicy":{},"default":1,"defaulthealthyRetryPolicy":{},"disableSubscriptionOverrides":"no"},"x":1}`, `
policy: http.healthyRetryPolicy {}: is not known
policy: http.default 1: is not known
policy: http.defaulthealthyRetryPolicy {}: is not known
policy: http.disableSubscriptionOverrides "no": must be true or false
policy: x 1: is not known`},
		{`{"http":{"defaultHealthyRetryPolicy":{"numRetries":-1}}}`,
			`policy: http.defaultHealthyRetryPolicy.numRetries -1: must be between 0 and 100`},
		{`{"http":[]}`, `policy: http []: must be an object`},
	} {
		_, err := policy.ParseTopic([]byte(test.in), policy.ProfileSNS)
		if want := strings.TrimSpace(test.want); err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v\nwant\n%s", test.in, err, want)
		}
	}
}

func TestParse_TellsTheFormsApart(t *testing.T) {
	for in, want := range map[string]string{
		subscription: `{"http":{"defaultHealthyRetryPolicy":{"minDelayTarget":1,"maxDelayTarget":60,"numRetries":50,"numNoDelayRetries":3,` +
			`"numMinDelayRetries":2,"numMaxDelayRetries":35,"backoffFunction":"exponential"},"defaultThrottlePolicy":{"maxReceivesPerSecond":10},` +
			`"defaultRequestPolicy":{"headerContentType":"application/json"},"disableSubscriptionOverrides":false}}`,
		topic: topic,
		`{"minDelayTarget":3}`: `{"http":{"defaultHealthyRetryPolicy":{"minDelayTarget":3,"maxDelayTarget":20,"numRetries":3,"numNoDelayRetries":0,` +
			`"numMinDelayRetries":0,"numMaxDelayRetries":0,"backoffFunction":"linear"},"disableSubscriptionOverrides":false}}`,
		`{}`: `{"http":{"disableSubscriptionOverrides":false}}`,
	} {
		got, err := policy.Parse([]byte(in), policy.ProfileSNS)
		if err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if data, err := json.Marshal(got); err != nil || string(data) != want {
			t.Errorf("%s: got %s %v, want %s", in, data, err, want)
		}
	}
	for in, want := range map[string]string{
		`{"numRetries":-1}`:          `policy: numRetries -1: must be between 0 and 100`,
		`{"http":{"x":1}}`:           `policy: http.x 1: is not known`,
		`{"healthyRetryPolicy":[]}`:  `policy: healthyRetryPolicy []: must be an object`,
		`[]`:                         `policy: document []: must be an object`,
		`{"http":{},"numRetries":1}`: `policy: numRetries 1: is not known`,
	} {
		got, err := policy.Parse([]byte(in), policy.ProfileSNS)
		if err == nil || err.Error() != want || !reflect.DeepEqual(got, policy.Topic{}) {
			t.Errorf("%s: got %+v %v, want %s", in, got, err, want)
		}
	}
}

func TestParseDocument_ProfileSNSAcceptsItsLimits(t *testing.T) {
	for _, in := range []string{
		`{"healthyRetryPolicy":{"minDelayTarget":36,"maxDelayTarget":36,"numRetries":100}}`,
		`{"healthyRetryPolicy":{"minDelayTarget":3600,"maxDelayTarget":3600,"numRetries":1}}`,
		`{"healthyRetryPolicy":{"minDelayTarget":1.0,"numRetries":0}}`,
		`{"healthyRetryPolicy":{"numNoDelayRetries":1,"numMinDelayRetries":1,"numMaxDelayRetries":1}}`,
	} {
		parseDocument(t, in, policy.ProfileSNS)
	}
	parseDocument(t, `{"requestPolicy":{"headerContentType":"text/html"}}`, policy.ProfileSNSRaw)
}

func TestDocument_ProfileQueue(t *testing.T) {
	d := parseDocument(t, `{"healthyRetryPolicy":{"minDelayTarget":"250ms","maxDelayTarget":90000,"numRetries":1000000,
		"backoffFunction":"doubling","jitter":"full"},"throttledRetryPolicy":{"numRetries":9}}`, policy.ProfileQueue)
	if d.Retry.MinDelay != 250*time.Millisecond || d.Retry.Jitter != policy.FullJitter || d.ThrottledRetry.Retries != 9 {
		t.Errorf("read %+v", d)
	}
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var back policy.Document
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, d) {
		t.Errorf("%s became %+v %v", data, back, err)
	}
	// A job's own policy is the retry section of its document.
	own, err := json.Marshal(*d.Retry)
	if err != nil || !strings.Contains(string(data), `"healthyRetryPolicy":`+string(own)+`,`) {
		t.Errorf("%s is not in %s: %v", own, data, err)
	}
}

func TestTopic_Effective(t *testing.T) {
	sub := parseDocument(t, `{"healthyRetryPolicy":{"numRetries":7}}`, policy.ProfileSNS)
	top := policy.Topic{Document: parseDocument(t,
		`{"healthyRetryPolicy":{"minDelayTarget":5,"numRetries":9},"throttlePolicy":{"maxReceivesPerSecond":3}}`, policy.ProfileSNS)}
	got := top.Effective(sub, policy.SystemDefault())
	// The section is the subscription's, and what it lacks the system's, not
	// the topic's 5 s.
	if got.Retry.Retries != 7 || got.Retry.MinDelay != 20*time.Second {
		t.Errorf("retry section %+v", got.Retry)
	}
	if got.Throttle.MaxReceivesPerSecond != 3 || got.Request.ContentType != policy.DefaultContentType {
		t.Errorf("%+v %+v", got.Throttle, got.Request)
	}
	// An empty section is present: it takes the topic's away.
	sub.Throttle = &policy.Throttle{}
	if got := top.Effective(sub, policy.SystemDefault()); got.Throttle.MaxReceivesPerSecond != 0 {
		t.Errorf("%+v", got.Throttle)
	}
	top.DisableSubscriptionOverrides = true
	if got := top.Effective(sub, policy.SystemDefault()); got.Retry.Retries != 9 || got.Throttle.MaxReceivesPerSecond != 3 {
		t.Errorf("with overrides disabled: %+v %+v", got.Retry, got.Throttle)
	}
	got = policy.Topic{}.Effective(policy.Document{}, policy.SystemDefault())
	if *got.Retry != policy.SNSHTTP() || got.Throttle.MaxReceivesPerSecond != 0 {
		t.Errorf("system default: %+v", got)
	}
}

func TestDocument_For(t *testing.T) {
	managed, customer := policy.SNSManaged(), policy.SNSCustomer()
	firehose := policy.Document{Retry: &managed, ThrottledRetry: &customer}
	if firehose.For(policy.Throttled) != customer || firehose.For(policy.Retryable) != managed || firehose.For(policy.Permanent) != (policy.Policy{}) {
		t.Error("wrong policy for the class")
	}
	if firehose.For(policy.Unavailable) != managed || (policy.Document{}).For(policy.Unavailable) != policy.SNSHTTP() {
		t.Error("wrong policy for what is unavailable")
	}
	own := policy.Default()
	if d := (policy.Document{Retry: &own}).Or(firehose); d.For(policy.Throttled) != own {
		t.Error("the fallback's policy for throttling outlived its retry section")
	}
	if d := (policy.Document{}).Or(firehose); d.For(policy.Throttled) != customer {
		t.Error("the fallback's policy for throttling is lost")
	}
	if d := (policy.Document{ThrottledRetry: &own}).Or(firehose); d.For(policy.Throttled) != own || d.For(policy.Retryable) != managed {
		t.Error("the document's own policy for throttling is lost")
	}
	if (policy.Document{}).For(policy.Throttled) != policy.SNSHTTP() {
		t.Error("no system default")
	}
}
