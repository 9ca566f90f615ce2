package storage

import "time"

// Filter chooses jobs. Fields that are zero choose all; the others must all
// match.
type Filter struct {
	Queue  string
	Kind   string
	Reason Reason // of dead jobs
	// EndedFrom and EndedBefore bound the time when a job ended, the former
	// included. A dead job ended when it died.
	EndedFrom   time.Time
	EndedBefore time.Time
	// Error must occur in the last error, without regard to ASCII case.
	Error string
}

// Position is a place in a list of jobs. The zero Position is before the first.
type Position struct {
	At  time.Time // that the list goes by; of dead jobs when they ended
	Key int64     // among jobs of one time
}

// Selection is what a change of many jobs is about: the jobs named by IDs, or, if
// there are none, those that match Filter and come after After, the earliest
// first.
type Selection struct {
	IDs    []ID
	Filter Filter
	After  Position
}

// Step is what one step of a change of many jobs did. A step over a filter
// holds the writer for a bounded time and may leave jobs to later steps: call
// again with After set to Next, and with Filter.EndedBefore set so that a job
// that dies again meanwhile is not met twice, until Next is zero.
type Step struct {
	// N is how many jobs were put back or deleted.
	N int
	// Duplicates stayed dead because another job holds their unique key.
	Duplicates []ID
	// NotFound are those of IDs that are not dead.
	NotFound []ID
	Next     Position
}
