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

// health is what the loop knows of the store from its exchanges and from the
// notes of starts. The first one that fails begins a streak of errors. A streak
// that began with an exchange ends with an exchange that succeeds, one that began
// with a note ends with a note. Chores have a backoff of their own.
type health struct {
	err     error // the last one of the streak; nil: there is no streak
	atStart bool  // the streak began with the note of a start
	// cannotLease: the disk had no space for an exchange that leases.
	cannotLease bool
	backoff     time.Duration
	retryAt     time.Time // the store is not called before
}

// failed notes an error. The store is left alone for a time that grows with each
// error of the streak.
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

// longer returns the backoff that follows another failure.
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

// worksAgain ends a streak of errors.
func (l *loop) worksAgain() {
	if l.health.err == nil {
		return
	}
	l.cfg.Logger.Info("errand: the store works again")
	l.health = health{}
}

// fatalErrors are errors that another try cannot help.
var fatalErrors = []error{
	storage.ErrClosed, storage.ErrCorrupt, storage.ErrTooNew, storage.ErrUnknownOutcome, storage.ErrUnsupportedDB,
}

// endsWork begins to stop if err is fatal, and reports whether it is. An unknown outcome is
// not if the store stays open. forWork is false for an exchange of outcomes and heartbeats
// alone: after any other call a damaged store may still take those.
func (l *loop) endsWork(err error, forWork bool, now time.Time) bool {
	_, open := errors.AsType[*storage.UnknownOutcomeError](err)
	for _, fatal := range fatalErrors {
		if !errors.Is(err, fatal) || open && errors.Is(fatal, storage.ErrUnknownOutcome) {
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
