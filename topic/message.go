package topic

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic/filter"
)

const (
	maxMessage    = 256 << 10 // body and attributes
	maxSubject    = 100       // characters
	maxAttribute  = 256       // bytes of a name
	maxAttributes = 48 << 10  // bytes of all, beside the body
	// dedupFor is how long a message with a DedupID makes others duplicates.
	dedupFor = 5 * time.Minute
	// clocksDiffer is by how much the wall clock may be off the queue's until a message says when
	// it was published by it.
	clocksDiffer = 5 * time.Second
)

// Message is what is published.
type Message struct {
	// ID names the message. It is the same in all its deliveries, so that receivers know
	// a message that they have had already. It has up to 64 letters, digits, underscores
	// and hyphens. A message whose ID is known already is not published again. IDs are
	// those of the whole file: one that was used for another topic, or by package
	// webhook, is known too. If empty, Publish makes one.
	ID string `json:"id"`
	// Subject is for people: up to 100 characters on one line. If empty, none.
	Subject string `json:"subject,omitempty"`
	// Attributes are what filter policies look at. Names have up to 256 letters, digits,
	// underscores, hyphens and dots; no two dots stand together, none at an end, and "AWS."
	// and "Amazon." do not begin a name. If nil, none.
	Attributes map[string]filter.Attribute `json:"attributes,omitempty"`
	// Body is UTF-8, and not empty. With the names and values of Attributes it has at most
	// 256 KiB.
	Body []byte `json:"body"`
	// Group is that of the message in an ordered topic: each subscription gets messages of
	// the same group in the order in which they were published, each after the one before is
	// done. It has up to 128 bytes. It must be set in an ordered topic, and must be empty in
	// others.
	Group string `json:"group,omitempty"`
	// DedupID makes a message of an ordered topic a duplicate of one of this topic with the
	// same DedupID that was published less than five minutes before. It has up to 128 bytes. If empty,
	// only the ID counts.
	DedupID string `json:"dedup_id,omitempty"`
	// Tags are those of its deliveries, for [errand.JobFilter], such as whose they are,
	// in addition to the subscription's, see [Tag]. There are up to 5, each a letter or
	// digit and up to 63 more, dots, underscores, colons, slashes or hyphens. They are
	// not sent. If nil, none.
	Tags []string `json:"tags,omitempty"`
}

// messageDoc is what is kept of a message beside its body.
type messageDoc struct {
	Subject    string                      `json:"subject,omitempty"`
	Attributes map[string]filter.Attribute `json:"attributes,omitempty"`
	Group      string                      `json:"group,omitempty"`
	Tags       []string                    `json:"tags,omitempty"`
	// At is when it was published by the wall clock, if the queue's showed another time: zero: that.
	At time.Time `json:"at,omitzero"`
}

// published is a message as its deliveries have it.
type published struct {
	messageDoc
	id   string
	at   time.Time // that receivers are told
	kept time.Time // when it was published by the queue's clock
	body []byte

	matched *filter.Message
	args    map[bool]json.RawMessage // of jobs of kinds, by Raw
}

// normal sets what is not set.
func (m *Message) normal() { m.ID = cmp.Or(m.ID, "msg_"+strings.ToLower(rand.Text())) }

// check checks a message that is published to a topic. place goes before the names of
// fields.
func (m *Message) check(place string, p *Topic) error {
	f := faults{place: place}
	if !isName("x"+m.ID, maxMsgID+1, "_-") { // it may begin with these
		f.field("id", m.ID, "must match [A-Za-z0-9_-]{1,64}")
	}
	if n := utf8.RuneCountInString(m.Subject); n > maxSubject || !utf8.ValidString(m.Subject) || strings.ContainsFunc(m.Subject, unicode.IsControl) {
		f.field("subject", m.Subject, fmt.Sprintf("must be at most %d characters of UTF-8 without line breaks and other controls", maxSubject))
	}
	size := m.checkAttributes(&f)
	switch {
	case len(m.Body) == 0:
		f.field("body", "", "must not be empty")
	case len(m.Body)+size > maxMessage:
		f.field("body", fmt.Sprintf("%d bytes with the attributes", len(m.Body)+size), fmt.Sprintf("must be at most %d", maxMessage))
	case !utf8.Valid(m.Body):
		f.field("body", fmt.Sprintf("%d bytes", len(m.Body)), "must be UTF-8")
	}
	f.tags("tags", m.Tags)
	f.key("group", m.Group)
	f.key("dedup_id", m.DedupID)
	switch {
	case p.Ordered && m.Group == "":
		f.field("group", "", "must not be empty in an ordered topic")
	case !p.Ordered && m.Group != "":
		f.field("group", m.Group, "must be empty in a topic that is not ordered")
	}
	if !p.Ordered && m.DedupID != "" {
		f.field("dedup_id", m.DedupID, "must be empty in a topic that is not ordered")
	}
	return f.err()
}

