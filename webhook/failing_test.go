package webhook_test

import (
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

const day = 24 * time.Hour

// slowRetries retries each hour for ever.
var slowRetries = policy.Policy{MinDelay: time.Hour, MaxDelay: time.Hour, Retries: 10_000}

func unreachable(*http.Request) (int, error) { return 0, fmt.Errorf("dial: %w", syscall.ENETUNREACH) }

// An endpoint that fails while another is reached is disabled after five days of that.
func TestFailing_disables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: slowRetries})
		r.endpoint("bad")
		r.endpoint("good")
		r.world.answer("bad.example", always(500))
		stop := r.work()
		defer stop()
		r.send(webhook.Message{})
		for i := range 6 * 24 {
			r.send(webhook.Message{}, "good")
			time.Sleep(time.Hour)
			e := r.get("bad")
			if was := e.State == webhook.Disabled; was != (i > 120) && i != 120 {
				t.Fatalf("after %d h it is %s", i+1, e.State)
			}
			if e.FailingSince.IsZero() {
				t.Fatalf("after %d h it does not fail", i+1)
			}
		}
		if e := r.get("bad"); !strings.Contains(e.Reason, "failed for 5 days in") {
			t.Errorf("reason %q", e.Reason)
		}
		if e := r.get("good"); e.State != webhook.Enabled || !e.FailingSince.IsZero() {
			t.Errorf("the other is %+v", e)
		}
		r.world.answer("bad.example", always(200))
		if _, err := r.hooks.Enable(t.Context(), "bad"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if e := r.get("bad"); e.State != webhook.Enabled || !e.FailingSince.IsZero() {
			t.Errorf("after it was enabled: %+v", e)
		}
	})
}

func (r *rig) get(id string) webhook.Endpoint {
	r.Helper()
	e, err := r.hooks.Endpoint(r.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// Time without a network does not count, nor does time in which nobody was reached.
func TestFailing_offline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: slowRetries, DisableAfter: 10 * time.Hour})
		r.endpoint("bad")
		r.endpoint("good")
		stop := r.work()
		defer stop()
		r.world.answer("bad.example", unreachable)
		r.world.answer("good.example", unreachable)
		r.send(webhook.Message{})
		time.Sleep(12 * time.Hour)
		r.world.answer("good.example", always(200))
		r.world.answer("bad.example", always(500))
		time.Sleep(4 * time.Hour)
		r.send(webhook.Message{}, "good")
		time.Sleep(4 * time.Hour)
		if e := r.get("bad"); e.State == webhook.Disabled || e.FailingSince.IsZero() {
			t.Errorf("after half a day offline it is %+v", e)
		}
		if e := r.get("good"); e.State != webhook.Enabled {
			t.Errorf("the other is %+v", e)
		}
	})
}

// A success between ends the count.
func TestFailing_success(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: slowRetries, DisableAfter: 10 * time.Hour})
		r.endpoint("bad")
		r.endpoint("good")
		stop := r.work()
		defer stop()
		for i := range 40 {
			r.world.answer("bad.example", always(500))
			if i%8 == 7 {
				r.world.answer("bad.example", always(200))
			}
			r.send(webhook.Message{})
			time.Sleep(time.Hour)
		}
		if e := r.get("bad"); e.State != webhook.Enabled {
			t.Errorf("it is %+v", e)
		}
	})
}

// A success in another process ends the count too, though this one has seen none.
func TestFailing_successElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: slowRetries, DisableAfter: 10 * time.Hour})
		other := *r
		other.hooks = r.again(webhook.Options{Policy: slowRetries, DisableAfter: 10 * time.Hour})
		r.endpoint("bad")
		r.endpoint("good")
		for i := range 16 {
			on := r
			r.world.answer("bad.example", always(500))
			if i == 8 {
				on = &other
				r.world.answer("bad.example", always(200))
			}
			stop := on.work()
			on.send(webhook.Message{})
			time.Sleep(time.Hour)
			stop()
		}
		if e := r.get("bad"); e.State != webhook.Enabled || e.FailingSince.IsZero() {
			t.Errorf("it is %+v", e)
		}
	})
}

// Successes that another process has, while this one does nothing, end the count too: what
// is known of an endpoint is read again.
func TestFailing_healthyElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := webhook.Options{Policy: slowRetries, DisableAfter: 10 * time.Hour}
		r := newRig(t, o)
		other := *r
		other.hooks = r.again(o)
		r.endpoint("a")
		one := func(on *rig, status int) {
			r.world.answer("a.example", always(status))
			stop := on.work()
			on.send(webhook.Message{})
			time.Sleep(time.Minute)
			stop()
		}
		one(&other, 200) // which knows of it then
		one(r, 500)
		for range 24 {
			one(&other, 200)
			time.Sleep(59 * time.Minute)
		}
		for range 3 {
			one(&other, 500)
		}
		if e := r.get("a"); e.State != webhook.Enabled {
			t.Errorf("it is %+v", e)
		}
	})
}

// Two failures with days between them are not days of failures.
func TestFailing_farApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: policy.Policy{}})
		r.endpoint("rare")
		r.endpoint("good")
		r.world.answer("rare.example", always(500))
		stop := r.work()
		defer stop()
		for i := range 6 * 24 {
			r.send(webhook.Message{}, "good")
			if i == 0 || i == 6*24-1 {
				r.send(webhook.Message{}, "rare")
			}
			time.Sleep(time.Hour)
		}
		if e := r.get("rare"); e.State != webhook.Enabled || len(r.world.to("rare.example")) != 2 {
			t.Errorf("it is %+v after %d requests", e, len(r.world.to("rare.example")))
		}
	})
}

// A gate that knows of the network counts as an endpoint that is reached.
func TestFailing_online(t *testing.T) {
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gate := new(errand.Switch)
			if !open {
				gate.Close("no carrier")
			}
			r := newRig(t, webhook.Options{Policy: slowRetries, DisableAfter: 10 * time.Hour, Online: gate})
			r.endpoint("bad")
			r.world.answer("bad.example", always(500))
			r.send(webhook.Message{})
			stop := r.work()
			defer stop()
			time.Sleep(day)
			if e := r.get("bad"); (e.State == webhook.Disabled) != open {
				t.Errorf("with a gate that is open: %v, it is %s", open, e.State)
			}
		})
	}
}

// The count goes on after a restart.
func TestFailing_restart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{Policy: slowRetries, DisableAfter: 20 * time.Hour})
		r.endpoint("bad")
		r.endpoint("good")
		r.world.answer("bad.example", always(500))
		r.send(webhook.Message{}, "bad")
		for i := range 30 {
			r.hooks = r.again(webhook.Options{Policy: slowRetries, DisableAfter: 20 * time.Hour})
			stop := r.work()
			r.send(webhook.Message{}, "good")
			time.Sleep(time.Hour)
			stop()
			if e := r.get("bad"); e.State == webhook.Disabled && i < 20 {
				t.Fatalf("disabled after %d h", i)
			}
		}
		if e := r.get("bad"); e.State != webhook.Disabled {
			t.Errorf("it is %+v after 30 h", e)
		}
	})
}
