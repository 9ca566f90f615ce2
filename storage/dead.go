package storage

import "time"

// Reason is why a job is dead.
type Reason string

// The reasons.
const (
	ReasonExhausted Reason = "exhausted" // no retry left
	ReasonPermanent Reason = "permanent" // the handler said so
	ReasonCrashed   Reason = "crashed"   // its process died too often
	ReasonSnoozed   Reason = "snoozed"   // snoozed too often
	ReasonDecode    Reason = "decode"    // no retry left, and the args did not decode
)

// DeadFilter chooses dead jobs. Fields that are zero choose all; the others
// must all match.
type DeadFilter struct {
	Queue  string
	Kind   string
	Reason Reason
	// DiedFrom and DiedBefore bound the time of death, the former included.
	DiedFrom   time.Time
	DiedBefore time.Time
	// Error must occur in the last error, without regard to ASCII case.
	Error string
}

// Position is a place in the list of dead jobs. The zero Position is before
// the first.
type Position struct {
	DiedAt time.Time
	Key    int64
}

// DeadSelection is what a redrive or a purge is about: the jobs named by IDs,
// or, if there are none, those that match Filter and come after After, the
// earliest death first.
type DeadSelection struct {
	IDs    []ID
	Filter DeadFilter
	After  Position
}

// DeadStep is what one step of a redrive or purge did. A step over a filter
// holds the writer for a bounded time and may leave jobs to later steps: call
// again with After set to Next, and with Filter.DiedBefore set so that a job
// that dies again meanwhile is not met twice, until Next is zero.
type DeadStep struct {
	// N is how many jobs were put back or deleted.
	N int
	// Duplicates stayed dead because another job holds their unique key.
	Duplicates []ID
	// NotFound are those of IDs that are not dead.
	NotFound []ID
	Next     Position
}
