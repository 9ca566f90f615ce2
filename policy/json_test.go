package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/policy"
)

func TestPolicy_JSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back policy.Policy
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if back != p {
			t.Fatalf("%+v became %+v through %s", p, back, data)
		}
	})
}

func TestPolicy_MarshalJSON(t *testing.T) {
	for _, test := range []struct {
		p    policy.Policy
		want string
	}{
		{policy.Policy{}, `{"minDelayTarget":0,"maxDelayTarget":0,"numRetries":0,"numNoDelayRetries":0,` +
			`"numMinDelayRetries":0,"numMaxDelayRetries":0,"backoffFunction":"linear"}`},
		{policy.Policy{MinDelay: 1500 * time.Millisecond, MaxDelay: time.Minute + 1, Retries: 2, Backoff: policy.Doubling, Jitter: policy.FullJitter},
			`{"minDelayTarget":1.5,"maxDelayTarget":60.000000001,"numRetries":2,"numNoDelayRetries":0,` +
				`"numMinDelayRetries":0,"numMaxDelayRetries":0,"backoffFunction":"doubling","jitter":"full"}`},
	} {
		if got, err := json.Marshal(test.p); err != nil || string(got) != test.want {
			t.Errorf("%+v: %s %v, want %s", test.p, got, err, test.want)
		}
	}
}

func TestPolicy_UnmarshalJSON(t *testing.T) {
	sns := policy.Policy{MinDelay: 20 * time.Second, MaxDelay: 20 * time.Second, Retries: 3}
	for _, test := range []struct {
		in   string
		want policy.Policy
	}{
		{`{}`, sns},
		{`{"minDelayTarget":null,"jitter":null}`, sns},
		{` {"minDelayTarget":"1.5s","maxDelayTarget":2.25,"numRetries":9,"numNoDelayRetries":1,"numMinDelayRetries":2,
			"numMaxDelayRetries":3,"backoffFunction":"constant","jitter":"none"} `, policy.Policy{
			MinDelay: 1500 * time.Millisecond, MaxDelay: 2250 * time.Millisecond, Retries: 9,
			NoDelayRetries: 1, MinDelayRetries: 2, MaxDelayRetries: 3, Backoff: policy.Constant, Jitter: policy.NoJitter,
		}},
		// Written as 20 s, or what a float64 makes of 0.3 s.
		{`{"minDelayTarget":2e1,"maxDelayTarget":20.0}`, sns},
		{`{"minDelayTarget":0.30000000000000004}`, policy.Policy{MinDelay: 300 * time.Millisecond, MaxDelay: 20 * time.Second, Retries: 3}},
		{`{"minDelayTarget":1e-3}`, policy.Policy{MinDelay: time.Millisecond, MaxDelay: 20 * time.Second, Retries: 3}},
	} {
		p := policy.Policy{Retries: 77, Jitter: policy.NoJitter} // is replaced, not merged
		if err := json.Unmarshal([]byte(test.in), &p); err != nil || p != test.want {
			t.Errorf("%s: %+v %v, want %+v", test.in, p, err, test.want)
		}
	}
}

func TestPolicy_UnmarshalJSON_Faults(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{`[1]`, `policy: document [1]: must be an object`},
		{`{"minDelayTarget":30}`, `policy: maxDelayTarget 20 (the default): must be at least 30, from the minimum delay up`},
		{`{"numRetries":1,"numRetries":2}`, `policy: numRetries 2: is given twice`},
		{`{"numRetries":null,"numRetries":2}`, `policy: numRetries 2: is given twice`},
		// What would follow from a value that cannot be read is no fault.
		{`{"minDelayTarget":"x","maxDelayTarget":5}`, `policy: minDelayTarget "x": must be a number of seconds between 0 and 9223372036, or a string like "1.5s"`},
		{`{"minDelayTarget":30,"maxDelayTarget":"x"}`, `policy: maxDelayTarget "x": must be a number of seconds between 0 and 9223372036, or a string like "1.5s"`},
		{`{"numRetries":"x","numNoDelayRetries":7}`, `policy: numRetries "x": must be a whole number between 0 and 1000000`},
		{`{"numRetries":1,"numNoDelayRetries":"x","numMinDelayRetries":1}`, `policy: numNoDelayRetries "x": must be a whole number between 0 and 1000000`},
		{`{"jitter":"` + strings.Repeat("é", 50) + `"}`, `policy: jitter "` + strings.Repeat("é", 29) + `...: must be one of equal, full, none`},
		{`{"minDelayTarget":{"a": 1},"maxDelayTarget":"soon","numRetries":2.5,"numNoDelayRetries":"1","backoffFunction":"cubic","jitter":7,"MinDelayTarget":1}`, `
policy: MinDelayTarget 1: is not known
policy: minDelayTarget {"a":1}: must be a number of seconds between 0 and 9223372036, or a string like "1.5s"
policy: maxDelayTarget "soon": must be a number of seconds between 0 and 9223372036, or a string like "1.5s"
policy: numRetries 2.5: must be a whole number between 0 and 1000000
policy: numNoDelayRetries "1": must be a whole number between 0 and 1000000
policy: backoffFunction "cubic": must be one of linear, arithmetic, geometric, exponential, doubling, constant
policy: jitter 7: must be one of equal, full, none`},
		{`{"minDelayTarget":-1,"numRetries":1000001}`, `
policy: minDelayTarget -1: must be at least 0
policy: numRetries 1000001: must be between 0 and 1000000`},
	} {
		p := policy.Default()
		err := json.Unmarshal([]byte(test.in), &p)
		if err == nil || err.Error() != strings.TrimSpace(test.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", test.in, err, strings.TrimSpace(test.want))
		}
		if p != policy.Default() {
			t.Errorf("%s: the policy was changed", test.in)
		}
	}
	for _, in := range []string{``, `{`, `{"a"`, `{"numRetries":1}}`, `{"numRetries":1} x`, `null x`} {
		if err := new(policy.Policy).UnmarshalJSON([]byte(in)); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

func TestEnums_TextRoundTrip(t *testing.T) {
	type all struct {
		Phase   policy.Phase
		Backoff policy.Backoff
		Jitter  policy.Jitter
		Profile policy.Profile
	}
	in := all{policy.PhasePreBackoff, policy.Doubling, policy.FullJitter, policy.ProfileSNS}
	data, err := json.Marshal(in)
	if err != nil || string(data) != `{"Phase":"pre-backoff","Backoff":"doubling","Jitter":"full","Profile":"sns"}` {
		t.Fatalf("%s %v", data, err)
	}
	var out all
	if err := json.Unmarshal(data, &out); err != nil || out != in {
		t.Errorf("%+v %v", out, err)
	}
	if _, err := policy.Phase(9).MarshalText(); err == nil {
		t.Error("a phase without a name was written")
	}
	if err := new(policy.Jitter).UnmarshalText([]byte("Equal")); err == nil {
		t.Error("upper case was accepted")
	}
}
