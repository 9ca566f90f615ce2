package dashboard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/plot"
	"github.com/errandq/errand/policy"
)

// The pictures are SVG, with a table beside them. Colours come from the style. Rows have a height in
// pixels; all else is in hundredths of the plot.
const (
	rowHeight   = 28
	phaseHeight = 20 // of those above a curve
)

// length is a length in a picture.
type length = plot.Coord

// curveLabel is text at a place of a picture.
type curveLabel struct {
	X, Y  length
	Text  string
	Class string
}

// curve shows the delays of a policy over the retries.
type curve struct {
	Name     string // what it is the policy of
	Retries  int
	Drawn    int // of Retries, the first
	Total    time.Duration
	Shortest time.Duration
	Endless  bool // Total is longer than can be said
	Jitter   policy.Jitter
	Phases   []curvePhase
	Points   string // of the line
	Dots     []curveDot
	Labels   []curveLabel // of the delays
	Used     int          // retries that a job has used up; -1: it is of no job
}

// curvePhase is one of the four phases. One that has no retries has no more than its name.
type curvePhase struct {
	Name        policy.Phase
	N           int
	First, Last int // retries, from 1 on
	From, To    time.Duration
	Least       time.Duration // From, as short as jitter makes it
	X1, X2, Y   length        // of its line, Y in pixels below the top
	Right       bool          // there is no room for its name but to the left
	Drawn       bool
}

// curveDot is a retry.
type curveDot struct {
	X, Y  length
	Class string // past, next or coming
	Text  string
}

const (
	mostPoints = 300 // of a line
	mostDots   = 100
)

// newCurve draws a policy. used is how many retries a job has used up, -1 for no job.
func newCurve(name string, p policy.Policy, used int) *curve {
	c := &curve{Name: name, Retries: p.Retries, Total: p.Total(), Shortest: p.ShortestTotal(), Jitter: p.Jitter, Used: used}
	c.Endless = c.Total == math.MaxInt64
	if p.Retries == 0 {
		return c
	}
	c.Drawn = max(plot.Drawn(p), min(p.Retries, used+1))
	at := &plot.Scale{Right: whole, Bottom: whole, Height: whole, N: c.Drawn}
	_, at.Longest, _ = p.Next(c.Drawn - 1) // delays never fall
	c.addPhases(p, at)
	c.Points, _ = at.Line(p, mostPoints)
	for retry := range c.Drawn {
		if c.Drawn > mostDots && retry != used-1 {
			continue
		}
		phase, d, _ := p.Next(retry)
		class := "coming"
		switch {
		case retry == used-1:
			class = "next"
		case retry < used:
			class = "past"
		}
		c.Dots = append(c.Dots, curveDot{at.X(retry), at.Y(d), class, "retry " + itoa(retry+1) + ", " + phase.String() + ": " + delayText(d)})
	}
	c.Labels = append(c.Labels, curveLabel{0, whole, "0", "end"})
	for _, d := range []time.Duration{at.Longest / 2, at.Longest} {
		if d > 0 {
			c.Labels = append(c.Labels, curveLabel{0, at.Y(d), delayText(d), "end"})
		}
	}
	return c
}

// addPhases adds the phases, each with a row of its own above the plot.
func (c *curve) addPhases(p policy.Policy, at *plot.Scale) {
	first, rows := 0, 0
	for phase := policy.PhaseImmediate; phase <= policy.PhasePostBackoff; phase++ {
		n := p.Count(phase)
		if n <= 0 {
			c.Phases = append(c.Phases, curvePhase{Name: phase})
			continue
		}
		f := curvePhase{Name: phase, N: n, First: first + 1, Last: first + n}
		_, f.From, _ = p.Next(first)
		_, f.To, _ = p.Next(first + n - 1)
		f.Least, _ = p.Jitter.Range(phase, f.From)
		if f.Drawn = first < c.Drawn; f.Drawn {
			rows++
			f.X1, f.X2, f.Y = at.Edge(first), at.Edge(min(first+n, c.Drawn)), length(rows)*phaseHeight
			f.Right = f.X1 > whole*3/4
		}
		c.Phases = append(c.Phases, f)
		first += n
	}
	for i := range c.Phases {
		c.Phases[i].Y -= length(rows+1) * phaseHeight // above the plot
	}
}

// delayText returns a delay, with parts of a second if it is short.
func delayText(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d > time.Second && d < 10*time.Second && d%time.Second != 0:
		return length(d.Seconds()).String() + " s"
	}
	return took(d)
}

// timeline shows the attempts of a job over time, with a row for each phase.
type timeline struct {
	Rows  []curveLabel
	Marks []curveMark
	Ticks []curveLabel
	Now   length // 0: the job has ended
	Foot  length // where its line ends, in pixels as all heights
	H     length
}

// curveMark is something that has happened, or will.
type curveMark struct {
	X, Y  length
	Sign  string
	Class string
	Text  string
}

// curveEvent is what a curveMark stands for.
type curveEvent struct {
	at                      time.Time
	row, sign, class, words string
}

// newTimeline draws the history of a job and the retries that it still has.
func newTimeline(j *errand.JobInfo, next []policy.Coming, now time.Time) *timeline {
	if len(j.History)+len(next) == 0 {
		return nil
	}
	events := []curveEvent{{j.CreatedAt, "enqueued", "○", "scheduled", "enqueued"}}
	for i := range j.History {
		f := &j.History[i]
		if f.Phase == errand.PhaseEdited {
			events = append(events, curveEvent{f.At, "args changed", "◇", "scheduled", "args changed"})
			continue
		}
		events = append(events, curveEvent{f.At, f.Phase, "✕", "dead", "attempt " + itoa(f.Attempt) + " failed"})
	}
	if !j.EndedAt.IsZero() {
		events = append(events, curveEvent{j.EndedAt, "ended", shapes[j.State], string(j.State), string(j.State)})
	}
	for i := range next {
		events = append(events, curveEvent{next[i].At, next[i].Phase.String(), "○", "retry", "retry " + itoa(next[i].Retry) + ", if need be"})
	}
	slices.SortStableFunc(events, func(a, b curveEvent) int { return a.at.Compare(b.at) })
	from, to := events[0].at, events[len(events)-1].at
	if j.EndedAt.IsZero() && now.After(to) {
		to = now
	}
	all := cmp.Or(to.Sub(from), 1)
	x := func(t time.Time) length { return whole * length(t.Sub(from)) / length(all) }
	t := &timeline{}
	order := []string{"enqueued", "first", "immediate", "pre-backoff", "backoff", "post-backoff", "args changed", "ended"}
	for i := range events {
		if !slices.Contains(order, events[i].row) {
			order = append(order, events[i].row)
		}
	}
	for _, name := range order {
		row := t.H + rowHeight
		for i := range events {
			if e := &events[i]; e.row == name {
				t.H = row
				t.Marks = append(t.Marks, curveMark{x(e.at), row, e.sign, e.class, e.words + ", " + exactly(e.at)})
			}
		}
		if t.H == row {
			t.Rows = append(t.Rows, curveLabel{0, row, name, "end"})
		}
	}
	t.Ticks = []curveLabel{{0, t.H + rowHeight + 4, short(from, now), "start"}, {whole, t.H + rowHeight + 4, short(to, now), "end"}}
	if j.EndedAt.IsZero() {
		if t.Now = x(now); to.Equal(now) {
			t.Ticks[1].Text = "now"
		}
	}
	t.Foot = t.H + 8
	t.H += rowHeight + 6
	return t
}

// short returns a time as people read it who know which day it is.
func short(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

// exactly returns a time in full.
func exactly(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") + " UTC" }
