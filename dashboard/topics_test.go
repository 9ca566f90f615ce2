package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/webhook"
)

// The page of an endpoint says what was answered last, and what keeps deliveries back.
func TestEndpoint_failures(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(strings.Repeat(hostile, 20) + r.Header.Get("X-Token")))
	}))
	defer receiver.Close()
	q := open(t)
	hooks, err := webhook.New(q, &webhook.Options{AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer hooks.Close()
	if _, _, err := hooks.Create(t.Context(), webhook.Endpoint{ID: "pot", URL: receiver.URL + "/in?key=" + token, Headers: map[string]string{"X-Token": token}}, webhook.Secret{}); err != nil {
		t.Fatal(err)
	}
	failed, err := q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventRetried, errand.EventUnavailable, errand.EventDead}}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hooks.Send(t.Context(), webhook.Message{Body: []byte("{}")}, "pot"); err != nil {
		t.Fatal(err)
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{webhook.Queues}, Logger: quiet})
	hooks.Handle(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.WithoutCancel(t.Context())) }()
	<-failed.Events()
	if err := errors.Join(w.Shutdown(t.Context()), <-ended); err != nil {
		t.Fatal(err)
	}
	_, text := get(as(q, dashboard.Viewer), "/endpoint?id=pot")
	for _, want := range []string{`<td class="n" data-label="Status">418</td>`, "…</td>", receiver.URL + "/in: http status 418", "&lt;script&gt;", "Fails since"} {
		if !strings.Contains(text, want) {
			t.Errorf("without %q: %s", want, text)
		}
	}
	if strings.Contains(text, token) || strings.Contains(text, "its last attempt went well") {
		t.Error(text)
	}
}

// shopHooks returns webhooks with an endpoint "shop".
func shopHooks(t *testing.T, q *errand.Queue) *webhook.Webhooks {
	t.Helper()
	hooks, err := webhook.New(q, &webhook.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hooks.Close)
	if _, _, err := hooks.Create(t.Context(), webhook.Endpoint{ID: "shop", URL: "https://shop.example/"}, webhook.Secret{}); err != nil {
		t.Fatal(err)
	}
	return hooks
}

// The page of an endpoint says which messages were sent, and the page of its queue leads there. The
// menu names webhooks.
func TestEndpoint_sent(t *testing.T) {
	q := open(t)
	hooks := shopHooks(t, q)
	if _, err := hooks.Send(t.Context(), webhook.Message{ID: "order-7", Type: "order.paid", Body: []byte("{}")}, "shop"); err != nil {
		t.Fatal(err)
	}
	h := as(q, dashboard.Viewer)
	for at, wants := range map[string][]string{
		"/endpoint?id=shop":        {`<td class="text" data-label="Message">order-7<small>order.paid</small></td>`, `<a href="jobs?queue=webhook%2Fshop">All deliveries</a>`},
		"/lane?queue=webhook/shop": {`<a href="./endpoint?id=shop">shop</a>`},
		"/":                        {`<a href="./topics">Topics</a>`},
	} {
		_, text := get(h, at)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s without %q: %s", at, want, text)
			}
		}
	}
}

// garbled is a store whose messages have attributes that cannot be read.
type garbled struct{ *sqlite.Store }

func (s *garbled) Message(ctx context.Context, id string) (storage.Message, error) {
	m, err := s.Store.Message(ctx, id)
	m.Attributes = []byte("{")
	return m, err
}

// A message that cannot be read is shown as such. It does not mean that the file is damaged.
func TestEndpoint_unreadable(t *testing.T) {
	q := openOn(t, func(file *sqlite.Store) storage.Store { return &garbled{file} })
	hooks := shopHooks(t, q)
	sent, err := hooks.Send(t.Context(), webhook.Message{Body: []byte("{}")}, "shop")
	if err != nil {
		t.Fatal(err)
	}
	h := as(q, dashboard.Viewer)
	for at, want := range map[string]string{"/endpoint?id=shop": `<td class="text" data-label="Message">not readable</td>`, "/job/" + sent.Jobs[0].ID.String(): "What is kept of it cannot be read."} {
		if status, text := get(h, at); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", at, status, plain(text))
		}
	}
	if _, text := get(h, "/health"); strings.Contains(text, "The file is damaged") {
		t.Error(plain(text))
	}
}

// What was sent to an endpoint is found also if thousands of other jobs were enqueued since.
func TestEndpoint_busy(t *testing.T) {
	q := open(t)
	hooks := shopHooks(t, q)
	sent, err := hooks.Send(t.Context(), webhook.Message{Body: []byte("{}")}, "shop")
	if err != nil {
		t.Fatal(err)
	}
	has := func(title string) {
		t.Helper()
		if _, text := get(as(q, dashboard.Viewer), "/endpoint?id=shop"); !strings.Contains(text, title+"</h2>") || !strings.Contains(text, "job/"+sent.Jobs[0].ID.String()) {
			t.Errorf("without %q or the job: %s", title, text)
		}
	}
	has("Sent of late <small>the last first</small>")
	jobs := make([]errand.NewJob, 2100)
	for i := range jobs {
		jobs[i].Args = mail{"a"}
	}
	if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	has("Deliveries <small>by state</small>")
}

// The body of a message is shown by role: not at all, redacted, or byte for byte.
func TestJob_message(t *testing.T) {
	q := open(t)
	hooks := shopHooks(t, q)
	body := `{ "n": 12345678901234567890.10,  "token": "hunter2" }`
	for sent, wants := range map[string]map[dashboard.Role]string{
		body:        {dashboard.Admin: body, dashboard.Operator: "[hidden]", dashboard.Viewer: ""},
		"plain":     {dashboard.Admin: "plain", dashboard.Operator: `"[hidden]"`, dashboard.Viewer: ""},
		"\xff\x00a": {dashboard.Admin: "", dashboard.Operator: `"[hidden]"`, dashboard.Viewer: ""},
	} {
		s, err := hooks.Send(t.Context(), webhook.Message{Body: []byte(sent)}, "shop")
		if err != nil {
			t.Fatal(err)
		}
		for role, want := range wants {
			status, text := get(as(q, role), "/job/"+s.Jobs[0].ID.String()+"?format=json")
			var got struct {
				Message struct {
					Body   string `json:"body"`
					Base64 []byte `json:"body_base64"`
				} `json:"message"`
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
				t.Fatalf("%d %s, %v", status, text, err)
			}
			ok := got.Message.Body == want || role == dashboard.Operator && strings.Contains(got.Message.Body, want)
			if !ok || role < dashboard.Admin && strings.Contains(text, "hunter2") || (string(got.Message.Base64) == sent) != (role == dashboard.Admin && want == "") {
				t.Errorf("%q for %s: %s", sent, role, text)
			}
		}
	}
}
