package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// holds is what the loop knows of held lanes. The store leases nothing of them, but
// jobs may have been leased before: ahead, by an exchange whose answer is under way,
// or to an offer. None of them starts once a call of Hold in this process has returned,
// because of this order:
//
//   - The store tells of a change before the call that made it returns, and hear counts
//     it at once, with its lanes. So the count has risen when Hold returns.
//   - The loop reads the holds in a call of the store that begins after it has read the
//     count. heeded is that count: the lanes contain all changes up to it.
//   - An attempt is handed to a runner with the count that was heeded when it was found
//     to be in no held lane: among those that wait when the holds were read, or as it
//     came in later. Until then those of lanes that have changed since wait.
//   - The runner looks for a change of the lane since that count just before it calls the
//     handler. If there is one the handler is not called, and the loop takes the attempt
//     among those that wait. It goes back to the store only if its lane turns out to be
//     held, so that holds which change all the time stop no attempt for good.
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
	asking  map[storage.Lane]bool      // owners, see [Config.ownerOf], whose OnUnauthorized runs
	// hookCtx is the context of these calls; nil: there was none.
	hookCtx  context.Context
	endHooks context.CancelFunc
	read     *chore
	reading  bool           // the chore was sent, or failed and is due again
	passAt   time.Time      // a probe has been waited for long enough
	spared   []storage.Lane // of which no further probe is leased, see [loop.spared]
}

// heldLane is how a lane is held.
type heldLane struct {
	until   time.Time // by holds that let no probe through
	forever bool      // likewise, until one is released
	probes  bool      // by others
}

// holdChanges count the changes of holds, in the goroutines that commit. Runners compare.
type holdChanges struct {
	n atomic.Int64

	mu   sync.Mutex
	last map[storage.Lane]int64 // the number of the last change of each lane, as holds name it
	any  int64                  // that of the last one of unknown lanes
}

// mostChanged bounds last.
const mostChanged = 10_000

// add counts a change of these lanes; nil: of any.
func (c *holdChanges) add(lanes []storage.Lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n.Add(1)
	if lanes == nil || len(c.last)+len(lanes) > mostChanged {
		c.any = n
		clear(c.last)
		return
	}
	if c.last == nil {
		c.last = map[storage.Lane]int64{}
	}
	for _, lane := range lanes {
		c.last[lane] = n
	}
}

// since reports whether holds of a lane may have changed after the count was heeded.
func (c *holdChanges) since(heeded int64, queue, kind string) bool {
	if c.n.Load() == heeded {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lane := range lanesOver(queue, kind) {
		if c.last[lane] > heeded {
			return true
		}
	}
	return c.any > heeded
}

// sinceOf is since for the lanes of attempts.
func (c *holdChanges) sinceOf(heeded int64, all []*attempt) bool {
	return slices.ContainsFunc(all, func(a *attempt) bool { return c.since(heeded, a.job.Queue, a.job.Kind) })
}

// lanesOver returns the lanes whose holds keep a job.
func lanesOver(queue, kind string) [3]storage.Lane {
	return [...]storage.Lane{{Queue: queue, Kind: kind}, {Queue: queue}, {Kind: kind}}
}

// hear takes an event of the store, in a goroutine that commits.
func (l *loop) hear(e storage.Event) {
	if len(e.Holds) > 0 {
		l.runners.holds.add(e.Holds)
	}
	l.mail.put(e)
}

// newReadHolds makes the chore that reads the holds.
func (l *loop) newReadHolds(now time.Time) *chore {
	h := &l.ready.holds
	h.read = &chore{due: onMono(now)} // since when lanes are held
	h.read.prepare = func(time.Time) task {
		h.reading = true
		heard, clock := l.runners.holds.n.Load(), l.clock()
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
	if l.runners.holds.n.Load() == h.heeded {
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
	back := func(a *attempt) bool {
		if !l.anyHeld(a) {
			return false
		}
		for _, one := range a.members() {
			l.leases.release(one)
			l.giveBack(one, time.Time{})
		}
		return true
	}
	r := &l.ready
	r.waiting = slices.DeleteFunc(r.waiting, back)
	r.suspects.waiting = slices.DeleteFunc(r.suspects.waiting, back)
	l.giveBackParts(func(a *attempt) bool { return l.held(a.job) })
}

// anyHeld reports whether a job that an attempt stands for is held.
func (l *loop) anyHeld(a *attempt) bool {
	if a.batch == nil {
		return l.held(a.job)
	}
	return slices.ContainsFunc(a.members(), func(o *attempt) bool { return l.held(o.job) })
}

// held reports whether the lane of a job is held, and the job not let through. Of a lane
// that has changed since the holds were read nothing is known: the job waits.
func (l *loop) held(job *storage.Leased) bool {
	h := &l.ready.holds
	switch {
	case job.Urgent:
		return false
	case !job.Probe && h.rulings.begins(storage.Lane{Queue: job.Queue, Kind: job.Kind}):
		return true
	case len(h.lanes) == 0 || l.runners.holds.since(h.heeded, job.Queue, job.Kind):
		return false
	}
	for _, lane := range lanesOver(job.Queue, job.Kind) {
		held, ok := h.lanes[lane]
		if ok && (held.forever || held.probes && !job.Probe || l.clock().Before(held.until)) {
			return true
		}
	}
	return false
}

// lookAgain takes an attempt whose handler was not called, as holds of its lane have
// changed, among those that wait for a runner, before the others. The change may have been
// read before the runner returned it. It reports false if the attempt has ended all the
// same, as one whose start was written: if the process died while it waits, the job would be
// to blame.
func (l *loop) lookAgain(a *attempt) bool {
	if !l.shutdown.working() {
		return false
	}
	all := a.together()
	for _, one := range all {
		if !one.unread || one.written || one.lost || one.cause != nil || one.noteErr != nil {
			return false
		}
	}
	for _, one := range all {
		one.undo()
	}
	if a.suspect {
		l.ready.suspects.waiting = slices.Insert(l.ready.suspects.waiting, 0, a)
	} else {
		l.ready.waiting = slices.Insert(l.ready.waiting, 0, a)
	}
	l.giveBackHeld()
	return true
}

// undo leaves of an attempt what it was before it was given to a runner.
func (a *attempt) undo() {
	if !a.again {
		a.unpay()
	}
	if a.probing != nil && a.probing.last {
		a.onRamps(1) // which it has left
	}
	a.probing = nil
	a.running, a.overdue = false, time.Time{}
	was := a.result
	if a.result = (result{}); a.again { // what earlier calls have left stays
		a.began, a.wait, a.open = was.began, was.wait, was.open
	}
	a.counts = time.Time{}
	if a.batch != nil {
		a.batch.ended = 0
	}
}

// notCalled reports whether a runner returned a because holds had changed, or its window
// is over.
func (a *attempt) notCalled() bool { return a.verdict.kind == verdictUnstarted && a.startErr == nil }
