package engine

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

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
	for _, s := range divide(c, newBounds(c)) {
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
	if got := divide(c, newBounds(c)); len(got) != 1 || got[0].throttle != nil || len(got[0].Queues) != 4 || len(got[0].Kinds) != 2 {
		t.Errorf("without throttles: %+v", got)
	}
}

func TestSources_Bounds(t *testing.T) {
	th := NewThrottle(1)
	c := testConfig()
	c.Concurrency, c.Queues = 8, []string{"free", "small", "wide"}
	c.Handlers = map[string]Handler{"a": {}, "b": {}, "one": {Concurrency: 1}, "wide": {Concurrency: 8}}
	c.Settings = map[string]QueueSettings{"small": {Concurrency: 7}, "wide": {Concurrency: 9, Throttle: th}}
	type part struct {
		queues, kinds string
		throttle      *Throttle
		bounds        []bound
	}
	var got []part
	shared := map[*bound]int{}
	for _, s := range divide(c, newBounds(c)) {
		p := part{queues: strings.Join(s.Queues, " "), kinds: strings.Join(s.Kinds, " "), throttle: s.throttle}
		for _, b := range s.bounds {
			p.bounds = append(p.bounds, *b)
			shared[b]++
		}
		got = append(got, p)
	}
	seven, one := bound{limit: 7, most: 7}, bound{limit: 1, most: 1}
	eight, nine := bound{limit: 8, most: math.MaxInt}, bound{limit: 9, most: math.MaxInt} // only the runners count
	want := []part{
		{"free", "one", nil, []bound{one}},
		{"small", "a b", nil, []bound{seven}},
		{"small", "one", nil, []bound{seven, one}},
		{"small", "wide", nil, []bound{seven, eight}},
		{"wide", "one", th, []bound{nine, one}},
		{"free", "a b", nil, nil},
		{"free", "wide", nil, []bound{eight}},
		{"wide", "a b", th, []bound{nine}},
		{"wide", "wide", th, []bound{nine, eight}},
	}
	if !reflect.DeepEqual(got, want) || len(shared) != 4 {
		t.Errorf("%d different bounds\ngot  %+v\nwant %+v", len(shared), got, want)
	}
}

// However sources share bounds, what they are granted keeps to all of these and to
// what is free, and leaves nothing that one of them could have had.
func TestShare_KeepsToBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var bounds []*bound
		for range rapid.IntRange(1, 4).Draw(t, "bounds") {
			most := rapid.IntRange(1, 10).Draw(t, "most")
			bounds = append(bounds, &bound{most: most, held: rapid.IntRange(0, most).Draw(t, "held")})
		}
		var from []*source
		for range rapid.IntRange(1, 5).Draw(t, "sources") {
			s := &source{}
			for _, b := range bounds {
				if rapid.Bool().Draw(t, "has") {
					s.bounds = append(s.bounds, b)
				}
			}
			from = append(from, s)
		}
		free := rapid.IntRange(0, 30).Draw(t, "free")
		share(slices.Clone(from), free, t0)
		total, asked := 0, map[*bound]int{}
		for _, s := range from {
			total += s.N
			for _, b := range s.bounds {
				asked[b] += s.N
			}
		}
		for b, n := range asked {
			if b.claimed != n || b.held+n > b.most {
				t.Fatalf("%d are asked for beside %+v", n, *b)
			}
		}
		for _, s := range from {
			if total > free || total < free && s.room() > 0 {
				t.Fatalf("%d of %d are asked for, and a source has room for %d", total, free, s.room())
			}
		}
	})
}

// A call that tries how many jobs it may have is one call.
func TestSource_claimsForASize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bound{most: 1}
		s := &source{batch: &Batch{Max: 10}, bounds: []*bound{b}, throttle: NewThrottle(1000)}
		s.sizing = &sizing{passed: 2, refused: 10, at: time.Now()}
		if n := s.claim(time.Now(), 5); n != 1 || b.claimed != 1 || s.N != 6 {
			t.Errorf("%d calls of %d jobs, of which %d are counted, want one of 6", n, s.N, b.claimed)
		}
	})
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

// A queue with a handler of all kinds has one source, which leaves out kinds that open gently and
// queues of its prefix that are listed by themselves.
func TestSources_AllKinds(t *testing.T) {
	c := testConfig()
	c.Queues = []string{"plain", "out", "web/*", "web/own"}
	c.Handlers = map[string]Handler{"a": {Concurrency: 1}, "b": {}}
	c.QueueHandlers = map[string]Handler{"out": {}, "web/*": {Batch: &Batch{Max: 10}}}
	b := newBounds(c)
	b.ramps = map[storage.Lane]*ramp{{Queue: "out", Kind: "a"}: {}, {Queue: "web/x", Kind: "b"}: {}, {Queue: "web/*", Kind: "a"}: {}}
	var got []string
	all := divide(c, b)
	for _, s := range all {
		got = append(got, fmt.Sprint(s.Queues, s.Kinds, s.Except, len(s.bounds), s.batch != nil))
	}
	slices.Sort(got)
	want := []string{
		"[out] [*] [{out a}] 0 false",
		"[out] [a] [] 1 false",
		"[plain web/own] [a] [] 1 false",
		"[plain web/own] [b] [] 0 false",
		"[web/*] [*] [{web/own *} {web/x *} {web/* a}] 0 true",
		"[web/*] [a] [{web/own a} {web/x a}] 1 true",
		"[web/x] [*] [{web/x a} {web/x b}] 0 true",
		"[web/x] [a] [] 1 true",
		"[web/x] [b] [] 1 true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s := sources{all: all, lanes: lanesOf(all), listed: c.Queues, open: true}
	for lane, want := range map[storage.Lane]string{
		{Queue: "out", Kind: "new"}: "[out][*]", {Queue: "out", Kind: "a"}: "[out][a]", {Queue: "web/y", Kind: "a"}: "[web/*][a]",
		{Queue: "web/y", Kind: "b"}: "[web/*][*]", {Queue: "web/x", Kind: "b"}: "[web/x][b]", {Queue: "web/x", Kind: "new"}: "[web/x][*]",
		{Queue: "web/own", Kind: "b"}: "[plain web/own][b]",
	} {
		if o := s.find(lane); o == nil || fmt.Sprint(o.Queues, o.Kinds) != strings.Replace(want, "][", "] [", 1) {
			t.Errorf("%v is of %v, want %s", lane, o, want)
		}
	}
	for _, lane := range []storage.Lane{{Queue: "web/own", Kind: "new"}, {Queue: "other", Kind: "a"}} {
		if o := s.find(lane); o != nil {
			t.Errorf("%v is of %v, want none", lane, o.Want)
		}
	}
}
