package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/webhook"
)

// world answers the requests that are sent, and remembers them.
type world struct {
	mu       sync.Mutex
	answers  map[string]func(*http.Request) (int, error) // by host; nil: 200
	requests []sent
}

type sent struct {
	host, id, body string
	header         http.Header
}

// RoundTrip implements [http.RoundTripper].
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.requests = append(w.requests, sent{r.URL.Host, r.Header.Get(webhook.HeaderID), string(body), r.Header.Clone()})
	answer := w.answers[r.URL.Host]
	w.mu.Unlock()
	status := http.StatusOK
	if answer != nil {
		if status, err = answer(r); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("said " + fmt.Sprint(status))), Request: r}, nil
}

// answer sets how a host answers.
func (w *world) answer(host string, f func(*http.Request) (int, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answers == nil {
		w.answers = map[string]func(*http.Request) (int, error){}
	}
	w.answers[host] = f
}

// always answers with a status.
func always(status int) func(*http.Request) (int, error) {
	return func(*http.Request) (int, error) { return status, nil }
}

// to returns the requests to a host.
func (w *world) to(host string) (all []sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if r.host == host {
			all = append(all, r)
		}
	}
	return all
}

// rig is a queue with webhooks in a world.
type rig struct {
	*testing.T
	q     *errand.Queue
	hooks *webhook.Webhooks
	world *world
}

var noDelay = policy.Policy{Retries: 5, NoDelayRetries: 5}

func newRig(t *testing.T, o webhook.Options) *rig {
	t.Helper()
	// In a bubble it is the year 2000, in which deliveries wait for the right time.
	if begin := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC); time.Now().Year() == 2000 {
		time.Sleep(time.Until(begin))
	}
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "hooks.db"), &errand.Options{
		SQLite:    errand.SQLiteOptions{Durability: errand.Relaxed, SingleProcess: true},
		Logger:    slog.New(slog.DiscardHandler),
		Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{T: t, q: q, world: &world{}}
	r.hooks = r.again(o)
	return r
}

// again returns webhooks of the same queue and world, as another process has them.
func (r *rig) again(o webhook.Options) *webhook.Webhooks {
	r.Helper()
	o.Transport, o.Logger = r.world, slog.New(slog.DiscardHandler)
	if o.Policy == nil {
		o.Policy = noDelay
	}
	hooks, err := webhook.New(r.q, &o)
	if err != nil {
		r.Fatal(err)
	}
	return hooks
}

// endpoint creates an endpoint at https://ID.example/in.
func (r *rig) endpoint(id string, change ...func(*webhook.Endpoint)) webhook.Secret {
	r.Helper()
	e := webhook.Endpoint{ID: id, URL: "https://" + id + ".example/in"}
	for _, f := range change {
		f(&e)
	}
	_, secret, err := r.hooks.Create(r.Context(), e, webhook.Secret{})
	if err != nil {
		r.Fatal(err)
	}
	return secret
}

// send sends a message to endpoints, or, without any, to all that take its type.
func (r *rig) send(m webhook.Message, to ...string) webhook.Sent {
	r.Helper()
	send := func() (webhook.Sent, error) { return r.hooks.Send(r.Context(), m, to...) }
	if len(to) == 0 {
		send = func() (webhook.Sent, error) { return r.hooks.SendAll(r.Context(), m) }
	}
	s, err := send()
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// work runs a worker, which does one thing at a time, until stop is called.
func (r *rig) work() (stop func()) {
	r.Helper()
	w := errand.NewWorker(r.q, &errand.WorkerOptions{Queues: []string{webhook.Queues}, Concurrency: 1})
	r.hooks.Handle(w)
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		r.Helper()
		cancel()
		if err := <-done; err != nil {
			r.Error(err)
		}
	}
}

// job returns what is known of a delivery.
func (r *rig) job(id errand.ID) errand.JobInfo {
	r.Helper()
	j, err := r.q.Job(r.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	return j
}

// refuses checks that an error is a FieldError for each of some fields.
func refuses(t *testing.T, err error, fields ...string) {
	t.Helper()
	for _, field := range fields {
		found := false
		for _, e := range unjoined(err) {
			if f, ok := errors.AsType[*errand.FieldError](e); ok && f.Field == field {
				found = true
			}
		}
		if !found {
			t.Errorf("no fault of %s: %v", field, err)
		}
	}
}

// isField reports whether an error is a FieldError itself.
func isField(err error) bool {
	_, ok := err.(*errand.FieldError) //nolint:errorlint // the error itself
	return ok
}

func unjoined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok && !isField(err) {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, unjoined(e)...)
		}
		return all
	}
	return []error{err}
}
