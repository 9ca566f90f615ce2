package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/webhook"
)

func TestEndpoint_changes(t *testing.T) {
	r := newRig(t, webhook.Options{})
	made, secret, err := r.hooks.Create(t.Context(), webhook.Endpoint{
		URL: "https://a.example/in", Description: "first", Headers: map[string]string{"X-A": "b"},
		Policy: &policy.Document{Retry: &noDelay}, EventTypes: []string{"order.*"}, Revision: 7,
	}, webhook.Secret{})
	if err != nil || secret.IsZero() || !strings.HasPrefix(made.ID, "ep_") || made.State != webhook.Enabled || made.CreatedAt.IsZero() {
		t.Fatalf("made %+v, %v, %v", made, secret, err)
	}
	got, err := r.hooks.Endpoint(t.Context(), made.ID)
	if err != nil || fmt.Sprint(got.EventTypes, got.Headers, got.Description, *got.Policy.Retry) != fmt.Sprint([]string{"order.*"}, map[string]string{"X-A": "b"}, "first", noDelay) {
		t.Errorf("read back %+v, %v", got, err)
	}
	if _, _, err := r.hooks.Create(t.Context(), webhook.Endpoint{ID: made.ID, URL: "https://b.example"}, webhook.Secret{}); !errors.Is(err, errand.ErrStale) || !strings.Contains(err.Error(), "it is there already") {
		t.Errorf("created twice: %v", err)
	}
	got.URL = "https://b.example/in"
	changed, err := r.hooks.Update(t.Context(), got)
	if err != nil || changed.URL != got.URL || changed.Revision <= got.Revision || !changed.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("changed %+v, %v", changed, err)
	}
	if _, err := r.hooks.Update(t.Context(), got); !errors.Is(err, errand.ErrStale) {
		t.Errorf("changed from an old revision: %v", err)
	}
	got.Revision = 0
	if _, err := r.hooks.Update(t.Context(), got); err != nil {
		t.Errorf("changed whatever the revision: %v", err)
	}
	if err := r.hooks.Delete(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
	_, errGet := r.hooks.Endpoint(t.Context(), made.ID)
	_, errUpdate := r.hooks.Update(t.Context(), got)
	_, errSecrets := r.hooks.Secrets(t.Context(), made.ID)
	_, errEnable := r.hooks.Enable(t.Context(), made.ID)
	_, errTest := r.hooks.Test(t.Context(), made.ID)
	_, errReplay := r.hooks.Replay(t.Context(), made.ID, time.Time{})
	_, errSend := r.hooks.Send(t.Context(), webhook.Message{}, made.ID)
	for i, err := range []error{errGet, errUpdate, errSecrets, errEnable, errTest, errReplay, errSend,
		r.hooks.Delete(t.Context(), made.ID), r.hooks.Disable(t.Context(), made.ID, "")} {
		if !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("call %d after the end: %v", i, err)
		}
	}
}

