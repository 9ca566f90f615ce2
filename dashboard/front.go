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
	Since    time.Time // ends the sentence, if it is not zero
	Well     bool
	Empty    bool // nothing was ever enqueued
	Troubles []trouble
	Others   int // troubles that are not shown
	Gauge    figure
	Tiles    []tile
	Span     span
	Spans    []span
	Numbers  []figure
	Dead     int64
	Causes   []errand.Cause
	Lanes    []laneRow
	More     int // lanes that are not shown
	Longest  []running
	Cut      bool // more run than were looked at
	Workers  []errand.WorkerInfo
	Idle     int // workers that are not shown
	Unshown  bool
}

// Worst returns the worst trouble, nil if there is none.
func (d *frontData) Worst() *trouble {
	if len(d.Troubles) == 0 {
		return nil
	}
	return &d.Troubles[0]
}

// running is a job that runs.
type running struct {
	errand.JobInfo
	Far *errand.Progress // nil if it does not say
}

// How many rows the tables of the front have.
const (
	ofLanes    = 10
	ofTroubles = 50
	ofWorkers  = 20
)

func front(x *request) (*content, error) {
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	s, err := spanOf(x.URL.Query().Get("span"))
	if err != nil {
		return nil, err
	}
	d := &frontData{Troubles: l.troubles(), Span: s, Spans: spans, Numbers: l.numbers(s), Cut: l.cut, Workers: l.workers, Unshown: l.unshown}
	d.Sentence, d.Since, d.Well = l.sentence(d.Troubles)
	d.Gauge = l.gauge(s, d.Well)
	if slices.ContainsFunc(append(d.Numbers, d.Gauge), func(f figure) bool { return f.Chart.When != "" }) { // its charts go on
		x.till(s.by)
	}
	if len(l.causes) > 0 {
		x.tillHour()
	}
	sums := l.sums()
	d.Tiles, d.Dead = l.tiles(&sums), sums.Dead
	d.Empty = sums.Enqueued == 0 && l.away == nil
	sentence := d.Sentence
	if !d.Since.IsZero() {
		sentence += " " + long(d.Since, l.clock.Now) + "."
	}
	for _, j := range l.longest {
		d.Longest = append(d.Longest, running{j, l.progress(j.ID)})
	}
	worry := worries(d.Troubles)
	all := make([]*errand.LaneTotals, len(l.lanes))
	for i := range l.lanes {
		all[i] = &l.lanes[i]
	}
	l.sortLanes(all, worry)
	all, d.More = first(all, ofLanes)
	d.Lanes = l.rows(all, worry)
	lanes := make([]errand.LaneTotals, len(all))
	for i := range all {
		lanes[i] = *all[i]
	}
	d.Causes, _ = first(l.causes, ofCauses)
	d.Troubles, d.Others = first(d.Troubles, ofTroubles)
	for i := range d.Troubles {
		if t := &d.Troubles[i]; t.Reason != "" {
			t.Starts = l.under(&errand.HoldState{Lane: t.Lane, Reason: t.Reason}).free
		}
	}
	d.Workers, d.Idle = first(d.Workers, ofWorkers)
	holds, more := first(l.holds(), ofTroubles)
	doc := map[string]any{
		"sentence": sentence, "well": d.Well, "lanes": lanes, "more_lanes": d.More, "workers": d.Workers, "more_workers": d.Idle,
		"health": l.health, "history": l.past.since(l.clock.Now.Add(-s.of)), "holds": holds, "more_holds": more, "causes": d.Causes,
	}
	if l.away != nil {
		doc["error"], doc["remedy"], doc["age_s"] = l.away.Text, l.away.Remedy, time.Since(l.at).Seconds()
	}
	return &content{data: d, json: doc}, nil
}

// tile is a state as the front shows it.
type tile struct {
	Class errand.State
	Of    errand.State // in which its jobs are to be seen
	N     int64
	Note  string
	Spark *spark
}

// amongReady says of jobs that are held that they are counted as ready too.
const amongReady = "among the ready"

