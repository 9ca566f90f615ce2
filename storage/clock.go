package storage

import "time"

// Clocked is implemented by a Store with a clock of its own, such as that of a server, which
// comes with its answers. Whoever uses it passes this time as now, so that machines whose clocks
// are wrong agree. Then no now is to be corrected: StepClock, see [Timekeeper], is not called,
// and [Event].Clock counts for nothing.
type Clocked interface {
	// StoreTime returns what the clock of the Store showed with its latest answer to this
	// instance, and what has passed since on the monotonic clock of this machine. It does not
	// depend on the wall clock of this machine. As an answer takes time, StoreTime is never
	// ahead of that clock, unless the clock was set back since the answer. known is true once
	// there was an answer. The call asks nobody, and costs no round trip.
	StoreTime() (now time.Time, known bool)
}
