package dashboard

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// The ring keeps the last hour, the oldest sample first.
func TestHour(t *testing.T) {
	var h hour
	if len(h.all()) != 0 {
		t.Errorf("%d samples at first", len(h.all()))
	}
	for i := range 500 {
		h.add(sample{ended: int64(i)})
		all := h.all()
		if n := min(i+1, 360); len(all) != n || all[0].ended != int64(i+1-n) || all[n-1].ended != int64(i) {
			t.Fatalf("after %d samples there are %d", i+1, len(all))
		}
	}
}

// A rate is of the last minute, or of as much of it as there is. It bridges no gap, and does not
// fall below 0.
func TestRate(t *testing.T) {
	at := func(s int, ended int64) sample {
		return sample{at: noon.Add(time.Duration(s) * time.Second), ended: ended}
	}
	for name, c := range map[string]struct {
		all  []sample
		want float64
		ok   bool
	}{
		"one sample":    {[]sample{at(0, 5)}, 0, false},
		"ten seconds":   {[]sample{at(0, 5), at(10, 7)}, 12, true},
		"a minute":      {[]sample{at(0, 0), at(10, 100), at(20, 101), at(30, 102), at(40, 103), at(50, 104), at(60, 105), at(70, 106)}, 6, true},
		"after a gap":   {[]sample{at(0, 0), at(100, 900)}, 0, false},
		"another file":  {[]sample{at(0, 900), at(10, 3)}, 0, true},
		"two that meet": {[]sample{at(0, 0), at(0, 3)}, 0, false},
	} {
		got, ok := rate(c.all, len(c.all)-1, func(s *sample) int64 { return s.ended })
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", name, got, ok, c.want, c.ok)
		}
	}
}

// A chart goes from an hour ago to now. Its line is broken where nothing was read, and its table
// has the highest number of each five minutes.
func TestDraw(t *testing.T) {
	points := []point{{noon.Add(-time.Hour), 5}, {noon.Add(-30 * time.Minute), 10}, {noon.Add(-30*time.Minute + 10*time.Second), 20}, {noon, 0}}
	c := draw("Running", points, noon, noon.Add(-time.Minute), 1, fixed)
	want := []string{"2.0,35.0 2.0,35.0", "120.0,24.0 120.7,2.0", "238.0,46.0 238.0,46.0"}
	if !reflect.DeepEqual(c.Lines, want) || c.Top != "20.0" || !c.Since.Equal(noon.Add(-61*time.Minute)) {
		t.Errorf("%+v", c)
	}
	var rows []string
	for _, r := range c.Rows {
		rows = append(rows, r.From.Format("15:04")+" "+r.Most)
	}
	if got := strings.Join(rows, ", "); got != "10:59 5.0, 11:29 20.0, 11:59 0.0" {
		t.Errorf("rows %s", got)
	}
	if c := draw("Running", nil, noon, noon, 1, fixed); c.Lines != nil || !c.Since.IsZero() {
		t.Errorf("without points: %+v", c)
	}
}
