package topic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// data0 is before all messages.
var data0 = time.Unix(0, 0)

func TestTopics_Create(t *testing.T) {
	r := newRig(t, nil)
	retry := policy.SNSHTTP()
	want := topic.Topic{Name: "orders", Keep: time.Hour, Policy: &policy.Topic{Document: policy.Document{Retry: &retry}, DisableSubscriptionOverrides: true}}
	r.create(want)
	got, err := r.topics.Topic(t.Context(), "orders")
	if err != nil || got.Keep != time.Hour || *got.Policy.Retry != retry || !got.Policy.DisableSubscriptionOverrides || got.CreatedAt.IsZero() {
		t.Errorf("topic: %+v, %v", got, err)
	}
	if _, err := r.topics.Create(t.Context(), want); !errors.Is(err, errand.ErrStale) || !strings.Contains(err.Error(), `topic "orders": it is there already`) {
		t.Errorf("a second one: %v", err)
	}
	r.create(topic.Topic{Name: "a"})
	r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
	all, err := r.topics.Topics(t.Context(), "", 10)
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Subscriptions != 1 {
		t.Errorf("topics: %+v, %v", all, err)
	}
	if all, err = r.topics.Topics(t.Context(), "a", 1); err != nil || len(all) != 1 || all[0].Name != "orders" {
		t.Errorf("second page: %+v, %v", all, err)
	}
	got.Keep, got.Policy = 0, nil
	now, err := r.topics.Update(t.Context(), got)
	if err != nil || now.Keep != 0 || now.Policy != nil || now.Revision <= got.Revision || now.Subscriptions != 1 {
		t.Errorf("updated: %+v, %v", now, err)
	}
	if _, err := r.topics.Update(t.Context(), got); !errors.Is(err, errand.ErrStale) {
		t.Errorf("an old revision: %v", err)
	}
	got.Revision, got.Ordered = 0, true
	if _, err := r.topics.Update(t.Context(), got); err == nil || !strings.Contains(err.Error(), "ordered true: cannot be changed") {
		t.Errorf("another order: %v", err)
	}
	for _, err := range []error{
		errOf(r.topics.Update(t.Context(), topic.Topic{Name: "gone"})), errOf(r.topics.Topic(t.Context(), "gone")), r.topics.Delete(t.Context(), "gone"),
	} {
		if !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("a topic that is not there: %v", err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestTopics_Delete(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.create(topic.Topic{Name: "others"})
	r.subscribe(topic.Subscription{ID: "z", Topic: "others", Kind: "kind"})
	for i := range 450 {
		r.subscribe(topic.Subscription{ID: fmt.Sprint("s", i), Topic: "orders", Kind: fmt.Sprint("kind-", i)})
	}
	if err := r.topics.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	all, err := r.topics.Subscriptions(t.Context(), "", "", 1000)
	if err != nil || len(all) != 1 || all[0].ID != "z" {
		t.Errorf("%d subscriptions are left: %v", len(all), err)
	}
	r.create(topic.Topic{Name: "orders"})
	if p, err := r.topics.Topic(t.Context(), "orders"); err != nil || p.Subscriptions != 0 {
		t.Errorf("a topic of the same name: %+v, %v", p, err)
	}
	r.subscribe(topic.Subscription{ID: "s1", Topic: "orders", Kind: "kind-1"}) // as if it had never been there
}

// What says nothing but where to is not refused, and the log names what the one that is there has. It
// sets nothing for the queue of the endpoint.
func TestTopics_Subscribe_bare(t *testing.T) {
	var logged bytes.Buffer
	r := newRig(t, &topic.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	r.create(topic.Topic{Name: "a", Ordered: true})
	r.create(topic.Topic{Name: "b", Ordered: true})
	r.endpoint("shop")
	bare := topic.Subscription{Topic: "a", Endpoint: "shop"}
	s := bare
	s.ID, s.Raw, s.Filter, s.FilterScope, s.OnDead = "s1", true, json.RawMessage(`{"a": ["b"]}`), filter.Body, topic.Block
	r.subscribe(s)
	r.subscribe(topic.Subscription{Topic: "b", Endpoint: "shop", OnDead: topic.Pass})
	r.subscribe(topic.Subscription{Topic: "b", Endpoint: "shop"})
	if logged.Len() > 0 {
		t.Errorf("the log: %q", &logged)
	}
	got := r.subscribe(bare)
	if got.ID != "s1" || len(got.Filter) == 0 || got.OnDead != topic.Block {
		t.Errorf("the one that is there: %+v", got)
	}
	if line := logged.String(); !strings.Contains(line, "level=INFO") || !strings.Contains(line, `topic=a subscription=s1 fields="[raw filter filter_scope]"`) {
		t.Errorf("the log: %q", line)
	}
	if head := r.settings("webhook/shop").DeadHead; head == nil || *head != errand.PassDead {
		t.Errorf("the setting of the other subscription is %v", head)
	}
}

func TestTopics_Subscribe_again(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	s := topic.Subscription{Topic: "orders", Endpoint: "shop", Filter: json.RawMessage(`{"a": ["b"]}`), Policy: &policy.Document{Request: &policy.Request{}}}
	first := r.subscribe(s)
	if first.State != topic.Confirmed || first.ID == "" || first.CreatedAt.IsZero() {
		t.Errorf("subscription: %+v", first)
	}
	if again := r.subscribe(s); again.ID != first.ID || again.Revision != first.Revision {
		t.Errorf("again: %+v", again)
	}
	if again := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop"}); again.ID != first.ID || again.Revision != first.Revision {
		t.Errorf("again without attributes: %+v", again)
	}
	if _, err := r.topics.Subscribe(t.Context(), topic.Subscription{ID: "other", Topic: "orders", Endpoint: "shop"}); err == nil || fields(t, err) != "filter id policy" {
		t.Errorf("again with another ID: %v", err)
	}
	s.ID, s.Raw, s.Filter, s.OnDead = "other", true, nil, topic.Pass
	_, err := r.topics.Subscribe(t.Context(), s)
	if want := "filter id on_dead raw"; err == nil || fields(t, err) != want || !strings.Contains(err.Error(), first.ID) || !strings.Contains(err.Error(), `must be {"a":["b"]}`) {
		t.Errorf("what differs: %v", err)
	}
	first.OnDead = topic.Pass
	first, err = r.topics.UpdateSubscription(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	first.OnDead = ""
	if again := r.subscribe(first); again.ID != first.ID || again.OnDead != topic.Pass {
		t.Errorf("without on_dead: %+v", again)
	}
	r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
	r.subscribe(topic.Subscription{Topic: "orders", Kind: "book", Queue: "other"})
	if p, err := r.topics.Topic(t.Context(), "orders"); err != nil || p.Subscriptions != 3 {
		t.Errorf("topic: %+v, %v", p, err)
	}
	_, err = r.topics.Subscribe(t.Context(), topic.Subscription{ID: first.ID, Topic: "orders", Kind: "third"})
	if err == nil || fields(t, err) != "id" {
		t.Errorf("the ID of another: %v", err)
	}
	if err := r.topics.Unsubscribe(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.topics.Unsubscribe(t.Context(), first.ID); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("twice: %v", err)
	}
	if next := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop"}); next.ID == first.ID {
		t.Error("a subscription that was deleted is there")
	}
	if p, err := r.topics.Topic(t.Context(), "orders"); err != nil || p.Subscriptions != 3 {
		t.Errorf("topic: %+v, %v", p, err)
	}
}

func TestTopics_UpdateSubscription(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	s := r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
	s.Raw, s.Filter, s.FilterScope = true, json.RawMessage(` {"a":  [{"numeric": [">", 1]}]}`), filter.Body
	got, err := r.topics.UpdateSubscription(t.Context(), s)
	if err != nil || !got.Raw || string(got.Filter) != `{"a":[{"numeric":[">",1]}]}` || got.FilterScope != filter.Body || got.State != topic.Confirmed {
		t.Errorf("updated: %+v, %v", got, err)
	}
	got.Filter = json.RawMessage(`{"a":[{"numeric":["\u003e",1]}]}`)
	if again := r.subscribe(got); again.Revision != got.Revision {
		t.Errorf("the same filter, written differently: %+v", again)
	}
	if _, err := r.topics.UpdateSubscription(t.Context(), s); !errors.Is(err, errand.ErrStale) {
		t.Errorf("an old revision: %v", err)
	}
	got.Kind, got.Queue = "other", "other"
	if _, err := r.topics.UpdateSubscription(t.Context(), got); err == nil || fields(t, err) != "kind queue" {
		t.Errorf("another kind: %v", err)
	}
	if _, err := r.topics.UpdateSubscription(t.Context(), topic.Subscription{ID: "gone", Topic: "orders", Kind: "book"}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// Bad input is refused with all its faults, and nothing is written.
func TestTopics_badInput(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	many := `{"a": ["` + strings.Repeat(`x", "`, 160) + `x"]}`
	for _, c := range []struct {
		s    topic.Subscription
		want string
	}{
		{topic.Subscription{Topic: "orders"}, "endpoint"},
		{topic.Subscription{Topic: "orders", Endpoint: "shop", Kind: "k"}, "kind"},
		{topic.Subscription{Topic: "gone", Endpoint: "shop"}, "topic"},
		{topic.Subscription{Topic: "orders", Endpoint: "gone"}, "endpoint"},
		{topic.Subscription{Topic: "", Endpoint: "a/b", ID: "-"}, "endpoint id topic"},
		{topic.Subscription{Topic: "orders", ID: strings.Repeat("a", 51), Kind: "k"}, "id"},
		{topic.Subscription{Topic: "orders", Kind: "a b", Queue: "/"}, "kind queue"},
		{topic.Subscription{Topic: "orders", Endpoint: "shop", Queue: "q"}, "queue"},
		{topic.Subscription{Topic: "orders", Kind: "k", OnDead: topic.Pass, SNS: true}, "on_dead sns"},
		{topic.Subscription{Topic: "orders", Endpoint: "shop", OnDead: "maybe"}, "on_dead"},
		{topic.Subscription{Topic: "orders", Endpoint: "shop", SNS: true}, "sns"},
		{topic.Subscription{Topic: "orders", Kind: "k", FilterScope: 9}, "filter_scope"},
		{topic.Subscription{Topic: "orders", Kind: "k", Filter: json.RawMessage(`{"a": [{"numeric": [">=", "x"]}], "b": 1}`)}, "filter.a[0].numeric[1] filter.b"},
		{topic.Subscription{Topic: "orders", Kind: "k", Filter: json.RawMessage(`{"a": `)}, "filter"},
		{topic.Subscription{Topic: "orders", Kind: "k", Filter: json.RawMessage(many)}, "filter"},
		{topic.Subscription{Topic: "orders", Kind: "k", Filter: json.RawMessage(strings.Repeat(" ", 40<<10))}, "filter"},
		{topic.Subscription{Topic: "orders", Kind: "k", Policy: &policy.Document{Retry: &policy.Policy{Retries: -1}}}, "policy.Retry.Retries"},
		{topic.Subscription{Topic: "orders", Kind: "k", Policy: &policy.Document{Request: &policy.Request{ContentType: "text/xml"}}}, "policy.Request.ContentType"},
		{topic.Subscription{Topic: "orders", Endpoint: "shop", Policy: &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 10_001}}}, "policy.Throttle.MaxReceivesPerSecond"},
		{topic.Subscription{Topic: "orders", Kind: "k", Raw: true, Policy: &policy.Document{Request: &policy.Request{ContentType: "image/png"}}}, "policy.Request.ContentType"},
	} {
		_, err := r.topics.Subscribe(t.Context(), c.s)
		if err == nil {
			t.Errorf("%s: no fault", c.want)
			continue
		}
		if got := fields(t, err); got != c.want {
			t.Errorf("faults %q: want %q: %v", got, c.want, err)
		}
	}
	for _, c := range []struct {
		p    topic.Topic
		want string
	}{
		{topic.Topic{}, "name"},
		{topic.Topic{Name: strings.Repeat("a", 101)}, "name"},
		{topic.Topic{Name: "a/b", Keep: -1}, "keep name"},
		{topic.Topic{Name: "a", Policy: &policy.Topic{Document: policy.Document{Request: &policy.Request{ContentType: "text/xml"}}}}, "policy.Request.ContentType"},
		{topic.Topic{Name: "a", Policy: &policy.Topic{Document: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 10_001}}}}, "policy.Throttle.MaxReceivesPerSecond"},
		{topic.Topic{Name: "a", Policy: &policy.Topic{Document: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: -1}}}}, "policy.Throttle.MaxReceivesPerSecond"},
	} {
		if _, err := r.topics.Create(t.Context(), c.p); err == nil {
			t.Errorf("%s: no fault", c.want)
		} else if got := fields(t, err); got != c.want {
			t.Errorf("faults %q: want %q", got, c.want)
		}
	}
	all, err := r.topics.Subscriptions(t.Context(), "", "", 10)
	if err != nil || len(all) != 0 {
		t.Errorf("%d subscriptions are there: %v", len(all), err)
	}
	if all, err := r.topics.Topics(t.Context(), "", 10); err != nil || len(all) != 1 || all[0].Subscriptions != 0 {
		t.Errorf("topics: %+v, %v", all, err)
	}
	if jobs := r.jobs(errand.JobFilter{}); len(jobs) != 0 {
		t.Errorf("%d jobs", len(jobs))
	}
	for _, err := range []error{
		errOf(r.topics.Topics(t.Context(), "", 0)), errOf(r.topics.Topics(t.Context(), "", 1001)), errOf(r.topics.Subscriptions(t.Context(), "orders", "", 0)),
	} {
		if fields(t, err) != "limit" {
			t.Errorf("a page: %v", err)
		}
	}
}

