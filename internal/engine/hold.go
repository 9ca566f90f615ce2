package engine

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// holds is what the loop knows of held lanes. The store leases nothing of them, but
// jobs may have been leased before: ahead, by an exchange whose answer is under way,
// or to an offer. None of them starts once a call of Hold in this process has returned,
// because of this order:
//
//   - The store tells of a change before the call that made it returns, and hear counts
//     it at once. So the count has risen when Hold returns.
//   - The loop reads the holds in a call of the store that begins after it has read the
//     count. heeded is that count: the lanes contain all changes up to it.
//   - An attempt is handed to a runner with the count that was heeded when it was found
//     to be in no held lane: among those that wait when the holds were read, or as it
//     came in later.
//   - The runner compares the two just before it calls the handler. If they differ the
//     handler is not called, and the job goes back.
//
// In another process the store tells of a change when it sees the commit. Every
// transaction of that store looks for commits before it leases, so no lease that was
// made after a hold was released is taken for one made before.
type holds struct {
	heeded  int64
	lanes   map[storage.Lane]heldLane
	own     []storage.HoldState // those that let probes through, which engines begin
	rulings rulings
	told    map[storage.Lane]time.Time // when it was last told that a lane is held for long
	asking  map[string]bool            // kinds whose OnUnauthorized runs
	// hookCtx is the context of these calls; nil: there was none.
	hookCtx  context.Context
	endHooks context.CancelFunc
	read     *chore
	reading  bool // the chore was sent, or failed and is due again
}

// heldLane is how a lane is held.
type heldLane struct {
	until   time.Time // by holds that let no probe through
	forever bool      // likewise, until one is released
	probes  bool      // by others
}

// hear takes an event of the store, in a goroutine that commits.
func (l *loop) hear(e storage.Event) {
	if e.Holds {
		l.runners.holds.Add(1)
	}
	l.mail.put(e)
}

// newReadHolds makes the chore that reads the holds.
func (l *loop) newReadHolds(now time.Time) *chore {
	h := &l.ready.holds
	h.read = &chore{due: onMono(now)} // since when lanes are held
	h.read.prepare = func(time.Time) task {
		h.reading = true
		heard, clock := l.runners.holds.Load(), l.clock()
		return func(ctx context.Context) (func(time.Time), error) {
			all, err := l.cfg.Store.Holds(ctx, clock)
			return func(time.Time) { l.heed(heard, all) }, err
		}
	}
	return h.read
}

// knowsHolds reports whether the holds have been read since they have last changed,
// and has them read if not.
func (l *loop) knowsHolds(now time.Time) bool {
	h := &l.ready.holds
	if l.runners.holds.Load() == h.heeded {
		return true
	}
	if !h.reading {
		h.read.due = onMono(now)
	}
	return false
}

// heed takes all holds, which contain the changes counted up to heard. The jobs of held
// lanes that wait to start lose nothing, not even their place.
func (l *loop) heed(heard int64, all []storage.HoldState) {
	l.knowHolds(all)
	h := &l.ready.holds
	was := h.own
	h.reading, h.heeded, h.lanes, h.own = false, heard, map[storage.Lane]heldLane{}, nil
	for _, s := range all {
		held := h.lanes[s.Lane]
		switch {
		case s.Probe:
			held.probes = true
			h.own = append(h.own, s)
		case s.Until.IsZero():
			held.forever = true
		case s.Until.After(held.until):
			held.until = s.Until
		}
		h.lanes[s.Lane] = held
	}
	for i := range was {
		ours := h.rulings.latest(was[i].Lane, was[i].Reason)
		if ours == nil && h.ownHold(was[i].Lane, was[i].Reason) == nil {
			l.releasedElsewhere(was[i].Lane, was[i].Reason)
		}
	}
	for i := range h.own {
		l.heldElsewhere(h.own[i].Lane, h.own[i].Reason)
	}
	h.rulings.heed(heard)
	l.giveBackHeld()
}

// giveBackHeld returns to the store the jobs of held lanes that wait to start.
func (l *loop) giveBackHeld() {
	h := &l.ready.holds
	back := func(a *attempt) bool {
		if a.job.Urgent || !h.has(a.job, l.clock) {
			return false
		}
		for _, one := range a.members() { // of the same lane
			l.leases.release(one)
			l.giveBack(one, time.Time{})
		}
		return true
	}
	l.ready.waiting = slices.DeleteFunc(l.ready.waiting, back)
	l.ready.suspects.waiting = slices.DeleteFunc(l.ready.suspects.waiting, back)
}

// has reports whether the lane of a job is held, and the job not let through.
func (h *holds) has(job *storage.Leased, clock func() time.Time) bool {
	if !job.Probe && h.rulings.begins(storage.Lane{Queue: job.Queue, Kind: job.Kind}) {
		return true
	}
	if len(h.lanes) == 0 {
		return false
	}
	for _, lane := range [...]storage.Lane{{Queue: job.Queue, Kind: job.Kind}, {Queue: job.Queue}, {Kind: job.Kind}} {
		held, ok := h.lanes[lane]
		if ok && (held.forever || held.probes && !job.Probe || clock().Before(held.until)) {
			return true
		}
	}
	return false
}

// notCalled reports whether a runner gave a back because holds had changed.
func (a *attempt) notCalled() bool { return a.verdict.kind == verdictUnstarted && a.startErr == nil }
