package storage

import (
	"context"
	"time"
)

// What samples there are.
const (
	// SampleEach is how long the time is at whose start a sample is taken. These times begin at
	// multiples of it since 1970.
	SampleEach = 5 * time.Minute
	// SamplesEachFor is for how long all samples are kept. Then the first one of each hour is, for
	// SamplesFor.
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
	// now, has changed in the SampleEach of the first. While the disk is nearly full it has none.
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
	// OldestDue is that of [LaneStats]; zero too if a hold keeps the lane.
	OldestDue time.Time
}
