package topic_test

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// echo is a receiver that repeats the request in its error.
type echo struct{}

func (echo) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	return &http.Response{
		StatusCode: http.StatusBadRequest, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader("cannot read " + string(body))),
	}, err
}

func rigTo(t *testing.T, o *webhook.Options) *rig {
	t.Helper()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	hooks, err := webhook.New(q, o)
	if err != nil {
		t.Fatal(err)
	}
	topics, err := topic.New(q, hooks, &topic.Options{ConfirmURL: "https://me.example/sns"})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, q, hooks, topics, nil}
}

// A token that a receiver repeats is in no error of a job.
func TestTopics_SNS_tokenRepeated(t *testing.T) {
	r := rigTo(t, &webhook.Options{Transport: echo{}})
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("ada")
	s := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "ada", SNS: true})
	wait := r.events("topic.confirm", errand.EventDead)
	stop := r.start(nil, webhook.Queues)
	wait(1)
	stop()
	all := r.jobs(errand.JobFilter{Tag: topic.Tag(s.ID)})
	if len(all) != 1 || !strings.Contains(all[0].Error, `"Token":"..."`) || strings.Contains(all[0].Error, s.ID+".") {
		t.Errorf("jobs: %+v", all)
	}
}

func TestTopics_EffectivePolicy_webhooks(t *testing.T) {
	r := rigTo(t, &webhook.Options{Policy: policy.Document{
		Request: &policy.Request{ContentType: "text/plain"}, Throttle: &policy.Throttle{MaxReceivesPerSecond: 7},
	}})
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("ada")
	s := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "ada"})
	e, err := r.topics.EffectivePolicy(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if e.Document.Request == nil || e.Document.Throttle == nil || e.Document.Request.ContentType != "text/plain" || e.Request != "webhooks" || e.Throttle != "webhooks" {
		t.Errorf("effective: %+v", e)
	}
}
