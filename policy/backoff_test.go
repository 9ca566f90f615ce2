package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/policy"
)

// backoffOnly returns a policy whose retries are all in the backoff phase.
func backoffOnly(b policy.Backoff, lo, hi time.Duration, n int) policy.Policy {
	return policy.Policy{MinDelay: lo, MaxDelay: hi, Retries: n, Backoff: b}
}

// delays returns the nominal delays of all retries of p.
func delays(p policy.Policy) []time.Duration {
	var all []time.Duration
	for retry := 0; ; retry++ {
		_, d, ok := p.Next(retry)
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// The file holds values computed with 80 decimal digits.
func TestBackoff_GoldenFile(t *testing.T) {
	data, err := os.ReadFile("testdata/backoff.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Function policy.Backoff
		MinS     float64 `json:"min_s"`
		MaxS     float64 `json:"max_s"`
		N        int
		DelaysS  []float64 `json:"delays_s"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 48 {
		t.Fatalf("%d rows in the file, want 48", len(rows))
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s/%v..%v/%d", row.Function, row.MinS, row.MaxS, row.N), func(t *testing.T) {
			got := delays(backoffOnly(row.Function, seconds(row.MinS), seconds(row.MaxS), row.N))
			if len(got) != row.N || len(row.DelaysS) != row.N {
				t.Fatalf("%d delays, want %d, and %d in the file", len(got), row.N, len(row.DelaysS))
			}
			for k, want := range row.DelaysS {
				if got[k] != seconds(want) {
					t.Errorf("delay %d: %v, want %v s", k, got[k], want)
				}
			}
		})
	}
}

func TestBackoff_OutsideTheSNSFormat(t *testing.T) {
	s := time.Second
	for _, test := range []struct {
		p    policy.Policy
		want []time.Duration
	}{
		{backoffOnly(policy.Doubling, s, 20*s, 7), []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 20 * s, 20 * s}},
		{backoffOnly(policy.Doubling, s, 3600*s, 3), []time.Duration{s, 2 * s, 4 * s}},
		{backoffOnly(policy.Doubling, 0, s, 3), []time.Duration{0, 0, 0}},
		{backoffOnly(policy.Doubling, 3, 7, 3), []time.Duration{3, 6, 7}},
		{backoffOnly(policy.Doubling, s, s, 2), []time.Duration{s, s}},
		{backoffOnly(policy.Constant, s, 20*s, 3), []time.Duration{s, s, s}},
		{backoffOnly(policy.Constant, s, 20*s, 1), []time.Duration{s}},
	} {
		if got := delays(test.p); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%+v: %v, want %v", test.p, got, test.want)
		}
	}
}

func TestBackoff_RoundsHalfUp(t *testing.T) {
	p := backoffOnly(policy.Linear, 0, 3*time.Millisecond, 3)
	if _, d, _ := p.Next(1); d != 2*time.Millisecond {
		t.Errorf("1.5 ms was rounded to %v, want 2ms", d)
	}
	for _, test := range []struct {
		p    policy.Policy
		k    int
		want time.Duration
	}{
		// (2^k - 1) / (2^(n-1) - 1) is less than half, by however little.
		{backoffOnly(policy.Geometric, 3599*time.Second, 3600*time.Second, 42), 40, 3599500 * time.Millisecond},
		{backoffOnly(policy.Geometric, 2481*time.Millisecond, 3845*time.Millisecond, 57), 53, 2651 * time.Millisecond},
		{backoffOnly(policy.Geometric, 3001811*time.Millisecond, 3002816*time.Millisecond, 47), 45, 3002313 * time.Millisecond},
		{backoffOnly(policy.Geometric, 0, time.Millisecond, 1000), 998, 0},
		// From a minimum that is halfway, the least increment rounds up.
		{backoffOnly(policy.Exponential, 2500*time.Microsecond, 5*time.Millisecond, 685), 182, 3 * time.Millisecond},
		{backoffOnly(policy.Linear, 100*time.Microsecond, 2900*time.Microsecond, 3), 1, 2 * time.Millisecond},
		// Beyond what a float64 can tell apart.
		{backoffOnly(policy.Arithmetic, 9223372036836133803, 9223372036854775741, 991949), 268420, 9223372036837 * time.Millisecond},
	} {
		if _, d, _ := test.p.Next(test.k); d != test.want {
			t.Errorf("%+v: retry %d after %v, want %v", test.p, test.k, d, test.want)
		}
	}
	// Bounds that are no whole milliseconds are kept exactly.
	p = backoffOnly(policy.Linear, 100*time.Microsecond, 200*time.Microsecond, 3)
	if got := fmt.Sprint(delays(p)); got != "[100µs 100µs 200µs]" {
		t.Errorf("got %s", got)
	}
}

func drawDelay(t *rapid.T, name string, from time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(from), int64(from)+int64(100*time.Hour)).Draw(t, name))
}

func drawPolicy(t *rapid.T) policy.Policy {
	count := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, 200_000))
	p := policy.Policy{
		NoDelayRetries:  count.Draw(t, "NoDelayRetries"),
		MinDelayRetries: count.Draw(t, "MinDelayRetries"),
		MaxDelayRetries: count.Draw(t, "MaxDelayRetries"),
		Backoff:         policy.Backoff(rapid.IntRange(0, 5).Draw(t, "Backoff")),
		Jitter:          policy.Jitter(rapid.IntRange(0, 2).Draw(t, "Jitter")),
	}
	p.MinDelay = drawDelay(t, "MinDelay", 0)
	p.MaxDelay = drawDelay(t, "MaxDelay", max(p.MinDelay, 1))
	p.Retries = p.NoDelayRetries + p.MinDelayRetries + p.MaxDelayRetries + count.Draw(t, "backoff retries")
	return p
}

// At every point linear >= arithmetic >= geometric >= exponential.
func TestBackoff_OrderOfFunctions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := time.Duration(rapid.Int64Range(0, 3_600_000).Draw(t, "min ms")) * time.Millisecond
		hi := lo + time.Duration(rapid.Int64Range(0, 3_600_000).Draw(t, "span ms"))*time.Millisecond
		n := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 1_000_000)).Draw(t, "n")
		k := rapid.IntRange(0, n-1).Draw(t, "k")
		last := hi
		for _, b := range []policy.Backoff{policy.Linear, policy.Arithmetic, policy.Geometric, policy.Exponential} {
			_, d, _ := backoffOnly(b, lo, hi, n).Next(k)
			if d > last {
				t.Fatalf("%s: %v is more than %v of the function before", b, d, last)
			}
			if n > 1 && (k == 0 && d != lo || k == n-1 && d != hi) {
				t.Fatalf("%s: end of the range is %v", b, d)
			}
			last = d
		}
	})
}

// A phase longer than any that is valid still has its delays in its range.
func TestBackoff_LongerThanValid(t *testing.T) {
	n := int(min(int64(math.MaxInt), 1<<40+1))
	for b := policy.Linear; b <= policy.Constant; b++ {
		p := backoffOnly(b, time.Second, time.Hour, n)
		for _, k := range []int{1, n / 2, n - 4, n - 2} {
			if _, d, ok := p.Next(k); !ok || d < time.Second || d > time.Hour {
				t.Errorf("%s: delay %d is %v %v", b, k, d, ok)
			}
		}
	}
}

func TestBackoff_StableWhenLong(t *testing.T) {
	const n = 100_000
	for b := policy.Linear; b <= policy.Constant; b++ {
		p := backoffOnly(b, time.Second, time.Hour, n)
		last := time.Duration(0)
		for k := range n {
			_, d, _ := p.Next(k)
			if d < last || d < p.MinDelay || d > p.MaxDelay {
				t.Fatalf("%s: delay %d is %v after %v", b, k, d, last)
			}
			last = d
		}
		if b != policy.Constant && last != time.Hour {
			t.Errorf("%s: the last delay is %v, want 1h", b, last)
		}
	}
	// Half way from the end, where the powers are far beyond a float64, the
	// last steps still halve.
	p := backoffOnly(policy.Geometric, 0, 1024*time.Second, n)
	for k := 1; k <= 10; k++ {
		if _, d, _ := p.Next(n - 1 - k); d != 1024*time.Second>>k {
			t.Errorf("%d before the end: %v, want %v", k, d, 1024*time.Second>>k)
		}
	}
}
