package topic_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// atOnce retries without delay.
func atOnce(n int) *policy.Topic {
	return &policy.Topic{Document: policy.Document{Retry: &policy.Policy{Retries: n, NoDelayRetries: n, MinDelay: time.Second, MaxDelay: time.Second}}}
}

func TestTopics_deliver(t *testing.T) {
	for _, raw := range []bool{true, false} {
		var log bytes.Buffer
		r := newRig(t, &topic.Options{StatusLog: slog.New(slog.NewJSONHandler(&log, nil))})
		r.create(topic.Topic{Name: "orders"})
		r.endpoint("shop")
		r.subscribe(topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop", Raw: raw})
		wait := r.events("topic", errand.EventDone)
		m := topic.Message{ID: "m1", Subject: "An <order>", Body: []byte(`{"order": 17}`), Attributes: map[string]filter.Attribute{"a": {Type: "String", Value: "b"}}}
		r.publish("orders", m)
		stop := r.start(nil, "webhook/shop")
		wait(1)
		stop()
		got := r.net.all()
		if len(got) != 1 {
			t.Fatalf("%d requests", len(got))
		}
		h := got[0].header
		if h.Get(webhook.HeaderID) != "m1" || h.Get(webhook.HeaderSignature) == "" || h.Get("Content-Type") != "application/json" || h.Get("X-Amz-Sns-Message-Type") != "" {
			t.Errorf("headers: %v", h)
		}
		if raw {
			if got[0].body != string(m.Body) {
				t.Errorf("body: %s", got[0].body)
			}
		} else {
			var is map[string]any
			if err := json.Unmarshal([]byte(got[0].body), &is); err != nil {
				t.Fatal(err)
			}
			if _, err := time.Parse(time.RFC3339Nano, is["timestamp"].(string)); err != nil {
				t.Error(err)
			}
			delete(is, "timestamp")
			want := map[string]any{
				"type": "Notification", "messageId": "m1", "topic": "orders", "subject": "An <order>", "message": `{"order": 17}`,
				"attributes": map[string]any{"a": map[string]any{"Type": "String", "Value": "b"}},
			}
			if !reflect.DeepEqual(is, want) || !strings.Contains(got[0].body, "<order>") {
				t.Errorf("body: %s", got[0].body)
			}
		}
		var line struct {
			Level, Msg, Status string
			Notification       struct{ MessageMD5Sum, MessageID, TopicArn, Timestamp string }
			Delivery           struct {
				DeliveryID, Destination, ProviderResponse string
				DwellTimeMs, Attempts, StatusCode         int
			}
		}
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, &log)
		}
		n, d := line.Notification, line.Delivery
		if line.Level != "INFO" || line.Status != "SUCCESS" || n.MessageMD5Sum != "e531d4d0daf8ca0cd05ed2b5bbeae5da" ||
			n.MessageID != "m1" || n.TopicArn != "errand:topic:orders" || n.Timestamp == "" {
			t.Errorf("status: %s", &log)
		}
		if d.Destination != "shop" || d.ProviderResponse != "heard" || d.Attempts != 1 || d.StatusCode != 200 || d.DeliveryID == "" || d.DwellTimeMs < 0 {
			t.Errorf("status: %s", &log)
		}
	}
}

