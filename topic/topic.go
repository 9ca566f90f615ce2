package topic

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// mostOrdered is how many subscriptions an ordered topic has at most: its messages are
// always published with all their deliveries, and so in order.
const mostOrdered = 1000

// maxKeep bounds Topic.Keep.
const maxKeep = 100 * 365 * 24 * time.Hour

// Topic is what messages are published to.
type Topic struct {
	// Name names the topic: a letter or digit, and up to 99 more, dots, underscores or
	// hyphens.
	Name string `json:"name"`
	// Policy is the delivery policy of subscriptions without one, and of the sections
	// that theirs lack; with DisableSubscriptionOverrides of all. The content type of its
	// request section is application/json or text/plain. Its throttle, at most 10,000 a
	// second, is that of each endpoint by itself, see [webhook.Webhooks.Throttle]. If
	// nil, that of the endpoint, see [webhook.Endpoint]; in SNS mode that of SNS.
	Policy *policy.Topic `json:"policy,omitempty"`
	// Ordered has each subscription get the messages of a Group one after the other, in the
	// order in which they were published, see [errand.JobOptions].Group. It cannot be
	// changed. An ordered topic has at most 1,000 subscriptions. If false, messages have no
	// groups.
	Ordered bool `json:"ordered"`
	// Keep is how long messages are kept for [Topics.Replay] after they were published. A
	// message with deliveries that are live, dead, or finished and still listed, is kept in
	// any case. If zero, only these are.
	Keep time.Duration `json:"keep_s,omitempty"`

	// What follows is set by the queue, and ignored in what is passed to it.

	// Subscriptions is how many there are, also those that are not confirmed.
	Subscriptions int       `json:"subscriptions"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
	// Revision is that of the last change. If it is not zero, Update refuses a topic that
	// has changed since.
	Revision int64 `json:"revision"`
}

// MarshalJSON writes durations in seconds.
func (p Topic) MarshalJSON() ([]byte, error) { return seconds.Marshal(p) }

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Topic) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, p) }

// topicDoc is a topic as it is kept, with durations in nanoseconds.
type topicDoc struct {
	Policy  *policy.Topic `json:"policy,omitempty"`
	Ordered bool          `json:"ordered,omitempty"`
	Keep    time.Duration `json:"keep,omitempty"`
	// Unthrottled is true from a change of the throttle until all endpoints obey it.
	Unthrottled bool `json:"unthrottled,omitempty"`
}

// countDoc says how many subscriptions a topic has. Who subscribes or unsubscribes writes
// it too, so that no two of them do so at a time, nor one while the topic is deleted.
type countDoc struct {
	N int `json:"n"`
}

// familyOf returns the family of the entries of a topic. It is also what its messages are
// of: those of package webhook are of another.
func familyOf(name string) string { return "topic/" + name }

// queueOf returns the queue of the publications of a topic.
func queueOf(name string) string { return "topic/" + name }

func (p *Topic) check() error {
	var f faults
	f.name("name", p.Name)
	if p.Policy != nil {
		f.policy("policy", *p.Policy, p.Policy.Request, policy.ProfileSNS)
	}
	if p.Keep < 0 || p.Keep > maxKeep {
		f.field("keep", p.Keep, fmt.Sprintf("must be between 0 and %v", maxKeep))
	}
	return f.err()
}

// checkNew checks a topic that is to be there, also that its jobs are let into their queue.
func (t *Topics) checkNew(p *Topic) error {
	if err := p.check(); err != nil {
		return err
	}
	err := t.door.CheckQueue("queue", queueOf(p.Name))
	if f, ok := errors.AsType[*errand.FieldError](err); ok {
		f.Limit += fmt.Sprintf("; topic.Queues, %q, lists those of all topics", Queues)
	}
	return err
}

func (p *Topic) entry(revision int64) (storage.Entry, error) { return p.entryAs(revision, false) }

func (p *Topic) entryAs(revision int64, unthrottled bool) (storage.Entry, error) {
	doc, err := json.Marshal(topicDoc{Policy: p.Policy, Ordered: p.Ordered, Keep: p.Keep, Unthrottled: unthrottled})
	return storage.Entry{Class: classTopic, Name: p.Name, Family: familyOf(p.Name), Revision: revision, Doc: doc}, err
}

// topicOf reads a topic without the number of its subscriptions.
func topicOf(e *storage.Entry) (Topic, error) {
	var d topicDoc
	if err := json.Unmarshal(e.Doc, &d); err != nil {
		return Topic{}, unreadable(e, err)
	}
	return Topic{
		Name: e.Name, Policy: d.Policy, Ordered: d.Ordered, Keep: d.Keep,
		CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt, Revision: e.Revision,
	}, nil
}

func unreadable(e *storage.Entry, err error) error {
	return fmt.Errorf("%w: %s %q: %w", errand.ErrCorrupt, e.Class, e.Name, err)
}

// about says what an error is about.
func about(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}

// Create adds a topic. It returns an [errand.FieldError] for each fault of the topic, and
// an error that is [errand.ErrStale] if there is one with its name. It is a fault if
// [errand.Options].Strict refuses the topic's queue, see [Queues].
func (t *Topics) Create(ctx context.Context, p Topic) (Topic, error) {
	if err := t.checkNew(&p); err != nil {
		return Topic{}, err
	}
	entry, err := p.entry(0)
	if err != nil {
		return Topic{}, err
	}
	count, err := countEntry(p.Name, 0, 0)
	if err != nil {
		return Topic{}, err
	}
	if _, err := t.door.PutEntries(ctx, []storage.Entry{entry, count}); err != nil {
		if errors.Is(err, errand.ErrStale) {
			err = fmt.Errorf("it is there already: %w", err)
		}
		return Topic{}, about("topic", p.Name, err)
	}
	return t.Topic(ctx, p.Name)
}

// CreateTx is [Topics.Create] inside a transaction of the application on the queue's file, see
// [errand.Queue.EnqueueTx]: the topic is there if tx commits. The Topic that CreateTx returns is valid only then.
// From the call on until tx has ended nobody else writes to the file. After an error roll tx back.
func (t *Topics) CreateTx(ctx context.Context, tx *sql.Tx, p Topic) (Topic, error) {
	in, err := t.inside(tx)
	if err != nil {
		return Topic{}, err
	}
	return in.Create(ctx, p)
}

func countEntry(name string, n int, revision int64) (storage.Entry, error) {
	doc, err := json.Marshal(countDoc{n})
	return storage.Entry{Class: classCount, Name: name, Family: familyOf(name), Revision: revision, Doc: doc}, err
}

// count reads how many subscriptions a topic has, with the revision of the entry.
func (t *Topics) count(ctx context.Context, name string) (n int, revision int64, err error) {
	entry, err := t.door.Entry(ctx, classCount, name)
	if err != nil {
		return 0, 0, err
	}
	var d countDoc
	if err := json.Unmarshal(entry.Doc, &d); err != nil {
		return 0, 0, unreadable(&entry, err)
	}
	return d.N, entry.Revision, nil
}

// Update replaces all of a topic except its name. Waiting deliveries go by the new
// policy. Update returns [errand.ErrNotFound] if there is no such topic, and
// [errand.ErrStale] if it has changed since p.Revision, which may be zero for any. An
// Update that is cut short while the endpoints get a new throttle has changed the topic.
// The next Update or [Topics.Declare] sets the throttle of the rest.
func (t *Topics) Update(ctx context.Context, p Topic) (Topic, error) {
	if err := p.check(); err != nil {
		return Topic{}, err
	}
	unthrottled := false
	err := t.change(ctx, func() ([]storage.Entry, error) {
		entry, err := t.door.Entry(ctx, classTopic, p.Name)
		if err != nil {
			return nil, err
		}
		was, err := topicOf(&entry)
		if err != nil {
			return nil, err
		}
		if p.Ordered != was.Ordered {
			return nil, &errand.FieldError{Field: "ordered", Value: p.Ordered, Limit: "cannot be changed"}
		}
		if p.Revision != 0 && p.Revision != was.Revision {
			return nil, errand.ErrStale
		}
		unthrottled = isUnthrottled(&entry)
		if throttles(was.Policy) != throttles(p.Policy) {
			if t.webhooks != nil {
				unthrottled = true
			} else if err := t.throttleEach(ctx, &p); err != nil { // there must be none
				return nil, err
			}
		}
		now, err := p.entryAs(was.Revision, unthrottled)
		return []storage.Entry{now}, err
	})
	if err == nil && unthrottled && t.webhooks != nil {
		err = t.throttleAll(ctx, p.Name)
	}
	if err != nil {
		return Topic{}, about("topic", p.Name, err)
	}
	return t.Topic(ctx, p.Name)
}

// Topic returns a topic, or [errand.ErrNotFound].
func (t *Topics) Topic(ctx context.Context, name string) (Topic, error) {
	var f faults
	if f.name("name", name); f.err() != nil {
		return Topic{}, f.err()
	}
	p, err := t.topic(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	p.Subscriptions, _, err = t.count(ctx, name)
	return p, about("topic", name, err)
}

func (t *Topics) topic(ctx context.Context, name string) (Topic, error) {
	entry, err := t.door.Entry(ctx, classTopic, name)
	if err != nil {
		return Topic{}, about("topic", name, err)
	}
	return topicOf(&entry)
}

// Topics lists topics by name, those whose name is greater than after, at most limit of
// them, which must be between 1 and 1,000.
func (t *Topics) Topics(ctx context.Context, after string, limit int) ([]Topic, error) {
	if err := checkPage(after, limit); err != nil {
		return nil, err
	}
	entries, _, err := t.door.Entries(ctx, classTopic, "", after, limit)
	if err != nil {
		return nil, err
	}
	all := make([]Topic, len(entries))
	for i := range entries {
		if all[i], err = topicOf(&entries[i]); err != nil {
			return nil, err
		}
		n, _, err := t.count(ctx, all[i].Name)
		if err != nil && !errors.Is(err, errand.ErrNotFound) { // deleted meanwhile
			return nil, err
		}
		all[i].Subscriptions = n
	}
	return all, nil
}

func checkPage(after string, limit int) error {
	var f faults
	if after != "" {
		f.name("after", after)
	}
	if limit < 1 || limit > 1000 {
		f.field("limit", limit, "must be between 1 and 1000")
	}
	return f.err()
}

// deleteStep is how many subscriptions are deleted in a transaction.
const deleteStep = 200

// Delete deletes a topic with its subscriptions. Waiting deliveries are cancelled when
// they would start; dead ones stay until they are purged. It returns [errand.ErrNotFound]
// if there is no such topic.
//
// Delete works in steps. If it returns an error the topic is still there, with the
// subscriptions that were not deleted yet.
func (t *Topics) Delete(ctx context.Context, name string) error {
	var f faults
	if f.name("name", name); f.err() != nil {
		return f.err()
	}
	for done := false; !done; {
		err := t.change(ctx, func() ([]storage.Entry, error) {
			n, revision, err := t.count(ctx, name)
			if err != nil {
				return nil, err
			}
			subs, _, err := t.door.Entries(ctx, classSubscription, familyOf(name), "", deleteStep)
			if err != nil {
				return nil, err
			}
			entries, err := t.gone(ctx, subs)
			if err != nil {
				return nil, err
			}
			count, err := countEntry(name, n-len(subs), revision)
			if done = len(subs) < deleteStep; !done || err != nil {
				return append(entries, count), err
			}
			entry, err := t.door.Entry(ctx, classTopic, name)
			if err != nil {
				return nil, err
			}
			count.Delete, entry.Delete = true, true
			return append(entries, count, entry), nil
		})
		if err != nil {
			return about("topic", name, err)
		}
	}
	t.cache.forget(name)
	return nil
}
