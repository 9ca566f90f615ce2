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

func TestDelivery_HasFourPhasesAndLastsLongerThanTheTrouble(t *testing.T) {
	if err := delivery.Validate(); err != nil {
		t.Fatal(err)
	}
	var least time.Duration
	for retry := 0; ; retry++ {
		phase, d, ok := delivery.Next(retry)
		if !ok {
			break
		}
		least += delivery.Jitter.Apply(phase, d, 0)
	}
	if least < refundsFor {
		t.Errorf("all retries may be used up after %v, and refunds are down for %v", least, refundsFor)
	}
	seen := make(map[policy.Phase]time.Duration)
	for retry, at := 0, time.Duration(0); ; retry++ {
		phase, d, ok := delivery.Next(retry)
		if !ok {
			break
		}
		at += d
		if _, ok := seen[phase]; !ok {
			seen[phase] = at
		}
	}
	for _, phase := range []policy.Phase{policy.PhaseImmediate, policy.PhasePreBackoff, policy.PhaseBackoff, policy.PhasePostBackoff} {
		if at, ok := seen[phase]; !ok || at > refundsFor {
			t.Errorf("phase %v begins after %v, too late to be seen", phase, at)
		}
	}
}
