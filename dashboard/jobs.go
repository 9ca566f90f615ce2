package dashboard

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand"
)

// jobsData is what a list of jobs shows.
type jobsData struct {
	errand.JobPage
	Filter jobsFilter
	States []errand.State
	Query  string      // of this list, without a place, for links
	First  bool        // it is the first page
	Fields [][2]string // of the filter, for a form
}

// jobsFilter is a filter as an address has it.
type jobsFilter struct {
	State                                                 []errand.State
	Queue, Kind, Group, Tag, Error, Reason, Cause, Parent string
}

var allStates = []errand.State{errand.Running, errand.Ready, errand.Scheduled, errand.Blocked, errand.Dead, errand.Done, errand.Cancelled, errand.Expired}

// jobsLimit is how many jobs a page has.
const jobsLimit = 50

// filterOf reads a filter.
func filterOf(v url.Values) (f jobsFilter, in errand.JobFilter, err error) {
	for _, s := range v["state"] {
		if s == "" {
			continue
		}
		if !slices.Contains(allStates, errand.State(s)) {
			return f, in, &errand.FieldError{Field: "state", Value: s, Limit: "must be one of " + words(allStates)}
		}
		f.State = append(f.State, errand.State(s))
	}
	f.Queue, f.Kind, f.Group, f.Tag = v.Get("queue"), v.Get("kind"), v.Get("group"), v.Get("tag")
	f.Error, f.Reason, f.Cause, f.Parent = v.Get("error"), v.Get("reason"), v.Get("cause"), v.Get("parent")
	in = errand.JobFilter{States: f.State, Queue: f.Queue, Kind: f.Kind, Group: f.Group, Tag: f.Tag, Error: f.Error, Reason: errand.Reason(f.Reason)}
	if f.Cause != "" {
		if in.Cause, err = strconv.ParseInt(f.Cause, 10, 64); err != nil {
			return f, in, &errand.FieldError{Field: "cause", Value: f.Cause, Limit: "must be the number of a cause"}
		}
	}
	if f.Parent != "" {
		if in.Parent, err = errand.ParseID(f.Parent); err != nil {
			return f, in, err
		}
	}
	return f, in, nil
}

func words[S ~string](all []S) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

func jobs(x *request) (*content, error) {
	f, in, err := filterOf(x.URL.Query())
	if err != nil {
		return nil, err
	}
	after := x.URL.Query().Get("after")
	page, err := x.b.q.Jobs(x.Context(), in, &errand.ListOptions{Limit: jobsLimit, After: after})
	if err != nil {
		return nil, err
	}
	q := x.URL.Query()
	q.Del("after")
	q.Del("format")
	var fields [][2]string
	for _, name := range sortedKeys(q) {
		for _, v := range q[name] {
			fields = append(fields, [2]string{name, v})
		}
	}
	return &content{data: &jobsData{JobPage: page, Filter: f, States: allStates, Query: q.Encode(), First: after == "", Fields: fields}, json: page}, nil
}

// Has reports whether the filter has a state.
func (f jobsFilter) Has(s errand.State) bool { return slices.Contains(f.State, s) }

// jobData is what the page of a job shows.
type jobData struct {
	errand.JobInfo
	Why                                  errand.Why
	ArgsText, CheckpointText, ResultText string
	Secret                               bool // a role with less is shown less
	HeaderList                           [][2]string
	Attempts                             []attemptView
	PolicyText                           string
	Follows                              []errand.JobInfo
}

// attemptView is an entry of a history.
type attemptView struct {
	errand.Failure
	OldArgs string
}

func job(x *request) (*content, error) {
	id, err := errand.ParseID(x.id)
	if err != nil {
		return nil, err
	}
	info, err := x.b.q.Job(x.Context(), id)
	if err != nil {
		return nil, err
	}
	d := &jobData{JobInfo: info, Secret: x.who.Role < Admin, ArgsText: x.shown(info.Args), CheckpointText: x.shown(info.Checkpoint), ResultText: x.shown(info.Result)}
	if d.Why, err = x.b.q.Why(x.Context(), id); err != nil && !errors.Is(err, errand.ErrNotFound) { // it has gone meanwhile
		return nil, err
	}
	if x.who.Role >= Operator {
		for _, name := range sortedKeys(info.Headers) {
			value := info.Headers[name]
			if x.who.Role < Admin && hides(name) {
				value = hidden
			}
			d.HeaderList = append(d.HeaderList, [2]string{name, value})
		}
	}
	for i := range info.History {
		d.Attempts = append(d.Attempts, attemptView{info.History[i], x.shown(info.History[i].Args)})
	}
	slices.Reverse(d.Attempts)
	doc, known, err := x.b.q.PolicyOf(x.Context(), info)
	if err != nil {
		return nil, err
	}
	if known {
		d.PolicyText = asJSON(doc)
	}
	follows, err := x.b.q.Jobs(x.Context(), errand.JobFilter{Parent: id}, &errand.ListOptions{Limit: 20})
	if err != nil {
		return nil, err
	}
	d.Follows = follows.Jobs
	shown := info
	if x.who.Role < Admin {
		shown.Args, shown.Headers, shown.Checkpoint, shown.Result = nil, nil, nil, nil
		shown.History = slices.Clone(info.History)
		for i := range shown.History {
			shown.History[i].Args = nil
		}
	}
	return &content{title: "Job " + id.String(), data: d, json: map[string]any{"job": shown, "why": d.Why}}, nil
}
