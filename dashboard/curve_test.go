package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// A curve has all four phases, stays within its picture, and has few points however many retries
// there are.
func TestCurve(t *testing.T) {
	for name, p := range map[string]policy.Policy{
		"default": policy.Default(), "webhook": policy.Webhook(), "forever": policy.Forever(time.Hour), "one": {Retries: 1, NoDelayRetries: 1},
		"all four":  {Retries: 10, NoDelayRetries: 2, MinDelayRetries: 2, MaxDelayRetries: 2, MinDelay: 2500 * time.Millisecond, MaxDelay: time.Minute, Backoff: policy.Exponential},
		"a million": {Retries: 1_000_000, MinDelay: time.Millisecond, MaxDelay: time.Hour},
	} {
		c := newCurve(name, p, 1)
		n := 0
		var names []string
		for _, f := range c.Phases {
			n += f.N
			names = append(names, f.Name.String())
			if f.N > 0 && (f.From > f.To || f.Least > f.From || f.Last-f.First != f.N-1) {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if n != p.Retries || !slices.Equal(names, []string{"immediate", "pre-backoff", "backoff", "post-backoff"}) {
			t.Errorf("%s: %d retries in %v, want %d", name, n, names, p.Retries)
		}
		points := strings.Fields(c.Points)
		if len(points) > mostPoints || len(points) != min(c.Drawn, mostPoints) || len(c.Dots) > mostDots {
			t.Errorf("%s: %d points, %d dots, %d drawn", name, len(points), len(c.Dots), c.Drawn)
		}
		before := length(whole)
		for _, point := range points {
			var x, y length
			if _, err := fmt.Sscanf(point, "%g,%g", &x, &y); err != nil || x < 0 || x > whole || y < 0 || y > before {
				t.Fatalf("%s: point %s, after %v: %v", name, point, before, err)
			}
			before = y
		}
		if i := slices.IndexFunc(c.Dots, func(d curveDot) bool { return d.Class == "next" }); i < 0 {
			t.Errorf("%s: no dot for the retry that was used last", name)
		}
	}
	if c := newCurve("none", policy.Policy{}, -1); c.Points != "" || c.Drawn != 0 {
		t.Errorf("without retries: %+v", c)
	}
}

// A time line has a row for each phase, its marks in the order of time, and none without a failure.
func TestTimeline(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	j := &errand.JobInfo{State: errand.Scheduled, CreatedAt: now.Add(-time.Hour), DueAt: now.Add(time.Hour), History: []errand.Failure{
		{Attempt: 1, At: now.Add(-50 * time.Minute), Phase: "first"}, {Attempt: 1, At: now.Add(-40 * time.Minute), Phase: errand.PhaseEdited},
		{Attempt: 2, At: now.Add(-30 * time.Minute), Phase: "a new one"},
	}}
	l := newTimeline(j, []policy.Coming{{Retry: 2, Phase: policy.PhaseBackoff, At: now.Add(time.Hour)}}, now)
	var rows []string
	for _, r := range l.Rows {
		rows = append(rows, r.Text)
	}
	if !slices.Equal(rows, []string{"enqueued", "first", "backoff", "args changed", "a new one"}) || len(l.Marks) != 5 {
		t.Errorf("rows %v, marks %+v", rows, l.Marks)
	}
	half := (l.Marks[0].X + l.Marks[2].X) / 2
	if l.Now != half || l.Marks[0].X >= l.Marks[1].X || l.Marks[2].X > whole {
		t.Errorf("now at %v, marks %+v", l.Now, l.Marks)
	}
	if l := newTimeline(&errand.JobInfo{State: errand.Done, CreatedAt: now, EndedAt: now}, nil, now); l != nil {
		t.Errorf("of a job that has not failed: %+v", l)
	}
}
