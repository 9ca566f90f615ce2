package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

type payment struct {
	Card struct {
		Number string `json:"number" errand:"secret"`
		Holder string `json:"holder"`
	} `json:"card"`
	Pins  []int64        `json:"pins" errand:"secret"`
	Notes map[string]pin `json:"notes"`
	Email string         `json:"email"`
	Body  string         `json:"body"`
}

type pin struct {
	Pin string `errand:"secret"`
}

func (payment) Kind() string { return "payment" }

// work runs a worker for payments until stop is called.
func work(t *testing.T, q *errand.Queue) (stop func()) {
	t.Helper()
	return workOn(t, q, payment{}, func(w *errand.Worker) {
		errand.HandleRaw(w, "raw", func(context.Context, *errand.Job[errand.RawArgs]) error { return nil })
	})
}

// runPay runs a worker for pay until stop is called.
func runPay(t *testing.T, q *errand.Queue) (stop func()) {
	t.Helper()
	return workOn(t, q, pay{}, func(*errand.Worker) {})
}

// workOn runs a worker that has run a job with these args until stop is called.
func workOn[A errand.Args](t *testing.T, q *errand.Queue, args A, more func(*errand.Worker)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	done := make(chan struct{}, 1)
	errand.Handle(w, func(context.Context, *errand.Job[A]) error {
		done <- struct{}{}
		return nil
	})
	more(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	add(t, q, args, nil)
	<-done
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// Secrets of args are hidden by the tags of their type, which workers show, by the names of fields,
// and by those of Options.Hidden; also in args before a change, in headers, checkpoints, results
// and messages. Without a worker of the kind all values are. The dashboard has opened the file by
// itself, as another process does.
func TestRedact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	other, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet, SQLite: errand.SQLiteOptions{ReadOnly: true}})
	if err != nil { // as another process has it open
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	var p payment
	p.Card.Number, p.Card.Holder, p.Pins, p.Notes, p.Email = "no. 4111", "Ann Holder", []int64{8123812381238123}, map[string]pin{"a": {"no. 9123"}}, "ann@example.com"
	p.Body = `{"password":"hunter2","Notes":"plain"}`
	headers := map[string]string{"authorization": "Bearer xyz", "reply-email": "header@example.com", "trace": "t1"}
	id := add(t, q, p, &errand.JobOptions{Queue: "later", Headers: headers})
	raw := add(t, q, errand.RawArgs{OfKind: "raw", JSON: []byte(`{"card":{"number":"no. 4111"},"token":"xyz"}`)}, &errand.JobOptions{Queue: "later"})
	changed := p
	changed.Card.Number = "no. 5111"
	if _, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, errand.JobChange{Args: changed}); err != nil {
		t.Fatal(err)
	}
	handler := func(role dashboard.Role) http.Handler {
		return dashboard.Handler(other, &dashboard.Options{Auth: who("ann", role), Logger: quiet, Hidden: []string{"E-mail"}})
	}
	see := func(h http.Handler, id errand.ID, want, hide []string) {
		t.Helper()
		status, text := get(h, "/x/job/"+id.String())
		text = html.UnescapeString(text)
		if status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("without %q: %s", w, text)
			}
		}
		for _, w := range hide {
			if strings.Contains(text, w) {
				t.Errorf("with %q: %s", w, text)
			}
		}
	}
	const unknown = "No worker that knows the type of these args has run since this dashboard began"
	secrets := []string{"no. 4111", "no. 5111", "8123812381238123", "no. 9123", "hunter2", "Bearer xyz", "ann@example.com", "header@example.com"}
	see(handler(dashboard.Operator), id, []string{unknown, `"holder": "[hidden]"`, "t1"}, append(secrets, "Ann Holder", "plain"))
	see(handler(dashboard.Admin), id, append(secrets, "Ann Holder"), []string{unknown, "[hidden]"})
	see(handler(dashboard.Viewer), id, []string{"are for the roles operator and admin"}, append(secrets, "Ann Holder", unknown, `"card"`))

	operator := handler(dashboard.Operator)
	stop := work(t, q)
	see(operator, id, []string{`"number": "[hidden]"`, `"pins": "[hidden]"`, `"Pin": "[hidden]"`, "Ann Holder", "plain", "t1", "Args before"}, append(secrets, unknown))
	see(operator, raw, []string{`"number": "[hidden]"`, `"token": "[hidden]"`, unknown}, []string{"no. 4111", "xyz"})
	stop()
	// What a bulk job does is no secret, but for the values that it writes.
	b, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{Kind: "payment"}, Set: map[string]json.RawMessage{"card.number": []byte(`"no. 6111"`)}})
	if err != nil {
		t.Fatal(err)
	}
	see(operator, b.ID, []string{`"redrive"`, `"set": "[hidden]"`}, []string{"no. 6111", unknown})
	// The worker has gone, and what it has shown is remembered.
	see(operator, id, []string{"Ann Holder"}, append(secrets, unknown))
	see(handler(dashboard.Operator), id, []string{unknown}, append(secrets, "Ann Holder"))
}

