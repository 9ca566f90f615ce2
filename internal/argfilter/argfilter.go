// Package argfilter finds jobs by what is in their args. No index serves that: jobs are looked at
// one by one.
package argfilter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/errandq/errand"
)

const (
	// Looked is after how many jobs a page ends, as one of [errand.Queue.Jobs] does.
	Looked = 2000
	// defaultLimit is that of [errand.ListOptions].
	defaultLimit = 100
	// most is how many bytes a condition may have.
	most = 1024
)

// Arg is a condition: the args have Value at Path, the names of fields with a dot between them.
// The value of a string is its text; that of a number, true, false and null is its JSON, as it was
// written. An object or an array has no value.
type Arg struct{ Path, Value string }

// Parse reads a condition as NAME=VALUE.
func Parse(s string) (Arg, error) {
	path, value, ok := strings.Cut(s, "=")
	switch {
	case !ok || slices.Contains(strings.Split(path, "."), ""):
		return Arg{}, &errand.FieldError{Field: "arg", Value: s, Limit: "must be NAME=VALUE, where NAME is the path of a field, such as to or address.city"}
	case len(s) > most || !utf8.ValidString(s):
		return Arg{}, &errand.FieldError{Field: "arg", Value: fmt.Sprintf("%.50s…", s), Limit: fmt.Sprintf("must be at most %d bytes of UTF-8", most)}
	}
	return Arg{path, value}, nil
}

// String returns what Parse reads.
func (a Arg) String() string { return a.Path + "=" + a.Value }

// Match reports whether args meet all conditions. What is no JSON meets none.
func Match(all []Arg, args json.RawMessage) bool {
	return !slices.ContainsFunc(all, func(a Arg) bool {
		at := args
		for name := range strings.SplitSeq(a.Path, ".") {
			var fields map[string]json.RawMessage
			if json.Unmarshal(at, &fields) != nil {
				return true
			}
			if at = fields[name]; at == nil { // not there: a null has four letters
				return true
			}
		}
		switch at = bytes.TrimSpace(at); at[0] {
		case '{', '[':
			return true
		case '"':
			var text string
			return json.Unmarshal(at, &text) != nil || text != a.Value
		}
		return string(at) != a.Value
	})
}

// List returns a page of the jobs that keep lets through, of the list which next returns page by
// page. It ends if it is more than half full, so that the last places are not filled one by one, or
// after Looked jobs, and is Partial then.
func List(ctx context.Context, o errand.ListOptions, next func(context.Context, *errand.ListOptions) (errand.JobPage, error),
	keep func(*errand.JobInfo) (bool, error),
) (page errand.JobPage, err error) {
	limit := cmp.Or(o.Limit, defaultLimit)
	page.Jobs = []errand.JobInfo{}
	for {
		o.Limit = limit - len(page.Jobs)
		some, err := next(ctx, &o)
		if err != nil {
			return page, err
		}
		page.Looked, page.Next = page.Looked+max(some.Looked, len(some.Jobs)), some.Next
		for i := range some.Jobs {
			ok, err := keep(&some.Jobs[i])
			if err != nil {
				return page, err
			}
			if ok {
				page.Jobs = append(page.Jobs, some.Jobs[i])
			}
		}
		if o.After = page.Next; o.After == "" || len(page.Jobs) > limit/2 || page.Looked >= Looked {
			page.Partial = page.Next != "" && len(page.Jobs) < limit
			return page, nil
		}
	}
}
