package storage

import "time"

// Edit is what [Store.Change] does to a job. Its fields have been validated; those
// that are zero leave the job as it is.
type Edit struct {
	// Cancel ends the jobs as cancelled, kept as it says, and asks running ones to stop,
	// as Store.Cancel does. The other fields are zero then. It is not for dead jobs.
	Cancel *Retention `json:"-"`
	// DueAt is when the job is due, or Delay, if positive, how long after now: as in a
	// [NewJob]. A job due at or before now becomes ready, one due later scheduled, and
	// not urgent; a blocked one stays blocked. Its StartWithin and FinishWithin count
	// anew, as of a NewJob. Once it has begun, StartWithin counts no more. Dead jobs
	// cannot be put off: neither is for them.
	DueAt time.Time     `json:"due_at,omitzero"`
	Delay time.Duration `json:"delay_ns,omitempty"`
	// Priority, if not nil, is the new priority. A ready job goes to the place that it would
	// have had with this priority from the start.
	Priority *int `json:"priority,omitempty"`
	// Queue is where the job goes. If its last attempt was an OutcomeUnavailable,
	// successes there count as evidence, see [Finish], from then on. A dead job counts
	// for the cause with the same text there.
	Queue string `json:"queue,omitempty"`
	// Policy, if not nil, takes the place of the job's own; if empty, the job has none. A
	// dead job keeps the policy that was in effect at its end.
	Policy []byte `json:"policy,omitzero"`
	// Args, if not nil, take the place of the job's. If they differ, the old ones are
	// kept in an entry of the history, with PhaseEdited, the time of the call and the
	// attempts so far. The entry is no failure: it is not the last error, and RunNow
	// passes over it. The job has no checkpoint then.
	Args []byte `json:"args,omitzero"`
}

// Reschedules reports whether e changes when a job is due.
func (e *Edit) Reschedules() bool { return !e.DueAt.IsZero() || e.Delay > 0 }

// PhaseEdited is the phase of an entry of the history that is no failure: args were
// replaced.
const PhaseEdited = "edited"
