package topic_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// configured is a store that calls before ahead of each Configure.
type configured struct {
	*sqlite.Store
	before func(queue string) error
}

func (s *configured) Configure(ctx context.Context, lane storage.Lane, set storage.Settings) error {
	if s.before != nil {
		if err := s.before(lane.Queue); err != nil {
			return err
		}
	}
	return s.Store.Configure(ctx, lane, set)
}

// configuredRig returns a rig with a topic of n endpoints, each with a throttle of 5 a second.
func configuredRig(t *testing.T, n int) (*rig, *configured) {
	t.Helper()
	quietly := slog.New(slog.DiscardHandler)
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Durability: sqlite.Relaxed, Logger: quietly})
	if err != nil {
		t.Fatal(err)
	}
	store := &configured{Store: file}
	q, err := errand.New(t.Context(), store, &errand.Options{Logger: quietly})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	r := &rig{t: t, q: q, net: &transport{}}
	if r.hooks, err = webhook.New(q, &webhook.Options{Transport: r.net, Logger: quietly}); err != nil {
		t.Fatal(err)
	}
	if r.topics, err = topic.New(q, r.hooks, quiet()); err != nil {
		t.Fatal(err)
	}
	r.create(withThrottle("orders", 5))
	for i := range n {
		id := fmt.Sprint("e", i)
		r.endpoint(id)
		r.subscribe(topic.Subscription{ID: id, Topic: "orders", Endpoint: id})
	}
	return r, store
}

// starts checks how many attempts a second the endpoints of configuredRig start.
func (r *rig) starts(n, want int) {
	r.t.Helper()
	for i := range n {
		if s := r.settings(fmt.Sprint("webhook/e", i)).Starts; s == nil || *s != want {
			r.t.Errorf("endpoint %d starts %v, want %d", i, s, want)
		}
	}
}

// A new throttle that only some endpoints have got is set for all of them by the next call, also by
// one that declares the old throttle again.
func TestTopics_Declare_throttleInTheMiddle(t *testing.T) {
	const n = 5
	for _, again := range []int{5, 500} {
		r, store := configuredRig(t, n)
		was, err := r.topics.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		store.before = func(queue string) error {
			if queue == "webhook/e3" {
				cancel()
				return ctx.Err()
			}
			return nil
		}
		if _, err := r.topics.Declare(ctx, withThrottle("orders", 500)); !errors.Is(err, context.Canceled) {
			t.Fatalf("a context that ends in the middle: %v", err)
		}
		store.before = nil
		publisher, err := topic.New(r.q, nil, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := publisher.Declare(t.Context(), withThrottle("orders", 500)); err != nil {
			t.Errorf("a program that only publishes: %v", err)
		}
		p, err := r.topics.Declare(t.Context(), withThrottle("orders", again))
		if err != nil || p.Policy.Throttle.MaxReceivesPerSecond != again || p.Revision == was.Revision {
			t.Errorf("declared again: %+v, %v", p, err)
		}
		r.starts(n, again)
		if same, err := r.topics.Declare(t.Context(), withThrottle("orders", again)); err != nil || same.Revision != p.Revision {
			t.Errorf("and once more: %+v, %v", same, err)
		}
	}
}

// While the endpoints of a topic get a new throttle, others subscribe, and change the topic.
func TestTopics_Update_throttleMeanwhile(t *testing.T) {
	const n = 5
	r, store := configuredRig(t, n)
	r.create(topic.Topic{Name: "stock"})
	r.endpoint("late")
	done := false
	store.before = func(queue string) error {
		if queue != "webhook/e3" || done {
			return nil
		}
		done = true
		r.subscribe(topic.Subscription{Topic: "stock", Kind: "book"})
		s, err := r.topics.Subscription(t.Context(), "e3")
		if s.Policy = &withThrottle("", 7).Policy.Document; err == nil {
			_, err = r.topics.UpdateSubscription(t.Context(), s)
		}
		if err == nil {
			_, err = r.topics.Update(t.Context(), withThrottle("orders", 300))
		}
		r.subscribe(topic.Subscription{ID: "a-late", Topic: "orders", Endpoint: "late"})
		return err
	}
	p, err := r.topics.Update(t.Context(), withThrottle("orders", 200))
	if err != nil || p.Policy.Throttle.MaxReceivesPerSecond != 300 || p.Subscriptions != n+1 {
		t.Errorf("the topic: %+v, %v", p, err)
	}
	r.starts(3, 300)
	for id, want := range map[string]int{"e3": 7, "e4": 300, "late": 300} {
		if s := r.settings("webhook/" + id).Starts; s == nil || *s != want {
			t.Errorf("%s starts %v, want %d", id, s, want)
		}
	}
}
