package filter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a policy or an attribute.
type Fault struct {
	// Path leads to the faulty value: "$.price_usd[0].numeric[1]". A name that is
	// not plain is quoted: "$["a b"]". Long paths are shortened in the middle.
	Path string
	// Offset is the position of the faulty value, or of its name, in bytes from the
	// start of the document. It is not used for an [Attribute].
	Offset int
	// Value is the faulty value as it was written, shortened if it is long. If
	// empty, the fault is about something that is missing.
	Value string
	// Want is the rule that is broken: "must be a string".
	Want string
}

// Error returns path, value, position and rule on one line.
func (f *Fault) Error() string {
	s := "filter: " + f.Path
	if f.Value != "" {
		s += " " + f.Value
	}
	if strings.HasPrefix(f.Path, "$") {
		s += fmt.Sprintf(" at byte %d", f.Offset)
	}
	return s + ": " + f.Want
}

// Faults returns the single faults of err, which [Parse] returned, in the order of
// the document. It returns nil if there are none.
func Faults(err error) []*Fault {
	var all []*Fault
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		for _, e := range many.Unwrap() {
			all = append(all, Faults(e)...)
		}
		return all
	}
	var one *Fault
	if errors.As(err, &one) {
		all = append(all, one)
	}
	return all
}

const maxFaults = 20

func join(faults []*Fault) error {
	slices.SortStableFunc(faults, func(a, b *Fault) int { return a.Offset - b.Offset })
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// shorten cuts the middle out of a long text.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most/2], "") + "..." + strings.ToValidUTF8(s[len(s)-most/2:], "")
}

// path is the way to a value, in reverse: nil at the top. It is written only for
// faults.
type path struct {
	up    *path
	name  string
	index int // in an array, if name is not used
	array bool
}

func (p *path) field(name string) *path { return &path{up: p, name: name} }
func (p *path) item(i int) *path        { return &path{up: p, index: i, array: true} }

// String returns "$" and the steps, such as "$.store[0].prefix".
func (p *path) String() string {
	var steps []string
	for ; p != nil; p = p.up {
		switch {
		case p.array:
			steps = append(steps, "["+strconv.Itoa(p.index)+"]")
		case plain(p.name):
			steps = append(steps, "."+p.name)
		default:
			steps = append(steps, "["+strconv.Quote(shorten(p.name, 60))+"]")
		}
	}
	slices.Reverse(steps)
	return shorten("$"+strings.Join(steps, ""), 200)
}

// plain reports whether a name can be read in a path without quotes.
func plain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`."[]\`, r)
	})
}
