//go:build !race

// The race detector would take minutes for this, and finds in shorter tests what
// there is to find.

package apitest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// yearly is a schedule with what it must do: the ticks, found by looking at the
// clock of the zone each minute, and how many of those that came while nobody
// worked are made up for.
type yearly struct {
	errand.Schedule
	ticks  func(zone *time.Location, from, to time.Time) []time.Time
	atMost int
}

var yearlies = []yearly{
	{errand.Schedule{Name: "hourly", Spec: "0 * * * *"}, eachHour, 1},
	{errand.Schedule{Name: "daily-0130", Spec: "30 1 * * *", Missed: errand.MissedAll(100)}, eachDay(1, 30), 100},
	{errand.Schedule{Name: "daily-0145", Spec: "45 1 * * *"}, eachDay(1, 45), 1},
	{errand.Schedule{Name: "daily-0215", Spec: "15 2 * * *", Missed: errand.MissedSkip}, eachDay(2, 15), 0},
	{errand.Schedule{Name: "daily-0230", Spec: "30 2 * * *", Missed: errand.MissedAll(2)}, eachDay(2, 30), 2},
	{errand.Schedule{Name: "midnight", Spec: "@daily"}, eachDay(0, 0), 1},
}

// eachHour returns when the clock shows a full hour, or in a gap would have shown
// one had it not been set forward.
func eachHour(zone *time.Location, from, to time.Time) (all []time.Time) {
	for t := from.Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		// An hour back no gap of these zones is in between.
		_, now := t.In(zone).Zone()
		_, before := t.Add(-time.Minute).In(zone).Zone()
		for b := t; before == now && t.Sub(b) < time.Duration(30)*time.Minute; b = b.Add(-time.Minute) {
			_, before = b.Add(-time.Minute).In(zone).Zone()
		}
		shown := t.In(zone).Minute() == 0
		would := before < now && t.In(time.FixedZone("", before)).Minute() == 0
		if shown || would {
			all = append(all, t)
		}
	}
	return all
}

// eachDay returns the first moment of each day by which the clock shows a time.
func eachDay(hour, minute int) func(zone *time.Location, from, to time.Time) []time.Time {
	return func(zone *time.Location, from, to time.Time) (all []time.Time) {
		done := "" // the day
		for t := from.Add(-24 * time.Hour); !t.After(to); t = t.Add(time.Minute) {
			l := t.In(zone)
			if l.Hour()*60+l.Minute() >= hour*60+minute && l.Format(time.DateOnly) != done {
				done = l.Format(time.DateOnly)
				if t.After(from) {
					all = append(all, t)
				}
			}
		}
		return all
	}
}

// With stops at random no tick is doubled, and of those that were missed as many
// are made up for as the schedule says: in the weeks around a change of the
// clock or, if ERRAND_SCHEDULE_DAYS says 400, in a year with both.
func TestSchedule_Year(t *testing.T) {
	start, days := 73, 26 // from 2000-03-14 on
	if s := os.Getenv("ERRAND_SCHEDULE_DAYS"); s != "" {
		start, days = 0, must(strconv.Atoi(s))
	}
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			bubbled(t, onDisk(t), func(t *testing.T, a *agenda) {
				time.Sleep(time.Duration(start) * 24 * time.Hour)
				year(t, a, zone, time.Duration(days)*24*time.Hour)
			})
			t.Logf("%d days in %v", days, time.Since(began))
		})
	}
}

func year(t *testing.T, a *agenda, zone *time.Location, length time.Duration) {
	r := rand.New(rand.NewPCG(1, 2))
	time.Sleep(30 * time.Second) // all begins and ends between two ticks
	start := time.Now()
	for _, y := range yearlies {
		y.Zone = zone.String()
		a.declare(y.Schedule)
	}
	want := map[string][]string{}
	for from := start; from.Before(start.Add(length)); {
		up := time.Duration(r.IntN(int(length/time.Minute)/10)) * time.Minute
		down := time.Duration(r.IntN(3*24*60)) * time.Minute
		stop := a.work(nil)
		time.Sleep(up)
		stop()
		stopped := time.Now()
		a.restart(down)
		now := time.Now()
		for _, y := range yearlies {
			missed := y.ticks(zone, stopped.Truncate(time.Minute), now)
			fired := append(y.ticks(zone, from.Truncate(time.Minute), stopped), missed[max(0, len(missed)-y.atMost):]...)
			for _, tick := range fired {
				want[y.Name] = append(want[y.Name], tick.In(zone).Format(time.RFC3339))
			}
		}
		from = now
	}
	stop := a.work(nil)
	synctest.Wait() // until what was missed last has been fired
	stop()
	got := map[string][]string{}
	for _, r := range a.took() {
		got[r.name] = append(got[r.name], r.tick)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		slices.Sort(got[name]) // what is fired at once runs in any order
		slices.Sort(want[name])
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s has %d ticks, want %d: %s", name, len(got[name]), len(want[name]), firstDifference(got[name], want[name]))
		}
	}
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("%d is %s, want %s", i, got[i], want[i])
		}
	}
	return "one ends before the other"
}
