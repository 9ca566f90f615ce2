package policy

import (
	"iter"
	"math"
	"time"
)

// Step is one retry of a schedule.
type Step struct {
	// Retry is the index of the retry, from 0.
	Retry int
	Phase Phase
	// Delay is the nominal delay before the retry.
	Delay time.Duration
	// Cumulative is the sum of the delays up to and including this one. It
	// stops at the largest Duration (292 years).
	Cumulative time.Duration
}

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
		return p.NoDelayRetries
	case PhasePreBackoff:
		return p.MinDelayRetries
	case PhaseBackoff:
		return p.backoffRetries()
	case PhasePostBackoff:
		return p.MaxDelayRetries
	default:
		return 0
	}
}

// Total returns the sum of all nominal delays: the longest time between the
// first failure and the last attempt that the policy itself accounts for. A
// sum beyond the largest Duration (292 years) is given as that.
//
// Total takes time in proportion to the length of the backoff phase, but no
// memory.
func (p Policy) Total() time.Duration {
	sum := times(p.MinDelay, min(p.MinDelayRetries, p.Retries))
	for k, n := 0, p.backoffRetries(); k < n; k++ {
		sum = plus(sum, p.Backoff.delay(p.MinDelay, p.MaxDelay, k, n))
	}
	return plus(sum, times(p.MaxDelay, min(p.MaxDelayRetries, p.Retries)))
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
