package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

func TestDeliverer(t *testing.T) {
	var status int
	var header string
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.Header().Set("Location", "http://portal.invalid/login")
		w.WriteHeader(status)
		if status != http.StatusNoContent {
			_, _ = io.WriteString(w, "text")
		}
	}))
	deliver := deliverer(newClient(1), func() string { return partner.URL + "/secret" })
	for _, c := range []struct {
		status     int
		retryAfter string
		class      policy.Class
		hint       time.Duration
		text       string
	}{
		{200, "", 0, 0, ""},
		{204, "", 0, 0, ""},
		{500, "", policy.Retryable, 0, "http status 500: text"},
		{503, "", policy.Retryable, 0, "http status 503: text"},
		{503, "1", policy.Throttled, time.Second, "http status 503, retry after 1s: text"},
		{429, "", policy.Throttled, 0, "http status 429: text"},
		{302, "", policy.Unavailable, 0, "http status 302 to http://portal.invalid/login: text"},
		{401, "", policy.Unavailable, 0, "http status 401: text"},
		{400, "", policy.Permanent, 0, "http status 400: text"},
		{404, "", policy.Permanent, 0, "http status 404: text"},
	} {
		status, header = c.status, c.retryAfter
		err := deliver(t.Context(), &errand.Job[OrderEvent]{})
		if c.text == "" {
			if err != nil {
				t.Errorf("%d: %v", c.status, err)
			}
			continue
		}
		hint, _ := policy.RetryAfter(err)
		if err == nil || err.Error() != c.text || policy.Classify(err) != c.class || hint != c.hint {
			t.Errorf("%d: %v, which is %v with the hint %v; want %s, %v, %v", c.status, err, policy.Classify(err), hint, c.text, c.class, c.hint)
		}
	}
	partner.Close()
	err := deliver(t.Context(), &errand.Job[OrderEvent]{})
	if policy.Classify(err) != policy.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("the partner is offline: %v, which is %v", err, policy.Classify(err))
	}
}

// The receiver must refuse refunds often enough for a retry in each phase, and
// not so often that they die while it was also offline for a second.
func TestDelivery_HasFourPhasesThatTheReceiverLeadsThrough(t *testing.T) {
	if err := delivery.Validate(); err != nil {
		t.Fatal(err)
	}
	seen := make(map[policy.Phase]bool)
	for retry := range refundRefusals {
		phase, _, _ := delivery.Next(retry)
		seen[phase] = true
	}
	for _, phase := range []policy.Phase{policy.PhaseImmediate, policy.PhasePreBackoff, policy.PhaseBackoff, policy.PhasePostBackoff} {
		if !seen[phase] {
			t.Errorf("a refund is delivered without a retry of phase %v", phase)
		}
	}
	offline := 0
	for at := time.Duration(0); at < offlineFor; offline++ {
		phase, d, _ := delivery.Next(offline)
		at += delivery.Jitter.Apply(phase, d, 0)
	}
	if most := 1 + offline + refundRefusals; most > delivery.Retries {
		t.Errorf("a refund may fail %d times and has %d retries", most, delivery.Retries)
	}
}
