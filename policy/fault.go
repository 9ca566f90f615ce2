package policy

import (
	"errors"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a policy or a document. Functions that check
// report every fault, joined by [errors.Join], so that the text has one line for
// each. Faults are in the order of the document. In a retry section, members that
// are unknown or repeated come first, then fields in the order of
// [Policy.MarshalJSON].
type Fault struct {
	// Path names the field: a Go field for a [Policy] that was checked, or
	// the path of the member in a JSON document, with dots between names.
	Path string
	// Value is the faulty value as it was written, shortened if it is long. If
	// empty, the fault is not about a value, but about a member that is missing.
	Value string
	// Want is the rule that is broken: "must be between 0 and 100".
	Want string
}

// Error returns path, value and range on one line.
func (f *Fault) Error() string {
	s := "policy: " + f.Path
	if f.Value != "" {
		s += " " + f.Value
	}
	return s + ": " + f.Want
}

// Faults returns the single faults of err, an error of this package or one that wraps
// it. It returns nil if there are none.
func Faults(err error) []*Fault {
	var all []*Fault
	switch e := err.(type) { //nolint:errorlint // walks the tree itself, as errors.As stops at the first
	case *Fault:
		return []*Fault{e}
	case interface{ Unwrap() error }:
		return Faults(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, Faults(inner)...)
		}
	}
	return all
}

func join(faults []*Fault) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

const maxQuoted = 60 // bytes of a value shown in a fault

func shorten(s string) string {
	if len(s) > maxQuoted {
		s = strings.ToValidUTF8(s[:maxQuoted], "") + "..."
	}
	return s
}

func quote(s string) string { return strconv.Quote(shorten(s)) }

func oneOf(names []string) string { return "must be one of " + strings.Join(names, ", ") }