// Names of Hidden have letters, and are no empty part of all names.
func TestHandler_hidden(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), `hidden[1] "-_"`) {
			t.Errorf("%v", err)
		}
	}()
	dashboard.Handler(open(t), &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Hidden: []string{"mail", "-_"}})
	t.Error("no panic")
}

// What is nested deeply is shown without indents, that would be far longer than the JSON.
func TestJob_deep(t *testing.T) {
	q := open(t)
	const depth = 1000
	doc := strings.Repeat("[", depth) + strings.Repeat("0,", depth) + "0" + strings.Repeat("]", depth)
	id := add(t, q, errand.RawArgs{OfKind: "deep", JSON: []byte(doc)}, nil)
	flat := add(t, q, errand.RawArgs{OfKind: "deep", JSON: []byte(`{"a":[1,{"b":"c"}]}`)}, nil)
	h := admin(q)
	for _, at := range []string{"/x/job/" + id.String(), "/x/change?id=" + id.String(), "/x/act?do=run&id=" + id.String(), "/x/job/" + id.String() + "?format=json"} {
		if _, text := get(h, at); len(text) > 10*len(doc) {
			t.Errorf("%s has %d bytes, the args %d", at, len(text), len(doc))
		}
	}
	if _, text := get(h, "/x/job/"+flat.String()); !strings.Contains(html.UnescapeString(text), "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"c\"\n    }\n  ]\n}") {
		t.Errorf("without indents: %s", text)
	}
}

// An operator cannot ask whether a guess of hidden args is right: what forms carry to see changes
// says nothing about another value, and differs from job to job.
func TestChange_guess(t *testing.T) {
	q := open(t)
	secret := errand.RawArgs{OfKind: "pay", JSON: []byte(`{"pin":"p-8391"}`)}
	id := add(t, q, secret, &errand.JobOptions{Delay: time.Hour})
	same := add(t, q, secret, &errand.JobOptions{Delay: time.Hour})
	h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: who("ann", dashboard.Operator)})
	was := func(id errand.ID) url.Values {
		_, text := get(h, "/x/change?id="+id.String())
		v, err := url.ParseQuery(formOf(text).Get("of-was"))
		if err != nil || v.Get("args") == "" {
			t.Fatalf("%v %v: %s", v, err, text)
		}
		return v
	}
	mine := was(id)
	if mine.Get("args") == was(same).Get("args") {
		t.Error("jobs show that their args are equal")
	}
	mine.Set("policy", mine.Get("args"))
	for _, guess := range []string{`{"pin":"8390"}`, string(secret.JSON)} {
		status, text := post(h, "/x/act", url.Values{"do": {"change"}, "form": {"1"}, "of-id": {id.String()}, "of-was": {mine.Encode()}, "policy": {guess}})
		if status != 200 && status != 400 {
			t.Fatalf("%d %s", status, text)
		}
		if !strings.Contains(text, "must be a policy") {
			t.Errorf("%s: %s", guess, text)
		}
	}
}

type pay struct {
	Pin     string `json:"pin" errand:"secret"`
	To      string `json:"to"`
	Subject string `errand:"secret"`
}

func (pay) Kind() string { return "pay" }

