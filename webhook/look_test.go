package webhook_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/webhook"
)

// A delivery says what it sends, and is found by the tags of its message, also one of a replay.
func TestDelivery(t *testing.T) {
	r := newRig(t, webhook.Options{Keep: time.Hour})
	r.endpoint("a", func(e *webhook.Endpoint) { e.URL = "https://a.example/in/a-token-of-16-bytes?key=secret" })
	r.send(webhook.Message{ID: "m1", Type: "order.paid", Body: []byte(`{"order":7}`), Tags: []string{"tenant:ada", "order:7"}}, "a")
	if n, err := r.hooks.Replay(t.Context(), "a", time.Time{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	page, err := r.q.Jobs(t.Context(), errand.JobFilter{Tag: "tenant:ada"}, nil)
	if err != nil || len(page.Jobs) != 2 {
		t.Fatalf("%d deliveries of a tenant, %v", len(page.Jobs), err)
	}
	for _, job := range page.Jobs {
		got, err := r.hooks.Delivery(t.Context(), job.ID)
		m := got.Message
		if err != nil || got.Endpoint != "a" || got.URL != "https://a.example/in/..." || got.SentAt.IsZero() || m.ID != "m1" || m.Type != "order.paid" || string(m.Body) != `{"order":7}` ||
			!slices.Equal(m.Tags, []string{"tenant:ada", "order:7"}) {
			t.Errorf("%+v, %v", got, err)
		}
		text, err := json.Marshal(got)
		var read webhook.Delivery
		if err != nil || json.Unmarshal(text, &read) != nil || !reflect.DeepEqual(read, got) || !strings.Contains(string(text), `"body":"eyJvcmRlciI6N30="`) {
			t.Errorf("as JSON: %s, %v", text, err)
		}
	}
	entries, err := door.Open[errand.NewJob](r.q)
	if err != nil {
		t.Fatal(err)
	}
	// The body is kept once.
	if kept, err := entries.Message(t.Context(), "m1"); err != nil || string(kept.Attributes) != `{"id":"m1","type":"order.paid","tags":["tenant:ada","order:7"]}` {
		t.Errorf("what is kept beside the body: %s, %v", kept.Attributes, err)
	}
	if _, err := r.hooks.Delivery(t.Context(), errand.ID{1}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("no job: %v", err)
	}
	other, err := r.q.Enqueue(t.Context(), errand.RawArgs{OfKind: "other", JSON: []byte("{}")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.hooks.Delivery(t.Context(), other.ID); !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), `is of "other"`) {
		t.Errorf("another job: %v", err)
	}
	_, err = r.hooks.Send(t.Context(), webhook.Message{Tags: []string{"a b", "message:m1", "subscription:s1", strings.Repeat("x", 65), "-", "", "y"}}, "a")
	refuses(t, err, "tags", "tags[0]", "tags[1]", "tags[2]", "tags[3]", "tags[4]", "tags[5]")
}
