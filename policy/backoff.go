package policy

import (
	"math"
	"math/bits"
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
// exactly max; with n = 1 the only one is min. At every point Linear >= Arithmetic >=
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

// String returns the name of the function in lower case.
func (b Backoff) String() string { return enumString("Backoff", backoffNames, b) }

// MarshalText implements [encoding.TextMarshaler].
func (b Backoff) MarshalText() ([]byte, error) { return enumText("backoffFunction", backoffNames, b) }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts what String
// returns, and nothing else.
func (b *Backoff) UnmarshalText(text []byte) error {
	return enumParse("backoffFunction", backoffNames, text, b)
}

// delay returns the nominal delay before retry k of the n in the backoff phase,
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
	// A sum that is rounded to whole milliseconds needs no more of the increment
	// than its whole nanoseconds.
	const ms = uint64(time.Millisecond)
	d := uint64(lo) + b.increment(uint64(hi-lo), k, n-1)
	return max(lo, time.Duration(min((d+ms/2)/ms*ms, uint64(hi))))
}

// increment returns span * s(k) in whole nanoseconds, rounded down, 0 < k < last.
func (b Backoff) increment(span uint64, k, last int) uint64 {
	pow := math.Exp
	switch b {
	case Arithmetic:
		// Only in a policy that is not valid could the products overflow.
		for ; last > math.MaxInt32; last >>= 1 {
			k >>= 1
		}
		return mulDiv(span, uint64(k)*uint64(k+1), uint64(last)*uint64(last+1))
	case Geometric:
		pow = math.Exp2
	case Exponential:
	default:
		return mulDiv(span, uint64(k), uint64(last))
	}
	// Numerator and denominator are divided by base^last, so that nothing
	// overflows however long the phase is: a quotient too small for a float64
	// becomes 0, to which it rounds. As k >= 1, the subtraction cancels
	// no more than one bit. The conversions keep a compiler from fusing the
	// operations, so that all architectures compute the same.
	num, den := pow(float64(k-last))-pow(float64(-last)), 1-pow(float64(-last))
	x := float64(float64(span)*num) / den
	if b == Geometric && k >= 53 && x > 0 && x == math.Floor(x) {
		x-- // the -1 of 2^k - 1 is lost in a float64: it is less than this
	}
	return uint64(x)
}

// mulDiv returns a * num / den, rounded down, num <= den.
func mulDiv(a, num, den uint64) uint64 {
	hi, lo := bits.Mul64(a, num)
	q, _ := bits.Div64(hi, lo, den)
	return q
}
