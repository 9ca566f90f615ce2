package storagetest

import (
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

// hold says that g is held for certain, or is not any more.
func (w *watch) hold(g *granted, held bool) {
	j := g.of
	switch {
	case held && j.held == nil:
		j.held = g
		w.count(j, 1)
	case !held && j.held == g:
		j.held = nil
		w.count(j, -1)
	}
}

// leased says what a call of d has leased that began at c.
func (w *watch) leased(c moment, d *desk, all ...storage.Leased) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	for i := range all {
		w.lease(c, d, &all[i], false)
	}
}

// lease says that a job was leased, by a Reclaim or not.
func (w *watch) lease(c moment, d *desk, l *storage.Leased, reclaimed bool) {
	j := w.at(l.ID)
	g := &granted{Lease: l.Lease, of: j, by: d}
	w.note(j, "leased with token %d by a call begun at %d", l.Token, c.step)
	if w.leases[l.Lease] != nil || l.Token <= c.token {
		w.wrong(j, "token %d is not new: %d was given before the call began", l.Token, c.token)
	}
	w.leases[l.Lease] = g
	w.last.token = max(w.last.token, l.Token)
	if j.held != nil {
		w.wrong(j, "it is leased with token %d, and was leased with token %d", j.held.Token, l.Token)
	}
	if j.done > 0 || j.evicted || j.expired && j.redriven == 0 {
		w.wrong(j, "it is leased, and has ended before")
	}
	if !j.known { // the call that inserts it has not returned
		j.job.Queue, j.job.Kind = l.Queue, l.Kind
	}
	w.inTurn(j)
	j.leased = true
	w.hold(g, true)
	if h := w.held[storage.Lane{Queue: l.Queue, Kind: l.Kind}]; h != nil && h.since > 0 && h.since < c.step && !l.Urgent && !reclaimed {
		w.wrong(j, "it is leased, and its lane has been held since %d", h.since)
	}
}

// inTurn checks that no other member of the group of j should have been leased before: if
// they run one at a time, one whose insertion had ended before that of j began.
func (w *watch) inTurn(j *watched) {
	g := j.follower
	if g == nil || g.limit > 1 {
		return
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(o *watched) bool { return o.touched || o.leased })
	for _, o := range g.waiting {
		if o != j && o.back < j.began.step {
			w.wrong(j, "it is leased, and job %d of its group, which was inserted before, was not:\n\t%s", o.id.Key(), strings.Join(o.was, "\n\t"))
		}
	}
}

// ending says that a call is about to begin which may end these leases. It returns those
// that are held for certain, unless another call ends them meanwhile.
func (w *watch) ending(leases ...storage.Lease) map[storage.Lease]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sure := map[storage.Lease]bool{}
	for _, l := range leases {
		g := w.leases[l]
		sure[l] = g.of.held == g
		w.hold(g, false)
		g.ending++
		g.tries++
		g.of.touched = true
		w.note(g.of, "token %d is being ended", l.Token)
	}
	return sure
}

// withdrawn says that a call which might have ended the leases has changed nothing.
func (w *watch) withdrawn(sure map[storage.Lease]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	for l, was := range sure {
		g := w.leases[l]
		if g.ending--; was && g.ending == 0 && g.applied == 0 && !g.by.isGone() {
			w.hold(g, true)
			w.note(g.of, "token %d is held on", l.Token)
		}
	}
}

// ended says how a call has ended a lease. sure is what ending has said of it.
func (w *watch) ended(f storage.Finish, r storage.ItemResult, keep storage.Retention, sure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	g := w.leases[f.Lease]
	j := g.of
	g.ending--
	w.note(j, "token %d has ended as %v: %d", f.Token, f.Outcome, r)
	switch {
	case r != storage.Applied && sure && g.tries == 1:
		w.wrong(j, "token %d was held, and ending it as %v returned %d", f.Token, f.Outcome, r)
	case r != storage.Applied:
		return
	}
	if g.applied++; g.applied > 1 {
		w.wrong(j, "token %d has ended %d times", f.Token, g.applied)
	}
	switch j.unkept = j.unkept || keep.Default <= 0; f.Outcome {
	case storage.OutcomeDone:
		w.sums.done++
		if j.done++; j.done > 1 {
			w.wrong(j, "it is done %d times", j.done)
		}
	case storage.OutcomeDead:
		j.died++
		w.sums.died++
	case storage.OutcomeCancelled:
		j.cancels++
	}
}

// extended says what extending a lease has returned. It was held for certain before, after
// so many calls that may have ended it.
func (w *watch) extended(l storage.Lease, what string, r storage.ItemResult, tries int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	g := w.leases[l]
	if tries >= 0 && g.tries == tries && g.of.held == g && r != storage.Applied && r != storage.Cancelling {
		w.wrong(g.of, "token %d is held, and %s returned %d", l.Token, what, r)
	}
}

// sureOf returns how many calls may have ended a lease that is held for certain, else -1.
func (w *watch) sureOf(l storage.Lease) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.leases[l]; g.of.held == g {
		return g.tries
	}
	return -1
}

// reclaimed says that d has taken leases.
func (w *watch) reclaimed(c moment, d *desk, all []storage.Reclaimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	for i := range all {
		w.lease(c, d, &all[i].Leased, true)
	}
}

// lapse says that an instance is about to be gone.
func (w *watch) lapse(d *desk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.leases {
		if g.by == d {
			g.tries++
			w.hold(g, false)
		}
	}
}
