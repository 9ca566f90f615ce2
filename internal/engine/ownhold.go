package engine

import (
	"context"
	"fmt"
	"log/slog"
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
	held := &storage.HoldState{Lane: lane, Reason: reason, By: n.By, Detail: n.Detail, For: n.For, Since: n.since, Until: n.end}
	if read != nil {
		held.Waiting, held.Ready = read.Waiting, read.Ready
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
	l.holdBy(byEngine, lane, reason, detail, length)
}

// holdBy is hold for somebody.
func (l *loop) holdBy(who string, lane storage.Lane, reason, detail string, length time.Duration) {
	// So that many who lost the same other side do not come back together.
	length += time.Duration(float64(length) / 10 * l.cfg.Rand())
	if reason == storage.HoldUnavailable {
		s := l.outcomes.streaks.of(lane)
		s.heldAt, s.end = time.Now(), l.clock().Add(length)
	}
	l.ready.holds.begin(storage.Hold{Lane: lane, Reason: reason, By: who, For: length, Detail: cut(detail, maxLogged)}, l.clock())
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
func (l *loop) renew(lane storage.Lane, reason string, v *verdict, most time.Duration) (length time.Duration) {
	was := l.ready.holds.ownHold(lane, reason)
	if was == nil {
		return 0 // somebody has released it
	}
	length = was.For
	switch {
	case v.class != policy.Unavailable && v.after > 0:
		length = v.after
	case reason == storage.HoldUnavailable && !v.local:
		length = max(length, min(2*length, l.clock().Sub(was.Since)/10))
	default:
		length *= 2
	}
	length = min(max(length, leastOutage), most)
	l.hold(lane, reason, v.text, length)
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

// callUnauthorized calls the hook of a kind, unless it runs. If it succeeds, a probe of
// each lane of the kind is let through, but not early again before the lane would have
// let one through by itself.
func (l *loop) callUnauthorized(kind string) {
	hook, calls := l.cfg.Handlers[kind].OnUnauthorized, &l.ready.holds
	if hook == nil || calls.asking[kind] {
		return
	}
	if calls.asking == nil {
		calls.asking = map[string]bool{}
	}
	calls.asking[kind] = true
	if calls.hookCtx == nil {
		calls.hookCtx, calls.endHooks = context.WithCancel(l.runners.ctx)
	}
	ctx := calls.hookCtx
	go func() {
		err := callHook(ctx, hook)
		l.mail.post(func() {
			delete(calls.asking, kind)
			if err != nil {
				failed := l.reports.lineOf(slog.LevelWarn, "errand: OnUnauthorized failed", kind)
				l.reports.limit(failed, err.Error(), func() []any { return withError([]any{"kind", kind}, err.Error()) })
				return
			}
			l.hurry(kind)
		})
	}()
}

// stopHooks ends the contexts of hooks that run.
func (h *holds) stopHooks() {
	if h.endHooks != nil {
		h.endHooks()
	}
}

// callHook calls a function of the application.
func callHook(ctx context.Context, hook func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return hook(ctx)
}

// hurry lets a probe of each lane of a kind through that is held since the other side
// refused the sender, and has none under way.
func (l *loop) hurry(kind string) {
	now := time.Now()
	for lane, s := range l.outcomes.streaks {
		held := l.ready.holds.ownHold(lane, storage.HoldUnavailable)
		if l.cfg.nameOf(lane.Kind) != kind || held == nil || held.By == byHandler || !s.unauthorized || l.probes(lane) || now.Sub(s.hurried) < held.For {
			continue
		}
		if clock := l.clock(); clock.Before(s.end) && !held.Until.After(s.end.Add(leastOutage)) { // else another probe may be out
			s.hurried = now
			l.endAt(held, clock)
		}
	}
}

// probes reports whether a probe of a lane is under way here.
func (l *loop) probes(lane storage.Lane) bool {
	return slices.ContainsFunc(l.leases.held, func(a *attempt) bool {
		return a.job.Probe && a.job.Queue == lane.Queue && a.job.Kind == lane.Kind
	})
}

// endAt moves the end of a hold, and leaves its length as it is.
func (l *loop) endAt(held *storage.HoldState, until time.Time) {
	n := storage.Hold{Lane: held.Lane, Reason: held.Reason, By: held.By, Until: until, For: held.For, Detail: held.Detail}
	l.ready.holds.begin(n, l.clock())
}

// endsAt moves the ends of the holds that have let a job through.
func (l *loop) endsAt(probe *storage.Leased, until time.Time) {
	for _, reason := range [...]string{storage.HoldUnavailable, storage.HoldBrake} {
		if held := l.ready.holds.ownHold(storage.Lane{Queue: probe.Queue, Kind: probe.Kind}, reason); held != nil {
			l.endAt(held, until)
		}
	}
}

// ajar has another job let through soon, in place of a probe that has shown nothing or
// goes back without having started. Else its lane would be closed until the end of the
// lease.
func (l *loop) ajar(probe *storage.Leased) { l.endsAt(probe, l.clock().Add(leastOutage)) }

// extendProbes lets no other job through while a probe runs for longer than its first
// lease. It is called with each heartbeat.
func (l *loop) extendProbes() {
	if len(l.ready.holds.own) == 0 {
		return
	}
	for _, a := range l.leases.held {
		if a.job.Probe && !a.lost {
			l.endsAt(a.job, l.clock().Add(l.cfg.LeaseDuration))
		}
	}
}
