package engine

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// onTime is how late a tick may be without being missed.
	onTime = 10 * time.Second
	// Bounds of one call of Fire: no schedule is begun beyond them.
	mostFirings = 100
	mostJobs    = 1000
	mostBytes   = 64 << 20 // of args
)

// newFire makes the chore that fires schedules.
func (l *loop) newFire() *chore {
	s := l.chores.schedules
	s.fire = &chore{prepare: l.prepareFire}
	return s.fire
}

// prepareFire returns the next call of Fire, or nil if no schedule is due.
// Schedules that have waited longest go first, so that none is left out for ever.
func (l *loop) prepareFire(now time.Time) task {
	s := l.chores.schedules
	waits := l.cfg.WaitForClock && !l.cfg.Clock.Plausible()
	t := l.clock() // after that: the time of a clock that is set right in between is not the wrong one
	if waits {
		s.fire.due = wallTime{wall: t, mono: now.Add(lookAgain)}
		return nil
	}
	var due []*plan
	doubtful := l.cfg.Clock.Doubtful()
	for _, p := range s.plans {
		if at := p.at(t, doubtful); !at.IsZero() && !at.After(t) {
			due = append(due, p)
		}
	}
	slices.SortStableFunc(due, func(a, b *plan) int { return a.next.Compare(b.next) })
	due, most := s.fewer(due)
	var firings []storage.Firing
	jobs, bytes := 0, int64(0)
	for _, p := range due {
		f, n := p.fire(t, l.watch.doubtful)
		jobs, bytes = jobs+n, bytes+int64(n)*int64(len(p.Job.Args))
		if len(firings) == most || len(firings) > 0 && (jobs > mostJobs || bytes > mostBytes) {
			break
		}
		firings = append(firings, f)
	}
	l.setNextFiring(now, t)
	if s.asked = len(firings); s.asked == 0 {
		return nil
	}
	return func(ctx context.Context) (func(time.Time), error) {
		fired, err := s.store.Fire(ctx, t, firings)
		return func(now time.Time) { l.fired(due, fired, now) }, err
	}
}

// fewer returns the plans that are due, and how many the next call may fire: after one that failed
// half as many, as the disk may have room for less, and after one that had a single one others first.
func (s *schedules) fewer(due []*plan) (first []*plan, most int) {
	switch {
	case !s.fire.failed:
		s.alone = 0
		return due, mostFirings
	case s.asked > 1 || len(due) == 0:
		return due, max(s.asked/2, 1)
	}
	s.alone++
	n := s.alone % len(due)
	return slices.Concat(due[n:], due[:n]), 1
}

// fire returns the firing of p, which is due at t, and the number of its jobs. doubtful
// reports whether t is not believed.
func (p *plan) fire(t time.Time, doubtful bool) (f storage.Firing, jobs int) {
	f = storage.Firing{Name: p.Name, Revision: p.Revision, Next: p.next, Through: p.Through, Wall: p.Wall}
	switch {
	case Lost(&p.Plan, t):
		f.Next, f.Through, f.Wall = p.spec.Next(t), t, ""
		return f, 0
	case p.next.IsZero() || p.next.After(t):
		return f, 0
	}
	d := p.spec.Due(p.decided, t, p.missed, onTime)
	f.Next, f.Through, f.Wall = d.Next, t, p.spec.Wall(t)
	if d.Skipped > 0 {
		f.Ticks = append(f.Ticks, storage.NewTick{
			At: d.FirstSkipped, Until: d.LastSkipped, N: d.Skipped, Taken: storage.TickMissed,
		})
	}
	for _, tick := range d.Fire {
		job := tickJob(&p.Schedule, p.headers, tick, t)
		job.Doubtful = doubtful
		f.Ticks = append(f.Ticks, storage.NewTick{At: tick, Taken: storage.TickFired, Job: &job})
	}
	return f, len(d.Fire)
}

// fired takes the answers for the first of the plans that were due. A schedule
// that another process has changed is read again, as more than its plan may be
// another.
func (l *loop) fired(plans []*plan, all []storage.Fired, now time.Time) {
	for i := range all {
		p, fired := plans[i], &all[i]
		if fired.Applied {
			p.adopt(fired.Plan)
			l.logTicks(p, fired.Ticks)
			l.tellFired(p, fired.Ticks)
			continue
		}
		p.stale = true
		l.readSchedules(now)
	}
	l.setNextFiring(now, l.clock())
}

func (l *loop) logTicks(p *plan, ticks []storage.Tick) {
	for _, t := range ticks {
		switch t.Taken {
		case storage.TickMissed:
			l.cfg.Logger.Info("errand: ticks of a schedule were missed", "schedule", p.Name, "ticks", t.N, "from", t.At, "until", t.Until)
		default:
			l.cfg.Logger.Debug("errand: schedule ticked", "schedule", p.Name, "tick", t.At, "taken", string(t.Taken), "job", t.ID.String())
		}
	}
}
