package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// chart is a line of the last hour, with a table beside it.
type chart struct {
	Name  string   // of the numbers, for the accessible name
	Lines []string // points of the parts of the line, which is broken where nothing was read
	Peak  string   // the highest number
	Rows  []chartRow
	Since time.Time // when the first sample was taken, on the queue's clock; zero: there is none
}

// chartRow is the highest number of five minutes.
type chartRow struct {
	From time.Time
	Most string
}

const (
	chartWidth, chartHeight = 240, 48
	rowEach                 = 5 * time.Minute
)

// point is a number at a time.
type point struct {
	at time.Time
	y  float64
}

// draw returns the chart of points of this machine's clock, of which now is the one and queue the
// other that pages show. The chart is at least as high as least.
func draw(name string, points []point, now, queue time.Time, least float64, text func(float64) string) *chart {
	c := &chart{Name: name}
	if len(points) == 0 {
		return c
	}
	shown := func(at time.Time) time.Time { return queue.Add(-now.Sub(at)).Round(time.Second) }
	c.Since = shown(points[0].at)
	c.Peak = text(highest(points))
	top := max(highest(points), least)
	var line []string
	end := func() {
		if len(line) == 1 {
			line = append(line, line[0]) // a dot, as its ends are round
		}
		if len(line) > 0 {
			c.Lines = append(c.Lines, strings.Join(line, " "))
		}
		line = nil
	}
	var most float64
	from := points[0].at.Truncate(rowEach)
	row := func() { c.Rows = append(c.Rows, chartRow{From: shown(from), Most: text(most)}) }
	for i, p := range points {
		if i > 0 && p.at.Sub(points[i-1].at) >= gap {
			end()
		}
		x := chartWidth - 2 - float64(chartWidth-4)*now.Sub(p.at).Hours()
		y := chartHeight - 2 - float64(chartHeight-4)*p.y/top
		line = append(line, fixed(max(x, 2))+","+fixed(y))
		if at := p.at.Truncate(rowEach); !at.Equal(from) {
			row()
			from, most = at, 0
		}
		most = max(most, p.y)
	}
	end()
	row()
	return c
}

// highest returns the highest number, 0 if there are no points.
func highest(points []point) (most float64) {
	for _, p := range points {
		most = max(most, p.y)
	}
	return most
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// figure is one of the four numbers of the front.
type figure struct {
	Title string
	Value string    // as text
	Time  time.Time // in place of the text, if it is not zero
	Of    string    // of how many
	Note  string
	Chart *chart
}

// numbers returns the four numbers of the front.
func (l *look) numbers() []figure {
	s, oldest, now := l.sums(), l.oldest(), time.Now()
	line := func(name string, least float64, text func(float64) string, of func(int) (float64, bool)) *chart {
		points := make([]point, 0, len(l.hour))
		for i := range l.hour {
			if y, ok := of(i); ok {
				points = append(points, point{l.hour[i].at, y})
			}
		}
		return draw(name, points, now, l.clock.Now, least, text)
	}
	whole := func(v float64) string { return count(int64(v + 0.5)) }
	age := figure{Title: "Oldest due", Value: "none", Time: oldest, Chart: line("Age of the oldest due", 10, seconds,
		func(i int) (float64, bool) { return l.hour[i].oldest.Truncate(time.Second).Seconds(), true })}
	rated := func(title, name string, of func(*sample) int64) figure {
		n := figure{Title: title, Value: "–", Note: "known in a minute", Chart: line(name, 1, whole, func(i int) (float64, bool) { return rate(l.hour, i, of) })}
		if v, ok := l.rate(of); ok {
			n.Value, n.Note = whole(v), ""
		}
		return n
	}
	var ran int64
	for i := range l.hour {
		ran = max(ran, l.hour[i].running)
	}
	running := figure{Title: "Running", Value: count(s.Running), Chart: line("Running", 1, whole, func(i int) (float64, bool) { return float64(l.hour[i].running), true })}
	if !l.unshown {
		running.Of = fmt.Sprintf("of %s", plural(int64(s.Places), "place"))
		if max(ran, s.Running) > int64(s.Places) && s.Places > 0 {
			running.Note = ". More can run than there are places: webhooks, and kinds with CountsFor, take one for a short time only."
		}
	}
	failed := rated("Failed a minute", "Failed a minute", func(s *sample) int64 { return s.failed })
	if failed.Note == "" && l.others() {
		failed.Note = "of other processes only those that died"
	}
	return []figure{age, rated("Done a minute", "Done a minute", func(s *sample) int64 { return s.ended }), failed, running}
}

// rate returns how much a total rises a minute now; known is false if that takes more samples.
func (l *look) rate(of func(*sample) int64) (perMinute float64, known bool) {
	if len(l.hour) == 0 {
		return 0, false
	}
	return rate(l.hour, len(l.hour)-1, of)
}

// seconds returns a number of seconds as a duration for people.
func seconds(v float64) string {
	if v < 1 {
		return "0 s"
	}
	return took(time.Duration(v * float64(time.Second)))
}
