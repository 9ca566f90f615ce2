package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
)

// Chart is a picture of some policies.
type Chart struct {
	Title  string
	Curves []Curve
	// Phases are shaded: those of all curves, or none if they differ.
	Phases []Span
	// N is how many retries are drawn, at least 1.
	N int
	// Unit is the unit of the axis of delays.
	Unit     time.Duration
	UnitName string
}

// Curve is a policy in a chart.
type Curve struct {
	Name   string
	Policy policy.Policy
}

// Longest returns the longest nominal delay that is drawn.
func (c *Chart) Longest() (d time.Duration) {
	for i := range c.Curves {
		p := c.Curves[i].Policy
		_, last, _ := p.Next(min(c.N, p.Retries) - 1) // delays never fall; it is 0 without retries
		d = max(d, last)
	}
	return d
}

// PhaseColors shade the phases. They are light enough for curves on top.
var PhaseColors = map[policy.Phase]string{
	policy.PhaseImmediate:   "#ddf2dd",
	policy.PhasePreBackoff:  "#dce9f9",
	policy.PhaseBackoff:     "#fdf0d5",
	policy.PhasePostBackoff: "#f6dfe4",
}

// CurveColors are those of Okabe and Ito, which can be told apart by the colour-blind too.
var CurveColors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"}

const (
	// MaxPoints is how many points a curve has at most. They are closer together than the curve is wide.
	MaxPoints = 2_000
	// maxMarks is how many retries are marked by a dot on their curve.
	maxMarks = 150
)

// The size of a chart, of its texts and of what is around them, in pixels.
const (
	width, height = 960, 480
	margin        = 16
	left          = 84 // of the plot
	top           = 56
	bottom        = height - 60
	sample        = 30 // of the legend
	row           = 20
	letter        = 7.2 // as wide as letters are in most faces, and a little more
	mostLetters   = 50  // of a text in the legend
)

// SVG draws the chart, with the legend to the right.
func (c *Chart) SVG() []byte {
	s := &Scale{Left: left, Right: width - margin, Bottom: bottom, Height: (bottom - top) / 1.08, N: c.N, Longest: c.Longest()}
	d := &drawing{}
	for _, f := range c.Phases {
		d.entry(fmt.Sprintf("%s phase, %s", f.Phase, f), PhaseColors[f.Phase], "")
	}
	jitter := len(c.Curves) == 1 && c.Curves[0].Policy.Jitter != policy.NoJitter
	if jitter {
		d.entry(fmt.Sprintf("with %s jitter", c.Curves[0].Policy.Jitter), CurveColors[0], `fill-opacity="0.22"`)
	}
	for i := range c.Curves {
		d.entry(c.Curves[i].Name, CurveColors[i%len(CurveColors)], "line")
	}
	s.Right -= Coord(d.longest)*letter + sample + margin

	tall := max(height, top+row*len(d.entries)+margin)
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="sans-serif">`+"\n", width, tall)
	d.printf("<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", escape(c.Title), width, tall)
	for _, f := range c.Phases {
		x := s.Edge(f.First)
		d.printf(`<rect x="%v" y="%d" width="%v" height="%d" fill="%s"/>`+"\n", x, top, s.Edge(min(f.Last, c.N-1)+1)-x, bottom-top, PhaseColors[f.Phase])
	}
	d.axes(s, c)
	for i := range c.Curves {
		d.curve(s, &c.Curves[i], CurveColors[i%len(CurveColors)], jitter)
	}
	d.text(width/2, 28, "middle", 18, c.Title)
	d.legend(float64(s.Right) + margin)
	d.printf("</svg>\n")
	return d.Bytes()
}

// drawing is an SVG to be.
type drawing struct {
	bytes.Buffer
	entries []entry
	longest int // of their texts, in runes
}

// entry is a row of the legend. how is "line", or else further attributes of the area.
type entry struct{ text, color, how string }

func (d *drawing) entry(text, color, how string) {
	if r := []rune(text); len(r) > mostLetters {
		text = string(r[:mostLetters/2]) + "…" + string(r[len(r)-mostLetters/2+1:])
	}
	d.entries = append(d.entries, entry{text, color, how})
	d.longest = max(d.longest, utf8.RuneCountInString(text))
}

// printf writes into the drawing, which takes all.
func (d *drawing) printf(format string, args ...any) { _, _ = fmt.Fprintf(d, format, args...) }

func (d *drawing) text(x, y Coord, anchor string, size int, text string) {
	d.printf(`<text x="%v" y="%v" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, escape(text))
}

