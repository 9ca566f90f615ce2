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

// A tick is told by its wall time where the zone is another.
func TestDecided(t *testing.T) {
	for _, tt := range []struct{ name, zone, spec, through, wall, want string }{
		{"here as there", "Europe/Berlin", "30 8 * * *", "2026-03-02T07:30:00Z", "2026-03-02T08:30:00 Europe/Berlin", "2026-03-02T07:30:00Z"},
		{"here it comes later", "Europe/Berlin", "30 8 * * *", "2026-03-02T06:30:00Z", "2026-03-02T08:30:00 Europe/Berlin", "2026-03-02T07:30:00Z"},
		{"here it came before", "Europe/Berlin", "30 8 * * *", "2026-03-02T08:30:00Z", "2026-03-02T08:30:00 Europe/Berlin", "2026-03-02T08:30:00Z"},
		{"another zone", "Europe/Berlin", "30 8 * * *", "2026-03-02T06:30:00Z", "2026-03-02T08:30:00 Europe/Paris", "2026-03-02T06:30:00Z"},
		{"too far", "Europe/Berlin", "30 8 * * *", "2026-03-02T06:30:00Z", "2026-03-04T08:30:00 Europe/Berlin", "2026-03-02T06:30:00Z"},
		{"a day, across the date line", "Pacific/Apia", "30 8 * * *", "2026-03-01T19:30:00Z", "2026-03-03T08:30:00 Pacific/Apia", "2026-03-02T19:30:00Z"},
		{"none", "Europe/Berlin", "30 8 * * *", "2026-03-02T06:30:00Z", "", "2026-03-02T06:30:00Z"},
		{"no time", "UTC", "30 8 * * *", "2026-03-02T06:30:00Z", "8 UTC", "2026-03-02T06:30:00Z"},
		{"by the moment", "Europe/Berlin", "30 * * * *", "2026-03-02T06:30:00Z", "2026-03-02T08:30:00 Europe/Berlin", "2026-03-02T06:30:00Z"},
		{"every", "UTC", "@every 1m", "2026-03-02T06:30:00Z", "2026-03-02T08:30:00 UTC", "2026-03-02T06:30:00Z"},
		// 2025-03-30 02:00 +01 becomes 03:00 +02, and 2025-10-26 03:00 +02 becomes 02:00 +01.
		{"in the gap", "Europe/Berlin", "30 2 * * *", "2025-03-30T00:30:00Z", "2025-03-30T02:30:00 Europe/Berlin", "2025-03-30T01:00:00Z"},
		{"shown twice", "Europe/Berlin", "30 2 * * *", "2025-10-26T00:00:00Z", "2025-10-26T02:30:00 Europe/Berlin", "2025-10-26T00:30:00Z"},
		{"shown twice, the second time there", "Europe/Berlin", "30 2 * * *", "2025-10-26T01:30:00Z", "2025-10-26T02:30:00 Europe/Berlin", "2025-10-26T01:30:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, tt.spec, tt.zone).Decided(at(t, tt.through), tt.wall)
			if want := at(t, tt.want); !got.Equal(want) {
				t.Errorf("decided are ticks up to %v, want %v", got.UTC(), want)
			}
		})
	}
	if got := parse(t, "30 8 * * *", "UTC").Decided(time.Time{}, "2026-03-02T08:30:00 UTC"); !got.IsZero() {
		t.Errorf("where nothing is decided ticks up to %v are", got)
	}
}

func TestWall(t *testing.T) {
	for _, tt := range []struct{ name, zone, spec, at, want string }{
		{"at the tick", "Europe/Berlin", "30 8 * * *", "2026-03-02T07:30:00Z", "2026-03-02T08:30:00 Europe/Berlin"},
		{"before it", "Europe/Berlin", "30 8 * * *", "2026-03-02T07:29:59Z", "2026-03-01T08:30:00 Europe/Berlin"},
		{"in the gap", "Europe/Berlin", "30 2 * * *", "2025-03-30T01:00:00Z", "2025-03-30T02:30:00 Europe/Berlin"},
		{"shown twice, the first time", "Europe/Berlin", "30 2 * * *", "2025-10-26T00:30:00Z", "2025-10-26T02:30:00 Europe/Berlin"},
		{"shown twice, between", "Europe/Berlin", "30 2 * * *", "2025-10-26T01:00:00Z", "2025-10-26T02:30:00 Europe/Berlin"},
		{"daily", "", "@daily", "2026-03-02T07:30:00Z", "2026-03-02T00:00:00 UTC"},
		{"by the moment", "Europe/Berlin", "30 */2 * * *", "2026-03-02T07:30:00Z", ""},
		{"hourly", "Europe/Berlin", "@hourly", "2026-03-02T07:30:00Z", ""},
		{"every", "Europe/Berlin", "@every 24h", "2026-03-02T07:30:00Z", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.spec, tt.zone).Wall(at(t, tt.at)); got != tt.want {
				t.Errorf("wall %q, want %q", got, tt.want)
			}
		})
	}
}

// In one zone a tick that is told by its wall time is the tick, at every change of its clocks.
func TestDecided_sameZone(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "Africa/Casablanca"} {
		for _, spec := range []string{"*/30 0-5 * * *", "30 2 * * *", "@daily", "59 59 23 * * *"} {
			s := parse(t, spec, zone)
			for tick, end := s.Next(at(t, "2010-12-01T00:00:00Z")), at(t, "2012-02-01T00:00:00Z"); tick.Before(end); tick = s.Next(tick) {
				if got := s.Decided(tick, s.Wall(tick)); !got.Equal(tick) {
					t.Fatalf("%s %s: the tick %v is told as %v", zone, spec, tick, got)
				}
				if got := s.Decided(tick.Add(-time.Second), s.Wall(tick)); !got.Equal(tick) {
					t.Fatalf("%s %s: the tick %v is told as %v after the second before", zone, spec, tick, got)
				}
			}
		}
	}
}
