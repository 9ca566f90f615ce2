package dashboard_test

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/internal/kit"
)

// page returns the form of a page.
func page(t *testing.T, h http.Handler, path string) url.Values {
	t.Helper()
	status, text := get(h, path)
	f := formOf(text)
	if status != 200 || f == nil {
		t.Fatalf("%s: %d %s", path, status, text)
	}
	return f
}

// What is wrong in the form of a new job is said with field, value and limit, and what was typed
// stays.
func TestEnqueue(t *testing.T) {
	q := open(t)
	h := admin(q)
	f := page(t, h, "/x/enqueue?kind=mail")
	if f.Get("kind") != "mail" || f.Get("args") != "{}" {
		t.Errorf("the form has %v", f)
	}
	for field, c := range map[string]struct{ value, want string }{
		"kind":     {"a b", `kind "a b": must match`},
		"args":     {`{"to":` + hostile, ": must be JSON: invalid character '<'"},
		"priority": {"101", "priority 101: must be between -100 and 100"},
		"delay":    {"soon", `delay "soon": must be a time, as 30s or 2h`},
		"tags":     {"a b/c @", `tags[2] "@": must match`},
		"queue":    {"a?", `queue "a?": must match`},
		"group":    {strings.Repeat("g", 257), "must be at most 256 bytes"},
		"unique":   {strings.Repeat("u", 1025), "must be at most 1024 bytes"},
	} {
		typed := url.Values{}
		for name, v := range f {
			typed[name] = v
		}
		typed.Set(field, c.value)
		typed.Set("args", strings.ReplaceAll(typed.Get("args"), "{}", `{"to": "you"}`))
		a := send(h, typed)
		if q := formOf(a.text); a.status == 200 && q.Get("key") != "" { // only errand itself knows that it is wrong
			a = send(h, q)
		}
		kept := formOf(a.text)
		if a.status != 400 || kept.Get(field) != c.value || field != "args" && kept.Get("args") != `{"to": "you"}` || strings.Contains(a.text, "<script>alert") {
			t.Errorf("%s: %d %v %s", field, a.status, kept, a.text)
		}
		says(t, a.text, c.want, `aria-invalid="true"`)
	}
	if page, err := q.Jobs(t.Context(), errand.JobFilter{}, nil); err != nil || len(page.Jobs) > 0 {
		t.Errorf("%+v, %v", page.Jobs, err)
	}
	for name, v := range map[string]string{"args": `{"n": 12345678901234567890.10, "To": "you"}`, "queue": "out", "delay": "1h", "priority": "-5", "group": "g", "tags": "red blue", "unique": "k"} {
		f.Set(name, v)
	}
	ask := asks(t, h, f, "a job of kind mail in queue out?", "No running worker takes this kind from this queue")
	out := confirm(t, h, ask, "is enqueued.")
	job, err := q.Jobs(t.Context(), errand.JobFilter{Queue: "out"}, nil)
	if err != nil || len(job.Jobs) != 1 {
		t.Fatalf("%+v, %v", job, err)
	}
	info, err := q.Job(t.Context(), job.Jobs[0].ID)
	if err != nil || string(info.Args) != `{"n":12345678901234567890.10,"To":"you"}` || info.Priority != -5 || info.Group != "g" || strings.Join(info.Tags, " ") != "blue red" || info.Unique != "k" ||
		info.State != errand.Scheduled || !strings.Contains(out, "Job "+info.ID.String()+" is enqueued.") {
		t.Errorf("%+v, %v, %s", info, err, out)
	}
	confirm(t, h, asks(t, h, f), "Nothing was done.", "Job "+info.ID.String()+" holds the unique key.")
}

// fields are those of the form of a job, without what is hidden.
func fields(f url.Values) (names []string) {
	for _, name := range []string{"due", "delay", "priority", "queue", "policy", "args"} {
		if f.Has(name) {
			names = append(names, name)
		}
	}
	return names
}

