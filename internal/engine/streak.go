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
	// mostAside is for how long the job of a probe makes way for others at most.
	mostAside = time.Hour

	// unreachedInARow is how many attempts of a lane must fail to reach the other
	// side, and none of it end well between, until the lane is held.
	unreachedInARow = 5
	// A lane of many hosts, of which some are gone, is mixed. It shows by turns: an
	// attempt ends well that began after another one did not reach the other side. One
	// or two may be the ends of outages; mixedTurns with less than turnWithin between
	// are not. It is mixed for mixedFor then, and held only after mixedInARow attempts
	// that did not reach the other side, and mixedPatience without one that has ended
	// well.
	mixedTurns    = 3
	turnWithin    = 2 * time.Minute
	mixedFor      = 10 * time.Minute
	mixedPatience = 30 * time.Second
	mixedInARow   = 1000
	// longOutage is how long this machine was without a network at least if the end of
	// that is no turn. A host whose name cannot be looked up now looks the same for as
	// long as no other host is tried.
	longOutage = 5 * time.Second

	// oldestJob is older than any job can be: the clock was wrong when it was enqueued.
	oldestJob = 10 * 365 * 24 * time.Hour
)

// streaks are the lanes whose last attempts here have failed or died.
type streaks map[storage.Lane]*streak

