package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	// suspectCrashes is how many crashes in a row make a job a suspect.
	suspectCrashes = 2
	tryEvery       = 100 * time.Millisecond
	// tryPatience is how long a suspect waits before another process may try.
	tryPatience = 5 * time.Second
)

// processSuspects is the turnstile of all engines of the process. Two suspects must
// not run at a time: if the process died, either could be to blame.
var processSuspects Turnstile

// Turnstile lets one suspect run at a time, or several of one kind that is trusted.
// The zero Turnstile is free.
type Turnstile struct {
	mu    sync.Mutex
	n     int    // suspects that run
	kind  string // of those
	alone bool   // no other may join
}

func (g *Turnstile) enter(kind string, together bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n > 0 && (g.alone || !together || kind != g.kind) {
		return false
	}
	g.n++
	g.kind, g.alone = kind, !together
	return true
}

func (g *Turnstile) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
}

// ofHandler returns the MaxCrashes that the handler of a lane has of its own.
func (c *Config) ofHandler(queue, kind string) int {
	h, _ := c.handler(queue, kind)
	return h.MaxCrashes
}

// diesOf reports whether a job is dead after crashes in a row: as many as the MaxCrashes of its
// handler, or one for a policy without retries. With a MaxCrashes of [NoCrashes] none is.
func (c *Config) diesOf(crashes int, job *storage.Leased, d policy.Document) bool {
	most := cmp.Or(c.ofHandler(job.Queue, job.Kind), c.MaxCrashes)
	return most != NoCrashes && (crashes >= most || d.For(policy.Retryable).Retries <= 0)
}

// suspects are jobs that may be to blame for the death of their processes.
type suspects struct {
	waiting []*attempt // for the turnstile
	tryAt   time.Time  // try the turnstile again
	turned  int        // suspects given back since one was started
	// trusted is true for a kind whose suspects may run together, and false for
	// one whose suspects never may again.
	trusted map[string]bool
}

// startSuspects starts suspects as far as the turnstile lets them. Once a suspect of
// a kind has ended well the others of the kind run together: most likely somebody
// had killed the process. One of them may be to blame all the same, and nobody
// would know which. So a death in company counts as a crash for none, see
// [attempt.run], and no start of theirs is written. But it makes them run one by one
// again: those that were running, see [cutOff], and all others of the kind in a process
// that knows of the death, see [suspects.distrust].
func (l *loop) startSuspects(now time.Time) {
	l.ready.suspects.tryAt = time.Time{}
	for len(l.ready.suspects.waiting) > 0 && l.runners.free() > 0 && now.Before(l.ready.suspects.waiting[0].safe) {
		a := l.ready.suspects.waiting[0]
		if l.unread(a) {
			return
		}
		a.company = l.ready.suspects.trusted[a.job.Kind] && !cutOff(a.job)
		switch {
		case l.cfg.Suspects.enter(a.job.Kind, a.company):
			l.ready.suspects.waiting = slices.Delete(l.ready.suspects.waiting, 0, 1)
			l.ready.suspects.turned = 0
			if !l.start(a, now) {
				l.cfg.Suspects.leave()
			}
		case now.Sub(a.leased) > tryPatience && !l.cfg.alone():
			// Another process may have its turnstile free.
			l.unqueue(a)
			l.turnBack(a)
		default:
			l.ready.suspects.tryAt = now.Add(tryEvery)
			return
		}
	}
}

// cutOff reports whether an attempt of a suspect may have been interrupted, as by a
// death in company. The counters of a job are all that every process knows. They
// leave the question open for a job that was redriven, for one whose earlier
// crashes were forgotten after a failure, and for one that could not reach the other
// side: such a suspect runs alone too. One of a store that is no [storage.Marker] was cut off
// once before its crashes counted.
func cutOff(job *storage.Leased) bool {
	known := 0
	if job.WriteStart {
		known++
	}
	return spared(job) > known
}

// turnBack gives back a suspect that cannot start. The delay grows with the
// number of such suspects, so that leasing them does not keep the worker busy.
func (l *loop) turnBack(a *attempt) {
	l.ready.suspects.turned++
	l.giveBack(a, l.clock().Add(min(time.Duration(l.ready.suspects.turned)*backDelay, mostBack)))
}

// acquit trusts a kind once a suspect of the kind has ended that ran alone.
func (s *suspects) acquit(a *attempt) {
	if _, known := s.trusted[a.job.Kind]; !known && a.suspect && !a.company && a.verdict.kind != verdictUnstarted {
		s.trusted[a.job.Kind] = true
	}
}

// distrust ends the trust in a kind if a job of the kind was running in a process
// that is gone, and does so for good if the job was a suspect.
func (s *suspects) distrust(r *storage.Reclaimed) {
	switch {
	case r.Fate == storage.Unstarted:
	case r.Crashes >= suspectCrashes:
		s.trusted[r.Kind] = false
	case r.Fate == storage.Crashed && s.trusted[r.Kind]:
		delete(s.trusted, r.Kind)
	}
}
