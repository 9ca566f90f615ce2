package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// askedAgain sends the answer to a question of which something has changed meanwhile, and returns the
// form of the question that comes in its place.
func askedAgain(t *testing.T, h http.Handler, form url.Values, want ...string) url.Values {
	t.Helper()
	return asks(t, h, form, append(want, "so nothing was done")...)
}

// meanwhile is a handler in which another does something between a question and what is done.
func meanwhile(q *errand.Queue, other func(), told func(dashboard.Action)) http.Handler {
	return dashboard.Handler(q, &dashboard.Options{
		Auth: who("ann", dashboard.Admin), Logger: quiet, OnAction: told,
		Writer: func(context.Context) (*errand.Queue, error) { other(); return q, nil },
	})
}

// A release is asked about again if many more jobs would start than were said, and not for a few: jobs
// come while a queue is held.
func TestMeanwhile_releaseOfMore(t *testing.T) {
	q := open(t)
	h := admin(q)
	enqueue := func(n int) {
		t.Helper()
		for range n {
			add(t, q, letter{}, nil)
		}
	}
	enqueue(1)
	if err := q.Hold(t.Context(), errand.Lane{Queue: "default"}, nil); err != nil {
		t.Fatal(err)
	}
	f := asks(t, h, url.Values{"do": {"release"}, "queue": {"default"}}, ">Release 1 job<")
	enqueue(11)
	f = askedAgain(t, h, f, "You were asked about 1.", ">Release 12 jobs<")
	enqueue(12)
	confirm(t, h, f, "Released: default.")
}

// The answer to a question about a hold is for the hold that was asked about.
func TestMeanwhile_hold(t *testing.T) {
	hold := func(o errand.HoldOptions) func(*testing.T, *errand.Queue) {
		return func(t *testing.T, q *errand.Queue) {
			t.Helper()
			o.By = "bob"
			if err := q.Hold(t.Context(), errand.Lane{Queue: "crm"}, &o); err != nil {
				t.Fatal(err)
			}
		}
	}
	release := func(t *testing.T, q *errand.Queue) {
		t.Helper()
		if was, err := q.Release(t.Context(), errand.Lane{Queue: "crm"}, ""); err != nil || !was {
			t.Fatal(was, err)
		}
	}
	none := func(*testing.T, *errand.Queue) {}
	for name, c := range map[string]struct {
		do          string
		first, then func(*testing.T, *errand.Queue)
		want        []string
	}{
		"a release, another note": {"release", hold(errand.HoldOptions{Detail: "moved"}), hold(errand.HoldOptions{Detail: "DO NOT RELEASE"}),
			[]string{`<td class="main">note</td><td class="text" data-label="Was">moved</td><td class="text" data-label="Is">DO NOT RELEASE</td>`}},
		"a release, another end": {"release", hold(errand.HoldOptions{}), hold(errand.HoldOptions{For: time.Hour}),
			[]string{`<td class="main">held until</td><td class="text" data-label="Was">none</td>`}},
		"a hold in place of another note": {"hold", hold(errand.HoldOptions{Detail: "moved"}), hold(errand.HoldOptions{Detail: "restore runs"}),
			[]string{`<td class="text" data-label="Is">restore runs</td>`}},
		"a hold in place of none":            {"hold", none, hold(errand.HoldOptions{}), []string{`<td class="main">held by</td><td class="text" data-label="Was">none</td><td class="text" data-label="Is">bob</td>`}},
		"a hold in place of a released hold": {"hold", hold(errand.HoldOptions{}), release, []string{`<td class="main">held by</td><td class="text" data-label="Was">bob</td><td class="text" data-label="Is">none</td>`}},
	} {
		t.Run(name, func(t *testing.T) {
			q := open(t)
			h := admin(q)
			c.first(t, q)
			f := asks(t, h, url.Values{"do": {c.do}, "queue": {"crm"}})
			c.then(t, q)
			f = asks(t, h, f, append(c.want, "What has changed meanwhile")...)
			confirm(t, h, f)
		})
	}
}

