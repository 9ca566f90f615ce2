// Package selector makes the SQL that finds the jobs of a [storage.Filter], for all stores: its
// conditions, and the orders in which jobs are found, are told once, here. A [Dialect] says how a
// store names its tables.
//
// It runs nothing. A text is built when it is first asked for, and kept. Whatever a filter has is a
// parameter, so that a statement is found again that was prepared. A field that is zero chooses all
// by its parameter, too. A text for each set of fields would be thousands, whose plans nobody could
// look at. Only the error makes two texts of a list: a list is prepared for each page, and the
// search for errors is most of its text.
package selector

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// Walk names an order in which jobs are found, and so a text.
type Walk string

// The walks of lists, which see all jobs of an order, see [Selector.List].
const (
	ListRunning   Walk = "list running"
	ListReady     Walk = "list ready of a lane"
	ListReadyRest Walk = "list ready of a lane and a priority"
	ListScheduled Walk = "list scheduled"
	ListBlocked   Walk = "list blocked in groups"
	ListBehind    Walk = "list blocked behind keys"
	ListDead      Walk = "list dead"
	ListCause     Walk = "list dead of a cause"
	ListFinished  Walk = "list finished"
	ListKeys      Walk = "list by key"
	ListFrom      Walk = "list from a key"
	ListTag       Walk = "list of a tag"
	ListGroup     Walk = "list of a group"
)

// WithError is what the walk of a list has behind its name if the filter has an error. No other text
// of a list looks at errors.
const WithError = " with an error"

// The walks of steps, which find the jobs that match, see [Selector.Step].
const (
	StepDead          Walk = "step dead"
	StepCause         Walk = "step dead of a cause"
	StepDeadGroup     Walk = "step dead of a group"
	StepFinished      Walk = "step finished"
	StepFinishedGroup Walk = "step finished of a group"
	StepLive          Walk = "step live"
	StepLiveGroup     Walk = "step live of a group"
	StepWaiting       Walk = "step scheduled"
	StepWaitingGroup  Walk = "step scheduled of a group"
	// StepFew is StepWaiting without an order and a limit, for a store with few scheduled jobs.
	StepFew Walk = "step few scheduled"
)

// Query is a text and its arguments.
type Query struct {
	Text string
	Args []any
}

// Chosen are the columns of a query for a step.
type Chosen struct {
	ID        int64
	Salt      uint32
	CreatedAt int64 `db:"created_at"`
	EndedAt   int64 `db:"ended_at"`
}

// statement is a text with the names of its parameters.
type statement struct {
	text   string
	params []string
}

// Selector has the texts of a dialect.
type Selector struct {
	dialect Dialect
	all     map[Walk]func() statement // which builds it once
}

// search is what a text looks for: rows, in an order. Without an order it has no limit either.
type search struct {
	order string
	rows  []Rows
}

// oneState are the walks of lists of which all jobs are in one state. A list walks so only if its
// filter chooses that.
var oneState = []Walk{ListRunning, ListReady, ListReadyRest, ListScheduled, ListDead, ListCause}

// New returns the selector of a dialect.
func New(d Dialect) *Selector {
	s := &Selector{dialect: d, all: map[Walk]func() statement{}}
	for walk, q := range d.lists() {
		listed := func(r *Rows) []string { return d.listed(r, !slices.Contains(oneState, walk)) }
		s.add(walk, func() string { return d.list(q, listed) })
		s.add(walk+WithError, func() string {
			return d.list(q, func(r *Rows) []string { return append(listed(r), d.hasError(r)) })
		})
	}
	for walk, q := range d.steps() {
		s.add(walk, func() string { return d.step(q) })
	}
	from := search{"1", each([]Rows{d.Live, d.Finished, d.Dead}, "%s > @above")}
	s.add(ListFrom, func() string { return d.list(from, nil) })
	return s
}

const keys = "%s > @above AND %s < @below" // the range of keys

