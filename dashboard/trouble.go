package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
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
	Least  bool  // there may be more than Jobs
	Heads  bool  // they wait behind dead ones: the buttons redrive or skip these
	Due    int64 // of these
	Why    string
	By     string
	Reason string // of a hold: the button releases it
	Help   string // what ends it, if no button does
	Where  string // in place of Lane, if it is zero; empty: the file
	Error  string // ends Why
	// See is a page that shows more, from the front, and SeeText what it has.
	See, SeeText string

	Groups int64         // of Heads
	Cause  *errand.Cause // of Heads: what most of the dead in the queue died of, nil if that is not known
	judged
}

// judged is what is found out of a trouble besides.
type judged struct {
	Starts int64         // due jobs that nothing else keeps, if it is released; counted for those that are shown
	dire   bool          // nothing works as long as it is so
	lanes  []errand.Lane // in place of Lane, if there are several
}

// Class returns the state whose colour it has.
func (t *trouble) Class() errand.State {
	if t.Heads || t.dire {
		return errand.Dead
	}
	return "held"
}

// Sign returns the shape that stands before it.
func (t *trouble) Sign() string {
	switch {
	case t.Heads:
		return shapes[errand.Dead]
	case t.Reason != "":
		return shapes["held"]
	}
	return "▲"
}

// Endless reports whether it does not end by itself.
func (t *trouble) Endless() bool {
	return t.dire || t.Heads || t.What == noWorker || t.Reason != "" && t.Until.IsZero()
}

// Hopeless reports whether what waits behind dead jobs would not go on if these ran again.
func (t *trouble) Hopeless() bool { return t.Cause != nil && t.Cause.Reason == errand.ReasonPermanent }

// rank returns the order of troubles: the lowest is the worst.
func (t *trouble) rank() int {
	switch {
	case t.dire:
		return 0
	case t.Jobs > 0 && t.Endless():
		return 1
	}
	return 2
}

// before compares troubles: the worse one comes first.
func (t *trouble) before(o *trouble) int {
	return cmp.Or(cmp.Compare(t.rank(), o.rank()), cmp.Compare(o.Jobs, t.Jobs), strings.Compare(t.What, o.What), t.Lane.Compare(o.Lane))
}

const noWorker = "no worker"

// whats say what holds of these reasons are.
var whats = map[string]string{"held": "held", "paused": "paused", "brake": "brake: too many died", "unavailable": "the other side is away"}

