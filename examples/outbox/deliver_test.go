package main

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

func TestVerdict(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(3 * time.Second).Format(http.TimeFormat)
	failure := fmt.Errorf("status: text")
	permanent := errand.Permanent(failure)
	for _, c := range []struct {
		status     int
		retryAfter string
		want       error
	}{
		{200, "", nil},
		{204, "", nil},
		{500, "", failure},
		{503, "", failure},
		{503, "1", errand.RetryAfter(time.Second, failure)},
		{503, later, errand.RetryAfter(3*time.Second, failure)},
		{503, "soon", failure},
		{503, "-1", failure},
		{429, "", failure},
		{429, "2", errand.RetryAfter(2*time.Second, failure)},
		{301, "", permanent},
		{400, "", permanent},
		{400, "5", permanent},
		{404, "", permanent},
		{408, "", permanent},
	} {
		res := &http.Response{StatusCode: c.status, Status: "status", Header: http.Header{}}
		res.Header.Set("Retry-After", c.retryAfter)
		if got := verdict(res, "text", now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d with Retry-After %q: got %#v, want %#v", c.status, c.retryAfter, got, c.want)
		}
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