// A job is changed by what was typed alone. An operator's form has no args, and those that are
// redacted are never written back.
func TestChange(t *testing.T) {
	q := open(t)
	fill(t, q)
	id := one(t, q, errand.Scheduled)
	path := "/x/change?id=" + id.String()
	operator := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: who("op", dashboard.Operator)})
	f := page(t, operator, path)
	if got := strings.Join(fields(f), " "); got != "due delay priority queue policy" {
		t.Errorf("the form of an operator has %s", got)
	}
	_, text := get(operator, path)
	if strings.Contains(text, "hunter2") || strings.Contains(text, "[hidden]") {
		t.Errorf("the form of an operator: %s", text)
	}
	if a := send(operator, f); a.status != 400 || !strings.Contains(a.text, "must differ from what is") {
		t.Errorf("nothing typed: %d %s", a.status, a.text)
	}
	forged := url.Values{"args": {`{"to":"[hidden]","password":"[hidden]"}`}}
	for name, v := range f {
		forged[name] = v
	}
	if a := send(operator, forged); a.status != 403 || !strings.Contains(a.text, "It takes the role admin") {
		t.Errorf("args of an operator: %d %s", a.status, a.text)
	}
	f = page(t, operator, path)
	f.Set("priority", "9")
	f.Set("policy", `{"healthyRetryPolicy":{"numRetries":3}}`)
	confirm(t, operator, f, "The job was changed: priority 9, new policy.")
	info, err := q.Job(t.Context(), id)
	if err != nil || info.Priority != 9 || info.Policy == nil || string(info.Args) != `{"to":"scheduled","password":"hunter2"}` || len(info.History) > 0 {
		t.Errorf("%+v, %v", info, err)
	}

	h := admin(q)
	f = page(t, h, path)
	if want := "{\n  \"to\": \"scheduled\",\n  \"password\": \"hunter2\"\n}"; f.Get("args") != want || !strings.Contains(f.Get("policy"), `"numRetries": 3`) || f.Get("priority") != "9" {
		t.Errorf("the form of an admin has %v", f)
	}
	// Somebody else changes args and priority meanwhile: that is said, and stays.
	if _, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, errand.JobChange{Args: letter{"elsewhere", "x"}, Priority: new(4)}); err != nil {
		t.Fatal(err)
	}
	f.Set("queue", "other")
	ask := asks(t, h, f, "What has changed meanwhile", `"to": "elsewhere"`, ">9<", ">4<", ": queue other?")
	confirm(t, h, ask, "The job was changed: queue other.")
	if info, err = q.Job(t.Context(), id); err != nil || info.Priority != 4 || string(info.Args) != `{"to":"elsewhere","password":"x"}` || info.Queue != "other" {
		t.Errorf("%+v, %v", info, err)
	}
	// Now the args.
	f = page(t, h, path)
	f.Set("args", strings.ReplaceAll(f.Get("args"), "elsewhere", "home"))
	f.Set("delay", "0s")
	confirm(t, h, f, "The job was changed: due in 0s, new args.")
	if info, err = q.Job(t.Context(), id); err != nil || string(info.Args) != `{"to":"home","password":"x"}` || info.State != errand.Ready || len(info.History) != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	for field, c := range map[string]struct{ value, want string }{
		"due":      {"tomorrow", "due \"tomorrow\": must be a time, as 2026-03-01T06:00:00Z"},
		"delay":    {"-1h", "delay -1h0m0s"},
		"priority": {"x", `priority "x": must be a number`},
		"queue":    {"a b", `queue "a b": must match`},
		"policy":   {`{"healthyRetryPolicy":{"numRetries":-1}}`, ": must be a policy: "},
		"args":     {"{", `args "{": must be JSON`},
	} {
		f := page(t, h, path)
		f.Set(field, c.value)
		a := send(h, f)
		if a.status != 400 || formOf(a.text).Get(field) != c.value {
			t.Errorf("%s: %d %s", field, a.status, a.text)
		}
		says(t, a.text, c.want)
	}
	if status, text := get(h, "/x/change?id="+one(t, q, errand.Done).String()); status != 409 || !strings.Contains(text, "The job is done.") {
		t.Errorf("of a job that is done: %d %s", status, text)
	}
	f = page(t, h, "/x/change?id="+one(t, q, errand.Dead).String())
	f.Set("delay", "1h")
	if a := send(h, f); a.status != 400 || !strings.Contains(a.text, "a dead job is due when it is redriven") {
		t.Errorf("of a dead job: %d %s", a.status, a.text)
	}
}

