package engine

import (
	"context"
	"sync/atomic"
)

// runners are the goroutines that call the handlers. There is one for each
// slot, so that an attempt costs no goroutine.
type runners struct {
	ctx  context.Context // parent of the handlers' contexts: values, no end
	n    int             // how many there are
	busy int             // how many of them have an attempt

	// Each channel holds n, so that neither side ever waits for the other.
	work  chan *attempt
	ended chan *attempt
	gone  chan struct{} // one for each runner that has ended

	joined    int  // how many of gone were received
	dismissed bool // work is closed

	// excused: handlers are not to blame for the death of the process.
	excused atomic.Bool
	holds   atomic.Int64 // how often holds may have changed, see [holds]
}

func newRunners(ctx context.Context, n int) *runners {
	return &runners{
		ctx:   ctx,
		n:     n,
		work:  make(chan *attempt, n),
		ended: make(chan *attempt, n),
		gone:  make(chan struct{}, n),
	}
}

func (r *runners) start() {
	for range r.n {
		go r.run()
	}
}

// free returns how many runners have nothing to do.
func (r *runners) free() int { return r.n - r.busy }

// run runs attempts until there are no more.
func (r *runners) run() {
	id := goroutineID()
	for a := range r.work {
		a.goroutine.Store(id)
		r.runOne(a)
	}
	r.gone <- struct{}{}
}

// runOne runs one attempt and hands it back. If the handler ends this goroutine
// by runtime.Goexit another runner takes its place.
func (r *runners) runOne(a *attempt) {
	returned := false
	defer func() {
		if a.suspect { // here, as the loop may have ended before
			a.cfg.Suspects.leave()
		}
		r.ended <- a
		if !returned {
			go r.run()
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
}

// dismiss ends the runners and waits for all that have nothing to do.
func (r *runners) dismiss() {
	if !r.dismissed {
		r.dismissed = true
		close(r.work)
	}
	for ; r.joined < r.free(); r.joined++ {
		<-r.gone
	}
}
