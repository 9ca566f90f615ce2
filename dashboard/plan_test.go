package dashboard_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// What nothing matches is said without a word about how it was before.
func TestPlan_none(t *testing.T) {
	h := admin(open(t))
	for want, form := range map[string]url.Values{
		"No job of all queues can be cancelled.": {"do": {"cancel"}},
		"No job in queue mail can be redriven.":  {"do": {"redrive"}, "queue": {"mail"}},
	} {
		if a := send(h, form); a.status != 200 || strings.Contains(a.text, "any more") {
			t.Errorf("%d %s", a.status, a.text)
		} else {
			says(t, a.text, want)
		}
	}
}

// A hold that the library refuses is not asked about: what is wrong is said at once, and the file
// is not opened for writing.
func TestPlan_hold(t *testing.T) {
	q := open(t)
	h := dashboard.Handler(q, &dashboard.Options{
		Auth: who("ann", dashboard.Admin), Logger: quiet, OnAction: func(a dashboard.Action) { t.Errorf("told: %+v", a) },
		Writer: func(context.Context) (*errand.Queue, error) { return nil, errors.New("opened for writing") },
	})
	for want, form := range map[string]url.Values{
		`lane.queue "m*": must match`:                         {"queue": {"m*"}},
		`lane.kind "a b": must match`:                         {"kind": {"a b"}},
		`reason "BAD reason!": must match`:                    {"queue": {"mail"}, "reason": {"BAD reason!"}},
		`reason "brake": must not be unavailable or brake`:    {"queue": {"mail"}, "reason": {"brake"}},
		`detail "` + strings.Repeat("n", 100):                 {"queue": {"mail"}, "note": {strings.Repeat("n", 1001)}},
		`for "soon": must be a time above zero, as 30m or 2h`: {"queue": {"mail"}, "for": {"soon"}},
	} {
		form.Set("do", "hold")
		a := send(h, form)
		if a.status != 400 {
			t.Errorf("%v: %d %s", form, a.status, a.text)
		}
		says(t, a.text, want)
		if typed := form.Get("reason"); typed != "" && formOf(a.text).Get("reason") != typed {
			t.Errorf("%v: the form that comes back has %v", form, formOf(a.text))
		}
	}
	if holds, err := q.Holds(t.Context()); err != nil || len(holds) > 0 {
		t.Errorf("%+v, %v", holds, err)
	}
	if a := send(h, url.Values{"do": {"hold"}, "queue": {"mail"}}); a.status != 200 || formOf(a.text).Get("key") == "" {
		t.Errorf("a hold that may be: %d %s", a.status, a.text)
	}
}
