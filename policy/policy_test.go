package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/policy"
)

func TestPolicy_Zero(t *testing.T) {
	var p policy.Policy
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for _, retry := range []int{-1, 0, 1, math.MaxInt} {
		if phase, d, ok := p.Next(retry); phase != policy.PhaseFirst || d != 0 || ok {
			t.Errorf("Next(%d) = %v %v %v", retry, phase, d, ok)
		}
	}
	if p.Total() != 0 {
		t.Errorf("total %v", p.Total())
	}
}

func TestPolicy_Default(t *testing.T) {
	p := policy.Default()
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	all := delays(p)
	if len(all) != 27 {
		t.Errorf("%d retries, want 27", len(all))
	}
	// 2 x 1 s, 1 + 2 + ... + 2048 s, 12 x 1 h.
	if want := (2 + 4095 + 12*3600) * time.Second; p.Total() != want {
		t.Errorf("total %v, want %v", p.Total(), want)
	}
	if want := (2*1000 + 4095*1000 + 12*3600*1000) * time.Millisecond / 2; p.ShortestTotal() != want {
		t.Errorf("shortest total %v, want %v", p.ShortestTotal(), want)
	}
	if all[3] != time.Second || all[14] != 2048*time.Second || all[15] != time.Hour {
		t.Errorf("backoff phase from %v to %v, then %v", all[3], all[14], all[15])
	}
	if p.Jitter != policy.EqualJitter {
		t.Errorf("jitter %v", p.Jitter)
	}
}

func TestPolicy_PhaseBoundaries(t *testing.T) {
	p := policy.Policy{
		MinDelay: time.Second, MaxDelay: time.Minute, Backoff: policy.Exponential,
		Retries: 50, NoDelayRetries: 3, MinDelayRetries: 2, MaxDelayRetries: 35,
	}
	for _, test := range []struct {
		retry int
		phase policy.Phase
		delay time.Duration
		ok    bool
	}{
		{-1, policy.PhaseFirst, 0, false},
		{0, policy.PhaseImmediate, 0, true},
		{2, policy.PhaseImmediate, 0, true},
		{3, policy.PhasePreBackoff, time.Second, true},
		{4, policy.PhasePreBackoff, time.Second, true},
		{5, policy.PhaseBackoff, time.Second, true},
		{6, policy.PhaseBackoff, 1013 * time.Millisecond, true},
		{14, policy.PhaseBackoff, time.Minute, true},
		{15, policy.PhasePostBackoff, time.Minute, true},
		{49, policy.PhasePostBackoff, time.Minute, true},
		{50, policy.PhaseFirst, 0, false},
	} {
		if phase, d, ok := p.Next(test.retry); phase != test.phase || d != test.delay || ok != test.ok {
			t.Errorf("Next(%d) = %v %v %v, want %v %v %v", test.retry, phase, d, ok, test.phase, test.delay, test.ok)
		}
	}
	// The sum of the golden delays of 1..60 s in 10 steps, 2 x 1 s and 35 x 60 s.
	if want := 2205271 * time.Millisecond; p.Total() != want {
		t.Errorf("total %v, want %v", p.Total(), want)
	}
}

func TestPolicy_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		if p.Retries == 0 {
			return
		}
		retry := rapid.IntRange(0, p.Retries-1).Draw(t, "retry")
		phase, d, ok := p.Next(retry)
		if !ok {
			t.Fatal("no such retry")
		}
		backoff := p.Retries - p.MaxDelayRetries
		switch phase {
		case policy.PhaseImmediate:
			ok = retry < p.NoDelayRetries && d == 0
		case policy.PhasePreBackoff:
			ok = retry >= p.NoDelayRetries && retry < p.NoDelayRetries+p.MinDelayRetries && d == p.MinDelay
		case policy.PhaseBackoff:
			ok = retry >= p.NoDelayRetries+p.MinDelayRetries && retry < backoff && d >= p.MinDelay && d <= p.MaxDelay
		case policy.PhasePostBackoff:
			ok = retry >= backoff && d == p.MaxDelay
		default:
			ok = false
		}
		if !ok {
			t.Fatalf("Next(%d) = %v %v", retry, phase, d)
		}
		if next, later, ok := p.Next(retry + 1); ok && (next < phase || later < d) {
			t.Fatalf("%v %v is followed by %v %v", phase, d, next, later)
		}
	})
}

