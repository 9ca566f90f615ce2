package policy_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/policy"
)

func TestPolicy_All(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		if p.Retries > 20_000 {
			p = policy.Default()
		}
		n, sum, shortest := 0, time.Duration(0), time.Duration(0)
		for step := range p.All() {
			phase, delay, ok := p.Next(n)
			sum += delay
			shortest += p.Jitter.Apply(phase, delay, 0)
			if !ok || step != (policy.Step{Retry: n, Phase: phase, Delay: delay, Cumulative: sum}) {
				t.Fatalf("step %+v, Next(%d) = %v %v %v, sum %v", step, n, phase, delay, ok, sum)
			}
			n++
		}
		if n != p.Retries || sum != p.Total() {
			t.Fatalf("%d steps in %v, want %d in %v", n, sum, p.Retries, p.Total())
		}
		if got := p.ShortestTotal(); got != shortest {
			t.Fatalf("shortest total %v, want %v", got, shortest)
		}
		for phase, want := range counts(p) {
			if got := p.Count(policy.PhaseImmediate + policy.Phase(phase)); got != want {
				t.Fatalf("Count gives %d, want %d", got, want)
			}
		}
	})
}

func TestPolicy_All_StopsWhenAsked(t *testing.T) {
	n := 0
	for range policy.Forever(time.Hour).All() {
		if n++; n == 5 {
			break
		}
	}
	if n != 5 {
		t.Errorf("%d steps", n)
	}
}

func TestPolicy_All_KeepsNoMemory(t *testing.T) {
	p := policy.SNSManaged()
	walk := func() {
		for range p.All() {
		}
		p.Total()
	}
	if n := testing.AllocsPerRun(1, walk); n > 10 {
		t.Errorf("%v allocations for %d retries", n, p.Retries)
	}
}

func TestPolicy_Lint(t *testing.T) {
	const s = time.Second
	long := policy.Policy{MinDelay: s, MaxDelay: time.Hour, Retries: 100, Backoff: policy.Exponential}
	for _, test := range []struct {
		name string
		p    policy.Policy
		want []string // a part of each warning
	}{
		{"zero", policy.Policy{}, nil},
		{"Default", policy.Default(), nil},
		{"SNSManaged", policy.SNSManaged(), nil},
		{"SNSCustomer", policy.SNSCustomer(), nil},
		{"SNSHTTP", policy.SNSHTTP(), nil},
		{"Webhook", policy.Webhook(), nil},
		{"QLDB", policy.QLDB(), []string{"ends after 300ms: an outage of 30s"}},
		{"too short with jitter", policy.Policy{MinDelay: 10 * s, MaxDelay: 10 * s, Retries: 4}, []string{"ends after 20s to 40s: an outage of 30s"}},
		{"exponential, long", long, []string{"95 of 100 delays of the backoff phase are nearly the minimum (1s): exponential"}},
		{"immediate", policy.Policy{Retries: 11, NoDelayRetries: 11}, []string{"ends after 0s", "11 retries without any delay"}},
		{"no jitter", policy.Policy{MinDelay: time.Minute, MaxDelay: time.Minute, Retries: 1, Jitter: policy.NoJitter}, []string{"no jitter"}},
		{"doubling from 0", policy.Policy{MaxDelay: s, Retries: 9, Backoff: policy.Doubling}, []string{"ends after 0s", "minimum delay is 0", "doubling from 0"}},
		{"equal", policy.Policy{MinDelay: time.Minute, MaxDelay: time.Minute, Retries: 2, Backoff: policy.Geometric}, []string{"function geometric has no effect"}},
		{"jump", policy.Policy{MinDelay: s, MaxDelay: time.Hour, Retries: 5, MaxDelayRetries: 2, Backoff: policy.Doubling}, []string{"ends at 4s, and the post-backoff phase goes on with 1h0m0s"}},
		{"one", policy.Policy{MinDelay: time.Minute, MaxDelay: time.Hour, Retries: 1}, []string{"backoff phase of one retry"}},
		{"constant", policy.Policy{MinDelay: time.Minute, MaxDelay: time.Hour, Retries: 2, Backoff: policy.Constant}, []string{"constant stays at the minimum"}},
		{"no backoff", policy.Policy{MinDelay: time.Minute, MaxDelay: time.Hour, Retries: 2, MinDelayRetries: 2}, []string{"neither a backoff nor a post-backoff"}},
		{"none", policy.Policy{NoDelayRetries: 5}, []string{"Retries counts those of all phases, so set it to 5 or more"}},
		{"none meant", policy.Policy{}, nil},
		{"endless", policy.Policy{MinDelay: 1 << 62, MaxDelay: 1 << 62, Retries: 9}, []string{"more than 292 years"}},
	} {
		got := test.p.Lint()
		if len(got) != len(test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: %q, want %q", test.name, got[i], want)
			}
		}
	}
}

func BenchmarkPolicy_All(b *testing.B) {
	p := policy.Policy{MinDelay: time.Second, MaxDelay: time.Hour, Retries: 1_000_000, Backoff: policy.Exponential}
	for b.Loop() {
		for range p.All() {
		}
	}
}