// axes draws both axes with their ticks and names.
func (d *drawing) axes(s *Scale, c *Chart) {
	d.printf(`<path d="M%v %dV%dH%v" fill="none" stroke="#000"/>`+"\n", s.Left, top, bottom, s.Right)
	for _, t := range ticks(float64(c.N-1), true) {
		x := s.X(int(t))
		d.printf(`<path d="M%v %dv5" stroke="#000"/>`+"\n", x, bottom)
		d.text(x, bottom+20, "middle", 12, strconv.FormatFloat(t, 'g', 6, 64))
	}
	longest := float64(s.Longest) / float64(c.Unit)
	if longest == 0 {
		longest = 1
	}
	for _, t := range ticks(longest*1.08, false) {
		y := bottom - s.Height*Coord(t/longest)
		d.printf(`<path d="M%v %vh-5" stroke="#000"/>`+"\n", s.Left, y)
		d.text(s.Left-9, y+4, "end", 12, strconv.FormatFloat(t, 'g', 6, 64))
	}
	d.text((s.Left+s.Right)/2, height-margin, "middle", 13, "retry")
	d.printf(`<g transform="rotate(-90 24 %d)">`, (top+bottom)/2)
	d.text(24, (top+bottom)/2, "middle", 13, fmt.Sprintf("nominal delay before the retry (%s)", c.UnitName))
	d.printf("</g>\n")
}

// curve draws the nominal delays of a policy, and with jitter the range that it makes of them.
func (d *drawing) curve(s *Scale, one *Curve, color string, jitter bool) {
	line, area := s.Line(one.Policy, MaxPoints)
	if line == "" {
		return
	}
	if jitter {
		d.printf(`<polygon fill="%s" fill-opacity="0.22" points="%s"/>`+"\n", color, area)
	}
	d.printf(`<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", color, line)
	n := min(s.N, one.Policy.Retries)
	for retry := 0; retry < n && n <= maxMarks; retry++ {
		_, delay, _ := one.Policy.Next(retry)
		d.printf(`<circle fill="%s" cx="%v" cy="%v" r="3"/>`+"\n", color, s.X(retry), s.Y(delay))
	}
}

// legend writes the legend from x on.
func (d *drawing) legend(x float64) {
	for i, e := range d.entries {
		y := Coord(top + 8 + i*row)
		if e.how == "line" {
			d.printf(`<path d="M%v %vh22" stroke="%s" stroke-width="2"/>`+"\n", Coord(x), y, e.color)
		} else {
			d.printf(`<rect x="%v" y="%v" width="22" height="12" fill="%s" %s/>`+"\n", Coord(x), y-6, e.color, e.how)
		}
		d.text(Coord(x+sample), y+4, "start", 13, e.text)
	}
}

// ticks returns 5 to 12 multiples of 1, 2 or 5 times a power of ten, from 0 on, or each number if they are
// to be whole and there are fewer.
func ticks(to float64, whole bool) (all []float64) {
	step := 1.0
	if to > 0 {
		step = math.Pow(10, math.Floor(math.Log10(to/5)))
	}
	for _, factor := range []float64{5, 2} {
		if to/(step*factor) >= 5 {
			step *= factor
			break
		}
	}
	if whole {
		step = max(step, 1)
	}
	for i := 0.0; i*step <= to; i++ {
		all = append(all, i*step)
	}
	return all
}

// escape returns text as XML has it.
func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes all
	return b.String()
}
