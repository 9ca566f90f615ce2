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

// chart is a number over a time, with a table beside it.
type chart struct {
	Name  string // of the number, for the accessible name
	Span  string
	Line  string // the points of the line
	Area  string // the same, with the ground below
	Grid  []curveLabel
	Ticks []curveLabel
	Peak  string // the highest number
	When  string // it was; empty: there is nothing but 0
	X, Y  length // of the peak
	Rows  []chartRow
}

// chartRow is a point of a chart as a row of its table.
type chartRow struct {
	At    time.Time
	Value string
}

// The frame of a chart in its picture, see front.html.
const (
	chartLeft, chartRight = 48, 312
	chartTop, chartGround = 10, 90
)

// point is a number from a time to another, or at one.
type point struct {
	at, to time.Time
	y      float64
}

// draw returns the chart of points over a span that ends now. The chart is at least as high as
// least, and nice rounds that up for the axis.
func draw(name string, s span, points []point, now time.Time, least float64, nice func(float64) float64, text func(float64) string) *chart {
	c := &chart{Name: name, Span: s.Name}
	if len(points) == 0 {
		return c
	}
	begin := now.Add(-s.of)
	peak := slices.MaxFunc(points, func(a, b point) int { return cmp.Compare(a.y, b.y) })
	top := nice(max(peak.y, least))
	x := func(p point) length {
		at := p.at.Add(p.to.Sub(p.at) / 2)
		return chartLeft + length(chartRight-chartLeft)*length(max(at.Sub(begin).Seconds(), 0)/s.of.Seconds())
	}
	y := func(v float64) length { return chartGround - length(chartGround-chartTop)*length(v/top) }
	line := make([]string, 0, len(points)+1)
	for _, p := range points {
		line = append(line, x(p).String()+","+y(p.y).String())
		c.Rows = append(c.Rows, chartRow{p.at, text(p.y)})
	}
	if len(points) == 1 {
		line = append(line, line[0]) // a dot, as its ends are round
	}
	c.Line = strings.Join(line, " ")
	c.Area = area(c.Line, x(points[0]), x(points[len(points)-1]), chartGround)
	if c.Peak = text(peak.y); peak.y > 0 {
		c.When, c.X, c.Y = moment(s, peak.at), x(peak), y(peak.y)
	}
	for _, v := range []float64{0, top / 2, top} {
		c.Grid = append(c.Grid, curveLabel{chartLeft - 6, y(v), text(v), "end"})
	}
	c.Ticks = []curveLabel{
		{chartLeft, chartGround + 16, moment(s, begin), "start"},
		{(chartLeft + chartRight) / 2, chartGround + 16, moment(s, begin.Add(s.of/2)), "middle"},
		{chartRight, chartGround + 16, "now", "end"},
	}
	return c
}

// area returns the points of what is between a line and the ground.
func area(line string, left, right, ground length) string {
	return left.String() + "," + ground.String() + " " + line + " " + right.String() + "," + ground.String()
}

// The frame of a small line in its picture, see parts.html.
const smallWidth, smallTop, smallGround = 92, 2, 20

// smallLine is how many died of a cause in each hour of the last day, as a small picture.
type smallLine struct {
	Line, Area string // points
	Most       string // the highest number and when it was
}

// day returns the line of the hours of a cause, as they are now: they may have been counted earlier, if
// nobody has died since. It is nil if nothing was counted.
func day(c errand.Cause, now time.Time) *smallLine {
	h := c.Hours
	if h == nil || len(h.Died) == 0 {
		return nil
	}
	from := now.UTC().Truncate(time.Hour).Add(time.Duration(1-len(h.Died)) * time.Hour)
	died := make([]int, len(h.Died))
	for i := range died {
		if at := i + int(from.Sub(h.From)/time.Hour); at >= 0 && at < len(h.Died) {
			died[i] = h.Died[at]
		}
	}
	peak := slices.Max(died)
	if peak == 0 {
		return &smallLine{Most: "none"}
	}
	line := make([]string, len(died))
	step := length(smallWidth) / length(max(len(died)-1, 1))
	for i, n := range died {
		line[i] = (2 + step*length(i)).String() + "," + (smallGround - (smallGround-smallTop)*length(n)/length(peak)).String()
	}
	l := &smallLine{Line: strings.Join(line, " "), Most: count(peak)}
	l.Area = area(l.Line, 2, 2+smallWidth, smallGround)
	if peak >= h.Most {
		l.Most += " or more"
	}
	l.Most += " at " + from.Add(time.Duration(slices.Index(died, peak))*time.Hour).Format("15:04")
	return l
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

// niceTime is niceCount for seconds, as people divide time.
func niceTime(v float64) float64 {
	for _, n := range []float64{10, 20, 60, 120, 300, 600, 1200, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 86400} {
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
	Chart *chart
}

// numbers returns the numbers of the front.
func (l *look) numbers(s span) []figure {
	oldest, now := l.oldest(), l.clock.Now
	age := figure{Title: "Oldest due", Value: "none", Time: oldest,
		Chart: draw("Age of the oldest due", s, l.past.ages(s, now, oldest), now, 10, niceTime, seconds)}
	rated := func(title string, n number) figure {
		f := figure{Title: title, Value: "–", Chart: draw(title, s, l.past.rates(s, now, n), now, 1, niceCount, perMinute)}
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
	failures := rated("Failed a minute", numberFailed)
	if v, _ := l.rate(numberDead); failures.Note == "" && v > 0 {
		failures.Note = perMinute(v) + " a minute died"
	}
	all := []figure{age, rated("Done a minute", numberDone), failures}
	for i := range all {
		if c := all[i].Chart; all[i].Note == "" && c.When != "" {
			all[i].Note = fmt.Sprintf("at most %s, at %s", c.Peak, c.When)
		}
	}
	return all
}

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
