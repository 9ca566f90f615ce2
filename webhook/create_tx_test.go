package webhook_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/webhook"
)

// An endpoint that is created in a transaction is there once that commits, with its secret and its
// throttle, and nothing of it is there if it does not.
func TestCreateTx(t *testing.T) {
	r := newRig(t, webhook.Options{})
	ctx := t.Context()
	undo := errors.New("undo")
	limit := &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 7}}
	var secret webhook.Secret
	for _, end := range []error{undo, nil} {
		err := r.q.Tx(ctx, func(tx *sql.Tx) error {
			e, s, err := r.hooks.CreateTx(ctx, tx, webhook.Endpoint{ID: "a", URL: "https://a.example/in", Policy: limit}, webhook.Secret{})
			if err != nil || e.State != webhook.Enabled || e.Revision == 0 {
				t.Errorf("created: %+v, %v", e, err)
			}
			secret = s
			if _, _, err := r.hooks.CreateTx(ctx, tx, webhook.Endpoint{ID: "a", URL: "https://a.example/in"}, webhook.Secret{}); !errors.Is(err, errand.ErrStale) {
				t.Errorf("once more: %v, want ErrStale", err)
			}
			sent, err := r.hooks.SendTx(ctx, tx, webhook.Message{Body: []byte(`{}`)}, "a")
			if err != nil || len(sent.Jobs) != 1 {
				t.Errorf("sent: %+v, %v", sent, err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		if errors.Is(end, undo) {
			all, err := r.q.Settings(ctx)
			page, listed := r.q.Jobs(ctx, errand.JobFilter{}, nil)
			if _, gone := r.hooks.Endpoint(ctx, "a"); !errors.Is(gone, errand.ErrNotFound) || errors.Join(err, listed) != nil || len(all)+len(page.Jobs) > 0 {
				t.Errorf("a transaction that was rolled back has left %v, %+v, %+v", gone, all, page.Jobs)
			}
		}
	}
	all, err := r.q.Settings(ctx)
	if err != nil || len(all) != 1 || all[0].Queue != "webhook/a" || *all[0].Starts != 7 {
		t.Errorf("the settings: %+v, %v", all, err)
	}
	if got, err := r.hooks.Secrets(ctx, "a"); err != nil || len(got) != 1 || got[0].Reveal() != secret.Reveal() {
		t.Errorf("the secrets: %v, %v", got, err)
	}
	if page, err := r.q.Jobs(ctx, errand.JobFilter{Queue: "webhook/a"}, nil); err != nil || len(page.Jobs) != 1 {
		t.Errorf("the deliveries: %+v, %v", page.Jobs, err)
	}
}

// What a deleted endpoint has left cannot be ended in a transaction.
func TestCreateTx_left(t *testing.T) {
	r := newRig(t, webhook.Options{})
	ctx := t.Context()
	create := func(id string) (err error) {
		return r.q.Tx(ctx, func(tx *sql.Tx) error {
			_, _, err := r.hooks.CreateTx(ctx, tx, webhook.Endpoint{ID: id, URL: "https://a.example/in"}, webhook.Secret{})
			return err
		})
	}
	for id, leave := range map[string]func() error{
		"deliveries": func() error {
			_, err := r.hooks.Send(ctx, webhook.Message{Body: []byte(`{}`)}, "deliveries")
			return errors.Join(err, r.hooks.Delete(ctx, "deliveries"))
		},
		"hold": func() error {
			return errors.Join(r.hooks.Delete(ctx, "hold"),
				r.q.Hold(ctx, errand.Lane{Queue: webhook.QueueOf("hold")}, &errand.HoldOptions{Reason: webhook.HoldDisabled}))
		},
	} {
		r.endpoint(id)
		if err := leave(); err != nil {
			t.Fatal(err)
		}
		refuses(t, create(id), "id")
		r.endpoint(id) // which ends it
		if err := r.hooks.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := create(id); err != nil {
			t.Errorf("%s: once it is ended: %v", id, err)
		}
	}
	_, _, err := r.hooks.CreateTx(ctx, nil, webhook.Endpoint{ID: "b", URL: "https://a.example/in"}, webhook.Secret{})
	refuses(t, err, "tx")
	_, _, err = r.hooks.DeclareTx(ctx, nil, webhook.Endpoint{ID: "b", URL: "https://a.example/in"}, webhook.Secret{})
	refuses(t, err, "tx")
}

// DeclareTx adds, leaves alone and changes, with the transaction.
func TestDeclareTx(t *testing.T) {
	r := newRig(t, webhook.Options{})
	ctx := t.Context()
	undo := errors.New("undo")
	declare := func(e webhook.Endpoint, end error) (is webhook.Endpoint, secret webhook.Secret) {
		t.Helper()
		err := r.q.Tx(ctx, func(tx *sql.Tx) (err error) {
			is, secret, err = r.hooks.DeclareTx(ctx, tx, e, webhook.Secret{})
			return errors.Join(err, end)
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		return is, secret
	}
	e := webhook.Endpoint{ID: "a", URL: "https://a.example/in"}
	first, secret := declare(e, nil)
	if same, s := declare(e, nil); same.Revision != first.Revision || s.Reveal() != secret.Reveal() || s.IsZero() {
		t.Errorf("the same again: %+v after %+v", same, first)
	}
	e.URL = "https://a.example/im"
	e.Policy = &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 9}}
	declare(e, undo)
	if is, err := r.hooks.Endpoint(ctx, "a"); err != nil || is.URL != "https://a.example/in" || is.Revision != first.Revision {
		t.Errorf("rolled back: %+v, %v", is, err)
	}
	declare(e, nil)
	is, err := r.hooks.Endpoint(ctx, "a")
	all, failed := r.q.Settings(ctx)
	if errors.Join(err, failed) != nil || is.URL != e.URL || len(all) != 1 || *all[0].Starts != 9 {
		t.Errorf("changed: %+v, %+v, %v", is, all, errors.Join(err, failed))
	}
}