// The event types of an endpoint are not about topics.
func TestTopics_deliver_eventTypes(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	_, _, err := r.hooks.Create(t.Context(), webhook.Endpoint{ID: "shop", URL: "https://shop.example/hook", EventTypes: []string{"other.*"}}, webhook.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop"})
	wait := r.events("topic", errand.EventDone, errand.EventCancelled)
	r.publish("orders", data)
	stop := r.start(nil, "webhook/shop")
	wait(1)
	stop()
	if n := len(r.net.all()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A policy that is changed, and an end of the subscription, reach deliveries that wait.
func TestTopics_deliver_afterAChange(t *testing.T) {
	r := newRig(t, nil)
	r.net.answer = func(*sent, int) int { return 500 }
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	s := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop"})
	r.publish("orders", data)
	s.Raw, s.Policy = true, &policy.Document{Retry: &policy.Policy{}} // no retry
	if _, err := r.topics.UpdateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	wait := r.events("topic", errand.EventDead, errand.EventRetried, errand.EventCancelled)
	stop := r.start(nil, "webhook/shop")
	wait(1)
	got := r.jobs(errand.JobFilter{Tag: topic.Tag(s.ID)})
	if len(got) != 1 || got[0].State != errand.Dead || got[0].Reason != errand.ReasonExhausted || r.net.all()[0].body != string(data.Body) {
		t.Errorf("after a change: %+v", got)
	}
	stop()
	again, err := r.topics.Redrive(t.Context(), s.ID)
	if err != nil || again.Redriven != 1 {
		t.Errorf("redriven: %+v, %v", again, err)
	}
	if err := r.topics.Unsubscribe(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	stop = r.start(nil, "webhook/shop")
	wait(1)
	stop()
	if got := r.jobs(errand.JobFilter{Tag: topic.Tag(s.ID)}); got[0].State != errand.Cancelled || len(r.net.all()) != 1 {
		t.Errorf("after the end: %+v", got)
	}
	if _, err := r.topics.Redrive(t.Context(), s.ID); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("a subscription that is gone: %v", err)
	}
}

// A receiver that fails every third request gets the messages of each group in order, once
// it takes them.
func TestTopics_deliver_ordered(t *testing.T) {
	const groups, each = 4, 15
	r := newRig(t, nil)
	taken := map[string][]string{}
	r.net.answer = func(s *sent, n int) int {
		if n%3 == 1 {
			return 503
		}
		group, _, _ := strings.Cut(s.body, " ")
		taken[group] = append(taken[group], s.body)
		return 200
	}
	r.create(topic.Topic{Name: "orders", Ordered: true, Policy: atOnce(100)})
	r.endpoint("shop")
	r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop", Raw: true})
	wait := r.events("topic", errand.EventDone)
	stop := r.start(nil, "webhook/shop")
	want := map[string][]string{}
	for i := range each {
		for g := range groups {
			group := fmt.Sprint("g", g)
			body := fmt.Sprintf("%s message %d", group, i)
			want[group] = append(want[group], body)
			r.publish("orders", topic.Message{Group: group, Body: []byte(body)})
		}
	}
	wait(groups * each)
	stop()
	if !reflect.DeepEqual(taken, want) {
		t.Errorf("taken: %v", taken)
	}
}

// OnDead of a subscription is the setting of its endpoint's queue.
func TestTopics_Subscribe_onDead(t *testing.T) {
	for on, want := range map[topic.OnDead]int{topic.Block: 1, topic.Pass: 2} {
		r := newRig(t, nil)
		r.net.answer = func(s *sent, _ int) int {
			if s.body == "bad" {
				return 500
			}
			return 200
		}
		r.create(topic.Topic{Name: "orders", Ordered: true, Policy: atOnce(0)})
		r.endpoint("shop")
		r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop", Raw: true, OnDead: on})
		wait := r.events("topic", errand.EventDone, errand.EventDead)
		for _, m := range []topic.Message{{Group: "a", Body: []byte("bad")}, {Group: "a", Body: []byte("good")}, {Group: "b", Body: []byte("other")}} {
			r.publish("orders", m)
		}
		stop := r.start(nil, "webhook/shop")
		wait(1 + want)
		stop()
		if done := r.jobs(errand.JobFilter{States: []errand.State{errand.Done}}); len(done) != want {
			t.Errorf("%s: %d are done", on, len(done))
		}
	}
}

// The throttle in effect for a subscription is that of its endpoint's queue.
func TestTopics_throttle(t *testing.T) {
	r := newRig(t, nil)
	starts := func(endpoint string) int {
		all, err := r.q.Settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Queue == webhook.QueueOf(endpoint) && s.Starts != nil {
				return *s.Starts
			}
		}
		return 0
	}
	rate := func(n int) *policy.Throttle { return &policy.Throttle{MaxReceivesPerSecond: n} }
	r.create(topic.Topic{Name: "orders", Policy: &policy.Topic{Document: policy.Document{Throttle: rate(7)}}})
	for _, id := range []string{"a", "b"} {
		r.endpoint(id)
	}
	r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "a"})
	b := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "b", Policy: &policy.Document{Throttle: rate(3)}})
	check := func(what string, a, b int) {
		t.Helper()
		if x, y := starts("a"), starts("b"); x != a || y != b {
			t.Errorf("%s: %d and %d a second, want %d and %d", what, x, y, a, b)
		}
	}
	check("at first", 7, 3)
	b.Policy = nil
	if _, err := r.topics.UpdateSubscription(t.Context(), b); err != nil {
		t.Error(err)
	}
	check("without its own", 7, 7)
	if _, err := r.topics.Update(t.Context(), topic.Topic{Name: "orders", Policy: &policy.Topic{Document: policy.Document{Throttle: rate(9)}}}); err != nil {
		t.Error(err)
	}
	check("of the topic", 9, 9)
	if _, err := r.topics.Update(t.Context(), topic.Topic{Name: "orders"}); err != nil {
		t.Error(err)
	}
	check("of none", 0, 0)
}

