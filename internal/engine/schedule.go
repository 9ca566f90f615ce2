package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/schedule"
	"github.com/errandq/errand/storage"
)

// readPause is how long after they were read schedules are read again at the
// earliest: whatever is controlled asks for it.
const readPause = 100 * time.Millisecond

// schedules is what the loop knows of the recurring jobs. Every engine fires
// all of them, whichever queues it works for; the store sees to it that only one
// succeeds.
type schedules struct {
	store   storage.Scheduler // nil: the Store keeps none
	plans   []*plan
	parsed  map[specKey]*parsed
	refused map[string]specKey // by name: could not be read here, and was logged

	read   *chore    // reads them
	readAt time.Time // that was last done
	fire   *chore    // does what is to be done about them
}

// plan is a schedule, and what its spec makes of it.
type plan struct {
	storage.Schedule
	*parsed
	headers map[string]string
	next    time.Time // the tick after Through; zero if there is none
	stale   bool      // has changed: nothing is done about it until it was read again
}

type specKey struct{ spec, zone, missed string }

type parsed struct {
	spec   *schedule.Spec
	missed schedule.Missed
	err    error
}

func (k specKey) parse() *parsed {
	var p parsed
	if p.spec, p.err = schedule.Parse(k.spec, k.zone); p.err == nil {
		p.missed, p.err = schedule.ParseMissed(k.missed)
	}
	return &p
}

// newReadSchedules makes the chore that reads the schedules.
func (l *loop) newReadSchedules(now time.Time) *chore {
	s := &schedules{refused: map[string]specKey{}, read: &chore{}}
	l.chores.schedules = s
	if s.store, _ = l.cfg.Store.(storage.Scheduler); s.store != nil {
		s.read.due = soon(now)
	}
	s.read.prepare = func(now time.Time) task {
		s.readAt = now
		return func(ctx context.Context) (func(time.Time), error) {
			all, err := s.store.Schedules(ctx)
			return func(now time.Time) { l.haveRead(all, now) }, err
		}
	}
	return s.read
}

// readSchedules has them read as soon as may be.
func (l *loop) readSchedules(now time.Time) {
	s := l.chores.schedules
	if s.store == nil {
		return
	}
	at := now
	if !s.readAt.IsZero() {
		at = latest(now, s.readAt.Add(readPause))
	}
	s.read.due = soon(sooner(s.read.due.mono, at))
}

// haveRead takes the schedules as they are now.
func (l *loop) haveRead(all []storage.Schedule, now time.Time) {
	s := l.chores.schedules
	before := s.parsed
	s.parsed, s.plans = make(map[specKey]*parsed, len(before)), s.plans[:0]
	for i := range all {
		key := specKey{all[i].Spec, all[i].Zone, all[i].Missed}
		p := s.parsed[key]
		if p == nil {
			if p = before[key]; p == nil {
				p = key.parse()
			}
			s.parsed[key] = p
		}
		l.addPlan(&plan{Schedule: all[i], parsed: p}, key)
	}
	clear(s.plans[len(s.plans):cap(s.plans)])
	l.setNextFiring(now, l.clock())
}

// take adds a schedule to those that are fired here. One that cannot be read,
// since a later version wrote it or this machine lacks its zone, is left to
// others.
func (l *loop) addPlan(p *plan, key specKey) {
	s := l.chores.schedules
	err := p.err
	if err == nil {
		p.headers, err = jobHeaders(&p.Schedule)
	}
	if err == nil {
		delete(s.refused, p.Name)
		p.adopt(p.Plan)
		s.plans = append(s.plans, p)
		return
	}
	if logged, ok := s.refused[p.Name]; !ok || logged != key {
		s.refused[p.Name] = key
		l.cfg.Logger.Error("errand: schedule cannot be read here and is left alone", "schedule", p.Name, "error", err)
	}
}

func (p *plan) adopt(stored storage.Plan) {
	p.Plan = stored
	p.next = p.spec.Next(stored.Through)
}

// lost tells whether what is stored leads nowhere: nothing is known of the ticks
// before now, or the clock was set back far, and what was decided about times
// to come does not count. A little ahead it does, else ticks would come twice.
func (p *plan) lost(t time.Time) bool {
	return p.Through.IsZero() || p.Through.After(t.Add(clock.Patience))
}

// at gives when something is to be done about p; zero if never. While the
// clock is doubtful, what was missed long ago has to wait: it may be yet to
// come, and another process may know and have set p back.
func (p *plan) at(t time.Time, doubtful bool) time.Time {
	switch {
	case p.Paused || p.stale:
		return time.Time{}
	case doubtful && !p.Through.IsZero() && !p.next.IsZero() && t.Sub(p.next) > clock.Patience:
		return t.Add(lookAgain)
	case p.lost(t) || !p.next.Equal(p.Next):
		return t
	}
	return p.next
}

// plan sets when something is to be done about schedules.
func (l *loop) setNextFiring(now, t time.Time) {
	var next time.Time
	doubtful := l.cfg.Doubtful()
	for _, p := range l.chores.schedules.plans {
		if at := p.at(t, doubtful); !at.IsZero() {
			next = sooner(next, at)
		}
	}
	due := &l.chores.schedules.fire.due
	if *due = (wallTime{}); !next.IsZero() {
		due.at(next, now, t)
	}
}
