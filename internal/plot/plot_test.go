package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/plot"
	"github.com/errandq/errand/policy"
)

// element is an element of a picture.
type element struct {
	name string
	attr map[string]string
	text string
}

// num returns an attribute that is a number.
func (e *element) num(t *testing.T, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attr[name], 64)
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	return v
}

// draw returns the elements of a picture, and its height.
func draw(t *testing.T, c *plot.Chart) (all []element, height float64) {
	t.Helper()
	doc := c.SVG()
	for d := xml.NewDecoder(bytes.NewReader(doc)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, all[0].num(t, "height")
		}
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		switch token := token.(type) {
		case xml.CharData:
			all[max(len(all)-1, 0)].text += strings.TrimSpace(string(token))
		case xml.StartElement:
			e := element{name: token.Name.Local, attr: map[string]string{}}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			all = append(all, e)
		}
	}
}

var all4 = policy.Policy{
	Retries: 10, NoDelayRetries: 2, MinDelayRetries: 2, MaxDelayRetries: 2, MinDelay: 2 * time.Second, MaxDelay: 10 * time.Second,
	Backoff: policy.Linear, Jitter: policy.EqualJitter,
}

// A picture has its title, both axes with names and numbers, each phase as a strip between the edges of its
// retries, each delay at its height, and a legend that is beside the plot.
func TestChart(t *testing.T) {
	c := &plot.Chart{Title: "a < b & \"c\"", Curves: []plot.Curve{{Name: "mine <\x1b>", Policy: all4}}, Phases: plot.Spans(all4, 10), N: 10, Unit: time.Second, UnitName: "s"}
	elements, _ := draw(t, c)
	var texts []string
	var strips, dots []element
	var right float64
	for _, e := range elements {
		switch {
		case e.name == "text":
			texts = append(texts, e.text)
			if e.attr["text-anchor"] == "start" && right > e.num(t, "x") {
				t.Errorf("%q of the legend is in the plot", e.text)
			}
		case e.name == "title" && e.text != c.Title:
			t.Errorf("title %q", e.text)
		case e.name == "rect" && e.num(t, "height") > 100 && e.attr["fill"] != "#fff":
			strips = append(strips, e)
			right = e.num(t, "x") + e.num(t, "width")
		case e.name == "circle":
			dots = append(dots, e)
		}
	}
	want := []string{
		"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "2", "4", "6", "8", "10", "retry", "nominal delay before the retry (s)", c.Title,
		"immediate phase, 0 to 1", "pre-backoff phase, 2 to 3", "backoff phase, 4 to 7", "post-backoff phase, 8 to 9", "with equal jitter", "mine <\ufffd>",
	}
	if !slices.Equal(texts, want) {
		t.Errorf("texts\n%q, want\n%q", texts, want)
	}
	if len(strips) != 4 || len(dots) != 10 {
		t.Fatalf("%d strips, %d dots", len(strips), len(dots))
	}
	retry := 0
	for i, s := range strips {
		from := s.num(t, "x")
		for ; retry <= c.Phases[i].Last; retry++ {
			if x := dots[retry].num(t, "cx"); x <= from || x >= from+s.num(t, "width") {
				t.Errorf("retry %d at %v is not in phase %v", retry, x, c.Phases[i].Phase)
			}
		}
	}
	for _, e := range elements { // a number on the axis is at the height of the delay
		if e.text == "10" && e.num(t, "y")-4 != dots[9].num(t, "cy") {
			t.Errorf("10 s are at %v, want %v", e.num(t, "y")-4, dots[9].num(t, "cy"))
		}
	}
	zero, longest := dots[0].num(t, "cy"), dots[9].num(t, "cy")
	for i, d := range dots {
		_, delay, _ := all4.Next(i)
		if y := zero - (zero-longest)*delay.Seconds()/10; y-d.num(t, "cy") > 0.11 || d.num(t, "cy")-y > 0.11 {
			t.Errorf("retry %d is at %v, want %v", i, d.num(t, "cy"), y)
		}
	}
}

// What is odd is drawn within the picture too: one retry, no delays, a policy with no retries beside one with some,
// long names, and more curves than fit beside the plot.
func TestChart_within(t *testing.T) {
	many := &plot.Chart{N: 10, Unit: time.Second}
	for i := range 40 {
		many.Curves = append(many.Curves, plot.Curve{Name: fmt.Sprintf("%s%d", strings.Repeat("é", 300), i), Policy: all4})
	}
	for name, c := range map[string]*plot.Chart{
		"one":   {N: 1, Unit: time.Millisecond, Curves: []plot.Curve{{Name: "one", Policy: policy.Policy{Retries: 1, NoDelayRetries: 1}}}},
		"none":  {N: 3, Unit: time.Second, Curves: []plot.Curve{{Policy: policy.Policy{}}, {Policy: all4}}},
		"cut":   {N: 5, Unit: time.Second, Curves: []plot.Curve{{Policy: all4}}, Phases: plot.Spans(all4, 5)},
		"large": {N: 1_000_000, Unit: time.Hour, Curves: []plot.Curve{{Policy: policy.Policy{Retries: 1_000_000, MinDelay: time.Millisecond, MaxDelay: time.Hour}}}},
		"many":  many,
	} {
		elements, height := draw(t, c)
		n := 0
		for _, e := range elements {
			for _, point := range strings.Fields(e.attr["points"]) {
				var x, y float64
				if _, err := fmt.Sscanf(point, "%g,%g", &x, &y); err != nil || x < 84 || x > 944 || y < 56 || y > 420 {
					t.Fatalf("%s: a point at %s: %v", name, point, err)
				}
				n++
			}
			if e.name == "text" && (e.num(t, "y") > height || strings.Contains(e.text, "NaN") || len([]rune(e.text)) > 50) {
				t.Errorf("%s: %+v, of a height of %v", name, e, height)
			}
			if e.name == "rect" && (e.num(t, "width") <= 0 || e.num(t, "height") <= 0) {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if n == 0 || n > 3*plot.MaxPoints { // of a line, and of the area below it
			t.Errorf("%s: %d points", name, n)
		}
	}
}

// The area below a line goes there and back, and is as low as jitter can make delays.
func TestScale_Line(t *testing.T) {
	s := &plot.Scale{Left: 0, Right: 100, Bottom: 100, Height: 100, N: 10, Longest: 10 * time.Second}
	line, area := s.Line(all4, 100)
	points := strings.Fields(line)
	if len(points) != 10 || points[0] != "5,100" || points[2] != "25,80" || points[9] != "95,0" {
		t.Errorf("line %v", points)
	}
	if back := strings.Fields(strings.TrimPrefix(area, line)); len(back) != 10 || back[0] != "95,50" || back[9] != "5,100" {
		t.Errorf("and back %v", back)
	}
	if line, area = s.Line(policy.Policy{}, 100); line != "" || strings.TrimSpace(area) != "" {
		t.Errorf("without retries: %q, %q", line, area)
	}
	if n := plot.Drawn(policy.Policy{Retries: 1_000, MaxDelayRetries: 910}); n != 120 {
		t.Errorf("%d of 1,000 retries are drawn, want 120", n)
	}
}
