package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/argfilter"
)

// jobsData is what a list of jobs shows.
type jobsData struct {
	errand.JobPage
	Rows   []jobRow
	Filter jobsFilter
	States []stateChoice
	// Queues, Kinds and Tags are suggestions: the first of those that the page knows anyway.
	Queues, Kinds, Tags []string
	Query               template.URL // of this list, without a place, for links
	First               bool         // it is the first page
	Fields              [][2]string  // of the filter, for a form
	Sought              sought
	Fault               string // what is wrong in the filter
	// Known is true if All is how many jobs match.
	Known bool
	All   int64
	Never bool // nothing was ever enqueued
	Seen  bool // who asks may see args, or some of them
	// Cause is the one that the filter names, nil if no job is dead of it.
	Cause *errand.Cause
	Said  string      // what is chosen, in words
	Group *jobsBehind // of the group that is chosen, nil if no job waits behind a dead one
	look  *look
}

// jobsBehind are jobs that wait behind a dead one of their group.
type jobsBehind struct {
	Head errand.JobInfo
	Jobs []errand.JobInfo // the last enqueued first, at most mostBehind
	More bool
	Next []withArgs // those that run first, on the page of the job
}

// behind returns what waits behind a dead job of a group, nil if nothing does.
func (x *request) behind(queue, group string) (*jobsBehind, error) {
	head, err := headOf(x.Context(), x.b.q, queue, group)
	if err != nil || head.IsZero() {
		return nil, err
	}
	b := &jobsBehind{}
	if b.Head, err = x.b.q.Job(x.Context(), head); err != nil {
		return nil, err
	}
	if b.Jobs, b.More, err = waitBehind(x.Context(), x.b.q, queue, group, head, mostBehind); err != nil || len(b.Jobs) == 0 {
		return nil, err
	}
	return b, nil
}

// N says how many wait.
func (b *jobsBehind) N() string {
	if b.More {
		return count(len(b.Jobs)) + " or more"
	}
	return count(len(b.Jobs))
}

// Wait is N in a sentence, as 16 jobs wait, and GoOn what they do once nothing keeps them: 16 go on.
func (b *jobsBehind) Wait() string {
	if len(b.Jobs) == 1 {
		return "1 job waits"
	}
	return b.N() + " jobs wait"
}

func (b *jobsBehind) GoOn() string { return b.N() + " " + goes(int64(len(b.Jobs))) + " on" }

// Oldest returns the job that has waited longest, nil if that is not known.
func (b *jobsBehind) Oldest() *errand.JobInfo {
	if b.More {
		return nil
	}
	return &b.Jobs[len(b.Jobs)-1]
}

// jobRow is a job of a list.
type jobRow struct {
	withArgs
	Waits waiting // as far as that is known without a look at each job
}

// jobsFilter is a filter as an address has it.
type jobsFilter struct {
	State                                                 []errand.State
	Queue, Kind, Group, Tag, Error, Reason, Cause, Parent string
	Origin                                                string // a device, or a comma and an ID after it
	Times                                                 map[string]string
	Args                                                  []argfilter.Arg
	Typed                                                 []string // what Args were read from, also if one is wrong
}

// filterNames are the parameters of a filter, in the order in which it is told.
var filterNames = []string{"state", "queue", "kind", "group", "tag", "error", "arg", "reason", "cause", "parent", "origin", "created_from", "created_before", "due_from", "due_before", "ended_from", "ended_before"}

var allStates = []errand.State{errand.Running, errand.Ready, errand.Scheduled, errand.Blocked, errand.Dead, errand.Done, errand.Cancelled, errand.Expired}

// jobsLimit is how many rows a page has.
const jobsLimit = 50

// argPrefix is what the parameters of an address begin with that are about args, as in args.to=ann.
// A form has arg=to=ann.
const argPrefix = "args."

