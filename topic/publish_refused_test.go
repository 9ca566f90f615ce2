package topic_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
)

// A subscription whose delivery is refused keeps the message from no other.
func TestTopics_Publish_refused(t *testing.T) {
	large, small := textOf(256<<10-2), []byte(`"x"`) // of which an envelope is larger than args may be
	for _, c := range []struct {
		name    string
		ordered bool
		full    bool
		bodies  [][]byte
		tx      bool
		fanOut  bool
	}{
		{name: "large", bodies: [][]byte{large}},
		{name: "large of many", bodies: [][]byte{small, large, small, large}},
		{name: "large in order", ordered: true, bodies: [][]byte{large, small}},
		{name: "large in a transaction", bodies: [][]byte{large}, tx: true},
		{name: "full", full: true, bodies: [][]byte{small, small}, fanOut: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var logged bytes.Buffer
			r := newRig(t, &topic.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			r.create(topic.Topic{Name: "orders", Ordered: c.ordered})
			for _, id := range []string{"a", "b"} {
				r.subscribe(topic.Subscription{ID: id, Topic: "orders", Kind: "kind-" + id, Queue: "small"})
			}
			r.endpoint("shop")
			r.subscribe(topic.Subscription{ID: "c", Topic: "orders", Endpoint: "shop"})
			r.subscribe(topic.Subscription{ID: "d", Topic: "orders", Kind: "raw", Raw: true})
			if c.full {
				r.fill("small")
			}
			messages := make([]topic.Message, len(c.bodies))
			for i, body := range c.bodies {
				messages[i] = topic.Message{ID: fmt.Sprint("m", i), Body: body}
				if c.ordered {
					messages[i].Group = "g"
				}
			}
			got, err := r.publishAs(c.tx, messages)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range got {
				if p.FanOut != c.fanOut || !c.fanOut && !slices.Equal(p.Subscriptions, []string{"a", "b", "c", "d"}) {
					t.Errorf("message %d: %+v", i, p)
				}
			}
			done, dead := r.events("topic.fanout", errand.EventDone), r.events("topic.refused", errand.EventDead)
			stop := r.start(nil, topic.Queues)
			refused := 0
			for _, body := range c.bodies {
				if len(body) == len(large) {
					refused += 2
				}
			}
			if c.full {
				done(len(c.bodies))
			} else {
				dead(refused)
			}
			stop()
			for _, to := range []errand.JobFilter{{Queue: "webhook/shop"}, {Queue: "default", Kind: "raw"}} {
				if n := len(r.jobs(to)); n != len(c.bodies) {
					t.Errorf("%d deliveries of %+v, want %d", n, to, len(c.bodies))
				}
			}
			for _, id := range []string{"a", "b"} {
				if !strings.Contains(logged.String(), "topic=orders subscription="+id+" message=m") {
					t.Errorf("the log does not name %s: %s", id, &logged)
				}
				all := r.jobs(errand.JobFilter{Tag: topic.Tag(id), States: []errand.State{errand.Dead}})
				if len(all) != refused/2 || len(all) > 0 && !strings.Contains(fmt.Sprint(all), fmt.Sprintf(`subscription %q: errand: args `, id)) {
					t.Errorf("%d dead deliveries of %s: %+v", len(all), id, all)
				}
			}
			if c.full {
				r.roomFor("small", 10, "topic/orders", 2*len(c.bodies))
				if all := r.jobs(errand.JobFilter{Queue: "small", Tag: topic.Tag("b")}); len(all) != len(c.bodies) {
					t.Errorf("%d deliveries when there is room", len(all))
				}
			}
		})
	}
}

