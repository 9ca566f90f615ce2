package dashboard

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/indent"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// jobData is what the page of a job shows.
type jobData struct {
	errand.JobInfo
	Why                                  errand.Why
	ArgsText, CheckpointText, ResultText string
	ArgsNote                             string // why all values of the args are hidden
	Was                                  string // what actions on it depend on
	HeaderList                           [][2]string
	Attempts                             []attemptView
	Follows                              []errand.JobInfo
	More                                 bool // jobs follow that are not shown
	// Known is true if the policy in effect is known.
	Known   bool
	Curve   *curve
	Coming  []policy.Coming
	Line    *timeline
	Message *messageView
	Viewer  bool        // who may not see args
	Gone    bool        // it has gone while it was looked at
	Place   string      // in its group
	Behind  *jobsBehind // what waits behind it, as it is dead; nil: nothing
}

// attemptView is an entry of a history.
type attemptView struct {
	errand.Failure
	OldArgs string
}

// followLimit is how many of the jobs that follow another one are shown.
const followLimit = 20

func job(x *request) (*content, error) {
	id, err := errand.ParseID(x.id)
	if err != nil {
		return nil, err
	}
	info, why, gone, err := x.jobAndWhy(id)
	if errors.Is(err, errand.ErrNotFound) {
		return nil, x.noJob(id)
	}
	if err != nil {
		return nil, err
	}
	x.print = x.b.live.printOf(&info, x.around())
	info.Unique = x.uniqueKey(info.Unique)
	d := &jobData{JobInfo: info, Viewer: x.who.Role < Operator, Was: x.b.was(x.b.jobWas(&info)), CheckpointText: x.shown(info.Checkpoint), ResultText: x.shown(info.Result)}
	if d.ArgsText, d.ArgsNote, err = x.args(info.Kind, info.Args); err != nil {
		return nil, err
	}
	d.Why, d.Gone = why, gone
	d.Place = placeOf(&d.Why)
	if err := x.setBehind(d); err != nil {
		return nil, err
	}
	if x.who.Role >= Operator {
		for _, name := range sortedKeys(info.Headers) {
			d.HeaderList = append(d.HeaderList, [2]string{name, x.headerValue(name, info.Headers[name])})
		}
	}
	for i := range info.History {
		old, _, err := x.args(info.Kind, info.History[i].Args)
		if err != nil {
			return nil, err
		}
		d.Attempts = append(d.Attempts, attemptView{info.History[i], old})
	}
	slices.Reverse(d.Attempts)
	doc, known, err := x.b.q.PolicyOf(x.Context(), info)
	if err != nil {
		return nil, err
	}
	now := x.b.q.Clock().Now
	if d.Known = known; known {
		p := doc.For(policy.Retryable)
		d.Curve, d.Coming = newCurve("Retries", p, info.Retry), info.Coming(p, now)
	}
	d.Line = newTimeline(&info, d.Coming, now)
	x.jobUntil(&info, &d.Why)
	follows, err := x.b.q.Jobs(x.Context(), errand.JobFilter{Parent: id}, &errand.ListOptions{Limit: followLimit})
	if err != nil {
		return nil, err
	}
	d.Follows, d.More = follows.Jobs, follows.Next != ""
	if d.Message, err = x.message(&info); err != nil {
		return nil, err
	}
	shown, err := x.visibleJob(info)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"why": d.Why}
	if known && info.EndedAt.IsZero() {
		out["policy_in_effect"] = doc
	}
	if len(d.Coming) > 0 {
		out["retries_to_come"] = d.Coming
	}
	if d.Message != nil {
		out["message"] = d.Message
	}
	return &content{title: "Job " + id.String(), data: d, json: joined{Of: shown, More: out}}, nil
}

// jobAndWhy reads a job, and why it does not run; gone says that it was deleted between the two. A job
// that has changed between the two is read once more.
func (x *request) jobAndWhy(id errand.ID) (info errand.JobInfo, why errand.Why, gone bool, err error) {
	for range 2 {
		if info, err = x.b.q.Job(x.Context(), id); err != nil {
			return info, why, false, err
		}
		why, err = x.b.q.Why(x.Context(), id)
		if gone = errors.Is(err, errand.ErrNotFound); gone {
			return info, why, true, nil
		}
		if err != nil || why.State == info.State {
			break
		}
	}
	return info, why, false, err
}

// mostNext is how many of the jobs are shown that wait behind a dead one.
const mostNext = 4

