package policy

import (
	"errors"
	"slices"
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
	contains(err, func(err error) bool {
		f, ok := err.(*Fault) //nolint:errorlint // each error of the tree by itself
		if ok {
			all = append(all, f)
		}
		return false
	})
	return all
}

// contains reports whether err, or an error that it wraps, matches. It looks at the
// whole tree, in the order of errors.As, which finds only types.
func contains(err error, match func(error) bool) bool {
	if err == nil || match(err) {
		return err != nil
	}
	switch e := err.(type) { //nolint:errorlint // walks the tree itself
	case interface{ Unwrap() error }:
		return contains(e.Unwrap(), match)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(inner error) bool { return contains(inner, match) })
	}
	return false
}

func join(faults []*Fault) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

const maxQuoted = 60 // bytes of a value shown in a fault

func shorten(s string) string { return cut(s, maxQuoted) }

// cut returns s, or if it is longer so many bytes of it and dots.
func cut(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

func quote(s string) string { return strconv.Quote(shorten(s)) }

func oneOf(names []string) string { return "must be one of " + strings.Join(names, ", ") }
