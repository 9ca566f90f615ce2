package engine

import "time"

const (
	// mostApart is how many attempts run beside the Concurrency of an engine at most.
	mostApart = 1000
	// apartEvery is the least time between two calls of setApart, as thousands of attempts
	// may start in a second.
	apartEvery = 10 * time.Millisecond
)

// most returns how many attempts run at a time at most.
func (c *Config) most() int {
	for h := range c.handlers() {
		if h.countsFor() > 0 {
			return c.Concurrency + mostApart
		}
	}
	return c.Concurrency
}

// countsFor returns how long an attempt counts for the Concurrency, zero for until it ends.
func (h *Handler) countsFor() time.Duration {
	if h.Batch != nil { // also of a job of it that runs alone
		return 0
	}
	return h.CountsFor
}

// countsFrom notes until when an attempt that starts counts for the Concurrency.
func (l *loop) countsFrom(a *attempt, now time.Time) {
	if d := a.handler.countsFor(); d > 0 {
		a.counts = now.Add(d)
		l.runners.apartAt = sooner(l.runners.apartAt, a.counts)
	}
}

// setApart notes the attempts that no longer count, as they have run for their CountsFor. For
// each of them a runner is added.
func (l *loop) setApart(now time.Time) {
	r := l.runners
	r.apartAt = time.Time{}
	for _, a := range l.leases.held {
		switch {
		case !a.running || a.apart || a.counts.IsZero():
		case !reached(a.counts, now):
			r.apartAt = sooner(r.apartAt, a.counts)
		case r.apart < mostApart: // the others are looked for when one of these has ended
			a.apart = true
			r.apart++
		}
	}
	r.apartAt = latest(r.apartAt, now.Add(apartEvery))
	r.adjust()
}

// endApart notes the end of an attempt, if it did not count.
func (r *runners) endApart(a *attempt) {
	if !a.apart {
		return
	}
	if r.apart == mostApart {
		r.apartAt = time.Now() // one that counts may take its place
	}
	a.apart = false
	r.apart--
	r.adjust()
}

// forgetGone drains gone, the channel to which each runner that ends sends.
func (r *runners) forgetGone() {
	for len(r.gone) > 0 {
		<-r.gone
		r.alive--
	}
}

// counted returns how long an attempt had a runner's place in its last call.
func (a *attempt) counted() time.Duration {
	if a.batch != nil {
		return a.batch.took
	}
	if d := a.handler.countsFor(); d > 0 {
		return min(a.took, d)
	}
	return a.took
}
