package selector

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// plain is a dialect with as little as there can be.
func plain() Dialect {
	live := Rows{
		From: "live j", ID: "j.id", Salt: "j.salt", State: "j.state", Lane: "j.lane", Priority: "j.priority", DueAt: "j.due_at",
		CreatedAt: "j.created_at", Error: "j.error", Waits: true,
	}
	dead := live
	dead.From, dead.State, dead.EndedAt, dead.Reason, dead.Waits = "dead j", "6", "j.ended_at", "j.reason", false
	blocked := live
	blocked.Mark = "j.groups"
	return Dialect{
		Param: func(n int, name string) string { return fmt.Sprintf("{%d %s}", n, name) },
		Part:  func(text string) any { return text },
		Lanes: "lane", Contains: "has(%s, @error)", HasTag: "false", Failed: "j.failed",
		Live: live, Finished: dead, Dead: dead, Running: live, Few: live, Passed: live, FinishedPassed: dead, Blocked: blocked, Behind: live,
		Group: Members{[]Rows{live}, []Rows{live}, []Rows{dead}, []Rows{dead}, []Rows{live, dead}},
	}
}

// A parameter has the same number wherever it is in a text.
func TestNew_Numbers(t *testing.T) {
	s := New(plain())
	for _, w := range s.Walks() {
		of := map[string]string{}
		for _, part := range strings.Split(s.Text(w), "{")[1:] {
			number, name, _ := strings.Cut(part, " ")
			name, _, _ = strings.Cut(name, "}")
			if of[name] == "" {
				of[name] = number
				if number != fmt.Sprint(len(of)) {
					t.Errorf("%s: parameter %s is the number %s, want %d", w, name, number, len(of))
				}
			}
			if of[name] != number {
				t.Errorf("%s: parameter %s has the numbers %s and %s", w, name, of[name], number)
			}
		}
		if len(of) == 0 {
			t.Errorf("%s has no parameters:\n%s", w, s.Text(w))
		}
	}
}

// Only with an error does a list look at errors, and nothing matches where it looks for a key.
func TestNew_Errors(t *testing.T) {
	s := New(plain())
	for _, w := range s.Walks() {
		base, with := strings.CutSuffix(string(w), WithError)
		if got, want := strings.Contains(s.Text(w), "has("), with || strings.HasPrefix(base, "step"); got != want {
			t.Errorf("%s looks at errors: %t, want %t", w, got, want)
		}
	}
	if text := s.Text(ListFrom); strings.Count(text, "FALSE") != 3 || strings.Contains(text, "states") {
		t.Error(text)
	}
}

// Where pairs enter an index a walk by time is one query, and else two.
func TestNew_Pairs(t *testing.T) {
	d := plain()
	for _, c := range []struct {
		pairs, apart bool
		selects      int
		orders       int
	}{{false, false, 2, 1}, {false, true, 2, 3}, {true, true, 1, 1}} {
		d.Pairs, d.Apart = c.pairs, c.apart
		text := New(d).Text(StepDead)
		if n := strings.Count(text, "SELECT"); n != c.selects {
			t.Errorf("pairs %t: %d queries, want %d:\n%s", c.pairs, n, c.selects, text)
		}
		if n := strings.Count(text, "ORDER BY"); n != c.orders {
			t.Errorf("apart %t: %d orders, want %d:\n%s", c.apart, n, c.orders, text)
		}
	}
}

// What a dialect lacks finds no job, and is not left out of the conditions.
func TestStep_Lacking(t *testing.T) {
	s := New(plain())
	for _, c := range []struct {
		walk Walk
		f    storage.Filter
		ok   bool
	}{
		{StepDead, storage.Filter{}, true},
		{StepDead, storage.Filter{Cause: 1}, false},
		{StepDead, storage.Filter{Queue: "q", Group: "g", Cause: 1}, false},
		{StepDead, storage.Filter{States: []storage.State{storage.Done}}, false},
		{StepFinished, storage.Filter{States: []storage.State{storage.Done}}, true},
		{StepFinished, storage.Filter{DueFrom: time.Unix(1, 0)}, false},
		{StepLive, storage.Filter{Reason: storage.ReasonPermanent}, false},
		{StepLive, storage.Filter{Tag: "t"}, true}, // HasTag is false
		{StepWaiting, storage.Filter{States: []storage.State{storage.Ready}}, false},
		{StepFew, storage.Filter{Queue: "q", Group: "g"}, true},
	} {
		q, ok := s.Step(c.walk, &storage.Selection{Filter: c.f}, storage.Waiting{}, 5, 10)
		if ok != c.ok || ok == (q.Text == "") {
			t.Errorf("%s of %+v: %t, %q; want %t", c.walk, c.f, ok, q.Text, c.ok)
		}
	}
}

// A walk by time goes on behind its place, and never out of the filter's period.
func TestValues_by(t *testing.T) {
	const least, most = int64(math.MinInt64), int64(math.MaxInt64)
	for _, c := range []struct {
		p         period
		at        int64
		order     direction
		low, high int64
		rest      int64 // past or until
	}{
		{period{least, most}, least, up, least, most, least},
		{period{3, 9}, least, up, 3, 9, 2},
		{period{3, 9}, 5, up, 5, 9, 5},
		{period{3, 9}, 1, up, 3, 9, 2},
		{period{least, most}, most, down, least, most, most},
		{period{3, 9}, most, down, 3, 9, 9},
		{period{3, 9}, 5, down, 3, 6, 5},
		{period{3, 9}, 20, down, 3, 9, 9},
	} {
		var v values
		v.by(c.p, c.at, 7, c.order)
		of := func(name string) any { return v[slices.Index(params[:], name)] }
		rest := of("past")
		if c.order == down {
			rest = of("until")
		}
		if of("at") != c.at || of("low") != c.low || of("high") != c.high || rest != c.rest {
			t.Errorf("%+v: %v", c, v)
		}
	}
}

// A time beyond what a table can have bounds as the last that it can have.
func TestBound(t *testing.T) {
	far := time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]int64{
		time.UnixMicro(5): 5, time.Unix(0, 5001): 6, far: math.MaxInt64, time.Unix(-far.Unix(), 0): math.MinInt64,
	} {
		if got := Bound(at); got != want {
			t.Errorf("the bound %v is %d, want %d", at, got, want)
		}
	}
	if p := between(time.Time{}, time.Time{}); p != (period{math.MinInt64, math.MaxInt64}) {
		t.Errorf("no bounds are %+v", p)
	}
	for before, want := range map[time.Time]int64{{}: math.MaxInt64, time.UnixMicro(5): 4, time.Unix(-far.Unix(), 0): math.MinInt64} {
		if got := between(time.Time{}, before).last(); got != want {
			t.Errorf("the last time before %v is %d, want %d", before, got, want)
		}
	}
}
