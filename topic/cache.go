package topic

import (
	"context"
	"errors"
	"sync"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

const (
	// mostMatched is how many subscriptions of a topic are matched when a message is
	// published. A topic with more than that leaves all to the job of the publication.
	mostMatched = 10_000
	// mostCached is how many subscriptions a process keeps in memory, of all topics
	// together.
	mostCached = 50_000
)

// member is a subscription as messages are matched against it.
type member struct {
	Subscription
	joined int64
	filter *filter.Policy
}

func memberOf(e *storage.Entry) (*member, error) {
	s, joined, err := subscriptionOf(e)
	if err != nil {
		return nil, err
	}
	m := &member{Subscription: s, joined: joined, filter: &filter.Policy{}}
	if len(s.Filter) > 0 {
		if m.filter, err = filter.Parse(s.FilterScope, s.Filter); err != nil {
			return nil, unreadable(e, err)
		}
	}
	return m, nil
}

// gets reports whether the subscription gets a message.
func (m *member) gets(p *published) bool { return m.State != Pending && p.matches(m.filter) }

// delivery returns the job by which the subscription gets a message of a topic.
func (m *member) delivery(top *Topic, p *published) (errand.NewJob, error) {
	o := &errand.JobOptions{Queue: m.Queue, Tags: append([]string{Tag(m.ID)}, p.Tags...)}
	if p.Group != "" {
		o.Group = m.ID + "/" + p.Group
	}
	if m.Endpoint != "" {
		o.Queue = webhook.QueueOf(m.Endpoint)
		return errand.NewJob{Args: delivery{Topic: m.Topic, Subscription: m.ID, Message: p.id}, Options: o}, nil
	}
	if d := retries(top, &m.Subscription); d != (policy.Document{}) {
		o.Policy = d
	}
	args, err := p.argsOf(m.Topic, m.Raw)
	return errand.NewJob{Args: errand.RawArgs{OfKind: m.Kind, JSON: args}, Options: o}, err
}

// size returns how many bytes of args the job has that delivery returns, if they are a copy of
// the message.
func (m *member) size(p *published) int {
	if m.Kind == "" {
		return 0
	}
	args, _ := p.argsOf(m.Topic, m.Raw) // delivery returns the error
	return len(args)
}

// retries returns what the delivery policy says about the retries of jobs of a kind.
func retries(top *Topic, s *Subscription) policy.Document {
	d := effective(top, s, policy.Document{})
	return policy.Document{Retry: d.Retry, ThrottledRetry: d.ThrottledRetry}
}

// snapshot is a topic with its subscriptions at a revision.
type snapshot struct {
	Topic
	revision int64
	members  []*member
	// many is true if the topic has more than are matched when a message is published.
	many bool
}

// cache keeps snapshots by the name of the topic. One that is out of date is noticed by the
// transaction that publishes.
type cache struct {
	mu  sync.Mutex
	all map[string]*snapshot
	n   int // members
}

func (c *cache) get(name string) *snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[name]
}

func (c *cache) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
}

func (c *cache) drop(name string) {
	if s := c.all[name]; s != nil {
		c.n -= len(s.members) + 1
		delete(c.all, name)
	}
}

func (c *cache) put(s *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(s.Name)
	for name := range c.all {
		if c.n+len(s.members) < mostCached {
			break
		}
		c.drop(name)
	}
	if c.all == nil {
		c.all = map[string]*snapshot{}
	}
	c.all[s.Name] = s
	c.n += len(s.members) + 1
}

// snapshot returns a topic with its subscriptions. If fresh it is read from the file.
func (t *Topics) snapshot(ctx context.Context, name string, fresh bool) (*snapshot, error) {
	was := t.cache.get(name)
	if was != nil && !fresh {
		return was, nil
	}
	s, entries, err := t.look(ctx, name, mostMatched)
	if err != nil {
		t.cache.forget(name)
		return nil, err
	}
	if s.many = len(entries) == mostMatched; !s.many {
		if s.members, err = membersOf(entries, was); err != nil {
			return nil, err
		}
	}
	t.cache.put(s)
	return s, nil
}

// membersOf reads subscriptions, as far as they have changed since the snapshot before.
func membersOf(entries []storage.Entry, before *snapshot) (members []*member, err error) {
	known := map[string]*member{}
	if before != nil {
		for _, m := range before.members {
			known[m.ID] = m
		}
	}
	members = make([]*member, len(entries))
	for i := range entries {
		if m := known[entries[i].Name]; m != nil && m.Revision == entries[i].Revision {
			members[i] = m
		} else if members[i], err = memberOf(&entries[i]); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// look returns a topic and the entries of at most so many subscriptions, of one revision.
func (t *Topics) look(ctx context.Context, name string, most int) (*snapshot, []storage.Entry, error) {
	for least := int64(0); ; {
		entries, revision, err := t.door.Entries(ctx, classSubscription, familyOf(name), "", most)
		if err != nil {
			return nil, nil, err
		}
		p, err := t.topic(ctx, name)
		if errors.Is(err, errand.ErrNotFound) {
			return nil, nil, notThere("topic", name, "a topic that is there")
		}
		if err != nil {
			return nil, nil, err
		}
		if p.Revision <= revision { // else it was changed between the two
			return &snapshot{Topic: p, revision: revision}, entries, nil
		}
		if revision < least { // the store is at fault, as above it has said more
			return nil, nil, about("topic", name, errand.ErrStale)
		}
		least = p.Revision
	}
}
