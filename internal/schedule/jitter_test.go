package schedule_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/errandq/errand/internal/schedule"
)

func TestJitterFor(t *testing.T) {
	tick := at(t, "2025-01-01T00:00:00Z")
	// What was written once is what every later version must give; computed by
	// printf '\0\0\0\0\x67\x74\x85\x80report' | sha256sum, whose first 64 bits
	// make a fraction of one minute.
	const want = 18215950 * time.Microsecond
	if got := schedule.JitterFor("report", tick, time.Minute); got != want {
		t.Errorf("%d: want %d", got, want)
	}
	if got := schedule.JitterFor("report", tick.In(time.FixedZone("", 3600)), time.Minute); got != want {
		t.Errorf("in another zone %d: want %d", got, want)
	}
	for _, max := range []time.Duration{0, -1, 1, 999} {
		if got := schedule.JitterFor("report", tick, max); got != 0 {
			t.Errorf("%d of at most %d", got, max)
		}
	}
	if got := schedule.JitterFor("report", tick, math.MaxInt64); got < 0 || got%time.Microsecond != 0 {
		t.Error(got)
	}
}

// Names and ticks spread evenly.
func TestJitterFor_spread(t *testing.T) {
	const max, n, parts = time.Minute, 10_000, 10
	var byName, byTick [parts]int
	tick := at(t, "2025-01-01T00:00:00Z")
	for i := range n {
		byName[schedule.JitterFor("job"+strconv.Itoa(i), tick, max)*parts/max]++
		byTick[schedule.JitterFor("job", tick.Add(time.Duration(i)*time.Hour), max)*parts/max]++
	}
	for i := range parts {
		for _, got := range []int{byName[i], byTick[i]} {
			if got < n/parts*85/100 || got > n/parts*115/100 { // five standard deviations
				t.Errorf("part %d has %d of %d", i, got, n)
			}
		}
	}
}
