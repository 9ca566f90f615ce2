package topic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
)

// members adds subscriptions to kinds from k-00000 on, as Subscribe does, but many in a
// transaction.
func (r *rig) members(name string, n int) {
	r.t.Helper()
	opened, err := door.Open[errand.NewJob](r.q)
	if err != nil {
		r.t.Fatal(err)
	}
	var entries []storage.Entry
	for i := range n {
		doc, err := json.Marshal(map[string]any{"topic": name, "kind": fmt.Sprintf("k-%05d", i), "queue": "books", "raw": true})
		if err != nil {
			r.t.Fatal(err)
		}
		entries = append(entries, storage.Entry{Class: "subscription", Name: fmt.Sprintf("s-%05d", i), Family: "topic/" + name, Doc: doc})
	}
	for part := range slices.Chunk(entries, 1000) {
		if _, err := opened.PutEntries(r.t.Context(), part); err != nil {
			r.t.Fatal(err)
		}
	}
}

// once checks that a message has one delivery for each of the first n subscriptions of
// members, and no others.
func (r *rig) once(message string, n int) {
	r.t.Helper()
	kinds, twice := map[string]int{}, 0
	for _, j := range r.jobs(errand.JobFilter{Tag: storage.MessageTag(message), Queue: "books"}) {
		if kinds[j.Kind]++; kinds[j.Kind] > 1 {
			twice++
		}
	}
	if len(kinds) != n || twice > 0 {
		r.t.Errorf("message %s has deliveries to %d subscriptions, and %d too many: want %d and 0", message, len(kinds), twice, n)
	}
}

// The job of a publication to 10,000 subscriptions is cut off between its steps, again and
// again: its process stops, or its handler panics. It is also done by another at the same
// time. Each subscription gets one delivery.
func TestTopics_fanOut_crashes(t *testing.T) {
	const n = 10_000
	var jobs atomic.Int64
	cut := make(chan bool, 100)
	r := rigWith(t, filepath.Join(t.TempDir(), "jobs.db"), nil, errand.Options{
		// The first deliveries of a step come by when the step before is committed.
		Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				if job.Queue != "books" {
					return next(ctx, job)
				}
				switch n := jobs.Add(1); {
				case n == 401 || n == 1801:
					panic("a crash")
				case n%1000 == 1:
					cut <- true
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return next(ctx, job)
			}
		}},
	})
	r.create(topic.Topic{Name: "orders"})
	r.members("orders", n)
	got := r.publish("orders", topic.Message{ID: "m1", Body: data.Body})
	if !got.FanOut || len(got.Jobs) != 1 || got.Subscriptions != nil {
		t.Fatalf("published: %+v", got)
	}
	first, err := r.q.Job(t.Context(), got.Jobs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.q.Enqueue(t.Context(), errand.RawArgs{OfKind: first.Kind, JSON: first.Args}, &errand.JobOptions{Queue: first.Queue}); err != nil {
		t.Fatal(err)
	}
	wait := r.events(first.Kind, errand.EventDone, errand.EventDead)
	done := make(chan bool)
	go func() { wait(2); close(done) }()
	cuts := 0
	for over := false; !over; {
		stop := r.start(nil, "topic/orders")
		select {
		case <-cut:
			cuts++
		case <-done:
			over = true
		}
		stop()
	}
	if cuts < 8 {
		t.Errorf("the job was cut off %d times", cuts)
	}
	if dead := r.jobs(errand.JobFilter{States: []errand.State{errand.Dead}}); len(dead) > 0 {
		t.Errorf("dead: %+v", dead)
	}
	r.once("m1", n)
}

// A subscription that was made after a message was published gets nothing of it, wherever
// its ID is in the order; one that has changed gets it, by what it is now.
func TestTopics_fanOut_laterSubscription(t *testing.T) {
	const n = 1500
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.members("orders", n)
	r.publish("orders", topic.Message{ID: "m1", Body: data.Body})
	for _, id := range []string{"a", "s-00500a", "z"} {
		r.subscribe(topic.Subscription{ID: id, Topic: "orders", Kind: "late-" + id, Queue: "books"})
	}
	s, err := r.topics.Subscription(t.Context(), "s-01400")
	if err != nil {
		t.Fatal(err)
	}
	s.Raw = false
	if _, err = r.topics.UpdateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r.publish("orders", topic.Message{ID: "m2", Body: data.Body})
	wait := r.events("topic.fanout", errand.EventDone)
	stop := r.start(nil, "topic/orders")
	wait(2)
	stop()
	r.once("m1", n)
	r.once("m2", n+3)
	job := r.jobs(errand.JobFilter{Tag: storage.MessageTag("m1"), Kind: "k-01400"})
	if len(job) != 1 {
		t.Fatalf("%d deliveries", len(job))
	}
	full, err := r.q.Job(t.Context(), job[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct{ MessageID string }
	if err := json.Unmarshal(full.Args, &envelope); err != nil || envelope.MessageID != "m1" {
		t.Errorf("args by the new Raw: %s", full.Args)
	}
}

// Only those that match count: a topic with more subscriptions than fit in a publication
// may need no job.
func TestTopics_Publish_fewOfMany(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.members("orders", 1000)
	r.subscribe(topic.Subscription{ID: "z", Topic: "orders", Kind: "last", Filter: json.RawMessage(`{"last": ["yes"]}`)})
	if got := r.publish("orders", topic.Message{ID: "m1", Body: data.Body}); got.FanOut || len(got.Jobs) != 1000 {
		t.Errorf("%d deliveries", len(got.Jobs))
	}
	s, err := r.topics.Subscription(t.Context(), "z")
	if err != nil {
		t.Fatal(err)
	}
	s.Filter = nil
	if _, err = r.topics.UpdateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := r.publish("orders", topic.Message{ID: "m2", Body: data.Body}); !got.FanOut || len(got.Jobs) != 1 {
		t.Errorf("%d deliveries", len(got.Jobs))
	}
}

func TestTopics_Subscribe_orderedIsFull(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders", Ordered: true})
	for i := range 1000 {
		r.subscribe(topic.Subscription{Topic: "orders", Kind: fmt.Sprint("kind-", i)})
	}
	_, err := r.topics.Subscribe(t.Context(), topic.Subscription{Topic: "orders", Kind: "more"})
	if err == nil || fields(t, err) != "topic" {
		t.Errorf("one more: %v", err)
	}
	m := data
	m.Group = "one"
	if got := r.publish("orders", m); got.FanOut || len(got.Jobs) != 1000 {
		t.Errorf("%d deliveries", len(got.Jobs))
	}
}
