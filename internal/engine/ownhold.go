package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	// tellWeek is for how long a lane is held until that is an error in the log.
	tellWeek  = 7 * 24 * time.Hour
	tellAgain = 24 * time.Hour
)

// Who holds a lane for a reason of the engine's.
const (
	byEngine  = "errand"
	byHandler = "handler" // for as long as it has asked for
)

// ruling is a hold that the engine has decided to begin, or with ends to end.
type ruling struct {
	storage.Hold
	since time.Time // when the lane was first held for the reason
	end   time.Time // of the hold
	ends  bool
	again bool // the lane is held for the reason already
}

// rulings are what the engine has decided. They go with the outcomes that led to them.
type rulings struct {
	waiting []ruling // at most one for each lane and reason
	flight  []ruling // in the exchange under way
	// done were written, and the holds not read since. These are to contain the changes
	// counted up to counted.
	done    []ruling
	counted int64
}

// rule has the next exchange write a ruling.
func (r *rulings) rule(n ruling) {
	same := func(o ruling) bool {
		is := o.Lane == n.Lane && o.Reason == n.Reason
		n.again = n.again && (!is || o.ends || o.again) // else nobody would be told
		if is && o.Through == (storage.Lease{}) {
			n.Through = storage.Lease{} // else the hold would not begin
		}
		return is
	}
	r.waiting = slices.DeleteFunc(r.waiting, same)
	r.waiting = append(r.waiting, n)
}

// send puts the rulings into an exchange.
func (r *rulings) send(x *storage.Exchange) {
	for _, n := range r.waiting {
		if n.ends {
			x.Release = append(x.Release, n.Hold)
		} else {
			x.Hold = append(x.Hold, n.Hold)
		}
	}
	r.flight, r.waiting = r.waiting, nil
}

// written notes that the exchange under way was, when holds had changed so often. The
// holds that were read last contain the changes counted up to heeded, which may be all
// of them: then no other reading would come.
func (r *rulings) written(counted, heeded int64) {
	if len(r.flight) > 0 {
		r.done, r.counted, r.flight = append(r.done, r.flight...), counted, nil
		r.heed(heeded)
	}
}

// putBack keeps the rulings of an exchange that failed for the next one.
func (r *rulings) putBack() {
	later := r.waiting
	r.waiting, r.flight = r.flight, nil
	for _, n := range later {
		r.rule(n)
	}
}

// heed forgets the rulings that are among the holds which were read.
func (r *rulings) heed(heard int64) {
	if heard >= r.counted {
		r.done = nil
	}
}

// latest returns the last ruling on a lane for a reason, or nil.
func (r *rulings) latest(lane storage.Lane, reason string) *ruling {
	for _, all := range [][]ruling{r.waiting, r.flight, r.done} {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].Lane == lane && all[i].Reason == reason {
				return &all[i]
			}
		}
	}
	return nil
}

// none reports whether there are no rulings.
func (r *rulings) none() bool { return len(r.waiting)+len(r.flight)+len(r.done) == 0 }

// ownHold returns the hold of a lane for a reason of the engine's, which may still be
// to begin; nil if there is none.
func (h *holds) ownHold(lane storage.Lane, reason string) *storage.HoldState {
	var read *storage.HoldState
	for i := range h.own {
		if h.own[i].Lane == lane && h.own[i].Reason == reason {
			read = &h.own[i]
		}
	}
	n := h.rulings.latest(lane, reason)
	if n == nil {
		return read
	}
	if n.ends {
		return nil
	}
	held := &storage.HoldState{Lane: lane, Reason: reason, By: n.By, Detail: n.Detail, For: n.For, Since: n.since, Until: n.end, Hanging: n.Hanging}
	if read != nil {
		held.Waiting, held.Ready, held.Through = read.Waiting, read.Ready, read.Through
	}
	return held
}

// begins reports whether the engine is about to hold a lane.
func (r *rulings) begins(lane storage.Lane) bool {
	if r.none() {
		return false
	}
	for _, reason := range []string{storage.HoldUnavailable, storage.HoldBrake} {
		if n := r.latest(lane, reason); n != nil && !n.ends {
			return true
		}
	}
	return false
}

// hold holds a lane from now on. Its jobs that wait for a runner go back.
func (l *loop) hold(lane storage.Lane, reason, detail string, length time.Duration) {
	l.holdBy(storage.Hold{Lane: lane, Reason: reason, By: byEngine, Detail: detail, For: length})
}

// holdBy is hold for somebody, or for a probe.
func (l *loop) holdBy(n storage.Hold) {
	// So that many who lost the same other side do not come back together.
	n.For = policy.Floor(0, n.For, l.cfg.Rand()) // up to a tenth more, without an overflow
	if n.Reason == storage.HoldUnavailable {
		s := l.outcomes.streaks.of(n.Lane)
		s.heldAt, s.end = time.Now(), l.clock().Add(n.For)
	}
	n.Detail = cut(n.Detail, maxLogged)
	l.ready.holds.begin(n, l.clock())
	l.giveBackHeld()
}