// filterOf reads a filter, as far as it can if there is an error.
func filterOf(v url.Values) (f jobsFilter, in errand.JobFilter, err error) {
	var faults []error
	fault := func(err error) { faults = append(faults, err) }
	for _, s := range v["state"] {
		if s == "" {
			continue
		}
		if !slices.Contains(allStates, errand.State(s)) {
			fault(&errand.FieldError{Field: "state", Value: s, Limit: "must be one of " + words(allStates)})
			continue
		}
		f.State = append(f.State, errand.State(s))
	}
	f.Queue, f.Kind, f.Group, f.Tag = v.Get("queue"), v.Get("kind"), v.Get("group"), v.Get("tag")
	f.Error, f.Reason, f.Cause, f.Parent, f.Origin = v.Get("error"), v.Get("reason"), v.Get("cause"), v.Get("parent"), v.Get("origin")
	in = errand.JobFilter{States: f.State, Queue: f.Queue, Kind: f.Kind, Group: f.Group, Tag: f.Tag, Error: f.Error, Reason: errand.Reason(f.Reason)}
	in.Origin.Device, in.Origin.ID, _ = strings.Cut(f.Origin, ",")
	if f.Cause != "" {
		if in.Cause, err = strconv.ParseInt(f.Cause, 10, 64); err != nil {
			fault(&errand.FieldError{Field: "cause", Value: f.Cause, Limit: "must be the number of a cause"})
			f.Cause = ""
		}
	}
	if f.Parent != "" {
		if in.Parent, err = errand.ParseID(f.Parent); err != nil {
			fault(err)
			f.Parent = ""
		}
	}
	for _, name := range sortedKeys(v) {
		path, ok := strings.CutPrefix(name, argPrefix)
		for _, value := range v[name] {
			switch {
			case ok:
				value = path + "=" + value
			case name != "arg" || value == "":
				continue
			}
			f.Typed = append(f.Typed, value)
			a, err := argfilter.Parse(value)
			if err != nil {
				fault(err)
				continue
			}
			f.Args = append(f.Args, a)
		}
	}
	f.Times = map[string]string{}
	for name, to := range map[string]*time.Time{
		"created_from": &in.CreatedFrom, "created_before": &in.CreatedBefore, "due_from": &in.DueFrom, "due_before": &in.DueBefore,
		"ended_from": &in.EndedFrom, "ended_before": &in.EndedBefore,
	} {
		if f.Times[name] = v.Get(name); f.Times[name] == "" {
			continue
		}
		if *to, err = timeOf(f.Times[name]); err != nil {
			fault(&errand.FieldError{Field: name, Value: f.Times[name], Limit: "must be a time as 2026-03-01T12:00, in UTC, or with a zone as 2026-03-01T12:00:00+01:00"})
		}
	}
	return f, in, errors.Join(faults...)
}

// timeOf reads a time that was typed, which is in UTC if it has no zone.
func timeOf(s string) (t time.Time, err error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err = time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return t, err
}

func words[S ~string](all []S) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

func jobs(x *request) (*content, error) {
	v := x.URL.Query()
	f, in, err := filterOf(v)
	if err != nil {
		return x.askAgain(f, err)
	}
	after := v.Get("after")
	if len(f.Args) > 0 && x.who.Role < Operator {
		return nil, &refusal{status: http.StatusForbidden, text: "You may not see args, nor choose jobs by them.", remedy: "It takes the role operator; yours is " + x.who.Role.String() + "."}
	}
	page, err := x.matching(f, in, after)
	if err != nil {
		return x.askAgain(f, err)
	}
	rows := x.withArgs(page.Jobs)
	page.Jobs = x.listed(page.Jobs)
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	d := &jobsData{JobPage: page, Filter: f, States: f.states(l), First: after == "", Sought: soughtBy(&in, l, &page, v)}
	d.Seen = x.who.Role >= Operator
	d.Never = l.sums().Enqueued == 0 && l.away == nil
	if in.Cause != 0 {
		if d.Cause, err = x.causeOf(&in); err != nil {
			return nil, err
		}
	}
	d.All, d.Known = f.count(l)
	said := filterText(&in)
	d.Said, d.look = strings.TrimSpace(said.before+" "+said.after), l
	if f.Queue != "" && f.Group != "" {
		if d.Group, err = x.behind(f.Queue, f.Group); err != nil && !errors.Is(err, errand.ErrNotFound) { // it has moved on
			return nil, err
		}
	}
	d.Queues, d.Kinds, d.Tags = l.names(f.Queue, page.Jobs)
	holds := l.holds()
	for i := range page.Jobs {
		d.Rows = append(d.Rows, jobRow{withArgs{page.Jobs[i], rows[i].Args}, l.waitsFor(&page.Jobs[i], holds)})
	}
	for _, name := range []string{"after", "format", "looked", "found"} {
		v.Del(name)
	}
	d.Query = encoded(v)
	for _, name := range sortedKeys(v) {
		for _, value := range v[name] {
			d.Fields = append(d.Fields, [2]string{name, value})
		}
	}
	return &content{data: d, json: page, still: d.Sought.long}, nil
}

