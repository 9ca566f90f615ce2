package engine

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// starts are attempts whose start is written before their handlers are called, see
// [storage.Leased].WriteStart. Each has a runner kept free for it, and its place in the turnstile if it
// is a suspect. An attempt whose start was written goes back to those that wait, before the
// others.
type starts struct {
	waiting []*attempt // for the next exchange
	flight  []*attempt // in the exchange under way
}

// writeStart has the start of an attempt be written that a runner is free for.
func (l *loop) writeStart(a *attempt) {
	a.starting = true
	l.runners.kept++
	l.ready.starts.waiting = append(l.ready.starts.waiting, a)
}

// stopStarting gives up what was kept for an attempt while its start was to be written.
func (l *loop) stopStarting(a *attempt) {
	if !a.starting {
		return
	}
	a.starting = false
	l.runners.kept--
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

// started takes the results of the starts in an exchange.
func (l *loop) started(results []storage.ItemResult, now time.Time) {
	s := &l.ready.starts
	var first, suspects []*attempt
	for i, a := range s.flight {
		if !a.starting {
			continue // gone meanwhile
		}
		if results[i] != storage.Applied {
			l.lose(a, now)
			continue
		}
		l.stopStarting(a)
		a.written = true
		switch {
		case !l.shutdown.working(), l.held(a.job):
			l.leases.release(a)
			l.giveBack(a, time.Time{})
		case a.suspect:
			suspects = append(suspects, a)
		default:
			first = append(first, a)
		}
	}
	l.ready.waiting = slices.Insert(l.ready.waiting, 0, first...)
	l.ready.suspects.waiting = slices.Insert(l.ready.suspects.waiting, 0, suspects...)
	clear(s.flight)
	s.flight = s.flight[:0]
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
