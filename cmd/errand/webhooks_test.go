package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// shop makes a file with the endpoint billing, and local at a URL. Both, and a kind of job,
// have subscriptions to the topic invoice.paid, which has one message.
func shop(t *testing.T, path, local string) {
	t.Helper()
	q, err := queue.Open(t.Context(), path, &queue.Options{SQLite: queue.SQLiteOptions{Durability: queue.Relaxed, Ballast: -1}})
	if err := errors.Join(err, q.Close()); err != nil {
		t.Fatal(err)
	}
	succeed(t, "webhooks", "add", path, "https://shop.example/hooks?token=a1b2c3", "--id", "billing",
		"--event-type", "invoice.*", "--header", "X-Token: d4e5f6", "--description", "the ledger", "--policy", "webhook")
	succeed(t, "webhooks", "add", path, local, "--id", "local", "--allow-http", "--allow", "127.0.0.0/8")
	succeed(t, "topics", "add", path, "invoice.paid", "--keep", "72h", "--policy", filepath.Join(home, "testdata", "topic.json"))
	succeed(t, "subscriptions", "add", path, "invoice.paid", "--id", "paid-billing", "--endpoint", "billing")
	succeed(t, "subscriptions", "add", path, "invoice.paid", "--id", "paid-local", "--endpoint", "local", "--raw",
		"--filter", `{"country":["FI"]}`, "--policy", "sns-customer")
	succeed(t, "topics", "publish", path, "invoice.paid", "--body", `{"invoice":16}`, "--attribute", "country=SE", "--id", "msg_16")
}

// receiver returns the URL of a server that answers with 200 until the test ends.
func receiver(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// listening is a command that runs in this process, such as a receiver.
type listening struct {
	url    string
	lines  *bufio.Scanner
	stop   context.CancelFunc
	status chan int
}

// listen runs the receiver until stop, or what args say.
func listen(t *testing.T, in string, args ...string) *listening {
	t.Helper()
	l := start(t, in, append([]string{"webhooks", "listen", "--addr", "127.0.0.1:0"}, args...)...)
	first := l.next(t)
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(first)
	if address == "" {
		t.Fatalf("it writes %q", first)
	}
	l.url = "http://" + address + "/"
	return l
}

// start runs a command until it ends, or stop.
func start(t *testing.T, in string, args ...string) *listening {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, w, err := os.Pipe() // which holds what is not read yet
	if err != nil {
		t.Fatal(err)
	}
	l := &listening{lines: bufio.NewScanner(r), stop: stop, status: make(chan int, 1)}
	go func() {
		status := run(ctx, args, strings.NewReader(in), w, w)
		_ = w.Close()
		l.status <- status
	}()
	return l
}

func (l *listening) next(t *testing.T) string {
	t.Helper()
	if !l.lines.Scan() {
		t.Fatalf("no line: %v", l.lines.Err())
	}
	return l.lines.Text()
}

// end interrupts the receiver, see ends.
func (l *listening) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.ends(t)
}

// ends wants the receiver to end with status 0, and to write nothing more.
func (l *listening) ends(t *testing.T) {
	t.Helper()
	if l.lines.Scan() {
		t.Errorf("it also writes %q", l.lines.Text())
	}
	if status := <-l.status; status != 0 {
		t.Errorf("status %d", status)
	}
}

func TestWebhooks_Add(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, "http://127.0.0.1:9000/")
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, "must begin with https://", []string{"http://shop.example/"}},
		{2, "must not be a special address (loopback", []string{"https://127.0.0.1/"}},
		{2, `--allow "10": must be addresses`, []string{"https://shop.example/", "--allow", "10"}},
		{2, "must be a name, a colon and a value", []string{"https://shop.example/", "--header", "token d4e5f6"}},
		{2, "must not have a header that is set by the sender", []string{"https://shop.example/", "--header", "Host: a"}},
		{2, `endpoint "billing" is there already`, []string{"https://shop.example/", "--id", "billing"}},
		{2, "standard input can be read for one thing only", []string{"https://shop.example/", "--policy", "-", "--secret-file", "-"}},
		{2, "exclude each other", []string{"https://shop.example/", "--ed25519", "--secret-file", "-"}},
		{2, "must have one secret, has 0", []string{"https://shop.example/", "--secret-file", "-"}},
		{1, "healthyRetryPolicy.numRetries 101", []string{"https://shop.example/", "--policy", "testdata/faults.json"}},
	} {
		status, out, errs := errand(t, "", append([]string{"webhooks", "add", path}, c.args...)...)
		if c.status == 1 { // by the limits of jobs it has fewer faults
			c.want = "healthyRetryPolicy."
		}
		if status != c.status || out != "" || !strings.Contains(errs, c.want) || strings.Contains(errs, "d4e5f6") {
			t.Errorf("%q: status %d, %q %q, want %q", c.args, status, out, errs, c.want)
		}
	}
	if n := strings.Count(succeed(t, "webhooks", "ls", path), "\n"); n != 3 {
		t.Errorf("%d lines are listed", n)
	}
}