// askAgain returns the form of a filter in which something is wrong, with what was typed.
func (x *request) askAgain(f jobsFilter, err error) (*content, error) {
	if !errors.Is(err, errand.ErrInvalid) || x.URL.Query().Get("format") == "json" {
		return nil, err
	}
	l, gone := x.look()
	if gone != nil {
		return nil, gone
	}
	d := &jobsData{Filter: f, States: f.states(l), First: true, Seen: x.who.Role >= Operator, Fault: messageOf(err), look: l}
	d.Queues, d.Kinds, d.Tags = l.names(f.Queue, nil)
	return &content{data: d, status: http.StatusBadRequest, still: true}, nil
}

// sought is how far a list has looked for jobs, over its pages so far.
type sought struct {
	Looked, Found int
	About         int64        // how many there are to look at; 0: not known
	Over          bool         // all were looked at
	Slow          bool         // many were looked at that do not match
	On            template.URL // what the next page has to know of it
	long          bool         // this page has looked at more than the least
}

// soughtBy returns how far a page has looked that those before it say so much of in its address.
func soughtBy(in *errand.JobFilter, l *look, page *errand.JobPage, v url.Values) (s sought) {
	before := func(name string) int {
		n, _ := strconv.Atoi(v.Get(name)) // else zero
		return min(max(n, 0), 1<<30)
	}
	looked := before("looked")
	s.Looked, s.Found, s.Over = looked+page.Looked, before("found")+len(page.Jobs), page.Next == ""
	s.Slow, s.long = looked > 0 || page.Partial || page.Looked > len(page.Jobs)+jobsLimit, page.Looked > argfilter.Looked
	s.About, _ = argfilter.About(in, l.lanes)
	if s.Slow {
		s.On = template.URL("&" + url.Values{"looked": {itoa(s.Looked)}, "found": {itoa(s.Found)}}.Encode())
	}
	return s
}

// Far says how far it is.
func (s *sought) Far() string {
	switch n := plural(int64(s.Looked), "job"); {
	case s.Over:
		return "All " + n + " that could match were looked at."
	case s.About > int64(s.Looked):
		n = count(s.Looked) + " of about " + plural(s.About, "job")
		fallthrough
	default:
		found := "none matches yet"
		if s.Found > 0 {
			found = count(s.Found) + " found, and there may be more"
		}
		return "Looked at " + n + " so far: " + found + "."
	}
}

// lookFor is for how long a list goes on looking.
const lookFor = argfilter.LookFor

