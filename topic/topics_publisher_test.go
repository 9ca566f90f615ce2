package topic_test

import (
	"errors"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
)

// withThrottle returns a topic whose policy has a throttle.
func withThrottle(name string, perSecond int) topic.Topic {
	d := policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: perSecond}}
	return topic.Topic{Name: name, Policy: &policy.Topic{Document: d}}
}

// A program that only publishes has no webhooks: what needs them is refused, and changes nothing.
func TestTopics_withoutWebhooks(t *testing.T) {
	r := newRig(t, quiet())
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	kind := r.subscribe(topic.Subscription{ID: "a", Topic: "orders", Kind: "book"})
	s := r.subscribe(topic.Subscription{ID: "b", Topic: "orders", Endpoint: "shop"})
	was, err := r.topics.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := topic.New(r.q, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	_, declare := publisher.Declare(t.Context(), withThrottle("orders", 5))
	_, update := publisher.Update(t.Context(), withThrottle("orders", 5))
	_, effective := publisher.EffectivePolicy(t.Context(), s.ID)
	for what, err := range map[string]error{"Declare": declare, "Update": update, "EffectivePolicy": effective} {
		if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "webhooks" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if is, err := publisher.Declare(t.Context(), topic.Topic{Name: "orders"}); err != nil || is.Revision != was.Revision {
		t.Errorf("a topic that is the same: %+v, %v", is, err)
	}
	if _, err := publisher.Publish(t.Context(), "orders", data); err != nil {
		t.Error(err)
	}
	if _, err := publisher.EffectivePolicy(t.Context(), kind.ID); err != nil {
		t.Error(err)
	}
	if err := publisher.Unsubscribe(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Declare(t.Context(), withThrottle("orders", 5)); err != nil {
		t.Errorf("without a subscription to an endpoint: %v", err)
	}
}