// setBehind sets what waits behind a job, if it is dead.
func (x *request) setBehind(d *jobData) error {
	if d.State != errand.Dead || d.Group == "" {
		return nil
	}
	b, err := x.behind(d.Queue, d.Group)
	if errors.Is(err, errand.ErrNotFound) || err == nil && (b == nil || b.Head.ID != d.ID) { // it has moved on
		return nil
	}
	if d.Behind = b; err != nil || b.More {
		return err
	}
	var next errand.JobFilter
	for i := len(b.Jobs); i > max(len(b.Jobs)-mostNext, 0); i-- {
		next.IDs = append(next.IDs, b.Jobs[i-1].ID)
	}
	page, err := x.b.q.Jobs(x.Context(), next, &errand.ListOptions{Args: x.who.Role >= Operator})
	d.Behind.Next = x.withArgs(page.Jobs)
	return err
}

// Says says of a job that is ready why it does not run, as a word or two.
func (d *jobData) Says() string {
	for i := range d.Why.Reasons {
		switch r := &d.Why.Reasons[i]; r.Code {
		case errand.WhyHeld:
			return "but held"
		case errand.WhyNoWorker:
			return "but no worker takes it"
		case errand.WhyUrgent:
			return "and the next to run"
		case errand.WhyGate, errand.WhyThrottle, errand.WhyConcurrency, errand.WhyBudget, errand.WhyOpening:
			return "but there is no room for it"
		}
	}
	return ""
}

// jobUntil says when the page of a job may show something else without a commit.
func (x *request) jobUntil(j *errand.JobInfo, w *errand.Why) {
	switch {
	case !j.EndedAt.IsZero() || j.State == errand.Dead:
		x.settled()
		return
	case j.State == errand.Running && j.Progress != nil:
		x.till(farEach)
	default:
		x.till(askEach)
	}
	for i := range w.Reasons { // when it is due, a hold ends, or it is too late
		x.tillClock(w.Reasons[i].Until)
	}
}

// placeOf says where a job is in its group, if it waits there.
func placeOf(w *errand.Why) string {
	for i := range w.Reasons {
		if r := &w.Reasons[i]; r.Code == errand.WhyBlocked {
			if r.More {
				return "behind more than " + count(r.N) + " others"
			}
			return "behind " + plural(int64(r.N), "other")
		}
	}
	return ""
}

// noJob is what is known of a job that there is not: when it was made, as its ID says.
func (x *request) noJob(id errand.ID) error {
	text := "There is no such job."
	made := time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16))
	if now := x.b.q.Clock().Now; made.Before(now) && made.Year() >= 2020 {
		text += " By its ID it was enqueued at " + exactly(made) + ", " + ago(made, now) + "."
	}
	return &refusal{status: http.StatusNotFound, text: text,
		remedy: "It may have been deleted since: finished jobs are kept for as long as the program or the settings of the queue say, a day if they do not, and dead letters until somebody deletes them. Or it is in another file."}
}

// visibleJob returns a job without what the role may not see.
func (x *request) visibleJob(j errand.JobInfo) (_ errand.JobInfo, err error) {
	j.Checkpoint, j.Result = x.visible(j.Checkpoint), x.visible(j.Result)
	j.History = slices.Clone(j.History)
	for i := range j.History {
		if j.History[i].Args, _, err = x.rawArgs(j.Kind, j.History[i].Args); err != nil {
			return j, err
		}
	}
	j.Headers = x.visibleHeaders(j.Headers)
	j.Args, _, err = x.rawArgs(j.Kind, j.Args)
	return j, err
}

// uniqueKey returns a unique key without the hash of args that it is if [errand.Unique] has ByArgs:
// who may not see them could try guesses with it.
func (x *request) uniqueKey(key string) string {
	if x.who.Role < Admin && strings.HasPrefix(key, "sha256:") {
		return "sha256:" + hidden
	}
	return key
}

// listed returns jobs of a list without what the role may not see.
func (x *request) listed(all []errand.JobInfo) []errand.JobInfo {
	all = append([]errand.JobInfo{}, all...)
	for i := range all {
		all[i].Unique, all[i].Args, all[i].ArgsBytes = x.uniqueKey(all[i].Unique), nil, 0
	}
	return all
}

// visibleHeaders returns headers as the role may see them.
func (x *request) visibleHeaders(all map[string]string) map[string]string {
	if x.who.Role < Operator || len(all) == 0 {
		return nil
	}
	out := map[string]string{}
	for name, value := range all {
		out[name] = x.headerValue(name, value)
	}
	return out
}

// headerValue returns the value of a header or an attribute as an operator or admin may see it.
func (x *request) headerValue(name, value string) string {
	if x.hides(name) {
		return hidden
	}
	if x.who.Role < Admin {
		return x.b.keys.text(value)
	}
	return value
}

