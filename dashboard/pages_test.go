package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

type long struct {
	Text string `json:"text"`
}

func (long) Kind() string { return "long" }

type away struct {
	Text string `json:"text"`
}

func (away) Kind() string { return "away" }

// exactArgs are args of a producer that a detour by floats or escapes would change.
const exactArgs = `{"n":12345678901234567890.10,"html":"<script>alert(1)</script>","password":"hunter2"}`

// token is what receivers know of an endpoint, and nobody else.
const token = "c2VjcmV0dG9rZW4"

// things are what fillMore has added.
type things struct {
	long, failed, raw, bulk, follower errand.ID
	endpoint, subscription            string
}

// fillMore adds what a queue may have besides jobs. What it starts ends with the test.
func fillMore(t *testing.T, q *errand.Queue) (made things) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(a errand.Args, o errand.JobOptions) errand.ID {
		t.Helper()
		o.Queue = "more"
		e, err := q.Enqueue(ctx, a, &o)
		check(err)
		return e.ID
	}
	made.long = add(long{"work"}, errand.JobOptions{Unique: &errand.Unique{Key: hostile}, Headers: map[string]string{"note": hostile}})
	made.failed = add(long{"fails"}, errand.JobOptions{})
	panics := add(long{"panics"}, errand.JobOptions{})
	gone := add(away{hostile}, errand.JobOptions{})
	parent := add(long{"parent"}, errand.JobOptions{})
	made.raw = add(errand.RawArgs{OfKind: "raw", JSON: json.RawMessage(exactArgs)}, errand.JobOptions{Delay: time.Hour})
	cancelled := add(long{"cancelled"}, errand.JobOptions{Delay: time.Hour})

	running, release := make(chan struct{}), make(chan struct{})
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"more", "default"}, Logger: quiet, Grace: -1})
	slow := errand.HandlerOptions{Policy: &policy.Document{
		Retry:    &policy.Policy{Retries: 300, NoDelayRetries: 1, MinDelayRetries: 2, MaxDelayRetries: 200, MinDelay: time.Hour, MaxDelay: 24 * time.Hour},
		Throttle: &policy.Throttle{MaxReceivesPerSecond: 1000},
	}}
	errand.Handle(w, func(ctx context.Context, job *errand.Job[long]) error {
		switch job.Args.Text {
		case "work":
			job.Progress(1, 3, hostile)
			if err := job.Checkpoint(ctx, map[string]string{"at": hostile, "secret": "hunter2"}); err != nil {
				return err
			}
			close(running)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		case "panics":
			if job.Attempt > 1 {
				panic(hostile)
			}
		case "parent":
			return job.Then(errand.RawArgs{OfKind: "raw", JSON: []byte("{}")}, &errand.JobOptions{Queue: "more", Delay: time.Hour})
		}
		return errors.New(hostile)
	}, slow)
	errand.Handle(w, func(context.Context, *errand.Job[away]) error { return errand.Unavailable(errors.New(hostile)) }, slow)
	events, err := q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventRetried, errand.EventUnavailable, errand.EventDone}}, 1000)
	check(err)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(context.WithoutCancel(ctx)) }()
	t.Cleanup(func() {
		close(release)
		if err := errors.Join(w.Shutdown(context.Background()), <-stopped); err != nil {
			t.Error(err)
		}
	})
	<-running
	waits := map[errand.ID]int{made.failed: 2, panics: 2, gone: 1, parent: 1}
	for len(waits) > 0 {
		e := <-events.Events()
		if waits[e.ID]--; waits[e.ID] <= 0 {
			delete(waits, e.ID)
		}
	}
	page, err := q.Jobs(ctx, errand.JobFilter{Parent: parent}, nil)
	check(err)
	made.follower = page.Jobs[0].ID
	_, err = q.Change(ctx, errand.JobFilter{IDs: []errand.ID{made.failed}}, errand.JobChange{Args: long{"fails again"}})
	check(err)
	_, err = q.Cancel(ctx, cancelled)
	check(err)
	check(q.Configure(ctx, errand.Lane{Queue: "more"}, errand.Settings{MaxJobs: new(1000), Starts: new(600), StartsPer: new(time.Minute), Retention: new(time.Hour)}))
	check(q.Configure(ctx, errand.Lane{}, errand.Settings{MaxBytes: new(int64(1 << 30)), MaxDead: new(10_000)}))
	_, err = q.Schedules().Run(ctx, "night")
	check(err)
	check(q.Pause(ctx, "errand.bulk"))
	bulk, err := q.StartBulk(ctx, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, By: hostile, Rate: 10})
	check(err)
	made.bulk = bulk.ID

	hooks, err := webhook.New(q, &webhook.Options{Logger: quiet})
	check(err)
	t.Cleanup(hooks.Close)
	e, _, err := hooks.Create(ctx, webhook.Endpoint{
		ID: "shop", URL: "https://shop.example/in/" + token + token + "?key=" + token, Description: hostile,
		Headers: map[string]string{"X-Token": token}, EventTypes: []string{"order.*"},
	}, webhook.Secret{})
	check(err)
	made.endpoint = e.ID
	_, err = hooks.Send(ctx, webhook.Message{Type: "order.paid", Body: []byte(exactArgs)}, e.ID)
	check(err)
	check(hooks.Disable(ctx, e.ID, hostile))
	topics, err := topic.New(q, hooks, &topic.Options{Logger: quiet})
	check(err)
	_, err = topics.Create(ctx, topic.Topic{Name: "orders", Policy: &policy.Topic{Document: policy.Document{Retry: &policy.Policy{}}}})
	check(err)
	s, err := topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Endpoint: e.ID, Filter: json.RawMessage(`{"text":["` + strings.ReplaceAll(hostile, `"`, `'`) + `"]}`)})
	check(err)
	made.subscription = s.ID
	_, err = topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Kind: "raw", Queue: "later"})
	check(err)
	attributes := map[string]filter.Attribute{"text": {Type: "String", Value: strings.ReplaceAll(hostile, `"`, `'`)}, "api_key": {Type: "String", Value: "hunter2"}}
	_, err = topics.Publish(ctx, "orders", topic.Message{Subject: "<script>alert(1)</script>", Attributes: attributes, Body: []byte(exactArgs)})
	check(err)
	addDevice(t, q, "pump-17")
	addStream(t, q, "pump-17", 1, true)
	addRelayed(t, q, "more", true, true)
	return made
}

