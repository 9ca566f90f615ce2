package sim

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// place is where a job must be.
type place struct {
	states []storage.State // any of them; Ready stands for Scheduled too
	storage.Counters
	reason    storage.Reason
	failures  int
	token     int64
	mayBeGone bool
	mustBe    bool // gone
}

func (p place) is(s storage.State) bool { return slices.Contains(p.states, s) }

// live reports whether a job is not at its end, for all that is known.
func (p place) live() bool { return !p.mustBe && (p.is(storage.Ready) || p.is(storage.Running)) }

// follow goes through what happened to a job, and finds what cannot be.
type follow struct {
	w *world
	j *job
	place
	state    storage.State
	redrives int  // not used up
	askedFor bool // for certain asked to stop under the last lease
	mayAsked bool
	floor    due
	endedAt  time.Time
	endedIn  int64 // the commit before it
	keep     time.Duration
}

// due is before when a job must not start.
type due struct {
	at       time.Time
	relative bool      // a delay
	set      time.Time // when that began
	begin    int64     // the call that set it
}

// place returns where a job must be after all that was taken down. It is for
// moments when no call of the store is under way.
func (w *world) place(j *job) place {
	f := follow{w: w, j: j, state: storage.Ready, redrives: len(j.redrives)}
	f.floor = due{at: j.DueAt, begin: j.begin}
	if j.Delay > 0 {
		f.floor = due{at: j.now.Add(j.Delay), relative: true, set: j.now, begin: j.begin}
	}
	for i, l := range j.leases {
		var before *lease
		if i > 0 {
			before = j.leases[i-1]
		}
		f.lease(before, l)
		if l.finish != nil {
			f.finish(l)
		}
	}
	return f.end()
}

func (f *follow) lease(before, l *lease) {
	w, key := f.w, l.Key
	held := before != nil && before.finish == nil
	f.token = l.Token
	if l.taken != nil {
		switch {
		case !held:
			w.fault("token %d was taken from job %d, on which there was no lease", l.Token, key)
		case before.life == l.life:
			w.fault("a lease on job %d was taken from a holder that lives", key)
		case l.taken.Fate != w.fate(before, l):
			w.fault("the fate of job %d is %d, want %d", key, l.taken.Fate, w.fate(before, l))
		}
	} else {
		if held {
			w.fault("job %d was leased with token %d while token %d is held", key, l.Token, before.Token)
		}
		f.again(l)
		f.Attempt++
		f.onTime(l)
	}
	if f.Counters != l.Counters {
		w.fault("job %d is leased with %+v, want %+v", key, l.Counters, f.Counters)
		f.Counters = l.Counters
	}
	f.state = storage.Running
}

// again checks that a job could be leased.
func (f *follow) again(l *lease) {
	w, key := f.w, l.Key
	switch {
	case f.state == storage.Ready:
	case f.state == storage.Dead && (f.redrives > 0 || f.j.mayRedrive > 0):
		if f.redrives > 0 {
			f.redrives--
		}
		f.redriven()
	case f.state == storage.Cancelled && f.mayAsked && !f.askedFor:
	default:
		w.fault("job %d was leased, and is %s", key, f.state)
	}
	for _, c := range f.j.cancels {
		if c.end < l.begin && (c.state == storage.Cancelled || c.state == storage.Running && len(f.j.redrives) == 0 && f.j.mayRedrive == 0) {
			w.fault("job %d was leased after it was cancelled", key)
		}
	}
}

func (f *follow) redriven() {
	f.Retry, f.Crashes, f.Snoozes, f.floor = 0, 0, 0, due{}
	f.state = storage.Ready
}