func TestEndpoint_refused(t *testing.T) {
	r := newRig(t, webhook.Options{})
	_, public := webhook.NewKeyPair()
	for _, test := range []struct {
		e      webhook.Endpoint
		secret webhook.Secret
		fields []string
	}{
		{webhook.Endpoint{ID: "-", URL: "https://a.example"}, webhook.Secret{}, []string{"id"}},
		{webhook.Endpoint{ID: strings.Repeat("x", 65), URL: "https://a.example"}, webhook.Secret{}, []string{"id"}},
		{webhook.Endpoint{URL: "http://a.example"}, webhook.Secret{}, []string{"url"}},
		{webhook.Endpoint{URL: "https://10.1.2.3"}, webhook.Secret{}, []string{"url"}},
		{webhook.Endpoint{URL: "https://"}, webhook.Secret{}, []string{"url"}},
		{webhook.Endpoint{URL: "https://ada:pw@a.example"}, webhook.Secret{}, []string{"url"}},
		{webhook.Endpoint{URL: "https://a.example", Headers: map[string]string{"Host": "b"}}, webhook.Secret{}, []string{"headers"}},
		{webhook.Endpoint{URL: "https://a.example", Headers: map[string]string{"X": "a\nb"}}, webhook.Secret{}, []string{`headers["X"]`}},
		{webhook.Endpoint{URL: "https://a.example", Description: strings.Repeat("x", 1025)}, webhook.Secret{}, []string{"description"}},
		{webhook.Endpoint{URL: "https://a.example", Policy: &policy.Document{Retry: &policy.Policy{Retries: -1}}}, webhook.Secret{}, []string{"policy.Retry.Retries"}},
		{webhook.Endpoint{URL: "https://a.example", Policy: &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 10_001}}}, webhook.Secret{}, []string{"policy.Throttle.MaxReceivesPerSecond"}},
		{webhook.Endpoint{URL: "https://a.example", EventTypes: []string{"a", "b c"}}, webhook.Secret{}, []string{"event_types[1]"}},
		{webhook.Endpoint{URL: "https://a.example", EventTypes: []string{".*"}}, webhook.Secret{}, []string{"event_types[0]"}},
		{webhook.Endpoint{URL: "https://a.example", EventTypes: make([]string, 101)}, webhook.Secret{}, []string{"event_types"}},
		{webhook.Endpoint{ID: "a b", URL: "ftp://a.example"}, public, []string{"id", "url", "secret"}},
	} {
		_, _, err := r.hooks.Create(t.Context(), test.e, test.secret)
		refuses(t, err, test.fields...)
	}
	_, _, err := r.hooks.Create(t.Context(), webhook.Endpoint{URL: "http://ada:pw@a.example/token-1?key=token-2#token-3"}, webhook.Secret{})
	if refuses(t, err, "url"); strings.Contains(err.Error(), "token") || strings.Contains(err.Error(), "pw@") || !strings.Contains(err.Error(), "a.example") {
		t.Errorf("a fault of a URL shows more than its host: %v", err)
	}
	if all, err := r.hooks.Endpoints(t.Context(), "", 10); len(all) > 0 || err != nil {
		t.Errorf("there are %v, %v", all, err)
	}
	_, err = r.hooks.Endpoints(t.Context(), "", 0)
	refuses(t, err, "limit")
	_, err = webhook.New(r.q, &webhook.Options{AllowAddresses: []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")}, Timeout: -1, Keep: -1, UserAgent: "a\nb", Policy: policy.Policy{Retries: -1}})
	refuses(t, err, "allow_addresses[0]", "allow_addresses[1]", "timeout", "keep", "user_agent", "policy.Retries")
	_, err = webhook.New(r.q, &webhook.Options{Policy: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 20_000}}})
	refuses(t, err, "policy.Throttle.MaxReceivesPerSecond")
	refuses(t, r.hooks.Throttle(t.Context(), "a", &policy.Throttle{MaxReceivesPerSecond: 10_001}), "throttle.MaxReceivesPerSecond")
	_, err = webhook.New(nil, nil)
	refuses(t, err, "queue")
}

