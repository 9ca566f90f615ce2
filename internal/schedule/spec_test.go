package schedule_test

import (
	"math"
	"testing"
	"time"

	"github.com/errandq/errand/internal/schedule"
)

// Over 400 days with both changes no tick is lost or doubled: what the clocks
// take in spring they give back in autumn.
func TestNext_400days(t *testing.T) {
	begin := time.Now()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Date(2025, time.January, 1, 0, 0, 0, 0, loc)
		for spec, want := range map[string]int{
			"@daily": 400, "30 2 * * *": 400, "0 9-17 * * *": 400 * 9,
			"@hourly": 400 * 24, "@every 1h": 400 * 24, "@every 10m": 400 * 24 * 6,
		} {
			s := parse(t, spec, zone)
			n := 0
			for tick := s.Next(start.Add(-1)); tick.Before(start.AddDate(0, 0, 400)); tick = s.Next(tick) {
				n++
			}
			if n != want {
				t.Errorf("%s in %s: %d ticks: want %d", spec, zone, n, want)
			}
		}
	}
	// Some 250,000 steps in all, each well below a microsecond.
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("took %s", d)
	}
}

// Clocks of devices come up with any time.
func TestNext_extremes(t *testing.T) {
	for _, spec := range []string{"* * * * * *", "0 0 1 1 *", "59 59 23 31 12 *", "@hourly", "0 */2 29 2 *", "@every 1s", "@every 87600h"} {
		s := parse(t, spec, "Europe/Berlin")
		for _, unix := range []int64{math.MinInt64, -1 << 62, -62_135_596_801, -1, 0, 253_402_300_798, 253_402_300_799, 1 << 62, math.MaxInt64} {
			from := time.Unix(unix, 999_999_999)
			next := s.Next(from)
			if !next.IsZero() && !next.After(from) || next.Year() > 10_000 {
				t.Errorf("%s after %d: %s", spec, unix, next)
			}
			if d := s.Due(from, from, schedule.One, 0); len(d.Fire) != 0 || !d.Next.Equal(next) {
				t.Errorf("%s after %d: %+v", spec, unix, d)
			}
		}
	}
	if next := parse(t, "59 59 23 31 12 *", "").Next(time.Date(9999, 12, 31, 23, 59, 58, 0, time.UTC)); next.Year() != 9999 {
		t.Error(next)
	}
	if next := parse(t, "59 59 23 31 12 *", "").Next(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)); !next.IsZero() {
		t.Error(next)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, bm := range []struct{ name, spec string }{
		{"fixed", "30 2 * * *"}, {"wildcard", "*/5 * * * * *"}, {"every", "@every 90s"}, {"leapday", "0 0 29 2 *"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := parse(b, bm.spec, "Europe/Berlin")
			tick := at(b, "2025-01-01T00:00:00Z")
			for b.Loop() {
				tick = s.Next(tick)
				if tick.Year() > 2030 {
					tick = at(b, "2025-01-01T00:00:00Z")
				}
			}
		})
	}
}

// Two weeks of downtime of a schedule with a tick each five seconds.
func BenchmarkDue(b *testing.B) {
	s := parse(b, "*/5 * * * * *", "Europe/Berlin")
	now := at(b, "2025-04-05T12:00:00Z")
	for b.Loop() {
		if d := s.Due(now.AddDate(0, 0, -14), now, schedule.All(100), 10*time.Second); d.Skipped != 241_820 {
			b.Fatal(d.Skipped)
		}
	}
}
