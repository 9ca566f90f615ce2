package schedule

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Missed decides about missed ticks. The zero Missed is One.
type Missed int

const (
	// Skip drops missed ticks.
	Skip Missed = -1
	// One fires the latest missed tick, unless a tick is on time. It is the
	// default.
	One Missed = 0
)

// MaxAll is the largest argument of [All]: ticks that fire together are written in
// one transaction.
const MaxAll = 1000

// All fires the latest ticks, max at most and including those on time, and skips the
// older ones. It is valid if max is between 1 and [MaxAll].
func All(max int) Missed {
	if max < 1 || max > MaxAll {
		return invalid
	}
	return Missed(max)
}

const invalid Missed = -2

// Valid reports whether m is Skip, One or made by All with a permitted number.
func (m Missed) Valid() bool { return m >= Skip && m <= MaxAll }

// String returns "skip", "one" or "all(100)".
func (m Missed) String() string {
	switch {
	case m == Skip:
		return "skip"
	case m == One:
		return "one"
	case m.Valid():
		return "all(" + strconv.Itoa(int(m)) + ")"
	}
	return "Missed(" + strconv.Itoa(int(m)) + ")"
}

// ParseMissed parses the result of String; an error is a [Fault].
func ParseMissed(s string) (Missed, error) {
	switch s {
	case "skip":
		return Skip, nil
	case "one":
		return One, nil
	}
	if n, ok := strings.CutPrefix(s, "all("); ok {
		n, err := strconv.Atoi(strings.TrimSuffix(n, ")"))
		if m := All(n); err == nil && m.String() == s {
			return m, nil
		}
	}
	return invalid, &Fault{"missed", s, "must be skip, one or all(n), n between 1 and " + strconv.Itoa(MaxAll)}
}

// Due is the decision about the ticks of a stretch of time.
type Due struct {
	// Fire are the ticks to fire, the oldest first.
	Fire []time.Time
	// Skipped is how many ticks before those of Fire are not fired, from
	// FirstSkipped to LastSkipped. If zero, these are zero too.
	Skipped                   int64
	FirstSkipped, LastSkipped time.Time
	// Next is the first tick after the stretch, or zero if there is none.
	Next time.Time
}

// MaxTolerance bounds the tolerance: by how much a tick on time may be late.
const MaxTolerance = time.Minute

// Due decides about the ticks after last and not after now. If the clock was set
// back, last is not before now and there are none. Next is after now all the same, so
// that nothing waits for a wrong date; it may be a tick that was fired before.
//
// A tick is on time if it is late by at most the tolerance, which is at most
// [MaxTolerance]. There is one exception: if the latest tick that is too late is
// within the tolerance of the tick after it, no tick is on time. So of ticks that are
// close together, all are on time or none: after two weeks without a worker, the last
// two ticks of a schedule with one each five seconds are not special. Of ticks that
// are far apart, one that came a moment before the worker started is on time.
//
// All ticks on time are fired; missed decides about the others (as One, if it is not
// valid). At most as many are fired as the number of [All], or as there are seconds
// in the tolerance, both ends included, whichever is more. The time that Due takes
// does not depend on the number of ticks, but on the years from last to now: some
// microseconds each.
func (s *Spec) Due(last, now time.Time, missed Missed, tolerance time.Duration) Due {
	from, to := unix(last), unix(now)
	d := Due{Next: s.time(s.next(to))}
	if from >= to {
		return d
	}
	ticks := s.latest(from, to, s.onTime(from, now, tolerance), missed)
	end := to // of what is skipped
	if len(ticks) > 0 {
		end = ticks[len(ticks)-1] - 1
	}
	if d.Skipped = s.ticks.count(from, end); d.Skipped > 0 {
		d.FirstSkipped = s.time(s.ticks.next(from))
		d.LastSkipped = s.time(s.ticks.prev(end))
	}
	slices.Reverse(ticks)
	for _, t := range ticks {
		d.Fire = append(d.Fire, s.time(t))
	}
	return d
}

// onTime returns the ticks that are on time, the latest first.
func (s *Spec) onTime(from int64, now time.Time, tolerance time.Duration) []int64 {
	tolerance = min(max(tolerance, 0), MaxTolerance)
	var ticks []int64
	for t := s.ticks.prev(unix(now)); t > from; t = s.ticks.prev(t - 1) {
		if now.Sub(time.Unix(t, 0)) > tolerance {
			if n := len(ticks); n > 0 && ticks[n-1]-t <= int64(tolerance/time.Second) {
				return nil
			}
			break
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// latest returns the ticks to fire, the latest first: those on time, and before them
// as many as missed allows.
func (s *Spec) latest(from, to int64, ticks []int64, missed Missed) []int64 {
	for len(ticks) < max(1, int(missed)) && missed != Skip {
		if len(ticks) > 0 {
			to = ticks[len(ticks)-1] - 1
		}
		t := s.ticks.prev(to)
		if t <= from {
			break
		}
		ticks = append(ticks, t)
	}
	return ticks
}