// All that match are changed by a bulk job: what selects them and what is typed may have the same
// name.
func TestChange_many(t *testing.T) {
	q := open(t)
	h := admin(q)
	add(t, q, mail{"a"}, &errand.JobOptions{Delay: time.Hour})
	add(t, q, mail{"b"}, &errand.JobOptions{Delay: time.Hour})
	add(t, q, mail{"c"}, &errand.JobOptions{Delay: time.Hour, Queue: "other"})
	a := send(h, url.Values{"do": {"change"}, "queue": {"default"}, "rate": {"50"}})
	f := formOf(a.text)
	if a.status != 200 || f.Get("of-queue") != "default" || f.Get("queue") != "" || f.Has("args") {
		t.Fatalf("%d %v %s", a.status, f, a.text)
	}
	f.Set("queue", "new")
	f.Set("policy", "{}")
	ask := asks(t, h, f, "2 jobs in queue default: queue new, new policy?", "New policy")
	confirm(t, h, ask, "A bulk job was started for 2 jobs in queue default: queue new, new policy, at most 50 a second.")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet, Queues: []string{"errand.bulk"}})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	bulks, err := q.Bulks(t.Context())
	if err != nil || len(bulks) != 1 {
		t.Fatalf("%+v, %v", bulks, err)
	}
	if _, err := errand.Await[any](t.Context(), q, bulks[0].ID); !errors.Is(err, errand.ErrNoResult) {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if page, err := q.Jobs(t.Context(), errand.JobFilter{Queue: "new"}, nil); err != nil || len(page.Jobs) != 2 {
		t.Errorf("%+v, %v", page.Jobs, err)
	}
}

// Args with all that JSON has come back from a form as they were.
func TestChange_args(t *testing.T) {
	q := open(t)
	h := admin(q)
	const args = `{"a":1.0e+400,"b":"</textarea><script>alert(1)</script>\u0000\ud800 & \"","c":[ ],"d":{ },"a":0,"":"\u2028 ` + "\u202e" + `"}`
	id := add(t, q, errand.RawArgs{OfKind: "raw", JSON: []byte(args)}, nil)
	f := page(t, h, "/x/change?id="+id.String())
	before, err := q.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	f.Set("args", strings.ReplaceAll(f.Get("args"), "\n", "\r\n")) // as browsers send it
	if a := send(h, f); a.status != 400 || !strings.Contains(a.text, "must differ from what is") {
		t.Errorf("args that nobody touched count as changed: %d %s", a.status, html.UnescapeString(a.text))
	}
	f = page(t, h, "/x/change?id="+id.String())
	f.Set("args", strings.ReplaceAll(f.Get("args"), "1.0e+400", "2.0e+400"))
	confirm(t, h, f, "The job was changed: new args.")
	info, err := q.Job(t.Context(), id)
	if want := strings.ReplaceAll(string(before.Args), "1.0e+400", "2.0e+400"); err != nil || string(info.Args) != want {
		t.Errorf("%s, want %s, %v", info.Args, want, err)
	}
	// Args that no form can carry are left to the command.
	big := add(t, q, mail{strings.Repeat("x", 262_135)}, nil)
	status, text := get(h, "/x/change?id="+big.String())
	if f := formOf(text); status != 200 || f.Has("args") || !strings.Contains(text, "too large for a form") {
		t.Errorf("%d %.2000s", status, text)
	}
}