// An endpoint is held by what keeps deliveries to it back, those of topics too.
func TestEndpoint_held(t *testing.T) {
	r := newRig(t, webhook.Options{})
	r.endpoint("a")
	r.endpoint("b")
	for _, test := range []struct {
		lane errand.Lane
		a, b webhook.State
	}{
		{errand.Lane{Queue: webhook.QueueOf("a")}, webhook.Held, webhook.Enabled},
		{errand.Lane{Queue: webhook.QueueOf("a"), Kind: "webhook"}, webhook.Held, webhook.Enabled},
		{errand.Lane{Queue: webhook.QueueOf("a"), Kind: "topic"}, webhook.Held, webhook.Enabled},
		{errand.Lane{Kind: "webhook"}, webhook.Held, webhook.Held},
		{errand.Lane{Kind: "topic"}, webhook.Held, webhook.Held},
		{errand.Lane{Kind: "other"}, webhook.Enabled, webhook.Enabled},
		{errand.Lane{Queue: "other", Kind: "topic"}, webhook.Enabled, webhook.Enabled},
	} {
		if err := r.q.Hold(t.Context(), test.lane, &errand.HoldOptions{Reason: "why"}); err != nil {
			t.Fatal(err)
		}
		if a, b := r.get("a"), r.get("b"); a.State != test.a || b.State != test.b || a.State == webhook.Held && a.Reason != "why" {
			t.Errorf("with a hold of %v: %s for %q, %s", test.lane, a.State, a.Reason, b.State)
		}
		if _, err := r.q.Release(t.Context(), test.lane, "why"); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing that shows endpoints shows a secret.
func TestEndpoint_secretsAreNotShown(t *testing.T) {
	r := newRig(t, webhook.Options{})
	secret := r.endpoint("a")
	r.world.answer("a.example", always(500))
	s := r.send(webhook.Message{Body: []byte("{}")}, "a")
	stop := r.work()
	r.waitFor(s.Jobs[0].ID, errand.Dead)
	stop()
	e, _ := r.hooks.Endpoint(t.Context(), "a")
	all, _ := r.hooks.Endpoints(t.Context(), "", 10)
	shown, err := json.Marshal([]any{e, all, r.job(s.Jobs[0].ID)})
	if err != nil {
		t.Fatal(err)
	}
	if key := strings.TrimPrefix(secret.Reveal(), "whsec_"); strings.Contains(string(shown), key) || len(key) < 20 {
		t.Errorf("shown: %s", shown)
	}
}

// waitFor waits until a delivery is in a state.
func (r *rig) waitFor(id errand.ID, state errand.State) {
	r.Helper()
	sub, err := r.q.Subscribe(r.Context(), errand.EventFilter{}, 100)
	if err != nil {
		r.Fatal(err)
	}
	defer sub.Close()
	for r.job(id).State != state {
		select {
		case <-sub.Events():
		case <-r.Context().Done():
			r.Fatalf("job is %+v, want it %s", r.job(id), state)
		}
	}
}

func TestEndpoint_rotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		first := r.endpoint("a")
		now := func() (all []string) {
			secrets, err := r.hooks.Secrets(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range secrets {
				all = append(all, s.Reveal())
			}
			return all
		}
		second, err := r.hooks.RotateSecret(t.Context(), "a", webhook.Secret{}, time.Hour)
		if got := now(); err != nil || len(got) != 2 || got[0] != second.Reveal() || got[1] != first.Reveal() {
			t.Errorf("%d secrets, %v", len(got), err)
		}
		third := webhook.NewSecret()
		if _, err := r.hooks.RotateSecret(t.Context(), "a", third, time.Minute); err != nil {
			t.Error(err)
		}
		if got := now(); len(got) != 2 || got[0] != third.Reveal() || got[1] != second.Reveal() {
			t.Errorf("%d secrets after the second change", len(got))
		}
		time.Sleep(time.Minute)
		if got := now(); len(got) != 1 || got[0] != third.Reveal() {
			t.Errorf("%d secrets after the overlap", len(got))
		}
		_, err = r.hooks.RotateSecret(t.Context(), "a", webhook.Secret{}, -1)
		refuses(t, err, "overlap")
		stop := r.work()
		s := r.send(webhook.Message{Body: []byte("{}")}, "a")
		time.Sleep(time.Second)
		stop()
		got := r.world.to("a.example")
		if len(got) != 1 || r.job(s.Jobs[0].ID).State != errand.Done {
			t.Fatalf("%d requests", len(got))
		}
		req, _ := http.NewRequest("POST", "https://a.example/in", strings.NewReader(got[0].body))
		req.Header = got[0].header
		if _, err := webhook.Verify(req, []webhook.Secret{third}, 0); err != nil {
			t.Error(err)
		}
	})
}

// The throttle of an endpoint is kept in the file, and holds from its next attempt on.
func TestEndpoint_throttle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 5}}})
		r.endpoint("a")
		r.endpoint("b", func(e *webhook.Endpoint) {
			e.Policy = &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 10}}
		})
		r.endpoint("c", func(e *webhook.Endpoint) { e.Policy = &policy.Document{Throttle: &policy.Throttle{}} })
		for range 100 {
			r.send(webhook.Message{})
		}
		stop := r.work()
		time.Sleep(5 * time.Second)
		for id, want := range map[string]int{"a": 27, "b": 52, "c": 100} {
			if n := len(r.world.to(id + ".example")); n < want-3 || n > want+3 {
				t.Errorf("%d requests to %s in 5 s, want about %d", n, id, want)
			}
		}
		if _, err := r.hooks.Update(t.Context(), webhook.Endpoint{ID: "a", URL: "https://a.example/in", Policy: &policy.Document{Throttle: &policy.Throttle{}}}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		stop()
		if n := len(r.world.to("a.example")); n != 100 {
			t.Errorf("%d requests without a throttle, want all", n)
		}
	})
}