// Secrets are shown where they are made, and if they are asked for.
func TestWebhooks_Secrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, "http://127.0.0.1:9000/")
	secrets := regexp.MustCompile(`whs(ec|k)_[A-Za-z0-9+/]{20}`)
	for _, args := range [][]string{
		{"ls", path}, {"show", path, "billing"}, {"update", path, "billing", "--description", "new"}, {"disable", path, "billing"},
		{"enable", path, "billing"}, {"replay", path, "billing", "--since", "1h"},
	} {
		for _, args := range [][]string{args, append(args[:len(args):len(args)], "--json")} {
			out := succeed(t, append([]string{"webhooks"}, args...)...)
			if secrets.MatchString(out) || strings.Contains(out, "d4e5f6") || strings.Contains(out, "a1b2c3") {
				t.Errorf("%q shows a secret: %s", args, out)
			}
		}
	}
	shown := succeed(t, "webhooks", "show", path, "billing", "--reveal")
	if !secrets.MatchString(shown) || !strings.Contains(shown, "X-Token: d4e5f6") || !strings.Contains(shown, "?token=a1b2c3") {
		t.Errorf("--reveal shows %s", shown)
	}

	// One that is given is not printed.
	given := webhook.NewSecret().Reveal()
	if status, out, errs := errand(t, given+"\n", "webhooks", "rotate-secret", path, "billing", "--secret-file", "-"); status != 0 || out !=
		"billing: the secret is replaced; the one before it signs too for 1d\n" {
		t.Errorf("status %d, %q %q", status, out, errs)
	}
	if shown := succeed(t, "webhooks", "show", path, "billing", "--reveal", "--json"); strings.Count(shown, `"kind": "whsec_..."`) != 2 ||
		!strings.Contains(shown, given) {
		t.Errorf("after the rotation: %s", shown)
	}
	if status, out, errs := errand(t, "whsec_"+"c2VjcmV0", "webhooks", "rotate-secret", path, "billing", "--secret-file", "-"); status != 2 ||
		out != "" || strings.Contains(errs, "c2VjcmV0") {
		t.Errorf("status %d, %q %q", status, out, errs)
	}

	// Of a pair the private key is not printed, and the public one always is.
	made := succeed(t, "webhooks", "rotate-secret", path, "local", "--ed25519", "--overlap", "0")
	public := regexp.MustCompile(`whpk_\S+`).FindString(made)
	if shown := succeed(t, "webhooks", "show", path, "local"); public == "" || strings.Contains(made, "whsk_") ||
		!strings.Contains(shown, "whsk_..., verified with "+public) {
		t.Errorf("made %sshown %s", made, shown)
	}
}

func TestWebhooks_Update(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, "http://127.0.0.1:9000/")
	get := func() (e webhook.Endpoint) {
		t.Helper()
		if err := json.Unmarshal([]byte(succeed(t, "webhooks", "show", path, "billing", "--reveal", "--json")), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	was := get()
	succeed(t, "webhooks", "update", path, "billing", "--header", "x-token: new", "--header", "X-Shop: 7")
	now := get()
	if len(now.Headers) != 2 || now.Headers["x-token"] != "new" || now.URL != was.URL || now.Policy == nil ||
		now.Description != was.Description || len(now.EventTypes) != 1 || now.Revision <= was.Revision {
		t.Errorf("%+v after %+v", now, was)
	}
	succeed(t, "webhooks", "update", path, "billing", "--clear", "headers,event-types,policy", "--header", "X-Shop: 8", "--url", "https://new.example/")
	if now = get(); len(now.Headers) != 1 || now.Headers["X-Shop"] != "8" || now.URL != "https://new.example/" || now.Policy != nil ||
		now.EventTypes != nil || now.Description != was.Description {
		t.Errorf("%+v", now)
	}
	succeed(t, "webhooks", "update", path, "local", "--description", "of http, as it was before")
	for want, args := range map[string][]string{
		"must begin with https://":                       {"billing", "--url", "http://new.example/"},
		`--clear "secret": must be one of description, `: {"billing", "--clear", "secret"},
		`endpoint "nobody": not found`:                   {"nobody", "--description", "x"},
	} {
		if status, out, errs := errand(t, "", append([]string{"webhooks", "update", path}, args...)...); status == 0 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %q %q", args, status, out, errs)
		}
	}
}

func TestWebhooks_Disable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	shop(t, path, "http://127.0.0.1:9000/")
	succeed(t, "webhooks", "disable", path, "billing", "--reason", evil)
	status, out := wantHarmless(t, []string{"webhooks", "ls", path, "--state", "disabled"})
	if status != 0 || !strings.Contains(out, `disabled`) || !strings.Contains(out, `\x1b[2J`) || strings.Contains(out, "local") {
		t.Errorf("status %d, %s", status, out)
	}
	wantHarmless(t, []string{"webhooks", "show", path, "billing"})
	wantHarmless(t, []string{"webhooks", "ls", path, "--json"})
	if out := succeed(t, "webhooks", "enable", path, "billing"); out != "billing: enabled\n" {
		t.Errorf("got %q", out)
	}
	if out := succeed(t, "webhooks", "enable", path, "billing"); out != "billing: was not disabled\n" {
		t.Errorf("got %q", out)
	}
	if status, _, errs := errand(t, "", "webhooks", "rm", path, "billing"); status != 2 || !strings.Contains(errs, "needs --yes") {
		t.Errorf("status %d, %q", status, errs)
	}
	succeed(t, "webhooks", "rm", path, "billing", "--yes")
	if status, _, errs := errand(t, "", "webhooks", "show", path, "billing"); status != 1 || errs != "errand: endpoint \"billing\": not found\n" {
		t.Errorf("status %d, %q", status, errs)
	}
}

