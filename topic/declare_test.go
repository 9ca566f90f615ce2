package topic_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// The same again writes nothing; what is not the same is written, and named in the log.
func TestTopics_Declare(t *testing.T) {
	retries := func(n int) *policy.Topic {
		p := policy.SNSHTTP()
		p.Retries = n
		return &policy.Topic{Document: policy.Document{Retry: &p}}
	}
	var logged bytes.Buffer
	r := newRig(t, &topic.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	revision := int64(0)
	for i, c := range []struct {
		p      topic.Topic
		fields string // that change; empty: none
	}{
		{p: topic.Topic{Name: "orders", Policy: retries(5), Keep: time.Hour}},
		{p: topic.Topic{Name: "orders", Policy: retries(5), Keep: time.Hour, Revision: 99, Subscriptions: 7}},
		{topic.Topic{Name: "orders", Policy: retries(5), Keep: time.Minute}, "fields=[keep]"},
		{p: topic.Topic{Name: "orders", Policy: retries(5), Keep: time.Minute}},
		{topic.Topic{Name: "orders", Policy: retries(6)}, `fields="[keep policy]"`},
		{topic.Topic{Name: "orders"}, "fields=[policy]"},
		{p: topic.Topic{Name: "orders"}},
	} {
		logged.Reset()
		got, err := r.topics.Declare(t.Context(), c.p)
		if err != nil {
			t.Fatal(err)
		}
		line := logged.String()
		switch changed := i == 0 || c.fields != ""; {
		case changed && got.Revision <= revision, !changed && got.Revision != revision:
			t.Errorf("%d: revision %d after %d", i, got.Revision, revision)
		case i == 0 && !strings.Contains(line, `level=INFO msg="errand: a topic is added because the program declares it" topic=orders`):
			t.Errorf("the log of the first one: %q", line)
		case i > 0 && c.fields == "" && line != "", c.fields != "" && (!strings.Contains(line, "level=INFO") || !strings.Contains(line, "topic=orders "+c.fields)):
			t.Errorf("%d: the log has %q, want %q", i, line, c.fields)
		case got.Keep != c.p.Keep || (got.Policy == nil) != (c.p.Policy == nil):
			t.Errorf("%d: %+v", i, got)
		}
		revision = got.Revision
	}
	if _, err := r.topics.Declare(t.Context(), topic.Topic{Name: "orders", Ordered: true}); err == nil || !strings.Contains(err.Error(), "ordered true: cannot be changed") {
		t.Errorf("another order: %v", err)
	}
	for want, p := range map[string]topic.Topic{
		"name": {Name: "a b"}, "keep": {Name: "orders", Keep: -1},
	} {
		if _, err := r.topics.Declare(t.Context(), p); err == nil || fields(t, err) != want {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// A change of a throttle that is cut short is made when the topic is declared again.
func TestTopics_Declare_throttleCutShort(t *testing.T) {
	rate := func(n int) topic.Topic {
		return topic.Topic{Name: "orders", Policy: &policy.Topic{Document: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: n}}}}
	}
	r := newRig(t, quiet())
	r.create(rate(7))
	for _, id := range []string{"a", "b"} {
		r.endpoint(id)
		r.subscribe(topic.Subscription{ID: id, Topic: "orders", Endpoint: id})
	}
	entries, err := door.Open[errand.NewJob](r.q)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := entries.Entry(t.Context(), "webhook", "b")
	if err != nil {
		t.Fatal(err)
	}
	put := func(doc []byte) { // of the endpoint b
		e, err := entries.Entry(t.Context(), "webhook", "b")
		if e.Doc = doc; err == nil {
			_, err = entries.PutEntries(t.Context(), []storage.Entry{e})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put([]byte("[]"))
	if _, err := r.topics.Declare(t.Context(), rate(3)); !errors.Is(err, errand.ErrCorrupt) {
		t.Fatalf("with an endpoint that cannot be read: %v", err)
	}
	put(whole.Doc)
	got, err := r.topics.Declare(t.Context(), rate(3))
	if err != nil || got.Policy.Throttle.MaxReceivesPerSecond != 3 || got.Subscriptions != 2 {
		t.Fatalf("declared again: %+v, %v", got, err)
	}
	for _, id := range []string{"a", "b"} {
		if s := r.settings("webhook/" + id); s.Starts == nil || *s.Starts != 3 {
			t.Errorf("the queue of %s has %+v", id, s)
		}
	}
}

// Of two updates by the same revision one is refused, and the throttle is that of the other.
func TestTopics_Update_throttleRefused(t *testing.T) {
	r := newRig(t, quiet())
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop"})
	other, err := topic.New(r.q, r.hooks, quiet())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		was, err := r.topics.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i, topics := range []*topic.Topics{r.topics, other} {
			p := was
			p.Policy = &policy.Topic{Document: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: int(was.Revision)%5000 + i + 1}}}
			wg.Go(func() {
				if _, err := topics.Update(t.Context(), p); err != nil && !errors.Is(err, errand.ErrStale) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		is, err := r.topics.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if s := r.settings("webhook/shop"); s.Starts == nil || *s.Starts != is.Policy.Throttle.MaxReceivesPerSecond {
			t.Fatalf("the topic has %d a second, and the queue %+v", is.Policy.Throttle.MaxReceivesPerSecond, s)
		}
	}
}

// settings returns the settings of a queue.
func (r *rig) settings(queue string) errand.Settings {
	r.t.Helper()
	all, err := r.q.Settings(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range all {
		if s.Lane == (errand.Lane{Queue: queue}) {
			return s.Settings
		}
	}
	return errand.Settings{}
}

// Strict options refuse what has deliveries in a queue that they do not list when it is made, not
// when it is published to.
func TestTopics_strict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	free := rigAt(t, path, quiet())
	free.create(topic.Topic{Name: "orders"})
	free.endpoint("shop")
	s := free.subscribe(topic.Subscription{ID: "a", Topic: "orders", Kind: "book", Queue: "elsewhere"})
	strict := func(queues ...string) *rig {
		listed := map[string]errand.QueueOptions{}
		for _, name := range queues {
			listed[name] = errand.QueueOptions{}
		}
		return rigWith(t, path, quiet(), errand.Options{Strict: true, Queues: listed})
	}
	ctx, r := t.Context(), strict("default")
	const rest = `must be listed in Options.Queues, as Options.Strict is set: default`
	_, create := r.topics.Create(ctx, topic.Topic{Name: "stock"})
	_, declare := r.topics.Declare(ctx, topic.Topic{Name: "orders"})
	_, kind := r.topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Kind: "book", Queue: "typo"})
	_, endpoint := r.topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Endpoint: "shop"})
	_, update := r.topics.UpdateSubscription(ctx, s)
	_, _, hook := r.hooks.Create(ctx, webhook.Endpoint{ID: "new", URL: "https://new.example/in"}, webhook.Secret{})
	_, _, hookAgain := r.hooks.Declare(ctx, webhook.Endpoint{ID: "shop", URL: "https://new.example/in"}, webhook.Secret{})
	for want, err := range map[string]error{
		`queue "topic/stock": ` + rest + `; topic.Queues, "topic/*", lists those of all topics`:  create,
		`queue "topic/orders": ` + rest + `; topic.Queues, "topic/*", lists those of all topics`: declare,
		`queue "typo": ` + rest:            kind,
		`endpoint "webhook/shop": ` + rest: endpoint,
		`queue "elsewhere": ` + rest:       update,
		`queue "webhook/new": ` + rest + `; webhook.Queues, "webhook/*", lists those of all endpoints`:  hook,
		`queue "webhook/shop": ` + rest + `; webhook.Queues, "webhook/*", lists those of all endpoints`: hookAgain,
	} {
		if err == nil || err.Error() != "errand: "+want || !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("got  %v\nwant errand: %s", err, want)
		}
	}
	r = strict("default", "elsewhere", topic.Queues, webhook.Queues)
	_, create = r.topics.Create(ctx, topic.Topic{Name: "stock"})
	_, kind = r.topics.Subscribe(ctx, topic.Subscription{Topic: "stock", Kind: "book"})
	_, update = r.topics.UpdateSubscription(ctx, s)
	_, _, hook = r.hooks.Create(ctx, webhook.Endpoint{ID: "new", URL: "https://new.example/in"}, webhook.Secret{})
	if err := errors.Join(create, kind, update, hook); err != nil {
		t.Errorf("with these listed: %v", err)
	}
}