// troubles returns what holds jobs up: first what does not end by itself, then what holds up most jobs.
func (l *look) troubles() (all []trouble) {
	for _, h := range l.holds() {
		t := trouble{Lane: h.Lane, Since: h.Since, Until: h.Until, Probe: h.Probe, Jobs: h.Waiting, Due: h.Ready, Why: h.Detail, By: h.By, Reason: h.Reason}
		t.What = cmp.Or(whats[h.Reason], "held: "+h.Reason)
		all = append(all, t)
	}
	all = append(all, l.unserved()...)
	all = append(all, l.crowded()...)
	all = append(all, l.failing()...)
	all = append(all, l.relayed.troubles()...)
	for i := range l.health.Reasons {
		r := &l.health.Reasons[i]
		switch r.Code {
		case errand.HealthBrake, errand.HealthUnavailable, errand.HealthOverdue, errand.HealthReadOnly: // among the holds, and beside
			continue
		case errand.HealthDeadHead:
			all = append(all, l.behindDead(r))
			continue
		}
		t := trouble{What: cmp.Or(conditions[r.Code], string(r.Code)), Lane: errand.Lane{Queue: r.Queue, Kind: r.Kind}, Since: r.Since, Why: r.Text}
		switch r.Code {
		case errand.HealthDamage:
			t.dire, t.Help = true, refused(errand.ErrCorrupt).remedy
		case errand.HealthClosed, errand.HealthFull, errand.HealthWrite, errand.HealthTakenAway:
			t.dire = true
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b trouble) int { return a.before(&b) })
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
		of[s.Kind] = append(of[s.Kind], trouble{What: noWorker, Lane: errand.Lane{Queue: s.Queue, Kind: s.Kind}, Since: s.OldestDue, Jobs: due(s), Due: due(s),
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
		t.lanes = []errand.Lane{some[0].Lane}
		for _, o := range some[1:] {
			t.lanes = append(t.lanes, o.Lane)
			t.Jobs, t.Due = t.Jobs+o.Jobs, t.Due+o.Due
			if laterDue(o.Since, t.Since) < 0 {
				t.Since = o.Since
			}
		}
		all = append(all, t)
	}
	return all
}

// waitsLong is for how long a job has to be due before it is said that all places are taken:
// workers that keep up are full now and then, too.
const waitsLong = 30 * time.Second

// bound is what has no room for one more job: a worker, or a limit of one.
type bound struct {
	Instance string
	Of       errand.Lane // of the limit; zero: the worker
	N        int         // of jobs at a time
}

func (p bound) text() string {
	if p.Of == (errand.Lane{}) {
		return "all " + plural(int64(p.N), "place") + " of the worker " + p.Instance + " are taken"
	}
	return "as many jobs of " + laneText(p.Of) + " run as may at a time, " + count(p.N) + ", in the worker " + p.Instance
}

// taken returns what keeps a job of a lane from a place, for each worker that takes the lane. It is
// empty if a worker has a place free, if none takes the lane, and if that is not known.
func (l *look) taken(queue, kind string) (all []bound) {
	for i := range l.workers {
		w := &l.workers[i]
		if w.Unknown {
			return nil
		}
		if w.Stopping || !w.Serves(queue, kind) {
			continue
		}
		p, full := roomOf(w, queue, kind)
		if !full {
			return nil
		}
		all = append(all, p)
	}
	return all
}

// roomOf returns what has no room in a worker for a job of a lane. A queue has the limit of its own
// name, else that of the longest prefix.
func roomOf(w *errand.WorkerInfo, queue, kind string) (p bound, full bool) {
	var ofQueue *errand.WorkerLimit
	for i := range w.Limits {
		n := &w.Limits[i]
		switch {
		case n.Queue != "" && n.Kind != "": // it opens gently, and that ends soon
		case n.Kind == kind && n.Full:
			p, full = bound{w.Instance, errand.Lane{Kind: kind}, n.Concurrency}, true
		case n.Queue == queue, n.Queue != "" && n.Includes(queue, kind) && (ofQueue == nil || ofQueue.Queue != queue && len(n.Queue) > len(ofQueue.Queue)):
			ofQueue = n
		}
	}
	switch {
	case w.Full:
		return bound{Instance: w.Instance, N: w.Concurrency}, true
	case !full && ofQueue != nil && ofQueue.Full:
		return bound{w.Instance, errand.Lane{Queue: ofQueue.Queue}, ofQueue.Concurrency}, true
	}
	return p, full
}

// crowd returns what keeps the jobs of a lane from a place, if they have waited for long.
func (l *look) crowd(s *errand.LaneStats) []bound {
	if l.unshown || s.Queue == bulkQueue || due(s) == 0 || l.held(s) || l.clock.Now.Sub(s.OldestDue) < waitsLong {
		return nil
	}
	return l.taken(s.Queue, s.Kind)
}

// crowded returns what waits for a place. Lanes that wait for the same ones are one thing.
func (l *look) crowded() (all []trouble) {
	type crowd struct {
		of    []bound
		lanes []*errand.LaneStats
	}
	var crowds []*crowd
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		of := l.crowd(s)
		if len(of) == 0 {
			continue
		}
		at := slices.IndexFunc(crowds, func(c *crowd) bool { return slices.Equal(c.of, of) })
		if at < 0 {
			at, crowds = len(crowds), append(crowds, &crowd{of: of})
		}
		crowds[at].lanes = append(crowds[at].lanes, s)
	}
	for _, c := range crowds {
		t := trouble{What: "all places taken", Lane: errand.Lane{Queue: c.lanes[0].Queue, Kind: c.lanes[0].Kind}, SeeText: "the jobs that run",
			Help: "Raise Concurrency, or give this kind a limit or a worker of its own."}
		behind := int64(0)
		for _, s := range c.lanes {
			t.lanes = append(t.lanes, errand.Lane{Queue: s.Queue, Kind: s.Kind})
			t.Jobs, t.Due, behind = t.Jobs+due(s), t.Due+due(s), behind+s.Blocked
			if laterDue(s.OldestDue, t.Since) < 0 {
				t.Since = s.OldestDue
			}
			if s.Queue != t.Lane.Queue {
				t.Lane.Queue = ""
			}
			if s.Kind != t.Lane.Kind {
				t.Lane.Kind = ""
			}
		}
		if t.Lane == (errand.Lane{}) {
			t.Where = count(len(c.lanes)) + " queues and kinds"
		}
		of := c.of[0].Of
		if of != (errand.Lane{}) {
			t.Help = "Raise the Concurrency of " + laneText(of) + ", or run more workers."
		}
		some, more := first(c.of, mostQueues)
		for i, p := range some {
			if i > 0 {
				t.Why += "; "
			}
			t.Why += p.text()
		}
		if more > 0 {
			t.Why += "; and so in " + plural(int64(more), "other worker")
		}
		t.Why = strings.ToUpper(t.Why[:1]) + t.Why[1:] + "."
		if behind > 0 {
			t.Why = count(behind) + " more wait behind these in their groups. " + t.Why
		}
		if sums := l.sums(); of != (errand.Lane{}) && sums.Running < int64(sums.Places) {
			t.Why = count(int64(sums.Places)-sums.Running) + " of all " + plural(int64(sums.Places), "place") + " are free. " + t.Why
		}
		if strings.HasSuffix(of.Queue, "*") {
			of.Queue = ""
		}
		t.See = "jobs" + string(query("state", "running", "queue", of.Queue, "kind", of.Kind))
		all = append(all, t)
	}
	return all
}

