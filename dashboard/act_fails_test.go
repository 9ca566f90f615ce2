package dashboard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// If the queue is closed, full, damaged or busy, the page says so, and what was done.
func TestAct_fails(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"damaged": {fmt.Errorf("%w: page 7", errand.ErrCorrupt), []string{"The file is damaged.", "errand doctor", "Nothing was done."}},
		"full":    {errand.ErrFull, []string{"The disk is full.", "Make room", "Nothing was done."}},
		"unknown": {errand.ErrUnknownOutcome, []string{"Whether it was written is not known", "Whether it was done is not known."}},
		"other":   {errors.New("gremlins"), []string{"the queue cannot be opened for writing: gremlins", "Nothing was done."}},
	} {
		t.Run(name, func(t *testing.T) {
			q := open(t)
			fill(t, q)
			var told dashboard.Action
			h := dashboard.Handler(q, &dashboard.Options{
				Auth: who("ann", dashboard.Admin), Logger: quiet, OnAction: func(a dashboard.Action) { told = a },
				Writer: func(context.Context) (*errand.Queue, error) { return nil, c.err },
			})
			confirm(t, h, asks(t, h, url.Values{"do": {"release"}, "queue": {"default"}}), c.want...)
			if !errors.Is(told.Err, c.err) {
				t.Errorf("told: %+v", told)
			}
		})
	}
	t.Run("closed", func(t *testing.T) {
		q := open(t)
		fill(t, q)
		h := admin(q)
		form := url.Values{"do": {"release"}, "queue": {"default"}}
		f := asks(t, h, form)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		for _, f := range []url.Values{f, form} {
			if a := send(h, f); a.status != 503 || !strings.Contains(a.text, "The queue is closed.") {
				t.Errorf("%d %s", a.status, a.text)
			}
		}
	})
	t.Run("cap", func(t *testing.T) {
		q := open(t)
		h := admin(q)
		f := asks(t, h, url.Values{"do": {"enqueue"}, "kind": {"mail"}, "args": {"{}"}})
		if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{MaxJobs: new(1)}); err != nil {
			t.Fatal(err)
		}
		add(t, q, mail{"a"}, nil)
		confirm(t, h, f, "Nothing was done.", "full", "set another cap")
	})
	t.Run("busy", func(t *testing.T) {
		q := open(t)
		fill(t, q)
		h := admin(q)
		f := asks(t, h, url.Values{"do": {"release"}, "queue": {"default"}})
		var text string
		if err := q.Tx(t.Context(), func(*sql.Tx) error {
			text = confirm(t, h, f, "Nothing was done.", "Another program holds the file.")
			return nil
		}); err != nil {
			t.Fatal(err, text)
		}
	})
}

// What is wrong with what was typed on the page that asks is said there, and nothing is done.
func TestAct_inputs(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	h := admin(q)
	for name, c := range map[string]struct {
		form         url.Values
		field, value string
		want         string
	}{
		"rate":   {url.Values{"do": {"redrive"}, "state": {"dead"}}, "rate", "fast", `rate "fast": must be a whole number from 0 to 100,000`},
		"for":    {url.Values{"do": {"hold"}, "queue": {"mail"}}, "for", "-1h", `for "-1h": must be a time above zero`},
		"reason": {url.Values{"do": {"hold"}, "queue": {"mail"}}, "reason", "a b", `reason "a b": must match`},
		"brake":  {url.Values{"do": {"hold"}, "queue": {"mail"}}, "reason", "brake", "must not be unavailable or brake"},
		"since":  {url.Values{"do": {"replay"}, "endpoint": {"billing"}}, "since", "tomorrow", `since "tomorrow": must be how long ago`},
	} {
		f := asks(t, h, c.form)
		f.Set(c.field, c.value)
		before := everything(t, q)
		a := send(h, f)
		if again := formOf(a.text); a.status != 400 || again.Get(c.field) != c.value || again.Get("key") == f.Get("key") || again.Get("key") == "" {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
		says(t, a.text, c.want)
		if after := everything(t, q); after != before {
			t.Errorf("%s has done something: %s", name, after)
		}
	}
}

// Names that turn the direction of text do not turn what a page says.
func TestAct_text(t *testing.T) {
	q := open(t)
	fill(t, q)
	a := send(admin(q), url.Values{"do": {"release"}, "queue": {"default"}})
	if strings.Contains(a.text, "\u202e") || !strings.Contains(a.text, `\u202e`) {
		t.Errorf("%q", a.text)
	}
}

// A panic of OnAction is logged, and the action is done all the same.
func TestAct_panic(t *testing.T) {
	q := open(t)
	fill(t, q)
	var log strings.Builder
	h := dashboard.Handler(q, &dashboard.Options{
		Auth: who("ann", dashboard.Admin), Logger: slog.New(slog.NewTextHandler(&log, nil)), OnAction: func(dashboard.Action) { panic("oh") },
	})
	confirm(t, h, asks(t, h, url.Values{"do": {"release"}, "queue": {"default"}}), "Released: default.")
	if !strings.Contains(log.String(), "OnAction") || !strings.Contains(log.String(), "panic=oh") {
		t.Errorf("logged: %s", &log)
	}
}
