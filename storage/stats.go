package storage

import (
	"context"
	"time"
)

// LaneStats is what is known of a lane.
type LaneStats struct {
	Lane
	// Number is positive, never changes, and is higher than those of lanes that had their
	// first job before. A job that is changed to the lane may be the first.
	Number int64
	// Scheduled to Blocked are how many jobs of the lane are in each state.
	Scheduled, Ready, Running, Done, Cancelled, Expired, Dead, Blocked int64
	// Bytes is how many bytes the args and headers of its live jobs have.
	Bytes int64
	// RunningBytes is how many of these its running jobs have.
	RunningBytes int64
	// Total is how many of its jobs have come and ended, ever.
	Total Totals
	// Evicted is how many of its jobs were evicted, ever, see [WhenFull].
	Evicted int64
	// EvictedDead is how many of its dead letters were evicted, ever.
	EvictedDead int64
	// OldestDue is when the first of its ready jobs was due; zero if none is ready.
	OldestDue time.Time
	// Succeeded is when an attempt ended with OutcomeDone for the last time, or less
	// than a second from then; zero if none has.
	Succeeded time.Time
	// Failed is when, for the last time, a Failure was added to a history or a job
	// died; zero if none has.
	Failed time.Time
	// FailedJob is the job of that, and Error its last error, if the job is there still.
	FailedJob ID
	Error     string
}

// Idle reports whether the lane has no job, had no attempt that succeeded or failed, and no job
// that was evicted.
func (s *LaneStats) Idle() bool {
	return s.Scheduled|s.Ready|s.Running|s.Done|s.Cancelled|s.Expired|s.Dead|s.Blocked|s.Evicted|s.EvictedDead == 0 && s.Succeeded.IsZero() && s.Failed.IsZero()
}

// Totals count jobs of a lane since there is the database. None of them ever falls. A job that
// is changed to another queue, or redriven to one, counts as Enqueued only in its first lane,
// and its end in the lane in which it ends. A redrive changes none of them: a job that dies
// again counts as Dead again.
type Totals struct {
	Enqueued int64 // inserted
	// Done to Dead are how many have come to these states.
	Done, Cancelled, Expired, Dead int64
	// Failed is how many attempts have failed: a Failure was added to a history by
	// [OutcomeRetry], [OutcomeCrashed] or [OutcomeDead]. A Store that is no Historian may leave it 0.
	Failed int64
}

// Plus returns the totals of two lanes together.
func (t Totals) Plus(o Totals) Totals {
	return Totals{
		Enqueued: t.Enqueued + o.Enqueued, Done: t.Done + o.Done, Cancelled: t.Cancelled + o.Cancelled,
		Expired: t.Expired + o.Expired, Dead: t.Dead + o.Dead, Failed: t.Failed + o.Failed,
	}
}

// What samples there are.
const (
	// SampleEach is how long the time is at whose start a sample is taken. These times begin at
	// multiples of it since 1970.
	SampleEach = 5 * time.Minute
	// SamplesEachFor is for how long all samples are kept. Then the first one of each hour is, for
	// SamplesFor, and the last one before these. What is not is deleted with the first sample of an
	// hour.
	SamplesEachFor = 24 * time.Hour
	SamplesFor     = 7 * 24 * time.Hour
	// SampledLanes is how many lanes a sample has, the first by their Number. The others
	// are one without a name.
	SampledLanes = 200
)

// Historian is implemented by a Store that keeps what its totals were.
type Historian interface {
	// History returns the samples from a time on, the oldest first, and the last one before it.
	//
	// A sample is taken by the first call in each SampleEach that changes a number of a lane, by
	// the now that calls are given, unless an earlier one that has written something else took it.
	// It has the numbers before that call: so what changes from one sample to the next one, or to
	// now, has changed in the SampleEach of the first. What calls without a now change, as Delete and
	// SkipHead do, counts with the call before them. While the disk is nearly full it has none.
	// If StepClock sets the clock back, samples that were taken later are gone, and it takes one.
	History(ctx context.Context, since time.Time) ([]Sample, error)
}

// Sample is what numbers of lanes were.
type Sample struct {
	// At is the start of the SampleEach in which the sample was taken.
	At time.Time
	// Unknown: the disk was nearly full, and there are no numbers.
	Unknown bool
	// Lanes are sorted by Number; the one without a name, if there is one, is last.
	Lanes []SampledLane
}

// SampledLane are the numbers of a lane, see [LaneStats].
type SampledLane struct {
	Lane
	Total Totals
	// Scheduled to Dead are how many jobs were in each state.
	Scheduled, Ready, Running, Blocked, Dead int64
	// OldestDue is that of [LaneStats]; zero too if a hold keeps the lane, and of the lanes together.
	OldestDue time.Time
}