// onTime checks that a lease comes no earlier than what was asked for.
func (f *follow) onTime(l *lease) {
	at := f.floor.at
	if f.floor.relative {
		for _, s := range f.w.stepsBack {
			if t := s.now.Add(f.floor.at.Sub(f.floor.set)); s.end > f.floor.begin && t.Before(at) {
				at = t
			}
		}
		at = at.Add(-2 * time.Microsecond) // that are lost on the way
	}
	if t := f.w.hurried(f.j, f.floor, f.Attempt, l); t.Before(f.floor.at) && t.Before(at) {
		at = t
	}
	// What was due before the clock was set back is ready, and stays so.
	was := slices.ContainsFunc(f.w.peaks, func(s step) bool {
		return s.end > f.floor.begin && s.end < l.end && !s.now.Before(at)
	})
	if l.now.Before(at) && !was {
		f.w.fault("job %d was leased at %v, %v before it is due", l.Key, l.now, at.Sub(l.now))
	}
}

// fate returns what a reclaimer must find out about a lease. A power cut in
// between takes the notes that tell.
func (w *world) fate(of, by *lease) storage.Fate {
	cut := slices.ContainsFunc(w.powerCuts, func(life int) bool { return life >= of.life.number && life < by.life.number })
	switch {
	case of.taken != nil:
		return of.taken.Fate
	case cut || of.notedEnd:
		return storage.Cut
	case of.noted:
		return storage.Crashed
	}
	return storage.Unstarted
}

// finish does what an outcome does.
func (f *follow) finish(l *lease) {
	f.w.judge(l)
	o := l.finish
	if o.Failure != nil {
		f.failures++
	}
	e := o.Effect(false)
	f.Counters, f.state, f.reason = e.Counters(f.Counters), e.State, o.Reason
	f.endedAt, f.endedIn, f.keep = l.finished, l.finBegin, l.keep
	if !o.DueAt.IsZero() {
		f.floor = due{at: o.DueAt, relative: true, set: l.finished, begin: l.finBegin}
	} else if !e.KeepPlace {
		f.floor = due{}
	}
	f.mayAsked, f.askedFor = false, false
	if f.state != storage.Ready {
		return
	}
	// A wish to stop takes the place of what would put the job back.
	for _, c := range f.j.cancels {
		if c.state == storage.Running && c.begin < l.finEnd && c.end > l.begin {
			f.mayAsked = true
			f.askedFor = f.askedFor || c.begin > l.end && c.end < l.finBegin || f.lastAsked(l, c)
		}
	}
	// A wish outlives the holder that it was meant for.
	if l.taken != nil && l.taken.Cancelling && f.w.wasCancelled(l.Key) {
		f.mayAsked, f.askedFor = true, true
	}
	if f.mayAsked {
		f.state = storage.Cancelled
	}
}

// lastAsked reports whether a wish that met a running job can only have been about
// this lease: the job had no other when the wish began, nor afterwards.
func (f *follow) lastAsked(l *lease, c change) bool {
	all := f.j.leases
	i := len(all) - 1
	if all[i] != l {
		return false
	}
	for i > 0 && all[i].taken != nil { // from a holder under whom it ran as well
		i--
	}
	return i == 0 || all[i-1].finEnd < c.begin
}

// end returns where the job is after its last lease.
func (f *follow) end() place {
	p := &f.place
	p.states = []storage.State{f.state}
	switch f.state {
	case storage.Ready:
		for _, c := range f.j.cancels {
			if c.state == storage.Cancelled {
				// Cancelled jobs were leased before for the last time.
				p.states = []storage.State{storage.Cancelled}
				f.state, f.endedAt, f.keep = storage.Cancelled, time.Time{}, f.w.retention
			}
		}
	case storage.Cancelled:
		if f.mayAsked && !f.askedFor {
			p.states = append(p.states, storage.Ready)
			for _, c := range f.j.cancels {
				if c.state == storage.Cancelled {
					p.states = []storage.State{storage.Cancelled}
				}
			}
		}
	case storage.Dead:
		if f.redrives > 0 {
			f.redriven()
			p.states = []storage.State{storage.Ready}
			for _, c := range f.j.cancels {
				if c.state == storage.Cancelled {
					p.states = []storage.State{storage.Cancelled}
					f.endedAt, f.keep = time.Time{}, f.w.retention
				}
			}
			f.state = p.states[0]
		} else if f.j.mayRedrive > 0 {
			p.states = append(p.states, storage.Ready, storage.Cancelled)
			p.mayBeGone = f.w.retention <= 0 || len(f.j.cancels) > 0
		}
		p.mayBeGone = p.mayBeGone || f.j.mayPurge || f.j.purged
		p.mustBe = f.j.purged && len(p.states) == 1 && f.state == storage.Dead && len(f.j.redrives) == 0
	}
	if f.state == storage.Done || f.state == storage.Cancelled {
		p.mayBeGone = f.keep <= 0 || !f.w.purgedTo.Before(f.w.movedTo(f.endedAt, f.endedIn).Add(f.keep-time.Microsecond))
		p.mustBe = f.keep <= 0 && len(p.states) == 1
	}
	return *p
}

