// Package argfilter lists jobs by what no index finds, such as what is in their args: jobs are
// looked at one by one, in steps.
package argfilter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand"
)

const (
	// LookFor is for how long a list goes on looking for a page of jobs.
	LookFor = time.Second
	// Looked is how many jobs a list looks at in any case before it ends for want of time.
	Looked = 2000
	// Large is how many bytes the args on a page may have. Larger ones are read one by one to look
	// into them, so that a step takes little memory.
	Large = 16 << 10
	// step is how many jobs are read at a time to look into them.
	step = 200
	// defaultLimit is that of [errand.ListOptions].
	defaultLimit = 100
	// most is how many bytes a condition may have.
	most = 1024
)

// Arg is a condition: the args have Value at Path, the names of fields with a dot between them.
// Without a Path they have it anywhere, also in an array. The value of a string is its text; that of
// a number, true, false and null is its JSON, as it was written. An object or an array has no value.
type Arg struct{ Path, Value string }

// Parse reads a condition as NAME=VALUE, or as VALUE alone, which has = before it if there is one in it.
func Parse(s string) (Arg, error) {
	path, value, ok := strings.Cut(s, "=")
	if !ok {
		path, value = "", s
	}
	switch {
	case path+value == "" || path != "" && slices.Contains(strings.Split(path, "."), ""):
		return Arg{}, &errand.FieldError{Field: "arg", Value: fmt.Sprintf("%.50s", s), Limit: "must be a value, or NAME=VALUE, where NAME is the path of a field, such as to or address.city"}
	case len(s) > most || !utf8.ValidString(s):
		return Arg{}, &errand.FieldError{Field: "arg", Value: fmt.Sprintf("%.50s…", s), Limit: fmt.Sprintf("must be at most %d bytes of UTF-8", most)}
	}
	return Arg{path, value}, nil
}

// String returns what Parse reads.
func (a Arg) String() string {
	if a.Path == "" && !strings.Contains(a.Value, "=") {
		return a.Value
	}
	return a.Path + "=" + a.Value
}

// Match reports whether args meet all conditions. What is no JSON meets none.
func Match(all []Arg, args json.RawMessage) bool {
	var doc any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber() // as it was written
	if d.Decode(&doc) != nil {
		return len(all) == 0
	}
	return !slices.ContainsFunc(all, func(a Arg) bool {
		if a.Path == "" {
			return !a.within(doc)
		}
		at := doc
		for name := range strings.SplitSeq(a.Path, ".") {
			fields, _ := at.(map[string]any)
			inner, there := fields[name]
			if !there {
				return true
			}
			at = inner
		}
		return !a.is(at)
	})
}

// is reports whether this is the value that is asked for.
func (a Arg) is(v any) bool {
	switch v := v.(type) {
	case map[string]any, []any:
		return false
	case nil:
		return a.Value == "null"
	default:
		return fmt.Sprint(v) == a.Value
	}
}

// within reports whether this is, or has anywhere in it, the value that is asked for.
func (a Arg) within(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			if a.within(inner) {
				return true
			}
		}
		return false
	case []any:
		return slices.ContainsFunc(v, a.within)
	}
	return a.is(v)
}

// Queue is what is looked through. An [errand.Queue] is one.
type Queue interface {
	Jobs(context.Context, errand.JobFilter, *errand.ListOptions) (errand.JobPage, error)
	Job(context.Context, errand.ID) (errand.JobInfo, error)
}

