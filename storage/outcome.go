package storage

import "fmt"

// Outcome says how a lease ended. What each does to the job is its [Effect].
type Outcome uint8

// The outcomes.
const (
	// OutcomeDone is success.
	OutcomeDone Outcome = iota + 1
	// OutcomeCancelled is the end of a job that somebody has given up.
	OutcomeCancelled
	// OutcomeRetry is a failure that is tried again.
	OutcomeRetry
	// OutcomeSnooze is the wish of a handler to be called later.
	OutcomeSnooze
	// OutcomeCrashed is the death of the process while the handler ran.
	OutcomeCrashed
	// OutcomeInterrupted is an attempt that was cut off and is not to blame.
	OutcomeInterrupted
	// OutcomeReturned is a lease whose handler was not called.
	OutcomeReturned
	// OutcomeDead is a failure that is not tried again. The job keeps Reason,
	// Error and Policy.
	OutcomeDead
	// OutcomeUnavailable is an attempt that could not reach the other side. It costs the
	// job nothing if nobody has reached it meanwhile: see [Finish].
	OutcomeUnavailable
)

// Effect is what an outcome does to a job.
type Effect struct {
	// State is where the job goes: Done, Cancelled or Dead. Ready means that it
	// is put back: ready if DueAt is not after now, else scheduled.
	State State
	// Add is added to the counters of the job.
	Add Counters
	// KeepCrashes: the crashes so far are kept. Every other outcome sets them to
	// zero first.
	KeepCrashes bool
	// KeepPlace: a job that is put back without a DueAt keeps its old due time,
	// and is ready. With every other outcome it is due now.
	KeepPlace bool
}

var effects = [...]Effect{
	OutcomeDone:        {State: Done},
	OutcomeCancelled:   {State: Cancelled},
	OutcomeRetry:       {State: Ready, Add: Counters{Retry: 1}},
	OutcomeSnooze:      {State: Ready, Add: Counters{Snoozes: 1}},
	OutcomeCrashed:     {State: Ready, Add: Counters{Crashes: 1}, KeepCrashes: true},
	OutcomeInterrupted: {State: Ready, KeepCrashes: true},
	OutcomeReturned:    {State: Ready, Add: Counters{Attempt: -1}, KeepCrashes: true, KeepPlace: true},
	OutcomeDead:        {State: Dead},
	OutcomeUnavailable: {State: Ready},
}

// Effect returns what f does to its job. It is the zero Effect if f makes no sense: for
// an outcome that there is not, and for OutcomeDead without a Reason. asked says that the
// job was asked to stop: OutcomeCancelled then takes the place of an outcome that would
// put it back. A lease whose handler was not called is still no attempt.
//
// The effect of OutcomeDead depends on the Reason. ReasonCrashed keeps the crashes. With
// a Failure it counts one more; without, the last one is counted already, and the lease
// is no attempt, as the handler was not called. ReasonSnoozed counts one more snooze.
func (f *Finish) Effect(asked bool) Effect {
	if int(f.Outcome) >= len(effects) || f.Outcome == OutcomeDead && f.Reason == "" {
		return Effect{}
	}
	e := effects[f.Outcome]
	switch {
	case asked && e.State == Ready:
		return Effect{State: Cancelled, Add: Counters{Attempt: e.Add.Attempt}}
	case f.Outcome != OutcomeDead:
	case f.Reason == ReasonCrashed:
		e.KeepCrashes, e.Add.Attempt = true, -1
		if f.Failure != nil {
			e.Add = Counters{Crashes: 1}
		}
	case f.Reason == ReasonSnoozed:
		e.Add.Snoozes = 1
	}
	return e
}

// Counters returns what the effect makes of c.
func (e Effect) Counters(c Counters) Counters {
	if !e.KeepCrashes {
		c.Crashes = 0
	}
	return Counters{
		Attempt: c.Attempt + e.Add.Attempt, Retry: c.Retry + e.Add.Retry,
		Crashes: c.Crashes + e.Add.Crashes, Snoozes: c.Snoozes + e.Add.Snoozes,
	}
}

// String returns the outcome in one word.
func (o Outcome) String() string {
	names := [...]string{"none", "done", "cancelled", "retry", "snooze", "crashed", "interrupted", "returned", "dead", "unavailable"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}