// Of many who declare a topic at the same time none hears of the others.
func TestTopics_Declare_atOnce(t *testing.T) {
	r := newRig(t, &topic.Options{Logger: slog.New(slog.DiscardHandler)})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := r.topics.Declare(t.Context(), topic.Topic{Name: "orders", Keep: time.Duration(i%4) * time.Hour}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A program that declares what it needs can be started again.
func TestTopics_Declare_program(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	var first []string
	for range 2 {
		r := rigAt(t, path, nil)
		var is []string
		e, secret, err := r.hooks.Declare(t.Context(), webhook.Endpoint{ID: "shop", URL: "https://shop.example/in"}, webhook.Secret{})
		p, errTopic := r.topics.Declare(t.Context(), topic.Topic{Name: "orders"})
		s, errSubscribe := r.topics.Subscribe(t.Context(), topic.Subscription{Topic: "orders", Endpoint: "shop", Raw: true})
		if err := errors.Join(err, errTopic, errSubscribe); err != nil {
			t.Fatal(err)
		}
		is = append(is, fmt.Sprint(e.Revision, p.Revision, s.Revision, s.ID), secret.Reveal())
		if first == nil {
			first = is
		} else if fmt.Sprint(is) != fmt.Sprint(first) {
			t.Errorf("%v, and then %v", first, is)
		}
		if err := r.q.Close(); err != nil && !errors.Is(err, errand.ErrClosed) {
			t.Fatal(err)
		}
	}
}
