package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/errandq/errand/policy"
)

// phaseColors shade the phases. They are light enough for curves on top.
var phaseColors = map[policy.Phase]color.Color{
	policy.PhaseImmediate:   color.RGBA{R: 0xdd, G: 0xf2, B: 0xdd, A: 0xff},
	policy.PhasePreBackoff:  color.RGBA{R: 0xdc, G: 0xe9, B: 0xf9, A: 0xff},
	policy.PhaseBackoff:     color.RGBA{R: 0xfd, G: 0xf0, B: 0xd5, A: 0xff},
	policy.PhasePostBackoff: color.RGBA{R: 0xf6, G: 0xdf, B: 0xe4, A: 0xff},
}

// curveColors are those of Okabe and Ito, which can be told apart by the
// colour-blind too.
var curveColors = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
	color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff},
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x00, B: 0x00, A: 0xff},
}

// maxMarks is how many retries are marked by a dot on their curve.
const maxMarks = 150

// maxPoints is how many points a curve has at most. They are closer together than the
// curve is wide.
const maxPoints = 2_000

// svg draws the chart as an SVG, with the legend to the right.
func (c *chart) svg(w io.Writer) error {
	p := plot.New()
	p.Title.Text = c.title
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = "retry"
	p.Y.Label.Text = fmt.Sprintf("nominal delay before the retry (%s)", c.unitName)
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{whole: true}, ticks{}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.ThumbnailWidth = vg.Points(22)
	p.Legend.Padding = vg.Points(4)
	useSans(p)

	if err := c.addPhases(p, c.top()); err != nil {
		return err
	}
	for i, one := range c.curves {
		if err := c.addCurve(p, one, curveColors[i%len(curveColors)]); err != nil {
			return err
		}
	}
	p.X.Min, p.X.Max = -0.5, float64(c.n)-0.5
	p.Y.Min, p.Y.Max = 0, c.top()

	const margin, gap = vg.Length(12), vg.Length(16)
	out := vgsvg.New(10*vg.Inch, 5*vg.Inch)
	whole := draw.New(out)
	whole.FillPolygon(color.White, []vg.Point{
		whole.Min, {X: whole.Min.X, Y: whole.Max.Y}, whole.Max, {X: whole.Max.X, Y: whole.Min.Y},
	})
	canvas := draw.Crop(whole, margin, -margin, margin, -margin)
	legend := p.Legend
	p.Legend = plot.NewLegend()
	// Wider than computed, since a viewer without the font takes another one.
	width := legend.Rectangle(canvas).Size().X * 1.2
	p.Draw(draw.Crop(canvas, 0, -width-gap, 0, 0))
	legend.YOffs = -vg.Points(24) // below the title
	legend.Draw(draw.Crop(canvas, canvas.Max.X-canvas.Min.X-width, 0, 0, 0))
	_, err := out.WriteTo(w)
	return err
}

// top returns the end of the axis of delays.
func (c *chart) top() float64 {
	longest := 0.0
	for _, one := range c.curves {
		if nominal, _ := c.delays(one.policy); len(nominal) > 0 {
			longest = max(longest, nominal[len(nominal)-1])
		}
	}
	if longest == 0 {
		return 1
	}
	return longest * 1.08
}

// useSans sets all text in a sans-serif face.
func useSans(p *plot.Plot) {
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Title.TextStyle.Font.Size = vg.Points(14)
	p.Legend.TextStyle.Font.Size = vg.Points(11)
}

// addPhases shades the phases up to top.
func (c *chart) addPhases(p *plot.Plot, top float64) error {
	for _, s := range c.phases {
		left, right := float64(s.first)-0.5, float64(min(s.last, c.n-1))+0.5
		area, err := plotter.NewPolygon(plotter.XYs{{X: left}, {X: left, Y: top}, {X: right, Y: top}, {X: right}})
		if err != nil {
			return err
		}
		area.Color = phaseColors[s.phase]
		area.Width = 0
		p.Add(area)
		p.Legend.Add(fmt.Sprintf("%s phase, %s", s.phase, s), area)
	}
	return nil
}

// addCurve draws the nominal delays of a policy and, if it is the only one,
// the range that jitter makes of them.
func (c *chart) addCurve(p *plot.Plot, one curve, colour color.Color) error {
	nominal, shortest := c.delays(one.policy)
	if len(nominal) == 0 {
		return nil
	}
	points := min(len(nominal), maxPoints)
	at := func(i int) int { return i * (len(nominal) - 1) / max(1, points-1) }
	line := make(plotter.XYs, points)
	var band plotter.XYs
	for i := range line {
		line[i] = plotter.XY{X: float64(at(i)), Y: nominal[at(i)]}
		band = append(band, line[i])
	}
	if len(c.curves) == 1 && one.policy.Jitter != policy.NoJitter {
		for i := points - 1; i >= 0; i-- {
			band = append(band, plotter.XY{X: float64(at(i)), Y: shortest[at(i)]})
		}
		area, err := plotter.NewPolygon(band)
		if err != nil {
			return err
		}
		r, g, b, _ := colour.RGBA()
		area.Color = color.NRGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8), A: 0x38}
		area.Width = 0
		p.Add(area)
		p.Legend.Add(fmt.Sprintf("with %s jitter", one.policy.Jitter), area)
	}
	l, dots, err := plotter.NewLinePoints(line)
	if err != nil {
		return err
	}
	l.Color, l.Width = colour, vg.Points(1.5)
	dots.Color, dots.Shape, dots.Radius = colour, draw.CircleGlyph{}, vg.Points(2.5)
	p.Add(l)
	if len(line) > maxMarks {
		p.Legend.Add(one.name, l)
		return nil
	}
	p.Add(dots)
	p.Legend.Add(one.name, l, dots)
	return nil
}

// String returns the range of retries, such as "0" or "5 to 14".
func (s span) String() string {
	if s.first == s.last {
		return strconv.Itoa(s.first)
	}
	return fmt.Sprintf("%d to %d", s.first, s.last)
}

// ticks puts labels at multiples of 1, 2 or 5 times a power of ten, which the
// ticks of the library are not.
type ticks struct{ whole bool }

// Ticks returns 5 to 12 ticks, or one for each number if they are to be whole
// and the range has fewer.
func (t ticks) Ticks(from, to float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((to-from)/5)))
	for _, factor := range []float64{5, 2} {
		if (to-from)/(step*factor) >= 5 {
			step *= factor
			break
		}
	}
	if t.whole {
		step = max(step, 1)
	}
	var all []plot.Tick
	for i := math.Ceil(max(0, from) / step); i*step <= to; i++ {
		label := strconv.FormatFloat(i*step, 'g', 6, 64)
		all = append(all, plot.Tick{Value: i * step, Label: label})
	}
	return all
}
