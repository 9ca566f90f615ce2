package topic_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// openTopics opens a queue with webhooks to receivers on the same machine, and topics.
func openTopics(o *topic.Options) (*errand.Queue, *webhook.Webhooks, *topic.Topics, func()) {
	dir := must(os.MkdirTemp("", "topics"))
	quiet := slog.New(slog.DiscardHandler)
	q := must(errand.Open(context.Background(), filepath.Join(dir, "shop.db"), &errand.Options{Logger: quiet}))
	webhooks := must(webhook.New(q, &webhook.Options{
		AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Logger: quiet,
	}))
	return q, webhooks, must(topic.New(q, webhooks, o)), func() {
		webhooks.Close()
		check(q.Close())
		check(os.RemoveAll(dir))
	}
}

// book is what the application does for each order.
type book struct {
	MessageID string `json:"messageId"`
	Message   string `json:"message"`
}

func (book) Kind() string { return "book" }

// A message goes to a receiver over HTTP, and becomes a job of this program.
func Example() {
	ctx := context.Background()
	q, webhooks, topics, done := openTopics(nil)
	defer done()

	received := make(chan string)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- string(must(io.ReadAll(r.Body)))
	}))
	defer receiver.Close()
	must2(webhooks.Declare(ctx, webhook.Endpoint{ID: "shop", URL: receiver.URL}, webhook.Secret{}))

	must(topics.Declare(ctx, topic.Topic{Name: "orders"}))
	must(topics.Subscribe(ctx, topic.Subscription{
		Topic: "orders", Endpoint: "shop", Raw: true,
		Filter: json.RawMessage(`{"total": [{"numeric": [">=", 100]}]}`),
	}))
	must(topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Kind: "book"}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{topic.Queues, webhook.Queues, "default"}})
	topics.Handle(w)
	errand.Handle(w, func(_ context.Context, job *errand.Job[book]) error {
		received <- "booked " + job.Args.Message
		return nil
	})
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	for _, total := range []string{"20", "170"} {
		published := must(topics.Publish(ctx, "orders", topic.Message{
			Attributes: map[string]filter.Attribute{"total": {Type: filter.Number, Value: total}},
			Body:       []byte(`{"total": ` + total + `}`),
		}))
		fmt.Println("deliveries:", len(published.Subscriptions))
		for range published.Jobs {
			fmt.Println(<-received)
		}
	}
	stop()
	check(<-ended)
	// Unordered output:
	// deliveries: 1
	// booked {"total": 20}
	// deliveries: 2
	// booked {"total": 170}
	// {"total": 170}
}

func must2[A, B any](a A, b B, err error) (A, B) {
	check(err)
	return a, b
}

// A program says at each start what it needs. What is the same is left as it is, and what has
// changed is named in the log.
func ExampleTopics_Declare() {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	_, _, topics, done := openTopics(&topic.Options{Logger: log})
	defer done()
	for _, keep := range []time.Duration{72 * time.Hour, 72 * time.Hour, 27 * time.Hour} {
		p := must(topics.Declare(ctx, topic.Topic{Name: "orders", Keep: keep}))
		fmt.Println(p.Name, "keeps messages for", p.Keep)
	}
	// Output:
	// level=INFO msg="errand: a topic is added because the program declares it" topic=orders
	// orders keeps messages for 72h0m0s
	// orders keeps messages for 72h0m0s
	// level=INFO msg="errand: a topic is changed to what the program declares" topic=orders fields=[keep]
	// orders keeps messages for 27h0m0s
}

// Support asks what a customer was sent.
func ExampleTopics_Delivery() {
	ctx := context.Background()
	q, webhooks, topics, done := openTopics(nil)
	defer done()
	must2(webhooks.Declare(ctx, webhook.Endpoint{ID: "ada", URL: "http://127.0.0.1/in"}, webhook.Secret{}))
	must(topics.Declare(ctx, topic.Topic{Name: "orders"}))
	must(topics.Subscribe(ctx, topic.Subscription{ID: "ada-orders", Topic: "orders", Endpoint: "ada"}))

	got := must(topics.Publish(ctx, "orders", topic.Message{ID: "m1", Body: []byte(`{"order": 17}`), Tags: []string{"tenant:ada"}}))
	page := must(q.Jobs(ctx, errand.JobFilter{Tag: "tenant:ada"}, nil))
	d := must(topics.Delivery(ctx, page.Jobs[0].ID))
	fmt.Printf("%s to %s: %s\n", d.Message.ID, d.Subscription, d.Message.Body)
	fmt.Println(page.Jobs[0].ID == got.Jobs[0].ID)
	// Output:
	// m1 to ada-orders: {"order": 17}
	// true
}

