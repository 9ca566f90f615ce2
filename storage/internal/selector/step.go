package selector

import (
	"math"
	"time"

	"github.com/errandq/errand/storage"
)

// steps are the walks of steps with the states that each finds, and what it is of a group and of a
// cause.
var steps = map[Walk]struct {
	states       []storage.State
	group, cause Walk
}{
	StepDead:     {[]storage.State{storage.Dead}, StepDeadGroup, StepCause},
	StepFinished: {[]storage.State{storage.Done, storage.Cancelled, storage.Expired}, StepFinishedGroup, ""},
	StepLive:     {[]storage.State{storage.Scheduled, storage.Ready, storage.Running, storage.Blocked}, StepLiveGroup, ""},
	StepWaiting:  {[]storage.State{storage.Scheduled}, StepWaitingGroup, ""},
	StepFew:      {[]storage.State{storage.Scheduled}, StepWaitingGroup, ""},
}

// Step returns the query for at most limit jobs that sel selects by its filter, as [Chosen]: dead
// ones by when they ended, others and those of a group in the order of keys, and those that are not dead not
// beyond through. ok is false if there can be none. which is for [StepWaiting] and [StepFew].
func (s *Selector) Step(w Walk, sel *storage.Selection, which storage.Waiting, through int64, limit int) (q Query, ok bool) {
	f, of := &sel.Filter, steps[w]
	states := chosen(f, of.states)
	if len(states) == 0 || f.Cause != 0 && s.dialect.Dead.Cause == "" {
		return Query{}, false
	}
	switch {
	case f.Group != "":
		w = of.group
	case f.Cause != 0:
		w = of.cause
	}
	v := s.filter(f)
	v.number("states", mask(states))
	v.set("first", which.First)
	v.set("failed", which.Failed)
	v.number("limit", int64(limit))
	v.number("above", sel.After.Key)
	v.number("below", through+1)
	at, key := int64(math.MinInt64), int64(-1)
	if sel.After != (storage.Position{}) {
		at, key = sel.After.At.UnixMicro(), sel.After.Key
	}
	v.by(between(f.EndedFrom, f.EndedBefore), at, key, up)
	return s.query(w, &v), true
}

// Choice is the jobs that one step is about.
type Choice struct {
	IDs     []storage.ID
	Through int64   // see [storage.Step]
	ended   []int64 // nil unless the filter chooses in the order of the times when they ended
	more    bool    // others match too
}

// Named returns the choice of a selection by IDs, and whether it is one.
func Named(sel *storage.Selection) (Choice, bool) {
	return Choice{IDs: sel.IDs, Through: sel.Through}, len(sel.IDs) > 0
}

// Choose returns the choice of the first limit of the rows that a query of [Selector.Step] has found,
// of which there is one more if others match too.
func Choose(w Walk, sel *storage.Selection, rows []Chosen, through int64, limit int) Choice {
	c := Choice{Through: through, more: len(rows) > limit}
	for _, r := range rows[:min(len(rows), limit)] {
		c.IDs = append(c.IDs, storage.NewID(time.UnixMicro(r.CreatedAt), r.Salt, r.ID))
		if w == StepDead && sel.Filter.Group == "" {
			c.ended = append(c.ended, r.EndedAt)
		}
	}
	return c
}

// Next returns the position after the first n jobs, zero if none is left.
func (c *Choice) Next(n int) (p storage.Position) {
	if n == 0 || n == len(c.IDs) && !c.more {
		return p
	}
	if p.Key = c.IDs[n-1].Key(); c.ended != nil {
		p.At = time.UnixMicro(c.ended[n-1]) // exactly, in whatever year
	}
	return p
}
