package engine

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// known reports whether what the gates of s have said holds, or is being asked, up to the
// first that is closed. It asks those that ask nobody.
func (gs *gates) known(s *source) bool {
	for _, b := range s.bounds {
		if b.gate == nil {
			continue
		}
		if !b.gate.holds() && !b.gate.under() {
			if _, ok := b.gate.Gate.(prompt); !ok {
				return false
			}
			gs.ask(b.gate)
		}
		if !b.gate.lets() {
			break
		}
	}
	return true
}

// askGates asks the gates of a source that may have work, if there is need. An event
// may be about other jobs, and behind a closed gate no exchange would find that out:
// the gate would be asked, and send its requests, for ever. So the counts of jobs
// are looked at before.
func (l *loop) askGates(s *source, now time.Time) {
	switch {
	case l.sources.gates.known(s):
		s.waits = s.waits && s.asked()
	case s.waits:
		l.sources.gates.open(s)
		s.waits = s.asked() // then there may be another gate to ask
	case !s.peeking:
		l.chores.peek.due = onMono(now)
	}
}

// asked reports whether a gate of s is being asked.
func (s *source) asked() bool {
	return slices.ContainsFunc(s.bounds, func(b *bound) bool { return b.gate != nil && b.gate.under() })
}

// newPeek makes the chore that looks whether jobs wait before gates.
func (l *loop) newPeek() *chore {
	c := &chore{}
	c.prepare = func(now time.Time) task {
		c.pause = now.Add(askEvery)
		asked := now // the counts have all failures before
		if len(l.outcomes.waiting)+len(l.outcomes.flight) > 0 {
			asked = time.Time{}
		}
		for _, s := range l.sources.all {
			s.peeking = s.mayHaveWork && !l.sources.gates.known(s)
		}
		return func(ctx context.Context) (func(time.Time), error) {
			counts, err := l.cfg.Store.Counts(ctx)
			return func(time.Time) { l.sources.peeked(counts, asked) }, err
		}
	}
	l.chores.peek = c
	return c
}

// recount has sources looked at again whose counts were asked for before an exchange that
// may have made jobs ready: the counts may have these as scheduled, which are not due any
// more.
func (s *sources) recount() {
	for _, o := range s.all {
		o.peeking = false
	}
}

// peeked takes counts, which have all failures up to asked. A source that was woken
// after these were asked for is left as it is.
func (s *sources) peeked(counts []storage.Count, asked time.Time) {
	scheduled := map[*source]bool{}
	for i := range counts {
		c := &counts[i]
		o := s.find(storage.Lane{Queue: c.Queue, Kind: c.Kind})
		if o == nil || !o.peeking {
			continue
		}
		switch c.State {
		case storage.Ready:
			o.waits = true
		case storage.Scheduled:
			scheduled[o] = true
			o.waits = o.waits || s.due || s.gates.waitsForKick(o, c.Queue)
		}
	}
	for _, o := range s.all {
		if o.peeking && !scheduled[o] && o.failedAt.Before(asked) {
			o.failedAt = time.Time{}
		}
		if o.peeking {
			o.peeking, o.mayHaveWork = false, o.waits
		}
	}
}
