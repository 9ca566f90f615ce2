package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand"
)

// look is what the queue was like at a moment. All viewers share it: do not change it.
type look struct {
	at      time.Time // of this machine
	clock   errand.ClockState
	lanes   []errand.LaneTotals
	workers []errand.WorkerInfo
	unshown bool // workers are not known
	health  errand.Health
	// readOnly: the queue is open for reading alone, and does not know whether it could write.
	readOnly bool
	holds    []errand.HoldState
	causes   []errand.Cause
	longest  []errand.JobInfo
}

// looks keep the last look, and make one at most once a second.
type looks struct {
	q *errand.Queue

	mu   sync.Mutex
	last *look
	next *looking // under way; nil: none
}

// looking is a look under way.
type looking struct {
	ended chan struct{} // closed once the rest is set
	look  *look
	err   error
}

const (
	lookEach = time.Second
	// ofCauses and ofLongest are how many of them the front shows.
	ofCauses  = 5
	ofLongest = 10
)

// get returns a look that is at most a second old.
func (s *looks) get(ctx context.Context) (*look, error) {
	s.mu.Lock()
	if s.last != nil && time.Since(s.last.at) < lookEach {
		defer s.mu.Unlock()
		return s.last, nil
	}
	n := s.next
	if n == nil {
		n = &looking{ended: make(chan struct{})}
		s.next = n
		go s.run(n)
	}
	s.mu.Unlock()
	select {
	case <-n.ended:
		return n.look, n.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run makes a look. It belongs to nobody: a viewer who goes away spoils it for no other.
func (s *looks) run(n *looking) {
	ctx, stop := context.WithTimeout(context.Background(), readFor)
	defer stop()
	n.look, n.err = take(ctx, s.q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.err == nil {
		s.last = n.look
	}
	s.next = nil
	close(n.ended)
}

// take looks at a queue.
func take(ctx context.Context, q *errand.Queue) (l *look, err error) {
	l = &look{at: time.Now(), clock: q.Clock()}
	health := make(chan errand.Health, 1)
	go func() { // it waits for its turn to write, as the rest does not
		asking, stop := context.WithTimeout(ctx, readFor/2)
		defer stop()
		health <- q.Health(asking, &errand.HealthOptions{MaxAge: -1})
	}()
	if l.lanes, err = q.Totals(ctx); err != nil {
		return nil, err
	}
	if l.holds, err = q.Holds(ctx); err != nil {
		return nil, err
	}
	if l.workers, err = q.Workers(ctx); errors.Is(err, errand.ErrUnsupportedDB) {
		l.unshown, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	if l.causes, err = q.DeadLetters().Causes(ctx, &errand.CauseOptions{Limit: ofCauses}); err != nil {
		return nil, err
	}
	page, err := q.Jobs(ctx, errand.JobFilter{States: []errand.State{errand.Running}}, &errand.ListOptions{Limit: 200})
	if err != nil {
		return nil, err
	}
	l.longest = page.Jobs
	slices.SortStableFunc(l.longest, func(a, b errand.JobInfo) int { return a.DueAt.Compare(b.DueAt) })
	l.longest = l.longest[:min(len(l.longest), ofLongest)]
	l.health = <-health
	l.readOnly = slices.ContainsFunc(l.health.Reasons, func(r errand.HealthReason) bool {
		return r.Code == errand.HealthWrite && strings.HasPrefix(r.Text, errand.ErrReadOnly.Error())
	})
	return l, nil
}

// sums are the numbers of all lanes together.
type sums struct {
	Scheduled, Ready, Blocked, Running, Dead int64
	Enqueued                                 int64
	Places                                   int // of all workers
	Minute                                   errand.Rate
}

func (l *look) sums() (s sums) {
	for i := range l.lanes {
		t := &l.lanes[i]
		s.Scheduled += t.Stats.Scheduled
		s.Ready += t.Stats.Ready
		s.Blocked += t.Stats.Blocked
		s.Running += t.Stats.Running
		s.Dead += t.Stats.Dead
		s.Enqueued += t.Enqueued
		s.Minute.Done += t.Stats.Minute.Done
		s.Minute.Failed += t.Stats.Minute.Failed
	}
	for i := range l.workers {
		s.Places += l.workers[i].Concurrency
	}
	return s
}

// oldest returns when the job was due that waits longest, of those that nobody holds; zero if
// none waits.
func (l *look) oldest() (t time.Time) {
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if len(s.Holds) == 0 && !s.OldestDue.IsZero() && (t.IsZero() || s.OldestDue.Before(t)) {
			t = s.OldestDue
		}
	}
	return t
}

// trouble is one thing that holds up jobs, or that somebody should look at.
type trouble struct {
	What, Where string
	Lane        errand.Lane
	Since       time.Time
	Until       time.Time // or the next probe
	Probe       bool
	Jobs        int64 // that wait
	Why         string
	Reason      string // of a hold: the button releases it
}

// troubles returns what holds jobs up, of most jobs first.
func (l *look) troubles() (all []trouble) {
	for _, h := range l.holds {
		t := trouble{What: "held", Lane: h.Lane, Since: h.Since, Until: h.Until, Probe: h.Probe, Jobs: h.Waiting, Why: h.Detail, Reason: h.Reason}
		if h.By != "" {
			t.Why = join(t.Why, "by "+h.By)
		}
		t.What = map[string]string{"paused": "paused", "brake": "brake: too many died", "unavailable": "the other side is away"}[h.Reason]
		t.What = cmp.Or(t.What, "held: "+h.Reason)
		all = append(all, t)
	}
	if !l.unshown {
		for i := range l.lanes {
			s := &l.lanes[i].Stats
			if due := s.Ready; due > 0 && !l.served(s.Queue, s.Kind) {
				all = append(all, trouble{What: "no worker", Lane: errand.Lane{Queue: s.Queue, Kind: s.Kind}, Since: s.OldestDue, Jobs: due, Why: "No running worker takes this kind from this queue."})
			}
		}
	}
	for i := range l.health.Reasons {
		r := &l.health.Reasons[i]
		switch r.Code {
		case errand.HealthBrake, errand.HealthUnavailable, errand.HealthOverdue: // among the holds, and beside
			continue
		case errand.HealthWrite:
			if l.readOnly {
				continue
			}
		}
		all = append(all, trouble{What: string(r.Code), Lane: errand.Lane{Queue: r.Queue, Kind: r.Kind}, Since: r.Since, Why: r.Text})
	}
	slices.SortStableFunc(all, func(a, b trouble) int { return cmp.Compare(b.Jobs, a.Jobs) })
	return all
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// served reports whether a worker takes jobs of a lane, as far as it is known.
func (l *look) served(queue, kind string) bool {
	return slices.ContainsFunc(l.workers, func(w errand.WorkerInfo) bool { return w.Unknown || w.Serves(queue, kind) })
}
