package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// The classes of entries. Those of an endpoint have its ID as name: what secrets it has is
// apart from what it is, so that no list shows them.
const (
	classEndpoint = "webhook"
	classSecrets  = "webhook-secrets"
	classFailing  = "webhook-failing"
	classOnline   = "webhook-online"
)

const (
	maxEndpointID = 64
	maxEventTypes = 100
	maxEventType  = 128
	maxText       = 1024
	// HoldDisabled is the reason of the hold of a disabled endpoint's queue.
	HoldDisabled = "disabled"
)

// Endpoint is where messages are sent to.
type Endpoint struct {
	// ID names the endpoint: it has up to 64 letters, digits, underscores and hyphens, and
	// begins with a letter or digit. If empty, Create makes one.
	ID string `json:"id"`
	// URL is absolute, without user and fragment; see [Options].AllowHTTP. A URL whose
	// host is an address that is not public is refused.
	URL string `json:"url"`
	// Description is for people, up to 1,024 bytes of text. If empty, none.
	Description string `json:"description,omitempty"`
	// Headers are sent with each message, at most 8 KiB of them. None may be one that the
	// sender sets. What lists endpoints shows them, as it shows the URL's query: who
	// reads the list also reads a token in either. If nil, none.
	Headers map[string]string `json:"headers,omitempty"`
	// Policy is the delivery policy of the endpoint. Its throttle, at most 10,000 a second,
	// limits the attempts in all processes together: it is kept as the
	// [errand.Settings].Starts of the endpoint's queue. Its request section sets the
	// content type of messages without one. If nil, and for sections that it lacks,
	// [Options].Policy.
	Policy *policy.Document `json:"policy,omitempty"`
	// EventTypes are the types of messages that the endpoint takes, at most 100. A type
	// that ends with ".*" stands for all that begin with what is before the star. Messages
	// of package topic have no types: subscriptions have filter policies. If nil, it takes
	// all.
	EventTypes []string `json:"event_types,omitempty"`

	// What follows is set by the queue, and ignored in what is passed to it.

	// State is whether messages are sent. Reason says why not, Since since when.
	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// FailingSince is when the endpoint began to fail, zero if its last attempt went well.
	FailingSince time.Time `json:"failing_since,omitzero"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
	// Revision is that of the last change. If it is not zero, Update refuses an endpoint
	// that has changed since.
	Revision int64 `json:"revision"`
}

// State is whether messages are sent to an endpoint.
type State string

// The states of an endpoint. In all of them messages are taken for it.
const (
	Enabled  State = "enabled"
	Held     State = "held"     // a hold keeps deliveries back, of any kind, see errand.Queue.Holds
	Disabled State = "disabled" // until Webhooks.Enable
)

// queueOf returns the queue of an endpoint.
func queueOf(id string) string { return strings.TrimSuffix(Queues, "*") + id }

// QueueOf returns the queue in which the deliveries to an endpoint wait, for
// [errand.Queue.Hold], [errand.Queue.Configure] and the like.
func QueueOf(endpoint string) string { return queueOf(endpoint) }

// PublicURL returns the URL as errors show it, for people: without its query, and with dots for
// each part of the path of 16 bytes and more, since these may be secrets.
func (e Endpoint) PublicURL() string {
	u, err := url.Parse(e.URL)
	if err != nil {
		return "..." // of no stored endpoint: Create refuses a URL that does not parse
	}
	return shown(u)
}

// document is an endpoint as it is kept.
type document struct {
	URL         string            `json:"url"`
	Description string            `json:"description,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Policy      *policy.Document  `json:"policy,omitempty"`
	EventTypes  []string          `json:"event_types,omitempty"`
	// Unthrottled is true from a change of the throttle until the endpoint's queue obeys it.
	Unthrottled bool `json:"unthrottled,omitempty"`
}