func TestTopics_Publish_dedup(t *testing.T) {
	now := time.Now()
	r := rigWith(t, t.TempDir()+"/jobs.db", nil, errand.Options{Clock: func() time.Time { return now }})
	r.create(topic.Topic{Name: "orders", Ordered: true})
	r.create(topic.Topic{Name: "others", Ordered: true})
	for _, name := range []string{"orders", "others"} {
		r.subscribe(topic.Subscription{Topic: name, Kind: "book"})
	}
	m := topic.Message{Group: "g", DedupID: "d", Body: data.Body}
	first := r.publish("orders", m)
	if again := r.publish("orders", m); !again.Duplicate || again.ID != first.ID || again.Jobs != nil {
		t.Errorf("at once: %+v", again)
	}
	if other := r.publish("others", m); other.Duplicate {
		t.Error("a message of another topic is a duplicate")
	}
	now = now.Add(5*time.Minute - time.Second)
	if again := r.publish("orders", m); !again.Duplicate {
		t.Error("within five minutes it is no duplicate")
	}
	now = now.Add(time.Second)
	if later := r.publish("orders", m); later.Duplicate || later.ID == first.ID {
		t.Error("after five minutes it is a duplicate")
	}
}

// The ID of a message of another topic, or of package webhook, is refused by the name that it has
// in the call.
func TestTopics_Publish_idOfAnother(t *testing.T) {
	r := newRig(t, nil)
	r.endpoint("shop")
	for _, name := range []string{"orders", "others"} {
		r.create(topic.Topic{Name: name, Keep: time.Hour})
	}
	r.publish("others", topic.Message{ID: "m1", Body: data.Body})
	if _, err := r.hooks.Send(t.Context(), webhook.Message{ID: "m2"}, "shop"); err != nil {
		t.Fatal(err)
	}
	again := topic.Message{ID: "m1", Body: data.Body}
	_, errOne := r.topics.Publish(t.Context(), "orders", again)
	_, errMany := r.topics.PublishMany(t.Context(), "orders", []topic.Message{data, {ID: "m2", Body: data.Body}})
	_, errSend := r.hooks.Send(t.Context(), webhook.Message{ID: "m1"}, "shop")
	errTx := r.q.Tx(t.Context(), func(tx *sql.Tx) error {
		_, err := r.topics.PublishTx(t.Context(), tx, "orders", again)
		return err
	})
	for i, c := range []struct {
		err   error
		field string
	}{{errOne, "id"}, {errMany, "messages[1].id"}, {errSend, "id"}, {errTx, "id"}} {
		if f, ok := errors.AsType[*errand.FieldError](c.err); !ok || f.Field != c.field || !errors.Is(c.err, errand.ErrMessageID) {
			t.Errorf("%d: %v, want a fault of %s", i, c.err, c.field)
		}
	}
}

func TestTopics_Replay(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	r := rigWith(t, t.TempDir()+"/jobs.db", nil, errand.Options{Clock: func() time.Time { return now }})
	r.create(topic.Topic{Name: "orders", Keep: time.Hour})
	r.create(topic.Topic{Name: "others", Keep: time.Hour})
	r.publish("others", data)
	for i := range 450 {
		now = now.Add(time.Millisecond)
		r.publish("orders", topic.Message{ID: fmt.Sprintf("m%03d", i), Body: fmt.Appendf(nil, `{"even": %t}`, i%2 == 0)})
	}
	all := r.subscribe(topic.Subscription{Topic: "orders", Kind: "all", Raw: true})
	even := r.subscribe(topic.Subscription{Topic: "orders", Kind: "even", Filter: json.RawMessage(`{"even": [true]}`), FilterScope: filter.Body})
	if n, err := r.topics.Replay(t.Context(), all.ID, now.Add(-9*time.Millisecond)); n != 10 || err != nil {
		t.Errorf("the last ten: %d, %v", n, err)
	}
	if n, err := r.topics.Replay(t.Context(), even.ID, time.Time{}); n != 225 || err != nil {
		t.Errorf("all that match: %d, %v", n, err)
	}
	var got []string
	for _, j := range r.jobs(errand.JobFilter{Kind: "all"}) {
		i := slices.IndexFunc(j.Tags, func(s string) bool { return strings.HasPrefix(s, "message:") })
		got = append(got, j.Tags[i])
	}
	slices.Sort(got)
	if len(got) != 10 || got[0] != storage.MessageTag("m440") || got[9] != storage.MessageTag("m449") {
		t.Errorf("replayed: %v", got)
	}
	if _, err := r.topics.Replay(t.Context(), "gone", time.Time{}); !errors.Is(err, errand.ErrNotFound) {
		t.Error(err)
	}
}
