package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/schedule"
	"github.com/errandq/errand/storage"
)

// readPause is the shortest time between two reads of the schedules, which many
// changes may ask for.
const readPause = 100 * time.Millisecond

// schedules is what the loop knows of the schedules. Every engine fires all of
// them, whichever queues it works for. The store lets only one engine succeed.
type schedules struct {
	store   storage.Scheduler // nil: the Store keeps none, or Config.Bulk
	plans   []*plan
	parsed  map[specKey]*parsed
	refused map[string]specKey // by name: it was logged that this cannot be parsed

	read   *chore    // reads the schedules
	readAt time.Time // they were last read
	fire   *chore    // fires those that are due
	asked  int       // how many firings the last call of fire had
	alone  int       // calls that had a single one, and failed, since the last one that did not fail
}

// plan is a schedule with its spec.
type plan struct {
	storage.Schedule
	*parsed
	headers map[string]string
	decided time.Time // Through, or later, see [schedule.Spec.Decided]
	next    time.Time // the tick after that; zero if there is none
	stale   bool      // the schedule has changed, and is not fired until it was read
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

// Unreadable returns why a schedule is left alone here, nil if it is fired.
func Unreadable(s *storage.Schedule) error {
	if p := (specKey{s.Spec, s.Zone, s.Missed}).parse(); p.err != nil {
		return p.err
	}
	_, err := jobHeaders(s)
	return err
}

// newReadSchedules makes the chore that reads the schedules.
func (l *loop) newReadSchedules(now time.Time) *chore {
	s := &schedules{refused: map[string]specKey{}, read: &chore{}}
	l.chores.schedules = s
	if s.store, _ = l.cfg.Store.(storage.Scheduler); l.cfg.Bulk {
		s.store = nil
	}
	if s.store != nil {
		s.read.due = onMono(now)
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

// readSchedules has the schedules read as soon as readPause allows.
func (l *loop) readSchedules(now time.Time) {
	s := l.chores.schedules
	if s.store == nil {
		return
	}
	at := now
	if !s.readAt.IsZero() {
		at = latest(now, s.readAt.Add(readPause))
	}
	s.read.due = onMono(sooner(s.read.due.mono, at))
}

// haveRead takes the schedules that were read.
func (l *loop) haveRead(all []storage.ScheduleRecord, now time.Time) {
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
		l.addPlan(&plan{Schedule: all[i].Schedule, parsed: p}, key)
	}
	clear(s.plans[len(s.plans):cap(s.plans)])
	l.setNextFiring(now, l.clock())
}

// addPlan adds a schedule. One that cannot be parsed here is left to other
// processes: a later version may have written it, or this machine lacks its zone.
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
	p.decided = p.spec.Decided(stored.Through, stored.Wall)
	p.next = p.spec.Next(p.decided)
}

// Lost reports whether a stored plan is unusable: nothing is decided yet, or
// ticks are decided for more than clock.Patience ahead, which only a wrong clock
// can have written. A plan that is less far ahead counts, or ticks would be fired
// twice.
func Lost(p *storage.Plan, t time.Time) bool {
	return p.Through.IsZero() || p.Through.After(t.Add(clock.Patience))
}

// at returns when p is to be fired; zero if never. While the clock is doubtful, a
// tick that seems to be missed for long has to wait: it may be yet to come, and
// another process may know that and have corrected p.
func (p *plan) at(t time.Time, doubtful bool) time.Time {
	switch {
	case p.Paused || p.stale:
		return time.Time{}
	case doubtful && !p.Through.IsZero() && !p.next.IsZero() && t.Sub(p.next) > clock.Patience:
		return t.Add(lookAgain)
	case Lost(&p.Plan, t) || !p.next.Equal(p.Next):
		return t
	}
	return p.next
}

// setNextFiring sets when the next schedule is to be fired.
func (l *loop) setNextFiring(now, t time.Time) {
	var next time.Time
	doubtful := l.cfg.Clock.Doubtful()
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