// streak is what the last attempts of a lane have shown, since one ended well.
type streak struct {
	unreached int           // attempts that could not reach the other side
	local     int           // of them, those that found no network
	first     time.Time     // when the first of them ended
	wait      time.Duration // of jobs until they try again
	until     time.Time     // the wait of those that were under way together
	astray    time.Time     // when an attempt first did not reach the other side; see reached
	turns     int           // in a row
	turned    time.Time     // the last of them
	mixed     time.Time     // when the lane was last seen to be mixed
	heldAt    time.Time     // when the hold was last begun here or renewed, or seen; zero: none was
	end       time.Time     // of the hold that was begun here, on the Config's clock
	hurried   time.Time     // when a probe was last let through early
	// unauthorized: the other side refused the sender of the last attempt.
	unauthorized bool
	deaths       int // jobs that died one after the other
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

// put notes an attempt that could not reach the other side, and until when its job waits.
// Attempts that were under way together wait together.
func (s *streak) put(now time.Time, local bool) {
	if s.unreached++; s.unreached == 1 {
		s.first = now
	}
	if local {
		s.local++
	}
	if s.astray.IsZero() {
		s.astray = now
	}
	if !now.Before(s.until) {
		s.wait = min(max(2*s.wait, leastOutage), mostOutage)
		s.until = now.Add(s.wait)
	}
}

// long reports whether enough attempts did not reach the other side to hold the lane.
func (s *streak) long(now time.Time) bool {
	if s.isMixed(now) && s.local < s.unreached {
		return s.unreached >= mixedInARow && now.Sub(s.first) >= mixedPatience
	}
	return s.unreached >= unreachedInARow
}

func (s *streak) isMixed(now time.Time) bool { return within(s.mixed, mixedFor, now) }

// reached notes that an attempt that began at began has reached the other side.
func (s *streak) reached(began, now time.Time) {
	turn := !s.heldAt.IsZero() || !s.astray.IsZero() && began.After(s.astray)
	if turn && (s.local == 0 || within(s.first, longOutage, now)) {
		if !within(s.turned, turnWithin, now) {
			s.turns = 0
		}
		s.turns, s.turned = s.turns+1, now
		if s.turns >= mixedTurns {
			s.mixed = now
		}
	}
	if turn {
		s.astray = time.Time{}
	}
	s.unreached, s.local, s.wait, s.until, s.heldAt = 0, 0, 0, time.Time{}, time.Time{}
}

// over reports whether nothing need be known of the lane any more.
func (s *streak) over(now time.Time) bool {
	return s.unreached == 0 && s.deaths == 0 && s.heldAt.IsZero() && s.astray.IsZero() && !within(s.turned, turnWithin, now) && !s.isMixed(now)
}

// within reports whether t was less than d ago; a t of zero was never.
func within(t time.Time, d time.Duration, now time.Time) bool { return !t.IsZero() && now.Sub(t) < d }

// learn draws from the end of an attempt what it shows of its lane, and holds or
// releases that. clock is the time on the Config's clock.
func (l *loop) learn(a *attempt, f *storage.Finish, clock time.Time) {
	all, lane := l.outcomes.streaks, a.lane()
	if f.Outcome == storage.OutcomeDone {
		l.outcomes.longest.took(a)
	}
	if f.Outcome == storage.OutcomeDone && len(all) == 0 && len(l.ready.holds.own) == 0 && l.ready.holds.rulings.none() {
		return
	}
	now := time.Now()
	switch v := &a.verdict; {
	case v.kind == verdictFailed && v.class == policy.Unavailable:
		l.unreached(a, f, lane, clock)
	case f.Outcome == storage.OutcomeDone:
		l.served(a, lane, now)
	case f.Outcome == storage.OutcomeDead:
		l.died(a, f, lane)
	case f.Outcome == storage.OutcomeRetry, f.Outcome == storage.OutcomeSnooze:
		l.renew(a, storage.HoldUnavailable, v, mostOutage)
	case l.isProbe(a): // which shows nothing
		l.ajar(a.job)
	}
	l.survived(f.Outcome, lane)
	if s := all[lane]; s != nil && s.over(now) {
		delete(all, lane)
	}
}

// survived ends a brake after an attempt that did not end with the death of its job.
// Deaths of which the lane has not had too many go on counting until a job is done: jobs
// that fail and are retried die later.
func (l *loop) survived(o storage.Outcome, lane storage.Lane) {
	switch o {
	case storage.OutcomeDead, storage.OutcomeReturned, storage.OutcomeInterrupted:
		return
	}
	braked := l.ready.holds.ownHold(lane, storage.HoldBrake) != nil
	l.release(lane, storage.HoldBrake)
	if s := l.outcomes.streaks[lane]; s != nil && (braked || o == storage.OutcomeDone || o == storage.OutcomeSnooze) {
		s.deaths = 0
	}
}

// served takes an attempt that the other side has answered. It ends a hold that began
// before it: what was running then may have reached the other side earlier.
func (l *loop) served(a *attempt, lane storage.Lane, now time.Time) {
	s, began := l.outcomes.streaks[lane], now.Add(-a.took)
	if l.wasProbe(a, storage.HoldUnavailable) || s == nil || s.heldAt.IsZero() || began.After(s.heldAt) {
		l.release(lane, storage.HoldUnavailable)
		if s != nil {
			s.reached(began, now)
		}
	}
}

// unreached holds the lane of an attempt that could not reach the other side, if there
// is reason to, and says when its job is due: while the lane is held, now, behind the
// others, so that the next probe is another job.
func (l *loop) unreached(a *attempt, f *storage.Finish, lane storage.Lane, clock time.Time) {
	v, now := &a.verdict, time.Now()
	s := l.outcomes.streaks.of(lane)
	due := clock
	if a.firstAstray() {
		s.put(now, v.local)
	}
	wait := max(s.until.Sub(now), 0)
	held := l.ready.holds.ownHold(lane, storage.HoldUnavailable)
	asks := v.unauthorized && (held != nil || s.unreached >= unreachedInARow)
	switch {
	case l.cfg.lacking("Hold") != nil:
		due = clock.Add(max(wait, min(v.hold, l.cfg.MaxRetryAfter)))
	case v.hold > 0:
		l.holdFor(a, v, held)
	case l.waitsFor(a, storage.HoldUnavailable) != nil:
		due = clock.Add(aside(a.job, held, l.renew(a, storage.HoldUnavailable, v, mostOutage), clock))
	case held != nil:
	case s.long(now), v.local && !s.isMixed(now), asks:
		l.cfg.Logger.Warn("errand: the other side cannot be reached, jobs are held", "queue", lane.Queue, "kind", lane.Kind,
			"for_s", s.wait.Seconds(), "error", shorten(v.text, maxLogged))
		l.hold(lane, storage.HoldUnavailable, v.text, s.wait)
	default:
		due = clock.Add(wait)
	}
	if f.Outcome == storage.OutcomeUnavailable {
		f.DueAt = due
	}
	if s.unauthorized = asks; asks && (a.job.Probe || held == nil) {
		l.callUnauthorized(lane)
	}
}

// holdFor holds a lane for as long as a handler has asked for, but no shorter than
// another one has: a probe knows best.
func (l *loop) holdFor(a *attempt, v *verdict, held *storage.HoldState) {
	lane := storage.Lane{Queue: a.job.Queue, Kind: a.job.Kind}
	length := min(max(v.hold, leastOutage), l.cfg.MaxRetryAfter)
	probe := l.waitsFor(a, storage.HoldUnavailable) != nil
	if held != nil && !probe && l.clock().Add(length).Before(held.Until) {
		return
	}
	if held == nil {
		l.cfg.Logger.Info("errand: a handler has jobs held", "queue", lane.Queue, "kind", lane.Kind,
			"for_s", length.Seconds(), "error", shorten(v.text, maxLogged))
	}
	n := storage.Hold{Lane: lane, Reason: storage.HoldUnavailable, By: byHandler, Detail: v.text, For: length}
	if probe {
		n.Through = a.job.Lease
	}
	l.holdBy(n)
}

// aside returns for how long the job of a probe that has failed makes way. Jobs of a
// higher priority come before the others however late they are due: so they are set
// aside for as long as their lane has been held, or until each that is ready can have had
// its turn.
func aside(job *storage.Leased, held *storage.HoldState, next time.Duration, clock time.Time) time.Duration {
	if job.Priority <= 0 || held.Ready == 0 {
		return 0
	}
	next += leastOutage
	turns := next * time.Duration(min(held.Ready, int64(mostAside/leastOutage)))
	return min(max(next, clock.Sub(held.Since)), turns, mostAside)
}

// died holds the lane of a job that has died, if too many have.
func (l *loop) died(a *attempt, f *storage.Finish, lane storage.Lane) {
	switch f.Reason {
	case storage.ReasonPermanent: // which is an answer
		l.served(a, lane, time.Now())
	case storage.ReasonExhausted, storage.ReasonDecode, storage.ReasonSnoozed:
		v := a.verdict
		v.after = 0
		l.renew(a, storage.HoldUnavailable, &v, mostOutage)
	}
	switch f.Reason {
	case storage.ReasonPermanent, storage.ReasonExhausted, storage.ReasonDecode:
	default:
		return
	}
	if a.batch != nil && a.batch.done {
		return
	}
	most := l.cfg.maxDeaths(lane.Queue)
	if l.ready.holds.ownHold(lane, storage.HoldBrake) != nil {
		l.renew(a, storage.HoldBrake, &a.verdict, mostBrake)
		return
	}
	if most < 0 || a.job.Redriven || l.cfg.lacking("Hold") != nil {
		return
	}
	s := l.outcomes.streaks.of(lane)
	if s.deaths++; s.deaths > most {
		l.cfg.Logger.Error("errand: too many jobs died one after the other, jobs are held", "queue", lane.Queue, "kind", lane.Kind,
			"deaths", s.deaths, "error", shorten(f.Error, maxLogged))
		l.hold(lane, storage.HoldBrake, f.Error, leastOutage)
	}
}

// heldElsewhere notes when a lane that somebody else holds was first seen to be: what
// runs here may have begun before.
func (l *loop) heldElsewhere(lane storage.Lane, reason string) {
	if reason != storage.HoldUnavailable || l.ready.holds.ownHold(lane, reason) == nil {
		return
	}
	if s := l.outcomes.streaks.of(lane); s.heldAt.IsZero() {
		s.heldAt = time.Now()
	}
}

// releasedElsewhere begins the streak of a lane anew whose hold somebody else has
// released: its end is news of the other side, or the wish of an operator.
func (l *loop) releasedElsewhere(lane storage.Lane, reason string) {
	s := l.outcomes.streaks[lane]
	switch {
	case s == nil:
	case reason == storage.HoldBrake:
		s.deaths = 0
	default:
		s.heldAt = time.Now()
		s.reached(time.Time{}, time.Now())
	}
	if s != nil && s.over(time.Now()) {
		delete(l.outcomes.streaks, lane)
	}
}

// maxDeaths returns how many jobs of a lane may die one after the other; negative: any
// number.
func (c *Config) maxDeaths(queue string) int {
	if n := c.settings(queue).MaxDeaths; n != 0 {
		return n
	}
	return c.MaxDeaths
}

// unavailable ends an attempt that could not reach the other side. The job waits
// with its lane, and spends nothing, unless the store knows that others were more
// successful.
func (c *Config) unavailable(f storage.Finish, job *storage.Leased, v verdict, took time.Duration, now time.Time) storage.Finish {
	if v.spares {
		f.Outcome, f.DueAt, f.Error = storage.OutcomeUnavailable, now, v.text
		return f
	}
	v.class = policy.Retryable
	if c.outlasts(job, now) {
		return c.tooLong(f, job, v, took, now)
	}
	spent := c.failure(f, job, v, took, now)
	f.Outcome, f.DueAt, f.Error, f.Spent = storage.OutcomeUnavailable, now, v.text, &spent
	if job.Attempt > 1 {
		f.Since = job.Previous
	}
	return f
}

// outlasts reports whether a job has waited for as long as it may.
func (c *Config) outlasts(job *storage.Leased, now time.Time) bool {
	h, _ := c.handler(job.Queue, job.Kind)
	age, most := now.Sub(job.CreatedAt), h.MaxUnavailable
	return most > 0 && age > most && age < oldestJob && !job.Redriven && c.Clock.Plausible()
}

// tooLong ends a job that has waited for longer.
func (c *Config) tooLong(f storage.Finish, job *storage.Leased, v verdict, took time.Duration, now time.Time) storage.Finish {
	f.Failure = c.failure(f, job, v, took, now).Failure
	return dead(f, job, c.effectiveAfter(job, &v), storage.ReasonUnavailable, v.text)
}

const unreached = "errand: attempt could not reach the other side"

// spent logs an attempt that has spent a retry though it could not reach the other
// side.
func (r *reports) spent(f *outcome) {
	if f.Spent.Outcome == storage.OutcomeDead {
		r.dead(f.job, f.Spent)
		return
	}
	r.job(slog.LevelInfo, attemptFailed, f.job, f.Error, "due", f.Spent.DueAt)
}
