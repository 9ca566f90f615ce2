package schedule_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/schedule"
)

func TestParse(t *testing.T) {
	from := at(t, "2025-01-01T12:00:00Z") // a Wednesday
	for spec, want := range map[string]string{
		"30 2 * * *":         "2025-01-02T02:30:00Z",
		"15 30 2 * * *":      "2025-01-02T02:30:15Z",
		" 30\t2  * * * ":     "2025-01-02T02:30:00Z",
		"*/20 * * * * *":     "2025-01-01T12:00:20Z",
		"0 8-18/5 * * *":     "2025-01-01T13:00:00Z",
		"0 5/6 * * *":        "2025-01-01T17:00:00Z",
		"0 0 ? * ?":          "2025-01-02T00:00:00Z",
		"0 0 1 feb,JUL *":    "2025-02-01T00:00:00Z",
		"0 0 * * Sat-SAT":    "2025-01-04T00:00:00Z",
		"0 0 10 * 5":         "2025-01-03T00:00:00Z", // either
		"0 0 */10 * 0":       "2025-01-05T00:00:00Z", // either: a step is a restriction
		"0 0 31 4,5 *":       "2025-05-31T00:00:00Z",
		"0 0 29 2 *":         "2028-02-29T00:00:00Z",
		"0 0 30 2 0":         "2025-02-02T00:00:00Z", // either
		"*/60 */24 * * *":    "2025-01-02T00:00:00Z",
		"@yearly":            "2026-01-01T00:00:00Z",
		"@annually":          "2026-01-01T00:00:00Z",
		"@monthly":           "2025-02-01T00:00:00Z",
		"@weekly":            "2025-01-05T00:00:00Z",
		"@daily":             "2025-01-02T00:00:00Z",
		"@midnight":          "2025-01-02T00:00:00Z",
		"@hourly":            "2025-01-01T13:00:00Z",
		"@every 1s":          "2025-01-01T12:00:01Z",
		"  @every   1h30m  ": "2025-01-01T13:30:00Z",
		"@every 87600h":      "2029-12-17T00:00:00Z", // 21,900 days since 1970
	} {
		if got := parse(t, spec, "").Next(from); !got.Equal(at(t, want)) {
			t.Errorf("%q: %s: want %s", spec, got, want)
		}
	}
	if got := parse(t, " 30\t2  * * * ", "").String(); got != "30 2 * * *" {
		t.Error(got)
	}
	// 2100 is no leap year, and the library gives up after five.
	got := parse(t, "0 0 29 2 *", "").Next(at(t, "2096-03-01T00:00:00Z"))
	if want := at(t, "2104-02-29T00:00:00Z"); !got.Equal(want) {
		t.Errorf("%s: want %s", got, want)
	}
}

// nasty are specs that are refused, with what the error must say.
var nasty = []struct{ spec, want string }{
	{"", "must have five fields"},
	{"   ", "must have five fields"},
	{"* * * *", "has 4 fields"},
	{"* * * * * * *", "has 7 fields"},
	{"1-100000000 * * * *", `minute "1-100000000": must be between 0 and 59`},
	{"* 100000000 * * *", `hour "100000000": must be between 0 and 23`},
	{"99999999999999999999 * * * *", "minute"},
	{"0-59/100000000 * * * *", "step must be between 1 and 60"},
	{strings.Repeat("1,", 5000), "must have at most 256 bytes"},
	{strings.Repeat("* ", 5000), "must have at most 256 bytes"},
	{strings.Repeat("1,", 100) + "1 * * * *", "must have at most 60 items"},
	{"*/0 * * * *", `minute "*/0": step must be between 1 and 60`},
	{"*/61 * * * *", "minute"},
	{"*/ * * * *", "minute"},
	{"*/1/1 * * * *", "minute"},
	{"*-5 * * * *", "minute"}, // the library takes it for *
	{"5-3 * * * *", "must not begin after its end"},
	{"1-2-3 * * * *", "minute"},
	{", * * * *", "minute"}, // the library takes it for nothing
	{"1,,2 * * * *", "minute"},
	{"-1 * * * *", "minute"},
	{"+1 * * * *", "minute"},
	{"? * * * *", "minute"},
	{"60 * * * * *", `second "60": must be between 0 and 59`},
	{"* 24 * * *", `hour "24": must be between 0 and 23`},
	{"* * 0 * *", `day of month "0": must be between 1 and 31`},
	{"* * 32 * *", "day of month"},
	{"* * L * *", "day of month"},
	{"* * * 13 *", `month "13": must be between 1 and 12, or jan to dec`},
	{"* * * anf *", "month"},
	{"* * * january *", "month"},
	{"* * * * 7", `day of week "7": must be between 0 and 6, or sun to sat`},
	{"* * * * jan", "day of week"},
	{"* * * * 5#3", "day of week"},
	{"0 0 30 2 *", "day of month: never comes"},
	{"0 0 31 2,4,6,9,11 ?", "day of month: never comes"},
	{"TZ=", "apart from the spec"}, // the library panics
	{"CRON_TZ=Europe/Berlin", "apart from the spec"},
	{"TZ=Europe/Berlin 0 0 * * *", "apart from the spec"},
	{"tz=Europe/Berlin 0 0 * * *", "apart from the spec"},
	{" CRON_TZ=UTC @daily", "apart from the spec"},
	{"@", "must be @every"},
	{"@Daily", "must be @every"},
	{"@reboot", "must be @every"},
	{"@daily 5", "must be @every"},
	{"@every", "duration"},
	{"@every 1h 1m", "duration"},
	{"@every x", "from 1s to 87600h"},
	{"@every 0s", "from 1s to 87600h"},
	{"@every -1h", "from 1s to 87600h"},
	{"@every 500ms", "from 1s to 87600h"},
	{"@every 1500ms", "whole seconds"},
	{"@every 87600h1s", "from 1s to 87600h"},
	{"@every 999999999999999h", "from 1s to 87600h"},
	{"0 0 * *\u00a0*", "printable ASCII"},
	{"0 0 * * *\x00", "printable ASCII"},
	{"0 0 *\n* *", "printable ASCII"},
	{"\xff\xfe", "printable ASCII"},
}

