package engine

import (
	"math"
	"time"
)

// SetConcurrency sets how many handlers run at a time, before Run and while it works.
// More can start at once; if there are to be fewer, those that run may end.
func (e *Engine) SetConcurrency(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loop == nil {
		e.cfg.Concurrency = n
		return
	}
	m := &e.loop.mail
	m.mu.Lock()
	m.resize = n
	m.mu.Unlock()
	m.ring()
}

// resize lets n handlers run at a time.
func (l *loop) resize(n int, now time.Time) {
	if n == l.cfg.Concurrency || !l.shutdown.working() {
		return
	}
	l.cfg.Logger.Info("errand: worker has another concurrency", "concurrency", n, "before", l.cfg.Concurrency)
	l.cfg.Concurrency = n
	l.runners.resize(n, l.cfg.most())
	rs := &l.sources.ramps
	if rs.bounds.resize(l.cfg.most()) {
		rs.stale = true // the limited ones come first
		rs.lookSoon(now)
	}
	for lane, r := range rs.bounds.ramps {
		if r.full = l.atATime(lane); !r.closed {
			rs.forget(lane, r, now)
		}
	}
}

// resize lets n attempts run at a time that count, and most with those that do not.
func (r *runners) resize(n, most int) {
	if r.n = n; most > cap(r.work) {
		r.replace(most)
	}
	r.adjust()
}

// adjust has as many runners serve as there may be attempts.
func (r *runners) adjust() {
	if r.dismissed {
		return
	}
	r.forgetGone()
	for ; r.serve < r.n+r.apart; r.serve++ {
		r.alive++
		go r.run(r.work, r.ended)
	}
	// The channel has room: each attempt in it, and each nil, is for a runner that
	// was counted once, and there were never more of these than it holds.
	for ; r.serve > r.n+r.apart; r.serve-- {
		r.work <- nil
	}
}

// replace makes room for n runners, which are all new. The others end with their
// attempts.
func (r *runners) replace(n int) {
	close(r.work)
	before, busy := r.ended, r.busy
	ended := make(chan *attempt, n)
	r.work, r.ended, r.serve = make(chan *attempt, n), ended, 0
	if busy == 0 {
		return
	}
	go func() {
		for range busy {
			ended <- <-before
		}
	}()
}

// resize sets the bounds for n runners, and reports whether one has changed. What has
// a limit has a bound also where only the runners count: what is leased must be known
// when there are more of them.
func (all *bounds) resize(n int) (changed bool) {
	for _, of := range []map[string]*bound{all.queues, all.kinds} {
		for _, b := range of {
			was := b.most
			if b.most = b.limit; b.limit == 0 || b.limit >= n {
				b.most = math.MaxInt
			}
			changed = changed || b.most != was
		}
	}
	return changed
}
