package policy

import (
	"math"
	"time"
)

// Backoff is the function by which delays grow from MinDelay to MaxDelay in
// the backoff phase. With n retries in that phase, the delay before its retry
// k, counted from 0, is
//
//	min + (max-min) * s(k)
//
//	Linear       s(k) = k / (n-1)
//	Arithmetic   s(k) = k(k+1) / ((n-1)n)
//	Geometric    s(k) = (2^k - 1) / (2^(n-1) - 1)
//	Exponential  s(k) = (e^k - 1) / (e^(n-1) - 1)
//
// rounded half up to a millisecond. The first is exactly min and the last
// exactly max; n = 1 gives min. At every point Linear >= Arithmetic >=
// Geometric >= Exponential.
//
// Amazon SNS documents the four names and that linear from 20 s to 40 s in
// three retries is 20, 30, 40; the formulas are this package's definition of
// the names: the increments grow as 1, as 1, 2, 3, as 1, 2, 4 and as 1, e, e^2.
//
// Doubling and Constant are not part of the SNS format. They do not depend on n:
//
//	Doubling     min(max, min * 2^k), the capped doubling of the AWS SDKs
//	Constant     min
type Backoff uint8

// The backoff functions. The zero Backoff is Linear, the default of SNS.
const (
	Linear Backoff = iota
	Arithmetic
	Geometric
	Exponential
	Doubling
	Constant
)

var backoffNames = []string{"linear", "arithmetic", "geometric", "exponential", "doubling", "constant"}

// String gives the name of the function in lower case.
func (b Backoff) String() string { return enumString("Backoff", backoffNames, b) }

// MarshalText implements [encoding.TextMarshaler].
func (b Backoff) MarshalText() ([]byte, error) { return enumText("backoffFunction", backoffNames, b) }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts what String
// gives, and nothing else.
func (b *Backoff) UnmarshalText(text []byte) error {
	return enumParse("backoffFunction", backoffNames, text, b)
}

// delay gives the nominal delay before retry k of the n in the backoff phase,
// 0 <= k < n.
func (b Backoff) delay(lo, hi time.Duration, k, n int) time.Duration {
	switch {
	case b == Constant, k == 0:
		return lo
	case b == Doubling:
		if lo > hi>>k { // that is, lo<<k > hi, but cannot overflow
			return hi
		}
		return lo << k
	case k == n-1:
		return hi
	}
	num, den := b.fraction(float64(k), float64(n-1))
	// Multiplied before it is divided, and in milliseconds, delays that lie
	// halfway between two are exact in float64 and round as the definition
	// says. The conversions keep a compiler from fusing the operations, so
	// that all architectures give the same.
	const ms = float64(time.Millisecond)
	d := float64(lo)/ms + float64(float64(float64(hi-lo)/ms*num)/den)
	r := math.Floor(d + 0.5)
	if r == d+0.5 && b >= Geometric && k > 53 {
		r-- // the -1 of 2^k - 1 is lost in a float64: it is less than half
	}
	if r >= float64(hi)/ms {
		return hi
	}
	return max(lo, time.Duration(r)*time.Millisecond)
}

// fraction gives s(k) as a fraction, 0 < k < last. For powers, both sides are
// divided by base^last, so that nothing overflows however long the phase is:
// what is too small for a float64 becomes 0, which is what it rounds to.
// As k >= 1, the subtraction cancels no more than one bit.
func (b Backoff) fraction(k, last float64) (num, den float64) {
	pow := math.Exp
	switch b {
	case Arithmetic:
		return k * (k + 1), last * (last + 1)
	case Geometric:
		pow = math.Exp2
	case Exponential:
	default:
		return k, last
	}
	return pow(k-last) - pow(-last), 1 - pow(-last)
}