// Update replaces all of an endpoint except its ID and secrets. Waiting deliveries go by
// the new values. Update returns [errand.ErrNotFound] if there is no such endpoint, and
// [errand.ErrStale] if it has changed since e.Revision, which may be zero for any.
// Settings of its queue stay. Only a changed throttle of its own policy is set there; if
// that is cut short, the endpoint has changed, and the next Update or [Webhooks.Declare]
// sets the throttle.
func (h *Webhooks) Update(ctx context.Context, e Endpoint) (Endpoint, error) {
	var f faults
	if h.check(&f, &e); len(f) > 0 {
		return Endpoint{}, f.err()
	}
	now, err := h.topics.Entry(ctx, classEndpoint, e.ID)
	if err != nil {
		return Endpoint{}, about("endpoint", e.ID, err)
	}
	was, err := endpointOf(&now)
	unthrottled := err != nil || isUnthrottled(&now) || was.ownThrottle() != e.ownThrottle()
	entry, err := e.entryAs(unthrottled)
	if err != nil {
		return Endpoint{}, err
	}
	if entry.Revision == 0 {
		entry.Revision = now.Revision
	}
	if entry.Revision != now.Revision {
		return Endpoint{}, about("endpoint", e.ID, errand.ErrStale)
	}
	if _, err = h.topics.PutEntries(ctx, []storage.Entry{entry}); err == nil && unthrottled {
		err = h.obey(ctx, e.ID)
	}
	if err != nil {
		return Endpoint{}, about("endpoint", e.ID, err)
	}
	return h.Endpoint(ctx, e.ID)
}

// Endpoint returns an endpoint, or [errand.ErrNotFound].
func (h *Webhooks) Endpoint(ctx context.Context, id string) (Endpoint, error) {
	entry, err := h.topics.Entry(ctx, classEndpoint, id)
	if err != nil {
		return Endpoint{}, about("endpoint", id, err)
	}
	all, err := h.endpoints(ctx, []storage.Entry{entry})
	if err != nil {
		return Endpoint{}, err
	}
	return all[0], nil
}

// Endpoints lists endpoints by ID, those whose ID is greater than after, at most limit of
// them, which must be between 1 and 1,000.
func (h *Webhooks) Endpoints(ctx context.Context, after string, limit int) ([]Endpoint, error) {
	if limit < 1 || limit > 1000 {
		return nil, &errand.FieldError{Field: "limit", Value: limit, Limit: "must be between 1 and 1000"}
	}
	entries, _, err := h.topics.Entries(ctx, classEndpoint, "", after, limit)
	if err != nil {
		return nil, err
	}
	return h.endpoints(ctx, entries)
}

// endpoints returns endpoints with their states.
func (h *Webhooks) endpoints(ctx context.Context, entries []storage.Entry) ([]Endpoint, error) {
	holds, err := h.queue.Holds(ctx)
	if err != nil {
		return nil, err
	}
	failing, err := h.failing.among(ctx, entries)
	if err != nil {
		return nil, err
	}
	held := map[string]errand.HoldState{}
	for _, hold := range holds {
		if hold.Queue == "" && hold.Kind != kindDelivery && hold.Kind != kindTopic {
			continue
		}
		if was, ok := held[hold.Queue]; !ok || was.Reason != HoldDisabled {
			held[hold.Queue] = hold
		}
	}
	everywhere, all := held[""]
	out := make([]Endpoint, len(entries))
	for i := range entries {
		e, err := endpointOf(&entries[i])
		if err != nil {
			return nil, err
		}
		e.State = Enabled
		hold, ok := held[queueOf(e.ID)]
		if !ok {
			hold, ok = everywhere, all
		}
		if ok {
			e.State, e.Reason, e.Since = Held, hold.Reason, hold.Since
			if hold.Reason == HoldDisabled {
				e.State, e.Reason = Disabled, hold.By
			}
		}
		e.FailingSince = failing[e.ID].Since
		out[i] = e
	}
	return out, nil
}

// endpointOf reads an endpoint without its state.
func endpointOf(entry *storage.Entry) (Endpoint, error) {
	var d document
	if err := json.Unmarshal(entry.Doc, &d); err != nil {
		return Endpoint{}, fmt.Errorf("%w: endpoint %q: %w", errand.ErrCorrupt, entry.Name, err)
	}
	return Endpoint{
		ID: entry.Name, URL: d.URL, Description: d.Description, Headers: d.Headers, Policy: d.Policy, EventTypes: d.EventTypes,
		CreatedAt: entry.CreatedAt, UpdatedAt: entry.UpdatedAt, Revision: entry.Revision,
	}, nil
}

