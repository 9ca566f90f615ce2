package engine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// mostOutcomes is how many go in one exchange, and mostBrought how many bytes they bring
	// unless it is a single one, so that none keeps other writers waiting for long.
	mostOutcomes = 2000
	mostBrought  = 4 << 20
	// keptWhole is how long an outcome waits for room as it is, and its job keeps its lease.
	keptWhole = 10 * time.Second
)

// first returns how many of the outcomes in flight go in the next exchange.
func (o *outcomes) first() int {
	most, bytes := min(len(o.flight), cmp.Or(o.most, mostOutcomes)), 0
	for i := range o.flight[:most] {
		if bytes += o.flight[i].Bytes(); bytes > mostBrought && i > 0 {
			return i
		}
	}
	return most
}

// halve has fewer outcomes go in the next exchange than in the one under way, for which the
// disk had no room. It reports false if that has a single one.
func (o *outcomes) halve(now time.Time) bool {
	for i := range o.flight {
		if o.flight[i].noRoom.IsZero() {
			o.flight[i].noRoom = now
		}
	}
	n := len(o.flight)
	o.most = max(n/2, 1)
	return n > 1
}

// lessen makes an outcome smaller that does not fit on the disk alone, and reports whether it
// could: it goes without the result, or if it brings jobs the attempt counts as cut off.
func (f *outcome) lessen(back time.Time) bool {
	switch {
	case f.Outcome == storage.OutcomeDone && f.Result != nil:
		f.Error = fmt.Sprintf("the disk was full: the result of %d bytes was left out", len(f.Result))
		f.Result = nil
	case f.brings():
		f.Finish = storage.Finish{Lease: f.Lease, Outcome: storage.OutcomeInterrupted, DueAt: back}
	default:
		return false
	}
	return true
}

// brings reports whether jobs follow.
func (f *outcome) brings() bool {
	return len(f.Then) > 0 || f.Spent != nil && len(f.Spent.Then) > 0
}
