package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// refusal is a command line that fails, with this status and text.
type refusal struct {
	status int
	want   string
	args   []string
}

func refuse(t *testing.T, all []refusal) {
	t.Helper()
	for _, c := range all {
		status, out, errs := errand(t, "", c.args...)
		if status != c.status || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, %q %q, want %d, %q", c.args, status, out, errs, c.status, c.want)
		}
	}
}

// published is what the command says of a message.
type published struct {
	ID                  string
	Duplicate           bool
	Subscriptions, Jobs []string
}

// What a delivery sends is shown with its job, and its tags find it.
func TestTopics_deliveryShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, receiver(t))
	var done published
	out := succeed(t, "topics", "publish", path, "invoice.paid", "--body", "a < b", "--attribute", "country=FI", "--tag", "tenant:ada", "--json")
	if err := json.Unmarshal([]byte(out), &done); err != nil || len(done.Jobs) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	if got := succeed(t, "jobs", "ls", path, "--tag", "tenant:ada"); !strings.Contains(got, done.Jobs[0]) {
		t.Errorf("by the tag: %s", got)
	}
	var job struct {
		Message shownMessage `json:"message"`
	}
	out = succeed(t, "jobs", "show", path, done.Jobs[0], "--json")
	if err := json.Unmarshal([]byte(out), &job); err != nil || job.Message.ID != done.ID || job.Message.Body == nil || *job.Message.Body != "a < b" || !strings.Contains(string(job.Message.About), `"FI"`) {
		t.Errorf("%v: %s", err, out)
	}
	out = succeed(t, "jobs", "show", path, done.Jobs[0])
	for _, want := range []string{"\nmessage    " + done.ID + "\n", "\nbody       a < b\n", `"country":{"Type":"String","Value":"FI"}`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
}

// A body that is not UTF-8 is shown in full all the same.
func TestMessageOf_binary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	q, err := queue.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	h, err := webhook.New(q, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, _, err := h.Create(t.Context(), webhook.Endpoint{ID: "ada", URL: "https://ada.example"}, webhook.Secret{}); err != nil {
		t.Fatal(err)
	}
	sent, err := h.Send(t.Context(), webhook.Message{ID: "msg_1", Body: []byte("\xff\x00a")}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	out := succeed(t, "jobs", "show", path, sent.Jobs[0].ID.String(), "--json")
	var job struct {
		Message json.RawMessage `json:"message"`
	}
	const want = `{
    "id": "msg_1",
    "published_at": "<time>Z",
    "about": {
      "id": "msg_1"
    },
    "body_base64": "/wBh"
  }`
	if err := json.Unmarshal([]byte(out), &job); err != nil || constant(string(job.Message), new([]string)) != want {
		t.Errorf("%s, %v", job.Message, err)
	}
	if out := succeed(t, "jobs", "show", path, sent.Jobs[0].ID.String()); !strings.Contains(out, "\nbody       ") {
		t.Errorf("for people: %s", out)
	}
}

func TestTopics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, receiver(t))
	succeed(t, "topics", "add", path, "orders", "--ordered")
	want := strings.TrimLeft(`
NAME          ORDERED  KEPT FOR  SUBSCRIPTIONS  POLICY
invoice.paid  -        3d                    2  retries, throttle
orders        yes      -                     0  -
`, "\n")
	if got := succeed(t, "topics", "ls", path); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	type shown struct {
		Keep   float64              `json:"keep_s"`
		Policy json.RawMessage      `json:"policy"`
		Of     []topic.Subscription `json:"of"`
	}
	get := func() (of shown) {
		t.Helper()
		if err := json.Unmarshal([]byte(succeed(t, "topics", "show", path, "invoice.paid", "--json")), &of); err != nil {
			t.Fatal(err)
		}
		return of
	}
	if of := get(); of.Keep != 72*3600 || of.Policy == nil || len(of.Of) != 2 || of.Of[1].ID != "paid-local" {
		t.Errorf("%+v", of)
	}
	succeed(t, "topics", "update", path, "invoice.paid", "--keep", "1h")
	if of := get(); of.Keep != 3600 || of.Policy == nil {
		t.Errorf("after --keep: %+v", of)
	}
	succeed(t, "topics", "update", path, "invoice.paid", "--clear", "keep,policy")
	if of := get(); of.Keep != 0 || of.Policy != nil {
		t.Errorf("after --clear: %+v", of)
	}
	refuse(t, []refusal{
		{2, `topic "orders" is there already`, []string{"topics", "add", path, "orders"}},
		{2, "name", []string{"topics", "add", path, "of spaces"}},
		{1, `topic "weekly": not found`, []string{"topics", "show", path, "weekly"}},
		{1, "not found", []string{"topics", "update", path, "weekly", "--keep", "1h"}},
		{2, "--clear \"name\": must be one of keep, policy", []string{"topics", "update", path, "orders", "--clear", "name"}},
		{2, "needs --yes", []string{"topics", "rm", path, "orders"}},
		{2, "group", []string{"topics", "publish", path, "orders", "--body", "x"}},
		{2, "at least one of the flags in the group [body file]", []string{"topics", "publish", path, "orders"}},
		{2, "must be name=value", []string{"topics", "publish", path, "orders", "--body", "x", "--attribute", "x"}},
		{2, "is there twice", []string{"topics", "publish", path, "orders", "--body", "x", "--attribute", "x=1", "--attribute", "x=2"}},
		{2, "must be one of String", []string{"topics", "publish", path, "orders", "--body", "x", "--attribute", "x:Int=1", "--group", "g"}},
	})
	succeed(t, "topics", "rm", path, "invoice.paid", "--yes")
	if got := succeed(t, "subscriptions", "ls", path); got != "no subscriptions\n" {
		t.Errorf("got %q", got)
	}
}

