package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

// The kinds of jobs. N is the simulation's own number of the job.
type (
	letter struct{ N int }
	parcel struct{ N int }
	pulse  struct{ N int } // of schedules
)

func (letter) Kind() string { return "letter" }
func (parcel) Kind() string { return "parcel" }
func (pulse) Kind() string  { return "pulse" }

// manner is how an attempt ends.
type manner uint8

const (
	succeeds manner = iota
	fails
	panics
	exits
	snoozes
	asksLater
	isPermanent
	cancelsItself
	waits // until its context ends
	manners
)

func (m manner) String() string {
	return [...]string{"succeeds", "fails", "panics", "exits", "snoozes", "asks for later", "is permanent", "cancels itself", "waits"}[m]
}

// deed is what a handler does in one attempt.
type deed struct {
	manner
	takes    time.Duration
	stubborn bool // takes no notice of its context
	after    time.Duration
}

// dice returns a number that depends on the arguments only.
func dice(seed uint64, what string, n ...int64) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, seed, what, n) // which cannot fail
	x := h.Sum64()
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

func (w *world) deed(n int64, attempt int) deed {
	if w.friendly.Load() {
		return deed{}
	}
	roll := func(what string, sides uint64) uint64 { return dice(w.seed, what, n, int64(attempt)) % sides }
	var d deed
	for p, m := roll("manner", 100), manner(0); m < manners; m++ {
		if share := [manners]uint64{40, 22, 5, 1, 8, 6, 4, 4, 10}[m]; p >= share {
			p -= share
			continue
		}
		d.manner = m
		break
	}
	d.after = time.Duration(roll("after", 20_000)) * time.Millisecond
	switch roll("takes", 8) {
	case 0, 1, 2, 3:
	case 4, 5, 6:
		d.takes = time.Duration(roll("long", 3_000)) * time.Millisecond
	case 7:
		d.takes = time.Duration(roll("long", 45_000)) * time.Millisecond
	}
	d.stubborn = roll("stubborn", 5) == 0
	return d
}

// verdict is what a handler returned.
type verdict struct {
	deed
	cause  error     // of its context's end, when it returned
	at     time.Time // on the queue's clock, if w.looks
	losses int
	why    error // what it returned
	// stopping is true if the stop of its worker may have begun before it returned.
	stopping bool
}

var errOops = errors.New("oops")

func handle[A errand.Args](w *world, l *life, on *errand.Worker, number func(A) int) {
	errand.Handle(on, func(ctx context.Context, job *errand.Job[A]) (err error) {
		n := int64(number(job.Args))
		if job.Kind == "pulse" {
			n = -job.ID.Key()
		}
		d := w.deed(n, job.Attempt)
		ls := w.calledHandler(l, job.ID, storage.Counters{
			Attempt: job.Attempt, Retry: job.Retry, Crashes: job.Crashes, Snoozes: job.Snoozes,
		}, number(job.Args), d)
		returned := false
		defer func() { // also after a panic
			if !returned {
				err = errOops
			}
			v := verdict{deed: d, cause: context.Cause(ctx), why: err, stopping: l.stopping.Load()}
			if w.looks && !l.over() {
				v.at = l.queue.Clock().Now
			}
			w.handlerReturned(l, ls, v)
		}()
		w.wait(ctx, l, d)
		err = d.verdict(ctx)
		returned = true
		return err
	})
}

// wait passes the time of an attempt.
func (w *world) wait(ctx context.Context, l *life, d deed) {
	takes, done := d.takes, ctx.Done()
	if d.manner == waits {
		takes = 2 * time.Minute
	}
	if takes == 0 {
		return
	}
	if d.stubborn && d.manner != waits {
		done = nil
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	case <-l.end:
	case <-w.calm:
	}
}

func (d deed) verdict(ctx context.Context) error {
	switch d.manner {
	case fails:
		return errOops
	case panics:
		panic("oops")
	case exits:
		runtime.Goexit()
	case snoozes:
		return fmt.Errorf("not now: %w", errand.Snooze(d.after, nil))
	case asksLater:
		return fmt.Errorf("busy: %w", errand.RetryAfter(d.after, errOops))
	case isPermanent:
		return fmt.Errorf("no: %w", errand.Permanent(errOops))
	case cancelsItself:
		return errand.Cancel(errOops)
	case waits:
		return ctx.Err()
	}
	return nil
}
