package dashboard

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// before is a time before noon.
func before(minutes float64) time.Time {
	return noon.Add(-time.Duration(minutes * float64(time.Minute)))
}

// periodOf returns one with numbers of a lane.
func periodOf(from, to time.Time, l errand.LanePeriod) errand.Period {
	return errand.Period{From: from, To: to, Lanes: []errand.LanePeriod{l}}
}

// A rate is of the last five to ten minutes, and not known before the file is so old. What is
// between two periods is nothing, and of a period that began before its part counts.
func TestPast_rate(t *testing.T) {
	done := func(n int64) errand.LanePeriod { return errand.LanePeriod{Done: n} }
	for name, c := range map[string]struct {
		all  []errand.Period
		now  time.Time
		want float64
		ok   bool
	}{
		"nothing yet":        {nil, noon, 0, false},
		"a young file":       {[]errand.Period{periodOf(before(4), noon, done(5))}, noon, 0, false},
		"five minutes":       {[]errand.Period{periodOf(before(5), noon, done(10))}, noon, 0, false},
		"ten minutes":        {[]errand.Period{periodOf(before(10), before(5), done(9)), periodOf(before(5), noon, done(10))}, noon, 2, true},
		"eight of thirteen":  {[]errand.Period{periodOf(before(10), before(5), done(9)), periodOf(before(5), noon, done(10)), periodOf(noon, noon.Add(3*time.Minute), done(6))}, noon.Add(3 * time.Minute), 2, true},
		"nothing of late":    {[]errand.Period{periodOf(before(60), before(55), done(10))}, noon, 0, true},
		"a period of more":   {[]errand.Period{periodOf(before(20), noon, done(80))}, noon, 4, true},
		"one that has begun": {[]errand.Period{periodOf(before(60), before(55), done(10)), periodOf(noon, noon.Add(time.Second), done(1))}, noon.Add(time.Second), 60 / 301.0, true},
	} {
		p := &past{periods: c.all}
		got, ok := p.rate(c.now, numberDone)
		if math.Abs(got-c.want) > 1e-9 || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", name, got, ok, c.want, c.ok)
		}
	}
}

// The points of a chart begin with the file. Where nothing happened they are 0.
func TestPast_rates(t *testing.T) {
	p := &past{periods: []errand.Period{
		periodOf(before(40), before(35), errand.LanePeriod{Done: 10}), periodOf(before(20), before(15), errand.LanePeriod{Done: 5}),
		periodOf(noon, noon.Add(2*time.Minute), errand.LanePeriod{Done: 8}),
	}}
	var got []float64
	all := p.rates(spans[0], noon.Add(2*time.Minute), numberDone)
	for _, at := range all {
		got = append(got, at.y)
	}
	if want := []float64{2, 0, 0, 0, 1, 0, 0, 0, 4}; !reflect.DeepEqual(got, want) || !all[0].at.Equal(before(40)) {
		t.Errorf("%v from %v, want %v", got, all[0].at, want)
	}
	if all = p.rates(spans[0], noon.Add(30*time.Second), numberDone); len(all) != 8 {
		t.Errorf("half a minute counts as a point: %+v", all)
	}
}

// The age of the oldest job that is due rises with time, and falls when another one is the oldest.
func TestPast_ages(t *testing.T) {
	due := func(t time.Time) errand.LanePeriod { return errand.LanePeriod{OldestDue: t} }
	p := &past{periods: []errand.Period{
		periodOf(before(40), before(35), due(before(45))), // one that waited for five minutes
		periodOf(before(30), before(25), due(time.Time{})),
		periodOf(before(10), before(5), due(before(12))), // none had waited until then
	}}
	var got [][2]float64
	for _, at := range p.ages(spans[0], noon, before(12)) {
		got = append(got, [2]float64{noon.Sub(at.at).Minutes(), at.y / 60})
	}
	if want := [][2]float64{{40, 5}, {30, 0}, {12, 0}, {10, 2}, {0, 12}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A chart goes from the begin of its span to now, is as high as a round number, and says where it
// was highest. Its table has each point.
func TestDraw(t *testing.T) {
	points := []point{{before(60), before(60), 5}, {before(30), before(30), 35}, {noon, noon, 0}}
	c := draw("Done a minute", "done", spans[0], points, noon, 1, niceCount, perMinute)
	if c.Line != "0,87.5 50,12.5 100,100" || c.Area != "0,100 0,87.5 50,12.5 100,100 100,100" || c.Peak != "35" || c.When != "11:30" || c.Sign != (curveLabel{50, 12.5, "35, at 11:30", "middle"}) {
		t.Errorf("%+v", c)
	}
	var texts []string
	for _, l := range append(c.Grid, c.Ticks...) {
		texts = append(texts, l.Text)
	}
	if want := []string{"0", "20", "40", "11:00", "11:30", "now"}; !reflect.DeepEqual(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	if want := []chartRow{{before(60), "5"}, {before(30), "35"}, {noon, "0"}}; !reflect.DeepEqual(c.Rows, want) {
		t.Errorf("rows %v", c.Rows)
	}
	if c := draw("Done a minute", "done", spans[0], []point{{noon, noon, 0}}, noon, 1, niceCount, perMinute); c.Peak != "0" || c.When != "" || c.Line == "" {
		t.Errorf("of nothing but 0: %+v", c)
	}
	if c := draw("Done a minute", "done", spans[0], nil, noon, 1, niceCount, perMinute); c.Line != "" {
		t.Errorf("without points: %+v", c)
	}
}

// More jobs than the places can run, and that is said.
func TestPlaces(t *testing.T) {
	l := &look{crew: crew{workers: []errand.WorkerInfo{{Concurrency: 4}}}}
	s := l.sums()
	if got := l.places(&s); got != "of 4 places" {
		t.Errorf("of an empty queue: %q", got)
	}
	s.Running = 53
	if got, want := l.places(&s), "of 4 places: webhooks, and kinds with CountsFor, take one for a short time only"; got != want {
		t.Errorf("of webhooks: %q", got)
	}
}

// A page of a file with more lanes than have rates, or whose rates have become 0, reads nothing while nothing is committed.
func TestLook_fades(t *testing.T) {
	young := past{periods: []errand.Period{periodOf(before(8), before(3), errand.LanePeriod{Done: 1})}}
	old := past{periods: []errand.Period{periodOf(before(60), before(55), errand.LanePeriod{Done: 1})}}
	for name, c := range map[string]struct {
		past past
		rate *errand.Rate
		want bool
	}{
		"not known yet": {young, nil, true},
		"never known":   {old, nil, false},
		"no history":    {past{none: true}, nil, false},
		"some":          {old, &errand.Rate{Since: before(7), Done: 1}, true},
		"none any more": {old, &errand.Rate{Since: before(7)}, false},
	} {
		l := &look{past: c.past, lanes: []errand.LaneTotals{{Stats: errand.LaneStats{Rate: c.rate}}}}
		if got := l.fades(noon); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
