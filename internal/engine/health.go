package engine

import (
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// health is what the loop knows of the store by the results of its exchanges
// and of the notes of starts. A chore that fails is no part of it: it holds up
// nothing but itself.
type health struct {
	err     error // of a streak of errors that is going on; nil: none
	atStart bool  // the streak began with the note of a start
	// cannotLease: there was no space for an exchange that leases.
	cannotLease bool
	backoff     time.Duration
	retryAt     time.Time // no call of the store before
}

// failed has the store left alone for a while, longer with each failure until
// what failed first works again.
func (h *health) failed(err error, atStart, leasing bool, now time.Time) {
	if h.err == nil {
		h.atStart = atStart
	}
	h.cannotLease = (leasing || h.cannotLease) && errors.Is(err, storage.ErrFull)
	h.err = err
	h.backoff = longer(h.backoff)
	h.retryAt = now.Add(h.backoff)
}

// later returns t, or when the store may be called again if that is later.
func (h *health) later(t time.Time) time.Time { return latest(t, h.retryAt) }

// longer returns the backoff after the next failure.
func longer(backoff time.Duration) time.Duration {
	return min(max(2*backoff, minBackoff), maxBackoff)
}

// trouble notes that an exchange or the note of a start failed.
func (l *loop) trouble(err error, atStart, leasing bool, now time.Time) {
	l.complain(err)
	l.health.failed(err, atStart, leasing, now)
}

// complain logs the first error of a streak.
func (l *loop) complain(err error) {
	if l.health.err == nil && !l.chores.failing() {
		l.cfg.Logger.Error("errand: the store failed, trying again", "error", err)
	}
}

// recovered ends a streak of errors.
func (l *loop) worksAgain() {
	if l.health.err == nil {
		return
	}
	l.cfg.Logger.Info("errand: the store works again")
	l.health = health{}
}

// fatalErrors are those that asking again cannot help.
var fatalErrors = []error{
	storage.ErrClosed, storage.ErrCorrupt, storage.ErrTooNew, storage.ErrUnknownOutcome, storage.ErrUnsupportedDB,
}

// endsWork begins to stop if err is one that asking again cannot help, and
// reports whether it is. A store that is damaged may still take outcomes and
// heartbeats, unless the call that failed was for nothing else.
func (l *loop) endsWork(err error, forWork bool, now time.Time) bool {
	for _, fatal := range fatalErrors {
		if !errors.Is(err, fatal) {
			continue
		}
		if errors.Is(fatal, storage.ErrCorrupt) && forWork {
			l.refuse(err, now)
		} else {
			l.die(err, now)
		}
		return true
	}
	return false
}
