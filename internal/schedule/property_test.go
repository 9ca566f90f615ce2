package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/errandq/errand/internal/schedule"
)

// drawField draws a field whose values are from low to high.
func drawField(t *rapid.T, name string, low, high int) string {
	n := rapid.IntRange(low, high)
	var items []string
	for range rapid.IntRange(1, 3).Draw(t, name+" items") {
		a, b := n.Draw(t, name), n.Draw(t, name)
		switch rapid.IntRange(0, 5).Draw(t, name+" form") {
		case 0:
			return "*"
		case 1:
			items = append(items, fmt.Sprintf("*/%d", b-low+1))
		case 2:
			items = append(items, fmt.Sprintf("%d/%d", a, b-low+1))
		case 3:
			items = append(items, fmt.Sprintf("%d-%d", min(a, b), max(a, b)))
		default:
			items = append(items, fmt.Sprint(a))
		}
	}
	return strings.Join(items, ",")
}

// drawSpec draws six fields.
func drawSpec(t *rapid.T) string {
	return strings.Join([]string{
		drawField(t, "second", 0, 59), drawField(t, "minute", 0, 59), drawField(t, "hour", 0, 23),
		drawField(t, "dom", 1, 31), drawField(t, "month", 1, 12), drawField(t, "dow", 0, 6),
	}, " ")
}

// In UTC the library finds the same ticks, and refuses nothing that is accepted.
func TestNext_library(t *testing.T) {
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		lib, err := parser.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		lib.(*cron.SpecSchedule).Location = time.UTC
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "from"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC()
		s, err := schedule.Parse(spec, "")
		if err != nil {
			if next := lib.Next(at); !next.IsZero() {
				t.Fatalf("%v, but comes at %s", err, next)
			}
			return
		}
		for range 20 {
			want := lib.Next(at)
			got := s.Next(at)
			if want.IsZero() && got.Year() >= at.Year()+5 { // as far as the library looks
				return
			}
			if !got.Equal(want) {
				t.Fatalf("%q after %s: %s: want %s", spec, at, got, want)
			}
			at = got
		}
	})
}

// drawStart draws a time, mostly a few hours around a change of the clock.
func drawStart(t *rapid.T, zone string, year int) time.Time {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(year, 1, 1+rapid.IntRange(0, 700).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
	if _, change := from.In(loc).ZoneBounds(); !change.IsZero() && rapid.IntRange(0, 4).Draw(t, "anywhere") > 0 {
		from = change.Add(-5 * time.Hour)
	}
	return from.Add(time.Duration(rapid.Int64Range(0, int64(6*time.Hour)).Draw(t, "offset")))
}

// What Due says agrees with a walk by Next, whose ticks only ever increase.
func TestDue_walk(t *testing.T) {
	specs := rapid.OneOf(
		rapid.Custom(drawSpec),
		rapid.Custom(func(t *rapid.T) string { // dense
			return fmt.Sprintf("%s %s %s * * *", drawField(t, "second", 0, 59), drawField(t, "minute", 0, 59), drawField(t, "hour", 0, 23))
		}),
		rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("@every %ds", rapid.IntRange(1, 7200).Draw(t, "every")) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(oracleZones).Draw(t, "zone")
		s, err := schedule.Parse(specs.Draw(t, "spec"), zone.name)
		if err != nil {
			return // never comes
		}
		last := drawStart(t, zone.name, zone.year)
		var ticks []time.Time
		now, next := last, s.Next(last)
		for n := rapid.IntRange(0, 3000).Draw(t, "ticks"); len(ticks) < n; now, next = next, s.Next(next) {
			if !next.After(now) {
				t.Fatalf("%s is followed by %s", now, next)
			}
			ticks = append(ticks, next)
		}
		late := time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "late"))
		now = now.Add(min(late, next.Sub(now)-1))
		missed := rapid.SampledFrom([]schedule.Missed{schedule.Skip, schedule.One, schedule.All(1), schedule.All(100)}).Draw(t, "missed")
		tolerance := time.Duration(rapid.IntRange(0, 60).Draw(t, "tolerance")) * time.Second

		fire := expected(ticks, now, missed, tolerance)
		skip := ticks[:len(ticks)-len(fire)]
		d := s.Due(last, now, missed, tolerance)
		if !slices.EqualFunc(d.Fire, fire, time.Time.Equal) || d.Skipped != int64(len(skip)) || !d.Next.Equal(next) {
			t.Fatalf("%s in %s from %s to %s, %s: fires %s, skips %d, next %s: want %s, %d, %s",
				s, zone.name, last, now, missed, times(d.Fire), d.Skipped, d.Next, times(fire), len(skip), next)
		}
		if n := len(skip); n > 0 && (!d.FirstSkipped.Equal(skip[0]) || !d.LastSkipped.Equal(skip[n-1])) {
			t.Fatalf("%s in %s from %s to %s: skips %s to %s: want %s to %s",
				s, zone.name, last, now, d.FirstSkipped, d.LastSkipped, skip[0], skip[n-1])
		}
	})
}

// expected is the rule of Due for ticks that are known.
func expected(ticks []time.Time, now time.Time, missed schedule.Missed, tolerance time.Duration) []time.Time {
	late := 0 // how many come before those on time
	for late < len(ticks) && now.Sub(ticks[late]) > tolerance {
		late++
	}
	if late > 0 && late < len(ticks) && ticks[late].Sub(ticks[late-1]) <= tolerance {
		late = len(ticks)
	}
	switch missed {
	case schedule.Skip:
	case schedule.One:
		late = min(late, max(0, len(ticks)-1))
	default:
		late = min(late, max(0, len(ticks)-int(missed)))
	}
	return ticks[late:]
}
