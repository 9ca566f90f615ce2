package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// The program may keep the secrets itself.
func TestOptions_secrets(t *testing.T) {
	secret := webhook.NewSecret()
	var opens atomic.Bool
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Secrets: func(_ context.Context, id string) ([]webhook.Secret, error) {
			if !opens.Load() {
				return nil, errors.New("vault is sealed")
			}
			return []webhook.Secret{secret}, nil
		}})
		_, got, err := r.hooks.Create(t.Context(), webhook.Endpoint{ID: "a", URL: "https://a.example"}, webhook.Secret{})
		if err != nil || !got.IsZero() {
			t.Errorf("created with %v, %v", got, err)
		}
		_, _, err = r.hooks.Create(t.Context(), webhook.Endpoint{ID: "b", URL: "https://a.example"}, secret)
		refuses(t, err, "secret")
		_, err = r.hooks.RotateSecret(t.Context(), "a", secret, 0)
		refuses(t, err, "secret")
		s := r.send(webhook.Message{Body: []byte("{}")}, "a")
		stop := r.work()
		time.Sleep(time.Second / 2) // the next attempt is after a second
		if n := len(r.world.to("a.example")); n != 0 || r.job(s.Jobs[0].ID).Retry != 0 {
			t.Errorf("%d requests without a secret", n)
		}
		opens.Store(true)
		time.Sleep(2 * time.Second)
		stop()
		all := r.world.to("a.example")
		if len(all) != 1 {
			t.Fatalf("%d requests", len(all))
		}
		req, _ := http.NewRequest("POST", "https://a.example", strings.NewReader(all[0].body))
		req.Header = all[0].header
		if _, err := webhook.Verify(req, []webhook.Secret{secret}, 0); err != nil {
			t.Error(err)
		}
	})
}

// While there is no secret that signs, whatever the reason, nothing is sent and nothing is
// spent, however long that takes.
func TestOptions_noSecret(t *testing.T) {
	_, public := webhook.NewKeyPair()
	secrets := map[string]func() ([]webhook.Secret, error){
		"none":      func() ([]webhook.Secret, error) { return nil, nil },
		"outage":    func() ([]webhook.Secret, error) { return nil, errors.New("vault is sealed") },
		"not found": func() ([]webhook.Secret, error) { return nil, fmt.Errorf("vault: %w", errand.ErrNotFound) },
		"corrupt":   func() ([]webhook.Secret, error) { return nil, errand.ErrCorrupt },
		"permanent": func() ([]webhook.Secret, error) { return nil, errand.Permanent(errors.New("no such key")) },
		"not set":   func() ([]webhook.Secret, error) { s, err := webhook.ParseSecret(""); return []webhook.Secret{s}, err },
		"zero":      func() ([]webhook.Secret, error) { return make([]webhook.Secret, 1), nil },
		"public":    func() ([]webhook.Secret, error) { return []webhook.Secret{public}, nil },
		"too many": func() ([]webhook.Secret, error) {
			return slices.Repeat([]webhook.Secret{webhook.NewSecret()}, 100), nil
		},
		"hook is gone": nil,
	}
	for name, hook := range secrets {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mended atomic.Bool
				own := func(context.Context, string) ([]webhook.Secret, error) {
					if hook != nil && !mended.Load() {
						return hook()
					}
					return []webhook.Secret{webhook.NewSecret()}, nil
				}
				r := newRig(t, webhook.Options{Secrets: own})
				r.endpoint("a")
				if hook == nil {
					r.hooks = r.again(webhook.Options{})
				}
				s := r.send(webhook.Message{}, "a")
				stop := r.work()
				time.Sleep(6 * time.Hour)
				j, e := r.job(s.Jobs[0].ID), r.get("a")
				if n := len(r.world.to("a.example")); n != 0 || j.State == errand.Dead || j.Retry != 0 || !strings.Contains(j.Error, webhook.ErrNoSecret.Error()) || !e.FailingSince.IsZero() {
					t.Errorf("%d requests, job %s, retry %d, %q, failing since %v", n, j.State, j.Retry, j.Error, e.FailingSince)
				}
				if _, err := r.hooks.Test(t.Context(), "a"); !errors.Is(err, webhook.ErrNoSecret) {
					t.Errorf("tested: %v", err)
				}
				mended.Store(true)
				if hook == nil {
					if _, err := r.hooks.RotateSecret(t.Context(), "a", webhook.Secret{}, time.Hour); err != nil {
						t.Errorf("no secret can be set: %v", err)
					}
				}
				time.Sleep(10 * time.Minute)
				stop()
				if all := r.world.to("a.example"); len(all) != 1 || all[0].header.Get(webhook.HeaderSignature) == "" {
					t.Errorf("%d requests, not one with a signature", len(all))
				}
			})
		})
	}
}

func TestOptions_unsigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Unsigned: true, Secrets: func(_ context.Context, id string) ([]webhook.Secret, error) {
			if id == "a" {
				return nil, nil
			}
			return nil, errors.New("vault is sealed")
		}})
		r.endpoint("a")
		r.endpoint("b")
		r.send(webhook.Message{})
		stop := r.work()
		time.Sleep(time.Minute)
		stop()
		if all := r.world.to("a.example"); len(all) != 1 || all[0].header.Get(webhook.HeaderSignature) != "" || len(r.world.to("b.example")) != 0 {
			t.Errorf("%+v", r.world.requests)
		}
	})
}
