package storage

import (
	"fmt"
	"slices"
	"time"
)

// Filter chooses jobs. Fields that are zero choose all; the others must all
// match. Reason and Cause match only dead jobs, EndedFrom and EndedBefore no live
// job, DueFrom and DueBefore only scheduled, ready and blocked ones.
type Filter struct {
	States []State // one of these
	Queue  string
	Kind   string
	// Group is that of a job, a group of Queue, which must be set too. Only Jobs takes it:
	// Redrive, RunNow, Change and Delete refuse a Filter with a Group, and do nothing.
	Group string
	Tag   string // one of the job's
	// CreatedFrom and CreatedBefore bound the time when a job was enqueued, the
	// former included, DueFrom and DueBefore that when it is due.
	CreatedFrom   time.Time
	CreatedBefore time.Time
	DueFrom       time.Time
	DueBefore     time.Time
	Reason        Reason
	Cause         int64 // the ID of a [Cause]
	// EndedFrom and EndedBefore bound the time when a job ended, the former
	// included. A dead job ended when it died.
	EndedFrom   time.Time
	EndedBefore time.Time
	// Error must occur in the last error, without regard to ASCII case.
	Error string
}

// Has reports whether jobs in a state can match f, as far as States and the fields
// that match only jobs in some states are concerned.
func (f *Filter) Has(s State) bool {
	waits := s == Scheduled || s == Ready || s == Blocked
	switch {
	case len(f.States) > 0 && !slices.Contains(f.States, s):
	case (f.Reason != "" || f.Cause != 0) && s != Dead:
	case (!f.EndedFrom.IsZero() || !f.EndedBefore.IsZero()) && (waits || s == Running):
	case (!f.DueFrom.IsZero() || !f.DueBefore.IsZero()) && !waits:
	default:
		return true
	}
	return false
}

// Position is a place among the jobs that a change of many goes over. The zero
// Position is before the first.
type Position struct {
	At  time.Time // that the change goes by; of dead jobs when they ended, of live ones zero
	Key int64     // among jobs of one time
}

// Selection is what a change of many jobs is about: the jobs named by IDs, or, if
// there are none, those that match Filter and come after After, the earliest
// first.
type Selection struct {
	IDs    []ID
	Filter Filter
	After  Position
	// Through is the highest key of the live or finished jobs that Filter selects. If
	// zero, the highest that a live job, or a finished one, has at the time of the call.
	Through int64
	// Limit is how many live jobs that Filter selects one step changes at most.
	// If zero, as many as a step can.
	Limit int
	// Doubtful is that of a [NewJob], for windows that begin anew.
	Doubtful bool
}

// Check returns an error if s selects jobs by what only a list takes.
func (s *Selection) Check() error {
	if len(s.IDs) == 0 && s.Filter.Group != "" {
		return fmt.Errorf("errand: group %q in the filter of a change: only a list takes it", s.Filter.Group)
	}
	return nil
}

// Waiting says which scheduled jobs RunNow makes ready: those that have run before,
// and all that are named by IDs.
type Waiting struct {
	// First takes jobs that have not run yet too.
	First bool
	// Failed leaves out jobs that have run, unless their last attempt is the last of
	// their history and has no RetryAfter there, or its Error is kept as that of an
	// OutcomeUnavailable. Jobs whose last attempt crashed are left out too.
	Failed bool
}

// Step is what one step of a change of many jobs did. A step over a filter
// holds the writer for a bounded time and may leave jobs to later steps: call
// again with After set to Next, and with Filter.EndedBefore set so that a job
// that dies again meanwhile is not met twice, until Next is zero.
type Step struct {
	// N is how many jobs were put back, deleted, made ready, changed or cancelled.
	N int
	// Duplicates stayed dead because another job holds their unique key.
	Duplicates []ID
	// NotFound are those of IDs that there are none of, or whose state the call is not
	// about.
	NotFound []ID
	// Live are the jobs that stay as they are: those that run of Change, which has asked
	// them to stop if Edit.Cancel is set, and of Delete those of IDs that are live.
	Live []ID
	Next Position
	// Through is that of the Selection, or what stood for zero. Further steps of
	// RunNow, Change and Delete are given it, so that they leave out jobs that come
	// meanwhile.
	Through int64
}