func as(q *errand.Queue, role dashboard.Role) http.Handler {
	return dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(role), Logger: quiet})
}

// Each page says what there is to see, and JSON has it too.
func TestPages_content(t *testing.T) {
	q := open(t)
	fill(t, q)
	made := fillMore(t, q)
	h := as(q, dashboard.Operator)
	for path, wants := range map[string][]string{
		"/lane?queue=more&kind=long":                    {"300 retries", "immediate", "pre-backoff", "post-backoff", "<svg", "1,000 attempts a second", "600 in 1 min", "Max jobs"},
		"/lane?queue=more":                              {"Kinds", "depends on the kind"},
		"/lane?kind=none":                               {"No job of it was ever enqueued", "No running worker works for it"},
		"/lane?queue=default":                           {"held", "&lt;script&gt;alert(1)&lt;/script&gt;", "Release"},
		"/lane?queue=more&kind=raw":                     {"The policy in effect is not known", "No running worker"},
		"/lanes?search=long":                            {"1 row, one for each kind in a queue: first those with something to look at", "more"},
		"/lanes?search=nowhere":                         {"No queue and no kind has"},
		"/jobs?queue=more&error=script":                 {"state retry", "retry 2", "the other side was away", "data-wait"},
		"/jobs?state=ready&queue=more&kind=long":        {"No ready job matches."},
		"/jobs?created_from=2020-01-01T00:00":           {`value="2020-01-01T00:00"`, "data-wait"},
		"/jobs?ended_before=2020-01-01":                 {"No job matches.", "deleted after a time"},
		"/job/" + made.long.String():                    {"It runs", "1 of 3", "<progress", "[hidden]"},
		"/job/" + made.failed.String():                  {"waits for retry 2 of 300", "Retries to come", "Args before", "retry 2, pre-backoff", "History"},
		"/job/" + made.follower.String():                {"Follows", "Why it does not run", "not known"},
		"/dead":                                         {"Redrive all", "1 job is", "cause"},
		"/bulk":                                         {"paused", "Resume all"},
		"/bulk?id=" + made.bulk.String():                {"Begun by", "Remaining", "at most 10 a second", "Stop it"},
		"/schedule?name=night":                          {"manual", "Ticks"},
		"/groups":                                       {"Skip it: 1 goes on", "permanent"},
		"/health":                                       {"Max bytes", "1,024 MiB", "the whole file", "Max dead"},
		"/workers":                                      {"long", "1,000 a second"},
		"/topics":                                       {"orders", "retries"},
		"/topic?name=orders":                            {made.subscription, "raw in later", "shop"},
		"/subscription?id=" + made.subscription:         {"envelope", "those of the topic", "Deliveries"},
		"/endpoints":                                    {"https://shop.example/in/...", "disabled"},
		"/endpoints?search=SHOP":                        {"shop"},
		"/endpoints?state=enabled":                      {"No endpoint matches"},
		"/endpoint?id=shop":                             {"X-Token", "disabled", "Sent of late", "default of package webhook"},
		"/devices":                                      {"pump-17", "1 held", "jobs.example.org", "Missing on the server"},
		"/devices?format=json":                          {`"held":1`, `"waiting"`},
		"/device?name=pump-17":                          {"7,001", "letter"},
		"/search?q=or":                                  {">orders</a>"},
		"/search?q=red":                                 {"tag"},
		"/search?q=nothing":                             {"Nothing has", "jobs?error=nothing"},
		"/jobs?state=dead&queue=default&format=json":    {`"jobs"`},
		"/lanes?search=long&format=json":                {`"settings":[{"max_bytes":1073741824,`, `"max_jobs":1000,`, `"jobs":`},
		"/lane?queue=more&kind=long&format=json":        {`"policy"`, `"holds":[]`},
		"/job/" + made.failed.String() + "?format=json": {`"retries_to_come"`, `"why"`, `"policy_in_effect"`},
		"/endpoint?id=shop&format=json":                 {`"url":"https://shop.example/in/..."`, `"X-Token":"[hidden]"`, `"waiting"`},
		"/search?q=" + made.long.String()[:8]:           {made.long.String() + `">`, "more · long", `<code>{&#34;text&#34;: &#34;work&#34;}</code>`},
		"/search?q=" + made.long.String()[:20]:          {made.long.String() + `">`},
		"/search?q=0000abcd&format=json":                {`"hits":[]`},
	} {
		pageSays(t, h, path, wants, nil)
	}
}