// A message that a program sends comes, is tried again, and is replayed; each time with
// its ID, and signed.
func TestWebhooks_Replay(t *testing.T) {
	dir := t.TempDir()
	path, secretFile := filepath.Join(dir, "shop.db"), filepath.Join(dir, "secret")
	secret := webhook.NewSecret()
	if err := os.WriteFile(secretFile, []byte(secret.Reveal()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := listen(t, "", "--secret-file", secretFile, "--status", "500,204", "--count", "4", "--body")
	shop(t, path, l.url)
	succeed(t, "webhooks", "rotate-secret", path, "local", "--secret-file", secretFile, "--overlap", "0")
	policy := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"minDelayTarget":"1ms","maxDelayTarget":"1ms","numRetries":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, "webhooks", "update", path, "local", "--policy", policy)

	q, err := queue.Open(t.Context(), path, &queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	o, err := (&reach{http: true, allow: []string{"127.0.0.1"}}).options()
	if err != nil {
		t.Fatal(err)
	}
	h, err := webhook.New(q, o)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w := queue.NewWorker(q, &queue.WorkerOptions{Queues: []string{webhook.QueueOf("local")}})
	h.Handle(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(t.Context()) }()
	sent, err := h.Send(t.Context(), webhook.Message{Type: "order.paid", Body: []byte("\x1b[31mred")}, "local")
	if err != nil {
		t.Fatal(err)
	}
	want := func(attempt, status int) {
		t.Helper()
		const line = `^\S+ \S+  %s  attempt %d  verified  answered %d  8 bytes  \\x1b\[31mred$`
		if got := l.next(t); !regexp.MustCompile(fmt.Sprintf(line, sent.ID, attempt, status)).MatchString(got) {
			t.Errorf("got %q, want attempt %d, status %d", got, attempt, status)
		}
	}
	want(1, 500)
	want(2, 204)
	if out := succeed(t, "webhooks", "replay", path, "local", "--since", "1h"); out != "local: 1 message sent again\n" {
		t.Errorf("got %q", out)
	}
	want(1, 204)
	if out := succeed(t, "webhooks", "replay", path, "local", "--since", time.Now().Add(time.Hour).Format(time.RFC3339)); out != "local: 0 messages sent again\n" {
		t.Errorf("got %q", out)
	}

	// The last of four.
	if out := succeed(t, "webhooks", "test", path, "local", "--allow-http", "--allow", "127.0.0.0/8"); !strings.HasPrefix(out, "local: 204 after ") {
		t.Errorf("got %q", out)
	}
	if got := l.next(t); !strings.Contains(got, "webhook.test") {
		t.Errorf("got %q", got)
	}
	l.ends(t)
	if err := errors.Join(w.Shutdown(t.Context()), <-ended, q.Close()); err != nil {
		t.Error(err)
	}
}

func TestWebhooks_Test(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	l := listen(t, "", "--status", "503", "--count", "1", "--json")
	shop(t, path, l.url)
	status, out, errs := errand(t, "", "webhooks", "test", path, "local", "--allow-http", "--allow", "127.0.0.0/8")
	if status != 1 || !strings.HasPrefix(out, "local: 503 after ") || errs != "" {
		t.Errorf("status %d, %q %q", status, out, errs)
	}
	var got received
	if err := json.Unmarshal([]byte(l.next(t)), &got); err != nil || got.Status != 503 || got.Verified || got.Why != "" || got.Attempt != "1" || got.Endpoint != "local" {
		t.Errorf("%v: %+v", err, got)
	}
	l.ends(t)
	// Nobody listens any more.
	status, out, errs = errand(t, "", "webhooks", "test", path, "local", "--allow-http", "--allow", "127.0.0.0/8", "--json")
	var answer struct {
		Status int
		Error  string
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || status != 1 || answer.Status != 0 || answer.Error == "" || errs != "" {
		t.Errorf("status %d, %q %q", status, out, errs)
	}
	// What is not accepted is not sent.
	if status, out, errs := errand(t, "", "webhooks", "test", path, "local", "--allow-http"); status != 2 || out != "" || !strings.Contains(errs, "special address") {
		t.Errorf("status %d, %q %q", status, out, errs)
	}
	if status, _, _ := errand(t, "", "webhooks", "test", path, "nobody"); status != 1 {
		t.Errorf("status %d", status)
	}
}

func post(t *testing.T, url, body string, headers map[string]string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
