package schedule_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/schedule"
)

const tolerance = 10 * time.Second

func times(ts []time.Time) string {
	var s []string
	for _, t := range ts {
		s = append(s, t.UTC().Format("02T15:04:05"))
	}
	return strings.Join(s, " ")
}

func TestDue(t *testing.T) {
	const daily, every5s, busyHour = "0 9 * * *", "*/5 * * * * *", "* 9 * * *"
	for _, tt := range []struct {
		name, spec, last, now string
		missed                schedule.Missed
		fire                  string
		skipped               int64
		next                  string
	}{
		{"on time", daily, "2025-01-01T09:00:00Z", "2025-01-02T09:00:00Z", schedule.Skip, "02T09:00:00", 0, "2025-01-03T09:00:00Z"},
		{"a little late", daily, "2025-01-01T09:00:00Z", "2025-01-02T09:00:10Z", schedule.Skip, "02T09:00:00", 0, "2025-01-03T09:00:00Z"},
		{"too late", daily, "2025-01-01T09:00:00Z", "2025-01-02T09:00:11Z", schedule.Skip, "", 1, "2025-01-03T09:00:00Z"},
		{"too late", daily, "2025-01-01T09:00:00Z", "2025-01-02T09:00:11Z", schedule.One, "02T09:00:00", 0, "2025-01-03T09:00:00Z"},
		{"nothing yet", daily, "2025-01-01T09:00:00Z", "2025-01-02T08:59:59Z", schedule.One, "", 0, "2025-01-02T09:00:00Z"},
		{"missed and on time", daily, "2025-01-01T09:00:00Z", "2025-01-04T09:00:03Z", schedule.Skip, "04T09:00:00", 2, "2025-01-05T09:00:00Z"},
		{"missed and on time", daily, "2025-01-01T09:00:00Z", "2025-01-04T09:00:03Z", schedule.One, "04T09:00:00", 2, "2025-01-05T09:00:00Z"},
		{"missed and on time", daily, "2025-01-01T09:00:00Z", "2025-01-04T09:00:03Z", schedule.All(2), "03T09:00:00 04T09:00:00", 1, "2025-01-05T09:00:00Z"},
		{"less than all", daily, "2025-01-01T09:00:00Z", "2025-01-03T12:00:00Z", schedule.All(5), "02T09:00:00 03T09:00:00", 0, "2025-01-04T09:00:00Z"},
		{"close, on time", every5s, "2025-01-01T00:00:00Z", "2025-01-01T00:00:14Z", schedule.Skip, "01T00:00:05 01T00:00:10", 0, "2025-01-01T00:00:15Z"},
		{"close, missed", every5s, "2025-01-01T00:00:00Z", "2025-01-01T00:00:16Z", schedule.Skip, "", 3, "2025-01-01T00:00:20Z"},
		{"close, missed", every5s, "2025-01-01T00:00:00Z", "2025-01-01T00:00:16Z", schedule.One, "01T00:00:15", 2, "2025-01-01T00:00:20Z"},
		{"in the busy hour", busyHour, "2025-01-01T09:05:00Z", "2025-01-01T09:08:05Z", schedule.Skip, "01T09:08:00", 2, "2025-01-01T09:09:00Z"},
		{"two weeks", every5s, "2025-01-01T00:00:00Z", "2025-01-15T00:00:00Z", schedule.Skip, "", 241_920, "2025-01-15T00:00:05Z"},
		{"two weeks", every5s, "2025-01-01T00:00:00Z", "2025-01-15T00:00:00Z", schedule.One, "15T00:00:00", 241_919, "2025-01-15T00:00:05Z"},
		{"two weeks", every5s, "2025-01-01T00:00:00Z", "2025-01-15T00:00:00Z", schedule.All(3), "14T23:59:50 14T23:59:55 15T00:00:00", 241_917, "2025-01-15T00:00:05Z"},
		{"set back", daily, "2025-01-31T09:00:00Z", "2025-01-02T10:00:00Z", schedule.All(9), "", 0, "2025-01-03T09:00:00Z"},
		{"no time", daily, "2025-01-02T09:00:00Z", "2025-01-02T09:00:00Z", schedule.All(9), "", 0, "2025-01-03T09:00:00Z"},
	} {
		t.Run(tt.name+" "+tt.spec+" "+tt.missed.String(), func(t *testing.T) {
			s := parse(t, tt.spec, "")
			last, now := at(t, tt.last), at(t, tt.now)
			d := s.Due(last, now, tt.missed, tolerance)
			if got := times(d.Fire); got != tt.fire || d.Skipped != tt.skipped || !d.Next.Equal(at(t, tt.next)) {
				t.Fatalf("fires %q, skips %d, next %s", got, d.Skipped, d.Next)
			}
			if d.Skipped == 0 {
				if !d.FirstSkipped.IsZero() || !d.LastSkipped.IsZero() {
					t.Fatalf("%+v", d)
				}
				return
			}
			if !d.FirstSkipped.Equal(s.Next(last)) {
				t.Fatalf("first skipped is %s: want %s", d.FirstSkipped, s.Next(last))
			}
			follows := d.Next
			if len(d.Fire) > 0 {
				follows = d.Fire[0]
			}
			if !s.Next(d.LastSkipped).Equal(follows) {
				t.Fatalf("last skipped is %s, %s follows", d.LastSkipped, s.Next(d.LastSkipped))
			}
		})
	}
}

