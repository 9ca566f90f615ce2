package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// stage is how far the loop has come.
type stage uint8

// The stages, in order; any of them may be skipped but flushing.
const (
	working   stage = iota
	grace           // nothing is leased, handlers may end by themselves
	ending          // handlers were cancelled with ErrShutdown
	flushing        // outcomes are written; a handler that still runs is stuck
	lingering       // Run has returned; handlers still run or outcomes wait
	dying           // the store failed for good, handlers were cancelled
)

// shutdown is the state of a stop, and what can begin one.
type shutdown struct {
	// Each channel is nil once it was received from.
	ctx   <-chan struct{} // the context of Run has ended
	stop  <-chan struct{}
	hurry <-chan struct{} // end the grace

	stage   stage
	until   time.Time // the stage ends at the latest
	hurried bool
	waited  bool  // the store had the length of a lease to take the outcomes
	fatal   error // the store failed for good
	refused error // the store is damaged and takes no more work

	report chan error // the result of Run; holds one
	told   bool       // the result was sent
}

func (s *shutdown) working() bool { return s.stage == working }

func (s *shutdown) enter(next stage, until time.Time) { s.stage, s.until = next, until }

// over reports whether the time of the stage is over.
func (s *shutdown) over(now time.Time) bool { return reached(s.until, now) }

// beginStop begins the grace. Jobs that have not been started go back at once:
// another process can run them during the grace.
func (l *loop) beginStop() {
	l.shutdown.ctx, l.shutdown.stop = nil, nil
	if !l.shutdown.working() {
		return
	}
	if !l.cfg.Bulk || l.runners.busy > 0 { // beside a worker it ends with the last bulk job
		l.cfg.Logger.Info("errand: worker is stopping", "running", l.runners.busy, "grace_s", l.cfg.Grace.Seconds())
	}
	l.shutdown.enter(grace, time.Now().Add(l.cfg.Grace))
	l.excuse()
	l.chores.show.pause = time.Time{} // so that others learn of it at once
	l.ready.holds.stopHooks()
	for _, a := range slices.Clone(l.ready.suspects.waiting) {
		l.unqueue(a)
		l.giveBack(a, time.Time{})
	}
	l.giveBackStarts()
	all := func(*attempt) bool { return true }
	l.giveBackWaiting(all)
	l.giveBackParts(all)
}

// excuse notes in the store that running handlers are being stopped, and has the next exchange
// take back what was written of their starts. The process
// may be killed before the grace is over, which is no handler's fault. The price
// is that a job that crashes the process from now on is not counted as crashed
// this time.
func (l *loop) excuse() {
	close(l.runners.ending) // first, for attempts that are just starting
	for _, a := range l.leases.held {
		if !a.running {
			continue
		}
		l.ready.starts.stop = l.ready.starts.stop || a.written
		if err := l.cfg.marker.Stopping(a.job.Lease); err != nil {
			l.cfg.Logger.Error("errand: stop of a handler could not be noted", l.attrs(a, "error", err)...)
		}
	}
}

// advance goes on to the next stage if it is time. It reports whether the loop
// has anything left to do.
func (l *loop) advance(now time.Time) bool {
	s, idle := &l.shutdown, l.runners.busy == 0
	if s.stage == grace && (idle || s.hurried || s.over(now)) {
		for _, a := range l.leases.held {
			l.cancelFor(a, ErrShutdown, now)
		}
		s.enter(ending, now.Add(l.cfg.StuckAfter))
	}
	if s.stage == ending && (idle && len(l.ready.holds.asking) == 0 || s.over(now)) {
		s.enter(flushing, now.Add(l.cfg.LeaseDuration))
	}
	switch s.stage {
	case flushing:
		return l.flush(now)
	case lingering:
		return s.fatal == nil && (!idle || !l.flushed())
	case dying:
		return !idle && !s.over(now)
	default:
		return true
	}
}

// flushed reports whether the store has answered all calls and has all outcomes.
func (l *loop) flushed() bool {
	return len(l.outcomes.waiting) == 0 && !l.asking() && !l.side.busy && !l.sources.offering
}

// flush lets Run return once all outcomes are written, or after the length of a
// lease, when others may have taken over the jobs. The loop goes on without Run
// if there is anything left. flush reports whether there is.
func (l *loop) flush(now time.Time) bool {
	s := &l.shutdown
	if s.hurried {
		s.until = sooner(s.until, now.Add(l.cfg.StuckAfter))
	}
	switch {
	case l.flushed() && l.runners.busy == 0:
		return false
	case l.flushed():
	case s.over(now):
		s.waited = true
	default:
		return true
	}
	l.runners.dismiss()
	l.tell()
	s.enter(lingering, time.Time{})
	return true
}

// refuse begins a stop because the store is damaged. Running handlers may end and
// have their outcomes written, unless a heartbeat fails too.
func (l *loop) refuse(err error, now time.Time) {
	l.shutdown.refused = cmp.Or(l.shutdown.refused, err)
	if !l.shutdown.working() {
		return
	}
	l.cfg.Logger.Error("errand: the store takes no more work, the worker ends when what is running has ended", "error", err)
	l.beginStop()
	if len(l.leases.held) > 0 {
		l.leases.heartbeatAt = now
	}
}

// die begins the end after a fatal error: nothing is known of the leases any
// more.
func (l *loop) die(err error, now time.Time) {
	l.shutdown.fatal = err
	for _, a := range l.leases.held {
		l.stopStarting(a)
	}
	if l.shutdown.stage == lingering {
		return
	}
	if err == storage.ErrClosed { //nolint:errorlint // wrapped, it has the reason for which the store closed itself
		l.cfg.Logger.Error("errand: the queue was closed while the worker ran, which ends; close it after Run has returned")
	} else {
		l.cfg.Logger.Error("errand: the store failed, the worker ends", "error", err)
	}
	for _, a := range l.leases.held {
		l.cancelFor(a, ErrLeaseLost, now)
	}
	l.shutdown.enter(dying, now.Add(l.cfg.StuckAfter))
}

// tell lets Run return, once.
func (l *loop) tell() {
	s := &l.shutdown
	if s.told {
		return
	}
	s.told = true
	l.mail.unlisten()
	l.conceal()
	s.report <- l.result()
}

// result returns what Run returns as things stand.
func (l *loop) result() error {
	s := &l.shutdown
	errs := []error{cmp.Or(s.fatal, s.refused)}
	for _, a := range l.leases.held {
		if a.running && a.leads() {
			errs = append(errs, fmt.Errorf("%w: job %v of kind %q", ErrStuck, a.job.ID, a.job.Kind))
		}
	}
	switch {
	case s.fatal != nil || !s.waited:
	case l.health.err != nil:
		errs = append(errs, fmt.Errorf("errand: the store fails, outcomes not written: %d: %w", len(l.outcomes.waiting)+len(l.outcomes.flight), l.health.err))
	default:
		errs = append(errs, fmt.Errorf("errand: the store does not answer, outcomes not written: %d", len(l.outcomes.flight)))
	}
	return errors.Join(errs...)
}