// matching returns a page of the jobs that match, with args if the role may see some. Below Admin no
// error that is compared has what is hidden in it, and no args have: the rows, their number and
// whether there are more would answer guesses of that. A page that is open already is not read for
// long again and again.
func (x *request) matching(f jobsFilter, in errand.JobFilter, after string) (errand.JobPage, error) {
	o := errand.ListOptions{Limit: jobsLimit, After: after, Args: x.who.Role >= Operator}
	part := ""
	if x.who.Role < Admin {
		part, in.Error = strings.ToLower(in.Error), ""
	}
	keep := func(j *errand.JobInfo) (bool, error) {
		if part != "" && !strings.Contains(strings.ToLower(x.text(j.Error)), part) {
			return false, nil
		}
		if len(f.Args) == 0 {
			return true, nil
		}
		args, _, err := x.rawArgs(j.Kind, j.Args)
		return argfilter.Match(f.Args, args), err
	}
	if part == "" && len(f.Args) == 0 {
		keep = nil
	}
	looking, stop := withTimeout(x.Context(), lookFor)
	defer stop()
	return argfilter.List(x.Context(), x.b.q, in, o, keep, func() bool { return x.open || looking.Err() != nil })
}

// withArgs is a job, and the beginning of its args as the role may see them.
type withArgs struct {
	errand.JobInfo
	Args string
}

const (
	// mostArgs is how many letters of args a row shows. Of large ones it shows only the size.
	mostArgs = 60
)

// withArgs returns jobs for rows.
func (x *request) withArgs(all []errand.JobInfo) []withArgs {
	out := make([]withArgs, len(all))
	for i := range all {
		out[i] = withArgs{all[i], x.brief(&all[i])}
	}
	return out
}

// brief returns the beginning of the args of a job, as the role may see them.
func (x *request) brief(j *errand.JobInfo) string {
	if n := max(int64(len(j.Args)), j.ArgsBytes); n > argfilter.Large && x.who.Role >= Operator {
		return size(n)
	}
	doc, _, err := x.rawArgs(j.Kind, j.Args)
	if err != nil { // what is secret in them is not known
		return ""
	}
	var line bytes.Buffer
	if json.Indent(&line, doc, "", "") != nil {
		line.Reset()
		line.Write(doc)
	}
	spaced := strings.NewReplacer(",\n", ", ", "\n", "").Replace(line.String()) // to break between values
	text := []rune(strings.ToValidUTF8(visible(unescaped(spaced)), "\ufffd"))
	if len(text) > mostArgs {
		return string(text[:mostArgs]) + "…"
	}
	return string(text)
}

// Has reports whether the filter has a state.
func (f jobsFilter) Has(s errand.State) bool { return slices.Contains(f.State, s) }

// ArgBoxes returns what is in the boxes of a form for conditions on args, of which one is empty.
func (f jobsFilter) ArgBoxes() []string {
	return append(slices.Clone(f.Typed), "")
}

// order is in which order a list has the jobs of a state, see [errand.Queue.Jobs].
var order = map[errand.State]string{
	errand.Ready: "first those that run first, by queue and kind", errand.Scheduled: "the earliest due first",
	errand.Blocked: "by group, as they were enqueued", errand.Dead: "the latest death first",
}

// Order says in which order the list has its jobs.
func (f jobsFilter) Order() string {
	switch {
	case f.Group+f.Tag+f.Origin+f.Times["created_from"]+f.Times["created_before"] != "":
		return "newest first"
	case len(f.State) == 1:
		return cmp.Or(order[f.State[0]], "newest first")
	}
	return "state by state"
}

// stateChoice is a state in a form, and how many jobs are in it, if that is known, of the queue and
// kind that are chosen. Link leads to them.
type stateChoice struct {
	State  errand.State
	Chosen bool
	Known  bool
	N      int64
	Link   template.URL
}

// states returns the states that a filter can have.
func (f jobsFilter) states(l *look) (all []stateChoice) {
	for _, s := range allStates {
		c := stateChoice{State: s, Chosen: f.Has(s), Link: query("state", string(s), "queue", f.Queue, "kind", f.Kind)}
		of := f
		of.State = []errand.State{s}
		c.N, c.Known = of.count(l)
		all = append(all, c)
	}
	return all
}

// mostNames is how many names a field suggests.
const mostNames = 200

