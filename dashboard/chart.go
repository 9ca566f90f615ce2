package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/perminute"
)

// chart is a number over a time, with a table beside it. Its places are in hundredths of the width and
// the height of the plot, which is stretched; its labels are not.
type chart struct {
	Name  string // of the number, for the accessible name
	Class string // the state whose colour it has
	Span  string
	Line  string // the points of the line
	Area  string // the same, with the ground below
	Grid  []curveLabel
	Ticks []curveLabel
	Peak  string // the highest number
	When  string // it was; empty: there is nothing but 0
	Sign  curveLabel
	Rows  []chartRow
}

// chartRow is a point of a chart as a row of its table.
type chartRow struct {
	At    time.Time
	Value string
}

// whole is the width and the height of a plot.
const whole = 100

// point is a number from a time to another, or at one.
type point struct {
	at, to time.Time
	y      float64
}

// highest returns the point of the highest number; of several the first.
func highest(points []point) point {
	return slices.MaxFunc(points, func(a, b point) int { return cmp.Compare(a.y, b.y) })
}

// lineOf returns the line of points over a span that ends now, and the area below it.
func lineOf(s span, points []point, now time.Time, top float64) (line, area string) {
	all := make([]string, 0, len(points)+1)
	for _, p := range points {
		all = append(all, s.x(p, now).String()+","+heightOf(p.y, top).String())
	}
	if len(points) == 1 {
		all = append(all, all[0]) // a dot, as its ends are round
	}
	line = strings.Join(all, " ")
	ground := "," + length(whole).String()
	return line, s.x(points[0], now).String() + ground + " " + line + " " + s.x(points[len(points)-1], now).String() + ground
}

// x returns the place of a point in a plot of the span.
func (s span) x(p point, now time.Time) length {
	at := p.at.Add(p.to.Sub(p.at) / 2)
	return whole * length(max(at.Sub(now.Add(-s.of)).Seconds(), 0)/s.of.Seconds())
}

func heightOf(v, top float64) length { return whole - whole*length(v/top) }

// draw returns the chart of points over a span that ends now. The chart is at least as high as
// least, and nice rounds that up for the axis.
func draw(name, class string, s span, points []point, now time.Time, least float64, nice func(float64) float64, text func(float64) string) *chart {
	c := &chart{Name: name, Class: class, Span: s.Name}
	if len(points) == 0 {
		return c
	}
	begin, peak := now.Add(-s.of), highest(points)
	top := nice(max(peak.y, least))
	for _, p := range points {
		c.Rows = append(c.Rows, chartRow{p.at, text(p.y)})
	}
	c.Line, c.Area = lineOf(s, points, now, top)
	if c.Peak = text(peak.y); peak.y > 0 {
		c.When = moment(s, peak.at)
		c.Sign = curveLabel{s.x(peak, now), heightOf(peak.y, top), c.Peak + ", at " + c.When, "middle"}
		if peak.at.Equal(now) {
			c.Sign.Text = c.Peak + ", now"
		}
		switch {
		case c.Sign.X < whole/4:
			c.Sign.Class = "start"
		case c.Sign.X > whole*3/4:
			c.Sign.Class = "end"
		}
	}
	for _, v := range []float64{0, top / 2, top} {
		c.Grid = append(c.Grid, curveLabel{0, heightOf(v, top), text(v), "end"})
	}
	c.Ticks = []curveLabel{
		{0, whole, moment(s, begin), "start"}, {whole / 2, whole, moment(s, begin.Add(s.of/2)), "middle"}, {whole, whole, "now", "end"},
	}
	return c
}

// spark is a chart without axes: what it shows, and how high that is, its name says.
type spark struct{ Class, Line, Area, Text string }

// newSpark returns the spark of points, nil if it would be flat, or as
// good as nothing is known.
func newSpark(name, class string, s span, points []point, now time.Time, text func(float64) string) *spark {
	if len(points) < 4 || !slices.ContainsFunc(points, func(p point) bool { return p.y != points[0].y }) {
		return nil
	}
	peak := highest(points)
	f := &spark{Class: class, Text: name + " in the last " + s.Name + ", from 0 to " + text(peak.y) + " at " + moment(s, peak.at)}
	f.Line, f.Area = lineOf(s, points, now, peak.y*1.15)
	return f
}

// day is the spark of how many died of a cause in each hour of the last day, as they are now: they may
// have been counted earlier, if nobody has died since. It is nil if nothing was counted, and without a
// line if nobody has died.
func day(c errand.Cause, now time.Time) *spark {
	h := c.Hours
	if h == nil || len(h.Died) == 0 {
		return nil
	}
	s := span{Name: "day", of: time.Duration(len(h.Died)) * time.Hour, by: time.Hour}
	end := now.UTC().Truncate(time.Hour).Add(time.Hour)
	points := make([]point, len(h.Died))
	for i := range points {
		p := &points[i]
		p.at = end.Add(time.Duration(i-len(points)) * time.Hour)
		p.to = p.at.Add(time.Hour)
		if j := int(p.at.Sub(h.From) / time.Hour); j >= 0 && j < len(h.Died) {
			p.y = float64(h.Died[j])
		}
	}
	peak := highest(points)
	f := &spark{Class: "dead", Text: "none"}
	if peak.y == 0 {
		return f
	}
	f.Text = "most from " + moment(s, peak.at) + ": " + count(int(peak.y))
	if int(peak.y) >= h.Most {
		f.Text += " or more, as no more are counted an hour"
	}
	f.Line, f.Area = lineOf(s, points, end, peak.y*1.15)
	return f
}

