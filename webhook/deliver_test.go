package webhook_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/webhook"
)

func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("all")
		r.endpoint("orders", func(e *webhook.Endpoint) { e.EventTypes = []string{"order.*"} })
		r.endpoint("one", func(e *webhook.Endpoint) { e.EventTypes = []string{"order.paid", "x"} })
		for _, test := range []struct {
			m    webhook.Message
			to   []string
			want string
		}{
			{webhook.Message{Type: "order.paid"}, nil, "all one orders"},
			{webhook.Message{Type: "order.sent"}, nil, "all orders"},
			{webhook.Message{Type: "order"}, nil, "all"},
			{webhook.Message{}, nil, "all"},
			{webhook.Message{Type: "x"}, []string{"orders", "one", "one"}, "one"},
			{webhook.Message{Type: "y"}, []string{"orders"}, ""},
		} {
			s := r.send(test.m, test.to...)
			if got := strings.Join(s.Endpoints, " "); got != test.want || len(s.Jobs) != len(s.Endpoints) || s.ID == "" {
				t.Errorf("%+v: sent to %q, want %q", test.m, got, test.want)
			}
		}
		if s := r.send(webhook.Message{ID: "m1", Body: []byte("first")}, "all"); s.Duplicate {
			t.Errorf("%+v", s)
		}
		if s := r.send(webhook.Message{ID: "m1", Body: []byte("second")}, "all"); !s.Duplicate || s.Jobs != nil || s.Endpoints != nil || s.ID != "m1" {
			t.Errorf("the second of an ID: %+v", s)
		}
		stop := r.work()
		time.Sleep(time.Second)
		stop()
		got := r.world.to("all.example")
		last := got[len(got)-1]
		if len(got) != 5 || last.id != "m1" || last.body != "first" || last.header.Get(webhook.HeaderEndpoint) != "all" ||
			last.header.Get(webhook.HeaderAttempt) != "1" || last.header.Get("Content-Type") != "application/json" {
			t.Errorf("%d requests, the last %+v", len(got), last)
		}
	})
}

func TestSend_refused(t *testing.T) {
	r := newRig(t, webhook.Options{})
	r.endpoint("a")
	_, err := r.hooks.Send(t.Context(), webhook.Message{ID: "a.b", Type: "a b", ContentType: "image/*", Body: make([]byte, 256<<10+1)}, "a")
	refuses(t, err, "id", "type", "content_type", "body")
	_, err = r.hooks.Send(t.Context(), webhook.Message{}, "a", "b c")
	refuses(t, err, "endpoints[1]")
	_, err = r.hooks.Send(t.Context(), webhook.Message{}) // as a list that turned out empty does
	refuses(t, err, "endpoints")
	_, err = r.hooks.Send(t.Context(), webhook.Message{}, make([]string, 1001)...)
	refuses(t, err, "endpoints")
	if _, err = r.hooks.Send(t.Context(), webhook.Message{}, "a", "b"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("sent to one that is not there: %v", err)
	}
	if counts, err := r.q.Counts(t.Context()); len(counts) > 0 || err != nil {
		t.Errorf("there are %v, %v", counts, err)
	}
}

func TestSendTx(t *testing.T) {
	r := newRig(t, webhook.Options{})
	r.endpoint("a")
	errNo := errors.New("no")
	for _, want := range []error{errNo, nil} {
		err := r.q.Tx(t.Context(), func(tx *sql.Tx) error {
			_, err := r.hooks.SendTx(t.Context(), tx, webhook.Message{ID: "m1"}, "a")
			return errors.Join(err, want)
		})
		if !errors.Is(err, want) {
			t.Error(err)
		}
	}
	if counts, err := r.q.Counts(t.Context()); len(counts) != 1 || counts[0].N != 1 || err != nil {
		t.Errorf("there are %v, %v", counts, err)
	}
}

