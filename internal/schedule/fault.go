package schedule

import (
	"errors"
	"strconv"
	"strings"
)

// Fault is the reason why a spec, a zone or a rule for missed ticks was refused.
type Fault struct {
	Field string // "spec", "zone" or "missed"
	Value string // what was given, in full
	Limit string // "hour 25: must be between 0 and 23"
}

// Error returns field, value and limit on one line.
func (f *Fault) Error() string {
	return "schedule: " + f.Field + " " + quote(f.Value) + ": " + f.Limit
}

// Faults returns the single faults of err, an error of this package. It returns nil if
// there are none.
func Faults(err error) []*Fault {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Fault
		for _, e := range joined.Unwrap() {
			all = append(all, Faults(e)...)
		}
		return all
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return []*Fault{f}
	}
	return nil
}

const maxShown = 60 // bytes of a value shown in a fault

func quote(s string) string {
	if len(s) > maxShown {
		return strconv.Quote(strings.ToValidUTF8(s[:maxShown], "")+"...") + " (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.Quote(s)
}
