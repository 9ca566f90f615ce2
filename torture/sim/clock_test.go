package sim

import (
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/storage"
)

// wall is a wall clock that can be set. The time of a bubble begins in the year
// 2000, long before the program was built; right is 40 years ahead of it.
type wall struct{ off atomic.Int64 }

const right = 40 * 365 * 24 * time.Hour

func (w *wall) now() time.Time { return time.Now().Round(0).Add(right + time.Duration(w.off.Load())) }

// watch is what the model knows of the queue's clock, by the times that the
// store is given.
type watch struct {
	last    time.Time
	lastAt  time.Duration // since the world began, as the next
	top     time.Time     // what it may have been at lastAt, had the wall clock been looked at since
	aheadAt time.Duration // the wall clock was not far behind, or implausible, for the last time
	losses  int           // how often less time has passed than did
	fresh   bool          // of a life that has just begun
	floor   time.Time     // that the database must know
	stepEnd int64
}

// expected returns what the queue's clock shows if it has gone on, at most: it
// need not have been looked at while the wall clock was ahead.
func (c *watch) expected(elapsed time.Duration) time.Time {
	t := c.last
	if c.top.After(t) {
		t = c.top
	}
	return t.Add(elapsed - c.lastAt)
}

// latest returns the latest that a job can have been found due at.
func (w *world) latest() time.Time {
	t := w.clock.expected(w.elapsed())
	for _, u := range []time.Time{w.wall.now(), w.clock.floor} {
		if u.After(t) {
			t = u
		}
	}
	return t
}

func (w *world) elapsed() time.Duration { return time.Since(w.began) }

// sample checks a reading of the queue's clock that was just made.
func (w *world) sample(l *life, now time.Time) {
	w.tell(l, func(int64) {
		c := &w.clock
		at, wall := w.elapsed(), w.wall.now()
		now = now.Round(0)
		expected := c.expected(at)
		loss := expected.Sub(now)
		switch {
		case c.last.IsZero():
		case now.After(expected) && now.After(wall) && (!c.fresh || now.After(c.floor)):
			w.fault("the queue's clock shows %v, later than the wall clock, %v, and than it should, %v", now, wall, expected)
		case c.fresh && now.Before(c.floor.Add(-time.Microsecond)):
			w.fault("the queue's clock begins with %v, and the database has seen %v", now, c.floor)
		case c.fresh || !now.Before(c.last):
		case !now.Equal(wall) && !wall.Before(now):
			w.fault("the queue's clock goes back by %v to %v, with the wall clock at %v", loss, now, wall)
		case at-c.aheadAt < clock.Patience:
			w.fault("the queue's clock goes back by %v, %v after the wall clock was ahead", loss, at-c.aheadAt)
		}
		if loss > 0 && !c.last.IsZero() {
			c.losses++
			w.peaks = append(w.peaks, step{end: w.next(), now: expected})
		}
		c.last, c.lastAt, c.top, c.fresh = now, at, time.Time{}, false
		w.notBehind()
	})
}

// notBehind notes if the wall clock returns no reason to doubt the queue's.
func (w *world) notBehind() {
	at, wall := w.elapsed(), w.wall.now()
	if c := &w.clock; wall.Before(clock.Built) || c.expected(at).Sub(wall) <= clock.Slack {
		c.aheadAt = at
	}
}

// set sets the wall clock. It waits until nobody is between a look at the clock and
// a call of the store with what it showed.
func (w *world) set(off time.Duration) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notBehind()
	w.peaks = append(w.peaks, step{end: w.next(), now: w.latest()})
	if c, wall := &w.clock, w.wall.now(); wall.After(c.expected(w.elapsed())) {
		c.top = wall.Add(c.lastAt - w.elapsed())
	}
	w.wall.off.Store(int64(off))
	w.notBehind()
}

// wrote notes that the database was given a time.
func (w *world) wrote(begin int64, now time.Time) {
	if c := &w.clock; begin > c.stepEnd && now.After(c.floor) {
		c.floor = now
	}
}

// agenda is what the model knows of a schedule.
type agenda struct {
	storage.Schedule
	period time.Duration
	cursor time.Time // all ticks up to here are accounted for
	losses int
}

// periods are the specs in use, with what they mean.
var periods = map[string]time.Duration{
	"@every 7s": 7 * time.Second, "@every 45s": 45 * time.Second, "* * * * *": time.Minute, "*/20 * * * * *": 20 * time.Second,
}

// entry is a change of a schedule, by its revision.
type entry struct {
	revision int64
	put      *storage.Schedule // else:
	name     string
	plan     storage.Plan
	ticks    []storage.Tick
	losses   int
}

func (w *world) put(l *life, s *storage.Schedule, revision int64) {
	w.tell(l, func(int64) {
		sched := *s
		w.entries = append(w.entries, entry{revision: revision, put: &sched, name: s.Name, plan: s.Plan, losses: w.clock.losses})
	})
}

func (w *world) fired(l *life, begin int64, now time.Time, firings []storage.Firing, out []storage.Fired) {
	w.tell(l, func(end int64) {
		for i, f := range out {
			if !f.Applied {
				continue
			}
			w.entries = append(w.entries, entry{
				revision: f.Plan.Revision, name: firings[i].Name, plan: f.Plan, ticks: f.Ticks, losses: w.clock.losses,
			})
			for k, t := range f.Ticks {
				if job := firings[i].Ticks[k].Job; job != nil && (t.Taken == storage.TickFired || t.Taken == storage.TickManual) {
					w.add(begin, end, now, *job, storage.Enqueued{ID: t.ID})
					w.ticks++
				}
			}
		}
	})
}

// follow takes the next entry of a schedule: its ticks come one after the other,
// none twice and none left out, but when the clock was set back in between.
func (w *world) follow(e entry) {
	a := w.agendas[e.name]
	if e.put != nil {
		fresh := a == nil || e.put.Revision == 0 || a.Spec != e.put.Spec || e.put.Through.IsZero()
		if fresh {
			a = &agenda{period: periods[e.put.Spec], cursor: e.plan.Through, losses: e.losses}
			w.agendas[e.name] = a
		}
		a.Schedule = *e.put
	}
	if a == nil {
		w.fault("schedule %s was fired, which nobody has declared", e.name)
		return
	}
	next := func() time.Time { // a multiple of the period since 1970
		p := int64(a.period / time.Second)
		return time.Unix(a.cursor.Unix()/p*p+p, 0)
	}
	sure := a.losses == e.losses && !a.cursor.IsZero()
	for _, t := range e.ticks {
		if t.Taken == storage.TickManual {
			continue
		}
		if a.Paused && t.Taken != storage.TickPaused {
			w.fault("schedule %s was %s while it is paused", e.name, t.Taken)
		}
		if want := next(); sure && !t.At.Equal(want) {
			w.fault("schedule %s: the tick %v was %s, after %v: want that of %v", e.name, t.At, t.Taken, a.cursor, want)
		}
		until := t.Until
		if until.IsZero() {
			until = t.At
		}
		if n := int64(until.Sub(t.At)/a.period) + 1; n != max(t.N, 1) {
			w.fault("schedule %s: %d ticks from %v to %v, want %d", e.name, t.N, t.At, until, n)
		}
		a.cursor = until
	}
	if sure && !next().After(e.plan.Through) {
		w.fault("schedule %s: all is decided up to %v, and nothing was made of the tick at %v", e.name, e.plan.Through, next())
	}
	if !sure {
		a.cursor, a.losses = e.plan.Through, e.losses
	}
}