// What becomes of a delivery, by what the endpoint answers.
func TestDeliver(t *testing.T) {
	refused := func(*http.Request) (int, error) { return 0, fmt.Errorf("dial: %w", syscall.ECONNREFUSED) }
	for name, test := range map[string]struct {
		answer   func(*http.Request) (int, error)
		state    errand.State
		retry    int
		requests int
		held     string
		text     string
	}{
		"200":     {always(200), errand.Done, 0, 1, "", ""},
		"204":     {always(204), errand.Done, 0, 1, "", ""},
		"302":     {always(302), errand.Dead, 5, 6, "", "302"},
		"400":     {always(400), errand.Dead, 5, 6, "", "said 400"},
		"401":     {always(401), errand.Dead, 5, 6, "", "401"},
		"404":     {always(404), errand.Dead, 5, 6, "", "404"},
		"410":     {always(410), errand.Ready, 0, 1, webhook.HoldDisabled, ""},
		"500":     {always(500), errand.Dead, 5, 6, "", "500"},
		"refused": {refused, errand.Scheduled, 0, 5, "unavailable", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, webhook.Options{})
				r.endpoint("a")
				r.world.answer("a.example", test.answer)
				s := r.send(webhook.Message{Body: []byte("{}")}, "a")
				stop := r.work()
				time.Sleep(time.Minute)
				stop()
				j := r.job(s.Jobs[0].ID)
				if test.held == "unavailable" { // how soon it is tried again is the engine's business
					test.requests, test.state = len(r.world.to("a.example")), j.State
				}
				if j.State != test.state || min(j.Retry, 5) != test.retry || len(r.world.to("a.example")) != test.requests || !strings.Contains(j.Error, test.text) {
					t.Errorf("%s after %d requests and %d retries, error %q", j.State, len(r.world.to("a.example")), j.Retry, j.Error)
				}
				holds, err := r.q.Holds(t.Context())
				if err != nil || len(holds) > 1 || (len(holds) == 1) != (test.held != "") || len(holds) == 1 && holds[0].Reason != test.held {
					t.Errorf("holds %+v, %v; %+v after %d", holds, err, j, len(r.world.to("a.example")))
				}
			})
		})
	}
}

// An endpoint that answers 410 is disabled. Messages are taken for it, and sent once it is
// enabled again.
func TestDeliver_gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("a")
		r.world.answer("a.example", always(410))
		first := r.send(webhook.Message{ID: "m1"}, "a")
		stop := r.work()
		defer stop()
		time.Sleep(time.Second)
		second := r.send(webhook.Message{ID: "m2"}, "a")
		time.Sleep(time.Hour)
		e, err := r.hooks.Endpoint(t.Context(), "a")
		if err != nil || e.State != webhook.Disabled || !strings.Contains(e.Reason, "410") || e.Since.IsZero() {
			t.Errorf("endpoint %+v, %v", e, err)
		}
		if n := len(r.world.to("a.example")); n != 1 {
			t.Errorf("%d requests to a disabled endpoint, want the one", n)
		}
		r.world.answer("a.example", always(200))
		if was, err := r.hooks.Enable(t.Context(), "a"); !was || err != nil {
			t.Errorf("enabled %v, %v", was, err)
		}
		time.Sleep(time.Second)
		time.Sleep(time.Second)
		for _, s := range []webhook.Sent{first, second} {
			if j := r.job(s.Jobs[0].ID); j.State != errand.Done {
				t.Errorf("message %s is %s", s.ID, j.State)
			}
		}
		if was, err := r.hooks.Enable(t.Context(), "a"); was || err != nil {
			t.Errorf("enabled again %v, %v", was, err)
		}
	})
}

