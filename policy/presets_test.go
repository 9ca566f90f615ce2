package policy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
)

// counts are the retries in the four phases.
func counts(p policy.Policy) [4]int {
	var n [4]int
	for step := range p.All() {
		n[step.Phase-policy.PhaseImmediate]++
	}
	return n
}

func TestPresets_Figures(t *testing.T) {
	const h = time.Hour
	for _, test := range []struct {
		name   string
		p      policy.Policy
		counts [4]int
		total  time.Duration // to within a second
	}{
		{"SNSManaged", policy.SNSManaged(), [4]int{3, 2, 10, 100_000}, 2_000_042 * time.Second},
		{"SNSCustomer", policy.SNSCustomer(), [4]int{0, 2, 10, 38}, 23_853 * time.Second},
		{"SNSHTTP", policy.SNSHTTP(), [4]int{0, 0, 3, 0}, 60 * time.Second},
		{"SDKStandard", policy.SDKStandard(), [4]int{0, 0, 2, 0}, 3 * time.Second},
		{"Exponential100ms", policy.Exponential100ms(10, time.Minute), [4]int{1, 0, 9, 0}, 102200 * time.Millisecond},
		{"Exponential100ms", policy.Exponential100ms(0, time.Minute), [4]int{}, 0},
		{"Exponential100ms", policy.Exponential100ms(3, time.Millisecond), [4]int{1, 0, 2, 0}, 2 * time.Millisecond},
		{"QLDB", policy.QLDB(), [4]int{0, 0, 4, 0}, 300 * time.Millisecond},
		{"Default", policy.Default(), [4]int{1, 2, 24, 0}, 47_297 * time.Second},
		{"Webhook", policy.Webhook(), [4]int{0, 0, 13, 8}, 271_355 * time.Second},
		{"Forever", policy.Forever(h), [4]int{1, 2, 12, 999_985}, 999_985*h + 4097*time.Second},
		{"Forever", policy.Forever(time.Millisecond), [4]int{1, 2, 1, 999_996}, 999_999 * time.Millisecond},
		{"Forever", policy.Forever(8 * time.Second), [4]int{1, 2, 4, 999_993}, (2 + 15 + 8*999_993) * time.Second},
	} {
		if err := test.p.Validate(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := counts(test.p); got != test.counts {
			t.Errorf("%s: phases %v, want %v", test.name, got, test.counts)
		}
		if got := test.p.Total(); (got - test.total).Abs() > time.Second/2 {
			t.Errorf("%s: total %v, want %v", test.name, got, test.total)
		}
	}
}

func TestPresets_Delays(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		p    policy.Policy
		want []time.Duration
	}{
		{policy.QLDB(), []time.Duration{20 * ms, 40 * ms, 80 * ms, 160 * ms}},
		{policy.SDKStandard(), []time.Duration{1000 * ms, 2000 * ms}},
		{policy.Exponential100ms(6, 2*time.Second), []time.Duration{0, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2000 * ms}},
	} {
		for retry, want := range test.want {
			if _, got, ok := test.p.Next(retry); !ok || got != want {
				t.Errorf("%+v: delay %d is %v %v, want %v", test.p, retry, got, ok, want)
			}
		}
	}
}

// Retries alone is refused, as it is no policy; with fewer of them, Default has its first delays.
func TestRetries(t *testing.T) {
	for n := range 28 {
		few := policy.Default()
		few.Retries = n
		if err := few.Validate(); err != nil {
			t.Fatal(n, err)
		}
		if got, want := fmt.Sprint(delays(few)), fmt.Sprint(delays(policy.Default())[:n]); got != want {
			t.Errorf("%d retries: %s, want %s", n, got, want)
		}
		if got := counts(few); got[0]+got[1]+got[2]+got[3] != n || few.Total() > policy.Default().Total() {
			t.Errorf("%d retries: %v in %v", n, got, few.Total())
		}
		if err := policy.Retries(n).Validate(); err != nil {
			t.Error(err)
		}
	}
	five := policy.Retries(5)
	if got := fmt.Sprint(delays(five), five.ShortestTotal(), five.Total()); got != "[15s 30s 1m0s 2m0s 4m0s] 3m52.5s 7m45s" {
		t.Error(got)
	}
	hasty := policy.Policy{Retries: 5, NoDelayRetries: 2}
	want := "MaxDelay 0s: must be above 0, or 5 retries are made at once: policy.Retries(5) has delays that double from 15s; if none are meant, set NoDelayRetries to 5"
	ran := false
	for name, err := range map[string]error{
		"Validate": hasty.Validate(),
		"Document": policy.Document{ThrottledRetry: &hasty}.Validate(),
		"Do":       policy.Do(t.Context(), hasty, func(context.Context) error { ran = true; return nil }),
		"Retrier":  (&policy.Retrier{Policy: five, ThrottledPolicy: &hasty}).Do(t.Context(), func(context.Context) error { ran = true; return nil }),
	} {
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ran {
		t.Error("an attempt was made")
	}
	said := policy.Policy{Retries: 5, NoDelayRetries: 5}
	const section = `{"minDelayTarget":0,"maxDelayTarget":0,"numRetries":5,"numNoDelayRetries":2,"numMinDelayRetries":2,"numMaxDelayRetries":1}`
	for _, text := range []string{section, `{"healthyRetryPolicy":` + section + `}`, `{"http":{"defaultHealthyRetryPolicy":` + section + `}}`} {
		_, err := policy.Parse([]byte(text), policy.ProfileQueue)
		if err == nil || !strings.HasSuffix(err.Error(), "maxDelayTarget "+strings.TrimPrefix(strings.Replace(want, "0s", "0", 1), "MaxDelay ")) {
			t.Errorf("%s: %v", text, err)
		}
		var old policy.Topic // as a row of an older build
		if err := json.Unmarshal([]byte(text), &old); err != nil || *old.Retry != said || old.Validate() != nil {
			t.Errorf("%s: %+v, %v", text, old, err)
		}
	}
}