// A filter policy on the body.
func ExampleTopics_Subscribe() {
	ctx := context.Background()
	_, _, topics, done := openTopics(nil)
	defer done()
	must(topics.Create(ctx, topic.Topic{Name: "orders"}))
	must(topics.Subscribe(ctx, topic.Subscription{
		Topic: "orders", Kind: "book",
		Filter: json.RawMessage(`{"total": [{"numeric": [">=", 100]}]}`), FilterScope: filter.Body,
	}))
	for _, body := range []string{`{"total": 20}`, `{"total": 170}`} {
		published := must(topics.Publish(ctx, "orders", topic.Message{Body: []byte(body)}))
		fmt.Println("deliveries:", len(published.Subscriptions))
	}
	// Output:
	// deliveries: 0
	// deliveries: 1
}

// What the application writes and what it publishes are in one transaction.
func ExampleTopics_PublishTx() {
	ctx := context.Background()
	q, _, topics, done := openTopics(nil)
	defer done()
	must(topics.Create(ctx, topic.Topic{Name: "orders"}))
	must(topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Kind: "book"}))

	err := q.Tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`); err != nil {
			return err
		}
		if _, err := topics.PublishTx(ctx, tx, "orders", topic.Message{Body: []byte(`{"order": 17}`)}); err != nil {
			return err
		}
		return errors.New("the order is not valid")
	})
	fmt.Println(err)
	fmt.Println("jobs:", len(must(q.Jobs(ctx, errand.JobFilter{}, nil)).Jobs))
	// Output:
	// the order is not valid
	// jobs: 0
}

// A customer is added with an endpoint and a subscription, or not at all.
func ExampleTopics_SubscribeTx() {
	ctx := context.Background()
	q, webhooks, topics, done := openTopics(nil)
	defer done()
	must(topics.Create(ctx, topic.Topic{Name: "orders"}))

	add := func(customer, url string, then error) error {
		return q.Tx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS customers (name TEXT)`); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO customers VALUES (?1)`, customer); err != nil {
				return err
			}
			if _, _, err := webhooks.CreateTx(ctx, tx, webhook.Endpoint{ID: customer, URL: url}, webhook.Secret{}); err != nil {
				return err
			}
			if _, err := topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "orders", Endpoint: customer}); err != nil {
				return err
			}
			return then
		})
	}
	fmt.Println(add("ada", "https://ada.example/in", nil))
	fmt.Println(add("bob", "https://bob.example/in", errors.New("no credit")))
	for _, s := range must(topics.Subscriptions(ctx, "orders", "", 10)) {
		fmt.Println("subscribed:", s.Endpoint)
	}
	// Output:
	// <nil>
	// no credit
	// subscribed: ada
}

// An ordered topic delivers the messages of a group one after the other.
func ExampleTopic_ordered() {
	ctx := context.Background()
	q, _, topics, done := openTopics(nil)
	defer done()
	must(topics.Create(ctx, topic.Topic{Name: "stock", Ordered: true}))
	must(topics.Subscribe(ctx, topic.Subscription{Topic: "stock", Kind: "book"}))
	for _, id := range []string{"count-1", "count-2", "count-1"} {
		got := must(topics.Publish(ctx, "stock", topic.Message{Group: "screws", DedupID: id, Body: []byte(`{"screws": 1}`)}))
		if got.Duplicate {
			fmt.Println("duplicate")
			continue
		}
		fmt.Println(must(q.Job(ctx, got.Jobs[0].ID)).State)
	}
	// Output:
	// ready
	// blocked
	// duplicate
}

// A message whose ID its topic has already is a duplicate; an ID that another topic has is refused.
func ExampleTopics_Publish_id() {
	ctx := context.Background()
	_, _, topics, done := openTopics(nil)
	defer done()
	for _, name := range []string{"orders", "parcels"} {
		must(topics.Create(ctx, topic.Topic{Name: name, Keep: time.Hour}))
	}
	m := topic.Message{ID: "order-17", Body: []byte(`{"order": 17}`)}
	fmt.Println(must(topics.Publish(ctx, "orders", m)).Duplicate)
	fmt.Println(must(topics.Publish(ctx, "orders", m)).Duplicate)
	_, err := topics.Publish(ctx, "parcels", m)
	fmt.Println(errors.Is(err, errand.ErrMessageID), err)
	// Output:
	// false
	// true
	// true errand: id "order-17": must be another one: errand: a message of another topic has this ID
}

// A new subscription gets what was published before it.
func ExampleTopics_Replay() {
	ctx := context.Background()
	_, _, topics, done := openTopics(nil)
	defer done()
	must(topics.Create(ctx, topic.Topic{Name: "orders", Keep: 7 * 24 * time.Hour}))
	for range 3 {
		must(topics.Publish(ctx, "orders", topic.Message{Body: []byte(`{"order": 17}`)}))
	}
	s := must(topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Kind: "book"}))
	fmt.Println(topics.Replay(ctx, s.ID, time.Now().Add(-time.Hour)))
	// Output:
	// 3 <nil>
}

// A subscription that is paused gets messages, whose deliveries wait.
func ExampleTopics_Pause() {
	ctx := context.Background()
	_, webhooks, topics, done := openTopics(nil)
	defer done()
	must2(webhooks.Create(ctx, webhook.Endpoint{ID: "shop", URL: "https://shop.example/hook"}, webhook.Secret{}))
	must(topics.Create(ctx, topic.Topic{Name: "orders"}))
	s := must(topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Endpoint: "shop"}))

	check(topics.Pause(ctx, s.ID))
	got := must(topics.Publish(ctx, "orders", topic.Message{Body: []byte(`{"order": 17}`)}))
	fmt.Println(must(topics.Subscription(ctx, s.ID)).State, len(got.Jobs))
	fmt.Println(topics.Resume(ctx, s.ID))
	fmt.Println(must(topics.Subscription(ctx, s.ID)).State)
	// Output:
	// paused 1
	// true <nil>
	// confirmed
}

// Each section of the policy is that of the subscription, else of the topic, and so on.
func ExampleTopics_EffectivePolicy() {
	ctx := context.Background()
	_, webhooks, topics, done := openTopics(nil)
	defer done()
	must2(webhooks.Create(ctx, webhook.Endpoint{ID: "shop", URL: "https://shop.example/hook"}, webhook.Secret{}))
	of := must(policy.ParseTopic([]byte(`{"http": {
		"defaultHealthyRetryPolicy": {"numRetries": 50, "minDelayTarget": 1, "maxDelayTarget": 60},
		"defaultRequestPolicy": {"headerContentType": "application/json"}
	}}`), policy.ProfileSNS))
	must(topics.Create(ctx, topic.Topic{Name: "orders", Policy: &of}))
	own := must(policy.ParseDocument([]byte(`{"healthyRetryPolicy": {"numRetries": 5}}`), policy.ProfileSNS))
	s := must(topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Endpoint: "shop", Policy: &own}))

	e := must(topics.EffectivePolicy(ctx, s.ID))
	fmt.Println(e.Document.Retry.Retries, "retries of the", e.Retry)
	fmt.Println(e.Document.Request.ContentType, "of the", e.Request)
	// Output:
	// 5 retries of the subscription
	// application/json of the topic
}

// In SNS mode the receiver confirms the subscription first.
func ExampleTopics_ConfirmHandler() {
	ctx := context.Background()
	mux := http.NewServeMux()
	us := httptest.NewServer(mux)
	defer us.Close()
	q, webhooks, topics, done := openTopics(&topic.Options{ConfirmURL: us.URL + "/sns"})
	defer done()
	mux.Handle("/sns", topics.ConfirmHandler())

	received := make(chan string)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct{ SubscribeURL, Message, TopicArn string }
		check(json.NewDecoder(r.Body).Decode(&m))
		typ := r.Header.Get("x-amz-sns-message-type")
		if typ == "SubscriptionConfirmation" {
			resp, err := http.Get(m.SubscribeURL)
			check(err)
			check(resp.Body.Close())
			m.Message = "please confirm"
		}
		received <- fmt.Sprint(typ, " of ", m.TopicArn, ": ", m.Message)
	}))
	defer receiver.Close()
	must2(webhooks.Create(ctx, webhook.Endpoint{ID: "shop", URL: receiver.URL}, webhook.Secret{}))
	must(topics.Create(ctx, topic.Topic{Name: "orders"}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{topic.Queues, webhook.Queues}})
	topics.Handle(w)
	s := must(topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Endpoint: "shop", SNS: true}))
	fmt.Println(s.State)

	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run) }()
	fmt.Println(<-received)
	fmt.Println(must(topics.Subscription(ctx, s.ID)).State)
	must(topics.Publish(ctx, "orders", topic.Message{Body: []byte("order 17")}))
	fmt.Println(<-received)
	stop()
	check(<-ended)
	// Output:
	// pending
	// SubscriptionConfirmation of errand:topic:orders: please confirm
	// confirmed
	// Notification of errand:topic:orders: order 17
}
