package engine

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// heedStop returns v, the verdict on what a handler has returned, or has panicked with, while its
// worker works. If the worker is being stopped, or has lost the lease, the attempt was
// interrupted, unless v counts all the same.
//
// Nobody knows then whether the job is to blame: who stops a service signals all its processes,
// and a handler whose context has ended may be in any state. What it has done counts, unless
// another worker may be doing it again. What it asks for, other than to have failed, counts for
// as long as it may go on.
func (a *attempt) heedStop(v verdict, err error) verdict {
	cause := context.Cause(a.ctx)
	switch {
	case v.kind == verdictCancelled && errors.Is(cause, ErrCancelled): // by somebody else
		return v
	case errors.Is(cause, ErrLeaseLost):
	case v.kind == verdictDone, !errors.Is(cause, ErrShutdown) && !a.stopping(err):
		return v
	case a.ctx.Err() == nil && (v.kind != verdictFailed || v.class == policy.Unavailable || v.hold > 0) && asks(err): // not by a panic
		v.spares = true
		return v
	}
	own := !errors.Is(err, context.Canceled) && (cause == nil || !errors.Is(err, cause))
	if v.kind == verdictDone {
		own, v.text = false, "the handler returned nil after its lease was lost"
	}
	after, _ := policy.RetryAfter(err)
	return verdict{kind: verdictInterrupted, text: v.text, stack: v.stack, after: after, ownError: own}
}

// spared returns how many attempts before this one have used up nothing, as far as the counters
// tell, which is all that every process knows: those that were interrupted, or could not reach the
// other side. A crash that was forgotten after a failure counts too.
func spared(job *storage.Leased) int {
	return max(job.Attempt-1-job.Retry-job.Crashes-job.Snoozes, 0)
}

// sparedLately is spared for a job whose counters began with its first attempt: those of one that
// was redriven say nothing of what came after.
func sparedLately(job *storage.Leased) int {
	if job.Redriven {
		return 0
	}
	return spared(job)
}

// oftenSpared is how many attempts of a job must have used up nothing for the next interruption
// that was no error of the context to be a warning: it may be the job that stops the program.
const oftenSpared = 4

// asks reports whether a handler asks for something else than to have failed.
func asks(err error) bool {
	switch VerdictOf(err).(type) {
	case *SnoozeError, *CancelError, *UnavailableError, *HoldLaneError:
		return true
	}
	return false
}

// stopping reports whether the worker is being stopped. If the same signal, or the end of the
// same context, may have ended what an attempt has failed of, it waits for a moment: the news may
// reach the worker later.
func (a *attempt) stopping(err error) bool {
	r := a.loop.runners
	if r.stopping() || !mayBeStop(err) || a.ctx.Err() != nil || a.batch != nil && a.batch.waited {
		return r.stopping()
	}
	if a.batch != nil { // once for all jobs of a call
		a.batch.waited = true
	}
	// A process that stands still for long loses one look by that: whoever brings the news has the
	// others.
	late := time.NewTimer(newsTakes / looks)
	defer late.Stop()
	for range looks {
		select {
		case <-r.told:
		case <-r.stop:
		case <-a.ctx.Done():
		case <-late.C:
			late.Reset(newsTakes / looks)
			continue
		}
		break
	}
	return r.stopping()
}

const (
	// newsTakes is how long the news of a stop takes at most.
	newsTakes = 500 * time.Millisecond
	// looks is in how many parts that is waited for.
	looks = 10
)

// mayBeStop reports whether an error may come of a stop of the program that the engine does not know
// of yet: another context has ended, or a process by a signal that asks it to.
func mayBeStop(err error) bool {
	if errors.Is(err, context.Canceled) {
		return true
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	const controlC = 0xC000013A                                   // on Windows
	status, shell := uint32(exit.ExitCode()), exit.ExitCode()-128 //nolint:gosec // it has 32 bits
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() && w.Signal() == s || shell == int(s) {
			return true
		}
	}
	return status == controlC
}

// interrupted puts a job back that has used up nothing. If the other side has asked for a delay,
// the job waits for so long.
func (c *Config) interrupted(f storage.Finish, v verdict, now time.Time) storage.Finish {
	f.Outcome = storage.OutcomeInterrupted
	if v.after > 0 {
		f.DueAt = now.Add(policy.Floor(0, min(v.after, c.MaxRetryAfter), c.Rand()))
	}
	return f
}

// stopping reports whether the worker is being stopped, which the loop may not know yet.
func (r *runners) stopping() bool {
	select {
	case <-r.told:
		return true
	case <-r.stop:
		return true
	default:
		return r.excused()
	}
}

// Stopping returns a channel that is closed once the stop of the worker has begun that has called a handler of many jobs
// with ctx; nil if none has. The context of the call ends later, when the grace is over.
func Stopping(ctx context.Context) <-chan struct{} {
	b, _ := ctx.Value(batchKey{}).(*batch)
	if b == nil {
		return nil
	}
	return b.all[0].loop.runners.ending
}

// heedPanic returns v, the verdict on a panic with err, as far as the store and a stop allow it. The
// methods of err may panic too.
func (a *attempt) heedPanic(v verdict, err error) (out verdict) {
	defer func() {
		if recover() != nil {
			out = a.heedStop(v, nil)
		}
	}()
	return a.heedStop(a.heedStore(v, err), err)
}
