package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// suspectCrashes is how many crashes in a row make a job a suspect.
	suspectCrashes = 2
	gateEvery      = 100 * time.Millisecond
	// gatePatience is how long a suspect waits before another process may try.
	gatePatience = 5 * time.Second
)

// processSuspects is the gate of all engines of the process: a job that may
// bring it down must not do so in the company of another that may.
var processSuspects Gate

// Gate lets one suspect at a time through, or several of one kind that is
// trusted. The zero Gate is open.
type Gate struct {
	mu    sync.Mutex
	n     int // are through
	kind  string
	alone bool // and the one bears no company
}

func (g *Gate) enter(kind string, together bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n > 0 && (g.alone || !together || kind != g.kind) {
		return false
	}
	g.n++
	g.kind, g.alone = kind, !together
	return true
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
}

// suspects are jobs that may be to blame for the death of their processes.
type suspects struct {
	waiting []*attempt      // for the gate
	gateAt  time.Time       // try it again
	turned  int             // given back since one was started
	trusted map[string]bool // kinds whose suspects may run together; false: never again
}

// startSuspects starts suspects as far as the gate lets them. Once one of a
// kind has ended the others of it go together: most likely somebody had killed
// the process. It could be one of them all the same, and nobody would know
// which: so a death in company is held against none, see [attempt.run], but
// has them go one by one again: those that were in it, see [cutOff], and all
// others that a process which knows of it leases, see [suspects.distrust].
func (l *loop) startSuspects(now time.Time) {
	l.ready.suspects.gateAt = time.Time{}
	for len(l.ready.suspects.waiting) > 0 && l.runners.free() > 0 && now.Before(l.ready.suspects.waiting[0].safe) {
		a := l.ready.suspects.waiting[0]
		a.company = l.ready.suspects.trusted[a.job.Kind] && !cutOff(a.job)
		switch {
		case l.cfg.Suspects.enter(a.job.Kind, a.company):
			l.ready.suspects.waiting = slices.Delete(l.ready.suspects.waiting, 0, 1)
			l.ready.suspects.turned = 0
			if !l.start(a, now) {
				l.cfg.Suspects.leave()
			}
		case now.Sub(a.leased) > gatePatience && !l.cfg.alone():
			// Another process may have its gate open.
			l.unqueue(a)
			l.turnBack(a)
		default:
			l.ready.suspects.gateAt = now.Add(gateEvery)
			return
		}
	}
}

// cutOff reports whether an attempt of a suspect was interrupted, as in company
// by the death of its process. Whoever recovered the job, another process
// perhaps, knows more, but only the job is there for all.
func cutOff(job *storage.Leased) bool {
	return job.Attempt-1 > job.Retry+job.Crashes+job.Snoozes
}

// turnBack gives back a suspect that cannot start, for the longer the more of
// them there are: many must not keep the worker busy with leasing them.
func (l *loop) turnBack(a *attempt) {
	l.ready.suspects.turned++
	l.giveBack(a, l.clock().Add(min(time.Duration(l.ready.suspects.turned)*backDelay, mostBack)))
}

// acquit trusts a kind once a suspect of it has ended that ran by itself.
func (s *suspects) acquit(a *attempt) {
	if _, known := s.trusted[a.job.Kind]; !known && a.suspect && !a.company && a.verdict.kind != verdictUnstarted {
		s.trusted[a.job.Kind] = true
	}
}

// distrust takes the trust in a kind back when one of its jobs was running in
// a process that is gone: for good if that was a suspect.
func (s *suspects) distrust(r *storage.Reclaimed) {
	switch {
	case r.Fate == storage.Unstarted:
	case r.Crashes >= suspectCrashes:
		s.trusted[r.Kind] = false
	case r.Fate == storage.Crashed && s.trusted[r.Kind]:
		delete(s.trusted, r.Kind)
	}
}
