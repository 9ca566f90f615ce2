package dashboard

import (
	"cmp"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// webhookKind is the kind of the deliveries of package webhook.
const webhookKind = "webhook"

// hooks calls f with the webhooks of the queue, to read.
func (x *request) hooks(f func(*webhook.Webhooks) error) error {
	h, _, err := x.b.hooks(x.b.q)
	if err != nil {
		return err
	}
	defer h.Close()
	return f(h)
}

// topics calls f with the topics of the queue, to read.
func (x *request) topics(f func(*topic.Topics) error) error {
	h, t, err := x.b.hooks(x.b.q)
	if err != nil {
		return err
	}
	defer h.Close()
	return f(t)
}

// noMessages says of a store that it has neither topics nor endpoints.
func noMessages(err error) error {
	if errors.Is(err, errand.ErrUnsupportedDB) {
		return &refusal{status: http.StatusNotFound, text: "This store keeps no topics and no endpoints.", cause: err}
	}
	return err
}

// topicsData is what the list of topics shows.
type topicsData struct {
	Topics []topicRow
	Next   string
	First  bool
}

// topicRow is a topic with the sections of its policy.
type topicRow struct {
	topic.Topic
	Sections string
}

func topics(x *request) (*content, error) {
	after := x.URL.Query().Get("after")
	d := &topicsData{First: after == ""}
	x.settled()
	all := []topic.Topic{}
	err := x.topics(func(t *topic.Topics) error {
		page, err := t.Topics(x.Context(), after, jobsLimit)
		all = append(all, page...)
		return err
	})
	if err != nil {
		return nil, noMessages(err)
	}
	for i := range all {
		d.Topics = append(d.Topics, topicRow{all[i], sections(all[i].Policy)})
	}
	if len(all) == jobsLimit {
		d.Next = all[len(all)-1].Name
	}
	return &content{data: d, json: map[string]any{"topics": all, "next": d.Next}}, nil
}

// sections names the sections that a policy of a topic has.
func sections(p *policy.Topic) string {
	if p == nil {
		return ""
	}
	var all []string
	for name, has := range map[string]bool{
		"retries": p.Retry != nil, "retries if throttled": p.ThrottledRetry != nil, "throttle": p.Throttle != nil,
		"request": p.Request != nil, "subscriptions cannot override": p.DisableSubscriptionOverrides,
	} {
		if has {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// topicData is what the page of a topic shows.
type topicData struct {
	topicRow
	Of     []subscriptionRow
	Next   string
	Query  template.URL
	First  bool
	Curves []*curve
}

// subscriptionRow is a subscription with the numbers of its endpoint.
type subscriptionRow struct {
	topic.Subscription
	Form string
	endpointUse
}

// endpointUse is what waits for an endpoint.
type endpointUse struct {
	Waiting int64 `json:"waiting"`
	Dead    int64 `json:"dead"`
}

// uses returns what waits for each queue of an endpoint.
func (l *look) uses() map[string]endpointUse {
	all := map[string]endpointUse{}
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if strings.HasPrefix(s.Queue, webhook.QueueOf("")) {
			u := all[s.Queue]
			u.Waiting += s.Scheduled + s.Ready + s.Running + s.Blocked
			u.Dead += s.Dead
			all[s.Queue] = u
		}
	}
	return all
}

func subscriptionRows(l *look, all []topic.Subscription) (rows []subscriptionRow) {
	uses := l.uses()
	for i := range all {
		r := subscriptionRow{Subscription: all[i], Form: formOf(&all[i])}
		if r.Endpoint != "" {
			r.endpointUse = uses[webhook.QueueOf(r.Endpoint)]
		}
		rows = append(rows, r)
	}
	return rows
}

// formOf says how messages look for a subscription.
func formOf(s *topic.Subscription) string {
	switch {
	case s.SNS && s.Raw:
		return "SNS, raw"
	case s.SNS:
		return "SNS"
	case s.Raw:
		return "raw"
	}
	return "envelope"
}

func topicOf(x *request) (*content, error) {
	v := x.URL.Query()
	name, after := v.Get("name"), v.Get("after")
	d := &topicData{First: after == "", Query: encoded(v)}
	subs := []topic.Subscription{}
	err := x.topics(func(t *topic.Topics) (err error) {
		if d.Topic, err = t.Topic(x.Context(), name); err != nil {
			return err
		}
		page, err := t.Subscriptions(x.Context(), name, after, jobsLimit)
		subs = append(subs, page...)
		return err
	})
	if err != nil {
		return nil, missing(noMessages(err), "topic of this name", "It may have been deleted. The page Topics has those that there are.")
	}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	d.Sections, d.Of = sections(d.Policy), subscriptionRows(l, subs)
	if p := d.Policy; p != nil && p.Retry != nil {
		d.Curves = curvesOf(&p.Document)
	}
	if len(subs) == jobsLimit {
		d.Next = subs[len(subs)-1].ID
	}
	return &content{title: "Topic " + name, data: d, json: joined{Of: d.Topic, More: map[string]any{"of": subs, "next": d.Next}}}, nil
}

// subscriptionData is what the page of a subscription shows.
type subscriptionData struct {
	subscriptionRow
	Tag       string
	Effective *topic.Effective // nil: the endpoint is gone
	Curves    []*curve
	Throttle  string
	Sent      []errand.JobInfo
	Holds     []errand.HoldState
}

func subscription(x *request) (*content, error) {
	id := x.URL.Query().Get("id")
	d := &subscriptionData{Tag: topic.Tag(id)}
	err := x.topics(func(t *topic.Topics) (err error) {
		if d.Subscription, err = t.Subscription(x.Context(), id); err != nil {
			return err
		}
		e, err := t.EffectivePolicy(x.Context(), id)
		if errors.Is(err, errand.ErrNotFound) {
			return nil
		}
		d.Effective = &e
		return err
	})
	if err != nil {
		return nil, missing(noMessages(err), "such subscription", "It may have been deleted, by its receiver too if it is in SNS mode.")
	}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	d.subscriptionRow = subscriptionRows(l, []topic.Subscription{d.Subscription})[0]
	d.Queue = cmp.Or(d.Queue, webhook.QueueOf(d.Endpoint))
	d.Holds = l.holdsOf(d.Queue)
	if e := d.Effective; e != nil && e.Document.Retry != nil {
		d.Curves = curvesOf(&e.Document)
		d.Throttle = throttleText(e.Document.Throttle)
	}
	sent, err := x.b.q.Jobs(x.Context(), errand.JobFilter{Tag: d.Tag}, &errand.ListOptions{Limit: followLimit})
	if err != nil {
		return nil, err
	}
	d.Sent = sent.Jobs
	out := map[string]any{"deliveries": x.listed(sent.Jobs)}
	if d.Effective != nil {
		out["effective"] = d.Effective
	}
	return &content{title: "Subscription " + id, data: d, json: joined{Of: d.Subscription, More: out}}, nil
}

// holdsOf returns the holds of a queue, also of single kinds in it.
func (l *look) holdsOf(queue string) []errand.HoldState {
	return slices.DeleteFunc(l.holds(), func(h errand.HoldState) bool { return h.Queue != queue })
}

// endpointsData is what the list of endpoints shows.
type endpointsData struct {
	Endpoints           []endpointRow
	Search, State, Next string
	Query               template.URL
	States              []webhook.State
	First, Partial      bool
}

// endpointRow is an endpoint without what may be a secret, and with what waits for it.
type endpointRow struct {
	webhook.Endpoint
	endpointUse
}

// endpointRowOf leaves out the query of the URL, and the values of headers.
func endpointRowOf(e *webhook.Endpoint, uses map[string]endpointUse) endpointRow {
	r := endpointRow{*e, uses[webhook.QueueOf(e.ID)]}
	r.URL = e.PublicURL()
	r.Headers = maps.Clone(e.Headers)
	for name := range r.Headers {
		r.Headers[name] = hidden
	}
	return r
}

func endpoints(x *request) (*content, error) {
	v := x.URL.Query()
	after := v.Get("after")
	d := &endpointsData{Search: strings.TrimSpace(v.Get("search")), State: v.Get("state"), First: after == "", States: []webhook.State{webhook.Enabled, webhook.Held, webhook.Disabled}}
	if d.State != "" && !slices.Contains(d.States, webhook.State(d.State)) {
		return nil, &errand.FieldError{Field: "state", Value: d.State, Limit: "must be one of " + words(d.States)}
	}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	limit := jobsLimit
	if d.Search+d.State != "" {
		limit = mostLooked
	}
	var all []webhook.Endpoint
	err = x.hooks(func(h *webhook.Webhooks) (err error) {
		all, err = h.Endpoints(x.Context(), after, limit)
		return err
	})
	if err != nil {
		return nil, noMessages(err)
	}
	uses := l.uses()
	s := &searchData{Text: d.Search}
	for i := range all {
		e := &all[i]
		if d.State != "" && string(e.State) != d.State || !s.has(e.ID) && !s.has(e.PublicURL()) && !s.has(e.Description) {
			continue
		}
		if len(d.Endpoints) == jobsLimit {
			d.Next = d.Endpoints[jobsLimit-1].ID
			break
		}
		d.Endpoints = append(d.Endpoints, endpointRowOf(e, uses))
	}
	if d.Next == "" && len(all) == limit {
		d.Next, d.Partial = all[limit-1].ID, limit > jobsLimit
	}
	d.Query = encoded(v)
	return &content{data: d, json: map[string]any{"endpoints": append([]endpointRow{}, d.Endpoints...), "next": d.Next}}, nil
}

// endpointData is what the page of an endpoint shows.
type endpointData struct {
	endpointRow
	Queue    string
	Holds    []errand.HoldState
	Failures []laneFailure
	Causes   []errand.Cause
	Sent     []sentRow
	Partial  bool
	ByState  bool // Sent are by state, not by when they were enqueued
	Looked   int
	Curves   []*curve
	Own      bool // the policy is that of the endpoint
	Throttle string
	Starts   []settingRow
}

// sentRow is a delivery with its message, nil if that is not kept.
type sentRow struct {
	errand.JobInfo
	Message *messageView
}

// laneFailure is what failed last of one kind of deliveries.
type laneFailure struct {
	Kind   string
	Status string // of the answer; empty: there was none
	errand.LastFailure
}

// statusIn is how the errors of deliveries name the status of an answer.
var statusIn = regexp.MustCompile(`: http status (\d{3})\b`)

// statusOf returns the status that the error of a delivery names, empty for none.
func statusOf(text string) string {
	if m := statusIn.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

func endpoint(x *request) (*content, error) {
	id := x.URL.Query().Get("id")
	d := &endpointData{Queue: webhook.QueueOf(id)}
	var e webhook.Endpoint
	var doc policy.Document
	err := x.hooks(func(h *webhook.Webhooks) (err error) {
		if e, err = h.Endpoint(x.Context(), id); err != nil {
			return err
		}
		d.Own = e.Policy != nil && e.Policy.Retry != nil
		doc = h.DefaultPolicy()
		if e.Policy != nil {
			doc = e.Policy.Or(doc)
		}
		return nil
	})
	if err != nil {
		return nil, missing(noMessages(err), "such endpoint", "It may have been deleted. What was to be sent to it is in the queue "+d.Queue+".")
	}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	d.endpointRow = endpointRowOf(&e, l.uses())
	d.Holds, d.Curves, d.Throttle = l.holdsOf(d.Queue), curvesOf(&doc), throttleText(doc.Throttle)
	for i := range l.lanes {
		if s := &l.lanes[i].Stats; s.Queue == d.Queue && !s.LastFailure.At.IsZero() {
			d.Failures = append(d.Failures, laneFailure{s.Kind, statusOf(s.LastFailure.Error), s.LastFailure})
		}
	}
	if err := x.sent(d); err != nil {
		return nil, err
	}
	return &content{title: "Endpoint " + id, data: d, json: joined{Of: d.endpointRow, More: map[string]any{"deliveries": x.listed(jobsOf(d.Sent)), "holds": append([]errand.HoldState{}, d.Holds...), "causes": append([]errand.Cause{}, d.Causes...)}}}, nil
}

// sentLimit is how many deliveries of an endpoint are shown: each costs about five reads.
const sentLimit = 5

// sentRows reads the messages of deliveries.
func (x *request) sentRows(all []errand.JobInfo) (rows []sentRow, err error) {
	h, t, err := x.b.hooks(x.b.q)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	for i := range all {
		m, err := x.messageOf(h, t, &all[i])
		if err != nil {
			return nil, err
		}
		rows = append(rows, sentRow{all[i], m})
	}
	return rows, nil
}

func jobsOf(rows []sentRow) []errand.JobInfo {
	all := make([]errand.JobInfo, len(rows))
	for i := range rows {
		all[i] = rows[i].JobInfo
	}
	return all
}

// sent reads what was sent to an endpoint of late, what died of it, and its throttle.
func (x *request) sent(d *endpointData) error {
	// A bound on when jobs were enqueued has the list begin with the last one.
	page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{Queue: d.Queue, CreatedBefore: x.b.q.Clock().Now.Add(24 * time.Hour)}, &errand.ListOptions{Limit: sentLimit})
	if err != nil {
		return err
	}
	sent := page.Jobs
	d.Partial, d.Looked = page.Partial, page.Looked
	if d.Partial { // others have been enqueued since: by their states, indexes find them
		if page, err = x.b.q.Jobs(x.Context(), errand.JobFilter{Queue: d.Queue}, &errand.ListOptions{Limit: sentLimit}); err != nil {
			return err
		}
		if len(page.Jobs) > len(sent) {
			sent, d.ByState = page.Jobs, true
		}
	}
	if d.Sent, err = x.sentRows(sent); err != nil {
		return err
	}
	if d.Causes, err = x.b.q.DeadLetters().Causes(x.Context(), &errand.CauseOptions{Lane: errand.Lane{Queue: d.Queue}, Limit: followLimit, Hours: true}); err != nil {
		return err
	}
	all, err := x.b.q.Settings(x.Context())
	all = slices.DeleteFunc(all, func(s errand.LaneSettings) bool { return s.Queue != d.Queue })
	d.Starts = settingRows(all, nil)
	return err
}