// The message that a job of a kind delivers shows no more than its args. The unique key that is a
// hash of args is for those who may see them.
func TestJob_messageHidden(t *testing.T) {
	q := open(t)
	hooks, err := webhook.New(q, &webhook.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hooks.Close)
	topics, err := topic.New(q, hooks, &topic.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topics.Create(t.Context(), topic.Topic{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []topic.Subscription{{ID: "raw", Kind: "pay", Raw: true}, {ID: "enveloped", Kind: "pay"}} {
		s.Topic, s.Queue = "orders", s.ID
		if _, err := topics.Subscribe(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	m := topic.Message{Subject: "subject s-7712", Attributes: map[string]filter.Attribute{"a": {Type: "String", Value: "sha-de"}}, Body: []byte(`{"pin":"p-8391","to":"Ann"}`)}
	if _, err := topics.Publish(t.Context(), "orders", m); err != nil {
		t.Fatal(err)
	}
	page, err := q.Jobs(t.Context(), errand.JobFilter{Kind: "pay"}, nil)
	if err != nil || len(page.Jobs) != 2 {
		t.Fatal(page, err)
	}
	hashed := add(t, q, pay{Pin: "p-8391"}, &errand.JobOptions{Queue: "later", Unique: &errand.Unique{ByArgs: true}})
	info, err := q.Job(t.Context(), hashed)
	if err != nil || !strings.HasPrefix(info.Unique, "sha256:") {
		t.Fatal(info.Unique, err)
	}
	handler := func(role dashboard.Role) http.Handler {
		return dashboard.Handler(q, &dashboard.Options{Auth: who("ann", role), Logger: quiet})
	}
	sees := func(h http.Handler, what string, at []string, want bool, all ...string) {
		t.Helper()
		for _, path := range at {
			status, text := get(h, path)
			text = html.UnescapeString(text)
			for _, s := range all {
				if status != 200 || strings.Contains(text, s) != want {
					t.Errorf("%s: %s: %d, %q is not as it should be: %s", what, path, status, s, text)
				}
			}
		}
	}
	var at []string
	for i := range page.Jobs {
		at = append(at, "/x/job/"+page.Jobs[i].ID.String(), "/x/job/"+page.Jobs[i].ID.String()+"?format=json")
	}
	keys := []string{"/x/job/" + hashed.String(), "/x/job/" + hashed.String() + "?format=json", "/x/jobs?format=json&queue=later"}
	sees(handler(dashboard.Operator), "unknown kind", at, false, "p-8391", "Ann", "s-7712", "sha-de")
	stop := runPay(t, q)
	operator := handler(dashboard.Operator)
	sees(operator, "known kind", at, true, "Ann", "sha-de")
	sees(operator, "known kind", at, false, "p-8391", "s-7712")
	sees(handler(dashboard.Viewer), "viewer", at, false, "p-8391", "Ann", "s-7712", "sha-de")
	stop()
	sees(handler(dashboard.Admin), "admin", at, true, "p-8391", "Ann", "s-7712", "sha-de")
	sees(operator, "unique key", keys, false, info.Unique)
	sees(operator, "unique key", keys, true, "sha256:[hidden]")
	sees(handler(dashboard.Viewer), "unique key", keys, false, info.Unique)
	sees(handler(dashboard.Admin), "unique key", keys, true, info.Unique)
}

// What handlers write is as args are: of its texts nobody but an admin sees users in URLs and the
// values of hidden names, on pages, as JSON and as a match of a filter.
func TestTexts(t *testing.T) {
	q := open(t)
	ctx, stop := context.WithCancel(t.Context())
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	says := func(what string) error {
		return fmt.Errorf("%s https://ann:planted@host/%s?token=planted&page=7: refused", what, what)
	}
	errand.Handle(w, func(_ context.Context, job *errand.Job[payment]) error {
		job.Progress(1, 2, says("note").Error())
		err := says(job.Args.Body)
		switch job.Args.Body {
		case "panic":
			panic(err)
		case "permanent":
			return errand.Permanent(err)
		case "hold":
			stop()
			return errand.HoldLane(time.Hour, err)
		}
		return err
	}, errand.HandlerOptions{Concurrency: 1})
	ids := map[string]errand.ID{}
	for _, body := range []string{"panic", "failed", "permanent", "hold"} {
		ids[body] = add(t, q, payment{Body: body}, nil)
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator, dashboard.Admin} {
		h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(role), Logger: quiet})
		shown := 0
		all := crawl(t, h, "/")
		for at := range all {
			joint := "?"
			if strings.Contains(at, "?") {
				joint = "&"
			}
			_, doc := get(h, at+joint+"format=json")
			for _, text := range []string{all[at], doc} {
				if strings.Contains(text, "planted") {
					shown++
					if role < dashboard.Admin {
						t.Errorf("%v sees %s: %s", role, at, text)
					}
				}
			}
		}
		if (shown > 0) != (role == dashboard.Admin) {
			t.Errorf("%v: %d pages have what is hidden", role, shown)
		}
		if text := all["/job/"+ids["permanent"].String()]; !strings.Contains(text, "permanent https://") || !strings.Contains(text, "page=7") {
			t.Errorf("%v does not see the rest of the error: %s", role, text)
		}
		for _, part := range []string{"planted", "permanent"} {
			_, text := get(h, "/jobs?format=json&error="+part)
			if got, want := strings.Contains(text, ids["permanent"].String()), part == "permanent" || role == dashboard.Admin; got != want {
				t.Errorf("%v finds the job by %q: %t", role, part, got)
			}
		}
	}
}

// No answer below admin depends on what is hidden in errors: neither the rows of a list, nor whether
// it goes on, nor how many jobs an action would take.
func TestTexts_guess(t *testing.T) {
	q := open(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	const n = 60 // more than a page has
	left := n
	errand.Handle(w, func(context.Context, *errand.Job[mail]) error {
		if left--; left == 0 {
			stop()
		}
		return errand.RetryAfter(time.Hour, errors.New("no such page: token=planted"))
	}, errand.HandlerOptions{Concurrency: 1})
	jobs := make([]errand.NewJob, n)
	for i := range jobs {
		jobs[i].Args = mail{"a"}
	}
	if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	const right, wrong = "token=pl", "token=qq"
	for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator} {
		h := as(q, role)
		_, list := get(h, "/jobs?format=json&error="+url.QueryEscape(right))
		if _, other := get(h, "/jobs?format=json&error="+url.QueryEscape(wrong)); list != other {
			t.Errorf("%v: the lists differ: %s\n%s", role, list, other)
		}
		if _, text := get(h, "/jobs?error=no+such"); !toNext.MatchString(text) || strings.Contains(text, "With all that match") {
			t.Errorf("%v: %s", role, text)
		}
	}
	for _, do := range []string{"redrive", "cancel", "change"} {
		for _, guess := range []string{right, wrong} {
			if a := send(as(q, dashboard.Operator), url.Values{"do": {do}, "error": {guess}}); a.status != 403 {
				t.Errorf("%s of those with %s: %d %s", do, guess, a.status, a.text)
			}
		}
	}
	asks(t, admin(q), url.Values{"do": {"cancel"}, "error": {right}}, "59 jobs whose error contains “token=pl”")
}

// An error that is cut, by who stores it or by a page, shows no part of a password whose @ is gone.
func TestTexts_cut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		w := errand.NewWorker(q, &errand.WorkerOptions{Grace: time.Millisecond, Logger: quiet})
		errand.Handle(w, func(context.Context, *errand.Job[mail]) error {
			return errors.New(strings.Repeat("far ", 70) + "://ann:planted" + strings.Repeat("x", 100) + "@host: refused")
		}, errand.HandlerOptions{Policy: policy.Policy{MinDelay: 20 * time.Second, MaxDelay: 20 * time.Second, Retries: 100, MinDelayRetries: 100}})
		defer runs(t, w)()
		if _, err := q.Enqueue(t.Context(), mail{"a"}, nil); err != nil {
			t.Fatal(err)
		}
		look(t, admin(q), "")
		for range 90 {
			time.Sleep(time.Second)
			store.version.Add(1)
		}
		for role, want := range map[dashboard.Role]bool{dashboard.Viewer: false, dashboard.Admin: true} {
			_, page := get(as(q, role), "/")
			has(t, role.String(), plain(page), true, "jobs only fail", "far far")
			has(t, role.String(), page, want, "planted")
		}
	})
}