// begin has the next exchange begin a hold that lets probes through.
func (h *holds) begin(n storage.Hold, clock time.Time) {
	n.Probe = true
	since, end, again := clock, clock.Add(n.For), false
	if was := h.ownHold(n.Lane, n.Reason); was != nil {
		since, again = was.Since, true
	}
	if !n.Until.IsZero() {
		end = n.Until
	}
	h.rulings.rule(ruling{Hold: n, since: since, end: end, again: again})
}

// renew holds a lane whose probe has failed for twice as long as before, or for as long
// as the other side has asked for. If the machine has a network, the time grows only up
// to a tenth of that since the hold began: the first jobs of the lane may have hosts
// that are gone, and those behind them another one. It returns that time.
func (l *loop) renew(a *attempt, reason string, v *verdict, most time.Duration) (length time.Duration) {
	was, lane := l.waitsFor(a, reason), a.lane()
	if was == nil {
		return 0 // somebody has released it, or another job was let through
	}
	length = was.For
	switch {
	case v.class != policy.Unavailable && v.after > 0:
		length = v.after
	case reason == storage.HoldUnavailable && !v.local:
		length = max(length, min(2*min(length, math.MaxInt64/2), l.clock().Sub(was.Since)/10))
	default:
		length = min(length, math.MaxInt64/2) * 2
	}
	length = min(max(length, leastOutage), most)
	l.holdBy(storage.Hold{Lane: lane, Reason: reason, By: byEngine, Detail: v.text, For: length, Through: a.job.Lease})
	if clock := l.clock(); clock.Sub(was.Since) >= tellWeek && clock.Sub(l.ready.holds.told[lane]) >= tellAgain {
		if l.ready.holds.told == nil {
			l.ready.holds.told = map[storage.Lane]time.Time{}
		}
		l.ready.holds.told[lane] = clock
		l.cfg.Logger.Error("errand: jobs are held for more than a week", "queue", lane.Queue, "kind", lane.Kind,
			"reason", reason, "since", was.Since, "error", shorten(v.text, maxLogged))
	}
	return length
}

// release releases a lane that the engine holds for a reason.
func (l *loop) release(lane storage.Lane, reason string) {
	h := &l.ready.holds
	was := h.ownHold(lane, reason)
	if was == nil {
		return
	}
	if reason == storage.HoldUnavailable && l.clock().Sub(was.Since) >= leastShut {
		l.kick(lane)
	}
	h.rulings.rule(ruling{Hold: storage.Hold{Lane: lane, Reason: reason}, ends: true})
	delete(h.told, lane)
	l.cfg.Logger.Info("errand: jobs are no longer held", "queue", lane.Queue, "kind", lane.Kind, "reason", reason)
}

// callUnauthorized calls the hook of the handler of a lane, unless it runs. If it succeeds, a probe
// of each lane of the handler is let through, but not early again before the lane would have
// let one through by itself.
func (l *loop) callUnauthorized(lane storage.Lane) {
	h, _ := l.cfg.handler(lane.Queue, lane.Kind)
	hook, calls, owner := h.OnUnauthorized, &l.ready.holds, l.cfg.ownerOf(lane)
	if hook == nil || calls.asking[owner] {
		return
	}
	if calls.asking == nil {
		calls.asking = map[storage.Lane]bool{}
	}
	calls.asking[owner] = true
	if calls.hookCtx == nil {
		calls.hookCtx, calls.endHooks = context.WithCancel(l.runners.ctx)
	}
	ctx := calls.hookCtx
	go func() {
		fault := "runtime.Goexit was called"
		defer func() { // also if the hook ends this goroutine
			l.mail.post(func() {
				delete(calls.asking, owner)
				if fault != "" {
					failed := l.reports.lineOf(slog.LevelWarn, "errand: OnUnauthorized failed", owner.Kind)
					l.reports.limit(failed, fault, func() []any { return withError([]any{"queue", lane.Queue, "kind", lane.Kind}, fault) })
					return
				}
				l.hurry(owner)
			})
		}()
		fault = callHook(ctx, hook)
	}()
}

// stopHooks ends the contexts of hooks that run.
func (h *holds) stopHooks() {
	if h.endHooks != nil {
		h.endHooks()
	}
}

// callHook calls a function of the application and returns what went wrong. The text of
// an error is the application's too.
func callHook(ctx context.Context, hook func(context.Context) error) (fault string) {
	defer func() {
		if r := recover(); r != nil {
			fault = fmt.Sprintf("panic: %v", r)
		}
	}()
	if err := hook(ctx); err != nil {
		return cmp.Or(err.Error(), "an error without a text")
	}
	return ""
}

// hurry lets a probe of each lane of a handler through that is held since the other side
// refused the sender, and has none under way.
func (l *loop) hurry(owner storage.Lane) {
	now := time.Now()
	for lane, s := range l.outcomes.streaks {
		held := l.ready.holds.ownHold(lane, storage.HoldUnavailable)
		if l.cfg.ownerOf(lane) != owner || held == nil || held.By == byHandler || !s.unauthorized || l.probes(lane) || now.Sub(s.hurried) < held.For {
			continue
		}
		if clock := l.clock(); clock.Before(s.end) && !held.Until.After(s.end.Add(leastOutage)) { // else another probe may be out
			s.hurried = now
			l.endAt(held, clock, storage.Lease{})
		}
	}
}
