package storage

import (
	"encoding/json"
	"time"

	"github.com/errandq/errand/internal/seconds"
)

// State is where a job is. A job is in exactly one state.
type State string

// The states of a job. Scheduled, Ready, Running and Blocked are live; Done, Cancelled
// and Expired are finished.
const (
	Scheduled State = "scheduled" // due later: delayed, or waiting for its retry
	Ready     State = "ready"     // due, waiting for a worker
	Running   State = "running"   // leased
	Done      State = "done"
	Cancelled State = "cancelled"
	Expired   State = "expired" // not started in time
	Dead      State = "dead"    // in the dead letters
	Blocked   State = "blocked" // waiting for another job, see [Grouper] and [Conflict]
)

// Reason is why a job is dead.
type Reason string

// The reasons.
const (
	ReasonExhausted Reason = "exhausted" // no retry left
	ReasonPermanent Reason = "permanent" // the handler said so
	ReasonCrashed   Reason = "crashed"   // its process died too often
	ReasonSnoozed   Reason = "snoozed"   // snoozed too often
	ReasonDecode    Reason = "decode"    // no retry left, and the args did not decode

	ReasonExpired  Reason = "expired"  // no attempt had begun in time
	ReasonDeadline Reason = "deadline" // it was too late for another attempt

	// ReasonUnavailable: the other side could not be reached for too long.
	ReasonUnavailable Reason = "unavailable"
)

// UniqueScope says how long a job holds its unique key.
type UniqueScope uint8

const (
	// UniqueLive holds the key until the job is finished or dead.
	UniqueLive UniqueScope = iota
	// UniqueForever holds the key until Store.ReleaseUnique frees it.
	UniqueForever
)

// NewJob is a job to enqueue. Its fields have been validated; Args, Headers
// and Policy are opaque bytes.
type NewJob struct {
	Queue    string
	Kind     string
	Priority int       // higher first
	DueAt    time.Time // zero: at once
	// Delay, if positive, is how long after now the job is due; DueAt is zero then. It makes a
	// difference if the clock turns out to have been wrong, see [Timekeeper].
	Delay   time.Duration
	Args    []byte // not nil
	Headers []byte // nil: none
	Policy  []byte // nil: decided when an attempt fails
	Timeout time.Duration
	// Unique is the unique key; empty means none. Keys are compared as they are, over the whole database.
	Unique      string
	UniqueScope UniqueScope
	// UniqueFor, if positive, holds the key with UniqueLive for that long, whatever
	// becomes of the job. It counts from the enqueue, or from the first due time if that
	// is later. If the clock is set back behind the enqueue of a job that has ended, it
	// begins anew, once, with the next job that has the key or with StepClock, see
	// [Timekeeper]. So it does as a job gets the key that was behind another, if the clock
	// was set back behind its enqueue, unless it waits for a date. A job that is evicted may
	// leave its key earlier, see [WhenFull] and [WhenDeadFull].
	UniqueFor time.Duration
	// Conflict is what becomes of the job if its key is held. If nil, it is not inserted.
	Conflict *Conflict
	Tags     []string // distinct, none of them empty or with a space, and those of at most one Origin, see [FromTags]
	// StartWithin, if positive, is how long after the job's due time its first attempt
	// may begin, and FinishWithin how long after it any attempt may. They set its StartBy
	// and its Deadline, see [ExpiredJob]. If the job is due at or before now, both count
	// from now.
	StartWithin  time.Duration
	FinishWithin time.Duration
	// OnExpire is Dead if the job dies at its StartBy, or Expired if it is finished. If
	// empty, SettingOnExpire of the lane decides; if that is not set, the job is finished.
	OnExpire State
	// Doubtful says that now may be far from the real time, and be corrected soon: then
	// StartWithin and FinishWithin begin anew with the first Exchange that leases, or
	// Promote, that is not Doubtful. A Store that is a [Promoter] may pass over jobs of lanes
	// that match no Want of the Exchange. A job with a DueAt after now is the exception: its
	// windows are dates.
	Doubtful bool
	Group    string // of which the job is a member, see [Grouper]; empty: none
}

