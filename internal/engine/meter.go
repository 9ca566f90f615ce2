package engine

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// Bounds are the upper bounds of the buckets of a [Histogram], included, but for the last
// bucket, which has all that took longer.
var Bounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	30 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
}

// Histogram is how long something took, many times.
type Histogram struct {
	Buckets [len(Bounds) + 1]uint64
	Sum     float64 // in seconds: jobs that were due in 1970 are too much for a Duration
}

// bucketOf returns the index of the bucket of a duration.
func bucketOf(d time.Duration) (i int) {
	for i < len(Bounds) && d > Bounds[i] {
		i++
	}
	return i
}

// Meter is what the attempts of a lane have come to, since the process has the store.
type Meter struct {
	// Attempts are by the [storage.Outcome] with which they ended; Lost are those whose lease
	// was lost before.
	Attempts [storage.OutcomeUnavailable + 1]uint64
	Lost     uint64
	// Wait is from when the jobs were due until their handlers were called, Run from then
	// until these have returned, or have completed the job.
	Wait, Run Histogram
}

// timing is how long an attempt had waited and has run. It is zero if the handler was not called.
// There is one for each job, so it is kept small.
type timing struct {
	began      time.Duration // when it was called, see attempt.age
	wait, took time.Duration
}

// age is the time since the lease of an attempt was asked for, and a moment: it is never zero.
func (a *attempt) age() time.Duration { return time.Since(a.leased) + 1 }

// begin notes that the handler of an attempt is about to be called, at a time of the queue's clock.
func (a *attempt) begin(now time.Time) {
	if !a.again || a.began == 0 {
		a.began, a.wait = a.age(), now.Sub(a.job.DueAt)
	}
}

// end notes that the handler has returned.
func (a *attempt) end() { a.took = a.age() - a.began }

// soFar returns the timing of a handler that may not have returned, and may do so now.
func (a *attempt) soFar() timing {
	return timing{began: a.began, wait: a.wait, took: a.age() - a.began}
}

// The cells of a tally: how often each outcome was, leases that were lost, and the two histograms.
const (
	lostCell = int(storage.OutcomeUnavailable) + 1
	waitCell = lostCell + 1
	runCell  = waitCell + len(Bounds) + 1
	cells    = runCell + len(Bounds) + 1
)

// tally is the Meter of a lane as it is kept: without the cells that are zero. There may be very
// many lanes, and most of them need few cells.
type tally struct {
	has       uint64   // a bit for each cell that is in n
	n         []uint64 // in the order of cells
	wait, run float64  // the sums of the histograms
}

var _ = [64 - cells]int{} // a cell is a bit of has

// count adds one to a cell.
func (t *tally) count(cell int) {
	bit := uint64(1) << cell
	i := bits.OnesCount64(t.has & (bit - 1))
	if t.has&bit == 0 {
		t.has |= bit
		t.n = slices.Insert(t.n, i, 0)
	}
	t.n[i]++
}

// add counts an outcome.
func (t *tally) add(o storage.Outcome, took *timing) {
	t.count(int(o))
	if took.began > 0 {
		wait, run := max(took.wait, 0), max(took.took, 0)
		t.count(waitCell + bucketOf(wait))
		t.count(runCell + bucketOf(run))
		t.wait += wait.Seconds()
		t.run += run.Seconds()
	}
}

// meter returns the Meter.
func (t *tally) meter() Meter {
	var all [cells]uint64
	for has, i := t.has, 0; has != 0; has &= has - 1 {
		all[bits.TrailingZeros64(has)] = t.n[i]
		i++
	}
	m := Meter{Lost: all[lostCell], Wait: Histogram{Sum: t.wait}, Run: Histogram{Sum: t.run}}
	copy(m.Attempts[:], all[:lostCell])
	copy(m.Wait.Buckets[:], all[waitCell:runCell])
	copy(m.Run.Buckets[:], all[runCell:])
	return m
}

// meters are those of lanes.
type meters struct {
	mu    sync.Mutex
	lanes map[storage.Lane]*tally
}

// count counts outcomes that the store has written.
func (m *meters) count(written []outcome, results []storage.ItemResult) {
	if len(results) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var lane storage.Lane
	var of *tally
	for i := range written {
		f := &written[i].Finish
		if results[i] == storage.Spent {
			f = f.Spent
		}
		if r := results[i]; r != storage.Spent && r != storage.Applied && r != storage.Lost || f.Outcome == storage.OutcomeReturned {
			continue
		}
		job := written[i].job
		if of == nil || lane.Queue != job.Queue || lane.Kind != job.Kind { // mostly it is the one before
			lane = storage.Lane{Queue: job.Queue, Kind: job.Kind}
			of = m.of(lane)
		}
		if results[i] == storage.Lost {
			of.count(lostCell)
			continue
		}
		of.add(f.Outcome, &written[i].timing)
	}
}

// of returns the tally of a lane.
func (m *meters) of(lane storage.Lane) *tally {
	of := m.lanes[lane]
	if of == nil {
		if m.lanes == nil {
			m.lanes = map[storage.Lane]*tally{}
		}
		of = new(tally)
		m.lanes[lane] = of
	}
	return of
}

// lost counts an attempt whose lease was lost before its handler returned.
func (m *meters) lost(job *storage.Leased) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(storage.Lane{Queue: job.Queue, Kind: job.Kind}).count(lostCell)
}

// Meter returns what the attempts of a lane have come to.
func (s *Lanes) Meter(lane storage.Lane) (m Meter) {
	s.meters.mu.Lock()
	defer s.meters.mu.Unlock()
	if of := s.meters.lanes[lane]; of != nil {
		m = of.meter()
	}
	return m
}