// tiles returns the states of jobs that have not ended, and those that are dead. Sparks are of what the
// file keeps: not of holds.
func (l *look) tiles(s *sums) []tile {
	level := func(state errand.State, n int64, note string, of func(o *errand.LanePeriod) int64) tile {
		points := l.past.levels(spans[0], l.clock.Now, float64(n), of)
		return tile{state, state, n, note, newSpark(string(state), "", spans[0], points, l.clock.Now, wholeNumber)}
	}
	ready, held, blocked, dead := "", "none is", "", ""
	if s.Held > 0 {
		ready, held = count(s.Ready-s.Held)+" of them not held", amongReady
		if s.Held == s.Ready {
			ready = "all of them held"
		}
	}
	if n := int64(len(l.holds())); n > 0 {
		held = amongReady + ", by " + plural(n, "hold")
	}
	behind, least := int64(0), ""
	for i := range l.health.Reasons {
		if r := &l.health.Reasons[i]; r.Code == errand.HealthDeadHead {
			if behind += r.Jobs; r.More {
				least = "at least "
			}
		}
	}
	if behind > 0 {
		blocked = least + count(behind) + " behind dead ones"
	}
	if n := l.past.in(l.clock.Now.Add(-time.Hour), l.clock.Now, numberDead); n >= 1 {
		dead = wholeNumber(n) + " died in the last hour"
	}
	return []tile{
		level(errand.Running, s.Running, l.places(s), func(o *errand.LanePeriod) int64 { return o.Running }),
		level(errand.Ready, s.Ready, ready, func(o *errand.LanePeriod) int64 { return o.Ready }),
		{"held", errand.Ready, s.Held, held, nil},
		level(errand.Scheduled, s.Scheduled, "", func(o *errand.LanePeriod) int64 { return o.Scheduled }),
		level(errand.Blocked, s.Blocked, blocked, func(o *errand.LanePeriod) int64 { return o.Blocked }),
		level(errand.Dead, s.Dead, dead, func(o *errand.LanePeriod) int64 { return o.Dead }),
	}
}

// first returns at most n of all, and how many are left.
func first[T any](all []T, n int) (some []T, left int) {
	if len(all) <= n {
		return all, 0
	}
	return all[:n], len(all) - n
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

// sentence says in a sentence how the queue is. If since is not zero, how long ago that is ends it.
func (l *look) sentence(troubles []trouble) (text string, since time.Time, well bool) {
	things := int64(0) // that hold up jobs
	for i := range troubles {
		if troubles[i].Jobs > 0 {
			things++
		}
	}
	free, heldUp := l.waiting()
	least := ""
	for i := range troubles {
		if t := &troubles[i]; t.Heads {
			heldUp += t.Jobs
			if t.Least {
				least = "at least "
			}
		}
	}
	other := int64(len(troubles)) - things
	oldest, none := l.oldest(), time.Time{}
	switch {
	case l.away != nil:
		return "The queue cannot be looked at.", none, false
	case isDamaged(&l.health):
		return "The file is damaged.", none, false
	case l.sums().Enqueued == 0:
		return "Nothing was ever enqueued.", none, true
	case !l.health.Live:
		return "The queue is closed.", none, false
	case !l.health.Ready && !l.readOnly:
		return "New jobs are refused.", none, false
	case !l.unshown && len(l.workers) == 0 && free > 0:
		return fmt.Sprintf("No worker runs; %s due, since", are(free, "job")), oldest, false
	case things > 0 && other > 0:
		return fmt.Sprintf("%s to look at; %s %s.", plural(things+other, "thing"), count(things), holdUp(things, least+plural(heldUp, "job"))), none, false
	case things > 0:
		return fmt.Sprintf("%s %s.", plural(things, "thing"), holdUp(things, least+plural(heldUp, "job"))), none, false
	case len(troubles) > 0:
		return fmt.Sprintf("%s to look at.", plural(int64(len(troubles)), "thing")), none, false
	}
	text = "Well: "
	if v, ok := l.rate(numberDone); ok {
		text += perMinute(v) + " jobs a minute, "
	}
	if oldest.IsZero() {
		return text + "none waits.", none, true
	}
	return text + "none waits longer than", oldest, true
}

// waiting returns how many jobs are due that nobody holds, and how many are held up: they wait in
// lanes that are held, or are due and no worker takes them, or none has had a place for long.
func (l *look) waiting() (free, heldUp int64) {
	for i := range l.lanes {
		switch s := &l.lanes[i].Stats; {
		case l.held(s):
			heldUp += s.Ready + s.Scheduled
		default:
			free += due(s)
			if !l.unshown && !l.served(s.Queue, s.Kind) || len(l.crowd(s)) > 0 {
				heldUp += due(s)
			}
		}
	}
	return free, heldUp
}

func holdUp(n int64, what string) string {
	if n == 1 {
		return "holds up " + what
	}
	return "hold up " + what
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
