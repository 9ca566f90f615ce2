package topic_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
)

// What somebody has set for the queue of an endpoint stays when a program says again what is there.
func TestTopics_Subscribe_leavesSettings(t *testing.T) {
	r := newRig(t, quiet())
	r.create(withThrottle("orders", 5))
	r.create(topic.Topic{Name: "stock"})
	all := []topic.Subscription{
		{Topic: "orders", Endpoint: "by-topic"},
		{Topic: "stock", Endpoint: "own", OnDead: topic.Block, Policy: &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 5}}},
		{Topic: "stock", Endpoint: "none"},
	}
	three, pass := 3, errand.PassDead
	for _, s := range all {
		r.endpoint(s.Endpoint)
		r.subscribe(s)
		queue := "webhook/" + s.Endpoint
		if is := r.settings(queue).Starts; (is != nil && *is == 5) != (s.Endpoint != "none") {
			t.Errorf("%s: a new subscription has its queue start %v a second", s.Endpoint, is)
		}
		if err := r.q.Configure(t.Context(), errand.Lane{Queue: queue}, errand.Settings{Starts: &three, DeadHead: &pass}); err != nil {
			t.Fatal(err)
		}
		r.subscribe(s)
		r.subscribe(topic.Subscription{Topic: s.Topic, Endpoint: s.Endpoint})
		if is := r.settings(queue); is.Starts == nil || *is.Starts != 3 || is.DeadHead == nil || *is.DeadHead != errand.PassDead {
			t.Errorf("%s: the settings are %+v", s.Endpoint, is)
		}
	}
}

// A Subscribe that is cut short before its endpoint obeys the throttle has added nothing.
func TestTopics_Subscribe_cutShort(t *testing.T) {
	r := newRig(t, quiet())
	r.create(withThrottle("orders", 5))
	r.endpoint("shop")
	entries, err := door.Open[errand.NewJob](r.q)
	if err != nil {
		t.Fatal(err)
	}
	top, err := entries.Entry(t.Context(), "topic", "orders")
	if err != nil {
		t.Fatal(err)
	}
	put := func(doc []byte) {
		e := top
		e.Doc = doc
		if top.Revision, err = entries.PutEntries(t.Context(), []storage.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	whole := top.Doc
	s := topic.Subscription{ID: "a", Topic: "orders", Endpoint: "shop"}
	doc, err := json.Marshal(map[string]any{"policy": withThrottle("", 20_000).Policy}) // which no queue obeys
	if err != nil {
		t.Fatal(err)
	}
	put(doc)
	if _, err := r.topics.Subscribe(t.Context(), s); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("with a throttle that cannot be set: %v", err)
	}
	if _, err := r.topics.Subscription(t.Context(), "a"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("the subscription: %v", err)
	}
	put(whole)
	r.subscribe(s)
	if is := r.settings("webhook/shop").Starts; is == nil || *is != 5 {
		t.Errorf("the queue starts %v a second", is)
	}
}