const (
	// failsFor is for how long no job of a lane has to be done before it is said that its jobs
	// only fail.
	failsFor = time.Minute
	// mostFailing is how many such lanes are looked at: each is a read.
	mostFailing = 5
)

// failing is a lane whose jobs only fail.
type failing struct {
	lane errand.Lane
	job  errand.ID // the one that failed last
	at   time.Time // when that was
	// first is when it failed first after the last success, zero if that was not more than once:
	// one failure says nothing.
	first time.Time
}

// mayFail reports whether jobs of a lane wait, and one has failed since one was done for the last
// time.
func (l *look) mayFail(s *errand.LaneStats) bool {
	f := &s.LastFailure
	return s.Scheduled > 0 && !f.Job.IsZero() && f.At.After(s.LastSuccess) && l.clock.Now.Sub(s.LastSuccess) >= failsFor && !l.held(s) && l.served(s.Queue, s.Kind)
}

// lookAtFailing finds out which lanes have jobs that only fail: the job that has failed last has
// done so before, and no other was done meanwhile.
func (l *look) lookAtFailing(ctx context.Context, q *errand.Queue) error {
	was := l.fails
	l.fails, l.clock = nil, q.Clock()
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if len(l.fails) == mostFailing {
			break
		}
		if l.unshown || !l.mayFail(s) {
			continue
		}
		f := failing{lane: errand.Lane{Queue: s.Queue, Kind: s.Kind}, job: s.LastFailure.Job, at: s.LastFailure.At}
		if j := slices.IndexFunc(was, func(o failing) bool { return o.lane == f.lane && o.job == f.job && o.at.Equal(f.at) }); j >= 0 {
			l.fails = append(l.fails, was[j])
			continue
		}
		info, err := q.Job(ctx, f.job)
		if err != nil && !errors.Is(err, errand.ErrNotFound) {
			return err
		}
		times := 0
		for _, h := range info.History {
			if h.Phase == "edited" || !h.At.After(s.LastSuccess) {
				continue
			}
			if times++; times == 1 {
				f.first = h.At
			}
		}
		if times < 2 {
			f.first = time.Time{}
		}
		l.fails = append(l.fails, f)
	}
	return nil
}

// failing returns the lanes whose jobs only fail.
func (l *look) failing() (all []trouble) {
	for _, f := range l.fails {
		i := slices.IndexFunc(l.lanes, func(t errand.LaneTotals) bool { return t.Queue == f.lane.Queue && t.Kind == f.lane.Kind })
		if i < 0 || f.first.IsZero() || !l.mayFail(&l.lanes[i].Stats) { // one was done meanwhile
			continue
		}
		s := &l.lanes[i].Stats
		since, done := s.LastSuccess, "None was done since"
		if since.IsZero() {
			since, done = f.first, "None was ever done"
		}
		if l.clock.Now.Sub(since) < failsFor {
			continue
		}
		all = append(all, trouble{What: "jobs only fail", Lane: f.lane, Since: since, See: "job/" + s.LastFailure.Job.String(), SeeText: "the job that failed last",
			Why: done + "; " + are(s.Scheduled, "job") + " scheduled, for retries or for later. Last error: ", Error: s.LastFailure.Error})
	}
	return all
}

// worries returns which of all troubles lanes have: the worst of each, by queue and kind. One of these
// may be empty, for a trouble of all in a queue, or of a kind.
func worries(all []trouble) map[errand.Lane]*trouble {
	of := map[errand.Lane]*trouble{}
	for i := range all {
		t := &all[i]
		lanes := t.lanes
		if len(lanes) == 0 {
			lanes = []errand.Lane{t.Lane}
		}
		for _, lane := range lanes {
			if of[lane] == nil {
				of[lane] = t
			}
		}
	}
	return of
}

// conditions say what reasons of health are.
var conditions = map[errand.HealthCode]string{
	errand.HealthClosed: "the queue is closed", errand.HealthDamage: "the file is damaged", errand.HealthFull: "no space is left", errand.HealthWrite: "the file cannot be written",
	errand.HealthSpace: "little space is left", errand.HealthClock: "the clock is wrong", errand.HealthCap: "nearly full", errand.HealthLog: "the log hangs", errand.HealthDead: "many dead letters", errand.HealthSchedule: "a schedule cannot be read",
	errand.HealthDeadHead: "behind dead jobs", errand.HealthTakenAway: "a file of the database was taken away",
}

// served reports whether a worker takes jobs of a lane, as far as it is known.
func (l *look) served(queue, kind string) bool {
	return slices.ContainsFunc(l.workers, func(w errand.WorkerInfo) bool { return w.Unknown || w.Serves(queue, kind) })
}
