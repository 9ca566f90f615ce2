package topic_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

var errUndo = errors.New("undo")

// customer adds the topic, the endpoint and the subscriptions of a customer, and publishes a message.
func (r *rig) customer(tx *sql.Tx, end error) error {
	ctx := r.t.Context()
	limit := &policy.Topic{Document: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 7}}}
	p, err := r.topics.CreateTx(ctx, tx, topic.Topic{Name: "ada", Policy: limit})
	if err != nil || p.Revision == 0 {
		return errors.Join(err, errors.New("CreateTx"))
	}
	if _, _, err := r.hooks.CreateTx(ctx, tx, webhook.Endpoint{ID: "shop", URL: "https://shop.example/in"}, webhook.Secret{}); err != nil {
		return err
	}
	s, err := r.topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "ada", Endpoint: "shop", OnDead: topic.Pass})
	if err != nil {
		return err
	}
	if _, err := r.topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "ada", Kind: "book"}); err != nil {
		return err
	}
	if again, err := r.topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "ada", Endpoint: "shop"}); err != nil || again.ID != s.ID {
		r.t.Errorf("once more: %+v, %v; want %s", again, err, s.ID)
	}
	if p, err = r.topics.DeclareTx(ctx, tx, topic.Topic{Name: "ada", Policy: limit, Keep: time.Hour}); err != nil || p.Keep != time.Hour || p.Subscriptions != 2 {
		r.t.Errorf("declared: %+v, %v", p, err)
	}
	got, err := r.topics.PublishTx(ctx, tx, "ada", topic.Message{ID: "welcome", Body: data.Body})
	if err != nil || len(got.Jobs) != 2 {
		r.t.Errorf("published: %+v, %v", got, err)
	}
	return errors.Join(err, end)
}

// What is made in a transaction is there once that commits, with all that belongs to it, and
// nothing of it is there if it does not.
func TestTopics_within(t *testing.T) {
	r := newRig(t, nil)
	ctx := t.Context()
	for _, end := range []error{errUndo, nil} {
		if err := r.q.Tx(ctx, func(tx *sql.Tx) error { return r.customer(tx, end) }); !errors.Is(err, end) {
			t.Fatal(err)
		}
		if end == nil {
			break
		}
		if _, err := r.topics.Topic(ctx, "ada"); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("the topic of a transaction that was rolled back: %v", err)
		}
		if _, err := r.topics.Publish(ctx, "ada", data); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("published to it: %v", err)
		}
		if all, err := r.q.Settings(ctx); err != nil || len(all) > 0 || len(r.jobs(errand.JobFilter{})) > 0 {
			t.Errorf("it has left %+v, %v", all, err)
		}
	}
	if p, err := r.topics.Topic(ctx, "ada"); err != nil || p.Subscriptions != 2 || p.Keep != time.Hour {
		t.Errorf("the topic: %+v, %v", p, err)
	}
	if n := len(r.jobs(errand.JobFilter{Tag: storage.MessageTag("welcome")})); n != 2 {
		t.Errorf("%d deliveries, want 2", n)
	}
	all, err := r.q.Settings(ctx)
	if err != nil || len(all) != 1 || all[0].Queue != "webhook/shop" || *all[0].Starts != 7 || *all[0].DeadHead != errand.PassDead {
		t.Errorf("the settings: %+v, %v", all, err)
	}
	if got := r.publish("ada", topic.Message{Body: data.Body}); len(got.Jobs) != 2 {
		t.Errorf("published after it: %+v", got)
	}
	// A change of the throttle reaches the endpoints with the transaction too.
	slow := &policy.Topic{Document: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 3}}}
	err = r.q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := r.topics.DeclareTx(ctx, tx, topic.Topic{Name: "ada", Policy: slow})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if all, err = r.q.Settings(ctx); err != nil || *all[0].Starts != 3 {
		t.Errorf("the settings: %+v, %v", all, err)
	}
}

