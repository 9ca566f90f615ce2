package engine

import (
	"log/slog"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	// leastOutage is for how long a job waits after the first attempt of its lane
	// that could not reach the other side, and for how long a lane is held. Both
	// times double, up to mostOutage and mostBrake.
	leastOutage = time.Second
	mostOutage  = 5 * time.Minute
	mostBrake   = time.Hour

	// unreachedInARow is how many attempts of a lane must fail to reach the other
	// side, and none of it end well between, until the lane is held.
	unreachedInARow = 5
	// A lane of many hosts, of which some are gone, is mixed: one of which an attempt
	// has ended well that began after another one did not reach the other side, or
	// that would be held again within heldAgain after a hold was released by a success.
	// It is so for mixedFor. It is held only after mixedInARow attempts that did not
	// reach the other side, and mixedPatience without one that has ended well.
	heldAgain     = time.Minute
	mixedFor      = 10 * time.Minute
	mixedPatience = 30 * time.Second
	mixedInARow   = 1000

	// oldestJob is older than any job can be: the clock was wrong when it was enqueued.
	oldestJob = 10 * 365 * 24 * time.Hour
)

// streaks are the lanes whose last attempts here have failed or died.
type streaks map[storage.Lane]*streak

// streak is what the last attempts of a lane have shown, since one ended well.
type streak struct {
	unreached int           // attempts that could not reach the other side
	first     time.Time     // when the first of them ended
	wait      time.Duration // of jobs until they try again
	until     time.Time     // the wait of those that were under way together
	step      time.Duration // for how long the lane was held last
	astray    time.Time     // when an attempt first did not reach the other side; see reached
	released  time.Time     // when a success last ended a hold
	mixed     time.Time     // when the lane was last seen to be mixed
	hurried   time.Time     // when a probe was last let through early
	deaths    int           // jobs that died one after the other
}

// of returns the streak of a lane, which is new if there is none.
func (all streaks) of(lane storage.Lane) *streak {
	s := all[lane]
	if s == nil {
		s = &streak{}
		all[lane] = s
	}
	return s
}

// put notes an attempt that could not reach the other side, and returns how long its
// job waits. Attempts that were under way together wait together.
func (s *streak) put(now time.Time) time.Duration {
	if s.unreached++; s.unreached == 1 {
		s.first = now
	}
	if s.astray.IsZero() {
		s.astray = now
	}
	if !now.Before(s.until) {
		s.wait = min(max(2*s.wait, leastOutage), mostOutage)
		s.until = now.Add(s.wait)
	}
	return s.until.Sub(now)
}

// long reports whether enough attempts did not reach the other side to hold the lane.
func (s *streak) long(now time.Time) bool {
	switch {
	case s.unreached < unreachedInARow:
		return false
	case within(s.released, heldAgain, now):
		s.mixed = now
	}
	return !within(s.mixed, mixedFor, now) || s.unreached >= mixedInARow && now.Sub(s.first) >= mixedPatience
}

// reached notes that an attempt that began at began has reached the other side. If
// that ends a hold, the other side may have been away altogether until then. Else
// attempts that ended before it began had another host.
func (s *streak) reached(began, now time.Time) {
	switch {
	case s.step > 0:
		s.released, s.astray = now, time.Time{}
	case !s.astray.IsZero() && began.After(s.astray):
		s.mixed, s.astray = now, time.Time{}
	}
	s.unreached, s.wait, s.until, s.step = 0, 0, time.Time{}, 0
}

// over reports whether nothing need be known of the lane any more.
func (s *streak) over(now time.Time) bool {
	return s.unreached == 0 && s.deaths == 0 && s.astray.IsZero() && !within(s.released, heldAgain, now) && !within(s.mixed, mixedFor, now)
}

// within reports whether t was less than d ago; a t of zero was never.
func within(t time.Time, d time.Duration, now time.Time) bool { return !t.IsZero() && now.Sub(t) < d }

// learn draws from the end of an attempt what it shows of its lane, and holds or
// releases that. A job that could not reach the other side waits with its lane: if
// that is held, behind those that are due, so that the next probe is another job.
// clock is the time on the Config's clock.
func (l *loop) learn(a *attempt, f *storage.Finish, clock time.Time) {
	all, lane := l.outcomes.streaks, storage.Lane{Queue: a.job.Queue, Kind: a.job.Kind}
	if f.Outcome == storage.OutcomeDone && len(all) == 0 && len(l.ready.holds.own) == 0 && l.ready.holds.rulings.none() {
		return
	}
	now := time.Now()
	switch f.Outcome {
	case storage.OutcomeUnavailable:
		l.unreached(a, f, lane, clock)
		return
	case storage.OutcomeDone:
		l.release(lane, storage.HoldUnavailable)
		l.release(lane, storage.HoldBrake)
		if s := all[lane]; s != nil {
			s.deaths = 0
			s.reached(now.Add(-a.took), now)
		}
	case storage.OutcomeRetry, storage.OutcomeSnooze:
		l.release(lane, storage.HoldBrake)
		if s := all[lane]; s != nil {
			s.deaths = 0
		}
		if a.job.Probe {
			l.renew(lane, storage.HoldUnavailable, &a.verdict, mostOutage)
		}
	case storage.OutcomeDead:
		l.died(a, f, lane)
	}
	if s := all[lane]; s != nil && s.over(now) {
		delete(all, lane)
	}
}

