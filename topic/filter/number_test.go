package filter

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseNumber(t *testing.T) {
	for _, c := range []struct {
		text string
		want number
	}{
		{"300", number{30_000_000, false}}, {"300.0", number{30_000_000, false}}, {"3e2", number{30_000_000, false}},
		{"3.00E+2", number{30_000_000, false}}, {"0.003e5", number{30_000_000, false}}, {"30000000e-5", number{30_000_000, false}},
		{"0", number{}}, {"-0", number{}}, {"0e999999999999", number{}}, {"0.000", number{}}, {"007", number{700_000, false}},
		{"0.00001", number{1, false}}, {"0.000019", number{1, true}}, {"-0.000019", number{-2, true}}, {"1e-400", number{0, true}},
		{"-1e-400", number{-1, true}}, {"1e9", number{maxUnits, false}}, {"1000000000.000001", number{maxUnits, true}},
		{"1e400", number{moreUnits, false}}, {"-1e999999999999", number{-moreUnits, false}},
		{"1e30000000000000000000", number{moreUnits, false}}, {"1e-30000000000000000000", number{0, true}}, {"9999999999.999999", number{moreUnits - 1, true}},
		{"0." + strings.Repeat("0", 100) + "1e101", number{100_000, false}},
	} {
		if n, ok := parseNumber(c.text); !ok || n != c.want {
			t.Errorf("%s: %+v, %t, want %+v", c.text, n, ok, c.want)
		}
	}
	for _, text := range []string{"", "-", "+1", "1.", ".5", "1e", "1e+", "1e+-1", "0x1", "1_0", " 1", "1 ", "NaN", "Inf", "1.5.5", "1e1e1", "--1"} {
		if n, ok := parseNumber(text); ok {
			t.Errorf("%q: %+v", text, n)
		}
	}
}

// Numbers compare as exact fractions do.
func TestNumber_compare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?[0-9]{1,12}(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		n, ok := parseNumber(text)
		value, right := new(big.Rat).SetString(text)
		if !ok || !right {
			t.Fatalf("%s: %t, %t", text, ok, right)
		}
		units := rapid.OneOf(rapid.Int64Range(-maxUnits, maxUnits), rapid.Int64Range(-1000, 1000),
			rapid.Just(max(-maxUnits, min(maxUnits, n.units))), rapid.SampledFrom([]int64{maxUnits, -maxUnits})).Draw(t, "units")
		if got, want := n.compare(units), value.Cmp(big.NewRat(units, 100_000)); got != want {
			t.Fatalf("%s and %d: %d, want %d", text, units, got, want)
		}
	})
}
