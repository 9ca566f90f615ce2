package engine

import (
	"errors"
	"log/slog"
	"time"

	"github.com/errandq/errand/storage"
)

// leases are all leases that the engine holds. A lease is released when its
// outcome is known, or when it is lost before it started.
type leases struct {
	held      []*attempt
	extending []*attempt      // by the exchange under way
	names     []storage.Lease // of extending

	heartbeatAt time.Time // extend all leases
	loseAt      time.Time // a lease may no longer be safe
	stuckAt     time.Time // an attempt may be stuck
}

// hold adds a lease of this length that was asked for at sent.
func (s *leases) hold(a *attempt, sent time.Time, length time.Duration) {
	a.slot = len(s.held)
	s.held = append(s.held, a)
	a.occupy(1)
	if s.heartbeatAt.IsZero() {
		s.heartbeatAt = sent.Add(length / 3)
	}
}

// release removes the lease of an attempt.
func (s *leases) release(a *attempt) {
	last := len(s.held) - 1
	s.held[a.slot] = s.held[last]
	s.held[a.slot].slot = a.slot
	s.held[last] = nil
	s.held = s.held[:last]
	a.gone = true
	a.occupy(-1)
	if a.probing != nil && a.probing.last {
		a.onRamps(1) // which it has left before
	}
	if last == 0 {
		s.heartbeatAt, s.loseAt, s.stuckAt = time.Time{}, time.Time{}, time.Time{}
	}
}

// extend begins a heartbeat and returns the leases to extend.
func (s *leases) extend() []storage.Lease {
	s.names = s.names[:0]
	for _, a := range s.held {
		if !a.lost && !a.isCompleted() {
			s.extending = append(s.extending, a)
			s.names = append(s.names, a.job.Lease)
		}
	}
	return s.names
}

// last returns the attempt that has the lease.
func (a *attempt) last() *attempt {
	for a.next != nil {
		a = a.next
	}
	return a
}

// extended ends the heartbeat that is under way.
func (s *leases) extended() {
	clear(s.extending)
	s.extending = s.extending[:0]
}

// safe returns until when a lease that was asked for at sent is held for
// certain.
func (l *loop) safe(sent time.Time) time.Time {
	return sent.Add(l.cfg.LeaseDuration - l.cfg.LeaseDuration/6)
}

// extended takes the results of a heartbeat that was sent at sent.
func (l *loop) extended(results []storage.ItemResult, sent, now time.Time) {
	if len(l.leases.extending) == 0 {
		return
	}
	for i, a := range l.leases.extending {
		a = a.last()
		if a.gone {
			continue // released meanwhile
		}
		switch results[i] {
		case storage.Applied:
			a.safe = latest(a.safe, l.safe(sent))
		case storage.Cancelling:
			a.safe = latest(a.safe, l.safe(sent))
			l.cancelJob(a, now)
		case storage.Ended:
			a.own.commit()
		default:
			l.lose(a, now)
		}
	}
	l.leases.extended()
	l.leases.watch()
}

// cancelFor cancels the context of a running attempt. The first cause counts.
func (l *loop) cancelFor(a *attempt, cause error, now time.Time) {
	if !a.running || a.cause != nil {
		return
	}
	a.cause = cause
	a.cancel(cause)
	if a.batch != nil {
		a = a.batch.cancelled(cause)
	}
	if a != nil { // else others of its batch go on
		l.expectEnd(a, now)
	}
}

// cancelJob ends an attempt whose job somebody has cancelled.
func (l *loop) cancelJob(a *attempt, now time.Time) {
	if a.running {
		l.cancelFor(a, ErrCancelled, now)
		return
	}
	if a.job.Probe {
		l.ajar(a.job)
	}
	l.unqueue(a)
	f := storage.Finish{Lease: a.job.Lease, Outcome: storage.OutcomeReturned, Error: ErrCancelled.Error()}
	if a.again {
		f.Outcome = storage.OutcomeCancelled
	}
	l.addBack(a, f)
}

// lose notes that a lease is no longer held.
func (l *loop) lose(a *attempt, now time.Time) {
	if a.lost || a.isCompleted() { // and its handler has returned meanwhile
		return
	}
	a.lost = true
	if !a.feared() {
		l.tellJob(EventLeaseLost, a.job)
	}
	l.reports.job(slog.LevelWarn, leaseLost, a.job, "")
	if a.running {
		l.cancelFor(a, ErrLeaseLost, now)
	} else {
		l.giveBackBehind(a)
		l.unqueue(a)
	}
}

// feared reports whether it was told that the lease of an attempt is lost.
func (a *attempt) feared() bool { return errors.Is(a.cause, ErrLeaseLost) }

// loseUnsafe cancels the handlers whose leases could not be extended, while
// the leases are still held for certain. Heartbeats go on: one may succeed after
// all as long as nobody else took the lease, and keeps the job from being run
// twice at a time.
func (l *loop) loseUnsafe(now time.Time) {
	l.keepLeases(now)
	for _, a := range l.leases.held {
		if a.running && a.cause == nil && !now.Before(a.safe) && !a.isCompleted() {
			l.tellJob(EventLeaseLost, a.job)
			l.reports.job(slog.LevelWarn, notExtended, a.job, "")
			l.cancelFor(a, ErrLeaseLost, now)
		}
	}
	l.leases.watch()
}

// keepLeases keeps the leases if they cannot be extended because nobody can
// write, as while another program has a transaction open. Nobody could have
// taken them then, and a pulse keeps others from it for another lease.
func (l *loop) keepLeases(now time.Time) {
	p, ok := l.cfg.Store.(storage.Pulser)
	waiting := l.health.err == nil && l.exchanges.busy || errors.Is(l.health.err, storage.ErrBusy)
	if !ok || !waiting {
		return
	}
	if err := p.Pulse(); err != nil {
		l.cfg.Logger.Error("errand: leases cannot be kept without the database", "error", err)
		return
	}
	late := time.Now().Add(-l.cfg.LeaseDuration / 12) // half of the time between safe and the end of a lease
	for _, a := range l.leases.held {
		if !a.lost && a.safe.After(late) {
			a.safe = latest(a.safe, l.safe(now))
		}
	}
}

// watch sets the time at which loseUnsafe is called next.
func (s *leases) watch() {
	s.loseAt = time.Time{}
	for _, a := range s.held {
		if a.running && a.cause == nil && !a.isCompleted() {
			s.loseAt = sooner(s.loseAt, a.safe)
		}
	}
}

// attrs returns the log attributes that name an attempt, and more.
func (l *loop) attrs(a *attempt, more ...any) []any {
	return append(jobAttrs(a.job), more...)
}
