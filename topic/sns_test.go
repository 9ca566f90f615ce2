package topic_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
)

const confirmURL = "https://us.example/sns?tenant=7"

// ask makes a request to the handler of confirmations, and returns status and body.
func (r *rig) ask(method, to string) (int, string) {
	w := httptest.NewRecorder()
	r.topics.ConfirmHandler().ServeHTTP(w, httptest.NewRequest(method, to, nil))
	return w.Code, w.Body.String()
}

// requestID returns the ID of an answer where SNS has it: in the metadata of one that did what
// was asked, and beside the error of another.
func requestID(t *testing.T, body string) string {
	t.Helper()
	var answer struct {
		Metadata string `xml:"ResponseMetadata>RequestId"`
		Error    string `xml:"Error>Code"`
		Beside   string `xml:"RequestId"`
	}
	if err := xml.Unmarshal([]byte(body), &answer); err != nil {
		t.Errorf("%v: %s", err, body)
	}
	id := answer.Metadata
	if answer.Error != "" {
		id = answer.Beside
	}
	if _, err := errand.ParseID(id); err != nil {
		t.Errorf("the ID of an answer: %v: %s", err, body)
	}
	return id
}

// confirmed subscribes an endpoint in SNS mode, and confirms it.
func (r *rig) confirmed(s topic.Subscription) topic.Subscription {
	r.t.Helper()
	s.SNS = true
	s = r.subscribe(s)
	if s.State != topic.Pending {
		r.t.Fatalf("subscription: %+v", s)
	}
	wait := r.events("topic.confirm", errand.EventDone)
	stop := r.start(nil, "webhook/"+s.Endpoint)
	wait(1)
	stop()
	all := r.net.all()
	if status, body := r.ask("GET", member(r.t, all[len(all)-1].body, "SubscribeURL")); status != 200 {
		r.t.Fatalf("confirmation: %d %s", status, body)
	}
	s, err := r.topics.Subscription(r.t.Context(), s.ID)
	if err != nil || s.State != topic.Confirmed {
		r.t.Fatalf("subscription: %+v, %v", s, err)
	}
	return s
}

// member returns a text in a document of JSON.
func member(t *testing.T, doc, name string) string {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(doc), &all); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	s, _ := all[name].(string)
	return s
}

// The retries of the example document of AWS come at its schedule, to the millisecond.
func TestTopics_SNS_schedule(t *testing.T) {
	doc, err := os.ReadFile("../policy/testdata/subscription.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := policy.ParseDocument(doc, policy.ProfileSNS)
	if err != nil {
		t.Fatal(err)
	}
	d.Retry.Jitter = policy.NoJitter
	d.Throttle = nil
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC))) // for clocks to be plausible
		r := rigAt(t, path, &topic.Options{ConfirmURL: confirmURL})
		var at []time.Time
		r.net.answer = func(s *sent, _ int) int {
			if s.header.Get("X-Amz-Sns-Message-Type") == "SubscriptionConfirmation" {
				return 200
			}
			at = append(at, time.Now())
			return 500
		}
		r.create(topic.Topic{Name: "orders"})
		r.endpoint("shop")
		s := r.confirmed(topic.Subscription{Topic: "orders", Endpoint: "shop", Policy: &d})
		wait := r.events("topic", errand.EventDead)
		r.publish("orders", data)
		stop := r.start(nil, "webhook/shop")
		wait(1)
		stop()
		if len(at) != 51 {
			t.Fatalf("%d attempts", len(at))
		}
		total := time.Duration(0)
		for i := range 50 {
			_, want, ok := d.Retry.Next(i)
			got := at[i+1].Sub(at[i])
			if off := got - want; !ok || off < 0 || off > time.Millisecond {
				t.Errorf("retry %d came after %v: want %v", i, got, want)
			}
			total += want
		}
		if total.Round(100*time.Millisecond) != 2205300*time.Millisecond { // the sum of the document
			t.Errorf("the schedule takes %v", total)
		}
		if got := r.jobs(errand.JobFilter{Tag: topic.Tag(s.ID), States: []errand.State{errand.Dead}}); len(got) != 1 || got[0].Retry != 50 {
			t.Errorf("dead: %+v", got)
		}
		if err := r.q.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What SNS does not retry is dead at once.
