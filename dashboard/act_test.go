package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/internal/kit"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// answer is what a browser gets for a form.
type answer struct {
	status int
	to     string // where it is sent
	text   string
}

// post sends a form, and returns the status and the page.
func post(h http.Handler, path string, form url.Values, with ...func(*http.Request)) (int, string) {
	a := send(h, form, append([]func(*http.Request){func(r *http.Request) { r.URL.Path = path }}, with...)...)
	return a.status, a.text
}

// send sends a form as a browser does from a page of the same origin.
func send(h http.Handler, form url.Values, with ...func(*http.Request)) answer {
	r := httptest.NewRequest("POST", "/x/act", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range with {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header().Get("Location"), w.Body.String()}
}

var (
	typedForm = regexp.MustCompile(`(?s)<form method="post"[^>]* class="typed">(.*?)</form>`)
	typedOne  = regexp.MustCompile(`(?s)<input[^>]* name="([^"]*)" value="([^"]*)"|<textarea[^>]* name="([^"]*)"[^>]*>\n?(.*?)</textarea>`)
)

// formOf returns the fields of the form of a page, nil if it has none.
func formOf(page string) (f url.Values) {
	m := typedForm.FindStringSubmatch(page)
	if m == nil {
		return nil
	}
	f = url.Values{}
	for _, m := range typedOne.FindAllStringSubmatch(m[1], -1) {
		f.Add(html.UnescapeString(m[1]+m[3]), html.UnescapeString(m[2]+m[4]))
	}
	return f
}

// asks returns the form of the page that asks back, which has to say want.
func asks(t *testing.T, h http.Handler, form url.Values, want ...string) url.Values {
	t.Helper()
	a := send(h, form)
	f := formOf(a.text)
	if a.status != 200 || f.Get("key") == "" {
		t.Fatalf("%v: nothing is asked: %d %s", form, a.status, a.text)
	}
	says(t, a.text, want...)
	return f
}

// says checks what a page says, whatever its markup.
func says(t *testing.T, page string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(html.UnescapeString(page), w) {
			t.Errorf("without %q: %s", w, page)
		}
	}
}

// confirm sends the answer to a question, and returns the page with the outcome, which has to say
// want.
func confirm(t *testing.T, h http.Handler, form url.Values, want ...string) string {
	t.Helper()
	a := send(h, form)
	if a.status != 303 || !strings.Contains(a.to, "done="+form.Get("key")) {
		t.Fatalf("not done: %d %q %s", a.status, a.to, a.text)
	}
	status, text := get(h, "/x/"+a.to)
	if status != 200 {
		t.Fatalf("no outcome: %d %s", status, text)
	}
	says(t, text, want...)
	return text
}

// who is who acts.
func who(name string, role dashboard.Role) func(*http.Request) (dashboard.Identity, error) {
	return func(*http.Request) (dashboard.Identity, error) {
		return dashboard.Identity{Name: name, Role: role}, nil
	}
}

func admin(q *errand.Queue) http.Handler {
	return dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: who("ann", dashboard.Admin)})
}

func add(t *testing.T, q *errand.Queue, args errand.Args, o *errand.JobOptions) errand.ID {
	t.Helper()
	e, err := q.Enqueue(t.Context(), args, o)
	if err != nil {
		t.Fatal(err)
	}
	return e.ID
}