// Enqueued is the answer to one NewJob.
type Enqueued struct {
	// ID names the job, or for a duplicate the job that holds the unique key.
	ID ID `json:"id"`
	// Duplicate is true if nothing was inserted.
	Duplicate bool `json:"duplicate,omitempty"`
	// Gone is true if the job that holds the key was deleted since: a key with
	// [UniqueForever] outlives it. So does one with a UniqueFor.
	Gone bool `json:"gone,omitempty"`
	// Replaced is true of a duplicate that has changed the job that ID names, see
	// [Conflict].
	Replaced bool `json:"replaced,omitempty"`
	// Key is the unique key of the job, without its kind; empty if none. Stores leave it empty.
	Key string `json:"key,omitempty"`
	// Unmerged is not nil if the job was refused because of its [Merge], so that it has to
	// be made anew. Package errand does that itself, and never returns one.
	Unmerged *Unmerged `json:"-"`
}

// Counters are the four counters of a job.
type Counters struct {
	Attempt int // runs of the handler, the one under way included
	Retry   int // failures since the job was enqueued or redriven
	Crashes int // crashes in a row
	Snoozes int
}

// Record is all that is known of a job. Fields that do not apply to its state
// are zero.
type Record struct {
	Key      int64
	ID       ID
	Queue    string
	Kind     string
	State    State
	Priority int
	Counters
	CreatedAt time.Time
	DueAt     time.Time
	EndedAt   time.Time // finished or dead
	// StartedAt is when the handler of a running job was called, as Started was told. It is
	// zero for a job that is leased and not started, or if the time is not known.
	StartedAt time.Time
	Timeout   time.Duration
	Unique    string
	// StartBy is the time before which the first attempt has to begin, and Deadline that
	// for any, see [ExpiredJob]; zero if it does not matter. Both are zero once the job
	// has ended.
	StartBy, Deadline time.Time
	OnExpire          State // that of the NewJob or of its lane, if it has had a StartWithin or a FinishWithin
	Group             string
	// Cancelling is true of a running job that was asked to stop.
	Cancelling bool
	Reason     Reason // dead
	Error      string // last error: of the last failure, or of the end
	// Unreached is true of a job that waits if its last attempt ended as an
	// [OutcomeUnavailable].
	Unreached     bool
	Policy        []byte // the job's own; of a dead job the one in effect at its end
	ArgsBytes     int64  // how many bytes Args have if Filter.MaxArgs has left them out
	Args, Headers []byte
	Tags          []string  // sorted; nil: none
	History       []Failure // oldest first, at most HistoryLimit
	Kept
}

// HistoryLimit is how many entries of the history are kept per job, and EditLimit how
// many of them are edits at most; the oldest go first.
const (
	HistoryLimit = 20
	EditLimit    = 10
)

// NewFailure is an attempt that has failed.
type NewFailure struct {
	Phase    string // of the delivery policy that the attempt was in
	Error    string
	Stack    string // of a panic
	Duration time.Duration
	Instance string // that ran the attempt; empty: this one
	// RetryAfter is true if the attempt asked for the delay that follows it.
	RetryAfter bool
}

// Failure is one entry of a job's history: an attempt that failed, or, if Phase is
// [PhaseEdited], a change of the args by Store.Change.
type Failure struct {
	Attempt  int           `json:"attempt"` // of an edit: how many there were before
	At       time.Time     `json:"at"`
	Phase    string        `json:"phase"` // of the delivery policy that the attempt was in
	Error    string        `json:"error"`
	Stack    string        `json:"stack,omitempty"` // of a panic
	Duration time.Duration `json:"duration_s"`
	Instance string        `json:"instance,omitempty"` // that ran the attempt, or changed the args
	// RetryAfter is true if the attempt asked for the delay that followed it.
	RetryAfter bool `json:"retry_after,omitempty"`
	// Args are what an edit has replaced.
	Args json.RawMessage `json:"args,omitempty"`
}

// MarshalJSON writes durations in seconds.
func (f Failure) MarshalJSON() ([]byte, error) { return seconds.Marshal(f) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Failure) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, f) }

// Count is a number of jobs.
type Count struct {
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	State State  `json:"state"`
	N     int64  `json:"n"`
}
