package topic

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// throttling is what a policy says about throttles.
type throttling struct {
	rate    policy.Throttle
	has     bool
	disable bool
}

func throttles(p *policy.Topic) throttling {
	if p == nil {
		return throttling{}
	}
	t := throttling{has: p.Throttle != nil, disable: p.DisableSubscriptionOverrides}
	if t.has {
		t.rate = *p.Throttle
	}
	return t
}

// isUnthrottled reports whether endpoints may not obey the throttle of a topic, as a change of it
// is under way or was cut short.
func isUnthrottled(e *storage.Entry) bool {
	var d topicDoc
	return json.Unmarshal(e.Doc, &d) == nil && d.Unthrottled
}

// throttleAll has the endpoints of all subscriptions of a topic obey its policy, and notes that they
// do. Others change the topic and its subscriptions meanwhile: for each time that it begins anew
// a change of theirs has succeeded.
func (t *Topics) throttleAll(ctx context.Context, name string) error {
	for {
		entry, err := t.door.Entry(ctx, classTopic, name)
		if err != nil {
			return gone(err)
		}
		p, err := topicOf(&entry)
		if err != nil {
			return err
		}
		if err := t.throttleEach(ctx, &p); err != nil {
			return err
		}
		now, err := t.door.Entry(ctx, classTopic, name)
		if err != nil {
			return gone(err)
		}
		if now.Revision != entry.Revision {
			continue
		}
		if !isUnthrottled(&now) {
			return nil // another call was here
		}
		done, err := p.entry(now.Revision)
		if err != nil {
			return err
		}
		if _, err = t.door.PutEntries(ctx, []storage.Entry{done}); !errors.Is(err, errand.ErrStale) {
			return err
		}
	}
}

// throttleEach has the endpoints of all subscriptions of a topic obey a policy. Who subscribes later
// reads the topic after that.
func (t *Topics) throttleEach(ctx context.Context, p *Topic) error {
	for after := ""; ; {
		entries, _, err := t.door.Entries(ctx, classSubscription, familyOf(p.Name), after, fanOutStep)
		if err != nil || len(entries) == 0 {
			return err
		}
		for i := range entries {
			if err := t.throttleOne(ctx, &entries[i], p); err != nil && !errors.Is(err, errand.ErrNotFound) {
				return err
			}
		}
		after = entries[len(entries)-1].Name
	}
}

// throttleOne has the endpoint of a subscription obey its policy and that of its topic, also if
// another call changes the subscription meanwhile.
func (t *Topics) throttleOne(ctx context.Context, e *storage.Entry, p *Topic) error {
	s, _, err := subscriptionOf(e)
	for err == nil && s.Endpoint != "" {
		if err := t.throttle(ctx, &s, p); err != nil {
			return err
		}
		was := s.Revision
		if s, _, err = t.subscription(ctx, s.ID); s.Revision == was {
			break
		}
	}
	return err
}

// throttle has the endpoint of a subscription obey the throttle of its policy.
func (t *Topics) throttle(ctx context.Context, s *Subscription, top *Topic) error {
	if s.Endpoint == "" {
		return nil
	}
	if t.webhooks == nil {
		return noWebhooks(s)
	}
	rate := effective(top, s, policy.Document{}).Throttle
	if t.tx != nil {
		return t.webhooks.ThrottleTx(ctx, t.tx, s.Endpoint, rate)
	}
	return t.webhooks.Throttle(ctx, s.Endpoint, rate)
}
