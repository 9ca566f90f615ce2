package schedule

import (
	"strings"
	"time"
)

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

// Wall returns what tells the latest tick not after t where the zone is another, for
// [Spec.Decided]: what the clocks of the zone show at it, with the date and the zone's name.
// It is empty for a spec whose ticks are known by their moment: @every, and hours with * or /.
func (s *Spec) Wall(t time.Time) string {
	f, ok := s.ticks.(*fixed)
	if !ok {
		return ""
	}
	w := f.calendar.prev(reached(f.zone, unix(t)))
	return time.Unix(w, 0).UTC().Format(wallLayout) + " " + s.zone.String()
}

const wallLayout = "2006-01-02T15:04:05"

// Decided returns the time up to which ticks are decided here: through, or later the tick
// that wall tells, where another database of time zones may have it at another moment. A wall
// of another zone tells nothing, nor does one that is too far from through for that.
func (s *Spec) Decided(through time.Time, wall string) time.Time {
	text, zone, _ := strings.Cut(wall, " ")
	f, ok := s.ticks.(*fixed)
	if !ok || zone != s.zone.String() {
		return through
	}
	w, err := time.Parse(wallLayout, text)
	if err != nil {
		return through
	}
	tick := time.Unix(instant(f.zone, unix(w)), 0)
	if late := tick.Sub(through); late <= 0 || late > farthest*time.Second {
		return through
	}
	return tick
}

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