// The JSON of a page is about what the page shows, however many queues and holds there are, and
// says how many others there are.
func TestJSON_bounded(t *testing.T) {
	q := open(t)
	for i := range 220 {
		lane := errand.Lane{Queue: fmt.Sprintf("q%03d", i)}
		if i < 110 {
			if _, err := q.Enqueue(t.Context(), mail{"a"}, &errand.JobOptions{Queue: lane.Queue, Delay: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Hold(t.Context(), lane, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 110 {
		name := fmt.Sprintf("n%03d", i)
		err := q.Schedule(t.Context(), errand.Schedule{Name: name, Spec: "0 3 * * *", Args: mail{"a"}})
		if err = errors.Join(err, q.Configure(t.Context(), errand.Lane{Queue: name}, errand.Settings{MaxJobs: new(10)})); err != nil {
			t.Fatal(err)
		}
	}
	h := as(q, dashboard.Viewer)
	for path, want := range map[string]map[string]int{
		"/schedules?format=json":     {"schedules": 100, "page": 1, "pages": 2, "all": 110},
		"/health?format=json&page=2": {"settings": 10, "page": 2, "pages": 2, "all": 110},
		"/workers?format=json":       {"workers": 0, "page": 1, "pages": 1, "all": 0},
		"/?format=json":              {"lanes": 10, "more_lanes": 100, "workers": 0, "more_workers": 0, "holds": 50, "more_holds": 170},
		"/lanes?format=json":         {"lanes": 100, "holds": 200, "more_holds": 10},
		"/lanes?format=json&page=2":  {"lanes": 10, "holds": 10, "more_holds": 0, "pages": 2, "all": 110},
	} {
		status, text := get(h, path)
		var doc map[string]any
		if err := json.Unmarshal([]byte(text), &doc); status != 200 || err != nil {
			t.Fatalf("%s: %d, %v: %s", path, status, err, text)
		}
		for name, want := range want {
			got := -1
			switch v := doc[name].(type) {
			case []any:
				got = len(v)
			case float64:
				got = int(v)
			case nil: // no worker runs
				got = 0
			}
			if got != want {
				t.Errorf("%s: %s is %d, want %d", path, name, got, want)
			}
		}
	}
}

// A whole ID is the address of its job, under any path.
func TestSearch_id(t *testing.T) {
	q := open(t)
	e, err := q.Enqueue(t.Context(), mail{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	as(q, dashboard.Viewer).ServeHTTP(w, httptest.NewRequest("GET", "/a/b/search?q=+"+strings.ToUpper(e.ID.String()), nil))
	if w.Code != 303 || w.Header().Get("Location") != "job/"+e.ID.String() {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}

// The policy of a lane is that of jobs without one of their own, and the page says which have one.
func TestLane_ownPolicies(t *testing.T) {
	q := open(t)
	defer work(t, q)()
	says := func(want string) {
		t.Helper()
		if _, text := get(as(q, dashboard.Viewer), "/lane?queue=default&kind=raw"); !strings.Contains(text, want) || !strings.Contains(text, "of jobs without one of their own") {
			t.Errorf("without %q: %s", want, text)
		}
	}
	raw := errand.RawArgs{OfKind: "raw", JSON: []byte("{}")}
	own := &errand.JobOptions{Delay: time.Hour, Policy: &policy.Policy{Retries: 2, MinDelay: time.Second, MaxDelay: time.Minute}}
	first := add(t, q, raw, own)
	says("The job that waits has its own")
	says("such as <a class=\"id\" href=\"./job/" + first.String())
	add(t, q, raw, own)
	says("All of the first 2 jobs that wait have their own")
	add(t, q, raw, &errand.JobOptions{Delay: time.Hour})
	says("2 of the first 3 jobs that wait have their own")
}

// Pages name what people see and can do, and not the fields and methods of the program.
func TestPages_words(t *testing.T) {
	q := open(t)
	urgent := add(t, q, mail{"a"}, nil)
	if _, err := q.RunNow(t.Context(), errand.JobFilter{IDs: []errand.ID{urgent}}, nil); err != nil {
		t.Fatal(err)
	}
	h := as(q, dashboard.Admin)
	if _, text := get(h, "/job/"+urgent.String()); !strings.Contains(text, "as soon as a worker has a free place") {
		t.Error(text)
	}
	for _, at := range []string{"/lane?queue=none", "/health", "/workers", "/job/01a217bb-5cbb-711c-a5f6-0000000f4a5c", "/jobs?tag=none", "/dead"} {
		_, text := get(h, at)
		for _, word := range []string{"Options.", "Settings.", "Queue.Configure", "Choose less", "At a time", "runner"} {
			if strings.Contains(text, word) {
				t.Errorf("%s says %s: %s", at, word, text)
			}
		}
	}
}

// JSON has what a producer has written byte for byte, and only for those who may see it.
func TestJSON_exact(t *testing.T) {
	q := open(t)
	e, err := q.Enqueue(t.Context(), errand.RawArgs{OfKind: "payment", JSON: json.RawMessage(exactArgs)}, &errand.JobOptions{Queue: "later"})
	if err != nil {
		t.Fatal(err)
	}
	defer work(t, q)()
	stored := `"args":` + strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(exactArgs) // as encoding/json has written it
	for role, want := range map[dashboard.Role]string{
		dashboard.Admin: stored, dashboard.Operator: strings.Replace(stored, "hunter2", "[hidden]", 1), dashboard.Viewer: `"due_at"`,
	} {
		_, text := get(as(q, role), "/job/"+e.ID.String()+"?format=json")
		if !strings.Contains(text, want) || !json.Valid([]byte(text)) || role < dashboard.Operator && strings.Contains(text, `"args"`) {
			t.Errorf("%s: %s", role, text)
		}
		if _, page := get(as(q, role), "/job/"+e.ID.String()); strings.Contains(page, "12345678901234567890.10") != (role >= dashboard.Operator) {
			t.Errorf("%s: %s", role, page)
		}
	}
}

// What people wrote is in the JSON of pages and on pages without the escapes that HTML would need.
func TestJSON_noEscapes(t *testing.T) {
	q := open(t)
	grouped := add(t, q, mail{"a"}, &errand.JobOptions{Delay: time.Hour, Group: "a <b> & c"})
	for _, at := range []string{"/jobs?state=scheduled&format=json", "/job/" + grouped.String() + "?format=json"} {
		status, text := get(as(q, dashboard.Admin), at)
		if status != 200 || strings.Contains(text, `\u003`) || !strings.Contains(text, `"group":"a <b> & c"`) {
			t.Errorf("%s: %d %s", at, status, text)
		}
	}
	if status, text := get(as(q, dashboard.Admin), "/jobs?state=%3cimg%3e&format=json"); status != 400 || !strings.Contains(text, `"<img>\"`) {
		t.Errorf("%d %s", status, text)
	}
	e := add(t, q, mail{`<img> & \u003c`}, &errand.JobOptions{Delay: time.Hour})
	if _, text := get(as(q, dashboard.Admin), "/job/"+e.String()); !strings.Contains(text, `&#34;To&#34;: &#34;&lt;img&gt; &amp; \\u003c&#34;`) {
		t.Error(text)
	}
}