// lists returns what lists look for.
func (d *Dialect) lists() map[Walk]search {
	all := map[Walk]search{
		ListRunning:   {"1 DESC", each([]Rows{d.Running}, "j.state = 3 AND %s < @below")}, // sorted: few run
		ListReady:     {"4 DESC, 5, 1", []Rows{d.Live.In("j.state = 2 AND j.lane = @lane AND j.priority < @priority")}},
		ListReadyRest: {"5, 1", d.by(d.Live.In("j.state = 2 AND j.lane = @lane AND j.priority = @priority"), "j.due_at", up)},
		ListScheduled: {"5, 1", d.by(d.Live.In("j.state = 1"), "j.due_at", up)},
		ListBlocked:   {"8, 1", []Rows{d.Blocked.In(d.Blocked.Mark + " < @groups_before AND (" + d.Blocked.Mark + ", " + d.Blocked.ID + ") > (@groups_from, @above)")}},
		ListBehind:    {"1", each([]Rows{d.Behind}, "%s > @above")},
		ListDead:      {"7 DESC, 1 DESC", d.by(d.Dead, "j.ended_at", down)},
		ListFinished:  {"1 DESC", each([]Rows{d.Finished}, "%s < @below")},
		ListKeys:      {"1 DESC", each([]Rows{d.Live, d.Finished, d.Dead}, keys)},
		ListGroup:     {"1 DESC", each(meeting(d.Group.All), keys)},
	}
	if d.Tagged.From != "" {
		all[ListTag] = search{"1 DESC", each([]Rows{d.Tagged}, keys)}
	}
	if d.Dead.Cause != "" {
		all[ListCause] = search{"7 DESC, 1 DESC", d.by(d.ofCause(), "j.ended_at", down)}
	}
	return all
}

// steps returns what steps look for.
func (d *Dialect) steps() map[Walk]search {
	waits := `j.state = 1 AND ((j.attempt = 0 AND @first) OR (j.attempt > 0 AND (NOT @failed OR ` + d.Failed + `)))`
	all := map[Walk]search{
		StepDead:          {"4, 1", d.by(d.Dead, "j.ended_at", up)},
		StepDeadGroup:     {"1", each(meeting(d.Group.Dead), "%s > @above")},
		StepFinished:      {"1", each([]Rows{d.FinishedPassed}, keys)},
		StepFinishedGroup: {"1", each(meeting(d.Group.Finished), keys)},
		StepLive:          {"1", each([]Rows{d.Passed}, keys)},
		StepLiveGroup:     {"1", each(meeting(d.Group.Live), keys)},
		StepWaiting:       {"1", each([]Rows{d.Passed.In(waits)}, keys)},
		StepFew:           {"", each([]Rows{d.Few.In(waits)}, keys)},
		StepWaitingGroup:  {"1", each(each(meeting(d.Group.Waiting), waits), keys)},
	}
	if d.Dead.Cause != "" {
		all[StepCause] = search{"4, 1", d.by(d.ofCause(), "j.ended_at", up)}
	}
	return all
}

func (d *Dialect) ofCause() Rows { return d.Dead.In("j.cause = @cause AND j.cause <> 0") }

// meeting has each rows of a group left out if the filter can choose none of them.
func meeting(all []Rows) (out []Rows) {
	for _, r := range all {
		out = append(out, r.In(fmt.Sprintf("@states & %d <> 0", mask(r.States))))
	}
	return out
}

// add takes note of how the text of a walk is built.
func (s *Selector) add(walk Walk, text func() string) {
	s.all[walk] = sync.OnceValue(func() statement { return s.number(text()) })
}

// number numbers the parameters of a text.
func (s *Selector) number(text string) statement {
	parts := strings.Split(text, "@")
	var st statement
	var b strings.Builder
	b.WriteString(parts[0])
	for _, part := range parts[1:] {
		name := part
		if end := strings.IndexFunc(part, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }); end >= 0 {
			name = part[:end]
		}
		n := slices.Index(st.params, name) + 1
		if n == 0 {
			st.params = append(st.params, name)
			n = len(st.params)
		}
		b.WriteString(s.dialect.Param(n, name))
		b.WriteString(part[len(name):])
	}
	st.text = b.String()
	return st
}

// Walks returns those that there are texts of, sorted.
func (s *Selector) Walks() []Walk { return slices.Sorted(maps.Keys(s.all)) }

// Has reports whether there is a text of a walk: a dialect may lack it.
func (s *Selector) Has(w Walk) bool { return s.all[w] != nil }

// Text returns the text of a walk that there is.
func (s *Selector) Text(w Walk) string { return s.all[w]().text }

// String returns all texts, each after its walk.
func (s *Selector) String() string {
	var b strings.Builder
	for _, w := range s.Walks() {
		fmt.Fprintf(&b, "-- %s\n%s\n\n", w, s.Text(w))
	}
	return b.String()
}

