package dashboard

import (
	"cmp"
	"slices"
	"time"

	"github.com/errandq/errand"
)

// due returns how many jobs of a lane are due. Those that no worker has looked for since are
// scheduled still, and counted as one.
func due(s *errand.LaneStats) int64 {
	if s.Ready == 0 && !s.OldestDue.IsZero() {
		return 1
	}
	return s.Ready
}

// trouble is one thing that holds up jobs, or that somebody should look at.
type trouble struct {
	What   string
	Lane   errand.Lane
	Since  time.Time
	Until  time.Time // or the next probe
	Probe  bool
	Jobs   int64 // that wait
	Due    int64 // of these
	Why    string
	By     string
	Reason string // of a hold: the button releases it
	Help   string // what ends it, if no button does
}

// whats say what holds of these reasons are.
var whats = map[string]string{"held": "held", "paused": "paused", "brake": "brake: too many died", "unavailable": "the other side is away"}

// troubles returns what holds jobs up, of most due jobs first.
func (l *look) troubles() (all []trouble) {
	for _, h := range l.holds() {
		t := trouble{Lane: h.Lane, Since: h.Since, Until: h.Until, Probe: h.Probe, Jobs: h.Waiting, Due: h.Ready, Why: h.Detail, By: h.By, Reason: h.Reason}
		t.What = cmp.Or(whats[h.Reason], "held: "+h.Reason)
		all = append(all, t)
	}
	all = append(all, l.unserved()...)
	for i := range l.health.Reasons {
		r := &l.health.Reasons[i]
		switch r.Code {
		case errand.HealthBrake, errand.HealthUnavailable, errand.HealthOverdue, errand.HealthReadOnly: // among the holds, and beside
			continue
		}
		t := trouble{What: cmp.Or(conditions[r.Code], string(r.Code)), Lane: errand.Lane{Queue: r.Queue, Kind: r.Kind}, Since: r.Since, Why: r.Text}
		if r.Code == errand.HealthDamage {
			t.Help = refused(errand.ErrCorrupt).remedy
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b trouble) int { return cmp.Or(cmp.Compare(b.Due, a.Due), cmp.Compare(b.Jobs, a.Jobs)) })
	return all
}

// mostQueues is in how many queues a kind that no worker takes is shown queue by queue.
const mostQueues = 3

// unserved returns what waits for a worker. A kind in many queues is one thing.
func (l *look) unserved() (all []trouble) {
	if l.unshown {
		return nil
	}
	of, kinds := map[string][]trouble{}, []string(nil)
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if l.held(s) || due(s) == 0 || l.served(s.Queue, s.Kind) {
			continue
		}
		if of[s.Kind] == nil {
			kinds = append(kinds, s.Kind)
		}
		of[s.Kind] = append(of[s.Kind], trouble{What: "no worker", Lane: errand.Lane{Queue: s.Queue, Kind: s.Kind}, Since: s.OldestDue, Jobs: due(s), Due: due(s),
			Why: "No worker that runs takes this kind from this queue.", Help: "Start a program that has a handler for this kind, or errand work."})
	}
	for _, kind := range kinds {
		some := of[kind]
		if len(some) <= mostQueues {
			all = append(all, some...)
			continue
		}
		t := some[0]
		t.Lane.Queue, t.Why = "", "No worker that runs takes this kind from "+count(len(some))+" queues."
		for _, o := range some[1:] {
			t.Jobs, t.Due = t.Jobs+o.Jobs, t.Due+o.Due
			if laterDue(o.Since, t.Since) < 0 {
				t.Since = o.Since
			}
		}
		all = append(all, t)
	}
	return all
}

// conditions say what reasons of health are.
var conditions = map[errand.HealthCode]string{
	errand.HealthClosed: "the queue is closed", errand.HealthDamage: "the file is damaged", errand.HealthFull: "no space is left", errand.HealthWrite: "the file cannot be written",
	errand.HealthSpace: "little space is left", errand.HealthClock: "the clock is wrong", errand.HealthCap: "nearly full", errand.HealthLog: "the log hangs", errand.HealthDead: "many dead letters",
}

// served reports whether a worker takes jobs of a lane, as far as it is known.
func (l *look) served(queue, kind string) bool {
	return slices.ContainsFunc(l.workers, func(w errand.WorkerInfo) bool { return w.Unknown || w.Serves(queue, kind) })
}
