package storage

import (
	"context"
	"time"
)

// Scheduler is implemented by a Store that keeps schedules: recurring jobs,
// each with a plan of how far it has come. It knows nothing of specs and zones:
// the caller says what is planned next and what is to be enqueued.
//
// Each schedule has a revision, which every change of it raises. A change names
// the revision that it was made for, and changes nothing if the schedule is at
// another: so each tick becomes one job, however many processes wait for it.
type Scheduler interface {
	// PutSchedule adds s if its Revision is zero, else it replaces the schedule
	// of that name and revision; its history stays. It returns the new revision,
	// which is positive, or zero if nothing was changed because the schedule
	// is at another revision, exists already, or exists no more.
	PutSchedule(ctx context.Context, now time.Time, s Schedule) (revision int64, err error)

	// Fire takes firings in order, all in one transaction, and answers for
	// each in the same order. A firing whose schedule is at another revision
	// changes nothing. See [Firing].
	Fire(ctx context.Context, now time.Time, firings []Firing) ([]Fired, error)

	// DropSchedule deletes a schedule with its history; jobs that it has
	// enqueued go on. It returns [ErrNotFound] if there is no schedule of this
	// name. A schedule that is added later under the same name never has a
	// revision that was given before.
	DropSchedule(ctx context.Context, now time.Time, name string) error

	// Schedule returns one schedule, and [ErrNotFound] if there is no schedule
	// of this name. The cost does not grow with the number of schedules.
	Schedule(ctx context.Context, name string) (ScheduleRecord, error)

	// Schedules returns all schedules, sorted by name.
	Schedules(ctx context.Context) ([]ScheduleRecord, error)

	// Ticks returns the history of a schedule, the latest entry first, at most
	// [TickLimit]. It is empty if there is no such schedule.
	Ticks(ctx context.Context, name string) ([]Tick, error)
}

// Schedule is a recurring job to keep. Its fields have been validated; Spec, Zone,
// Missed and Jitter mean nothing to the Store.
type Schedule struct {
	Name        string
	Spec        string
	Zone        string
	Missed      string
	SkipOverlap bool // see [Firing]
	Jitter      time.Duration
	// Job is what is enqueued. Its DueAt and Delay are zero.
	Job NewJob
	Plan
}

// Plan is how far a schedule has come.
type Plan struct {
	Revision int64
	Paused   bool
	// Next is the next tick; zero if there is none, or none is known yet.
	Next time.Time
	// Through is the time up to which all ticks are decided; zero if none is.
	Through time.Time
	// Wall tells the latest of these ticks where the zone is another; empty if nothing does.
	// It means nothing to the Store.
	Wall string
}

// ScheduleRecord is all that is known of a schedule.
type ScheduleRecord struct {
	Schedule
	// LastTick is the tick of which a job was enqueued last, and LastJob that
	// job; zero if there was none.
	LastTick time.Time
	LastJob  ID
}

// Firing moves one schedule on, if it is at Revision: its Next, Through and Wall are set,
// and the ticks are taken in order. Each becomes an entry of the history, and one that has
// a Job enqueues it. If the schedule is SkipOverlap and a job of it is live, a tick is
// skipped as [TickOverlap]; only a manual one is not. A tick whose unique key is held is
// skipped as [TickDuplicate].
//
// The jobs of a schedule are those that firings of its name have enqueued: also manual
// ones, and those of a schedule of that name that was dropped or was not SkipOverlap. One
// that dies is live again once it is redriven. Headers make no job one of a schedule.
//
// A firing with Start takes effect only if no instance has started the schedule, but for
// those that are gone. Then this instance has started it, also if the firing has taken no
// effect because another had. An instance is gone once it is closed and no handler of it
// runs, or its process has ended. Who drops a schedule and adds it again adds one that
// nobody has started.
type Firing struct {
	Name     string
	Revision int64
	Next     time.Time
	Through  time.Time
	Wall     string
	Ticks    []NewTick
	Start    bool
}

// Fired answers a [Firing].
type Fired struct {
	// Plan is that of the schedule after the call. Its Revision is zero if
	// there is no schedule of this name. It is that of a firing with Start that takes no
	// effect because an instance has started the schedule.
	Plan Plan
	// Applied is true if the firing took effect.
	Applied bool
	// Ticks are those of the firing as they are in the history; nil unless Applied.
	Ticks []Tick
}