// unreached holds the lane of an attempt that could not reach the other side, if there
// is reason to, and says when the job is due.
func (l *loop) unreached(a *attempt, f *storage.Finish, lane storage.Lane, clock time.Time) {
	v, now := &a.verdict, time.Now()
	s := l.outcomes.streaks.of(lane)
	wait := s.put(now)
	f.DueAt = clock
	held := l.ready.holds.ownHold(lane, storage.HoldUnavailable) != nil
	switch {
	case v.hold > 0:
		if !held {
			l.cfg.Logger.Info("errand: a handler has jobs held", "queue", lane.Queue, "kind", lane.Kind,
				"for", v.hold, "error", shorten(v.text, maxLogged))
		}
		s.step = min(max(v.hold, leastOutage), l.cfg.MaxRetryAfter)
		l.hold(lane, storage.HoldUnavailable, v.text, s.step)
	case held && a.job.Probe:
		l.renew(lane, storage.HoldUnavailable, v, mostOutage)
	case held:
		return
	case v.local || s.long(now):
		l.cfg.Logger.Warn("errand: the other side cannot be reached, jobs are held", "queue", lane.Queue, "kind", lane.Kind,
			"for", s.wait, "error", shorten(v.text, maxLogged))
		s.step = s.wait
		l.hold(lane, storage.HoldUnavailable, v.text, s.step)
	default:
		f.DueAt = clock.Add(wait)
		return
	}
	if v.unauthorized {
		l.callUnauthorized(lane.Kind)
	}
}

// died holds the lane of a job that has died, if too many have.
func (l *loop) died(a *attempt, f *storage.Finish, lane storage.Lane) {
	switch f.Reason {
	case storage.ReasonPermanent: // which is an answer
		l.release(lane, storage.HoldUnavailable)
	case storage.ReasonExhausted, storage.ReasonDecode:
	default:
		return
	}
	most := l.cfg.maxDeaths(lane.Queue)
	c := a.job.Counters
	if most < 0 || c.Attempt > 1+c.Retry+c.Snoozes+c.Crashes { // redriven, perhaps
		return
	}
	s := l.outcomes.streaks.of(lane)
	s.deaths++
	switch {
	case l.ready.holds.ownHold(lane, storage.HoldBrake) != nil:
		if a.job.Probe {
			l.renew(lane, storage.HoldBrake, &a.verdict, mostBrake)
		}
	case s.deaths > most:
		l.cfg.Logger.Error("errand: too many jobs died one after the other, jobs are held", "queue", lane.Queue, "kind", lane.Kind,
			"deaths", s.deaths, "error", shorten(f.Error, maxLogged))
		l.hold(lane, storage.HoldBrake, f.Error, leastOutage)
	}
}

// maxDeaths returns how many jobs of a lane may die one after the other; negative: any
// number.
func (c *Config) maxDeaths(queue string) int {
	if n := c.Settings[queue].MaxDeaths; n != 0 {
		return n
	}
	return c.MaxDeaths
}

// unavailable ends an attempt that could not reach the other side. The job waits
// with its lane, and spends nothing, unless the store knows that others were more
// successful.
func (c *Config) unavailable(f storage.Finish, job *storage.Leased, v verdict, took time.Duration, now time.Time) storage.Finish {
	v.class = policy.Retryable
	spent := c.failure(f, job, v, took, now)
	age, most := now.Sub(job.CreatedAt), c.Handlers[job.Kind].MaxUnavailable
	if most > 0 && age > most && age < oldestJob && c.Clock.Plausible() {
		f.Failure = spent.Failure
		return dead(f, job, c.effective(job), storage.ReasonUnavailable, v.text)
	}
	f.Outcome, f.DueAt, f.Error, f.Spent = storage.OutcomeUnavailable, now, v.text, &spent
	if job.Attempt > 1 {
		f.Since = job.Previous
	}
	return f
}

const unreached = "errand: attempt could not reach the other side"

// spent logs an attempt that has spent a retry though it could not reach the other
// side.
func (r *reports) spent(f *outcome) {
	if f.Spent.Outcome == storage.OutcomeDead {
		r.dead(f.job, f.Spent)
		return
	}
	r.job(slog.LevelWarn, attemptFailed, f.job, f.Error, "due", f.Spent.DueAt)
}
