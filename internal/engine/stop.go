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
	grace           // nothing is fetched, handlers may end by themselves
	ending          // they were cancelled with ErrShutdown
	flushing        // those that still run are stuck; outcomes are written
	lingering       // Run has returned, but not all is over
	dying           // the store is of no use any more
)

func (l *loop) enter(s stage, until time.Time) { l.stage, l.stageAt = s, until }

// beginStop stops fetching. What has not been started goes back at once, not
// at the end: another process can run it during the grace.
func (l *loop) beginStop() {
	if l.stage != working {
		return
	}
	l.cfg.Logger.Info("errand: worker is stopping", "running", l.running, "grace", l.cfg.Grace)
	l.enter(grace, time.Now().Add(l.cfg.Grace))
	l.excuse()
	for _, a := range slices.Clone(l.suspects) {
		l.unqueue(a)
		l.giveBack(a, time.Time{})
	}
	for _, a := range l.queue {
		l.release(a)
		l.giveBack(a, time.Time{})
	}
	clear(l.queue)
	l.queue = l.queue[:0]
}

// excuse notes that what runs is being stopped. Whoever waits for the process
// may kill it sooner than the grace is over: that is no handler's doing. The
// price is that a job which brings the process down by itself from now on is
// not counted; it will be the next time.
func (l *loop) excuse() {
	l.excused.Store(true) // before, for those who are just starting
	for _, a := range l.held {
		if !a.running {
			continue
		}
		if err := l.cfg.Store.Stopping(a.job.Lease); err != nil {
			l.cfg.Logger.Warn("errand: stop of a handler could not be noted", l.attrs(a, "error", err)...)
		}
	}
}

// advance goes on to the next stage if it is time. It tells whether the loop
// has anything left to do.
func (l *loop) advance(now time.Time) bool {
	if l.stage == grace && (l.running == 0 || l.hurried || reached(l.stageAt, now)) {
		for _, a := range l.held {
			l.cancelFor(a, ErrShutdown, now)
		}
		l.enter(ending, now.Add(l.cfg.StuckAfter))
	}
	if l.stage == ending && (l.running == 0 || reached(l.stageAt, now)) {
		l.enter(flushing, now.Add(l.cfg.Lease))
	}
	switch l.stage {
	case flushing:
		return l.flush(now)
	case lingering:
		return l.fatal == nil && (l.running > 0 || !l.flushed())
	case dying:
		return l.running > 0 && !reached(l.stageAt, now)
	default:
		return true
	}
}

func (l *loop) flushed() bool {
	return len(l.outcomes) == 0 && !l.exchanges.busy && !l.side.busy && !l.offering
}

// flush waits until all outcomes are written, but not for ever: after the
// length of a lease others may have taken the jobs over. What cannot be
// finished then goes on without Run.
func (l *loop) flush(now time.Time) bool {
	if l.hurried {
		l.stageAt = sooner(l.stageAt, now.Add(l.cfg.StuckAfter))
	}
	switch {
	case l.flushed() && l.running == 0:
		return false
	case l.flushed():
	case reached(l.stageAt, now):
		l.waited = true
	default:
		return true
	}
	l.dismiss()
	l.tell(l.result())
	l.enter(lingering, time.Time{})
	return true
}

// refuse begins to stop because the store cannot begin work any more: it is
// damaged. What is running may still be finished, unless a heartbeat fails too.
func (l *loop) refuse(err error, now time.Time) {
	if l.refused == nil {
		l.refused = err
	}
	if l.stage != working {
		return
	}
	l.cfg.Logger.Error("errand: the store takes no more work, the worker ends when what is running has ended", "error", err)
	l.beginStop()
	if len(l.held) > 0 {
		l.beatAt = now
	}
}

// die begins the end after an error that cannot be helped. Nothing is known of
// the leases any more.
func (l *loop) die(err error, now time.Time) {
	l.fatal = err
	if l.stage == lingering {
		return
	}
	if err == storage.ErrClosed { //nolint:errorlint // wrapped, it has the reason for which the store closed itself
		l.cfg.Logger.Error("errand: the queue was closed while the worker ran, which ends; close it after Run has returned")
	} else {
		l.cfg.Logger.Error("errand: the store failed, the worker ends", "error", err)
	}
	for _, a := range l.held {
		l.cancelFor(a, ErrLeaseLost, now)
	}
	l.enter(dying, now.Add(l.cfg.StuckAfter))
}

// dismiss ends the runners and waits for all that have nothing to do.
func (l *loop) dismiss() {
	if !l.dismissed {
		l.dismissed = true
		close(l.work)
	}
	for ; l.left < l.cfg.Concurrency-l.running; l.left++ {
		<-l.gone
	}
}

// tell lets Run return, once.
func (l *loop) tell(err error) {
	if l.told {
		return
	}
	l.told = true
	if l.unlisten != nil {
		l.unlisten()
	}
	l.report <- err
}

// result is what Run gives as things stand.
func (l *loop) result() error {
	errs := []error{cmp.Or(l.fatal, l.refused)}
	for _, a := range l.held {
		if a.running {
			errs = append(errs, fmt.Errorf("%w: job %v of kind %q", ErrStuck, a.job.ID, a.job.Kind))
		}
	}
	switch {
	case l.fatal != nil || !l.waited:
	case l.lastErr != nil:
		errs = append(errs, fmt.Errorf("errand: the store fails, outcomes not written: %d: %w", len(l.outcomes)+len(l.flight), l.lastErr))
	default:
		errs = append(errs, fmt.Errorf("errand: the store does not answer, outcomes not written: %d", len(l.flight)))
	}
	return errors.Join(errs...)
}