// A duplicate writes nothing, and so logs nothing. What is refused by its size is not tried again.
func TestTopics_Publish_refusedDuplicate(t *testing.T) {
	var logged bytes.Buffer
	r := newRig(t, &topic.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	r.create(topic.Topic{Name: "orders"})
	r.subscribe(topic.Subscription{ID: "a", Topic: "orders", Kind: "kind-a"})
	for _, want := range []int{1, 0} {
		logged.Reset()
		got, err := r.topics.PublishMany(t.Context(), "orders", []topic.Message{{Body: []byte(`"x"`)}, {ID: "m", Body: textOf(256<<10 - 2)}})
		if err != nil || got[1].Duplicate != (want == 0) {
			t.Fatalf("%+v, %v", got, err)
		}
		line := `msg="errand: delivery to a subscription is refused, and dead until it is redriven" topic=orders subscription=a message=m`
		if n := strings.Count(logged.String(), line); n != want || strings.Count(logged.String(), "\n") != want {
			t.Errorf("the log, want %d lines: %s", want, &logged)
		}
	}
}

// However many deliveries of a call are refused, the others are made.
func TestTopics_Publish_refusedByHundreds(t *testing.T) {
	const n = 101 // more than the text of an error lists
	r := newRig(t, quiet())
	r.create(topic.Topic{Name: "orders"})
	for i := range n {
		r.subscribe(topic.Subscription{Topic: "orders", Kind: fmt.Sprint("kind-", i)})
	}
	r.subscribe(topic.Subscription{ID: "d", Topic: "orders", Kind: "raw", Raw: true})
	if got := r.publish("orders", topic.Message{Body: textOf(256<<10 - 2)}); got.FanOut || len(got.Jobs) != n+1 {
		t.Errorf("published: %d jobs, fan-out %v", len(got.Jobs), got.FanOut)
	}
	if all, raw := r.jobs(errand.JobFilter{Kind: "topic.refused"}), r.jobs(errand.JobFilter{Kind: "raw"}); len(all) != n || len(raw) != 1 {
		t.Errorf("%d deliveries that were refused and %d others", len(all), len(raw))
	}

	path := filepath.Join(t.TempDir(), "jobs.db")
	r = rigAt(t, path, quiet())
	r.create(topic.Topic{Name: "orders"})
	for _, queue := range []string{"listed", "other"} {
		r.subscribe(topic.Subscription{ID: queue, Topic: "orders", Kind: "book", Queue: queue})
	}
	r = rigWith(t, path, quiet(), errand.Options{Strict: true, Queues: map[string]errand.QueueOptions{topic.Queues: {}, "listed": {}}})
	messages := make([]topic.Message, n)
	for i := range messages {
		messages[i] = topic.Message{Body: []byte(`"x"`)}
	}
	if got, err := r.topics.PublishMany(t.Context(), "orders", messages); err != nil || len(got) != n {
		t.Fatalf("published %d, %v", len(got), err)
	}
	if all, listed := r.jobs(errand.JobFilter{Kind: "topic.refused"}), r.jobs(errand.JobFilter{Queue: "listed"}); len(all) != n || len(listed) != n {
		t.Errorf("%d deliveries that were refused and %d others", len(all), len(listed))
	}
}

// Deliveries that are refused die by themselves: the brake that stops them stops no job that makes
// deliveries. They have the tags of the message, and can be redriven.
func TestTopics_Publish_manyRefused(t *testing.T) {
	const n = 25 // more than start the brake
	r := newRig(t, quiet())
	r.create(topic.Topic{Name: "orders"})
	a := r.subscribe(topic.Subscription{ID: "a", Topic: "orders", Kind: "kind-a", Queue: "small"})
	r.subscribe(topic.Subscription{ID: "d", Topic: "orders", Kind: "raw", Raw: true})
	for range n {
		r.publish("orders", topic.Message{Body: textOf(256<<10 - 2), Tags: []string{"tenant:ada"}})
	}
	old := r.refusedOld("a", n)
	dead, done := r.events("topic.refused", errand.EventDead), r.events("", errand.EventDone)
	stop := r.start(nil, topic.Queues)
	dead(21)
	done(n) // the old ones, which leave it to one of the new kind
	stop()
	if all := r.jobs(errand.JobFilter{Tag: "tenant:ada", Kind: "topic.refused"}); len(all) != n+old {
		t.Errorf("%d refused deliveries of a tenant, want %d", len(all), n+old)
	}
	r.fill("small") // the job makes the deliveries
	if got := r.publish("orders", topic.Message{ID: "m1", Body: []byte(`"x"`)}); !got.FanOut {
		t.Fatalf("published: %+v", got)
	}
	fanned := r.events("topic.fanout", errand.EventDone)
	stop = r.start(nil, topic.Queues)
	fanned(1)
	stop()
	if all := r.jobs(errand.JobFilter{Kind: "raw", Tag: storage.MessageTag("m1")}); len(all) != 1 {
		t.Errorf("%d deliveries to another subscription", len(all))
	}
	if was, err := r.q.Release(t.Context(), errand.Lane{Queue: "topic/orders", Kind: "topic.refused"}, "brake"); !was || err != nil {
		t.Fatalf("the brake holds refused deliveries: %v, %v", was, err)
	}
	many := 1000
	if err := r.q.Configure(t.Context(), errand.Lane{Queue: "small"}, errand.Settings{MaxJobs: &many}); err != nil {
		t.Fatal(err)
	}
	a.Raw = true
	if _, err := r.topics.UpdateSubscription(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got, err := r.topics.Redrive(t.Context(), "a"); err != nil || got.Redriven < 21 {
		t.Fatalf("redriven: %+v, %v", got, err)
	}
	again := r.events("topic.refused", errand.EventDone)
	stop = r.start(nil, topic.Queues)
	again(n + old)
	stop()
	if all := r.jobs(errand.JobFilter{Kind: "kind-a", Tag: "tenant:ada"}); len(all) != n+old {
		t.Errorf("%d deliveries when they are raw, want %d", len(all), n+old)
	}
}

// refusedOld has n refused deliveries of the last message as they were made by the version before.
func (r *rig) refusedOld(subscription string, n int) int {
	r.t.Helper()
	entries, err := door.Open[errand.NewJob](r.q)
	if err != nil {
		r.t.Fatal(err)
	}
	refused := r.jobs(errand.JobFilter{Kind: "topic.refused"})
	for i := range n {
		var of struct {
			Message string `json:"message"`
		}
		job, err := r.q.Job(r.t.Context(), refused[i].ID)
		if err == nil {
			err = json.Unmarshal(job.Args, &of)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		_, err = entries.Publish(r.t.Context(), []door.Publication[errand.NewJob]{{Message: storage.Message{ID: of.Message}, Existing: true, Jobs: []errand.NewJob{{
			Args:    errand.RawArgs{OfKind: "topic.fanout", JSON: job.Args},
			Options: &errand.JobOptions{Queue: "topic/orders", Tags: []string{topic.Tag(subscription)}},
		}}}})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return n
}

// quiet returns options without a log.
func quiet() *topic.Options { return &topic.Options{Logger: slog.New(slog.DiscardHandler)} }

// fill leaves no room in a queue.
func (r *rig) fill(queue string) {
	r.t.Helper()
	one := 1
	if err := r.q.Configure(r.t.Context(), errand.Lane{Queue: queue}, errand.Settings{MaxJobs: &one}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.q.Enqueue(r.t.Context(), errand.RawArgs{OfKind: "other", JSON: []byte("{}")}, &errand.JobOptions{Queue: queue}); err != nil {
		r.t.Fatal(err)
	}
}

// publishAs publishes to orders, in a transaction of the application if tx is true.
func (r *rig) publishAs(tx bool, messages []topic.Message) (got []topic.Published, err error) {
	if !tx {
		return r.topics.PublishMany(r.t.Context(), "orders", messages)
	}
	err = r.q.Tx(r.t.Context(), func(tx *sql.Tx) error {
		one, err := r.topics.PublishTx(r.t.Context(), tx, "orders", messages[0])
		got = append(got, one)
		return err
	})
	return got, err
}

// A full queue costs a transaction of the application nothing, whichever subscription it is of.
func TestTopics_PublishTx_full(t *testing.T) {
	for _, full := range []string{"a", "c"} {
		r := newRig(t, quiet())
		r.create(topic.Topic{Name: "orders"})
		r.subscribe(topic.Subscription{ID: full, Topic: "orders", Kind: "book", Queue: "small"})
		r.subscribe(topic.Subscription{ID: "b", Topic: "orders", Kind: "bill"})
		r.fill("small")
		var got topic.Published
		err := r.q.Tx(t.Context(), func(tx *sql.Tx) (err error) {
			if _, err = tx.Exec("CREATE TABLE own (id); INSERT INTO own VALUES (17)"); err == nil {
				got, err = r.topics.PublishTx(t.Context(), tx, "orders", topic.Message{ID: "m", Body: []byte("x")})
			}
			if err == nil {
				_, err = r.q.EnqueueTx(t.Context(), tx, errand.RawArgs{OfKind: "after"}, nil)
			}
			return err
		})
		if err != nil || !got.FanOut {
			t.Fatalf("full is %s: %+v, %v", full, got, err)
		}
		if n := len(r.jobs(errand.JobFilter{Kind: "after"})); n != 1 {
			t.Errorf("full is %s: %d jobs that came after", full, n)
		}
		err = r.q.Tx(t.Context(), func(tx *sql.Tx) error {
			var id int
			return tx.QueryRow("SELECT id FROM own").Scan(&id)
		})
		if err != nil {
			t.Errorf("full is %s: the row of the application: %v", full, err)
		}
		done := r.events("topic.fanout", errand.EventDone)
		stop := r.start(nil, topic.Queues)
		done(1)
		stop()
		r.roomFor("small", 10, "topic/orders", 1)
		for _, kind := range []string{"book", "bill"} {
			if n := len(r.jobs(errand.JobFilter{Kind: kind, Tag: storage.MessageTag("m")})); n != 1 {
				t.Errorf("full is %s: %d deliveries of kind %s", full, n, kind)
			}
		}
	}
}

// The error of PublishMany names the message, also where it is about a delivery.
func TestTopics_PublishMany_errors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	r := rigAt(t, path, quiet())
	r.create(topic.Topic{Name: "orders"})
	r.subscribe(topic.Subscription{ID: "a", Topic: "orders", Kind: "book", Queue: "other", Raw: true, Filter: json.RawMessage(`{"to": ["a"]}`)})
	small, toA := topic.Message{Body: []byte(`"x"`)}, topic.Message{Body: []byte(`"x"`), Attributes: map[string]filter.Attribute{"to": {Type: "String", Value: "a"}}}
	many := make([]topic.Message, 300)
	for i := range many {
		many[i].Body = textOf(256<<10 - 2)
	}
	refuse := func(errand.HandlerFunc) errand.HandlerFunc {
		return func(context.Context, *errand.Job[errand.RawArgs]) error { return errors.New("no") }
	}
	field := func(name string, job int) errand.Options {
		return errand.Options{Middleware: []errand.Middleware{func(errand.HandlerFunc) errand.HandlerFunc {
			return func(context.Context, *errand.Job[errand.RawArgs]) error {
				return &errand.FieldError{Field: name, Value: "ada", Limit: "must be known", Job: job}
			}
		}}}
	}
	for name, c := range map[string]struct {
		options  errand.Options
		messages []topic.Message
		want     string
	}{
		// What an error is about does not hang on its text.
		"middleware about a field": {field("tenant", 0), []topic.Message{small, toA}, `messages[1]: subscription "a": errand: tenant "ada": must be known`},
		"middleware about its own": {field("publications[0].message.id", 0), []topic.Message{small, toA}, `messages[1]: subscription "a": errand: publications[0].message.id "ada": must be known`},
		"about jobs of its own":    {field("jobs[0].queue", 1), []topic.Message{small, toA}, `messages[1]: subscription "a": errand: jobs[0].queue "ada": must be known`},
		"about many of its own":    {field("jobs[4].queue", 5), []topic.Message{small, toA}, `messages[1]: subscription "a": errand: jobs[4].queue "ada": must be known`},
		"too large":                {errand.Options{}, many, `errand: messages "78643200 bytes of messages": must be at most 67108864 in one call`},
		"not listed":               {errand.Options{Strict: true, Queues: map[string]errand.QueueOptions{"default": {}}}, []topic.Message{small, toA}, `messages[1]: subscription "a": errand: queue "topic/orders": must be listed`},
		"middleware":               {errand.Options{Middleware: []errand.Middleware{refuse}}, []topic.Message{small, toA}, `messages[1]: subscription "a": no`},
	} {
		r := rigWith(t, path, quiet(), c.options)
		if _, err := r.topics.PublishMany(t.Context(), "orders", c.messages); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
		if err := r.q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// In an ordered topic a delivery cannot come later than those after it, so a full queue
// refuses the message.
func TestTopics_Publish_fullInOrder(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders", Ordered: true})
	r.subscribe(topic.Subscription{ID: "a", Topic: "orders", Kind: "book", Queue: "small"})
	r.fill("small")
	if _, err := r.topics.Publish(t.Context(), "orders", topic.Message{Body: []byte("x"), Group: "g"}); !errors.Is(err, errand.ErrQueueFull) {
		t.Errorf("a full queue: %v", err)
	}
}
