package policy

import (
	"math"
	"time"
)

// Jitter spreads retries that became due together. It shortens the nominal delay and
// never prolongs it, so that the phases and the total of a policy stay upper bounds;
// [Policy.ShortestTotal] is the lower one. The decorrelated jitter of the literature is
// not offered: it needs the previous delay, and it leaves the range of the phase.
//
// The kinds are those of "Exponential Backoff And Jitter", AWS Architecture
// Blog, 2015.
type Jitter uint8

// The kinds of jitter, d being the nominal delay and U(a, b) uniform in [a, b).
const (
	EqualJitter Jitter = iota // d/2 + U(0, d/2), the default
	FullJitter                // U(0, d)
	NoJitter                  // d
)

var jitterNames = []string{"equal", "full", "none"}

// String returns the name of the kind in lower case: "equal", "full", "none".
func (j Jitter) String() string { return enumString("Jitter", jitterNames, j) }

// MarshalText implements [encoding.TextMarshaler].
func (j Jitter) MarshalText() ([]byte, error) { return enumText("jitter", jitterNames, j) }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts what String
// returns, and nothing else.
func (j *Jitter) UnmarshalText(text []byte) error { return enumParse("jitter", jitterNames, text, j) }

// Apply returns the delay to wait: the nominal delay d of a retry in this phase, made
// shorter by u, a random number in [0, 1) that the caller draws. Delays of the first
// attempt and of the immediate phase stay as they are.
func (j Jitter) Apply(phase Phase, d time.Duration, u float64) time.Duration {
	from, to := j.Range(phase, d)
	return from + scale(to-from, u)
}

// Range returns the bounds of the results of Apply for d.
func (j Jitter) Range(phase Phase, d time.Duration) (from, to time.Duration) {
	if phase <= PhaseImmediate || d <= 0 {
		return d, d
	}
	switch j {
	case EqualJitter:
		return d / 2, d
	case FullJitter:
		return 0, d
	default:
		return d, d
	}
}

// floorJitter is the largest part of a floor that is added to it.
const floorJitter = 0.1

// Floor returns the delay to wait if the other side asked for at least floor
// (Retry-After). It is the larger of d, a delay with jitter, and of floor plus up to
// 10 %, by u, a random number in [0, 1). A floor is jittered upwards only: an earlier
// attempt would ignore it.
func Floor(d, floor time.Duration, u float64) time.Duration {
	if floor <= 0 {
		return d
	}
	longer := floor + scale(floor, u*floorJitter)
	if longer < floor { // overflow
		longer = math.MaxInt64
	}
	return max(d, longer)
}

// scale returns d * u rounded down and kept within 0 and d.
func scale(d time.Duration, u float64) time.Duration {
	f := float64(d) * u
	if f >= float64(d) {
		return d
	}
	return max(0, time.Duration(f))
}