// A message that the command publishes comes to those whose filters match, and again if
// it is replayed.
func TestTopics_Publish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, receiver(t))
	publish := func(in string, args ...string) (p published) {
		t.Helper()
		status, out, errs := errand(t, in, append([]string{"topics", "publish", path, "invoice.paid", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &p); err != nil || status != 0 {
			t.Fatalf("status %d, %s %v", status, errs, err)
		}
		return p
	}
	if p := publish("", "--body", `{"invoice":17}`, "--attribute", "country=FI", "--attribute", "total:Number=99.5", "--id", "msg_17"); p.ID != "msg_17" ||
		len(p.Subscriptions) != 2 || len(p.Jobs) != 2 {
		t.Errorf("%+v", p)
	}
	if p := publish("", "--body", "again", "--id", "msg_17"); !p.Duplicate || len(p.Jobs) != 0 {
		t.Errorf("%+v", p)
	}
	if p := publish("\x1b[31mred", "--file", "-"); len(p.Subscriptions) != 1 || p.Subscriptions[0] != "paid-billing" {
		t.Errorf("%+v", p)
	}
	for want, args := range map[string][]string{
		"msg_16: was published before\n":     {"topics", "publish", path, "invoice.paid", "--body", "x", "--id", "msg_16"},
		"msg_18: published, 1 delivery\n":    {"topics", "publish", path, "invoice.paid", "--body", "x", "--id", "msg_18"},
		"paid-local: 1 message sent again\n": {"subscriptions", "replay", path, "paid-local", "--since", "1h"},
		"paid-local: 0 jobs redriven\n":      {"subscriptions", "redrive", path, "paid-local", "--yes"},
	} {
		if got := succeed(t, args...); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
	// Nobody works, so all wait.
	if got := succeed(t, "webhooks", "ls", path); !strings.Contains(got, "billing  enabled") || !strings.Contains(got, "  invoice.*          4     0") {
		t.Errorf("got\n%s", got)
	}
	if got := succeed(t, "jobs", "ls", path, "--tag", topic.Tag("paid-local")); strings.Count(got, "webhook/local") != 2 {
		t.Errorf("got\n%s", got)
	}
}

func TestSubscriptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, receiver(t))
	get := func(id string) (s topic.Subscription) {
		t.Helper()
		if err := json.Unmarshal([]byte(succeed(t, "subscriptions", "show", path, id, "--json")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	was := get("paid-local")
	filter := filepath.Join(t.TempDir(), "filter.json")
	if err := os.WriteFile(filter, []byte(`{ "invoice": [ 17 ] }`), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, "subscriptions", "update", path, "paid-local", "--filter-file", filter, "--filter-scope", "MessageBody", "--raw=false")
	now := get("paid-local")
	if string(now.Filter) == string(was.Filter) || now.FilterScope.String() != "MessageBody" || now.Raw || now.Policy == nil {
		t.Errorf("%+v after %+v", now, was)
	}
	for _, verb := range [][2]string{{"pause", "paused"}, {"resume", "resumed"}, {"resume", "was not paused"}} {
		if got := succeed(t, "subscriptions", verb[0], path, "paid-local"); got != "paid-local: "+verb[1]+"\n" {
			t.Errorf("got %q", got)
		}
		if now := get("paid-local"); (now.State == topic.Paused) != (verb[0] == "pause") {
			t.Errorf("%s: %+v", verb[0], now)
		}
	}
	succeed(t, "subscriptions", "update", path, "paid-local", "--clear", "filter,policy")
	if now = get("paid-local"); now.Filter != nil || now.FilterScope != 0 || now.Policy != nil {
		t.Errorf("%+v", now)
	}
	// What is there already is no error.
	for range 2 {
		if got := succeed(t, "subscriptions", "add", path, "invoice.paid", "--kind", "send", "--queue", "mail", "--id", "paid-mail"); got != "paid-mail: subscribed\n" {
			t.Errorf("got %q", got)
		}
	}
	succeed(t, "topics", "add", path, "sns")
	if got := succeed(t, "subscriptions", "add", path, "sns", "--endpoint", "local", "--sns", "--raw", "--id", "sns-local"); got != "sns-local: waits to be confirmed\n" {
		t.Errorf("got %q", got)
	}
	list := succeed(t, "subscriptions", "ls", path)
	for _, want := range []string{"kind send in queue mail", "pending", "SNS, raw", "endpoint billing"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	if got := succeed(t, "subscriptions", "ls", path, "sns"); strings.Count(got, "\n") != 2 {
		t.Errorf("got\n%s", got)
	}
	refuse(t, []refusal{
		{1, "not found", []string{"subscriptions", "ls", path, "weekly"}},
		{1, "not found", []string{"subscriptions", "show", path, "nobody"}},
		{1, "not found", []string{"subscriptions", "redrive", path, "nobody", "--yes"}},
		{1, "not found", []string{"subscriptions", "pause", path, "nobody"}},
		{2, "must be to an endpoint", []string{"subscriptions", "resume", path, "paid-mail"}},
		{1, "not found", []string{"subscriptions", "replay", path, "nobody", "--since", "1h"}},
		{2, "must be set, or kind", []string{"subscriptions", "add", path, "sns"}},
		{1, "a topic that is there", []string{"subscriptions", "add", path, "weekly", "--kind", "send"}},
		{1, "an endpoint that is there", []string{"subscriptions", "add", path, "sns", "--endpoint", "nobody"}},
		{2, "filter", []string{"subscriptions", "update", path, "paid-local", "--filter", `{"a":1}`}},
		{2, "filter-scope", []string{"subscriptions", "update", path, "paid-local", "--filter-scope", "all"}},
		{2, "block or pass", []string{"subscriptions", "update", path, "paid-local", "--on-dead", "wait"}},
		{2, "needs --yes", []string{"subscriptions", "rm", path, "paid-local"}},
		{2, "needs --yes", []string{"subscriptions", "redrive", path, "paid-local"}},
	})
	succeed(t, "subscriptions", "rm", path, "paid-local", "--yes")
	refuse(t, []refusal{{1, "not found", []string{"subscriptions", "show", path, "paid-local"}}})
}

func TestPolicyEffective(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, receiver(t))
	want := strings.TrimLeft(`
SECTION   FROM          POLICY
retries   subscription  50 retries in 3h18m46s to 6h37m32.711s
throttle  topic         10 a second
`, "\n")
	if got := succeed(t, "policy", "effective", path, "invoice.paid", "paid-local"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var e topic.Effective
	if err := json.Unmarshal([]byte(succeed(t, "policy", "effective", path, "invoice.paid", "paid-billing", "--json")), &e); err != nil ||
		e.Retry != "topic" || e.Document.Retry == nil || e.Document.Retry.Retries != 20 {
		t.Errorf("%v: %+v", err, e)
	}
	want = strings.TrimLeft(`
SECTION   FROM          POLICY
retries   subscription  3 retries in 30s to 1m0s
throttle  topic         10 a second
request   system        text/plain; charset=UTF-8
`, "\n")
	if got := succeed(t, "policy", "effective", "--topic", "testdata/topic.json", "--subscription", "sns-http"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	refuse(t, []refusal{
		{2, `subscription "paid-local" is of topic "invoice.paid"`, []string{"policy", "effective", path, "orders", "paid-local"}},
		{1, "not found", []string{"policy", "effective", path, "invoice.paid", "nobody"}},
		{2, "name FILE, TOPIC and SUBSCRIPTION", []string{"policy", "effective"}},
		{2, "name FILE, TOPIC and SUBSCRIPTION", []string{"policy", "effective", path, "a", "b", "--topic", "default"}},
		{2, "accepts 0 or 3 arg(s), received 1", []string{"policy", "effective", path}},
		{2, "one thing only", []string{"policy", "effective", "--topic", "-", "--subscription", "-"}},
		{1, "must be between", []string{"policy", "effective", "--topic", "testdata/faults.json", "--profile", "sns"}},
	})
}
