package topic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// maxFilter is how large a filter policy may be. It has a few keys.
const maxFilter = 32 << 10

// State is whether a subscription gets messages.
type State string

// The states of a subscription.
const (
	Confirmed State = "confirmed"
	Pending   State = "pending" // in SNS mode, until the receiver has confirmed it
	Paused    State = "paused"  // gets messages, whose deliveries wait until Topics.Resume
)

// OnDead says whether a dead delivery blocks later ones of its group.
type OnDead string

// What a dead delivery does to the others of its group.
const (
	Block OnDead = "block" // they wait until it is redriven or purged
	Pass  OnDead = "pass"  // they pass it
)

// Subscription has the messages of a topic sent to an endpoint, or made jobs of a kind.
type Subscription struct {
	// ID names the subscription: a letter or digit, and up to 49 more, dots, underscores or
	// hyphens. If empty, Subscribe makes one.
	ID string `json:"id"`
	// Topic is the name of the topic.
	Topic string `json:"topic"`
	// Endpoint is the ID of a webhook endpoint. Its EventTypes do not count: Filter does. If
	// empty, Kind is set.
	Endpoint string `json:"endpoint,omitempty"`
	// Kind is the kind of jobs that each message becomes. If empty, Endpoint is set.
	Kind string `json:"kind,omitempty"`
	// Queue is where jobs of Kind wait. If empty, "default"; with Endpoint it must be empty.
	Queue string `json:"queue,omitempty"`
	// Policy is the delivery policy of the subscription. Its throttle is at most 10,000 a
	// second. If nil, and for sections that it lacks, that of the topic.
	Policy *policy.Document `json:"policy,omitempty"`
	// Raw sends the body of a message as it is. If false, it is sent in an envelope of
	// JSON, with what else there is about the message.
	Raw bool `json:"raw,omitempty"`
	// SNS has the endpoint get what it would get from Amazon SNS, see docs/topics.md. The
	// receiver has to confirm the subscription before it gets messages.
	SNS bool `json:"sns,omitempty"`
	// Filter is a filter policy, see package filter, of at most 32 KiB. If empty, the
	// subscription gets all messages.
	Filter json.RawMessage `json:"filter,omitempty"`
	// FilterScope is the part of messages that Filter looks at. If zero, the attributes.
	FilterScope filter.Scope `json:"filter_scope,omitempty"`
	// OnDead says whether a dead delivery of an ordered topic blocks later ones of its
	// group. It is set for the queue of the endpoint, and so for all subscriptions to it:
	// the last one counts. If empty, it is left as it is, which is Block at first; with
	// Kind it must be empty.
	OnDead OnDead `json:"on_dead,omitempty"`

	// What follows is set by the queue, and ignored in what is passed to it.

	State     State     `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// Revision is that of the last change. If it is not zero, UpdateSubscription refuses
	// a subscription that has changed since.
	Revision int64 `json:"revision"`
}

// Tag returns the tag of the deliveries of a subscription, for [errand.JobFilter]: for the
// list of them, and for their dead letters.
func Tag(subscription string) string { return "subscription:" + subscription }

// subscriptionDoc is a subscription as it is kept.
type subscriptionDoc struct {
	Topic       string           `json:"topic"`
	Endpoint    string           `json:"endpoint,omitempty"`
	Kind        string           `json:"kind,omitempty"`
	Queue       string           `json:"queue,omitempty"`
	Policy      *policy.Document `json:"policy,omitempty"`
	Raw         bool             `json:"raw,omitempty"`
	SNS         bool             `json:"sns,omitempty"`
	Filter      json.RawMessage  `json:"filter,omitempty"`
	FilterScope filter.Scope     `json:"filter_scope,omitempty"`
	OnDead      OnDead           `json:"on_dead,omitempty"`
	Pending     bool             `json:"pending,omitempty"`
	Paused      bool             `json:"paused,omitempty"`
	// Joined is the revision of the entry when it began to get messages. Zero is that of the
	// entry: it has not changed since.
	Joined int64 `json:"joined,omitempty"`
}

func (s *Subscription) entry(revision, joined int64) (storage.Entry, error) {
	doc, err := marshal(subscriptionDoc{
		Topic: s.Topic, Endpoint: s.Endpoint, Kind: s.Kind, Queue: s.Queue, Policy: s.Policy, Raw: s.Raw, SNS: s.SNS,
		Filter: s.Filter, FilterScope: s.FilterScope, OnDead: s.OnDead, Pending: s.State == Pending, Paused: s.State == Paused, Joined: joined,
	})
	return storage.Entry{Class: classSubscription, Name: s.ID, Family: familyOf(s.Topic), Revision: revision, Doc: doc}, err
}

// subscriptionOf reads a subscription, and the revision since which it gets messages.
func subscriptionOf(e *storage.Entry) (s Subscription, joined int64, err error) {
	var d subscriptionDoc
	if err := json.Unmarshal(e.Doc, &d); err != nil {
		return s, 0, unreadable(e, err)
	}
	s = Subscription{
		ID: e.Name, Topic: d.Topic, Endpoint: d.Endpoint, Kind: d.Kind, Queue: d.Queue, Policy: d.Policy, Raw: d.Raw, SNS: d.SNS,
		Filter: d.Filter, FilterScope: d.FilterScope, OnDead: d.OnDead, State: Confirmed,
		CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt, Revision: e.Revision,
	}
	switch {
	case d.Pending:
		s.State = Pending
	case d.Paused:
		s.State = Paused
	}
	if joined = d.Joined; joined == 0 {
		joined = e.Revision
	}
	return s, joined, nil
}

// target returns the name of the entry that keeps a topic from having two subscriptions to
// the same endpoint, or to the same kind in the same queue.
func (s *Subscription) target() string {
	sum := sha256.Sum256([]byte(s.Endpoint + " " + s.Kind + " " + s.Queue)) // none of which has a space
	return s.Topic + "/" + hex.EncodeToString(sum[:16])
}

// check checks a subscription, also that its deliveries are let into their queue.
func (t *Topics) check(s *Subscription) error {
	if err := s.check(t.webhooks != nil, t.opts.ConfirmURL != ""); err != nil {
		return err
	}
	if s.Endpoint != "" {
		return t.door.CheckQueue("endpoint", webhook.QueueOf(s.Endpoint))
	}
	return t.door.CheckQueue("queue", s.Queue)
}

// check checks a subscription but for what is not there, and brings it to its normal form.
func (s *Subscription) check(webhooks, confirms bool) error {
	var f faults
	f.id("id", s.ID)
	f.name("topic", s.Topic)
	switch {
	case s.Endpoint == "" && s.Kind == "":
		f.field("endpoint", "", "must be set, or kind")
	case s.Endpoint != "" && s.Kind != "":
		f.field("kind", s.Kind, "must be empty for a subscription to an endpoint")
	case s.Kind != "":
		f.kind("kind", s.Kind)
		if s.Queue == "" {
			s.Queue = "default"
		}
		f.kind("queue", s.Queue)
		if s.SNS {
			f.field("sns", true, "must be false for a subscription to a kind")
		}
		if s.OnDead != "" {
			f.field("on_dead", s.OnDead, "must be empty for a subscription to a kind: it is a setting of the queue")
		}
	default:
		s.checkEndpoint(&f, webhooks, confirms)
	}
	if s.OnDead != "" && s.OnDead != Block && s.OnDead != Pass {
		f.field("on_dead", s.OnDead, "must be empty, block or pass")
	}
	if s.Policy != nil {
		profile := policy.ProfileSNS
		if s.Raw {
			profile = policy.ProfileSNSRaw
		}
		f.policy("policy", *s.Policy, s.Policy.Request, profile)
		normal, err := normalForm(*s.Policy)
		if err == nil {
			s.Policy = &normal
		}
	}
	if s.FilterScope > filter.Body {
		f.field("filter_scope", s.FilterScope, "must be Attributes or Body")
	} else if f.filter("filter", s.FilterScope, s.Filter) != nil && len(s.Filter) > 0 {
		var b bytes.Buffer
		if err := json.Compact(&b, s.Filter); err != nil {
			f.field("filter", string(s.Filter), "must be JSON")
		}
		s.Filter = b.Bytes()
	}
	return f.err()
}

// normalForm returns a document as it is read again after it was kept.
func normalForm(d policy.Document) (policy.Document, error) {
	var normal policy.Document
	doc, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(doc, &normal)
	}
	return normal, err
}

func (s *Subscription) checkEndpoint(f *faults, webhooks, confirms bool) {
	if !isName(s.Endpoint, maxEndpoint, "_-") {
		f.field("endpoint", s.Endpoint, "must match [A-Za-z0-9][A-Za-z0-9_-]{0,63}")
	}
	if !webhooks {
		f.field("endpoint", s.Endpoint, "must be empty: New was called without webhooks")
	}
	if s.Queue != "" {
		f.field("queue", s.Queue, "must be empty for a subscription to an endpoint")
	}
	if s.SNS && !confirms {
		f.field("sns", true, "must be false without Options.ConfirmURL")
	}
}

// Subscription returns a subscription, or [errand.ErrNotFound].
func (t *Topics) Subscription(ctx context.Context, id string) (Subscription, error) {
	s, _, err := t.subscription(ctx, id)
	return s, err
}

func (t *Topics) subscription(ctx context.Context, id string) (Subscription, storage.Entry, error) {
	var f faults
	if f.id("id", id); f.err() != nil {
		return Subscription{}, storage.Entry{}, f.err()
	}
	entry, err := t.door.Entry(ctx, classSubscription, id)
	if err != nil {
		return Subscription{}, entry, about("subscription", id, err)
	}
	s, _, err := subscriptionOf(&entry)
	return s, entry, err
}

// Subscriptions lists the subscriptions of a topic by ID, those whose ID is greater than
// after, at most limit of them, which must be between 1 and 1,000. If topic is empty it
// lists those of all topics.
func (t *Topics) Subscriptions(ctx context.Context, topic, after string, limit int) ([]Subscription, error) {
	if err := checkPage(after, limit); err != nil {
		return nil, err
	}
	family := ""
	if topic != "" {
		var f faults
		if f.name("topic", topic); f.err() != nil {
			return nil, f.err()
		}
		family = familyOf(topic)
	}
	entries, _, err := t.door.Entries(ctx, classSubscription, family, after, limit)
	if err != nil {
		return nil, err
	}
	all := make([]Subscription, len(entries))
	for i := range entries {
		if all[i], _, err = subscriptionOf(&entries[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// UpdateSubscription replaces all of a subscription except its ID, topic, endpoint, kind,
// queue and SNS mode. The new values hold for messages that are published later; policy
// and Raw also for waiting deliveries to endpoints. It returns [errand.ErrNotFound] if
// there is no such subscription, and [errand.ErrStale] if it has changed since
// s.Revision, which may be zero for any.
func (t *Topics) UpdateSubscription(ctx context.Context, s Subscription) (Subscription, error) {
	if err := t.check(&s); err != nil {
		return Subscription{}, err
	}
	err := t.change(ctx, func() ([]storage.Entry, error) {
		was, entry, err := t.subscription(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		if err := s.same(&was, "cannot be changed"); err != nil {
			return nil, err
		}
		if s.Revision != 0 && s.Revision != was.Revision {
			return nil, about("subscription", s.ID, errand.ErrStale)
		}
		s.State = was.State
		_, joined, err := subscriptionOf(&entry)
		if err != nil {
			return nil, err
		}
		now, err := s.entry(was.Revision, joined)
		return []storage.Entry{now}, err
	})
	var of int64
	if err == nil {
		of, err = t.settle(ctx, &s)
	}
	if err == nil {
		err = t.settleAgain(ctx, &s, of)
	}
	if err == nil && s.State == Pending {
		err = t.askConfirmation(ctx, &s)
	}
	if err != nil {
		return Subscription{}, err
	}
	return t.Subscription(ctx, s.ID)
}

// same checks that what makes a subscription another one is that of was.
func (s *Subscription) same(was *Subscription, limit string) error {
	var f faults
	for _, c := range []struct{ field, now, was string }{
		{"topic", s.Topic, was.Topic}, {"endpoint", s.Endpoint, was.Endpoint}, {"kind", s.Kind, was.Kind}, {"queue", s.Queue, was.Queue},
	} {
		if c.now != c.was {
			f.field(c.field, c.now, limit)
		}
	}
	if s.SNS != was.SNS {
		f.field("sns", s.SNS, limit)
	}
	return f.err()
}

// Unsubscribe deletes a subscription. Its waiting deliveries are cancelled when they
// would start; dead ones stay until they are purged, and jobs of a kind are left as they
// are. It returns [errand.ErrNotFound] if there is no such subscription.
func (t *Topics) Unsubscribe(ctx context.Context, id string) error {
	return t.change(ctx, func() ([]storage.Entry, error) {
		s, entry, err := t.subscription(ctx, id)
		if err != nil {
			return nil, err
		}
		entries, err := t.gone(ctx, []storage.Entry{entry})
		if err != nil {
			return nil, err
		}
		n, revision, err := t.count(ctx, s.Topic)
		if err != nil {
			return nil, about("topic", s.Topic, err)
		}
		count, err := countEntry(s.Topic, n-1, revision)
		return append(entries, count), err
	})
}

// gone returns the entries of subscriptions as they are deleted.
func (t *Topics) gone(ctx context.Context, entries []storage.Entry) ([]storage.Entry, error) {
	var all []storage.Entry
	for i := range entries {
		s, _, err := subscriptionOf(&entries[i])
		if err != nil {
			return nil, err
		}
		entries[i].Delete = true
		all = append(all, entries[i])
		for _, key := range [][2]string{{classTarget, s.target()}, {classTokens, s.ID}} {
			e, err := t.door.Entry(ctx, key[0], key[1])
			if errors.Is(err, errand.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			e.Delete = true
			all = append(all, e)
		}
	}
	return all, nil
}