// movedTo returns the earliest time to which steps of the clock may have moved one that was written
// after a commit.
func (w *world) movedTo(at time.Time, after int64) time.Time {
	for _, s := range w.stepsBack {
		if s.end > after && s.now.Before(at) {
			at = s.now
		}
	}
	return at
}

// judge checks that an outcome is what the handler's verdict and the policy
// make of it.
func (w *world) judge(l *lease) {
	if l.judged {
		return
	}
	l.judged = true
	o := l.finish
	retry := w.delays(l)
	exhausted := l.Retry >= len(retry)
	ok := false
	switch {
	case o.Outcome == storage.OutcomeCancelled && w.wasCancelled(l.Key):
		ok = true
	case l.taken != nil && l.taken.Fate == storage.Unstarted:
		ok = o.Outcome == storage.OutcomeReturned && o.DueAt.IsZero()
	case l.taken != nil && l.taken.Fate == storage.Cut:
		ok = o.Outcome == storage.OutcomeInterrupted
	case l.taken != nil:
		mayDie := l.Crashes+1 >= w.worker.MaxCrashes || len(retry) == 0
		// A worker that does not handle the kind leaves it to those that do.
		mustDie := mayDie && (l.Kind != parcel{}.Kind() || !l.life.partly.Load())
		ok = mayDie && o.Outcome == storage.OutcomeDead && o.Reason == storage.ReasonCrashed ||
			!mustDie && o.Outcome == storage.OutcomeCrashed && o.DueAt.Sub(l.finished) <= time.Second
	case !l.called:
		ok = o.Outcome == storage.OutcomeReturned ||
			o.Outcome == storage.OutcomeDead && o.Reason == storage.ReasonCrashed && l.Crashes > 0 &&
				(l.Crashes >= w.worker.MaxCrashes || len(retry) == 0)
	case l.got == nil:
		w.fault("outcome %d of job %d was written before its handler returned", o.Outcome, l.Key)
		return
	default:
		ok = w.fits(l, retry, exhausted)
	}
	if !ok {
		w.fault("outcome %+v of job %d (%+v), which %+v, taken %+v", *o, l.Key, l.Counters, l.got, l.taken)
	}
}

// wasCancelled reports whether somebody has asked a running job to stop.
func (w *world) wasCancelled(key int64) bool {
	j := w.jobs[key]
	return j != nil && slices.ContainsFunc(j.cancels, func(c change) bool { return c.state == storage.Running })
}