func (e *Endpoint) entry() (storage.Entry, error) { return e.entryAs(false) }

func (e *Endpoint) entryAs(unthrottled bool) (storage.Entry, error) {
	doc, err := json.Marshal(document{URL: e.URL, Description: e.Description, Headers: e.Headers, Policy: e.Policy, EventTypes: e.EventTypes, Unthrottled: unthrottled})
	return storage.Entry{Class: classEndpoint, Name: e.ID, Revision: e.Revision, Doc: doc}, err
}

// Disable holds the deliveries to an endpoint until [Webhooks.Enable]. Messages are still
// taken for it. reason is for people, up to 255 bytes; it may be empty.
func (h *Webhooks) Disable(ctx context.Context, id, reason string) error {
	if _, err := h.topics.Entry(ctx, classEndpoint, id); err != nil {
		return about("endpoint", id, err)
	}
	return h.queue.Hold(ctx, errand.Lane{Queue: queueOf(id)}, &errand.HoldOptions{Reason: HoldDisabled, By: reason})
}

// Enable sends the waiting deliveries to a disabled endpoint, and forgets its failures.
// Dead ones stay dead until they are redriven. It reports whether the endpoint was
// disabled.
func (h *Webhooks) Enable(ctx context.Context, id string) (bool, error) {
	if _, err := h.topics.Entry(ctx, classEndpoint, id); err != nil {
		return false, about("endpoint", id, err)
	}
	if err := h.failing.end(ctx, id); err != nil {
		return false, err
	}
	was, err := h.queue.Release(ctx, errand.Lane{Queue: queueOf(id)}, HoldDisabled)
	if err != nil || !was {
		return was, err
	}
	_, err = h.queue.RunNow(ctx, errand.JobFilter{Queue: queueOf(id)}, &errand.RunNowOptions{FailedOnly: true})
	return true, err
}

// takes reports whether the endpoint takes messages of a type.
func (e *Endpoint) takes(typ string) bool {
	for _, t := range e.EventTypes {
		if begin, ok := strings.CutSuffix(t, "*"); t == typ || ok && strings.HasPrefix(typ, begin) {
			return true
		}
	}
	return len(e.EventTypes) == 0
}

// check checks what an endpoint is.
func (h *Webhooks) check(f *faults, e *Endpoint) {
	f.endpointID("id", e.ID)
	f.url("url", e.URL, h.client)
	f.headers("headers", e.Headers)
	if len(e.Description) > maxText || !utf8.ValidString(e.Description) {
		f.field("description", fmt.Sprintf("%d bytes", len(e.Description)), fmt.Sprintf("must be at most %d bytes of UTF-8", maxText))
	}
	if e.Policy != nil {
		f.policy("policy", e.Policy)
	}
	if len(e.EventTypes) > maxEventTypes {
		f.field("event_types", len(e.EventTypes), fmt.Sprintf("must be at most %d", maxEventTypes))
	}
	for i, t := range e.EventTypes {
		if begin, star := strings.CutSuffix(t, ".*"); !isEventType(begin) {
			limit := eventTypeLimit
			if !star {
				limit += ", and may end with .*"
			}
			f.field(fmt.Sprintf("event_types[%d]", i), t, limit)
		}
	}
}

const eventTypeLimit = "must be 1 to 128 letters, digits, dots, underscores, hyphens, colons and slashes"

func isEventType(s string) bool {
	return s != "" && len(s) <= maxEventType && !strings.ContainsFunc(s, func(c rune) bool { return !isIDRune(c) && !strings.ContainsRune(".:/", c) })
}

func isIDRune(c rune) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' || c == '-'
}

func (f *faults) endpointID(field, id string) {
	if id == "" || len(id) > maxEndpointID || id[0] == '_' || id[0] == '-' || strings.ContainsFunc(id, func(c rune) bool { return !isIDRune(c) }) {
		f.field(field, id, "must match [A-Za-z0-9][A-Za-z0-9_-]{0,63}")
	}
}

// about says what an error is about.
func about(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}
