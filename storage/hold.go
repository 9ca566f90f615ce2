package storage

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// The reasons of the holds that errand begins itself.
const (
	// HoldPaused holds a queue that is paused.
	HoldPaused = "paused"
	// HoldUnavailable holds a lane whose other side cannot be reached.
	HoldUnavailable = "unavailable"
	// HoldBrake holds a lane whose jobs die one after the other.
	HoldBrake = "brake"
)

// Holder is the part of a [Store] that stops and resumes leasing.
type Holder interface {
	// Hold stops leasing from a lane, also one that has no job yet, until the hold is
	// over or released. Running jobs go on. A lane may have holds of several reasons: as
	// long as one of them is in force no job of the lane is leased, by an Exchange or to
	// an [Offer]. The exceptions are urgent jobs, and what a Probe lets through. A hold
	// takes the place of the one with the same lane and reason; if that was in force, its
	// Since and Through stay.
	Hold(ctx context.Context, now time.Time, h Hold) error

	// Release ends the hold of just this lane for this reason. It reports whether
	// there was one in force.
	Release(ctx context.Context, now time.Time, lane Lane, reason string) (bool, error)

	// Holds returns the holds in force at now, sorted by queue, kind and reason.
	// The cost does not grow with the number of jobs.
	Holds(ctx context.Context, now time.Time) ([]HoldState, error)
}

// Hold is a hold to begin. Its fields have been validated.
type Hold struct {
	// Lane is what is held. An empty Kind stands for all kinds of the queue, an
	// empty Queue for the kind in all queues. At least one of them is set.
	Lane
	// Reason tells holds of a lane apart. It is not empty.
	Reason string
	// Until is when the hold is over: an Exchange at Until leases again. If the clock
	// is set back less than a day after Until, the hold is in force again. If zero,
	// the hold lasts until it is released.
	Until time.Time
	// For, if positive, is how long after now the hold is over; Until is zero then. With
	// Probe both may be set: Until is the end then, and For is kept as the length.
	For time.Duration
	// Doubtful says that now may be far from the real time, and be corrected soon. The
	// hold is in force until an Exchange that leases decides. One that is Doubtful too
	// ends the hold at its end; any other begins it anew, and For counts from then.
	// Without a For, or with an Until, Doubtful has no effect.
	Doubtful bool
	// By is who holds the lane, and Detail why, for people. Both may be empty.
	By, Detail string
	// Probe keeps the hold in force until it is released. From its end on, the hold lets
	// one job through, the probe: an Exchange leases it, which moves the end to the end
	// of the lease. So one job is let through at a time, in all processes together, and
	// the next one if nobody releases the hold or begins it anew. A probe that still runs
	// at the end does not keep the next one back. Who runs the probe moves the end, with
	// Through, for as long as the probe is waited for. A Reclaim that takes the lease of
	// the last probe moves an end that is later to now. Another hold of the lane may keep
	// probes back. An [Offer] gets none. The Lane of such a hold names a queue and a
	// kind.
	Probe bool
	// Through, if it is not zero, is the lease of a probe. The Hold then takes effect
	// only if a hold with its lane and reason is in force, and that probe is the last one
	// that it has let through. This keeps a late probe from two things: to begin a released
	// hold again, and to move the end of a hold that has let another probe through.
	Through Lease
	// Hanging is how many probes in a row, the last one included, will hang at the end:
	// they run, but are waited for no more. It is kept for who waits for the next one.
	Hanging int
}

// HoldState is a hold in force.
type HoldState struct {
	Lane
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Since is when the hold began.
	Since time.Time `json:"since"`
	// Until is when the hold is over, or with Probe when the next job is let through;
	// zero if it lasts until it is released.
	Until time.Time `json:"until,omitzero"`
	// For is the For of the Hold, rounded up to whole microseconds.
	For time.Duration `json:"-"`
	// Probe is that of the Hold.
	Probe bool `json:"probe,omitempty"`
	// Through is the last job that the hold has let through, while its lease is held;
	// zero from then on.
	Through Through `json:"through,omitzero"`
	// Hanging is that of the Hold.
	Hanging int `json:"hanging,omitempty"`
	// Waiting is how many jobs of the lane are ready or scheduled, and Ready how many of
	// them are ready.
	Waiting int64 `json:"waiting"`
	Ready   int64 `json:"ready"`
}

// Through is a job that a hold has let through.
type Through struct {
	Lease `json:"-"`
	Job   ID        `json:"job"`
	Since time.Time `json:"since"` // when it was leased
}

// Includes reports whether a hold of l holds the jobs of a kind in a queue.
func (l Lane) Includes(queue, kind string) bool {
	return (l.Queue == "" || l.Queue == queue) && (l.Kind == "" || l.Kind == kind)
}

// Touches reports whether a hold of l may hold jobs that w wants.
func (l Lane) Touches(w *Want) bool {
	return (l.Queue == "" || MatchQueue(w.Queues, l.Queue)) && (l.Kind == "" || w.hasKind(l.Queue, l.Kind)) && !w.excepts(l.Queue, l.Kind)
}

// Compare is the order of lanes: by queue, then by kind.
func (l Lane) Compare(o Lane) int {
	return cmp.Or(strings.Compare(l.Queue, o.Queue), strings.Compare(l.Kind, o.Kind))
}
