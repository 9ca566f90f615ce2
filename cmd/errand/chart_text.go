package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/guptarohit/asciigraph"
)

// The size of a chart of characters, without axes. With the labels of delays
// under 10,000 units, the lines fit into the 80 columns of a narrow terminal.
const (
	textWidth  = 70
	textHeight = 16
)

// text draws the chart with characters, without colours.
func (c *chart) text(w io.Writer) error {
	var series [][]float64
	var chars []asciigraph.CharSet
	var legend []string
	for i, one := range c.Curves {
		delays := c.delays(one.Policy)
		if len(delays) == 0 {
			continue
		}
		if len(delays) == 1 {
			delays = append(delays, delays[0]) // a line needs two ends
		}
		series = append(series, delays)
		mark := asciigraph.DefaultCharSet
		if len(c.Curves) > 1 {
			letter := string(rune('A' + i%26))
			mark = asciigraph.CreateCharSet(letter)
			legend = append(legend, letter+" "+one.Name)
		}
		chars = append(chars, mark)
	}
	graph := asciigraph.PlotMany(series,
		asciigraph.Width(textWidth), asciigraph.Height(textHeight), asciigraph.LowerBound(0),
		asciigraph.SeriesChars(chars...),
		asciigraph.XAxisTickCount(c.tickCount()), asciigraph.XAxisRange(0, float64(max(1, c.N-1))),
		asciigraph.XAxisValueFormatter(c.tickLabel),
	)
	out := printer{w: w}
	out.printf("%s\nnominal delay (%s) over retry\n\n%s\n", c.Title, c.UnitName, graph)
	for _, line := range append(c.ruler(graph), legend...) {
		out.printf("%s\n", line)
	}
	return out.err
}

// tickCount returns how many ticks, at equal distances from the first retry to
// the last, are all at whole numbers.
func (c *chart) tickCount() int {
	for n := min(10, c.N); n > 2; n-- {
		if (c.N-1)%(n-1) == 0 {
			return n
		}
	}
	return 2
}

// tickLabel returns the number of a retry. The axis of a single retry has a second end
// without a label.
func (c *chart) tickLabel(x float64) string {
	if x >= float64(c.N) {
		return ""
	}
	return fmt.Sprintf("%.0f", x)
}

// ruler returns a line below the graph that has the number of the phase under
// each retry, and a legend of the phases.
func (c *chart) ruler(graph string) []string {
	if len(c.Phases) == 0 {
		return nil
	}
	first, _, _ := strings.Cut(graph, "\n")
	margin := len([]rune(first[:strings.IndexAny(first, "┤┼")])) + 1
	line := []byte(strings.Repeat(" ", margin+textWidth))
	legend := []string{""}
	for i, s := range c.Phases {
		for x := range textWidth {
			if retry := (x*(c.N-1) + textWidth/2) / (textWidth - 1); retry >= s.First && retry <= s.Last {
				line[margin+x] = byte('1' + i)
			}
		}
		legend = append(legend, fmt.Sprintf("%d %s phase, %s", i+1, s.Phase, s))
	}
	return append([]string{string(line)}, legend...)
}
