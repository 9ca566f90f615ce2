// Package plot draws the delays of delivery policies over the retries: where the points are, and whole
// pictures as SVG.
package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand/policy"
)

// Coord is a coordinate in a picture, in pixels from its left or its top.
type Coord float64

// String returns the coordinate, to a tenth.
func (c Coord) String() string { return strconv.FormatFloat(math.Round(float64(c)*10)/10, 'f', -1, 64) }

// Span is a phase of a policy, from its first retry to its last. Retries count from 0. The last may be
// beyond what is drawn.
type Span struct {
	Phase       policy.Phase
	First, Last int
}

// String returns the range of retries, such as "0" or "5 to 14".
func (s Span) String() string {
	if s.First == s.Last {
		return strconv.Itoa(s.First)
	}
	return fmt.Sprintf("%d to %d", s.First, s.Last)
}

// Spans returns the phases of a policy that have retries, and begin among the first n.
func Spans(p policy.Policy, n int) (all []Span) {
	first := 0
	for phase := policy.PhaseImmediate; phase <= policy.PhasePostBackoff && first < n; phase++ {
		if k := p.Count(phase); k > 0 {
			all = append(all, Span{phase, first, first + k - 1})
			first += k
		}
	}
	return all
}

// Drawn returns how many retries show what a policy does: all phases before the last, and then a third as
// many again; all retries, if they are few.
func Drawn(p policy.Policy) int {
	return min(p.Retries, max(50, (p.Retries-p.MaxDelayRetries)*4/3))
}

// Scale says where things are in the plot of a picture. Each retry has a column, all of the same width.
type Scale struct {
	Left, Right Coord
	Bottom      Coord         // where delays are 0
	Height      Coord         // of Longest, above Bottom
	N           int           // retries
	Longest     time.Duration // if zero, all delays are
}

// X returns the middle of the column of a retry.
func (s *Scale) X(retry int) Coord { return s.at(Coord(retry) + 0.5) }

// Edge returns the left edge of the column of a retry.
func (s *Scale) Edge(retry int) Coord { return s.at(Coord(retry)) }

func (s *Scale) at(column Coord) Coord { return s.Left + (s.Right-s.Left)*column/Coord(s.N) }

// Y returns the height of a delay.
func (s *Scale) Y(d time.Duration) Coord {
	return s.Bottom - s.Height*Coord(d)/Coord(max(s.Longest, 1))
}

// Line returns the points of the nominal delays of a policy as SVG has them, and those of the area between
// these and what jitter makes of them at the shortest. It has at most so many points on a line.
func (s *Scale) Line(p policy.Policy, most int) (line, area string) {
	n := min(s.N, p.Retries)
	points := min(n, most)
	nominal, shortest := make([]string, points), make([]string, points)
	for i := range points {
		retry := i * (n - 1) / max(points-1, 1)
		phase, d, _ := p.Next(retry)
		least, _ := p.Jitter.Range(phase, d)
		x := s.X(retry).String() + ","
		nominal[i] = x + s.Y(d).String()
		shortest[points-1-i] = x + s.Y(least).String()
	}
	line = strings.Join(nominal, " ")
	return line, line + " " + strings.Join(shortest, " ")
}