// A walk over these ticks would take minutes to hours.
func TestDue_long(t *testing.T) {
	begin := time.Now()
	now := at(t, "2025-01-01T00:00:00Z")
	all := now.Unix() - time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, tt := range []struct {
		spec  string
		last  time.Time
		ticks int64
	}{
		{"@every 1s", now.AddDate(-100, 0, 0), 36_525 * 86_400},
		{"@every 1s", time.Time{}, all},
		{"* * * * * *", now.AddDate(-100, 0, 0), 36_525 * 86_400},
		{"* * * * * *", time.Time{}, all},
		{"* * */2 * * *", time.Time{}, -1},
		{"* * 0-23 * * *", time.Time{}, -1},
		{"0 0 29 2 *", time.Time{}, 506 - 15}, // 2024/4, without 15 of 20 centuries,
	} {
		s := parse(t, tt.spec, "Europe/Berlin")
		d := s.Due(tt.last, now, schedule.All(schedule.MaxAll), tolerance)
		if n := d.Skipped + int64(len(d.Fire)); n != tt.ticks && tt.ticks >= 0 || !d.Next.After(now) || len(d.Fire) == 0 {
			t.Errorf("%s from %s: %d ticks, next %s: want %d", s, tt.last, n, d.Next, tt.ticks)
		}
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("took %s", d)
	}
}

func TestDue_tolerance(t *testing.T) {
	s := parse(t, "@every 1s", "")
	now := at(t, "2025-01-01T00:00:00Z")
	for _, tt := range []struct {
		late, tolerance time.Duration
		n               int
	}{
		{0, 0, 1},
		{0, -time.Second, 1},
		{1, 0, 0},
		{time.Second, time.Second, 2},
		{time.Second + 1, time.Second, 0},
		{time.Minute, time.Minute, 61},
		{time.Minute, time.Hour, 61},
		{time.Minute + 1, time.Hour, 0},
	} {
		late := now.Add(tt.late)
		if d := s.Due(now.Add(-1), late, schedule.Skip, tt.tolerance); len(d.Fire) != tt.n {
			t.Errorf("%s late with a tolerance of %s: %d ticks: want %d", tt.late, tt.tolerance, len(d.Fire), tt.n)
		}
	}
}

func TestMissed(t *testing.T) {
	for m, want := range map[schedule.Missed]string{
		schedule.Skip: "skip", schedule.One: "one", schedule.All(1): "all(1)", schedule.All(1000): "all(1000)",
	} {
		got, err := schedule.ParseMissed(want)
		if m.String() != want || !m.Valid() || got != m || err != nil {
			t.Errorf("%s %v %v: want %s", m, got, err, want)
		}
	}
	if m := (schedule.Missed)(0); m != schedule.One {
		t.Error(m)
	}
	for _, m := range []schedule.Missed{schedule.All(0), schedule.All(-1), schedule.All(1001), -2, 1001} {
		if m.Valid() {
			t.Errorf("%s is valid", m)
		}
	}
	for _, s := range []string{"", "Skip", "all", "all()", "all(0)", "all(01)", "all(1", "all(1))", "all(1001)", "all(99999999999999999999)"} {
		if m, err := schedule.ParseMissed(s); m.Valid() || !slices.ContainsFunc(schedule.Faults(err), func(f *schedule.Fault) bool { return f.Field == "missed" && f.Value == s }) {
			t.Errorf("%q: %s %v", s, m, err)
		}
	}
}
