package topic_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
)

func TestTopics_Publish_oneDeliveryForEachMatch(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	r.subscribe(topic.Subscription{ID: "all", Topic: "orders", Endpoint: "shop"})
	r.subscribe(topic.Subscription{ID: "big", Topic: "orders", Kind: "big", Queue: "books", Filter: json.RawMessage(`{"total": [{"numeric": [">=", 100]}]}`)})
	r.subscribe(topic.Subscription{ID: "body", Topic: "orders", Kind: "body", Raw: true, Filter: json.RawMessage(`{"order": [17]}`), FilterScope: filter.Body})

	got := r.publish("orders", topic.Message{ID: "m1", Body: []byte(`{"order": 17}`), Attributes: map[string]filter.Attribute{"total": {Type: filter.Number, Value: "99"}}})
	if want := []string{"all", "body"}; !slices.Equal(got.Subscriptions, want) || len(got.Jobs) != 2 || got.FanOut || got.ID != "m1" {
		t.Errorf("published: %+v", got)
	}
	got = r.publish("orders", topic.Message{ID: "m2", Body: []byte("no JSON"), Attributes: map[string]filter.Attribute{"total": {Type: filter.Number, Value: "100"}}})
	if want := []string{"all", "big"}; !slices.Equal(got.Subscriptions, want) {
		t.Errorf("published: %+v", got)
	}
	job, err := r.q.Job(t.Context(), got.Jobs[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	var args map[string]any
	if err := json.Unmarshal(job.Args, &args); err != nil {
		t.Fatal(err)
	}
	if args["timestamp"] == "" {
		t.Error("there is no timestamp")
	}
	delete(args, "timestamp")
	want := map[string]any{
		"type": "Notification", "messageId": "m2", "topic": "orders", "message": "no JSON",
		"attributes": map[string]any{"total": map[string]any{"Type": "Number", "Value": "100"}},
	}
	if !reflect.DeepEqual(args, want) || job.Kind != "big" || job.Queue != "books" || !slices.Contains(job.Tags, topic.Tag("big")) {
		t.Errorf("job %s in %s with %v: %v", job.Kind, job.Queue, job.Tags, args)
	}
	if got := r.publish("orders", topic.Message{ID: "m1", Body: []byte("again")}); !got.Duplicate || got.Jobs != nil || got.Subscriptions != nil {
		t.Errorf("a duplicate: %+v", got)
	}
}

// With Raw a job has the body as args, and as a string if it is no JSON.
func TestTopics_Publish_rawArgs(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders", Policy: &policy.Topic{Document: policy.Document{Retry: new(policy.SNSHTTP())}}})
	r.subscribe(topic.Subscription{Topic: "orders", Kind: "book", Raw: true})
	for body, want := range map[string]string{`{"order": 17}`: `{"order":17}`, "a < b": `"a \u003c b"`} {
		got := r.publish("orders", topic.Message{Body: []byte(body)})
		job, err := r.q.Job(t.Context(), got.Jobs[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(job.Args, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("args of %s: %s", body, job.Args)
		}
		if job.Policy == nil || job.Policy.Retry == nil || *job.Policy.Retry != policy.SNSHTTP() || job.Policy.Throttle != nil {
			t.Errorf("policy of the job: %+v", job.Policy)
		}
	}
}

func TestTopics_PublishTx(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
	undo := errors.New("undo")
	err := r.q.Tx(t.Context(), func(tx *sql.Tx) error {
		got, err := r.topics.PublishTx(t.Context(), tx, "orders", topic.Message{ID: "m1", Body: data.Body})
		if err != nil || len(got.Jobs) != 1 {
			t.Errorf("published: %+v, %v", got, err)
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	if jobs := r.jobs(errand.JobFilter{}); len(jobs) != 0 {
		t.Errorf("%d jobs of a transaction that was rolled back", len(jobs))
	}
	if got := r.publish("orders", topic.Message{ID: "m1", Body: data.Body}); got.Duplicate {
		t.Error("a message of a transaction that was rolled back is there")
	}
	err = r.q.Tx(t.Context(), func(tx *sql.Tx) error {
		_, err := r.topics.PublishTx(t.Context(), tx, "orders", topic.Message{ID: "m2", Body: data.Body})
		return err
	})
	if err != nil || len(r.jobs(errand.JobFilter{})) != 2 {
		t.Errorf("after a commit: %v", err)
	}
}

// Two processes have the same file. What one has in memory of subscriptions is out of date
// when the other has changed them; its next publication notices.
func TestTopics_Publish_staleCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	a, b := rigAt(t, path, nil), rigAt(t, path, nil)
	a.create(topic.Topic{Name: "orders"})
	if got := a.publish("orders", data); len(got.Jobs) != 0 {
		t.Errorf("published: %+v", got)
	}
	s := b.subscribe(topic.Subscription{Topic: "orders", Kind: "one"})
	if got := a.publish("orders", data); len(got.Jobs) != 1 {
		t.Errorf("a subscription is not seen: %+v", got)
	}
	s.Filter = json.RawMessage(`{"x": ["y"]}`)
	if _, err := b.topics.UpdateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := a.publish("orders", data); len(got.Jobs) != 0 {
		t.Errorf("a changed filter is not seen: %+v", got)
	}
	b.subscribe(topic.Subscription{Topic: "orders", Kind: "two"})
	err := a.q.Tx(t.Context(), func(tx *sql.Tx) error {
		got, err := a.topics.PublishTx(t.Context(), tx, "orders", data)
		if len(got.Jobs) != 1 {
			t.Errorf("in a transaction a subscription is not seen: %+v", got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := b.topics.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.topics.Publish(t.Context(), "orders", data); !errors.Is(err, errand.ErrNotFound) || fields(t, err) != "topic" {
		t.Errorf("a topic that is gone: %v", err)
	}
	b.create(topic.Topic{Name: "orders"})
	if got := a.publish("orders", data); len(got.Jobs) != 0 {
		t.Errorf("subscriptions of a topic that was deleted: %+v", got)
	}
}

// Who publishes while others subscribe gets through.
func TestTopics_Publish_whileOthersSubscribe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	a, b := rigAt(t, path, nil), rigAt(t, path, nil)
	a.create(topic.Topic{Name: "orders"})
	done := make(chan error, 1)
	go func() {
		for i := range 300 {
			if _, err := b.topics.Subscribe(t.Context(), topic.Subscription{Topic: "orders", Kind: fmt.Sprint("kind-", i)}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for n := 0; ; n++ {
		if _, err := a.topics.Publish(t.Context(), "orders", data); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if got := a.publish("orders", data); len(got.Jobs) != 300 {
				t.Errorf("%d deliveries", len(got.Jobs))
			}
			return
		default:
		}
	}
}

func TestTopics_PublishMany(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
	got, err := r.topics.PublishMany(t.Context(), "orders", []topic.Message{{ID: "a", Body: data.Body}, {ID: "b", Body: data.Body}, {ID: "a", Body: data.Body}})
	if err != nil || len(got) != 3 || got[0].Duplicate || got[1].Duplicate || !got[2].Duplicate {
		t.Errorf("published: %+v, %v", got, err)
	}
	_, err = r.topics.PublishMany(t.Context(), "orders", []topic.Message{{ID: "c", Body: data.Body}, {ID: "d"}})
	if want := "messages[1].body"; err == nil || fields(t, err) != want {
		t.Errorf("faults: %v", err)
	}
	if n := len(r.jobs(errand.JobFilter{})); n != 2 {
		t.Errorf("%d jobs", n)
	}
	if _, err = r.topics.PublishMany(t.Context(), "orders", make([]topic.Message, 1001)); fields(t, err) != "messages" {
		t.Errorf("too many: %v", err)
	}
}

// More deliveries than a call makes are left to jobs; an ordered topic refuses them.
func TestTopics_PublishMany_tooManyDeliveries(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		r := newRig(t, nil)
		r.create(topic.Topic{Name: "orders", Ordered: ordered})
		for i := range 50 {
			r.subscribe(topic.Subscription{Topic: "orders", Kind: fmt.Sprint("kind-", i)})
		}
		messages := make([]topic.Message, 201)
		for i := range messages {
			messages[i] = data
			if ordered {
				messages[i].Group = "one"
			}
		}
		got, err := r.topics.PublishMany(t.Context(), "orders", messages)
		if ordered {
			if err == nil || fields(t, err) != "messages" || len(r.jobs(errand.JobFilter{})) != 0 {
				t.Errorf("an ordered topic: %v", err)
			}
			if _, err = r.topics.PublishMany(t.Context(), "orders", messages[:200]); err != nil {
				t.Error(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fans := 0
		for _, p := range got {
			if p.FanOut {
				fans++
			}
		}
		if fans != 21 {
			t.Errorf("%d messages were left to jobs", fans)
		}
	}
}

// Attributes of 48 KiB are taken whatever is in them, also if JSON has six bytes for each.
func TestTopics_Publish_mostAttributes(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop"})
	controls := map[string]filter.Attribute{"a": {Type: filter.String, Value: strings.Repeat("\x01", 48<<10-len("aString"))}}
	small := map[string]filter.Attribute{}
	for size := 0; size+11 <= 48<<10; size += 11 {
		small[fmt.Sprintf("%04x", len(small))] = filter.Attribute{Type: filter.String, Value: "<"}
	}
	subject := strings.Repeat("\u2028", 100)
	for i, attributes := range []map[string]filter.Attribute{controls, small} {
		got := r.publish("orders", topic.Message{ID: fmt.Sprint("m", i), Subject: subject, Body: data.Body, Attributes: attributes})
		if len(got.Jobs) != 1 {
			t.Errorf("%d attributes: %+v", len(attributes), got)
		}
	}
}

// What is wrong with an attribute is quoted once.
func TestTopics_Publish_quoted(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	_, err := r.topics.Publish(t.Context(), "orders", topic.Message{Body: data.Body, Attributes: map[string]filter.Attribute{"a": {Type: "Number", Value: `x"y`}}})
	if err == nil || !strings.HasPrefix(err.Error(), `errand: attributes["a"].value "x\"y": must be a number`) {
		t.Errorf("%v", err)
	}
}

func TestTopics_Publish_badInput(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders", Keep: 1e12})
	r.create(topic.Topic{Name: "ordered", Ordered: true, Keep: 1e12})
	attribute := func(name, typ, value string) topic.Message {
		return topic.Message{Body: data.Body, Attributes: map[string]filter.Attribute{name: {Type: typ, Value: value}}}
	}
	for _, c := range []struct {
		topic string
		m     topic.Message
		want  string
	}{
		{"orders", topic.Message{}, "body"},
		{"orders", topic.Message{Body: []byte{0xff}}, "body"},
		{"orders", topic.Message{Body: make([]byte, 256<<10+1)}, "body"},
		{"orders", topic.Message{Body: make([]byte, 256<<10-2), Attributes: map[string]filter.Attribute{"a": {Type: "String", Value: "b"}}}, "body"},
		{"orders", topic.Message{ID: "a.b", Body: data.Body}, "id"},
		{"orders", topic.Message{ID: strings.Repeat("a", 65), Body: data.Body}, "id"},
		{"orders", topic.Message{Subject: "two\nlines", Body: data.Body}, "subject"},
		{"orders", topic.Message{Subject: strings.Repeat("a", 101), Body: data.Body}, "subject"},
		{"orders", topic.Message{Group: "g", DedupID: "d", Body: data.Body}, "dedup_id group"},
		{"ordered", data, "group"},
		{"ordered", topic.Message{Group: "g", DedupID: strings.Repeat("a", 129), Body: data.Body}, "dedup_id"},
		{"ordered", topic.Message{Group: "a\x00b", Body: data.Body}, "group"},
		{"orders", attribute("", "String", "a"), `attributes[""]`},
		{"orders", attribute("AWS.x", "String", "a"), `attributes["AWS.x"]`},
		{"orders", attribute("a..b", "String", "a"), `attributes["a..b"]`},
		{"orders", attribute("a b", "String", "a"), `attributes["a b"]`},
		{"orders", attribute("a", "Text", "a"), `attributes["a"].type`},
		{"orders", attribute("a", "Number", "x"), `attributes["a"].value`},
		{"orders", attribute("a", "String", ""), `attributes["a"].value`},
		{"orders", attribute("a", "String", strings.Repeat("a", 48<<10)), "attributes"},
		{"gone", data, "topic"},
		{"a/b", data, "topic"},
		{"", data, "topic"},
	} {
		_, err := r.topics.Publish(t.Context(), c.topic, c.m)
		if err == nil {
			t.Errorf("%s: no fault", c.want)
		} else if got := fields(t, err); got != c.want {
			t.Errorf("faults %s: want %s", got, c.want)
		}
	}
	for _, name := range []string{"orders", "ordered"} {
		r.subscribe(topic.Subscription{ID: name, Topic: name, Kind: "book"})
		if n, err := r.topics.Replay(t.Context(), name, data0); n != 0 || err != nil {
			t.Errorf("%d messages are there: %v", n, err)
		}
	}
}
