package engine

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// starts are attempts whose start is written before their handlers are called, see
// [storage.Leased].WriteStart. Each was paid for, has a runner kept free for it, and has its
// place in the turnstile if it is a suspect. So the handler is called as soon as its start was
// written: if the process died between the two, the job would be to blame.
type starts struct {
	waiting []*attempt // for the next exchange
	flight  []*attempt // in the exchange under way
	stop    bool       // what was written of attempts that run is to be taken back
}

// writeStart has the start of an attempt be written that a runner is free for.
func (l *loop) writeStart(a *attempt) {
	a.starting = true
	l.runners.kept++
	l.ready.starts.waiting = append(l.ready.starts.waiting, a)
}

// stopStarting gives up what was kept for an attempt whose handler is not called after all.
func (l *loop) stopStarting(a *attempt) {
	if !a.starting {
		return
	}
	a.starting = false
	l.runners.kept--
	a.unpay()
	if a.suspect {
		l.cfg.Suspects.leave()
	}
}

// send returns the leases of the attempts that are to start, for the next exchange. Some may be
// gone by now.
func (s *starts) send() (leases []storage.Lease) {
	s.flight, s.waiting = s.waiting, s.flight[:0]
	s.flight = slices.DeleteFunc(s.flight, func(a *attempt) bool { return !a.starting })
	for _, a := range s.flight {
		leases = append(leases, a.job.Lease)
	}
	return leases
}

// stops returns the leases of the attempts that run and whose start was written, for the next
// exchange, as the worker is being stopped.
func (l *loop) stops() (leases []storage.Lease) {
	if !l.ready.starts.stop {
		return nil
	}
	for _, a := range l.leases.held {
		if a.written && a.running && !a.lost {
			leases = append(leases, a.job.Lease)
		}
	}
	l.ready.starts.stop = len(leases) > 0
	return leases
}

// started takes the results of the starts in an exchange.
func (l *loop) started(results []storage.ItemResult, now time.Time) {
	s := &l.ready.starts
	l.ready.watched = len(s.flight) > 0 && l.cfg.listens()
	for i, a := range s.flight {
		switch {
		case !a.starting: // gone meanwhile
		case results[i] != storage.Applied:
			l.lose(a, now)
		case l.mustWait(a, now):
			l.unqueue(a)
			l.giveBack(a, time.Time{})
		default:
			a.starting, a.written = false, true
			l.runners.kept--
			l.hand(a, now)
		}
	}
	clear(s.flight)
	s.flight = s.flight[:0]
}

// mustWait reports whether the handler of an attempt must not be called now, for what has
// happened while its start was written.
func (l *loop) mustWait(a *attempt, now time.Time) bool {
	return !l.shutdown.working() || !now.Before(a.safe) || l.runners.over() || l.held(a.job) || l.shutOut(a)
}

// notStarted keeps the starts of an exchange that failed for the next one.
func (l *loop) notStarted() {
	s := &l.ready.starts
	s.flight = append(s.flight, s.waiting...)
	clear(s.waiting)
	s.flight, s.waiting = s.waiting[:0], s.flight
	if !l.shutdown.working() {
		l.giveBackStarts()
	}
}

// giveBackStarts gives back the jobs whose start waits to be written.
func (l *loop) giveBackStarts() {
	s := &l.ready.starts
	for _, a := range s.waiting {
		if a.starting {
			l.unqueue(a)
			l.giveBack(a, time.Time{})
		}
	}
	clear(s.waiting)
	s.waiting = s.waiting[:0]
}