// In SNS mode the confirmation is sent if the transaction commits.
func TestTopics_SubscribeTx_confirmation(t *testing.T) {
	r := newRig(t, &topic.Options{ConfirmURL: "https://me.example/sns"})
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	for n, end := range []error{errUndo, nil} {
		err := r.q.Tx(t.Context(), func(tx *sql.Tx) error {
			s, err := r.topics.SubscribeTx(t.Context(), tx, topic.Subscription{Topic: "orders", Endpoint: "shop", SNS: true})
			if err == nil && s.State != topic.Pending {
				t.Errorf("state %s", s.State)
			}
			return errors.Join(err, end)
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		if got := len(r.jobs(errand.JobFilter{Queue: "webhook/shop"})); got != n {
			t.Errorf("%d confirmations, want %d", got, n)
		}
	}
}

// A call that is refused leaves the transaction as it was.
func TestTopics_within_refused(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	ctx := t.Context()
	err := r.q.Tx(ctx, func(tx *sql.Tx) error {
		if _, err := r.topics.CreateTx(ctx, tx, topic.Topic{Name: "orders"}); !errors.Is(err, errand.ErrStale) {
			t.Errorf("a topic that is there: %v", err)
		}
		_, err := r.topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "orders", Endpoint: "none"})
		if !errors.Is(err, errand.ErrNotFound) || !strings.Contains(err.Error(), "endpoint") {
			t.Errorf("without its endpoint: %v", err)
		}
		if _, err = r.topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "none", Kind: "book"}); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("without its topic: %v", err)
		}
		if _, err = r.topics.PublishTx(ctx, tx, "none", data); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("published to none: %v", err)
		}
		_, err = r.topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "orders", Kind: "book"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := r.topics.Topic(ctx, "orders"); err != nil || p.Subscriptions != 1 {
		t.Errorf("the topic: %+v, %v", p, err)
	}
	for name, call := range map[string]func() error{
		"CreateTx":  func() error { _, err := r.topics.CreateTx(ctx, nil, topic.Topic{Name: "a"}); return err },
		"DeclareTx": func() error { _, err := r.topics.DeclareTx(ctx, nil, topic.Topic{Name: "a"}); return err },
		"SubscribeTx": func() error {
			_, err := r.topics.SubscribeTx(ctx, nil, topic.Subscription{Topic: "orders", Kind: "b"})
			return err
		},
	} {
		if f, ok := errors.AsType[*errand.FieldError](call()); !ok || f.Field != "tx" {
			t.Errorf("%s without a transaction: %v", name, call())
		}
	}
}

// parcel is a job of another program in the queue of an endpoint.
type parcel struct{}

// Kind names the type of job.
func (parcel) Kind() string { return "parcel" }

// What waits behind a dead delivery is let go by Subscribe, and not by a transaction.
func TestTopics_within_waiting(t *testing.T) {
	r := newRig(t, nil)
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	ctx := t.Context()
	dead := r.events("parcel", errand.EventDead)
	stop := r.start(func(w *errand.Worker) {
		errand.Handle(w, func(context.Context, *errand.Job[parcel]) error { return errand.Permanent(errUndo) })
	}, "webhook/shop")
	for range 2 {
		if _, err := r.q.Enqueue(ctx, parcel{}, &errand.JobOptions{Queue: "webhook/shop", Group: "g"}); err != nil {
			t.Fatal(err)
		}
	}
	dead(1)
	s := topic.Subscription{Topic: "orders", Endpoint: "shop", OnDead: topic.Pass}
	err := r.q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := r.topics.SubscribeTx(ctx, tx, s)
		return err
	})
	if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "on_dead" {
		t.Errorf("with a job that waits: %v", err)
	}
	r.subscribe(s)
	dead(1) // which waited
	stop()
}

// announced is a store that tells when entries are about to be written outside of a transaction.
type announced struct {
	*sqlite.Store
	writes chan struct{}
}

func (s *announced) PutEntries(ctx context.Context, now time.Time, entries []storage.Entry) (int64, error) {
	s.writes <- struct{}{}
	return s.Store.PutEntries(ctx, now, entries)
}

// Who subscribes outside of a transaction that is open waits for it, and neither waits for ever.
func TestTopics_SubscribeTx_beside(t *testing.T) {
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &announced{file, make(chan struct{}, 100)}
	q, err := errand.New(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	topics, err := topic.New(q, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := topics.Create(ctx, topic.Topic{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	<-store.writes
	beside := make(chan error, 1)
	err = q.Tx(ctx, func(tx *sql.Tx) error {
		if _, err := topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "orders", Kind: "first"}); err != nil {
			return err
		}
		go func() {
			_, err := topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Kind: "beside"})
			beside <- err
		}()
		<-store.writes // it has its turn among the callers of this process
		_, err := topics.SubscribeTx(ctx, tx, topic.Subscription{Topic: "orders", Kind: "second"})
		return err
	})
	if err := errors.Join(err, <-beside); err != nil {
		t.Fatal(err)
	}
	if p, err := topics.Topic(ctx, "orders"); err != nil || p.Subscriptions != 3 {
		t.Errorf("the topic: %+v, %v", p, err)
	}
}