// params are the names of all parameters.
var params = [...]string{
	"states", "queue", "kind", "group", "tag", "reason", "cause", "error",
	"created_from", "created_last", "due_from", "due_last", "ended_from", "ended_last",
	"at", "key", "low", "high", "past", "until", "above", "below", "limit", "lane", "priority", "groups_from", "groups_before", "first", "failed",
}

// values are those of params.
type values [len(params)]any

func (v *values) set(name string, value any) { v[slices.Index(params[:], name)] = value }

// least and most are bounds that bound nothing, which most filters have.
var least, most any = int64(math.MinInt64), int64(math.MaxInt64)

func (v *values) number(name string, n int64) {
	switch n {
	case math.MinInt64:
		v.set(name, least)
	case math.MaxInt64:
		v.set(name, most)
	default:
		v.set(name, n)
	}
}

// query returns the query of a walk. v has a value for each of its parameters.
func (s *Selector) query(w Walk, v *values) Query {
	st := s.all[w]()
	q := Query{Text: st.text, Args: make([]any, len(st.params))}
	for i, name := range st.params {
		if q.Args[i] = v[slices.Index(params[:], name)]; q.Args[i] == nil {
			panic(fmt.Sprintf("selector: %s lacks a value for %s", w, name))
		}
	}
	return q
}

// filter returns the values of a filter.
func (s *Selector) filter(f *storage.Filter) (v values) {
	v.number("states", mask(chosen(f, codes[1:])))
	v.set("queue", f.Queue)
	v.set("kind", f.Kind)
	v.set("group", rules.GroupName(f.Queue, f.Group))
	v.set("tag", f.Tag)
	v.set("reason", string(f.Reason))
	v.number("cause", f.Cause)
	v.set("error", s.dialect.Part(f.Error))
	created, due, ended := between(f.CreatedFrom, f.CreatedBefore), between(f.DueFrom, f.DueBefore), between(f.EndedFrom, f.EndedBefore)
	v.number("created_from", created.from)
	v.number("created_last", created.last())
	v.number("due_from", due.from)
	v.number("due_last", due.last())
	v.number("ended_from", ended.from)
	v.number("ended_last", ended.last())
	return v
}

// by adds the values of a walk by a time, see [Dialect.by].
func (v *values) by(p period, at, key int64, order direction) {
	low, high := max(p.from, at), p.before
	if order == down {
		low, high = p.from, min(p.before, max(at, at+1)) // if that is no time any more, at
	}
	v.number("at", at)
	v.number("key", key)
	v.number("low", low)
	v.number("high", high)
	v.number("past", max(min(p.from, p.from-1), at))
	v.number("until", min(p.before, at))
}

// codes are the states as tables have them.
var codes = []storage.State{
	1: storage.Scheduled, 2: storage.Ready, 3: storage.Running, 4: storage.Done, 5: storage.Cancelled, 6: storage.Dead, 7: storage.Blocked, 8: storage.Expired,
}

func codeOf(s storage.State) int64 { return int64(slices.Index(codes, s)) }

// mask has a bit for each state, at its code.
func mask(states []storage.State) (m int64) {
	for _, s := range states {
		m |= 1 << codeOf(s)
	}
	return m
}

// chosen returns those of states in which the filter can choose jobs.
func chosen(f *storage.Filter, states []storage.State) (out []storage.State) {
	for _, s := range states {
		if f.Has(s) {
			out = append(out, s)
		}
	}
	return out
}

// period is from one time to before another, in microseconds.
type period struct{ from, before int64 }

// last is the last time of the period. No job has the two that bound nothing.
func (p period) last() int64 {
	if p.before == math.MinInt64 || p.before == math.MaxInt64 {
		return p.before
	}
	return p.before - 1
}

// between returns a period. Bounds that are zero bound nothing.
func between(from, before time.Time) period {
	p := period{math.MinInt64, math.MaxInt64}
	if !from.IsZero() {
		p.from = Bound(from)
	}
	if !before.IsZero() {
		p.before = Bound(before)
	}
	return p
}

// Bound returns a time in microseconds. A time out of range becomes the nearest one in range: an
// overflow would choose other jobs.
func Bound(t time.Time) int64 {
	switch {
	case t.After(time.UnixMicro(math.MaxInt64)):
		return math.MaxInt64
	case t.Before(time.UnixMicro(math.MinInt64)):
		return math.MinInt64
	}
	return rules.Due(t)
}
