package gate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
)

// must panics on an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// want checks what a gate says now, and returns its channel.
func want(t *testing.T, g errand.Gate, open bool, reason string) <-chan struct{} {
	t.Helper()
	gotOpen, gotReason, changed := g.State()
	if gotOpen != open || gotReason != reason {
		t.Errorf("%t, %q; want %t, %q", gotOpen, gotReason, open, reason)
	}
	return changed
}

// allocations returns how many allocations a call makes: the least of some measurements,
// since goroutines of other tests allocate too.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(100, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(100, f))
	}
	return least
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitFor waits at a gate, as a worker with jobs behind it does, until it is open or
// not, and returns the reason.
func waitFor(g errand.Gate, open bool) string {
	for {
		is, reason, changed := g.State()
		if is == open {
			return reason
		}
		<-changed
	}
}

// waitUntil waits at a gate until a time, whatever it says.
func waitUntil(g errand.Gate, end time.Time) {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	for {
		_, _, changed := g.State()
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// wantFaults checks that an error has these faults, of fields and parts of limits in
// turn, and no others.
func wantFaults(t *testing.T, err error, want ...string) {
	t.Helper()
	var faults []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		faults = joined.Unwrap()
	}
	if len(faults) != len(want)/2 || !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("%v: want %d faults", err, len(want)/2)
		return
	}
	for i, err := range faults {
		f, ok := errors.AsType[*errand.FieldError](err)
		if !ok || f.Field != want[2*i] || !strings.Contains(f.Limit, want[2*i+1]) {
			t.Errorf("%v: want a fault of %s: %s", err, want[2*i], want[2*i+1])
		}
	}
}

var _ = []errand.Gate{new(gate.Check), new(errand.Switch)}

// Gates that read nothing but the clock cost nothing, and are asked without need.
func TestGates_askNobody(t *testing.T) {
	for name, g := range map[string]errand.Gate{
		"ClockPlausible": gate.ClockPlausible(time.Time{}), "Window": must(gate.Window("22:00-06:00", "")),
	} {
		if _, ok := g.(interface{ AsksNobody() }); !ok {
			t.Errorf("%s is asked only after a look whether jobs wait", name)
		}
	}
}
