package policy_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/policy"
)

var almostOne = math.Nextafter(1, 0)

func TestJitter_Apply(t *testing.T) {
	const d = 10 * time.Second
	for _, test := range []struct {
		jitter policy.Jitter
		phase  policy.Phase
		u      float64
		want   time.Duration
	}{
		{policy.EqualJitter, policy.PhaseBackoff, 0, d / 2},
		{policy.EqualJitter, policy.PhaseBackoff, 0.5, d * 3 / 4},
		{policy.FullJitter, policy.PhasePreBackoff, 0, 0},
		{policy.FullJitter, policy.PhasePostBackoff, 0.25, d / 4},
		{policy.NoJitter, policy.PhaseBackoff, 0.5, d},
		{policy.EqualJitter, policy.PhaseImmediate, 0, d},
		{policy.FullJitter, policy.PhaseFirst, 0, d},
	} {
		if got := test.jitter.Apply(test.phase, d, test.u); got != test.want {
			t.Errorf("%s.Apply(%s, %v, %v) = %v, want %v", test.jitter, test.phase, d, test.u, got, test.want)
		}
	}
}

func TestJitter_Bounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "d"))
		u := rapid.OneOf(rapid.Float64Range(0, almostOne), rapid.Just(0.0), rapid.Just(almostOne)).Draw(t, "u")
		for _, j := range []policy.Jitter{policy.EqualJitter, policy.FullJitter, policy.NoJitter} {
			got := j.Apply(policy.PhaseBackoff, d, u)
			from, to := j.Range(policy.PhaseBackoff, d)
			if got < from || got > to || to != d {
				t.Fatalf("%s: %v is outside %v..%v", j, got, from, to)
			}
		}
	})
}

func TestFloor_Bounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		floor := time.Duration(rapid.Int64Range(-10, math.MaxInt64).Draw(t, "floor"))
		u := rapid.Float64Range(0, almostOne).Draw(t, "u")
		got := policy.Floor(d, floor, u)
		if got < d || got < floor {
			t.Fatalf("Floor(%v, %v, %v) = %v", d, floor, u, got)
		}
		if got > d && float64(got) > float64(floor)*1.1 {
			t.Fatalf("Floor(%v, %v, %v) = %v, more than 10 %% up", d, floor, u, got)
		}
	})
	if got := policy.Floor(time.Second, 10*time.Second, 0.5); got != 10500*time.Millisecond {
		t.Errorf("got %v, want 10.5s", got)
	}
}