// NewTick is a tick to take, or a number of them in a row to note as skipped for
// one reason.
type NewTick struct {
	At    time.Time   // the tick, or the first of them
	Until time.Time   // the last of them; zero: At
	N     int64       // how many; zero: 1
	Taken TickOutcome // with a Job, TickFired, TickManual or TickStart
	Job   *NewJob     // what to enqueue; nil for a tick that is skipped
}

// Tick is an entry in the history of a schedule.
type Tick struct {
	At    time.Time // the tick, or the first of N
	Until time.Time // the last of them
	N     int64
	Taken TickOutcome
	Noted time.Time // when the entry was made
	// ID is the job that was enqueued, or that holds the unique key.
	ID ID
}

// TickLimit is how many entries of its history a schedule keeps; the oldest go
// first.
const TickLimit = 50

// TickOutcome is what became of a tick.
type TickOutcome string

// The outcomes of ticks.
const (
	TickFired     TickOutcome = "fired"
	TickManual    TickOutcome = "manual"    // fired because somebody asked for it
	TickStart     TickOutcome = "start"     // fired because a program has started
	TickMissed    TickOutcome = "missed"    // skipped: nobody was there in time
	TickPaused    TickOutcome = "paused"    // skipped: the schedule was
	TickOverlap   TickOutcome = "overlap"   // skipped: a job of the schedule is live
	TickDuplicate TickOutcome = "duplicate" // skipped: another job holds the unique key
	TickFull      TickOutcome = "full"      // skipped: there is no room for the job, see [WhenFull]
)

// Timekeeper is implemented by a Store that remembers how late it was, for a machine
// whose clock forgets. Without it a queue believes its clock.
//
// The times that writes are given as now may turn out to be wrong: then a delay
// counted from such a time must not last until a date far ahead.
type Timekeeper interface {
	// Clock returns the latest now that a write was given; zero if there was none. The
	// now of a write that changed nothing, such as an Enqueue of a duplicate, may be
	// missing if it is less than a second later than what is returned; Close keeps it.
	// shifting is true if a pass of StepClock was begun and not finished.
	//
	// After a restart a queue whose wall clock is behind goes on from it. So what is
	// enqueued then is due no earlier than what was enqueued before.
	Clock(ctx context.Context) (latest time.Time, shifting bool, err error)

	// StepClock says that it is no later than now, whatever earlier writes were given.
	// The time that Clock returns becomes now if it was later. What was counted from a
	// later time counts from now:
	//
	//   - A scheduled job with a Delay, or put back by an outcome with a DueAt, is due
	//     that Delay after now if its delay began after now.
	//   - A ready job that was due later is due now.
	//   - A dead job that died later died now. A First of a cause that was later is now.
	//   - A finished job that ended later ended now, and the time for which it is kept counts
	//     from now.
	//   - A message that was published later was published now: its KeepUntil, and the end of
	//     its DedupFor, come earlier by as much. An entry that was written later was written
	//     now; its CreatedAt stays.
	//   - A key is held for a UniqueFor that was counted from a later time for that long from
	//     now, unless its job waits for a date.
	//   - A lane whose last success or failure was later had it now.
	//   - A blocked job counts as ready if it was due when it was blocked, else as
	//     scheduled.
	//   - A StartBy or a Deadline that was counted from a later time counts from now.
	//   - A hold whose end is more than its For after now ends that For after now. With
	//     Probe but no For it ends now.
	//   - A hold that began later began now; so did a job that it let through.
	//
	// Dates stay: a DueAt that a job was enqueued with and has not reached, a StartBy and
	// a Deadline counted from a DueAt, and the Until of a hold without Probe. So do the times
	// of what is only history: a CreatedAt, which is part of an ID, edits, failures, progress,
	// and the ticks of schedules. A due time or an end of a hold that becomes earlier is an
	// [Event] of Notify. One call is one bounded step, first over the jobs whose key is
	// greater than after: call again with after set to the result until that is zero.
	StepClock(ctx context.Context, now time.Time, after int64) (next int64, err error)
}