// A hold and the state of an endpoint have texts from the other side.
func TestTexts_by(t *testing.T) {
	q := open(t)
	for _, kind := range []string{"a", "b"} {
		if err := q.Hold(t.Context(), errand.Lane{Kind: kind}, &errand.HoldOptions{Reason: "odd", By: "of ://ann:planted@host"}); err != nil {
			t.Fatal(err)
		}
	}
	hooks, err := webhook.New(q, &webhook.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hooks.Close)
	if _, _, err := hooks.Create(t.Context(), webhook.Endpoint{ID: "far", URL: "https://example.com/"}, webhook.Secret{}); err != nil {
		t.Fatal(err)
	}
	if err := q.Hold(t.Context(), errand.Lane{Queue: webhook.QueueOf("far")}, &errand.HoldOptions{Reason: webhook.HoldDisabled, By: "410 of ://ann:planted@host"}); err != nil {
		t.Fatal(err)
	}
	for role, want := range map[dashboard.Role]bool{dashboard.Operator: false, dashboard.Admin: true} {
		h := as(q, role)
		for _, at := range []string{"/", "/?format=json", "/lane?queue=default&kind=a", "/lane?queue=default&kind=a&format=json"} {
			_, text := get(h, at)
			has(t, role.String()+" "+at, text, want, "planted")
		}
		for _, form := range []url.Values{
			{"do": {"hold"}, "kind": {"a"}, "reason": {"odd"}}, {"do": {"release"}, "kind": {"a"}, "reason": {"odd"}}, {"do": {"enable"}, "endpoint": {"far"}},
		} {
			has(t, role.String()+" "+form.Get("do"), send(h, form).text, want, "planted")
		}
	}
}
