package dashboard

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
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

// A rate is of the last minute, and not known before there is one. It bridges no gap, and does not
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
		"ten seconds":   {[]sample{at(0, 5), at(10, 255)}, 0, false},
		"a first one":   {[]sample{at(0, 5), at(10, 255), at(20, 255), at(30, 255), at(40, 255), at(50, 255), at(60, 255)}, 250, true},
		"a minute":      {[]sample{at(0, 0), at(10, 100), at(20, 101), at(30, 102), at(40, 103), at(50, 104), at(60, 105), at(70, 106)}, 6, true},
		"after a gap":   {[]sample{at(0, 0), at(100, 900)}, 0, false},
		"another file":  {[]sample{at(0, 900), at(20, 900), at(40, 3), at(60, 5)}, 0, true},
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
	if !reflect.DeepEqual(c.Lines, want) || c.Peak != "20.0" || !c.Since.Equal(noon.Add(-61*time.Minute)) {
		t.Errorf("%+v", c)
	}
	var rows []string
	for _, r := range c.Rows {
		rows = append(rows, r.From.Format("15:04")+" "+r.Most)
	}
	if got := strings.Join(rows, ", "); got != "10:59 5.0, 11:29 20.0, 11:59 0.0" {
		t.Errorf("rows %s", got)
	}
	if c := draw("Running", []point{{noon, 0}}, noon, noon, 1, fixed); c.Peak != "0.0" || len(c.Lines) != 1 {
		t.Errorf("of nothing but 0: %+v", c)
	}
	if c := draw("Running", nil, noon, noon, 1, fixed); c.Lines != nil || !c.Since.IsZero() {
		t.Errorf("without points: %+v", c)
	}
}

// The numbers of the front say how high they were, and nothing higher. More than the places can
// run, and that is said.
func TestNumbers(t *testing.T) {
	l := &look{crew: crew{workers: []errand.WorkerInfo{{Concurrency: 4}}}, hour: []sample{{at: time.Now()}}}
	if n := l.numbers(); n[0].Chart.Peak != "0 s" || n[3].Chart.Peak != "0" || n[3].Of+n[3].Note != "of 4 places" {
		t.Errorf("of an empty queue: %+v", n)
	}
	l.hour[0].running = 53
	if n := l.numbers(); n[3].Chart.Peak != "53" || !strings.HasPrefix(n[3].Of+n[3].Note, "of 4 places. More can run than there are places: ") {
		t.Errorf("of webhooks: %+v", n[3])
	}
}