func state(t *testing.T, q *errand.Queue, id errand.ID) errand.State {
	t.Helper()
	info, err := q.Job(t.Context(), id)
	if errors.Is(err, errand.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.State
}

// fillAll fills a queue with what each action needs.
func fillAll(t *testing.T, q *errand.Queue) (dead errand.ID) {
	t.Helper()
	dead = fill(t, q)
	h, err := webhook.New(q, &webhook.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if _, _, err := h.Create(t.Context(), webhook.Endpoint{ID: "billing", URL: "https://example.com/hook"}, webhook.Secret{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Send(t.Context(), webhook.Message{Type: "paid", Body: []byte(`{"n":1}`)}, "billing"); err != nil {
		t.Fatal(err)
	}
	topics, err := topic.New(q, h, &topic.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topics.Create(t.Context(), topic.Topic{Name: "orders", Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := topics.Subscribe(t.Context(), topic.Subscription{ID: "local", Topic: "orders", Kind: "order"}); err != nil {
		t.Fatal(err)
	}
	if _, err := topics.Publish(t.Context(), "orders", topic.Message{Body: []byte(`{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
	addDevice(t, q, "pump-17")
	addStream(t, q, "pump-17", 1, true)
	return dead
}

// one returns the first job in a state.
func one(t *testing.T, q *errand.Queue, s errand.State) errand.ID {
	t.Helper()
	page, err := q.Jobs(t.Context(), errand.JobFilter{States: []errand.State{s}, Queue: "default"}, nil)
	if err != nil || len(page.Jobs) == 0 {
		t.Fatalf("no job is %s, %v", s, err)
	}
	return page.Jobs[0].ID
}

// All actions ask first, are done once, say what has come of it, and are told with who did it.
func TestAct(t *testing.T) {
	forID := func(do string, s errand.State) func(*testing.T, *errand.Queue) url.Values {
		return func(t *testing.T, q *errand.Queue) url.Values {
			t.Helper()
			return url.Values{"do": {do}, "id": {one(t, q, s).String()}}
		}
	}
	form := func(pairs ...string) func(*testing.T, *errand.Queue) url.Values {
		f := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			f.Add(pairs[i], pairs[i+1])
		}
		return func(*testing.T, *errand.Queue) url.Values { return f }
	}
	for name, c := range map[string]struct {
		form       func(*testing.T, *errand.Queue) url.Values
		ask, told  string
		do         string
		job, bulk  bool // the action names one
		n          int64
		afterwards func(*testing.T, *errand.Queue) string
	}{
		"redrive one": {form: forID("redrive", errand.Dead), ask: "letter in default, dead)?", told: "The job was made ready again.", do: "redrive", job: true, n: 1},
		"run one":     {form: forID("run", errand.Scheduled), ask: "whatever holds its queue", told: "The job was put first", do: "run", job: true, n: 1},
		"cancel one":  {form: forID("cancel", errand.Scheduled), ask: "scheduled)?", told: "The job was cancelled.", do: "cancel", job: true, n: 1},
		"delete one":  {form: forID("delete", errand.Done), ask: "done)?", told: "The job was deleted.", do: "delete", job: true, n: 1},
		"redrive all": {form: form("do", "redrive", "state", "dead", "rate", "10"), ask: "1 dead job?", told: "A bulk job was started for 1 dead job, at most 10 a second.", do: "redrive", bulk: true, n: 1, afterwards: func(t *testing.T, q *errand.Queue) string {
			t.Helper()
			all, err := q.Bulks(t.Context())
			if err != nil || len(all) != 1 || all[0].By != "ann" || all[0].Rate != 10 {
				return fmt.Sprintf("%+v, %v", all, err)
			}
			return ""
		}},
		"run all":    {form: form("do", "run", "state", "scheduled"), ask: "Run 1 scheduled job now?", told: "A bulk job was started", do: "run", bulk: true, n: 1},
		"cancel all": {form: form("do", "cancel"), ask: "4 jobs of all queues?", told: "A bulk job was started for 4 jobs of all queues. No worker ran", do: "cancel", bulk: true, n: 4},
		"delete all": {form: form("do", "delete", "kind", "letter"), ask: "2 jobs of kind letter?", told: "A bulk job was started", do: "delete", bulk: true, n: 2},
		"change all": {form: form("do", "change", "form", "1", "of-state", "scheduled", "priority", "7"), ask: "1 scheduled job: priority 7?", told: "A bulk job was started", do: "change", bulk: true, n: 1},
		"change one": {form: func(t *testing.T, q *errand.Queue) url.Values {
			t.Helper()
			return url.Values{"do": {"change"}, "form": {"1"}, "of-id": {one(t, q, errand.Scheduled).String()}, "priority": {"7"}}
		}, ask: "scheduled): priority 7?", told: "The job was changed: priority 7.", do: "change", job: true, n: 1},
		"enqueue": {form: form("do", "enqueue", "kind", "letter", "args", `{"to":"you"}`), ask: "a job of kind letter in queue default?", told: "is enqueued.", do: "enqueue", job: true, n: 1},
		"hold": {form: form("do", "hold", "queue", "mail"), ask: "Hold mail?", told: "Held: mail, for the reason held.", do: "hold", afterwards: func(t *testing.T, q *errand.Queue) string {
			t.Helper()
			all, err := q.Holds(t.Context())
			if err != nil || len(all) != 2 || all[1].By != "ann" {
				return fmt.Sprintf("%+v, %v", all, err)
			}
			return ""
		}},
		"release":      {form: form("do", "release", "queue", "default"), ask: "The reason of the hold is held, since", told: "Released: default.", do: "release"},
		"pause bulks":  {form: form("do", "hold", "queue", "errand.bulk", "reason", "paused"), ask: "all bulk jobs?", told: "Held: all bulk jobs, for the reason paused.", do: "hold"},
		"skip":         {form: form("do", "skip", "queue", "default", "group", "g <b>"), ask: "the head of group g <b> in default", told: "The group goes on without", do: "skip", job: true, n: 1},
		"endpoint":     {form: form("do", "replay", "endpoint", "billing"), ask: "the messages of endpoint billing again?", told: "Sent again: 1 message.", do: "replay", n: 1},
		"subscription": {form: form("do", "replay", "subscription", "local", "since", "2h"), ask: "the messages of subscription local again?", told: "Sent again: 1 message.", do: "replay", n: 1},
		"pause":        {form: form("do", "pause", "name", "night"), ask: "the schedule night (0 3 * * * UTC, letter)?", told: "The schedule night is paused.", do: "pause"},
		"fire":         {form: form("do", "fire", "name", "night"), ask: "the schedule night", told: "is enqueued.", do: "fire", job: true, n: 1},
		"stop": {form: func(t *testing.T, q *errand.Queue) url.Values {
			t.Helper()
			b, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}})
			if err != nil {
				t.Fatal(err)
			}
			return url.Values{"do": {"stop"}, "id": {b.ID.String()}}
		}, ask: "(redrive, 0 jobs changed so far)?", told: "The job was cancelled.", do: "stop", job: true},
	} {
		t.Run(name, func(t *testing.T) {
			q := open(t)
			fillAll(t, q)
			var log strings.Builder
			var told []dashboard.Action
			h := dashboard.Handler(q, &dashboard.Options{Auth: who("ann", dashboard.Admin), Logger: slog.New(slog.NewTextHandler(&log, nil)), OnAction: func(a dashboard.Action) { told = append(told, a) }})
			f := asks(t, h, c.form(t, q), c.ask)
			if len(told) > 0 || log.Len() > 0 {
				t.Fatalf("done before it was confirmed: %+v %s", told, &log)
			}
			confirm(t, h, f, c.told)
			if len(told) != 1 {
				t.Fatalf("told: %+v", told)
			}
			if a := told[0]; a.By != "ann" || a.Role != dashboard.Admin || a.Do != c.do || a.What == "" || a.At.IsZero() || a.N != c.n || a.Job.IsZero() == c.job || a.Bulk.IsZero() == c.bulk || a.Err != nil {
				t.Errorf("told: %+v", a)
			}
			for _, want := range []string{"by=ann", "role=admin", "do=" + c.do, "what=", "outcome="} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("logged without %s: %s", want, &log)
				}
			}
			if c.afterwards != nil {
				if fault := c.afterwards(t, q); fault != "" {
					t.Error(fault)
				}
			}
		})
	}
}

// A form that is sent twice is done once, also at the same time, and both answers lead to the
// outcome of the first. To load the outcome again does nothing.
func TestAct_once(t *testing.T) {
	q := open(t)
	fill(t, q)
	h := admin(q)
	f := asks(t, h, url.Values{"do": {"redrive"}, "state": {"dead"}})
	var to [4]string
	var all sync.WaitGroup
	for i := range to {
		all.Go(func() { to[i] = send(h, f).to })
	}
	all.Wait()
	for i := range to {
		if to[i] != to[0] || !strings.Contains(to[i], "done="+f.Get("key")) {
			t.Errorf("%d: %q, others %q", i, to[i], to[0])
		}
	}
	for range 2 {
		if status, text := get(h, "/x/"+to[0]); status != 200 || !strings.Contains(text, "A bulk job was started for 1 dead job.") {
			t.Errorf("%d %s", status, text)
		}
	}
	if bulks, err := q.Bulks(t.Context()); err != nil || len(bulks) != 1 {
		t.Errorf("%d bulk jobs, %v", len(bulks), err)
	}
}

// A question is answered by the one who was asked, about what was asked. Others are asked anew.
func TestAct_key(t *testing.T) {
	q := open(t)
	fill(t, q)
	name := "ann"
	h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: func(*http.Request) (dashboard.Identity, error) {
		return dashboard.Identity{Name: name, Role: dashboard.Admin}, nil
	}})
	release := url.Values{"do": {"release"}, "queue": {"default"}}
	f := asks(t, h, release)
	for what, with := range map[string]func(f url.Values){
		"another one":   func(url.Values) { name = "bob" },
		"another thing": func(f url.Values) { f.Set("do", "pause"); f.Set("name", "night") },
		"a wrong key":   func(f url.Values) { f.Set("key", "x") },
	} {
		name = "ann"
		other := url.Values{}
		for field, v := range f {
			other[field] = slices.Clone(v)
		}
		with(other)
		if a := send(h, other); a.status != 200 || !strings.Contains(a.text, "You were asked too long ago, or about something else") || formOf(a.text).Get("key") == f.Get("key") {
			t.Errorf("%s: %d %s", what, a.status, a.text)
		}
	}
	name = "ann"
	if s, err := q.Schedules().Get(t.Context(), "night"); err != nil || s.Paused {
		t.Errorf("%+v, %v", s, err)
	}
	confirm(t, h, f, "Released: default.")
	name = "bob"
	if status, text := get(h, "/x/lanes?done="+f.Get("key")); status != 200 || strings.Contains(text, "Released:") {
		t.Errorf("the outcome of another one: %d %s", status, text)
	}
}

// What has changed since somebody was asked is said, and nothing is done before that is confirmed.
func TestAct_changed(t *testing.T) {
	q := open(t)
	dead := fill(t, q)
	h := admin(q)
	scheduled := one(t, q, errand.Scheduled)
	change := func(c errand.JobChange) {
		t.Helper()
		if r, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{scheduled}}, c); err != nil || r.Changed != 1 {
			t.Fatal(r, err)
		}
	}

	f := asks(t, h, url.Values{"do": {"cancel"}, "id": {scheduled.String()}})
	change(errand.JobChange{Args: letter{"new address", "x"}, Queue: "mail"})
	f = asks(t, h, f, "What has changed meanwhile", "<td class=\"text\" data-label=\"Was\">default</td><td class=\"text\" data-label=\"Is\">mail</td>", `"to": "new address"`)
	if s := state(t, q, scheduled); s != errand.Scheduled {
		t.Errorf("the job is %s", s)
	}
	if err := q.Hold(t.Context(), errand.Lane{Queue: "mail"}, nil); err != nil {
		t.Fatal(err)
	}
	change(errand.JobChange{Delay: 0, DueAt: time.Now().Add(-time.Hour)})
	f = asks(t, h, f, "What has changed meanwhile", ">due<", ">scheduled<", ">ready<")
	confirm(t, h, f, "The job was cancelled.")

	redrive := asks(t, h, url.Values{"do": {"redrive"}, "id": {dead.String()}})
	if _, err := q.Delete(t.Context(), errand.JobFilter{IDs: []errand.ID{dead}}); err != nil {
		t.Fatal(err)
	}
	says(t, send(h, redrive).text, "There is no job "+dead.String())

	released := asks(t, h, url.Values{"do": {"release"}, "queue": {"default"}})
	if err := q.Hold(t.Context(), errand.Lane{Queue: "default"}, &errand.HoldOptions{By: "bob"}); err != nil {
		t.Fatal(err)
	}
	released = asks(t, h, released, "What has changed meanwhile", ">bob<")
	if _, err := q.Release(t.Context(), errand.Lane{Queue: "default"}, ""); err != nil {
		t.Fatal(err)
	}
	says(t, send(h, released).text, "There is no such hold any more", "Nothing was done.")

	held := asks(t, h, url.Values{"do": {"hold"}, "queue": {"default"}})
	if err := q.Hold(t.Context(), errand.Lane{Queue: "default"}, &errand.HoldOptions{By: "bob"}); err != nil {
		t.Fatal(err)
	}
	asks(t, h, held, "What has changed meanwhile", ">bob<", "takes the place of that")

	fire := asks(t, h, url.Values{"do": {"fire"}, "name": {"night"}})
	if err := q.Schedule(t.Context(), errand.Schedule{Name: "night", Spec: "0 4 * * *", Args: letter{"x", "other"}}); err != nil {
		t.Fatal(err)
	}
	fire = asks(t, h, fire, ">0 3 * * *<", ">0 4 * * *<", ">args<")
	if err := q.Schedules().Remove(t.Context(), "night"); err != nil {
		t.Fatal(err)
	}
	says(t, send(h, fire).text, "There is no schedule night any more.")
}

// A job that has died after it was asked whether dead ones are to be redriven stays dead.
func TestAct_diedLater(t *testing.T) {
	q := open(t)
	h := admin(q)
	ids := make([]errand.ID, 11)
	for i := range ids {
		ids[i] = add(t, q, letter{}, nil)
		die(t, q, "")
	}
	f := asks(t, h, url.Values{"do": {"redrive"}, "state": {"dead"}}, "Redrive 11 dead jobs?")
	if _, err := q.Delete(t.Context(), errand.JobFilter{IDs: ids[:1]}); err != nil {
		t.Fatal(err)
	}
	late := add(t, q, letter{}, nil)
	die(t, q, "")
	confirm(t, h, f, "A bulk job was started for 11 dead jobs")
	bulks, err := q.Bulks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	serve(t, q, bulks[0].ID)
	if is, others := state(t, q, late), state(t, q, ids[1]); is != errand.Dead || others != errand.Ready {
		t.Errorf("the late one is %s, the others are %s", is, others)
	}
}

// slow is a store that finds no jobs by their errors, however long it is asked.
type slow struct{ storage.Store }

// Only the head that was confirmed is skipped.
func TestAct_skip(t *testing.T) {
	q := open(t)
	fill(t, q)
	h := admin(q)
	form := url.Values{"do": {"skip"}, "queue": {"default"}, "group": {"g <b>"}}
	f := asks(t, h, form)
	head := one(t, q, errand.Dead)
	if id, err := q.SkipHead(t.Context(), "default", "g <b>"); err != nil || id != head {
		t.Fatal(id, err)
	}
	says(t, send(h, f).text, "No dead job keeps group g <b> in default back.")
	// The next in the group dies too.
	second := die(t, q, "g <b>")
	add(t, q, letter{"third", ""}, &errand.JobOptions{Group: "g <b>"})
	f = asks(t, h, f, "What has changed meanwhile", ">"+head.String()+"<", ">"+second.String()+"<")
	// Somebody skips it after it was confirmed, and the next one dies.
	late := dashboard.Handler(q, &dashboard.Options{Auth: who("ann", dashboard.Admin), Logger: quiet, Writer: func(context.Context) (*errand.Queue, error) {
		if id, err := q.SkipHead(t.Context(), "default", "g <b>"); err != nil || id != second {
			t.Error(id, err)
		}
		die(t, q, "g <b>")
		add(t, q, letter{"fourth", ""}, &errand.JobOptions{Group: "g <b>"})
		return q, nil
	}})
	confirm(t, late, asks(t, late, form, second.String()), "Nothing was done.", "The head of the group is another job now")
	third := one(t, q, errand.Dead)
	says(t, send(h, f).text, ">"+second.String()+"<", ">"+third.String()+"<")
	confirm(t, h, asks(t, h, form), "The group goes on without "+third.String())
}

// die has the first job of a group die.
func die(t *testing.T, q *errand.Queue, group string) errand.ID {
	t.Helper()
	if _, err := q.Release(t.Context(), errand.Lane{Queue: "default"}, ""); err != nil {
		t.Fatal(err)
	}
	var id errand.ID
	var over atomic.Bool
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet, Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[letter]) error {
		if job.Group != group {
			return errand.Snooze(time.Hour, nil)
		}
		id = job.ID
		over.Store(true)
		return errand.Permanent(errors.New("too"))
	})
	kit.WorkUntil(q, w, func() bool { // another job may have ended meanwhile: what a stop cuts off does not die
		if !over.Load() {
			return false
		}
		j, err := q.Job(t.Context(), id)
		return err != nil || j.State == errand.Dead
	})
	return id
}

// allActions are the forms of all actions, with the least role that may do them.
var allActions = map[string]struct {
	role dashboard.Role
	form url.Values
}{
	"redrive":       {dashboard.Operator, url.Values{"state": {"dead"}}},
	"run":           {dashboard.Operator, url.Values{"state": {"scheduled"}}},
	"cancel":        {dashboard.Operator, url.Values{"queue": {"default"}}},
	"delete":        {dashboard.Admin, url.Values{"state": {"done"}}},
	"change":        {dashboard.Operator, url.Values{"form": {"1"}, "of-state": {"scheduled"}, "priority": {"1"}}},
	"enqueue":       {dashboard.Admin, url.Values{"kind": {"letter"}, "args": {"{}"}}},
	"hold":          {dashboard.Operator, url.Values{"queue": {"mail"}}},
	"release":       {dashboard.Operator, url.Values{"queue": {"default"}}},
	"skip":          {dashboard.Operator, url.Values{"queue": {"default"}, "group": {"g <b>"}}},
	"redrive-heads": {dashboard.Operator, url.Values{"queue": {"default"}}},
	"skip-heads":    {dashboard.Operator, url.Values{"queue": {"default"}}},
	"replay":        {dashboard.Operator, url.Values{"endpoint": {"billing"}}},
	"pause":         {dashboard.Operator, url.Values{"name": {"night"}}},
	"resume":        {dashboard.Operator, url.Values{"name": {"night"}}},
	"fire":          {dashboard.Operator, url.Values{"name": {"night"}}},
	"stop":          {dashboard.Operator, url.Values{"id": {"01a217bb-5cbb-711c-a5f6-0000000f4a5c"}}},
	"enable":        {dashboard.Operator, url.Values{"endpoint": {"billing"}}},

	"pause-subscription":  {dashboard.Operator, url.Values{"subscription": {"local"}}},
	"resume-subscription": {dashboard.Operator, url.Values{"subscription": {"local"}}},

	"accept": {dashboard.Operator, url.Values{"device": {"pump-17"}}},
	"revoke": {dashboard.Admin, url.Values{"device": {"pump-17"}}},
}

// Who is asked about the jobs of a cause sees what it is, and what a redrive does. A cause that is
// not there is not spoken of as if it were.
func TestAct_cause(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	all, err := q.DeadLetters().Causes(t.Context(), nil)
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	c := strconv.FormatInt(all[0].ID, 10)
	asks(t, admin(q), url.Values{"do": {"redrive"}, "state": {"dead"}, "cause": {c}}, "Cause "+c+" is: <script>", "has all its retries anew")
	_, text := get(admin(q), "/jobs?state=dead&cause="+c)
	says(t, text, "Dead letters of cause "+c+": <bdi><script>")
	_, text = get(admin(q), "/jobs?cause=99999")
	says(t, text, "No job is dead of a cause 99999.")
	if strings.Contains(text, "Dead letters of cause") {
		t.Error(text)
	}
}

// The audit says to nobody by what text of an error jobs were chosen, which is for the role admin.
func TestAudit_errorFilter(t *testing.T) {
	q := open(t)
	h := admin(q)
	add(t, q, letter{"x", ""}, &errand.JobOptions{Group: "g"})
	j, err := q.Job(t.Context(), die(t, q, "g"))
	if err != nil || j.Error == "" {
		t.Fatal(j.Error, err)
	}
	confirm(t, h, asks(t, h, url.Values{"do": {"redrive"}, "state": {"dead"}, "error": {j.Error[:1]}}))
	all, err := q.Audit(t.Context())
	if err != nil || len(all) != 1 || !strings.Contains(all[0].What, "whose error contains “…”") || strings.Count(all[0].What, "…") != 1 {
		t.Error(all, err)
	}
}
