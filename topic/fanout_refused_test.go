package topic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
)

// A subscription whose delivery is refused keeps the message from none that come after it, and is
// tried by a job of its own.
func TestTopics_fanOut_refused(t *testing.T) {
	const n = 1100
	for _, c := range []string{"full", "large"} {
		t.Run(c, func(t *testing.T) {
			var logged bytes.Buffer
			r := newRig(t, &topic.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			r.create(topic.Topic{Name: "orders"})
			r.members("orders", n)
			body := []byte(`"x"`)
			if c == "full" {
				one := 1
				if err := r.q.Configure(t.Context(), errand.Lane{Queue: "small"}, errand.Settings{MaxJobs: &one}); err != nil {
					t.Fatal(err)
				}
				if _, err := r.q.Enqueue(t.Context(), errand.RawArgs{OfKind: "other", JSON: []byte("{}")}, &errand.JobOptions{Queue: "small"}); err != nil {
					t.Fatal(err)
				}
			} else {
				body = textOf(256<<10 - 2)
			}
			for _, id := range []string{"a", "s-00500a", "z"} { // not raw: the envelope is larger
				r.subscribe(topic.Subscription{ID: id, Topic: "orders", Kind: "kind-" + id, Queue: "small"})
			}
			r.publish("orders", topic.Message{ID: "m1", Body: body})
			done, dead := r.events("topic.fanout", errand.EventDone), r.events("topic.refused", errand.EventDead)
			stop := r.start(nil, topic.Queues)
			done(1)
			if c == "large" {
				dead(3)
			}
			stop()
			r.once("m1", n)
			text := map[string]string{"full": "and tried again by itself", "large": "and dead until it is redriven"}[c]
			for _, id := range []string{"a", "s-00500a", "z"} {
				if !strings.Contains(logged.String(), text+`" topic=orders subscription=`+id+" message=m1 error=") {
					t.Errorf("the log does not name %s: %s", id, &logged)
				}
			}
			if c == "full" {
				r.roomFor("small", 10, "topic/orders", 3)
				if all := r.jobs(errand.JobFilter{Queue: "small", Tag: storage.MessageTag("m1")}); len(all) != 3 {
					t.Errorf("%d deliveries when there is room", len(all))
				}
				return
			}
			all := r.jobs(errand.JobFilter{Queue: "topic/orders", States: []errand.State{errand.Dead}})
			for i, id := range []string{"a", "s-00500a", "z"} {
				if len(all) != 3 || !strings.Contains(fmt.Sprint(all), fmt.Sprintf("subscription %q", id)) {
					t.Errorf("%d: no job names %q: %+v", i, id, all)
				}
			}
		})
	}
}

// A message whose delivery is refused keeps no other from being replayed, also if it is from before
// the subscription was there.
func TestTopics_Replay_refused(t *testing.T) {
	r := newRig(t, quiet())
	r.create(topic.Topic{Name: "orders", Keep: time.Hour})
	r.create(topic.Topic{Name: "ordered", Keep: time.Hour, Ordered: true})
	for i, body := range [][]byte{[]byte(`"x"`), textOf(256<<10 - 2), []byte(`"y"`)} {
		r.publish("orders", topic.Message{ID: fmt.Sprint("m", i), Body: body, Tags: []string{"tenant:ada"}})
		r.publish("ordered", topic.Message{ID: fmt.Sprint("o", i), Body: []byte(`"x"`), Group: "g"})
	}
	s := r.subscribe(topic.Subscription{ID: "a", Topic: "orders", Kind: "book"})
	if n, err := r.topics.Replay(t.Context(), "a", data0); n != 3 || err != nil {
		t.Fatalf("one that is too large: %d, %v", n, err)
	}
	if all := r.jobs(errand.JobFilter{Kind: "book"}); len(all) != 2 {
		t.Errorf("%d deliveries beside the refused one", len(all))
	}
	s.Raw = true
	if _, err := r.topics.UpdateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	done := r.events("topic.refused", errand.EventDone)
	stop := r.start(nil, topic.Queues)
	done(1)
	stop()
	if all := r.jobs(errand.JobFilter{Kind: "book", Tag: storage.MessageTag("m1")}); len(all) != 1 {
		t.Errorf("%d deliveries of the message that was too large", len(all))
	}

	r.subscribe(topic.Subscription{ID: "b", Topic: "orders", Kind: "book", Queue: "small"})
	r.subscribe(topic.Subscription{ID: "o", Topic: "ordered", Kind: "book", Queue: "small"})
	r.fill("small")
	if n, err := r.topics.Replay(t.Context(), "b", data0); n != 3 || err != nil {
		t.Errorf("a full queue: %d, %v", n, err)
	}
	if all := r.jobs(errand.JobFilter{Kind: "topic.fanout", Tag: topic.Tag("b")}); len(all) != 2 {
		t.Errorf("%d deliveries wait for room", len(all))
	}
	n, err := r.topics.Replay(t.Context(), "o", data0)
	if n != 0 || !errors.Is(err, errand.ErrQueueFull) || !strings.HasPrefix(err.Error(), `subscription "o": message "o0": `) {
		t.Errorf("a full queue of an ordered topic: %d, %v", n, err)
	}
}

// roomFor sets MaxJobs of a queue to n, and waits until this number of jobs of the queue
// others is done.
func (r *rig) roomFor(queue string, n int, others string, jobs int) {
	r.t.Helper()
	if err := r.q.Configure(r.t.Context(), errand.Lane{Queue: queue}, errand.Settings{MaxJobs: &n}); err != nil {
		r.t.Fatal(err)
	}
	done := r.events("topic.fanout", errand.EventDone)
	if _, err := r.q.RunNow(r.t.Context(), errand.JobFilter{Queue: others}, nil); err != nil {
		r.t.Fatal(err)
	}
	stop := r.start(nil, others)
	done(jobs)
	stop()
}

// textOf returns a text as JSON of n bytes.
func textOf(n int) []byte { return append(append([]byte{'"'}, bytes.Repeat([]byte("x"), n-2)...), '"') }

// Jobs of kinds whose args are more than what a call takes are made by the job, in steps of a MiB.
func TestTopics_Publish_largeArgs(t *testing.T) {
	const n = 400
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.members("orders", n)
	r.subscribe(topic.Subscription{ID: "z", Topic: "orders", Kind: "last", Filter: json.RawMessage(`{"last": ["yes"]}`)})
	if got := r.publish("orders", topic.Message{ID: "m0", Body: textOf(64 << 10)}); got.FanOut || len(got.Jobs) != n {
		t.Errorf("25 MiB: %d jobs", len(got.Jobs))
	}
	got := r.publish("orders", topic.Message{ID: "m1", Body: textOf(200 << 10)})
	if !got.FanOut {
		t.Errorf("80 MiB: %d jobs", len(got.Jobs))
	}
	wait := r.events("topic.fanout", errand.EventDone)
	stop := r.start(nil, topic.Queues)
	wait(1)
	stop()
	r.once("m1", n)
}
