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

// The pictures are SVG of this width, with a table beside them. Colours come from the style.
const (
	curveWidth = 640
	curveLeft  = 72
	curveRight = curveWidth - 8
	rowHeight  = 18
	curveTall  = 140
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
	Labels   []curveLabel
	H        length
	Top      length // of the plot
	Bottom   length
	Used     int // retries that a job has used up; -1: it is of no job
}

// curvePhase is one of the four phases. One that has no retries has no more than its name.
type curvePhase struct {
	Name        policy.Phase
	N           int
	First, Last int // retries, from 1 on
	From, To    time.Duration
	Least       time.Duration // From, as short as jitter makes it
	X1, X2, Y   length
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
	at := &plot.Scale{Left: curveLeft, Right: curveRight, Height: curveTall - 8, N: c.Drawn}
	_, at.Longest, _ = p.Next(c.Drawn - 1) // delays never fall
	c.addPhases(p, at)
	at.Bottom = c.Bottom
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
	c.Labels = append(c.Labels,
		curveLabel{curveLeft - 8, c.Bottom, "0", "end"}, curveLabel{curveLeft - 8, at.Y(at.Longest) + 4, delayText(at.Longest), "end"},
		curveLabel{at.X(0), c.Bottom + 16, "retry 1", "start"})
	if c.Drawn > 1 {
		c.Labels = append(c.Labels, curveLabel{curveRight, c.Bottom + 16, "retry " + count(c.Drawn), "end"})
	}
	if half := at.Longest / 2; at.Longest > 0 {
		c.Labels = append(c.Labels, curveLabel{curveLeft - 8, at.Y(half) + 4, delayText(half), "end"})
	}
	return c
}

// addPhases adds the phases, each with a row of its own above the plot.
func (c *curve) addPhases(p policy.Policy, at *plot.Scale) {
	first := 0
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
			c.Top += rowHeight
			f.X1, f.X2, f.Y = at.Edge(first), at.Edge(min(first+n, c.Drawn)), c.Top
			text := curveLabel{f.X1, f.Y - 4, phase.String(), "start"}
			if f.X1 > curveRight-96 {
				text.X, text.Class = f.X2, "end"
			}
			c.Labels = append(c.Labels, text)
		}
		c.Phases = append(c.Phases, f)
		first += n
	}
	c.Top += 8
	c.Bottom = c.Top + curveTall
	c.H = c.Bottom + 24
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
	Foot  length // where its line ends
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
	whole := cmp.Or(to.Sub(from), 1)
	const left = 120
	x := func(t time.Time) length { return left + length(curveRight-8-left)*length(t.Sub(from))/length(whole) }
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
			t.Rows = append(t.Rows, curveLabel{0, row, name, "start"})
		}
	}
	t.Ticks = []curveLabel{{left, t.H + 32, exactly(from), "start"}, {curveRight, t.H + 32, exactly(to), "end"}}
	if j.EndedAt.IsZero() {
		t.Now = x(now)
	}
	t.Foot = t.H + 6
	t.H += 36
	return t
}

// exactly returns a time in full.
func exactly(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") + " UTC" }