// Whatever the fields hold, nothing panics, and an index beyond is refused.
func TestPolicy_InvalidDoesNotPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(-5, 5), rapid.Int())
		p := policy.Policy{
			MinDelay: time.Duration(rapid.Int64().Draw(t, "min")), MaxDelay: time.Duration(rapid.Int64().Draw(t, "max")),
			Retries: n.Draw(t, "retries"), NoDelayRetries: n.Draw(t, "no"), MinDelayRetries: n.Draw(t, "min retries"),
			MaxDelayRetries: n.Draw(t, "max retries"), Backoff: policy.Backoff(rapid.Byte().Draw(t, "backoff")),
		}
		retry := n.Draw(t, "retry")
		if _, _, ok := p.Next(retry); ok && (retry < 0 || retry >= p.Retries) {
			t.Fatal("a retry out of range is ok")
		}
		_ = p.Validate()
	})
}

func TestPolicy_TotalSaturates(t *testing.T) {
	p := policy.Policy{MinDelay: math.MaxInt64, MaxDelay: math.MaxInt64, Retries: 1_000_000, MaxDelayRetries: 999_990}
	if p.Total() != math.MaxInt64 || p.ShortestTotal() != math.MaxInt64 {
		t.Errorf("total %v, shortest %v", p.Total(), p.ShortestTotal())
	}
	for step := range p.All() {
		if step.Cumulative != math.MaxInt64 {
			t.Fatalf("cumulative %v at retry %d", step.Cumulative, step.Retry)
		}
		if step.Retry > 2 {
			break
		}
	}
	if _, d, _ := p.Next(5); d != math.MaxInt64 {
		t.Errorf("delay %v", d)
	}
}

func TestPolicy_NextAllocatesNothing(t *testing.T) {
	p := policy.Policy{MaxDelay: time.Hour, Retries: 1_000_000, Backoff: policy.Exponential}
	if n := testing.AllocsPerRun(100, func() { p.Next(999_000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPolicy_Validate(t *testing.T) {
	p := policy.Policy{
		MinDelay: -1, MaxDelay: -2, Retries: -3, NoDelayRetries: 1_000_001, MinDelayRetries: -1, MaxDelayRetries: -1,
		Backoff: 77, Jitter: 78,
	}
	want := strings.TrimSpace(`
policy: MinDelay -1ns: must be at least 0s
policy: MaxDelay -2ns: must be at least 0s
policy: Retries -3: must be between 0 and 1000000
policy: NoDelayRetries 1000001: must be between 0 and 1000000
policy: MinDelayRetries -1: must be between 0 and 1000000
policy: MaxDelayRetries -1: must be between 0 and 1000000
policy: Backoff Backoff(77): must be one of linear, arithmetic, geometric, exponential, doubling, constant
policy: Jitter Jitter(78): must be one of equal, full, none`)
	err := p.Validate()
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	for _, err := range []error{err, fmt.Errorf("wrapped: %w", err), errors.Join(errors.New("other"), err)} {
		if n := len(policy.Faults(err)); n != 8 {
			t.Errorf("%d faults in %q, want 8", n, err)
		}
	}
	if policy.Faults(nil) != nil || policy.Faults(errors.New("other")) != nil {
		t.Error("faults out of nothing")
	}
	if _, err := json.Marshal(p); err == nil {
		t.Error("written although its functions have no names")
	}
	p = policy.Policy{MinDelay: 1500 * time.Millisecond, MaxDelay: 2500 * time.Millisecond}
	want = strings.TrimSpace(`
policy: MinDelay 1.5s: must be between 1s and 1h0m0s, in whole seconds
policy: MaxDelay 2.5s: must be between 1.5s and 1h0m0s, from the minimum delay up, in whole seconds`)
	if err := policy.ProfileSNS.Validate(p); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	p = policy.Policy{MinDelay: 3, MaxDelay: 2, Retries: 5, NoDelayRetries: 3, MinDelayRetries: 3, MaxDelayRetries: 1}
	want = strings.TrimSpace(`
policy: MaxDelay 2ns: must be at least 3ns, from the minimum delay up
policy: MaxDelayRetries 1: must be between 0 and 0, what is left of the retries`)
	if err := p.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func BenchmarkPolicy_Next(b *testing.B) {
	p := policy.Policy{MaxDelay: time.Hour, Retries: 1_000_000, Backoff: policy.Exponential}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Next(i % 1_000_000)
	}
}
