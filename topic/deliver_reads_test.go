package topic_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// reading is a store that counts what deliveries read.
type reading struct {
	*sqlite.Store
	entries, messages atomic.Int64
}

func (s *reading) Entry(ctx context.Context, class, name string) (storage.Entry, error) {
	if class != "webhook-failing" && class != "webhook-online" {
		s.entries.Add(1)
	}
	return s.Store.Entry(ctx, class, name)
}

func (s *reading) Message(ctx context.Context, id string) (storage.Message, error) {
	s.messages.Add(1)
	return s.Store.Message(ctx, id)
}

func (s *reading) MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
	s.messages.Add(1)
	return s.Store.MessageWith(ctx, id, entries...)
}

// A delivery reads its message, and what it goes by only if that has changed, in whatever
// process.
func TestTopics_deliver_reads(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "jobs.db")
	for _, sns := range []bool{false, true} {
		t.Run(fmt.Sprint("SNS ", sns), func(t *testing.T) {
			path := path + fmt.Sprint(sns)
			file, err := sqlite.Open(path, &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			store := &reading{Store: file}
			q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet, Retention: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = q.Close() })
			r := &rig{t: t, q: q, net: &transport{seen: make(chan struct{}, 100)}}
			if r.hooks, err = webhook.New(q, &webhook.Options{Transport: r.net, Logger: quiet}); err != nil {
				t.Fatal(err)
			}
			if r.topics, err = topic.New(q, r.hooks, &topic.Options{ConfirmURL: confirmURL}); err != nil {
				t.Fatal(err)
			}
			other := rigAt(t, path, &topic.Options{ConfirmURL: confirmURL})
			r.create(topic.Topic{Name: "orders"})
			r.endpoint("shop")
			s := topic.Subscription{ID: "s1", Topic: "orders", Endpoint: "shop"}
			if sns {
				s = r.confirmed(s)
				<-r.net.seen
			} else {
				s = r.subscribe(s)
			}
			wait := r.events("topic", errand.EventDone)
			stop := r.start(nil, "webhook/shop")
			sends := func(n int) sent {
				t.Helper()
				for range n {
					r.publish("orders", topic.Message{Body: []byte("x < y")})
					<-r.net.seen
				}
				wait(n)
				all := r.net.all()
				return all[len(all)-1]
			}
			sends(1)
			entries, messages := store.entries.Load(), store.messages.Load()
			sends(20)
			if e, m := store.entries.Load()-entries, store.messages.Load()-messages; e != 0 || m != 20 {
				t.Errorf("%d entries and %d messages are read for 20 deliveries, want 0 and 20", e, m)
			}

			// Each change of the other process holds for the next delivery.
			s.Raw = true
			if _, err := other.topics.UpdateSubscription(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := sends(1); got.body != "x < y" {
				t.Errorf("a subscription that is raw now gets %s", got.body)
			}
			p := topic.Topic{Name: "orders", Policy: &policy.Topic{Document: policy.Document{Request: &policy.Request{ContentType: "text/plain"}}}}
			if _, err := other.topics.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if got := sends(1); got.header.Get("Content-Type") != "text/plain" {
				t.Errorf("a topic has another policy now: %v", got.header)
			}
			if _, err := other.hooks.Update(t.Context(), webhook.Endpoint{ID: "shop", URL: "https://new.example"}); err != nil {
				t.Fatal(err)
			}
			if got := sends(1); got.host != "new.example" {
				t.Errorf("an endpoint that has moved is at %s", got.host)
			}
			stop()
			if err := other.topics.Unsubscribe(t.Context(), "s1"); err != nil {
				t.Fatal(err)
			}
			if n := len(r.publish("orders", data).Jobs); n != 0 {
				t.Errorf("%d deliveries after the end", n)
			}
		})
	}
}
