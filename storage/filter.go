package storage

import (
	"slices"
	"time"
)

// BulkQueue is the queue of the jobs that change many others. It is apart from all queues
// of an application:
//
//   - A Filter chooses its jobs only if it has the Queue or a Kind.
//   - Caps and SettingMinFree keep none of its jobs out.
//   - Settings of its jobs are those of the queue and of a kind in it. Those of a kind in
//     all queues and of the database are for others.
//   - When a job comes to it, that is an [Event] with Schedules.
const BulkQueue = "errand.bulk"

// Filter chooses jobs. Fields that are zero choose all; the others must all match. Reason
// and Cause match only dead jobs, EndedFrom and EndedBefore only ended ones, DueFrom and
// DueBefore only scheduled, ready and blocked ones.
type Filter struct {
	States []State `json:"states,omitempty"` // one of these
	Queue  string  `json:"queue,omitempty"`
	Kind   string  `json:"kind,omitempty"`
	// Group is the group of the jobs in Queue, which must be set too.
	Group string `json:"group,omitempty"`
	Tag   string `json:"tag,omitempty"` // one of the job's
	// CreatedFrom and CreatedBefore bound the time when a job was enqueued, the
	// former included, DueFrom and DueBefore that when it is due.
	CreatedFrom   time.Time `json:"created_from,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
	DueFrom       time.Time `json:"due_from,omitzero"`
	DueBefore     time.Time `json:"due_before,omitzero"`
	Reason        Reason    `json:"reason,omitempty"`
	Cause         int64     `json:"cause,omitempty"` // the ID of a [Cause]
	// EndedFrom and EndedBefore bound the time when a job ended, the former
	// included. A dead job ended when it died.
	EndedFrom   time.Time `json:"ended_from,omitzero"`
	EndedBefore time.Time `json:"ended_before,omitzero"`
	// Error must occur in the last error, without regard to ASCII case.
	Error string `json:"error,omitempty"`
	// Args chooses nothing: it has the jobs of a [Page] come with their args. If MaxArgs is not
	// zero, args of more bytes are left out, and Record.ArgsBytes says how many these have.
	Args    bool  `json:"-"`
	MaxArgs int64 `json:"-"`
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

// Reaches reports whether f can choose jobs of a queue, if that is [BulkQueue].
func (f *Filter) Reaches(queue string) bool {
	return queue != BulkQueue || f.Queue != "" || f.Kind != ""
}

// Position is a place among the jobs that a change of many goes over. The zero
// Position is before the first.
type Position struct {
	At  time.Time // that the change goes by; of dead jobs when they ended, of live ones and those of a Group zero
	Key int64     // among jobs of one time
}

// Selection is what a change of many jobs is about: the jobs named by IDs, or, if
// there are none, those that match Filter and come after After, the earliest
// first. Dead jobs of a Group are in the order of keys.
type Selection struct {
	IDs    []ID
	Filter Filter
	After  Position
	// Through is the highest key of the live or finished jobs that Filter selects. If
	// zero, the highest that a live job, or a finished one, has at the time of the call.
	Through int64
	// Limit is the most jobs selected by Filter that one step changes. If zero, a step
	// changes as many as it can.
	Limit int
	// Doubtful is as in [NewJob], for windows that begin anew.
	Doubtful bool
	// FromStart drops the checkpoints of the jobs that are redriven.
	FromStart bool
	// Edit, if not nil, changes the jobs that are redriven, as Change does and in the transaction
	// that puts them back. A job that stays dead stays as it is. Of Edit only Priority, Policy
	// and Args may be set.
	Edit *Edit
	// Under, if not nil, is the lease of the job that the step is a part of.
	Under *Under
}

// Under ties a step to the lease of a job. A step under a lease that the Store does not hold, or
// of a job that was cancelled, does nothing, and Step.Refused says why.
type Under struct {
	Lease
	// Place, if not nil, returns what the step keeps of the job as Checkpoint does, in the same
	// transaction; without Data that is nothing. A step that is several transactions calls it in
	// each, with what was done so far and the Next after that. It must not call the Store.
	Place func(*Step) Checkpoint
}

// Waiting says which scheduled jobs RunNow makes ready: those that have run before,
// and all that are named by IDs.
type Waiting struct {
	// First takes jobs that have not run yet too.
	First bool
	// Failed takes, of the jobs that have run, only those whose last attempt failed: it
	// is the last of their history, without RetryAfter, or an OutcomeUnavailable whose
	// Error is kept. Jobs whose last attempt crashed are left out.
	Failed bool
}

// Step is what one step of a change of many jobs did. A step over a filter holds the
// writer for a bounded time and may leave jobs to later steps: call again with After set
// to Next, until Next is zero. Set Filter.EndedBefore, so that a job that dies again
// meanwhile is not met twice. If a call returns a Step beside an error, what the Step says was done
// before: a Store may make a step in parts if the disk has no room for all of it.
type Step struct {
	// N is how many jobs were put back, deleted, made ready, changed or cancelled.
	N int
	// Duplicates stayed dead because another job holds their unique key.
	Duplicates []ID
	// NotFound are the IDs of jobs that are not there, or in a state that the call is not
	// for.
	NotFound []ID
	// Live are the jobs that stay as they are. Of Change these are the running ones,
	// which were asked to stop if Edit.Cancel is set; of Delete, the live ones of IDs.
	Live []ID
	Next Position
	// Taken is how many jobs the step was about, whatever became of them. Of IDs these are the
	// first.
	Taken int
	// Refused is what became of the lease of Selection.Under. If it is not [Applied], nothing was
	// done.
	Refused ItemResult
	// Through is the Through of the Selection, or what stood for zero. Pass it to further
	// steps of RunNow, Change and Delete: they leave out jobs that come meanwhile.
	Through int64
}