// List returns a page of the jobs that f selects and keep lets through; a nil keep lets all. If
// o.Args is set, keep sees args whole, and those of more than Large bytes are not on the page. The
// list goes on in steps, each a read of its own, until the page is full, or until enough reports true
// after a step and at least Looked jobs were looked at. It is Partial then.
func List(ctx context.Context, q Queue, f errand.JobFilter, o errand.ListOptions, keep func(*errand.JobInfo) (bool, error), enough func() bool) (page errand.JobPage, err error) {
	limit := cmp.Or(o.Limit, defaultLimit)
	if page.Jobs = []errand.JobInfo{}; o.Args {
		o.MaxArgs = Large
	}
	for {
		free := limit - len(page.Jobs)
		if o.Limit = free; keep != nil && limit > 0 {
			o.Limit = max(limit, step)
		}
		some, kept, err := next(ctx, q, f, o, keep, free)
		if err != nil {
			return page, err
		}
		page.Jobs = append(page.Jobs, kept...)
		if some.Next != "" && !some.Partial && len(page.Jobs) < limit {
			some.Looked-- // the next one, which the next step looks at too
		}
		page.Looked, page.Next = page.Looked+max(some.Looked, len(some.Jobs)), some.Next
		if o.After = page.Next; o.After == "" || len(page.Jobs) == limit || page.Looked >= Looked && enough() {
			page.Partial = page.Next != "" && len(page.Jobs) < limit
			return page, nil
		}
	}
}

// next reads a step, and returns it with those of its jobs that are kept. If more are than there is
// room for, the step is read again as far as there is.
func next(ctx context.Context, q Queue, f errand.JobFilter, o errand.ListOptions, keep func(*errand.JobInfo) (bool, error), free int) (some errand.JobPage, kept []errand.JobInfo, err error) {
	for {
		if some, err = q.Jobs(ctx, f, &o); err != nil || keep == nil {
			return some, some.Jobs, err
		}
		var fit int
		if kept, fit, err = pick(ctx, q, some.Jobs, keep, free); err != nil || fit == len(some.Jobs) {
			return some, kept, err
		}
		o.Limit = fit
	}
}

// pick returns which of some jobs are kept, and up to which of them there is room.
func pick(ctx context.Context, q Queue, all []errand.JobInfo, keep func(*errand.JobInfo) (bool, error), free int) (kept []errand.JobInfo, fit int, err error) {
	for i := range all {
		whole := all[i]
		if whole.ArgsBytes > 0 {
			if whole, err = q.Job(ctx, all[i].ID); errors.Is(err, errand.ErrNotFound) { // it was deleted meanwhile
				continue
			} else if err != nil {
				return nil, 0, err
			}
		}
		switch ok, err := keep(&whole); {
		case err != nil:
			return nil, 0, err
		case ok && len(kept) == free:
			return kept, i, nil
		case ok:
			kept = append(kept, all[i])
		}
	}
	return kept, len(all), nil
}

// About returns about how many jobs a list by f looks at until its end, by the numbers of all lanes.
// It is not known of a list of which an index finds a part.
func About(f *errand.JobFilter, lanes []errand.LaneTotals) (n int64, known bool) {
	if f.Group+f.Tag != "" || !f.Parent.IsZero() || f.Origin.Device != "" || len(f.IDs) > 0 {
		return 0, false
	}
	for _, t := range []time.Time{f.CreatedFrom, f.CreatedBefore, f.DueFrom, f.DueBefore, f.EndedFrom, f.EndedBefore} {
		if !t.IsZero() {
			return 0, false
		}
	}
	wants := func(s errand.State) bool { return len(f.States) == 0 || slices.Contains(f.States, s) }
	for i := range lanes {
		s := &lanes[i].Stats
		of := (f.Queue == "" || f.Queue == s.Queue) && (f.Kind == "" || f.Kind == s.Kind)
		if wants(errand.Ready) && of { // by queue and kind, as no other state is
			n += s.Ready
		}
		for state, m := range map[errand.State]int64{errand.Running: s.Running, errand.Scheduled: s.Scheduled, errand.Blocked: s.Blocked, errand.Dead: s.Dead} {
			if wants(state) {
				n += m
			}
		}
		if wants(errand.Done) || wants(errand.Cancelled) || wants(errand.Expired) { // are in one list
			n += s.Done + s.Cancelled + s.Expired
		}
	}
	return n, true
}
