package gate_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
)

// fixed is a gate that never changes.
type fixed bool

func (f fixed) State() (bool, string, <-chan struct{}) { return bool(f), "for ever", nil }

func TestCombine_States(t *testing.T) {
	a, b := new(errand.Switch), new(errand.Switch)
	all, some := must(gate.All(a, b)), must(gate.Any(a, b))
	not := must(gate.Not(a, "a is open"))
	for _, c := range []struct {
		a, b           string // reasons; "" is open
		all, any, nota string
	}{
		{"", "", "", "", "a is open"},
		{"", "b", "b", "", "a is open"},
		{"a", "b", "a", "a; b", ""},
		{"a", "", "a", "", ""},
	} {
		for s, reason := range map[*errand.Switch]string{a: c.a, b: c.b} {
			if s.Open(); reason != "" {
				s.Close(reason)
			}
		}
		for g, reason := range map[errand.Gate]string{all: c.all, some: c.any, not: c.nota} {
			if isClosed(want(t, g, reason == "", reason)) {
				t.Errorf("%+v: the channel is closed already", c)
			}
		}
	}
}

// rest lets the goroutines of combined gates end, as the bubble of a test demands.
func rest() { time.Sleep(time.Minute) }

// Whichever part makes the answer another one, the channel is closed.
func TestCombine_Changes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer rest()
		for name, combine := range map[string]func(...errand.Gate) (errand.Gate, error){"All": gate.All, "Any": gate.Any} {
			for before := range 8 {
				for flipped := range 3 {
					var s [3]errand.Switch
					for i := range s {
						set(&s[i], before>>i&1 == 1)
					}
					g := must(combine(&s[0], &s[1], &s[2]))
					was, _, changed := g.State()
					set(&s[flipped], before>>flipped&1 == 0)
					synctest.Wait()
					if is, _, _ := g.State(); is != was && !isClosed(changed) {
						t.Errorf("%s of %03b: flipping %d makes it %t, and the channel is open", name, before, flipped, is)
					}
				}
			}
		}
	})
}

func set(s *errand.Switch, open bool) {
	if open {
		s.Open()
	} else {
		s.Close("shut")
	}
}

func TestCombine_Fixed(t *testing.T) {
	s := new(errand.Switch)
	for i, c := range []struct {
		gate errand.Gate
		open bool
		same bool // the channel is that of s
	}{
		{must(gate.All(fixed(true), fixed(true))), true, false},
		{must(gate.All(fixed(true), s)), true, true},
		{must(gate.All(s, fixed(false))), false, false},
		{must(gate.Any(fixed(false), fixed(false))), false, false},
		{must(gate.Any(s, fixed(true))), true, true},
		{must(gate.Not(fixed(true), "never")), false, false},
	} {
		_, _, ofSwitch := s.State()
		open, _, changed := c.gate.State()
		if open != c.open || c.same && changed != ofSwitch || !c.same && changed != nil {
			t.Errorf("case %d: %t, %v", i, open, changed)
		}
	}
}

// A part behind a closed switch makes no requests, and is asked when the switch opens.
func TestAll_OrderSavesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer rest()
		carrier := new(errand.Switch)
		carrier.Close("no carrier")
		m := &meter{}
		g := must(gate.All(carrier, m.check(gate.CheckOptions{})))
		changed := want(t, g, false, "no carrier")
		time.Sleep(time.Hour)
		if len(m.times()) > 0 {
			t.Error("asked behind a closed switch")
		}
		carrier.Open()
		<-changed
		<-want(t, g, false, notYet)
		want(t, g, true, "")
		carrier.Close("no carrier")
		want(t, g, false, "no carrier")
	})
}

// goroutines returns how many goroutines combined gates have in bubbles. Other tests may
// have left some outside.
func goroutines() (n int) {
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "synctest bubble") && strings.Contains(stack, "gate.await(") {
			n++
		}
	}
	return n
}

// The channel of several parts is kept by one goroutine, which ends when nobody asks.
// The bubble does not end before that.
func TestCombine_Goroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer rest()
		a, b := new(errand.Switch), new(errand.Switch)
		g := must(gate.All(a, b))
		changed := want(t, g, true, "")
		for range 10 {
			if want(t, g, true, "") != changed {
				t.Fatal("another channel though nothing has changed")
			}
		}
		if n := allocations(func() { g.State() }); n != 0 {
			t.Errorf("%v allocations while nothing changes", n)
		}
		if n := goroutines(); n != 1 {
			t.Errorf("%d goroutines for one gate", n)
		}
		for range 100 {
			a.Close("shut")
			a.Open()
			g.State()
		}
		if n := goroutines(); n != 1 {
			t.Errorf("%d goroutines after changes", n)
		}
		time.Sleep(2 * time.Minute)
		if n := goroutines(); n != 0 {
			t.Errorf("%d goroutines though nobody waits", n)
		}
		waitUntil(g, time.Now().Add(10*time.Minute)) // a waiter is told to call again
		want(t, g, true, "")
	})
}

// restless returns another channel with each call, and closes none.
type restless struct{}

func (restless) State() (bool, string, <-chan struct{}) { return true, "", make(chan struct{}) }

func TestCombine_RestlessPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer rest()
		g := must(gate.All(restless{}, new(errand.Switch)))
		for range 100 {
			g.State()
		}
		if n := goroutines(); n != 1 {
			t.Errorf("%d goroutines", n)
		}
	})
}

// Gates of gates, many who wait, and a state that they must all see.
func TestCombine_Concurrent(t *testing.T) {
	a, b, c := new(errand.Switch), new(errand.Switch), new(errand.Switch)
	g := must(gate.All(must(gate.Any(a, b)), must(gate.Not(c, "c is open"))))
	c.Open()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { waitFor(g, true) })
	}
	for range 500 {
		a.Close("a")
		b.Close("b")
		c.Open()
		a.Open()
	}
	c.Close("c")
	wg.Wait()
}

func TestCombine_refused(t *testing.T) {
	var none *errand.Switch
	_, err := gate.All()
	wantFaults(t, err, "parts", "must be at least one gate")
	_, err = gate.Any(nil, new(errand.Switch), none)
	wantFaults(t, err, "parts[0]", "must not be nil", "parts[2]", "must not be nil")
	_, err = gate.Not(none, "")
	wantFaults(t, err, "gate", "must not be nil", "reason", "must not be empty")
}

// A list of parts belongs to its caller.
func TestAll_CopiesItsParts(t *testing.T) {
	parts := []errand.Gate{new(errand.Switch)}
	g := must(gate.All(parts...))
	parts[0] = nil
	want(t, g, true, "")
}
