package topic_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
)

// A delivery says what it is about, and is found by the tags of its message, also one that is made
// by the job of a large topic or by a replay.
func TestTopics_Delivery(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders", Keep: time.Hour})
	r.endpoint("shop")
	r.subscribe(topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop"})
	r.subscribe(topic.Subscription{ID: "s2", Topic: "orders", Kind: "book", Queue: "small"})
	r.fill("small") // the job makes the deliveries
	m := topic.Message{
		ID: "m1", Subject: "Hello", Body: []byte("a < b"), Tags: []string{"tenant:ada"},
		Attributes: map[string]filter.Attribute{"total": {Type: "Number.cents", Value: "9900"}},
	}
	if got := r.publish("orders", m); !got.FanOut {
		t.Fatalf("published: %+v", got)
	}
	wait := r.events("topic.fanout", errand.EventDone)
	stop := r.start(nil, topic.Queues)
	wait(1)
	stop()
	r.roomFor("small", 10, "topic/orders", 1)
	if n, err := r.topics.Replay(t.Context(), "s1", time.Time{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	all := r.jobs(errand.JobFilter{Tag: "tenant:ada"})
	if len(all) != 4 {
		t.Errorf("%d deliveries of a tenant, want 4: the one that was refused too", len(all))
	}
	for _, job := range all {
		want, endpoint, url := "s1", "shop", "https://shop.example/hook"
		if job.Kind != "topic" {
			want, endpoint, url = "s2", "", ""
		}
		got, err := r.topics.Delivery(t.Context(), job.ID)
		if err != nil || got.Topic != "orders" || got.Subscription != want || got.Endpoint != endpoint || got.URL != url || got.PublishedAt.IsZero() || !reflect.DeepEqual(got.Message, m) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := r.topics.Delivery(t.Context(), errand.ID{1}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("no job: %v", err)
	}
	for _, job := range r.jobs(errand.JobFilter{Kind: "other"}) {
		if _, err := r.topics.Delivery(t.Context(), job.ID); err == nil || fields(t, err) != "job" {
			t.Errorf("another job: %v", err)
		}
	}
	bad := topic.Message{Body: m.Body, Tags: []string{"a b", "message:m1", strings.Repeat("x", 65), "subscription:s1", "", "y"}}
	if _, err := r.topics.Publish(t.Context(), "orders", bad); err == nil || fields(t, err) != "tags tags[0] tags[1] tags[2] tags[3] tags[4]" {
		t.Errorf("bad tags: %v", err)
	}
}

// A delivery that was moved to another queue goes to the endpoint of its subscription.
func TestTopics_Delivery_moved(t *testing.T) {
	r := newRig(t, quiet())
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	r.endpoint("other")
	r.subscribe(topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop"})
	id := r.publish("orders", data).Jobs[0].ID
	is := func(queue, endpoint, url string) {
		t.Helper()
		if _, err := r.q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, errand.JobChange{Queue: queue}); err != nil {
			t.Fatal(err)
		}
		if got, err := r.topics.Delivery(t.Context(), id); err != nil || got.Endpoint != endpoint || got.URL != url {
			t.Errorf("in %s: %q at %q, %v", queue, got.Endpoint, got.URL, err)
		}
	}
	for _, queue := range []string{"slow", "slow/jobs", "webhook/other"} {
		is(queue, "shop", "https://shop.example/hook")
	}
	if err := r.topics.Unsubscribe(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	is("slow", "", "")
	is("webhook/shop", "shop", "https://shop.example/hook")
}
