package filter

import "strings"

// A unit is the smallest difference between numbers of a policy, which have five
// decimals. All of them are whole multiples of it within maxUnits.
const (
	decimals  = 5
	maxUnits  = MaxNumber * 100_000
	moreUnits = 10 * maxUnits // stands for all numbers that are larger
	maxDigits = 15            // of numbers below moreUnits
)

// number is a number of a message, rounded down to units. Together with inexact it
// says how the number compares to each number of a policy, without any error.
type number struct {
	units   int64
	inexact bool // the number is larger than units
}

// compare returns whether n is below, equal to or above a number of a policy.
func (n number) compare(units int64) int {
	switch {
	case n.units < units:
		return -1
	case n.units > units || n.inexact:
		return 1
	default:
		return 0
	}
}

// parseNumber reads a decimal number as JSON writes them, which may also begin with
// zeros. It reads numbers of any length and exponent.
func parseNumber(s string) (n number, ok bool) {
	s, negative := strings.CutPrefix(s, "-")
	mantissa, exponent, scientific := s, "", false
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		mantissa, exponent, scientific = s[:at], s[at+1:], true
	}
	whole, fraction, dotted := strings.Cut(mantissa, ".")
	if !allDigits(whole) || dotted && !allDigits(fraction) {
		return n, false
	}
	shift := 0
	if scientific {
		if shift, ok = parseExponent(exponent); !ok {
			return n, false
		}
	}
	// point is where the decimal point of the number in units is, counted from the
	// first digit that is not zero.
	point := len(whole) + shift + decimals
	if trimmed := strings.TrimLeft(whole, "0"); trimmed != "" {
		point -= len(whole) - len(trimmed)
		whole = trimmed
	} else {
		whole, trimmed = "", strings.TrimLeft(fraction, "0")
		point -= len(mantissa) - len(trimmed)
		if dotted {
			point++
		}
		fraction = trimmed
	}
	return rounded(whole, fraction, point, negative), true
}

// rounded returns the number whose digits are whole and fraction, without zeros in
// front, and which has so many digits before its point when it is counted in units.
func rounded(whole, fraction string, point int, negative bool) (n number) {
	switch {
	case whole == "" && fraction == "":
		return n
	case point > maxDigits:
		n.units = moreUnits
	default:
		for i := range point {
			n.units = n.units*10 + int64(digit(whole, fraction, i))
		}
		for i := max(0, point); i < len(whole)+len(fraction) && !n.inexact; i++ {
			n.inexact = digit(whole, fraction, i) != 0
		}
	}
	if negative {
		n.units = -n.units
		if n.inexact {
			n.units--
		}
	}
	return n
}

// digit returns digit i of a followed by b and any number of zeros.
func digit(a, b string, i int) byte {
	switch {
	case i < len(a):
		return a[i] - '0'
	case i < len(a)+len(b):
		return b[i-len(a)] - '0'
	default:
		return 0
	}
}

// parseExponent reads an exponent. A huge one is cut to one that has the same effect
// on every number in a message.
func parseExponent(s string) (exponent int, ok bool) {
	const huge = 100_000_000
	digits := strings.TrimPrefix(s, "+")
	if len(digits) == len(s) {
		digits = strings.TrimPrefix(s, "-")
	}
	if !allDigits(digits) {
		return 0, false
	}
	for i := range len(digits) {
		exponent = min(huge, exponent*10+int(digits[i]-'0'))
	}
	if s[0] == '-' {
		exponent = -exponent
	}
	return exponent, true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
