package gate

import (
	"sync"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/clock"
)

// lookAgain is the longest time for which a gate that depends on the wall clock leaves
// those who wait alone. So a clock that was set is noticed within it, as schedules do.
const lookAgain = 15 * time.Second

// alarm closes a channel after a while.
type alarm struct {
	mu      sync.Mutex
	changed chan struct{} // nil: the timer does not run
}

// within returns a channel that will be closed after d, after lookAgain, or sooner.
func (a *alarm) within(d time.Duration) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
		time.AfterFunc(min(d, lookAgain), a.ring)
	}
	return a.changed
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.changed)
	a.changed = nil
}

// ClockPlausible returns a gate that is closed while the wall clock is before the time
// at which the program was built, see [errand.ClockState], or before a given time. The
// zero time sets no other bound. The wall clock is that of the system, whatever
// [errand.Options].Clock is. A clock that was set is noticed within 15 s.
func ClockPlausible(notBefore time.Time) errand.Gate {
	if notBefore.Before(clock.Built) {
		notBefore = clock.Built
	}
	return &clockPlausible{from: notBefore}
}

type clockPlausible struct {
	from  time.Time
	alarm alarm
}

// AsksNobody has engines ask it when they like, see engine.Gate.
func (*clockPlausible) AsksNobody() {}

func (c *clockPlausible) State() (open bool, reason string, changed <-chan struct{}) {
	now := time.Now().Round(0) // what the monotonic clock says does not count
	missing := c.from.Sub(now)
	if missing <= 0 {
		return true, "", c.alarm.within(lookAgain)
	}
	reason = "the clock shows " + now.UTC().Format(time.DateTime) + " UTC, before " + c.from.UTC().Format(time.DateTime)
	return false, reason, c.alarm.within(missing)
}
