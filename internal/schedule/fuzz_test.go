package schedule_test

import (
	"testing"
	"time"

	"github.com/errandq/errand/internal/schedule"
)

func FuzzParse(f *testing.F) {
	for _, tt := range nasty {
		f.Add(tt.spec, "Europe/Berlin", int64(1_750_000_000))
	}
	for _, r := range rules {
		f.Add(r.spec, "Australia/Lord_Howe", int64(1_743_260_400))
	}
	f.Add("@every 90m", "Pacific/Apia", int64(-62_135_596_801))
	f.Add("@hourly", "America/Sao_Paulo", int64(253_402_300_799))
	f.Add("59 59 23 31 12 *", "../UTC", int64(1<<62))
	f.Fuzz(func(t *testing.T, spec, zone string, unix int64) {
		s, n, err := parseAllocs(spec, zone)
		if n > maxAllocs {
			t.Fatalf("%d bytes allocated", n)
		}
		if (s == nil) == (err == nil) {
			t.Fatalf("%v %v", s, err)
		}
		if err != nil {
			faults := schedule.Faults(err)
			if len(faults) == 0 {
				t.Fatalf("no faults in %v", err)
			}
			for _, f := range faults {
				if f.Limit == "" || f.Field == "spec" && f.Value != spec || f.Field == "zone" && f.Value != zone {
					t.Fatalf("%+v", f)
				}
			}
			return
		}
		again := parse(t, s.String(), zone)
		from := time.Unix(unix, 0)
		last := from
		for range 5 {
			next := s.Next(last)
			if !next.Equal(again.Next(last)) {
				t.Fatalf("%s and %s: other ticks", spec, again)
			}
			if next.IsZero() {
				if last.Year() < 9980 {
					t.Fatalf("no tick after %s", last)
				}
				return
			}
			if !next.After(last) {
				t.Fatalf("%s comes after %s", next, last)
			}
			d := s.Due(last, next, schedule.Skip, 0)
			if d.Skipped != 0 || len(d.Fire) != 1 || !d.Fire[0].Equal(next) {
				t.Fatalf("from %s to %s: %+v", last, next, d)
			}
			last = next
		}
		if d := s.Due(from, last, schedule.One, 0); d.Skipped != 4 || len(d.Fire) != 1 || !d.Fire[0].Equal(last) {
			t.Fatalf("from %s to %s: %+v", from, last, d)
		}
	})
}
