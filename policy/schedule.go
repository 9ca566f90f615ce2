package policy

import (
	"iter"
	"math"
	"time"

	"github.com/errandq/errand/internal/seconds"
)

// Step is one retry of a schedule.
type Step struct {
	// Retry is the index of the retry, from 0.
	Retry int   `json:"retry"`
	Phase Phase `json:"phase"`
	// Delay is the nominal delay before the retry.
	Delay time.Duration `json:"delay_s"`
	// Cumulative is the sum of the delays up to and including this one. It
	// stops at the largest Duration (292 years).
	Cumulative time.Duration `json:"cumulative_s"`
}

// MarshalJSON writes durations in seconds.
func (s Step) MarshalJSON() ([]byte, error) { return seconds.Marshal(s) }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Step) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, s) }

// All returns all retries in order. It keeps no memory per retry: to walk
// through a million takes less than 0.1 s.
func (p Policy) All() iter.Seq[Step] {
	return func(yield func(Step) bool) {
		var sum time.Duration
		for retry := 0; ; retry++ {
			phase, delay, ok := p.Next(retry)
			if !ok {
				return
			}
			sum = plus(sum, delay)
			if !yield(Step{retry, phase, delay, sum}) {
				return
			}
		}
	}
}

// Count returns how many retries are in a phase.
func (p Policy) Count(phase Phase) int {
	switch phase {
	case PhaseImmediate:
		return min(p.NoDelayRetries, p.Retries)
	case PhasePreBackoff:
		return min(p.MinDelayRetries, p.Retries-p.Count(PhaseImmediate))
	case PhaseBackoff:
		return max(p.backoffRetries(), 0)
	case PhasePostBackoff:
		return p.MaxDelayRetries
	default:
		return 0
	}
}

// Coming is a retry that is still to be made.
type Coming struct {
	// Retry is which one it is, from 1 on.
	Retry int   `json:"retry"`
	Phase Phase `json:"phase"`
	// Delay is the nominal delay before the retry.
	Delay time.Duration `json:"delay_s"`
	// At is when it is made if all attempts before it fail at once.
	At time.Time `json:"at"`
}

// MarshalJSON writes Delay in seconds.
func (c Coming) MarshalJSON() ([]byte, error) { return seconds.Marshal(c) }

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Coming) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, c) }

// Total returns the sum of all nominal delays: the longest time between the
// first failure and the last attempt that the policy itself accounts for. Jitter
// shortens it down to [Policy.ShortestTotal]. A sum beyond the largest Duration
// (292 years) is returned as the largest Duration: such a policy has no end.
//
// Total takes time in proportion to the length of the backoff phase, but no
// memory.
func (p Policy) Total() time.Duration {
	return p.sum(func(d time.Duration) time.Duration { return d })
}

// ShortestTotal returns the sum of all delays, each as short as Jitter can make it: half
// of Total with EqualJitter, 0 with FullJitter, Total with NoJitter. A job that fails at
// once each time is dead between ShortestTotal and Total after its first failure, if
// nothing else keeps it waiting, and mostly near the middle. A sum beyond the largest
// Duration is returned as the largest Duration, as by Total.
//
// ShortestTotal takes as long as Total.
func (p Policy) ShortestTotal() time.Duration {
	return p.sum(func(d time.Duration) time.Duration {
		from, _ := p.Jitter.Range(PhaseBackoff, d) // of each phase that waits
		return from
	})
}

// sum returns the sum of what of makes of each nominal delay.
func (p Policy) sum(of func(time.Duration) time.Duration) time.Duration {
	sum := times(of(p.MinDelay), p.Count(PhasePreBackoff))
	for k, n := 0, p.Count(PhaseBackoff); k < n; k++ {
		sum = plus(sum, of(p.Backoff.delay(p.MinDelay, p.MaxDelay, k, n)))
	}
	return plus(sum, times(of(p.MaxDelay), min(p.MaxDelayRetries, p.Retries)))
}

// plus and times are sums and products of durations that are not negative.
// They stop at the largest Duration.

func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(d time.Duration, n int) time.Duration {
	if n <= 0 || d <= 0 {
		return 0
	}
	if d > math.MaxInt64/time.Duration(n) {
		return math.MaxInt64
	}
	return d * time.Duration(n)
}