// The fault of a filter policy is in the error, and what is no JSON is shown.
func TestTopics_Subscribe_badFilter(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	for doc, want := range map[string]string{
		`{"a": [{"numeric": [">=", "x"]}]}`: `errand: filter.a[0].numeric[1] "\"x\"": must be a number between -1000000000 and 1000000000: at byte 26`,
		`{"a": `:                            `errand: filter "{\"a\": "`,
	} {
		_, err := r.topics.Subscribe(t.Context(), topic.Subscription{Topic: "orders", Kind: "k", Filter: json.RawMessage(doc)})
		if fault, ok := errors.AsType[*filter.Fault](err); !ok || fault.Want == "" || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestNew_badInput(t *testing.T) {
	r := newRig(t, nil)
	for _, url := range []string{"sns.example", "ftp://sns.example", "https://", "https://a@sns.example", "https://sns.example/#x", "https://%"} {
		if _, err := topic.New(r.q, r.hooks, &topic.Options{ConfirmURL: url}); err == nil || fields(t, err) != "confirm_url" {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"https://ada:secret@sns.example", "ada:secret@sns.example"} {
		if _, err := topic.New(r.q, r.hooks, &topic.Options{ConfirmURL: url}); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "@sns.example") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := topic.New(nil, nil, nil); err == nil || fields(t, err) != "queue" {
		t.Errorf("no queue: %v", err)
	}
	only, err := topic.New(r.q, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.create(topic.Topic{Name: "orders"})
	if _, err := only.Subscribe(t.Context(), topic.Subscription{Topic: "orders", Endpoint: "shop"}); err == nil || fields(t, err) != "endpoint" {
		t.Errorf("without webhooks: %v", err)
	}
	if _, err := only.Subscribe(t.Context(), topic.Subscription{Topic: "orders", Kind: "book"}); err != nil {
		t.Error(err)
	}
}

func TestTopics_EffectivePolicy(t *testing.T) {
	r := newRig(t, &topic.Options{ConfirmURL: "https://us.example/sns"})
	one, two, three := policy.Policy{Retries: 1, MinDelay: 1e9, MaxDelay: 1e9}, policy.Policy{Retries: 2, MinDelay: 1e9, MaxDelay: 1e9}, policy.Policy{Retries: 3, MinDelay: 1e9, MaxDelay: 1e9}
	p := topic.Topic{Name: "orders", Policy: &policy.Topic{Document: policy.Document{Retry: &two, Throttle: &policy.Throttle{MaxReceivesPerSecond: 2}}}}
	r.create(p)
	for _, id := range []string{"shop", "sns"} {
		_, _, err := r.hooks.Create(t.Context(), webhook.Endpoint{
			ID: id, URL: "https://shop.example/", Policy: &policy.Document{Retry: &three, Request: &policy.Request{ContentType: "text/plain"}},
		}, webhook.Secret{})
		if err != nil {
			t.Fatal(err)
		}
	}
	hook := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop", Policy: &policy.Document{Retry: &one}})
	sns := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "sns", SNS: true})
	kind := r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
	check := func(what, id, retry, throttle, request string, retries int) {
		t.Helper()
		e, err := r.topics.EffectivePolicy(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		n := -1
		if e.Document.Retry != nil {
			n = e.Document.Retry.Retries
		}
		if got := []string{e.Retry, e.Throttle, e.Request}; !slices.Equal(got, []string{retry, throttle, request}) || n != retries {
			t.Errorf("%s: %v with %d retries", what, got, n)
		}
	}
	check("endpoint", hook.ID, "subscription", "topic", "endpoint", 1)
	check("SNS", sns.ID, "topic", "topic", "sns", 2)
	check("kind", kind.ID, "topic", "", "", 2)
	p.Policy.DisableSubscriptionOverrides = true
	if _, err := r.topics.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	check("without overrides", hook.ID, "topic", "topic", "endpoint", 2)
	p.Policy = nil
	if _, err := r.topics.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	check("without the topic's", hook.ID, "subscription", "", "endpoint", 1)
	check("SNS", sns.ID, "sns", "sns", "sns", 3)
	check("kind", kind.ID, "", "", "", -1)
	if _, err := r.topics.EffectivePolicy(t.Context(), "gone"); !errors.Is(err, errand.ErrNotFound) {
		t.Error(err)
	}
}
