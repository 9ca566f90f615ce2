package engine

import (
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

func TestSources(t *testing.T) {
	ofQueue, ofKind := NewThrottle(1), NewThrottle(2)
	section := policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 1}}
	none := policy.Document{Throttle: &policy.Throttle{}}
	c := testConfig()
	c.Queues = []string{"plain", "slow", "other", "strict"}
	c.Handlers = map[string]Handler{"a": {}, "b": {}, "kind": {Policy: section, Throttle: ofKind}, "unbound": {Policy: none}}
	c.Settings = map[string]QueueSettings{
		"slow":   {Policy: new(section.Delivery()), Throttle: ofQueue},
		"strict": {Policy: &policy.Topic{DisableSubscriptionOverrides: true}},
	}
	var got []source
	for _, s := range divide(c) {
		got = append(got, *s)
	}
	of := func(t *Throttle, queues, kinds []string) source {
		return source{Want: storage.Want{Queues: queues, Kinds: kinds}, throttle: t}
	}
	want := []source{
		of(nil, []string{"plain", "other"}, []string{"a", "b", "unbound"}),
		of(ofKind, []string{"plain", "slow", "other"}, []string{"kind"}),
		of(ofQueue, []string{"slow"}, []string{"a", "b"}),
		of(nil, []string{"slow"}, []string{"unbound"}),
		of(nil, []string{"strict"}, []string{"a", "b", "kind", "unbound"}),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	c.Settings, c.Handlers = nil, map[string]Handler{"a": {}, "b": {}}
	if got := divide(c); len(got) != 1 || got[0].throttle != nil || len(got[0].Queues) != 4 || len(got[0].Kinds) != 2 {
		t.Errorf("without throttles: %+v", got)
	}
}

func TestThrottle_Claims(t *testing.T) {
	th := NewThrottle(100) // 10 at a time
	now := t0
	claim := func(after time.Duration, want, granted int) {
		t.Helper()
		now = now.Add(after)
		if got := th.claim(now, want); got != granted {
			t.Errorf("at %v: %d of %d were granted, want %d", now.Sub(t0), got, want, granted)
		}
	}
	claim(0, 100, 10)
	claim(0, 1, 0)
	claim(10*time.Millisecond, 1, 1)
	claim(40*time.Millisecond, 100, 0) // 4 are less than half a batch
	if got := th.next(now, 100); got.Sub(now) < 10*time.Millisecond || got.Sub(now) > 11*time.Millisecond {
		t.Errorf("next in %v, want 10ms", got.Sub(now))
	}
	claim(11*time.Millisecond, 100, 5)
	th.refund(5)
	claim(0, 3, 3)
	claim(-time.Hour, 1, 1)
	claim(time.Hour, 100, 0) // that hour is not over again: 1 is left
	claim(0, 1, 1)
	th.refund(10)
	claim(time.Second, 100, 10) // not 20
	claim(0, 1, 0)
	if n := NewThrottle(1).claim(t0, 5); n != 1 {
		t.Errorf("%d were granted by a throttle of 1", n)
	}
}
