package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// provider answers each email with the next of its statuses, the last one again
// and again. The keys of what it was sent are in the channel.
func provider(t *testing.T, statuses ...int) (*mailer, chan string) {
	t.Helper()
	keys := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(statuses[0])
		if len(statuses) > 1 {
			statuses = statuses[1:]
		}
		keys <- r.Header.Get("Idempotency-Key")
	}))
	t.Cleanup(s.Close)
	return &mailer{url: s.URL, client: s.Client()}, keys
}

// A handler is a function: it needs no queue to be tested.
func TestSend(t *testing.T) {
	for status, want := range map[int]policy.Class{404: policy.Permanent, 429: policy.Throttled, 503: policy.Retryable} {
		m, _ := provider(t, status)
		err := m.send(t.Context(), &errand.Job[SendEmail]{Args: SendEmail{To: "ada@example.org"}})
		if got := policy.Classify(err); err == nil || got != want {
			t.Errorf("status %d: %v, which is %v: want %v", status, err, got, want)
		}
	}
}

// atOnce retries three times without a delay.
var atOnce = policy.Policy{Retries: 3, NoDelayRetries: 3}

// testQueue opens a queue with a policy, or with the default one if it is nil.
func testQueue(t *testing.T, p policy.Delivery) *errand.Queue {
	t.Helper()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{
		SQLite: errand.SQLiteOptions{Durability: errand.Relaxed}, // quicker: nobody cuts the power of a test
		Policy: p,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// work starts the worker, and returns what stops it: that waits until all
// outcomes are written.
func work(t *testing.T, w *errand.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The provider is down for two attempts, and the email is sent by the third.
func TestWorker(t *testing.T) {
	q := testQueue(t, atOnce)
	m, keys := provider(t, 503, 503, 200)
	stop := work(t, newWorker(q, m))
	e, err := q.Enqueue(t.Context(), SendEmail{To: "ada@example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if key := <-keys; key != e.ID.String() {
			t.Errorf("the provider was told the key %q, want the ID of the job, %v", key, e.ID)
		}
	}
	stop()
	j, err := q.Job(t.Context(), e.ID)
	if err != nil || j.State != errand.Done || j.Attempt != 3 {
		t.Errorf("the job is %s after %d attempts, %v: want done after 3", j.State, j.Attempt, err)
	}
}

// transport is a provider without a network, which a bubble does not wait for.
type transport func(*http.Request) *http.Response

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// The provider is down for two hours, and the default policy bridges that. In a
// bubble this takes no time.
func TestWorker_outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, sent := time.Now().Add(2*time.Hour), make(chan time.Time, 1)
		m := &mailer{url: "http://provider/", client: &http.Client{Transport: transport(func(*http.Request) *http.Response {
			if time.Now().Before(up) {
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}
			}
			sent <- time.Now()
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		})}}
		q := testQueue(t, nil)
		stop := work(t, newWorker(q, m))
		if _, err := q.Enqueue(t.Context(), SendEmail{To: "ada@example.org"}, nil); err != nil {
			t.Fatal(err)
		}
		if late := (<-sent).Sub(up); late < 0 || late > time.Hour {
			t.Errorf("sent %v after the provider was up again", late)
		}
		stop()
	})
}

func TestRoutes(t *testing.T) {
	q := testQueue(t, atOnce)
	post := func(key, body string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/emails", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		routes(q).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const email = `{"to": "ada@example.org"}`
	if code, body := post("17", email); code != http.StatusAccepted || !strings.Contains(body, `{"id":"`) || strings.Contains(body, `duplicate`) {
		t.Errorf("the first post: %d %s", code, body)
	}
	if code, body := post("17", email); code != http.StatusAccepted || !strings.Contains(body, `"duplicate":true`) {
		t.Errorf("the same again: %d %s", code, body)
	}
	for _, c := range [][2]string{{"", `{`}, {strings.Repeat("k", 2000), email}} {
		if code, body := post(c[0], c[1]); code != http.StatusBadRequest {
			t.Errorf("what is wrong with the request: %d %s", code, body)
		}
	}
	if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{MaxJobs: new(1)}); err != nil {
		t.Fatal(err)
	}
	if code, body := post("18", email); code != http.StatusServiceUnavailable {
		t.Errorf("the queue is full: %d %s", code, body)
	}
	health := func(code int, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		routes(q).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/healthz", nil))
		if w.Code != code || !strings.Contains(w.Body.String(), body) {
			t.Errorf("health: %d %s, want %d %s", w.Code, w.Body, code, body)
		}
	}
	health(http.StatusOK, `"ready":true`)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	health(http.StatusServiceUnavailable, `"ready":false`)
}