// A dead job is changed and redriven in one: if it cannot be redriven, it is as it was. Of
// a job that is done no earlier error is told as what came of it.
func TestChange_redrive(t *testing.T) {
	q := open(t)
	h := admin(q)
	o := &errand.JobOptions{Group: "g", Unique: &errand.Unique{Key: "invoice"}}
	add(t, q, letter{}, o)
	id := die(t, q, "g")
	_, text := get(h, "/x/job/"+id.String())
	says(t, text, `change?id=`+id.String()+`&then=redrive">Change and redrive</a>`)
	other := add(t, q, letter{}, &errand.JobOptions{Unique: o.Unique})
	change := func(priority string) url.Values {
		t.Helper()
		f := page(t, h, "/x/change?then=redrive&id="+id.String())
		f.Set("priority", priority)
		return f
	}
	confirm(t, h, change("7"), "Change: not done", "Another job holds its unique key: it stays dead, as it was.")
	if info, err := q.Job(t.Context(), id); err != nil || info.State != errand.Dead || info.Priority != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := q.Cancel(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	confirm(t, h, change("8"), "The job was changed: priority 8. The job was made ready again.")
	if info, err := q.Job(t.Context(), id); err != nil || info.State != errand.Ready || info.Priority != 8 {
		t.Fatalf("%+v, %v", info, err)
	}
	if f := page(t, h, "/x/change?then=redrive&id="+id.String()); f.Has("of-then") {
		t.Errorf("a job that lives is redriven: %v", f)
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	var over atomic.Bool
	errand.Handle(w, func(context.Context, *errand.Job[letter]) error { over.Store(true); return nil })
	kit.WorkUntil(q, w, over.Load)
	_, text = get(h, "/x/job/"+id.String())
	says(t, text, "an attempt before failed: too", "<dt>Error before</dt>")
}

// A form that is sent twice is one change, with one outcome. Another answer to the same form is asked
// about, and what is no JSON changes nothing.
func TestChange_once(t *testing.T) {
	q := open(t)
	h := admin(q)
	add(t, q, letter{"first", ""}, &errand.JobOptions{Group: "g"})
	id := die(t, q, "g")
	f := page(t, h, "/x/change?then=redrive&id="+id.String())
	f.Set("args", `{"to":`)
	a := send(h, f)
	says(t, a.text, `args "{\"to\":": must be JSON`, "Nothing was done.")
	f = formOf(a.text)
	if f.Set("args", `{"to":"home"}`); a.status != 400 || f.Get("key") == "" || state(t, q, id) != errand.Dead {
		t.Fatalf("%d %v", a.status, f)
	}
	first := send(h, f)
	if again := send(h, f); first.status != 303 || again.to != first.to {
		t.Errorf("%d %q, then %d %q", first.status, first.to, again.status, again.to)
	}
	f.Set("args", `{"to":"elsewhere"}`)
	askedAgain(t, h, f, "You were asked too long ago, or about something else", "What has changed meanwhile", `"to": "elsewhere"`)
	info, err := q.Job(t.Context(), id)
	if err != nil || info.State != errand.Ready || string(info.Args) != `{"to":"home"}` || len(info.History) != 2 {
		t.Errorf("%+v, %v", info, err)
	}
}

// A tag and a group that are found have the buttons of what can be done to those of their jobs that wait or are
// dead, for those who may.
func TestSearch_deeds(t *testing.T) {
	q := open(t)
	add(t, q, letter{"home", "hunter2"}, &errand.JobOptions{Tags: []string{"t7"}, Delay: time.Hour})
	add(t, q, letter{"home", "hunter2"}, &errand.JobOptions{Tags: []string{"t8"}, Delay: time.Hour})
	if _, err := q.Cancel(t.Context(), add(t, q, letter{"home", "hunter2"}, &errand.JobOptions{Tags: []string{"t9"}, Delay: time.Hour})); err != nil {
		t.Fatal(err)
	}
	add(t, q, letter{"home", "hunter2"}, &errand.JobOptions{Group: "g7"})
	die(t, q, "g7")
	add(t, q, letter{"home", "hunter2"}, &errand.JobOptions{Group: "g7"})
	for text, want := range map[string][2]bool{"t7": {true, false}, "t9": {false, false}, "g7": {true, true}} {
		for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator} {
			_, page := get(as(q, role), "/search?q="+text)
			has(t, text, page, true, ">All jobs of "+text+"</a>")
			has(t, text, page, want[0] && role == dashboard.Operator, ">Cancel all jobs that wait</button>")
			has(t, text, page, want[1] && role == dashboard.Operator, ">Redrive all dead jobs</button>")
		}
	}
	h := admin(q)
	f := asks(t, h, url.Values{"do": {"cancel"}, "tag": {"t7"}, "queue": {""}, "group": {""}, "state": {"scheduled", "ready", "blocked"}}, "Cancel 1 ", "Those that wait never run.")
	confirm(t, h, f, "A bulk job was started for 1 ")
}

// The search for a group shows its dead jobs, also if nothing waits behind them, and to each role of
// their args what it may see. The way back leads there.
func TestSearch_group(t *testing.T) {
	q := open(t)
	add(t, q, letter{"home", "hunter2"}, &errand.JobOptions{Group: "tenant-42"})
	id := die(t, q, "tenant-42")
	add(t, q, letter{"home", "hunter2"}, &errand.JobOptions{Group: "tenant-42"})
	for role, want := range map[dashboard.Role][2]bool{dashboard.Viewer: {}, dashboard.Operator: {false, true}, dashboard.Admin: {true, true}} {
		_, text := get(as(q, role), "/search?q=tenant-42")
		says(t, text, ">tenant-42</a>", id.String(), "too")
		says(t, text, "1 job waits behind it", "Of groups only the dead jobs are shown.", ">All jobs of tenant-42</a>")
		if strings.Contains(text, "hunter2") != want[0] || strings.Contains(text, `>Change and redrive</a>`) != want[1] {
			t.Errorf("%v sees %s", role, text)
		}
	}
	h := admin(q)
	came := func(r *http.Request) { r.Header.Set("Referer", "https://ops.example/x/search?q=tenant-42") }
	_, text := get(h, "/x/change?then=redrive&id="+id.String(), came)
	says(t, text, `<a class="button" href="./search?q=tenant-42">Back</a>`)
	f := formOf(text)
	f.Set("priority", "1")
	confirm(t, h, f, `<a href="../search?q=tenant-42">Back to: Search</a>`)
}
