package webhook_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/webhook"
)

// logging returns webhooks of the same queue that log to the buffer.
func (r *rig) logging(to *bytes.Buffer, o webhook.Options) *webhook.Webhooks {
	r.Helper()
	o.Transport, o.Logger = r.world, slog.New(slog.NewTextHandler(to, nil))
	h, err := webhook.New(r.q, &o)
	if err != nil {
		r.Fatal(err)
	}
	return h
}

// The same again writes nothing; what is not the same is written, and named in the log, which shows
// no value.
func TestDeclare(t *testing.T) {
	var logged bytes.Buffer
	r := newRig(t, webhook.Options{})
	h := r.logging(&logged, webhook.Options{})
	var revision int64
	for i, c := range []struct {
		e      webhook.Endpoint
		fields string // that change; empty: none
	}{
		{e: webhook.Endpoint{URL: "https://a.example/in?key=token-1"}},
		{e: webhook.Endpoint{URL: "https://a.example/in?key=token-1", Revision: 77, State: webhook.Held, Headers: map[string]string{}, EventTypes: []string{}}},
		{webhook.Endpoint{URL: "https://a.example/im?key=token-1"}, "[url]"},
		{webhook.Endpoint{URL: "https://a.example/in", Headers: map[string]string{"X-Token": "token-2"}, Policy: &policy.Document{Retry: &noDelay}}, `"[headers policy url]"`},
		{e: webhook.Endpoint{URL: "https://a.example/in", Headers: map[string]string{"X-Token": "token-2"}, Policy: &policy.Document{Retry: &noDelay}}},
		{webhook.Endpoint{URL: "https://a.example/in", Description: "x", EventTypes: []string{"a"}}, `"[description event_types headers policy]"`},
	} {
		logged.Reset()
		c.e.ID = "a"
		got, _, err := h.Declare(t.Context(), c.e, webhook.Secret{})
		if err != nil {
			t.Fatal(err)
		}
		line := logged.String()
		switch changed := i == 0 || c.fields != ""; {
		case changed && got.Revision <= revision, !changed && got.Revision != revision:
			t.Errorf("%d: revision %d after %d", i, got.Revision, revision)
		case i == 0 && !strings.Contains(line, `level=INFO msg="errand: an endpoint is added because the program declares it" endpoint=a`):
			t.Errorf("the log of the first one: %q", line)
		case i > 0 && c.fields == "" && line != "", c.fields != "" && (!strings.Contains(line, "level=INFO") || !strings.Contains(line, "endpoint=a fields="+c.fields)):
			t.Errorf("%d: the log has %q, want %q", i, line, c.fields)
		case strings.Contains(line, "token"), got.URL != c.e.URL:
			t.Errorf("%d: %+v, the log has %q", i, got, line)
		}
		revision = got.Revision
	}
	for _, c := range []struct {
		e      webhook.Endpoint
		fields []string
	}{
		{webhook.Endpoint{URL: "https://a.example"}, []string{"id"}},
		{webhook.Endpoint{ID: "a", URL: "ftp://a.example"}, []string{"url"}},
	} {
		_, _, err := h.Declare(t.Context(), c.e, webhook.Secret{})
		refuses(t, err, c.fields...)
	}
}

// The state of an endpoint that is declared stays, and its secret after the first.
func TestDeclare_stays(t *testing.T) {
	var logged bytes.Buffer
	r := newRig(t, webhook.Options{})
	h := r.logging(&logged, webhook.Options{})
	e := webhook.Endpoint{ID: "a", URL: "https://a.example/in"}
	first, other := webhook.NewSecret(), webhook.NewSecret()
	is := func(given, want webhook.Secret, line string) {
		t.Helper()
		logged.Reset()
		_, got, err := h.Declare(t.Context(), e, given)
		if err != nil || got.Reveal() != want.Reveal() {
			t.Errorf("the secret is %q, %v", got.Reveal(), err)
		}
		if text := logged.String(); line == "" && text != "" || !strings.Contains(text, line) || strings.Contains(text, given.Reveal()) && !given.IsZero() {
			t.Errorf("the log has %q, want %q", text, line)
		}
	}
	is(first, first, "errand: an endpoint is added because the program declares it")
	is(webhook.Secret{}, first, "")
	is(other, first, "errand: an endpoint keeps its secrets, though another is declared")
	if err := h.Disable(t.Context(), "a", "by a person"); err != nil {
		t.Fatal(err)
	}
	next, err := h.RotateSecret(t.Context(), "a", webhook.Secret{}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	is(first, next, "") // it signs too
	e.URL = "https://b.example/in"
	is(webhook.Secret{}, next, "fields=[url]")
	if got, err := h.Endpoint(t.Context(), "a"); err != nil || got.State != webhook.Disabled || got.Reason != "by a person" {
		t.Errorf("the endpoint is %+v, %v", got, err)
	}

	// With Options.Secrets there is none; without it such an endpoint gets its first.
	elsewhere := r.logging(&logged, webhook.Options{Secrets: func(context.Context, string) ([]webhook.Secret, error) { return []webhook.Secret{other}, nil }})
	e.ID = "b"
	for range 2 {
		if _, got, err := elsewhere.Declare(t.Context(), e, webhook.Secret{}); err != nil || !got.IsZero() {
			t.Errorf("%v, %v", got, err)
		}
	}
	_, _, err = elsewhere.Declare(t.Context(), e, first)
	refuses(t, err, "secret")
	is(first, first, "")
	is(other, first, "keeps its secrets")
}

// Of many who declare an endpoint at the same time none hears of the others.
func TestDeclare_atOnce(t *testing.T) {
	r := newRig(t, webhook.Options{})
	secrets := make([]webhook.Secret, 16)
	var wg sync.WaitGroup
	for i := range secrets {
		wg.Go(func() {
			var err error
			_, secrets[i], err = r.hooks.Declare(t.Context(), webhook.Endpoint{ID: "a", URL: "https://a.example", Description: strings.Repeat("x", i%4)}, webhook.Secret{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range secrets {
		if s.Reveal() != secrets[0].Reveal() {
			t.Error("callers have several secrets")
		}
	}
}