// moment returns a time as a chart of a span says it, in UTC as all exact times of the pages.
func moment(s span, at time.Time) string {
	if s.of > 24*time.Hour {
		return at.UTC().Format("Jan 2 15:04")
	}
	return at.UTC().Format("15:04")
}

// niceCount returns the next number that is 2, 4 or 10 times a power of ten.
func niceCount(v float64) float64 {
	for of := 1.0; ; of *= 10 {
		for _, n := range []float64{2, 4, 10} {
			if n*of >= v {
				return n * of
			}
		}
	}
}

// niceTime is niceCount for seconds, as people divide time: half of it is short to write, too.
func niceTime(v float64) float64 {
	for _, n := range []float64{10, 20, 60, 120, 240, 600, 1200, 3600, 2 * 3600, 4 * 3600, 12 * 3600, 86400} {
		if n >= v {
			return n
		}
	}
	return niceCount(v/86400) * 86400
}

// figure is one of the numbers of the front with its chart.
type figure struct {
	Title string
	Value string    // as text
	Time  time.Time // in place of the text, if it is not zero
	Note  string
	Of    *errand.LaneStats // what it is of; nil: all
	Chart *chart
}

// gauge returns the age of the job that waits longest.
func (l *look) gauge(s span, well bool) figure {
	of, now, class := l.oldestLane(), l.clock.Now, "held"
	f := figure{Title: "Oldest due", Value: "none", Of: of}
	if of != nil {
		f.Time = of.OldestDue
	} else if l.sums().Held > 0 {
		f.Value = "all held"
	}
	if well {
		class = "ready"
	}
	f.Chart = draw("Age of the oldest due", class, s, l.past.ages(s, now, f.Time), now, 10, niceTime, seconds)
	return f
}

// numbers returns the numbers of the front.
func (l *look) numbers(s span) []figure {
	now := l.clock.Now
	mean := ", as the mean of " + took(s.by)
	rated := func(title, class string, n number) figure {
		f := figure{Title: title, Value: "–", Chart: draw(title, class, s, l.past.rates(s, now, n), now, 1, niceCount, perMinute)}
		v, ok := l.rate(n)
		switch {
		case ok:
			f.Value = perMinute(v)
		case l.past.none:
			f.Note = "this store keeps no history"
		default:
			f.Note = "not known of all queues yet"
		}
		return f
	}
	failures := rated("Failed a minute", "dead", numberFailed)
	if v, _ := l.rate(numberDead); failures.Note == "" && v > 0 {
		failures.Note = perMinute(v) + " a minute died"
	}
	sums := l.sums()
	ready := figure{Title: "Ready", Value: count(sums.Ready),
		Chart: draw("Ready", "ready", s, l.past.levels(s, now, float64(sums.Ready), func(o *errand.LanePeriod) int64 { return o.Ready }), now, 1, niceCount, wholeNumber)}
	if sums.Held > 0 {
		ready.Note = "with the held ones"
	}
	all := []figure{rated("Done a minute", "done", numberDone), failures, ready}
	for i := range all {
		if c := all[i].Chart; all[i].Note == "" && c.When != "" {
			if all[i].Note = fmt.Sprintf("at most %s, at %s", c.Peak, c.When); all[i].Title != ready.Title {
				all[i].Note += mean
			}
		}
	}
	return all
}

// wholeNumber returns a number of jobs as text.
func wholeNumber(v float64) string { return count(int64(v + 0.5)) }

// rate returns how much there is of a number a minute in all lanes; known is false if the file is
// too young. It is the sum of what tables show, unless one of these is not known: the file has
// numbers of the first 200 lanes, and of the others together.
func (l *look) rate(n number) (perMinute float64, known bool) {
	for i := range l.lanes {
		r := l.lanes[i].Stats.Rate
		if r == nil {
			return l.past.rate(l.clock.Now, n)
		}
		perMinute += n.rate(r)
	}
	return perMinute, len(l.lanes) > 0
}

// places says how many jobs the workers take at a time.
func (l *look) places(s *sums) string {
	if l.unshown {
		return ""
	}
	text := "of " + plural(int64(s.Places), "place")
	if s.Running > int64(s.Places) && s.Places > 0 {
		text += ": webhooks, and kinds with CountsFor, take one for a short time only"
	}
	return text
}

// perMinute returns a rate as text.
func perMinute(v float64) string { return perminute.Text(v, count[int64]) }

// seconds returns a number of seconds as a duration for people.
func seconds(v float64) string {
	if v < 1 {
		return "0 s"
	}
	return took(time.Duration(v * float64(time.Second)))
}
