package engine

import (
	"bytes"
	"runtime"
	"time"
)

// expectEnd notes that the context of a running attempt ends at t. The attempt is
// stuck if it still runs StuckAfter later.
func (l *loop) expectEnd(a *attempt, t time.Time) {
	a.overdue = sooner(a.overdue, t.Add(l.cfg.StuckAfter))
	l.leases.stuckAt = sooner(l.leases.stuckAt, a.overdue)
}

// findStuck logs each stuck handler once, with its stack. The handlers keep their
// runner and their lease, so that a job is never run twice at a time.
func (l *loop) findStuck(now time.Time) {
	var stacks map[int64][]byte
	l.leases.stuckAt = time.Time{}
	for _, a := range l.leases.held {
		if !a.running || a.stuck || a.overdue.IsZero() {
			continue
		}
		if !reached(a.overdue, now) {
			l.leases.stuckAt = sooner(l.leases.stuckAt, a.overdue)
			continue
		}
		a.stuck = true
		if stacks == nil {
			stacks = allStacks()
		}
		l.cfg.Logger.Error("errand: handler is stuck: its context ended and it still runs",
			l.attrs(a, "stack", cut(string(stacks[a.goroutine.Load()]), maxStack))...)
	}
	if stacks != nil { // which stops the world: once a second is enough
		l.leases.stuckAt = latest(l.leases.stuckAt, now.Add(time.Second))
	}
}

// allStacks returns the stacks of all goroutines by their number. The runtime has
// no other way to get that of another goroutine.
func allStacks() map[int64][]byte {
	const most = 16 << 20
	b := make([]byte, 256<<10)
	n := runtime.Stack(b, true)
	for n == len(b) && n < most {
		b = make([]byte, 4*n)
		n = runtime.Stack(b, true)
	}
	stacks := map[int64][]byte{}
	for block := range bytes.SplitSeq(b[:n], []byte("\n\n")) {
		stacks[numberOf(block)] = block
	}
	return stacks
}
