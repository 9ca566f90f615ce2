package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
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

// The provider's answer decides what becomes of the email.
func TestSend(t *testing.T) {
	q := errandtest.New(t, nil)
	for status, want := range map[int]errand.EventType{200: errand.EventDone, 404: errand.EventDead, 503: errand.EventRetried} {
		m, _ := provider(t, status)
		a := errandtest.Perform(t, q, m.send, SendEmail{To: "ada@example.org"}, nil)
		if a.Event.Type != want {
			t.Errorf("status %d: the attempt ended as %s with %v, want %s", status, a.Event.Type, a.Err, want)
		}
	}
}

// The provider is down for two attempts, and the email is sent by the third.
func TestWorker(t *testing.T) {
	q := errandtest.New(t, nil)
	m, keys := provider(t, 503, 503, 200)
	e, err := q.Enqueue(t.Context(), SendEmail{To: "ada@example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := errandtest.Drain(t, q, newWorker(q, m), &errandtest.DrainOptions{Scheduled: true})
	if want := (errandtest.Counts{Attempts: 3, Retried: 2, Done: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for range 3 {
		if key := <-keys; key != e.ID.String() {
			t.Errorf("the provider was told the key %q, want the ID of the job, %v", key, e.ID)
		}
	}
}

// The process dies when the provider has the email. The next one sends it again, under the
// same key.
func TestWorker_crash(t *testing.T) {
	q := errandtest.New(t, nil)
	var next *errand.Queue
	var keys []string
	m := &mailer{url: "http://provider/", client: &http.Client{Transport: transport(func(r *http.Request) *http.Response {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) == 1 {
			next = errandtest.Crash(t, q)
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
	})}}
	if _, err := q.Enqueue(t.Context(), SendEmail{To: "ada@example.org"}, nil); err != nil {
		t.Fatal(err)
	}
	errandtest.Drain(t, q, newWorker(q, m), nil)
	got := errandtest.Drain(t, next, newWorker(next, m), &errandtest.DrainOptions{Scheduled: true})
	if got.Crashed != 1 || got.Done != 1 || keys[0] != keys[1] {
		t.Errorf("%+v, and the keys %v: want a crash, and an email that is sent again", got, keys)
	}
}

// transport is a provider without a network, which a bubble does not wait for.
type transport func(*http.Request) *http.Response

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// The provider is down for two hours, and the default policy bridges that. In a
// bubble this takes no time.
func TestWorker_outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := errandtest.New(t, nil)
		up := time.Now().Add(2 * time.Hour)
		m := &mailer{url: "http://provider/", client: &http.Client{Transport: transport(func(*http.Request) *http.Response {
			if time.Now().Before(up) {
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		})}}
		if _, err := q.Enqueue(t.Context(), SendEmail{To: "ada@example.org"}, nil); err != nil {
			t.Fatal(err)
		}
		got := errandtest.Drain(t, q, newWorker(q, m), &errandtest.DrainOptions{Scheduled: true})
		if late := time.Since(up); got.Done != 1 || late < 0 || late > time.Hour {
			t.Errorf("%+v, %v after the provider was up again", got, late)
		}
	})
}

func TestRoutes(t *testing.T) {
	q := errandtest.New(t, nil)
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
	if jobs := errandtest.RequireEnqueued[SendEmail](t, q); len(jobs) != 1 || jobs[0].Args.To != "ada@example.org" {
		t.Errorf("%d jobs, want one to Ada", len(jobs))
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