// What an endpoint is counts when the request is made, not when the message was sent.
func TestDeliver_byWhatIsSetNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		for _, id := range []string{"moves", "deleted", "types", "policy"} {
			r.endpoint(id)
		}
		s := r.send(webhook.Message{Type: "order.paid", Body: []byte("{}")})
		update := func(e webhook.Endpoint) {
			if _, err := r.hooks.Update(t.Context(), e); err != nil {
				t.Error(err)
			}
		}
		update(webhook.Endpoint{ID: "moves", URL: "https://new.example", Headers: map[string]string{"X-Token": "abc"}})
		update(webhook.Endpoint{ID: "types", URL: "https://types.example", EventTypes: []string{"user.*"}})
		update(webhook.Endpoint{ID: "policy", URL: "https://policy.example", Policy: &policy.Document{
			Retry: &policy.Policy{Retries: 1, NoDelayRetries: 1}, Request: &policy.Request{ContentType: "text/plain"}}})
		if err := r.hooks.Delete(t.Context(), "deleted"); err != nil {
			t.Error(err)
		}
		r.world.answer("policy.example", always(500))
		stop := r.work()
		time.Sleep(time.Second)
		stop()
		want := map[string]errand.State{"moves": errand.Done, "deleted": errand.Cancelled, "types": errand.Cancelled, "policy": errand.Dead}
		for i, id := range s.Endpoints {
			if j := r.job(s.Jobs[i].ID); j.State != want[id] {
				t.Errorf("delivery to %s is %s (%s), want %s", id, j.State, j.Error, want[id])
			}
		}
		if got := r.world.to("new.example"); len(got) != 1 || got[0].header.Get("X-Token") != "abc" {
			t.Errorf("to the new URL: %+v", got)
		}
		if got := r.world.to("policy.example"); len(got) != 2 || got[1].header.Get("Content-Type") != "text/plain" || got[1].header.Get(webhook.HeaderAttempt) != "2" {
			t.Errorf("by the new policy: %+v", got)
		}
	})
}

// Messages of a group come in order, also after a failure; others are not kept back.
func TestDeliver_group(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: policy.Policy{Retries: 9, MinDelay: time.Second, MaxDelay: time.Second}})
		r.endpoint("a")
		failures := 2
		r.world.answer("a.example", func(req *http.Request) (int, error) {
			if req.Header.Get(webhook.HeaderID) == "m0" && failures > 0 {
				failures--
				return 500, nil
			}
			return 200, nil
		})
		for i := range 6 {
			r.send(webhook.Message{ID: fmt.Sprint("m", i), Group: fmt.Sprint(i % 2)}, "a")
		}
		stop := r.work()
		time.Sleep(time.Minute)
		stop()
		var order []string
		for _, s := range r.world.to("a.example") {
			order = append(order, s.id)
		}
		if got := strings.Join(order, " "); got != "m0 m1 m3 m5 m0 m0 m2 m4" {
			t.Errorf("order %s", got)
		}
	})
}

func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Keep: time.Hour})
		r.endpoint("a")
		r.endpoint("b", func(e *webhook.Endpoint) { e.EventTypes = []string{"order.*"} })
		stop := r.work()
		defer stop()
		for i := range 4 {
			r.send(webhook.Message{ID: fmt.Sprint("m", i), Type: []string{"order.paid", "user.new"}[i%2], Body: fmt.Append(nil, i)}, "a")
			time.Sleep(time.Minute)
		}
		from := time.Now().Add(-3*time.Minute - time.Second) // after m0
		if n, err := r.hooks.Replay(t.Context(), "b", from); n != 1 || err != nil {
			t.Errorf("%d, %v: want m2", n, err)
		}
		if n, err := r.hooks.Replay(t.Context(), "a", time.Time{}); n != 4 || err != nil {
			t.Errorf("%d, %v: want all", n, err)
		}
		time.Sleep(time.Second)
		if got := r.world.to("b.example"); len(got) != 1 || got[0].id != "m2" || got[0].body != "2" {
			t.Errorf("replayed %+v", got)
		}
		if got := r.world.to("a.example"); len(got) != 8 || got[4].id != "m0" || got[4].body != "0" {
			t.Errorf("%d requests", len(got))
		}
	})
}

func TestTest(t *testing.T) {
	r := newRig(t, webhook.Options{})
	r.endpoint("a")
	if a, err := r.hooks.Test(t.Context(), "a"); err != nil || a.Status != 200 || a.Text != "said 200" {
		t.Errorf("%+v, %v", a, err)
	}
	r.world.answer("a.example", always(418))
	a, err := r.hooks.Test(t.Context(), "a")
	if status, ok := errors.AsType[*policy.StatusError](err); !ok || status.Status != 418 || a.Status != 418 {
		t.Errorf("%+v, %v", a, err)
	}
	if holds, err := r.q.Holds(t.Context()); len(holds) > 0 || err != nil {
		t.Errorf("holds %v, %v", holds, err)
	}
}