// What an operator has set for the queue of an endpoint stays, unless the endpoint's own
// throttle changes.
func TestEndpoint_updateKeepsSettings(t *testing.T) {
	r := newRig(t, webhook.Options{})
	r.endpoint("a")
	starts := func(want int) {
		t.Helper()
		all, err := r.q.Settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, s := range all {
			if s.Queue == webhook.QueueOf("a") && s.Starts != nil {
				got = *s.Starts
			}
		}
		if got != want {
			t.Errorf("%d starts, want %d", got, want)
		}
	}
	update := func(e webhook.Endpoint) {
		t.Helper()
		e.Revision = 0
		if _, err := r.hooks.Update(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	set := func(n int) {
		t.Helper()
		if err := r.q.Configure(t.Context(), errand.Lane{Queue: webhook.QueueOf("a")}, errand.Settings{Starts: &n}); err != nil {
			t.Fatal(err)
		}
	}
	set(5)
	e := webhook.Endpoint{ID: "a", URL: "https://a.example/in", Description: "new"}
	update(e)
	starts(5)
	e.Policy = &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 7}}
	update(e)
	starts(7)
	set(6)
	e.Policy.Retry = &noDelay
	update(e)
	starts(6)
	e.Policy = nil
	update(e)
	starts(0)
}

// A throttle that is set after a change of the endpoint's own was cut short stays when the endpoint
// is declared again.
func TestEndpoint_throttleAfterOneCutShort(t *testing.T) {
	r := newRig(t, webhook.Options{})
	e := webhook.Endpoint{ID: "a", URL: "https://a.example/in", Policy: &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 7}}}
	declare := func() {
		t.Helper()
		if _, _, err := r.hooks.Declare(t.Context(), e, webhook.Secret{}); err != nil {
			t.Fatal(err)
		}
	}
	declare()
	entries, err := door.Open[errand.NewJob](r.q)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := entries.Entry(t.Context(), "webhook", "a")
	if err != nil {
		t.Fatal(err)
	}
	doc := map[string]any{}
	if err := json.Unmarshal(entry.Doc, &doc); err != nil {
		t.Fatal(err)
	}
	doc["unthrottled"] = true
	if entry.Doc, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	if _, err := entries.PutEntries(t.Context(), []storage.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	if err := r.hooks.Throttle(t.Context(), "a", &policy.Throttle{MaxReceivesPerSecond: 3}); err != nil {
		t.Fatal(err)
	}
	declare()
	all, err := r.q.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Queue == webhook.QueueOf("a") && (s.Starts == nil || *s.Starts != 3) {
			t.Errorf("settings %+v, want 3 starts", s)
		}
	}
}

// What a Delete has left that was cut short, another one deletes.
func TestEndpoint_deleteAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("a")
		s := r.send(webhook.Message{}, "a")
		if err := r.hooks.Disable(t.Context(), "a", "gone"); err != nil {
			t.Fatal(err)
		}
		entries, err := door.Open[errand.NewJob](r.q)
		if err != nil {
			t.Fatal(err)
		}
		e, err := entries.Entry(t.Context(), "webhook", "a")
		if err != nil {
			t.Fatal(err)
		}
		e.Delete = true
		if _, err := entries.PutEntries(t.Context(), []storage.Entry{e}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := r.hooks.Delete(t.Context(), "a"); !errors.Is(err, errand.ErrNotFound) {
				t.Error(err)
			}
		}
		if err := r.hooks.Delete(t.Context(), "-"); !errors.Is(err, errand.ErrNotFound) {
			t.Error(err)
		}
		stop := r.work()
		time.Sleep(time.Second)
		stop()
		if j := r.job(s.Jobs[0].ID); j.State != errand.Cancelled {
			t.Errorf("the delivery is %s", j.State)
		}
		r.endpoint("a") // its secrets are gone too
	})
}