// The jobs that a question about several shows have the args that it shows, and the dead heads of a
// queue are those that it shows.
func TestMeanwhile_several(t *testing.T) {
	q := open(t)
	h := admin(q)
	one, two := add(t, q, letter{To: "ada"}, nil), add(t, q, letter{To: "bob"}, nil)
	for _, form := range []url.Values{{"do": {"cancel"}, "id": {one.String(), two.String()}}, {"do": {"cancel"}, "queue": {"default"}}} {
		f := asks(t, h, form)
		if r, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{two}}, errand.JobChange{Args: letter{To: form.Get("id") + "eve"}}); err != nil || r.Changed != 1 {
			t.Fatal(r, err)
		}
		f = asks(t, h, f, "What has changed meanwhile", "args of "+two.String())
		if a := send(h, f); a.status != 303 {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	heads := open(t)
	h = admin(heads)
	for _, do := range []string{"skip-heads", "redrive-heads"} {
		group := do
		add(t, heads, letter{}, &errand.JobOptions{Group: group})
		first := die(t, heads, group)
		add(t, heads, letter{}, &errand.JobOptions{Group: group})
		f := asks(t, h, url.Values{"do": {do}, "queue": {"default"}}, first.String())
		if _, err := heads.SkipHead(t.Context(), "default", group); err != nil {
			t.Fatal(err)
		}
		die(t, heads, group)
		add(t, heads, letter{}, &errand.JobOptions{Group: group})
		asks(t, h, f, "What has changed meanwhile")
		if _, err := heads.SkipHead(t.Context(), "default", group); err != nil {
			t.Fatal(err)
		}
	}
}

// A job that another has redriven while somebody changes and redrives it is left as it is, and so is
// one that has gone on between a question and a redrive.
func TestMeanwhile_redriven(t *testing.T) {
	q := open(t)
	add(t, q, letter{}, &errand.JobOptions{Group: "g"})
	id := die(t, q, "g")
	var told []dashboard.Action
	h := meanwhile(q, func() {
		if r, err := q.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, nil); err != nil || r.Redriven != 1 {
			t.Error(r, err)
		}
	}, func(a dashboard.Action) { told = append(told, a) })
	f := page(t, h, "/x/change?then=redrive&id="+id.String())
	f.Set("priority", "7")
	f.Set("args", `{"to":"eve"}`)
	confirm(t, h, f, "Change: not done", "the job is ready by now")
	info, err := q.Job(t.Context(), id)
	if err != nil || info.State != errand.Ready || info.Priority != 0 || strings.Contains(string(info.Args), "eve") {
		t.Errorf("%+v, %v: was changed", info, err)
	}
	if len(told) != 1 || told[0].Err == nil {
		t.Errorf("told: %+v", told)
	}
}

// The log and OnAction say to what something was done, without a note or an error about it, which may
// hold a secret.
func TestMeanwhile_noSecretInTheLog(t *testing.T) {
	q := open(t)
	var log bytes.Buffer
	var told []dashboard.Action
	h := dashboard.Handler(q, &dashboard.Options{
		Auth: who("ann", dashboard.Admin), Logger: slog.New(slog.NewJSONHandler(&log, nil)), OnAction: func(a dashboard.Action) { told = append(told, a) },
	})
	o := &errand.HoldOptions{By: "bob", Detail: "(GET https://x.example/?api_key=S3CRET)"}
	if err := q.Hold(t.Context(), errand.Lane{Queue: "crm"}, o); err != nil {
		t.Fatal(err)
	}
	f := asks(t, h, url.Values{"do": {"release"}, "queue": {"crm"}}, "S3CRET") // an admin sees it
	confirm(t, h, f, "Released: crm.")
	said, err := json.Marshal(told)
	if err != nil || len(told) != 1 || !strings.HasPrefix(told[0].What, "crm, which bob held since ") || strings.Contains(string(said)+log.String(), "S3CRET") {
		t.Errorf("%s, %v, %s", said, err, log.String())
	}
}

// A note is whole on the page of its queue and where it is asked about.
func TestMeanwhile_longNote(t *testing.T) {
	q := open(t)
	h := admin(q)
	add(t, q, letter{}, &errand.JobOptions{Queue: "crm"})
	long := strings.Repeat("n", 996) + " end"
	confirm(t, h, asks(t, h, url.Values{"do": {"hold"}, "queue": {"crm"}, "note": {long}}), "Held: crm")
	for _, path := range []string{"/", "/lane?queue=crm"} {
		_, text := get(h, path)
		says(t, text, long)
	}
	asks(t, h, url.Values{"do": {"release"}, "queue": {"crm"}}, "("+long+")")
}