func TestTopics_SNS_statuses(t *testing.T) {
	for status, want := range map[int]errand.Reason{302: errand.ReasonPermanent, 404: errand.ReasonPermanent, 410: errand.ReasonPermanent, 429: errand.ReasonExhausted, 503: errand.ReasonExhausted} {
		r := newRig(t, &topic.Options{ConfirmURL: confirmURL})
		r.create(topic.Topic{Name: "orders", Policy: atOnce(2)})
		r.endpoint("shop")
		r.confirmed(topic.Subscription{Topic: "orders", Endpoint: "shop"})
		r.net.answer = func(*sent, int) int { return status }
		wait := r.events("topic", errand.EventDead)
		got := r.publish("orders", data)
		stop := r.start(nil, "webhook/shop")
		wait(1)
		stop()
		job, err := r.q.Job(t.Context(), got.Jobs[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		attempts := 3
		if want == errand.ReasonPermanent {
			attempts = 1
		}
		if job.Reason != want || job.Attempt != attempts {
			t.Errorf("%d: %s after %d attempts", status, job.Reason, job.Attempt)
		}
	}
}

func TestTopics_SNS_messages(t *testing.T) {
	r := newRig(t, &topic.Options{ConfirmURL: confirmURL, ARN: func(resource, name string) string { return "arn:" + resource + ":" + name }})
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	s := r.confirmed(topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop"})
	ask := r.net.all()[0]
	want := map[string]string{
		"X-Amz-Sns-Message-Type": "SubscriptionConfirmation", "X-Amz-Sns-Message-Id": member(t, ask.body, "MessageId"),
		"X-Amz-Sns-Topic-Arn": "arn:topic:orders", "X-Amz-Sns-Subscription-Arn": "", "Content-Type": "text/plain; charset=UTF-8",
	}
	for name, value := range want {
		if got := ask.header.Get(name); got != value {
			t.Errorf("%s of the confirmation: %q", name, got)
		}
	}
	u, err := url.Parse(member(t, ask.body, "SubscribeURL"))
	if err != nil || u.Host != "us.example" || u.Query().Get("tenant") != "7" || u.Query().Get("Token") != member(t, ask.body, "Token") || u.Query().Get("Action") != "ConfirmSubscription" {
		t.Errorf("SubscribeURL: %v, %v", u, err)
	}

	wait := r.events("topic", errand.EventDone)
	stop := r.start(nil, "webhook/shop")
	m := topic.Message{ID: "m1", Subject: "Hello", Body: []byte("a < b"), Attributes: map[string]filter.Attribute{"a": {Type: "Number", Value: "1"}}}
	r.publish("orders", m)
	wait(1)
	s.Raw, s.Policy = true, &policy.Document{Request: &policy.Request{ContentType: "text/csv"}}
	if s, err = r.topics.UpdateSubscription(t.Context(), s); err != nil || s.State != topic.Confirmed {
		t.Fatalf("updated: %+v, %v", s, err)
	}
	m.ID = "m2"
	r.publish("orders", m)
	wait(1)
	stop()
	all := r.net.all()
	if len(all) != 3 {
		t.Fatalf("%d requests", len(all))
	}
	for i, header := range []map[string]string{
		{"Message-Id": "m1", "Rawdelivery": ""}, {"Message-Id": "m2", "Rawdelivery": "true"},
	} {
		header["Message-Type"], header["Topic-Arn"], header["Subscription-Arn"] = "Notification", "arn:topic:orders", "arn:subscription:s1"
		for name, value := range header {
			if got := all[i+1].header.Get("X-Amz-Sns-" + name); got != value {
				t.Errorf("%s of message %d: %q", name, i+1, got)
			}
		}
	}
	if all[1].header.Get("Content-Type") != "text/plain; charset=UTF-8" || all[2].header.Get("Content-Type") != "text/csv" || all[2].body != "a < b" {
		t.Errorf("content: %v, %v", all[1], all[2])
	}
	var is map[string]any
	if err := json.Unmarshal([]byte(all[1].body), &is); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", is["Timestamp"].(string)); err != nil {
		t.Error(err)
	}
	unsubscribe := is["UnsubscribeURL"].(string)
	delete(is, "Timestamp")
	delete(is, "UnsubscribeURL")
	envelope := map[string]any{
		"Type": "Notification", "MessageId": "m1", "TopicArn": "arn:topic:orders", "Subject": "Hello", "Message": "a < b",
		"MessageAttributes": map[string]any{"a": map[string]any{"Type": "Number", "Value": "1"}},
	}
	if !reflect.DeepEqual(is, envelope) || !strings.Contains(all[1].body, `"a < b"`) {
		t.Errorf("envelope: %s", all[1].body)
	}
	for range 2 { // it is the same for a link that is followed twice
		if status, body := r.ask("GET", unsubscribe); status != 200 || !strings.Contains(body, "<UnsubscribeResponse") || requestID(t, body) == "" {
			t.Errorf("the end: %d %s", status, body)
		}
	}
	if got := r.publish("orders", data); len(got.Jobs) != 0 {
		t.Errorf("published: %+v", got)
	}
}

// The largest body can be delivered in an envelope, which is larger.
func TestTopics_SNS_largest(t *testing.T) {
	r := newRig(t, &topic.Options{ConfirmURL: confirmURL})
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	r.confirmed(topic.Subscription{Topic: "orders", Endpoint: "shop"})
	wait := r.events("topic", errand.EventDone, errand.EventDead, errand.EventRetried)
	body := strings.Repeat("\x01", 256<<10)
	r.publish("orders", topic.Message{Body: []byte(body)})
	stop := r.start(nil, "webhook/shop")
	wait(1)
	stop()
	if all := r.net.all(); len(all) != 2 || member(t, all[1].body, "Message") != body {
		t.Errorf("%d requests", len(all))
	}
}

func TestTopics_ConfirmHandler(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)))
		r := rigAt(t, path, &topic.Options{ConfirmURL: confirmURL})
		defer r.q.Close()
		r.create(topic.Topic{Name: "orders"})
		r.endpoint("shop")
		s := r.subscribe(topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop", SNS: true})
		if got := r.publish("orders", data); len(got.Jobs) != 0 {
			t.Errorf("before the confirmation: %+v", got)
		}
		if _, err := r.topics.Replay(t.Context(), s.ID, time.Time{}); err == nil || fields(t, err) != "subscription" {
			t.Errorf("a replay before the confirmation: %v", err)
		}
		r.net.answer = func(_ *sent, n int) int { return []int{500, 200, 200}[n-1] }
		wait := r.events("topic.confirm", errand.EventDone)
		stop := r.start(nil, "webhook/shop")
		wait(1)
		var tokens []string
		for _, s := range r.net.all() {
			tokens = append(tokens, member(t, s.body, "Token"))
		}
		if len(tokens) != 2 || tokens[0] == tokens[1] {
			t.Errorf("tokens: %v", tokens)
		}
		url := func(action, arn, token string) string {
			return "/?Action=" + action + "&TopicArn=" + arn + "&SubscriptionArn=errand:subscription:s1&Token=" + token
		}
		const arn = "errand:topic:orders"
		for _, bad := range []string{
			url("ConfirmSubscription", "errand:topic:others", tokens[1]), url("ConfirmSubscription", arn, tokens[1]+"x"),
			url("ConfirmSubscription", arn, "s1."), url("ConfirmSubscription", arn, "gone.AAAA"), url("ConfirmSubscription", arn, ""),
			url("Unsubscribe", arn, tokens[1]), url("Unsubscribe", arn, "s1."), url("Publish", arn, tokens[1]), "/",
		} {
			if status, body := r.ask("GET", bad); status != 400 || !strings.Contains(body, "<Code>InvalidParameter</Code>") || strings.Contains(body, tokens[1]) || requestID(t, body) == "" {
				t.Errorf("%s: %d %s", bad, status, body)
			}
		}
		for _, method := range []string{"HEAD", "PUT"} {
			if status, _ := r.ask(method, url("ConfirmSubscription", arn, tokens[1])); status != 405 {
				t.Errorf("%s: %d", method, status)
			}
		}
		if s, err := r.topics.Subscription(t.Context(), "s1"); err != nil || s.State != topic.Pending {
			t.Errorf("subscription: %+v, %v", s, err)
		}
		time.Sleep(48*time.Hour + time.Second)
		for _, token := range tokens {
			if status, _ := r.ask("GET", url("ConfirmSubscription", arn, token)); status != 400 {
				t.Errorf("a token that is too old: %d", status)
			}
		}
		r.subscribe(topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop", SNS: true}) // asks again
		wait(1)
		stop()
		token := member(t, r.net.all()[2].body, "Token")
		for range 2 {
			if status, body := r.ask("POST", url("ConfirmSubscription", arn, token)); status != 200 || !strings.Contains(body, "<SubscriptionArn>errand:subscription:s1</SubscriptionArn>") || requestID(t, body) == "" {
				t.Errorf("confirmed: %d %s", status, body)
			}
		}
		if got := r.publish("orders", data); len(got.Jobs) != 1 {
			t.Errorf("after the confirmation: %+v", got)
		}
	})
}

// The token that ends a subscription is its own, also if another one has had its ID at the same time
// of the queue.
func TestTopics_unsubscribeToken(t *testing.T) {
	now := time.Now()
	r := rigWith(t, filepath.Join(t.TempDir(), "jobs.db"), &topic.Options{ConfirmURL: confirmURL}, errand.Options{Clock: func() time.Time { return now }})
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	urls := map[string]bool{}
	for range 2 {
		r.confirmed(topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop"})
		done := r.events("topic", errand.EventDone)
		stop := r.start(nil, "webhook/shop")
		r.publish("orders", data)
		done(1)
		stop()
		all := r.net.all()
		last := member(t, all[len(all)-1].body, "UnsubscribeURL")
		urls[last] = true
		if status, body := r.ask("GET", last); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		if _, err := r.topics.Subscription(t.Context(), "s1"); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("the subscription is there still: %v", err)
		}
	}
	if len(urls) != 2 {
		t.Errorf("%d tokens for two subscriptions: %v", len(urls), urls)
	}
}