func (w *world) fits(l *lease, retry []time.Duration, exhausted bool) bool {
	o, v := l.finish, l.got
	lost := errors.Is(v.cause, errand.ErrLeaseLost)
	stopped := lost || errors.Is(v.cause, errand.ErrShutdown)
	if o.Outcome == storage.OutcomeInterrupted { // by a stop, or a lease that could not be extended
		if l.life.full.Load() && v.manner != cancelsItself { // or for want of room for the outcome
			return true
		}
		if lost && !l.life.troubled.Load() {
			return false
		}
		switch v.manner {
		case succeeds:
			return lost
		case panics, exits:
			return stopped || v.stopping
		case fails, asksLater, isPermanent:
			return v.cause != nil || v.stopping
		case snoozes:
			return v.cause != nil || v.stopping && l.Snoozes >= w.worker.MaxSnoozes
		}
		return v.cause != nil
	}
	if stopped && (v.why != nil || lost) {
		return false
	}
	delay := time.Duration(0)
	if !exhausted {
		delay = retry[l.Retry]
	}
	most := delay
	switch v.manner {
	case succeeds:
		return o.Outcome == storage.OutcomeDone
	case cancelsItself:
		return o.Outcome == storage.OutcomeCancelled
	case isPermanent:
		return o.Outcome == storage.OutcomeDead && o.Reason == storage.ReasonPermanent && o.Failure != nil
	case snoozes:
		if l.Snoozes >= w.worker.MaxSnoozes {
			return o.Outcome == storage.OutcomeDead && o.Reason == storage.ReasonSnoozed
		}
		delay = max(v.after, 100*time.Millisecond)
		return o.Outcome == storage.OutcomeSnooze && w.inTime(l, delay, delay)
	case waits:
		if v.why == nil {
			return o.Outcome == storage.OutcomeDone
		}
	case asksLater:
		delay = max(delay, v.after)
		most = max(most, v.after+v.after/10+1)
	}
	if exhausted {
		return o.Outcome == storage.OutcomeDead && o.Reason == storage.ReasonExhausted && o.Failure != nil
	}
	return o.Outcome == storage.OutcomeRetry && o.Failure != nil && w.inTime(l, delay, most)
}

// inTime checks the delay until the next attempt, by a clock that was not set
// back since the handler returned.
func (w *world) inTime(l *lease, least, most time.Duration) bool {
	o, v := l.finish, l.got
	if v.losses != l.finLosses {
		return true
	}
	return o.DueAt.Sub(l.finished) <= most && (v.at.IsZero() || o.DueAt.Sub(v.at) >= least)
}

// policies are those of jobs, with the delays that they mean, written down here
// and not asked for. The first is that of Options, the second of queue bulk.
var policies = []struct {
	policy.Policy
	delays []time.Duration
}{
	{policy.Policy{MinDelay: time.Second, MaxDelay: 20 * time.Second, Retries: 3, NoDelayRetries: 1, MinDelayRetries: 1, MaxDelayRetries: 1, Jitter: policy.NoJitter},
		[]time.Duration{0, time.Second, 20 * time.Second}},
	{policy.Policy{MinDelay: 3 * time.Second, MaxDelay: 7 * time.Second, Retries: 3, MinDelayRetries: 2, MaxDelayRetries: 1, Jitter: policy.NoJitter},
		[]time.Duration{3 * time.Second, 3 * time.Second, 7 * time.Second}},
	{policy.Policy{}, nil},
	{policy.Policy{MinDelay: time.Second, MaxDelay: 9 * time.Second, Retries: 5, NoDelayRetries: 2, MaxDelayRetries: 3, Jitter: policy.NoJitter},
		[]time.Duration{0, 0, 9 * time.Second, 9 * time.Second, 9 * time.Second}},
}

// delays returns those of a job, and whether every worker knows them.
func (w *world) delays(l *lease) []time.Duration {
	j := w.jobs[l.Key]
	switch {
	case j != nil && j.Policy != nil:
		for _, p := range policies {
			if text, _ := json.Marshal(p.Policy.Delivery().Document); string(text) == string(j.Policy) {
				return p.delays
			}
		}
		w.fault("job %d has policy %s, which nobody gave it", l.Key, j.Policy)
	case l.Queue == "bulk":
		return policies[1].delays
	}
	return policies[0].delays
}

func number(args []byte) int {
	var a struct{ N int }
	_ = json.Unmarshal(args, &a) // a zero will not do
	return a.N
}
