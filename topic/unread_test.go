package topic_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// unread is a store whose messages cannot be read.
type unread struct{ *sqlite.Store }

func (unread) Message(context.Context, string) (storage.Message, error) {
	return storage.Message{}, storage.ErrBusy
}

func (unread) MessageWith(context.Context, string, ...storage.EntryName) (storage.Message, []int64, error) {
	return storage.Message{}, nil, storage.ErrBusy
}

// What cannot be read from the file costs a delivery nothing, neither a retry nor a snooze.
func TestTopics_deliver_unread(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	q, err := errand.New(t.Context(), unread{file}, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	r := &rig{t: t, q: q, net: &transport{}}
	if r.hooks, err = webhook.New(q, &webhook.Options{Transport: r.net, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	if r.topics, err = topic.New(q, r.hooks, nil); err != nil {
		t.Fatal(err)
	}
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop"})
	byTopic := r.publish("orders", data).Jobs[0].ID
	sent, err := r.hooks.Send(t.Context(), webhook.Message{}, "shop")
	if err != nil {
		t.Fatal(err)
	}
	topics, hooks := r.events("topic", errand.EventUnavailable), r.events("webhook", errand.EventUnavailable)
	stop := r.start(func(w *errand.Worker) { r.hooks.Handle(w) }, webhook.QueueOf("shop"))
	topics(1)
	hooks(1)
	stop()
	for _, id := range []errand.ID{byTopic, sent.Jobs[0].ID} {
		if j, err := q.Job(t.Context(), id); err != nil || j.State != errand.Scheduled || j.Retry != 0 || j.Snoozes != 0 || j.Attempt < 1 {
			t.Errorf("%+v, %v", j, err)
		}
	}
}
