package schedule

import "time"

// Spec is a parsed spec in its zone. It is made by [Parse], does not change and
// may be used by any number of goroutines.
type Spec struct {
	spec  string
	zone  *time.Location
	ticks ticker
}

// String returns the spec with single spaces between its fields.
func (s *Spec) String() string { return s.spec }

// Zone returns the zone of the ticks.
func (s *Spec) Zone() *time.Location { return s.zone }

// Next returns the first tick after a time, in the zone of the spec, or the zero
// time if that would be after the year 9999. Ticks are whole seconds.
func (s *Spec) Next(after time.Time) time.Time { return s.time(s.next(unix(after))) }

// The bounds of ticks. Any time before or after them, such as a wrong clock shows,
// counts as the first or the last.
var (
	minTime = time.Date(1, time.January, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(maxYear, time.December, 31, 23, 59, 59, 0, time.UTC)
	minUnix = minTime.Unix()
	maxUnix = maxTime.Unix()
)

// unix rounds down to the second.
func unix(t time.Time) int64 {
	switch {
	case t.Before(minTime):
		return minUnix
	case t.After(maxTime):
		return maxUnix
	}
	return t.Unix()
}

// none means that there is no tick.
const none = ever

func (s *Spec) next(t int64) int64 {
	if tick := s.ticks.next(t); tick <= maxUnix {
		return tick
	}
	return none
}

func (s *Spec) time(tick int64) time.Time {
	if tick == none {
		return time.Time{}
	}
	return time.Unix(tick, 0).In(s.zone)
}
