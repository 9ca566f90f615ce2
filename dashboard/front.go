package dashboard

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand"
)

// frontData is what the overview shows.
type frontData struct {
	Sentence string
	Well     bool
	Empty    bool // nothing was ever enqueued
	Troubles []trouble
	Sums     sums
	Oldest   time.Time
	Causes   []errand.Cause
	Lanes    []errand.LaneTotals
	More     int // lanes that are not shown
	Longest  []errand.JobInfo
	Workers  []errand.WorkerInfo
	Unshown  bool
	Read     time.Time
}

// ofLanes is how many lanes the front shows.
const ofLanes = 10

func front(x *request) (*content, error) {
	l, err := x.b.looks.get(x.Context())
	if err != nil {
		return nil, err
	}
	d := &frontData{
		Troubles: l.troubles(), Sums: l.sums(), Oldest: l.oldest(), Causes: l.causes, Longest: l.longest, Workers: l.workers,
		Unshown: l.unshown, Read: l.at,
	}
	d.Empty = d.Sums.Enqueued == 0
	d.Sentence, d.Well = l.sentence(d)
	d.Lanes = slices.Clone(l.lanes)
	slices.SortStableFunc(d.Lanes, func(a, b errand.LaneTotals) int { return laterDue(a.Stats.OldestDue, b.Stats.OldestDue) })
	if n := len(d.Lanes); n > ofLanes {
		d.Lanes, d.More = d.Lanes[:ofLanes], n-ofLanes
	}
	return &content{data: d, json: map[string]any{"sentence": d.Sentence, "well": d.Well, "lanes": l.lanes, "workers": l.workers, "health": l.health, "holds": l.holds, "causes": l.causes}}, nil
}

// laterDue compares due times; zero, for none, comes last.
func laterDue(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// sentence says in a sentence how the queue is.
func (l *look) sentence(d *frontData) (text string, well bool) {
	waiting := int64(0)
	for i := range d.Troubles {
		waiting += d.Troubles[i].Jobs
	}
	now := l.clock.Now
	switch {
	case d.Empty:
		return "Nothing was ever enqueued.", true
	case !l.health.Live || !l.health.Ready && !l.readOnly:
		return "New jobs are refused.", false
	case !l.unshown && len(l.workers) == 0 && d.Sums.Ready > 0:
		return fmt.Sprintf("No worker runs; %s due, since %s.", are(d.Sums.Ready, "job"), took(now.Sub(d.Oldest))), false
	case len(d.Troubles) == 1 && waiting > 0:
		return fmt.Sprintf("One thing holds up %s.", plural(waiting, "job")), false
	case waiting > 0:
		return fmt.Sprintf("%d things hold up %s.", len(d.Troubles), plural(waiting, "job")), false
	case len(d.Troubles) > 0:
		return fmt.Sprintf("%s to look at.", plural(int64(len(d.Troubles)), "thing")), false
	case d.Oldest.IsZero():
		return fmt.Sprintf("Well: %s a minute, none waits.", plural(int64(d.Sums.Minute.Done+0.5), "job")), true
	}
	return fmt.Sprintf("Well: %s a minute, none waits longer than %s.", plural(int64(d.Sums.Minute.Done+0.5), "job"), took(max(now.Sub(d.Oldest), time.Second))), true
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

func are(n int64, what string) string {
	if n == 1 {
		return plural(n, what) + " is"
	}
	return plural(n, what) + " are"
}
