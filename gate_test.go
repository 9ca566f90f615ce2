package errand_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/errandq/errand"
)

// The application closes the gate when it hears that the network is gone.
func ExampleSwitch() {
	online := errand.NewSwitch()
	online.Close("no carrier")

	open, reason, changed := online.State()
	fmt.Println("open:", open, "| reason:", reason)

	go online.Open()
	<-changed
	open, _, _ = online.State()
	fmt.Println("open:", open)
	// Output:
	// open: false | reason: no carrier
	// open: true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSwitch(t *testing.T) {
	s := new(errand.Switch)
	for _, step := range []struct {
		name    string
		do      func()
		open    bool
		reason  string
		changed bool
	}{
		{"the zero Switch", func() {}, true, "", false},
		{"opened twice", s.Open, true, "", false},
		{"closed", func() { s.Close("no carrier") }, false, "no carrier", true},
		{"closed again", func() { s.Close("no carrier") }, false, "no carrier", false},
		{"another reason", func() { s.Close("no address") }, false, "no address", true},
		{"no reason", func() { s.Close("") }, false, "closed", true},
		{"opened", s.Open, true, "", true},
	} {
		_, _, before := s.State()
		step.do()
		open, reason, after := s.State()
		if open != step.open || reason != step.reason || isClosed(before) != step.changed || isClosed(after) || after == nil {
			t.Errorf("%s: %t, %q, changed %t; want %t, %q, %t", step.name, open, reason, isClosed(before), step.open, step.reason, step.changed)
		}
	}
	if open, _, _ := errand.NewSwitch().State(); !open {
		t.Error("NewSwitch returns a closed switch")
	}
	if n := testing.AllocsPerRun(100, func() { s.Open(); s.State() }); n != 0 {
		t.Errorf("%v allocations while nothing changes", n)
	}
}

// Who waits for the state that it has not seen misses no change.
func TestSwitch_noChangeIsMissed(t *testing.T) {
	const turns = 1000
	s := errand.NewSwitch()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				_, reason, changed := s.State()
				if reason == "last" {
					return
				}
				<-changed // for ever, if the last change was missed
			}
		})
	}
	for i := range turns {
		s.Close(fmt.Sprint(i))
		s.Open()
	}
	s.Close("last")
	wg.Wait()
}
