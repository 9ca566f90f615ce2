package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

const (
	// mostEndpoints is how many endpoints one call sends a message to. Package topic has
	// no such limit.
	mostEndpoints = 1000
	// topicName is the topic of messages that were sent without package topic.
	topicName = "webhook"
	// mostTags is how many tags of its own a message has, and maxTag how long each is.
	mostTags = 5
	maxTag   = 64
	// subscriptionTag begins the tags of deliveries of package topic, by which it finds those of a
	// subscription.
	subscriptionTag = "subscription:"
)

// Message is what is sent.
type Message struct {
	// ID names the message. It is the same in all its requests, so that receivers know a
	// message that they have had already. It has up to 128 letters, digits, underscores
	// and hyphens. A message whose ID is known already is not sent again. IDs are those
	// of the whole file: one that was used for other endpoints, or for a topic of package
	// topic, is known too. If empty, Send makes one.
	ID string `json:"id"`
	// Type is the type of the event, such as "invoice.paid". If empty, it has none, and
	// only endpoints without EventTypes take it.
	Type string `json:"type,omitempty"`
	// ContentType is that of Body. If empty, that of the request section of the
	// endpoint's policy, or else application/json.
	ContentType string `json:"content_type,omitempty"`
	// Body has at most 256 KiB. It is sent as it is.
	Body []byte `json:"body"`
	// Group has messages of the same group delivered to each endpoint in the order in
	// which they were sent, each after the one before is done, see
	// [errand.JobOptions].Group. If empty, messages wait for no other.
	Group string `json:"group,omitempty"`
	// Tags are those of its deliveries, for [errand.JobFilter], such as whose they are. There are
	// up to 5, each a letter or digit and up to 63 more, dots, underscores, colons, slashes or
	// hyphens. They are not sent. If nil, none.
	Tags []string `json:"tags,omitempty"`
}