// messageView is the message that a job delivers.
type messageView struct {
	ID         string            `json:"id"`
	Topic      string            `json:"topic,omitempty"`
	To         string            `json:"endpoint,omitempty"`
	URL        string            `json:"url,omitempty"`
	Sub        string            `json:"subscription,omitempty"`
	Type       string            `json:"type,omitempty"`
	Unreadable bool              `json:"unreadable,omitempty"` // what is kept of it cannot be read
	Subject    string            `json:"subject,omitempty"`
	At         time.Time         `json:"published_at"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Body is the body as an admin may see it, if it is UTF-8; if it is not, BodyBase64 is.
	// Others see it redacted, or not at all.
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"body_base64,omitempty"`
	Text       string `json:"-"` // for the page
}

// setBody sets what somebody may see of a body.
func (x *request) setBody(m *messageView, body []byte) { x.setVisible(m, body, x.visible(body)) }

func (x *request) setVisible(m *messageView, body, shown []byte) {
	if m.Text = string(indent.JSON(shown)); json.Valid(shown) {
		m.Text = unescaped(m.Text)
	}
	switch {
	case x.who.Role < Admin:
		m.Body = string(shown)
	case utf8.Valid(body):
		m.Body = string(body)
	default:
		m.BodyBase64, m.Text = body, plural(int64(len(body)), "byte")+" that are no text"
	}
}

// setMessage sets what somebody may see of the message of a topic. For a subscription to a kind, the
// body is the args, or a part of them: an operator sees what args show.
func (x *request) setMessage(m *messageView, kind string, of *topic.Message) error {
	if x.who.Role < Operator {
		return nil
	}
	var paths []string
	known := true
	if kind != webhookKind && x.who.Role < Admin {
		var err error
		if paths, known, err = x.b.secrets.of(x.Context(), kind); err != nil {
			return err
		}
	}
	secret := func(names ...string) bool { return !known || reaches(paths, names...) }
	m.Subject, m.Attributes = of.Subject, map[string]string{}
	if m.Subject != "" && secret("subject") {
		m.Subject = hidden
	}
	for name, a := range of.Attributes {
		m.Attributes[name] = x.headerValue(name, a.Value)
		if secret("attributes", name, "Value") {
			m.Attributes[name] = hidden
		}
	}
	shown := of.Body
	switch {
	case len(of.Body) == 0 || x.who.Role == Admin:
	case known && secret("message"):
		shown = []byte(`"` + hidden + `"`)
	default:
		shown = redact(of.Body, x.b.keys, paths, !known)
	}
	x.setVisible(m, of.Body, shown)
	return nil
}

// delivers reports whether a job may deliver a message: one of package webhook, or of a topic.
func delivers(j *errand.JobInfo) (hook, ofTopic bool) {
	return j.Kind == webhookKind, slices.ContainsFunc(j.Tags, func(tag string) bool { return strings.HasPrefix(tag, topic.Tag("")) })
}

// message returns the message that a job delivers, nil if it delivers none.
func (x *request) message(j *errand.JobInfo) (*messageView, error) {
	if hook, ofTopic := delivers(j); !hook && !ofTopic {
		return nil, nil
	}
	h, t, err := x.b.hooks(x.b.q)
	if errors.Is(err, errand.ErrUnsupportedDB) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return x.messageOf(h, t, j)
}

// messageOf is message with the webhooks and topics of the queue.
func (x *request) messageOf(h *webhook.Webhooks, t *topic.Topics, j *errand.JobInfo) (m *messageView, err error) {
	switch hook, ofTopic := delivers(j); {
	case hook:
		var d webhook.Delivery
		if d, err = h.Delivery(x.Context(), j.ID); err == nil {
			m = &messageView{ID: d.Message.ID, To: d.Endpoint, URL: d.URL, Type: d.Message.Type, At: d.SentAt.UTC()}
			x.setBody(m, d.Message.Body)
		}
	case ofTopic:
		var d topic.Delivery
		if d, err = t.Delivery(x.Context(), j.ID); err != nil {
			break
		}
		m = &messageView{ID: d.Message.ID, Topic: d.Topic, Sub: d.Subscription, To: d.Endpoint, URL: d.URL, At: d.PublishedAt.UTC()}
		err = x.setMessage(m, j.Kind, &d.Message)
	}
	// What only looks like a delivery has no message, and one may have gone with its job.
	if errors.Is(err, errand.ErrNotFound) || errors.Is(err, errand.ErrInvalid) || errors.Is(err, errand.ErrUnsupportedDB) {
		return nil, nil
	}
	if isUnreadable(err) {
		return &messageView{Unreadable: true}, nil
	}
	return m, err
}