func TestParse_refuses(t *testing.T) {
	for _, tt := range nasty {
		s, err := schedule.Parse(tt.spec, "UTC")
		faults := schedule.Faults(err)
		if s != nil || len(faults) != 1 {
			t.Errorf("%q: %v %v", tt.spec, s, err)
			continue
		}
		f := faults[0]
		if f.Field != "spec" || f.Value != tt.spec || !strings.Contains(f.Limit, tt.want) {
			t.Errorf("%q: %+v: want %q", tt.spec, f, tt.want)
		}
		if s := f.Error(); !strings.HasPrefix(s, `schedule: spec "`) || len(s) > 600 {
			t.Errorf("%q: %d bytes: %s", tt.spec, len(s), s)
		}
	}
}

func TestParse_zone(t *testing.T) {
	for zone, want := range map[string]string{
		"Nowhere/Land":          "such as Europe/Berlin",
		"Europe":                "such as Europe/Berlin", // a directory
		"../../etc/passwd":      "such as Europe/Berlin",
		"/etc/passwd":           "such as Europe/Berlin",
		"Local":                 "depends on the process",
		"Europe/Berlin ":        "such as Europe/Berlin",
		"Europe/Berl\u00edn":    "such as Europe/Berlin",
		"\x00":                  "such as Europe/Berlin",
		strings.Repeat("a", 65): "must have at most 64 bytes",
	} {
		_, err := schedule.Parse("@daily", zone)
		f := schedule.Faults(err)
		if len(f) != 1 || f[0].Field != "zone" || f[0].Value != zone || !strings.Contains(f[0].Limit, want) {
			t.Errorf("%q: %v: want %q", zone, err, want)
		}
	}
	// Each of the two is named.
	_, err := schedule.Parse("25 0 * * *x", "Nowhere")
	if f := schedule.Faults(err); len(f) != 2 || f[0].Field != "spec" || f[1].Field != "zone" {
		t.Error(err)
	}
	if f := schedule.Faults(nil); f != nil {
		t.Error(f)
	}
	if got := parse(t, "@daily", "Asia/Tokyo").Next(time.Time{}).Location().String(); got != "Asia/Tokyo" {
		t.Error(got)
	}
}

// parseAllocs parses and returns the bytes it took.
func parseAllocs(spec, zone string) (*schedule.Spec, uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := schedule.Parse(spec, zone)
	runtime.ReadMemStats(&after)
	return s, after.TotalAlloc - before.TotalAlloc, err
}

const maxAllocs = 1 << 20

func TestParse_allocates(t *testing.T) {
	specs := []string{"@daily", "* * * * * *", strings.Repeat("1,", 59) + "1 * * * *", strings.Repeat("*,", 10_000_000)}
	for _, tt := range nasty {
		specs = append(specs, tt.spec)
	}
	for _, spec := range specs {
		if _, n, _ := parseAllocs(spec, "Europe/Berlin"); n > maxAllocs/4 {
			t.Errorf("%.60q: %d bytes", spec, n)
		}
	}
}
