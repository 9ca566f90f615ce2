package policy_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
)

func TestDelivery_OfAllForms(t *testing.T) {
	p := policy.Default()
	d := policy.Document{
		Retry: &p, ThrottledRetry: &p, Throttle: &policy.Throttle{MaxReceivesPerSecond: 7},
		Request: &policy.Request{ContentType: "text/csv"},
	}
	top := policy.Topic{Document: d, DisableSubscriptionOverrides: true}
	alone := policy.Topic{Document: policy.Document{Retry: &p}}
	for _, c := range []struct {
		give policy.Delivery
		want policy.Topic
	}{
		{p, alone},
		{&p, alone},
		{policy.Policy{}, policy.Topic{Document: policy.Document{Retry: &policy.Policy{}}}},
		{d, policy.Topic{Document: d}},
		{&d, policy.Topic{Document: d}},
		{policy.Document{}, policy.Topic{}},
		{top, top},
		{&top, top},
	} {
		if got := c.give.Delivery(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T gave %+v, want %+v", c.give, got, c.want)
		}
		if err := c.give.Validate(); err != nil {
			t.Errorf("%T is refused: %v", c.give, err)
		}
	}
	got := top.Delivery()
	p.Retries, d.Throttle.MaxReceivesPerSecond, d.Request.ContentType = 1, 1, "text/css"
	if got.Retry.Retries != 27 || got.ThrottledRetry.Retries != 27 || got.Throttle.MaxReceivesPerSecond != 7 ||
		got.Request.ContentType != "text/csv" {
		t.Errorf("the result has changed with what it was made from: %+v", got)
	}
}

func TestDocument_Validate(t *testing.T) {
	bad := policy.Document{
		Retry:          &policy.Policy{Retries: -1, MinDelay: time.Second},
		ThrottledRetry: &policy.Policy{Jitter: 9},
		Throttle:       &policy.Throttle{MaxReceivesPerSecond: -5},
		Request:        &policy.Request{ContentType: "image/*"},
	}
	want := [][2]string{
		{"Retry.MaxDelay", "0s"}, {"Retry.Retries", "-1"}, {"ThrottledRetry.Jitter", "Jitter(9)"},
		{"Throttle.MaxReceivesPerSecond", "-5"}, {"Request.ContentType", `"image/*"`},
	}
	for _, d := range []policy.Delivery{bad, &bad, policy.Topic{Document: bad}} {
		var got [][2]string
		for _, f := range policy.Faults(d.Validate()) {
			got = append(got, [2]string{f.Path, f.Value})
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%T: faults %q, want %q", d, got, want)
		}
	}
	fine := policy.Document{
		Throttle: &policy.Throttle{}, Request: &policy.Request{ContentType: "Text/CSV; charset=latin1"},
	}
	if err := fine.Validate(); err != nil {
		t.Error(err)
	}
}

// What is valid can be written and read.
func TestDocument_ValidIsReadable(t *testing.T) {
	for _, d := range []policy.Document{
		{}, {Throttle: &policy.Throttle{}}, {Throttle: &policy.Throttle{MaxReceivesPerSecond: 1<<31 - 1}},
		{Request: &policy.Request{}}, {Request: &policy.Request{ContentType: "text/csv"}},
	} {
		data, err := json.Marshal(d)
		if err != nil || d.Validate() != nil {
			t.Fatalf("%+v: %v %v", d, err, d.Validate())
		}
		if _, err := policy.ParseDocument(data, policy.ProfileQueue); err != nil {
			t.Errorf("%s: %v", data, err)
		}
	}
}
