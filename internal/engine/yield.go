package engine

import (
	"slices"
	"time"
)

// yieldAt returns when the first attempt has waited too long for a runner, or
// zero if none waits for one. Parts of a call wait as long as it takes.
func (l *loop) yieldAt() time.Time {
	r := &l.ready
	if i := slices.IndexFunc(r.waiting, firstCall); i >= 0 && l.runners.free() == 0 {
		return r.waiting[i].leased.Add(r.pace.patience())
	}
	return time.Time{}
}

// yield gives back the jobs that were leased ahead if the handlers turn out to
// take longer than expected. Nothing is leased ahead then until a handler has
// ended. The jobs lose nothing, not even their place.
func (l *loop) yield(now time.Time) {
	r := &l.ready
	if !l.shutdown.working() || !reached(l.yieldAt(), now) {
		return
	}
	l.giveBackWaiting(firstCall)
	r.yielded = true
	r.pace.handler = max(r.pace.handler, patience)
}

// giveBackWaiting gives back the jobs that wait for a runner, if back reports true of those which
// stand for their calls.
func (l *loop) giveBackWaiting(back func(*attempt) bool) {
	l.ready.waiting = slices.DeleteFunc(l.ready.waiting, func(w *attempt) bool {
		if !back(w) {
			return false
		}
		for _, a := range w.members() {
			l.leases.release(a)
			l.giveBack(a, time.Time{})
		}
		return true
	})
}

// firstCall reports whether the handler was not called under the lease of a.
func firstCall(a *attempt) bool { return !a.again }