// messageDoc is what is kept of a message beside its body.
type messageDoc struct {
	ID          string   `json:"id"`
	Type        string   `json:"type,omitempty"`
	ContentType string   `json:"content_type,omitempty"`
	Group       string   `json:"group,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

// Sent is what Send or SendAll has done. Endpoints are those that get the message, and Jobs their
// deliveries, in the same order. Duplicate is true if a message with its ID was sent
// before; both are nil then.
type Sent struct {
	ID        string            `json:"id"`
	Endpoints []string          `json:"endpoints"`
	Jobs      []errand.Enqueued `json:"jobs"`
	Duplicate bool              `json:"duplicate,omitempty"`
}

// delivery is the args of a job.
type delivery struct {
	Message  string `json:"message"`
	Endpoint string `json:"endpoint"`
}

// Kind implements [errand.Args].
func (delivery) Kind() string { return kindDelivery }

// Send sends a message to endpoints, at most 1,000. When it returns nil the message and its
// deliveries are durable; they are made in one transaction. Endpoints that do not take the
// type are left out, though they are named; [Sent].Endpoints has the others.
//
// It returns an [errand.FieldError] for bad input, also without endpoints,
// [errand.ErrNotFound] for an endpoint that is not there, and what [errand.Queue.Enqueue]
// returns. The FieldError for the ID of a message of package topic is [errand.ErrMessageID].
func (h *Webhooks) Send(ctx context.Context, m Message, endpoints ...string) (Sent, error) {
	return h.send(ctx, m, h.topics.Publish, func(ctx context.Context, typ string) ([]string, error) {
		return h.receivers(ctx, typ, endpoints)
	})
}

// SendTx is [Webhooks.Send] inside a transaction of the application on the queue's file,
// see [errand.Queue.EnqueueTx]. tx may have created the endpoints.
func (h *Webhooks) SendTx(ctx context.Context, tx *sql.Tx, m Message, endpoints ...string) (Sent, error) {
	return h.send(ctx, m, h.publishIn(tx), func(ctx context.Context, typ string) ([]string, error) {
		to, err := h.receivers(ctx, typ, endpoints)
		if !errors.Is(err, errand.ErrNotFound) {
			return to, err
		}
		in, failed := h.inside(tx)
		if failed != nil {
			return nil, failed
		}
		return in.receivers(ctx, typ, endpoints)
	})
}

// SendAll sends a message to all endpoints that take its type, otherwise as [Webhooks.Send].
// If more than 1,000 do, it returns an [errand.FieldError]: package topic has no such limit.
// It reads all endpoints, so package topic suits better where there are many.
func (h *Webhooks) SendAll(ctx context.Context, m Message) (Sent, error) {
	return h.send(ctx, m, h.topics.Publish, h.allThatTake)
}

// SendAllTx is [Webhooks.SendAll] inside a transaction of the application on the queue's
// file, see [errand.Queue.EnqueueTx]. It goes by the endpoints that were committed before.
func (h *Webhooks) SendAllTx(ctx context.Context, tx *sql.Tx, m Message) (Sent, error) {
	return h.send(ctx, m, h.publishIn(tx), h.allThatTake)
}

func (h *Webhooks) publishIn(tx *sql.Tx) publishFunc {
	return func(ctx context.Context, p []door.Publication[errand.NewJob]) ([]storage.PublishResult, error) {
		in, err := door.TopicsTx[errand.NewJob](h.queue, tx)
		if err != nil {
			return nil, err
		}
		return in.Publish(ctx, p)
	}
}

type publishFunc func(context.Context, []door.Publication[errand.NewJob]) ([]storage.PublishResult, error)

func (h *Webhooks) send(ctx context.Context, m Message, publish publishFunc, receivers func(context.Context, string) ([]string, error)) (Sent, error) {
	m.ID = cmp.Or(m.ID, newMessageID())
	if err := m.check(); err != nil {
		return Sent{}, err
	}
	to, err := receivers(ctx, m.Type)
	if err != nil {
		return Sent{}, err
	}
	attributes, err := json.Marshal(messageDoc{m.ID, m.Type, m.ContentType, m.Group, m.Tags})
	if err != nil {
		return Sent{}, err
	}
	p := door.Publication[errand.NewJob]{Message: storage.Message{ID: m.ID, Topic: topicName, Attributes: attributes, Body: m.Body}, Jobs: m.jobs(to)}
	if h.opts.Keep > 0 {
		p.Message.KeepUntil = h.now().Add(h.opts.Keep)
	}
	done, err := publish(ctx, []door.Publication[errand.NewJob]{p})
	if f, ok := errors.AsType[*errand.FieldError](err); ok && errors.Is(err, errand.ErrMessageID) {
		own := *f
		own.Field = "id"
		err = &own
	}
	if err != nil {
		return Sent{}, err
	}
	if done[0].Duplicate {
		to = nil
	}
	return Sent{ID: m.ID, Endpoints: to, Jobs: done[0].Jobs, Duplicate: done[0].Duplicate}, nil
}

func newMessageID() string { return "msg_" + strings.ToLower(rand.Text()) }

// jobs returns the deliveries of a message.
func (m *Message) jobs(endpoints []string) []errand.NewJob {
	jobs := make([]errand.NewJob, len(endpoints))
	for i, id := range endpoints {
		jobs[i] = errand.NewJob{Args: delivery{m.ID, id}, Options: &errand.JobOptions{Queue: queueOf(id), Group: m.Group, Tags: m.Tags}}
	}
	return jobs
}

// receivers returns those of endpoints that take a type.
func (h *Webhooks) receivers(ctx context.Context, typ string, endpoints []string) (to []string, err error) {
	if len(endpoints) == 0 {
		return nil, &errand.FieldError{Field: "endpoints", Value: 0, Limit: "must name at least one: SendAll sends to all that take the type"}
	}
	if len(endpoints) > mostEndpoints {
		return nil, &errand.FieldError{Field: "endpoints", Value: len(endpoints), Limit: fmt.Sprintf("must be at most %d", mostEndpoints)}
	}
	seen := map[string]bool{}
	for i, id := range endpoints {
		var f faults
		if f.endpointID(fmt.Sprintf("endpoints[%d]", i), id); len(f) > 0 {
			return nil, f.err()
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		entry, err := h.topics.Entry(ctx, classEndpoint, id)
		if err != nil {
			return nil, about("endpoint", id, err)
		}
		e, err := endpointOf(&entry)
		if err != nil {
			return nil, err
		}
		if e.takes(typ) {
			to = append(to, id)
		}
	}
	return to, nil
}

func (h *Webhooks) allThatTake(ctx context.Context, typ string) (to []string, err error) {
	for after := ""; ; {
		entries, _, err := h.topics.Entries(ctx, classEndpoint, "", after, mostEndpoints)
		if err != nil || len(entries) == 0 {
			return to, err
		}
		for i := range entries {
			e, err := endpointOf(&entries[i])
			if err != nil {
				return nil, err
			}
			if e.takes(typ) {
				to = append(to, e.ID)
			}
		}
		if len(to) > mostEndpoints {
			return nil, &errand.FieldError{
				Field: "endpoints", Value: fmt.Sprintf("more than %d that take %q", mostEndpoints, typ),
				Limit: fmt.Sprintf("must be at most %d: package topic has no limit", mostEndpoints),
			}
		}
		if len(entries) < mostEndpoints {
			return to, nil
		}
		after = entries[len(entries)-1].Name
	}
}

func (m *Message) check() error {
	var f faults
	f.message("", &message{id: m.ID, body: m.Body, contentType: m.ContentType}, maxMessage)
	if m.Type != "" && !isEventType(m.Type) {
		f.field("type", m.Type, eventTypeLimit)
	}
	if len(m.Tags) > mostTags {
		f.field("tags", len(m.Tags), fmt.Sprintf("must be at most %d", mostTags))
	}
	for i, tag := range m.Tags {
		place := fmt.Sprintf("tags[%d]", i)
		if !isTag(tag) {
			f.field(place, tag, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
		}
		for _, begin := range []string{subscriptionTag, storage.MessageTag("")} {
			if strings.HasPrefix(tag, begin) {
				f.field(place, tag, fmt.Sprintf("must not begin with %q", begin))
			}
		}
	}
	return f.err()
}

// Replay sends an endpoint again the messages that were sent at since or later and that
// it takes, also those that it has had. It returns how many. The messages must still be
// there, see [Options].Keep. Each message is sent with the ID that it has.
//
// Replay works in steps. If it returns an error too, those that it counts are on their way.
func (h *Webhooks) Replay(ctx context.Context, endpoint string, since time.Time) (n int, err error) {
	entry, err := h.topics.Entry(ctx, classEndpoint, endpoint)
	if err != nil {
		return 0, about("endpoint", endpoint, err)
	}
	e, err := endpointOf(&entry)
	if err != nil {
		return 0, err
	}
	for after := ""; ; {
		messages, next, err := h.topics.Messages(ctx, topicName, since, after, 200)
		if err != nil {
			return n, err
		}
		var again []door.Publication[errand.NewJob]
		for i := range messages {
			m, err := messageOf(&messages[i])
			if err != nil {
				return n, err
			}
			if e.takes(m.Type) {
				again = append(again, door.Publication[errand.NewJob]{Message: storage.Message{ID: m.ID}, Existing: true, Jobs: m.jobs([]string{endpoint})})
			}
		}
		done, err := h.again(ctx, again)
		if n += done; err != nil || next == "" {
			return n, err
		}
		after = next
	}
}

// again publishes messages that are there, and passes over those that are there no more.
func (h *Webhooks) again(ctx context.Context, p []door.Publication[errand.NewJob]) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if _, err = h.topics.Publish(ctx, p); err == nil {
		return len(p), nil
	}
	if !errors.Is(err, errand.ErrNotFound) {
		return 0, err
	}
	for i := range p {
		_, err := h.topics.Publish(ctx, p[i:i+1])
		if err == nil {
			n++
		} else if !errors.Is(err, errand.ErrNotFound) {
			return n, err
		}
	}
	return n, nil
}

func isTag(s string) bool {
	return s != "" && len(s) <= maxTag && strings.IndexByte("._:/-", s[0]) < 0 && !strings.ContainsFunc(s, func(c rune) bool {
		return !isIDRune(c) && !strings.ContainsRune(".:/", c)
	})
}

// Delivery is what a delivery sends to an endpoint.
type Delivery struct {
	// Endpoint is the ID of the endpoint.
	Endpoint string `json:"endpoint"`
	// URL is where it goes now, see [Endpoint.PublicURL]. If empty, the endpoint was deleted.
	URL string `json:"url,omitempty"`
	// Message is the message, with its body.
	Message Message `json:"message"`
	// SentAt is when Send or SendAll was called.
	SentAt time.Time `json:"sent_at"`
}

// Delivery returns what the delivery with the ID of a job sends, live, finished or dead: for
// those who look into it. It returns [errand.ErrNotFound] if the job is not there any more, and
// an [errand.FieldError] if it is no delivery of Send or SendAll.
func (h *Webhooks) Delivery(ctx context.Context, job errand.ID) (Delivery, error) {
	info, err := h.queue.Job(ctx, job)
	if err != nil {
		return Delivery{}, about("job", job.String(), err)
	}
	var args delivery
	if info.Kind != kindDelivery || json.Unmarshal(info.Args, &args) != nil || args.Message == "" {
		return Delivery{}, &errand.FieldError{Field: "job", Value: job.String(), Limit: fmt.Sprintf("must be a delivery of kind %q, is of %q", kindDelivery, info.Kind)}
	}
	kept, err := h.topics.Message(ctx, args.Message)
	if err != nil {
		return Delivery{}, about("message", args.Message, err)
	}
	d := Delivery{Endpoint: args.Endpoint, SentAt: kept.PublishedAt}
	if e, err := h.Endpoint(ctx, args.Endpoint); err == nil {
		d.URL = e.PublicURL()
	} else if !errors.Is(err, errand.ErrNotFound) {
		return Delivery{}, err
	}
	d.Message, err = messageOf(&kept)
	return d, err
}

// messageOf reads a message of Send.
func messageOf(kept *storage.Message) (Message, error) {
	var d messageDoc
	if kept.Attributes != nil {
		if err := json.Unmarshal(kept.Attributes, &d); err != nil {
			return Message{}, fmt.Errorf("%w: message %q: %w", errand.ErrCorrupt, kept.ID, err)
		}
	}
	return Message{ID: kept.ID, Type: d.Type, ContentType: d.ContentType, Body: kept.Body, Group: d.Group, Tags: d.Tags}, nil
}