func (m *Message) checkAttributes(f *faults) (size int) {
	for name, a := range m.Attributes {
		field := fmt.Sprintf("attributes[%q]", name)
		size += len(name) + len(a.Type) + len(a.Value)
		if !isAttribute(name) {
			f.field(field, name, "must have a name of 1 to 256 letters, digits, underscores, hyphens and single dots within, which does not begin with AWS. or Amazon.")
		}
		if fault, ok := errors.AsType[*filter.Fault](a.Validate()); ok {
			value := a.Value // as it is: that of the fault is quoted
			if fault.Path == "Type" {
				value = a.Type
			}
			f.field(field+"."+strings.ToLower(fault.Path), value, fault.Want)
		}
	}
	if size > maxAttributes {
		f.field("attributes", fmt.Sprintf("%d bytes", size), fmt.Sprintf("must be at most %d", maxAttributes))
	}
	return size
}

func isAttribute(name string) bool {
	lower := strings.ToLower(name)
	if name == "" || len(name) > maxAttribute || strings.Contains(name, "..") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") ||
		strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
		return false
	}
	return isName("x"+name, maxAttribute+1, "_-.")
}

// publication returns the message as it is kept, without its jobs.
func (m *Message) publication(p *Topic, now, at time.Time) (door.Publication[errand.NewJob], error) {
	d := messageDoc{Subject: m.Subject, Attributes: m.Attributes, Group: m.Group, Tags: m.Tags}
	if at.Sub(now).Abs() > clocksDiffer {
		d.At = at.UTC()
	}
	doc, err := marshal(d)
	pub := door.Publication[errand.NewJob]{Message: storage.Message{ID: m.ID, Topic: familyOf(p.Name), Attributes: doc, Body: m.Body}}
	if p.Keep > 0 {
		pub.Message.KeepUntil = now.Add(p.Keep)
	}
	if m.DedupID != "" {
		pub.Dedup, pub.DedupFor = m.DedupID, dedupFor
	}
	return pub, err
}

func (m *Message) published(at time.Time) *published {
	return &published{messageDoc: messageDoc{Subject: m.Subject, Attributes: m.Attributes, Group: m.Group, Tags: m.Tags}, id: m.ID, at: at, body: m.Body}
}

// publishedOf reads a message that was published.
func publishedOf(m *storage.Message) (*published, error) {
	p := &published{id: m.ID, at: m.PublishedAt, kept: m.PublishedAt, body: m.Body}
	if err := json.Unmarshal(m.Attributes, &p.messageDoc); err != nil {
		return nil, fmt.Errorf("%w: message %q: %w", errand.ErrCorrupt, m.ID, err)
	}
	if !p.At.IsZero() {
		p.at = p.At
	}
	return p, nil
}

// matches reports whether a subscription gets the message.
func (p *published) matches(policy *filter.Policy) bool {
	if p.matched == nil {
		p.matched = filter.NewMessage(p.Attributes, p.body)
	}
	return policy.Match(p.matched)
}

// envelope is a message as JSON, for receivers that do not ask for the body alone.
type envelope struct {
	Type       string                      `json:"type"`
	MessageID  string                      `json:"messageId"`
	Topic      string                      `json:"topic"`
	Subject    string                      `json:"subject,omitempty"`
	Timestamp  string                      `json:"timestamp"`
	Attributes map[string]filter.Attribute `json:"attributes,omitempty"`
	Message    string                      `json:"message"`
}

// notification is the type of messages.
const notification = "Notification"

// timestamp returns a time in the form that SNS uses.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// enveloped returns the envelope of a message.
func (p *published) enveloped(topic string) ([]byte, error) {
	return marshal(envelope{notification, p.id, topic, p.Subject, timestamp(p.at), p.Attributes, string(p.body)})
}

// marshal returns v as JSON in which <, > and & stand as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// argsOf returns the args of a job of a kind: with raw the body, as a string if it is not
// JSON, else the envelope.
func (p *published) argsOf(topic string, raw bool) (json.RawMessage, error) {
	if args, ok := p.args[raw]; ok {
		return args, nil
	}
	var args json.RawMessage
	var err error
	switch {
	case !raw:
		args, err = p.enveloped(topic)
	case json.Valid(p.body):
		args = p.body
	default:
		args, err = marshal(string(p.body))
	}
	if p.args == nil {
		p.args = map[bool]json.RawMessage{}
	}
	p.args[raw] = args
	return args, err
}