// names returns the first names of queues, of kinds in a queue, or in all if it is empty, and of the
// tags of jobs.
func (l *look) names(queue string, jobs []errand.JobInfo) (queues, kinds, tags []string) {
	all := [3]map[string]bool{{}, {}, {}}
	for i := range l.lanes {
		if s := &l.lanes[i].Stats; s.Queue != bulkQueue {
			all[0][s.Queue] = true
			if queue == "" || s.Queue == queue {
				all[1][s.Kind] = true
			}
		}
	}
	for i := range jobs {
		for _, tag := range jobs[i].Tags {
			all[2][tag] = true
		}
	}
	first := func(names map[string]bool) []string {
		sorted := sortedKeys(names)
		return sorted[:min(len(sorted), mostNames)]
	}
	return first(all[0]), first(all[1]), first(all[2])
}

// count returns how many jobs match, if the numbers of the lanes tell.
func (f jobsFilter) count(l *look) (n int64, known bool) {
	if f.Group+f.Tag+f.Error+f.Reason+f.Cause+f.Parent+f.Origin != "" || len(f.Args) > 0 {
		return 0, false
	}
	for _, t := range f.Times {
		if t != "" {
			return 0, false
		}
	}
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if f.Queue != "" && f.Queue != s.Queue || f.Kind != "" && f.Kind != s.Kind || s.Queue == bulkQueue && f.Queue == "" && f.Kind == "" {
			continue
		}
		for state, of := range byState(s) {
			if len(f.State) == 0 || f.Has(state) {
				n += of
			}
		}
	}
	return n, true
}

// byState returns how many jobs of a lane are in each state.
func byState(s *errand.LaneStats) map[errand.State]int64 {
	return map[errand.State]int64{
		errand.Scheduled: s.Scheduled, errand.Ready: s.Ready, errand.Running: s.Running, errand.Blocked: s.Blocked,
		errand.Done: s.Done, errand.Cancelled: s.Cancelled, errand.Expired: s.Expired, errand.Dead: s.Dead,
	}
}

// waiting is why a job does not run. Class and Sign are those of what has no state of its own.
type waiting struct{ Text, Class, Sign string }

// waitsFor returns why a job of a list does not run, as far as the look and its holds tell.
func (l *look) waitsFor(j *errand.JobInfo, holds []errand.HoldState) waiting {
	switch j.State {
	case errand.Running:
		if j.Cancelling {
			return waiting{Text: "is being cancelled"}
		}
	case errand.Blocked:
		if j.Group == "" {
			return waiting{Text: "behind the job with its unique key"}
		}
		return waiting{Text: "behind others of its group"}
	case errand.Scheduled:
		switch {
		case j.Unreached:
			return waiting{"the other side was away", "retry", "↻"}
		case j.Retry > 0:
			return waiting{"retry " + itoa(j.Retry), "retry", "↻"}
		case j.Attempt > 0:
			return waiting{Text: "was put off"}
		}
		return waiting{Text: "enqueued for later"}
	case errand.Ready:
		for i := range holds {
			if h := &holds[i]; h.Includes(j.Queue, j.Kind) {
				return waiting{"held: " + h.Reason, "held", "▮"}
			}
		}
		if !l.unshown && !l.served(j.Queue, j.Kind) {
			return waiting{"no worker", "held", "▮"}
		}
		if !l.unshown && len(l.taken(j.Queue, j.Kind)) > 0 {
			return waiting{Text: "no free place"}
		}
	case errand.Dead:
		return waiting{Text: string(j.Reason)}
	}
	return waiting{}
}

// period is one of the times of a filter.
type period struct{ Name, Title, Value string }

// Periods returns the times of the filter, for a form.
func (f jobsFilter) Periods() (all []period) {
	for _, name := range filterNames {
		if _, ok := f.Times[name]; ok {
			title := strings.ReplaceAll(name, "_", " ")
			all = append(all, period{name, strings.ToUpper(title[:1]) + title[1:], f.Times[name]})
		}
	}
	return all
}

// Timed reports whether a time is chosen.
func (f jobsFilter) Timed() bool {
	return slices.ContainsFunc(f.Periods(), func(p period) bool { return p.Value != "" })
}
