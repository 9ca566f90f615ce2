package engine

import (
	"context"
	"math"
	"time"
)

// runners are the goroutines that call the handlers. There is one for each
// slot, so that an attempt costs no goroutine.
type runners struct {
	ctx   context.Context // parent of the handlers' contexts: values, no end
	n     int             // how many may have an attempt that counts
	apart int             // how many have one that does not
	busy  int             // how many have any; more than there may be for a while after a resize
	kept  int             // how many more are to run as soon as their start is written
	serve int             // how many take from work, and were not told to end
	alive int             // how many were started, and are not known to have ended

	apartAt time.Time // an attempt counts no more; zero: none will

	// These hold as many as may serve at least, so that neither side ever waits for the other.
	work  chan *attempt // nil: one runner is to end
	ended chan *attempt
	gone  chan struct{} // one for each runner that has ended; of any length, as it has no content

	dismissed bool // work is closed

	// A stop begins with the end of either, or when the loop says so.
	told, stop <-chan struct{}
	// ending is closed once a shutdown has begun, see excused.
	ending chan struct{}
	holds  holdChanges
}

// excused reports whether a shutdown has begun: no death of the process is then a crash of a job.
func (r *runners) excused() bool {
	select {
	case <-r.ending:
		return true
	default:
		return false
	}
}

// newRunners returns n runners, and those beside them for which most leaves room.
func newRunners(ctx context.Context, stop <-chan struct{}, n, most int) *runners {
	return &runners{
		ctx:    context.WithoutCancel(ctx),
		told:   ctx.Done(),
		stop:   stop,
		ending: make(chan struct{}),
		n:      n,
		work:   make(chan *attempt, most),
		ended:  make(chan *attempt, most),
		gone:   make(chan struct{}, math.MaxInt32),
	}
}

// free returns how many attempts more may run.
func (r *runners) free() int { return max(r.n+r.apart-r.busy-r.kept, 0) }

// over reports whether more attempts are to run than may, as after a resize.
func (r *runners) over() bool { return r.busy+r.kept > r.n+r.apart }

// run runs attempts until there are no more, or one that is nil.
func (r *runners) run(work <-chan *attempt, ended chan<- *attempt) {
	id := goroutineID()
	for a := range work {
		if a == nil {
			break
		}
		a.goroutine.Store(id)
		r.runOne(a, work, ended)
	}
	r.gone <- struct{}{}
}

// runOne runs one attempt and hands it back. If the handler ends this goroutine
// by runtime.Goexit another runner takes its place.
func (r *runners) runOne(a *attempt, work <-chan *attempt, ended chan<- *attempt) {
	returned := false
	defer func() {
		if a.suspect { // here, as the loop may have ended before
			a.cfg.Suspects.leave()
		}
		ended <- a
		if !returned {
			go r.run(work, ended)
		}
	}()
	a.run(r)
	returned = true
}

// hand gives an attempt to a free runner.
func (r *runners) hand(a *attempt) {
	r.busy++
	a.running = true
	r.work <- a
}

// takeBack notes that an attempt came back from its runner.
func (r *runners) takeBack(a *attempt) {
	r.busy--
	a.running = false
	r.endApart(a)
}

// dismiss ends the runners and waits for all that have nothing to do.
func (r *runners) dismiss() {
	if !r.dismissed {
		r.dismissed = true
		close(r.work)
	}
	for ; r.alive > r.busy; r.alive-- {
		<-r.gone
	}
}
