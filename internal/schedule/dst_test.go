package schedule_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // a machine without zones runs the tests too

	"github.com/errandq/errand/internal/schedule"
)

func parse(t testing.TB, spec, zone string) *schedule.Spec {
	t.Helper()
	s, err := schedule.Parse(spec, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05Z07:00", s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// What is expected was worked out by hand from the rule and the dates of the
// changes. Ticks are separated by spaces; the first is what Next returns after
// the time before the colon.
func TestNext_clockChanges(t *testing.T) {
	for _, tt := range []struct{ name, zone, spec, ticks string }{
		// 2025-03-30 02:00 +01 becomes 03:00 +02.
		{"gap, fixed", "Europe/Berlin", "30 2 * * *",
			"2025-03-28T12:00:00Z: 2025-03-29T02:30:00+01:00 2025-03-30T03:00:00+02:00 2025-03-31T02:30:00+02:00"},
		{"gap, begin", "Europe/Berlin", "0 2 * * *",
			"2025-03-29T12:00:00Z: 2025-03-30T03:00:00+02:00 2025-03-31T02:00:00+02:00"},
		{"gap, end", "Europe/Berlin", "0 3 * * *",
			"2025-03-29T12:00:00Z: 2025-03-30T03:00:00+02:00 2025-03-31T03:00:00+02:00"},
		{"gap, several are one", "Europe/Berlin", "*/10 2,3 * * *",
			"2025-03-29T12:00:00Z: 2025-03-30T03:00:00+02:00 2025-03-30T03:10:00+02:00 2025-03-30T03:20:00+02:00"},
		{"gap, range of hours", "Europe/Berlin", "*/30 1-3 * * *",
			"2025-03-29T12:00:00Z: 2025-03-30T01:00:00+01:00 2025-03-30T01:30:00+01:00 2025-03-30T03:00:00+02:00 2025-03-30T03:30:00+02:00 2025-03-31T01:00:00+02:00"},
		{"gap, seconds", "Europe/Berlin", "15 59 1,2 * * *",
			"2025-03-29T12:00:00Z: 2025-03-30T01:59:15+01:00 2025-03-30T03:00:00+02:00 2025-03-31T01:59:15+02:00"},
		{"gap, only that date", "Europe/Berlin", "30 2 30 3 *",
			"2025-01-01T00:00:00Z: 2025-03-30T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"gap, from within the second before", "Europe/Berlin", "30 2 * * *",
			"2025-03-30T00:59:59.999999999Z: 2025-03-30T03:00:00+02:00"},
		{"gap, hourly", "Europe/Berlin", "0 * * * *",
			"2025-03-29T23:30:00Z: 2025-03-30T01:00:00+01:00 2025-03-30T03:00:00+02:00 2025-03-30T04:00:00+02:00"},
		{"gap, hourly at half past", "Europe/Berlin", "30 * * * *",
			"2025-03-30T00:00:00Z: 2025-03-30T01:30:00+01:00 2025-03-30T03:30:00+02:00 2025-03-30T04:30:00+02:00"},
		{"gap, step on the edge", "Europe/Berlin", "0 */2 * * *",
			"2025-03-29T22:30:00Z: 2025-03-30T00:00:00+01:00 2025-03-30T03:00:00+02:00 2025-03-30T04:00:00+02:00 2025-03-30T06:00:00+02:00"},
		{"gap, step within", "Europe/Berlin", "30 */2 * * *",
			"2025-03-29T22:30:00Z: 2025-03-30T00:30:00+01:00 2025-03-30T03:30:00+02:00 2025-03-30T04:30:00+02:00"},
		// 2025-10-26 03:00 +02 becomes 02:00 +01.
		{"overlap, fixed", "Europe/Berlin", "30 2 * * *",
			"2025-10-25T12:00:00Z: 2025-10-26T02:30:00+02:00 2025-10-27T02:30:00+01:00"},
		{"overlap, fixed, from between the two", "Europe/Berlin", "30 2 * * *",
			"2025-10-26T01:15:00Z: 2025-10-27T02:30:00+01:00"},
		{"overlap, end", "Europe/Berlin", "0 3 * * *",
			"2025-10-25T12:00:00Z: 2025-10-26T03:00:00+01:00 2025-10-27T03:00:00+01:00"},
		{"overlap, range of hours", "Europe/Berlin", "*/30 1-3 * * *",
			"2025-10-25T23:15:00Z: 2025-10-26T01:30:00+02:00 2025-10-26T02:00:00+02:00 2025-10-26T02:30:00+02:00 2025-10-26T03:00:00+01:00 2025-10-26T03:30:00+01:00"},
		{"overlap, hourly", "Europe/Berlin", "0 * * * *",
			"2025-10-25T22:30:00Z: 2025-10-26T01:00:00+02:00 2025-10-26T02:00:00+02:00 2025-10-26T02:00:00+01:00 2025-10-26T03:00:00+01:00"},
		{"overlap, step", "Europe/Berlin", "0 */2 * * *",
			"2025-10-25T21:30:00Z: 2025-10-26T00:00:00+02:00 2025-10-26T02:00:00+02:00 2025-10-26T02:00:00+01:00 2025-10-26T04:00:00+01:00"},
		{"every", "Europe/Berlin", "@every 90m",
			"2025-03-29T23:00:00Z: 2025-03-30T00:00:00Z 2025-03-30T01:30:00Z 2025-03-30T03:00:00Z"},
		// 2025-03-09 02:00 -05 becomes 03:00 -04; 2025-11-02 02:00 -04 becomes 01:00 -05.
		{"gap, fixed", "America/New_York", "15 2 * * *",
			"2025-03-08T12:00:00Z: 2025-03-09T03:00:00-04:00 2025-03-10T02:15:00-04:00"},
		{"overlap, fixed", "America/New_York", "30 1 * * *",
			"2025-11-01T12:00:00Z: 2025-11-02T01:30:00-04:00 2025-11-03T01:30:00-05:00"},
		{"overlap, hourly", "America/New_York", "@hourly",
			"2025-11-02T04:00:00Z: 2025-11-02T01:00:00-04:00 2025-11-02T01:00:00-05:00 2025-11-02T02:00:00-05:00"},
		// 2025-10-05 02:00 +10:30 becomes 02:30 +11; 2025-04-06 02:00 +11 becomes 01:30 +10:30.
		{"half a gap, begin", "Australia/Lord_Howe", "0 2 * * *",
			"2025-10-04T12:00:00Z: 2025-10-05T02:30:00+11:00 2025-10-06T02:00:00+11:00"},
		{"half a gap, within", "Australia/Lord_Howe", "15 2 * * *",
			"2025-10-04T12:00:00Z: 2025-10-05T02:30:00+11:00 2025-10-06T02:15:00+11:00"},
		{"half a gap, behind", "Australia/Lord_Howe", "45 2 * * *",
			"2025-10-04T12:00:00Z: 2025-10-05T02:45:00+11:00 2025-10-06T02:45:00+11:00"},
		{"half a gap, hourly", "Australia/Lord_Howe", "0 * * * *",
			"2025-10-04T14:00:00Z: 2025-10-05T01:00:00+10:30 2025-10-05T02:30:00+11:00 2025-10-05T03:00:00+11:00"},
		{"half a gap, each quarter", "Australia/Lord_Howe", "*/15 * * * *",
			"2025-10-04T15:05:00Z: 2025-10-05T01:45:00+10:30 2025-10-05T02:30:00+11:00 2025-10-05T02:45:00+11:00 2025-10-05T03:00:00+11:00"},
		{"half an overlap, fixed", "Australia/Lord_Howe", "45 1 * * *",
			"2025-04-05T12:00:00Z: 2025-04-06T01:45:00+11:00 2025-04-07T01:45:00+10:30"},
		{"half an overlap, end", "Australia/Lord_Howe", "0 2 * * *",
			"2025-04-05T12:00:00Z: 2025-04-06T02:00:00+10:30 2025-04-07T02:00:00+10:30"},
		{"half an overlap, hourly", "Australia/Lord_Howe", "0 * * * *",
			"2025-04-05T13:30:00Z: 2025-04-06T01:00:00+11:00 2025-04-06T02:00:00+10:30 2025-04-06T03:00:00+10:30"},
		{"half an overlap, each quarter", "Australia/Lord_Howe", "*/15 * * * *",
			"2025-04-05T14:30:00Z: 2025-04-06T01:45:00+11:00 2025-04-06T01:30:00+10:30 2025-04-06T01:45:00+10:30 2025-04-06T02:00:00+10:30"},
		// Midnight is missing: 00:00 becomes 01:00.
		{"no midnight", "America/Sao_Paulo", "@daily",
			"2018-11-03T12:00:00Z: 2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		{"no midnight", "Africa/Cairo", "@daily",
			"2023-04-27T12:00:00Z: 2023-04-28T01:00:00+03:00 2023-04-29T00:00:00+03:00"},
		{"no midnight", "Asia/Beirut", "@weekly",
			"2022-03-21T12:00:00Z: 2022-03-27T01:00:00+03:00 2022-04-03T00:00:00+03:00"},
		// Midnight is put off: 00:00 becomes 23:00 of the day before.
		{"late midnight", "America/Sao_Paulo", "@daily",
			"2018-02-17T12:00:00Z: 2018-02-18T00:00:00-03:00 2018-02-19T00:00:00-03:00"},
		{"late midnight, hour before", "America/Sao_Paulo", "30 23 * * 6",
			"2018-02-17T12:00:00Z: 2018-02-17T23:30:00-02:00 2018-02-24T23:30:00-03:00"},
		{"late midnight, hour before", "Africa/Cairo", "30 23 26 10 *",
			"2023-10-01T00:00:00Z: 2023-10-26T23:30:00+03:00 2024-10-26T23:30:00+03:00"},
		{"late midnight, hourly", "Asia/Beirut", "0 * 29 10 *",
			"2022-10-29T19:30:00Z: 2022-10-29T23:00:00+03:00 2022-10-29T23:00:00+02:00 2023-10-29T00:00:00+02:00"},
		// 2011-12-30 is missing: 29 December ends at -10, 31 December begins at +14.
		{"no day", "Pacific/Apia", "0 9 * * *",
			"2011-12-29T00:00:00Z: 2011-12-29T09:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T09:00:00+14:00 2012-01-01T09:00:00+14:00"},
		{"no day, hourly", "Pacific/Apia", "0 * * * *",
			"2011-12-30T08:30:00Z: 2011-12-29T23:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T01:00:00+14:00"},
		{"no day, its hours", "Pacific/Apia", "0 */12 30 * *",
			"2011-12-01T12:00:00Z: 2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00 2012-01-30T00:00:00+14:00"},
		// Ramadan: 2022-03-27 03:00 +01 becomes 02:00 +00; 2022-05-08 02:00 +00 becomes 03:00 +01.
		{"overlap", "Africa/Casablanca", "30 2 * * *",
			"2022-03-26T12:00:00Z: 2022-03-27T02:30:00+01:00 2022-03-28T02:30:00Z"},
		{"gap", "Africa/Casablanca", "30 2 * * *",
			"2022-05-07T12:00:00Z: 2022-05-08T03:00:00+01:00 2022-05-09T02:30:00+01:00"},
		// No changes.
		{"none", "", "30 2 * * *", "2025-03-29T12:00:00Z: 2025-03-30T02:30:00Z 2025-03-31T02:30:00Z"},
		{"none", "Asia/Kolkata", "30 2 * * *", "2025-03-29T12:00:00Z: 2025-03-30T02:30:00+05:30 2025-03-31T02:30:00+05:30"},
		{"none", "Etc/GMT+5", "0 */6 * * *", "2025-03-30T00:00:00Z: 2025-03-30T00:00:00-05:00 2025-03-30T06:00:00-05:00"},
	} {
		t.Run(tt.zone+" "+tt.name+" "+tt.spec, func(t *testing.T) {
			s := parse(t, tt.spec, tt.zone)
			from, ticks, _ := strings.Cut(tt.ticks, ": ")
			last := at(t, from)
			for want := range strings.FieldsSeq(ticks) {
				got := s.Next(last)
				if !got.Equal(at(t, want)) {
					t.Fatalf("after %s: %s: want %s", last.Format(time.RFC3339), got.Format(time.RFC3339), want)
				}
				// One looks back from the tick, and from a moment later.
				for _, now := range []time.Time{got, got.Add(700 * time.Millisecond)} {
					d := s.Due(last, now, schedule.One, 0)
					if len(d.Fire) != 1 || !d.Fire[0].Equal(got) || d.Skipped != 0 {
						t.Fatalf("due from %s to %s: %+v", last, now, d)
					}
				}
				if d := s.Due(last, got.Add(-1), schedule.One, 0); len(d.Fire) != 0 || d.Skipped != 0 || !d.Next.Equal(got) {
					t.Fatalf("due before %s: %+v", got, d)
				}
				last = got
			}
		})
	}
}
