package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand/policy"
)

// Causes of the end of a handler's context, and what Run and Shutdown report.
var (
	// ErrLeaseLost: the lease is no longer held, or could not be extended in
	// time. Another worker may run the job; this attempt's outcome is refused.
	ErrLeaseLost = errors.New("errand: lease lost")
	// ErrCancelled: somebody cancelled the job while it ran.
	ErrCancelled = errors.New("errand: job cancelled")
	// ErrShutdown: the worker is stopping and the grace is over.
	ErrShutdown = errors.New("errand: worker is shutting down")
	// ErrStuck: a handler was still running long after its context had ended.
	ErrStuck = errors.New("errand: handler is stuck")
)

// Verdict is implemented by the error types below, and by nothing else. The
// outermost one in an error's tree is what counts.
type Verdict interface {
	error
	verdict()
}

// VerdictOf returns the outermost verdict in err's tree, or nil.
func VerdictOf(err error) Verdict {
	v, _ := errors.AsType[Verdict](err)
	return v
}

func (*PermanentError) verdict()  {}
func (*RetryAfterError) verdict() {}
func (*SnoozeError) verdict()     {}
func (*CancelError) verdict()     {}
func (*DecodeError) verdict()     {}

func (*UnavailableError) verdict() {}
func (*HoldLaneError) verdict()    {}

// RetryClass is [policy.Unavailable].
func (*UnavailableError) RetryClass() policy.Class { return policy.Unavailable }

// RetryClass tells package policy to give up too, if the verdict comes out of a
// call that is repeated inside of a handler; likewise for the next two.
func (*PermanentError) RetryClass() policy.Class { return policy.Permanent }

// RetryClass is that of a PermanentError: not now, in any case.
func (*SnoozeError) RetryClass() policy.Class { return policy.Permanent }

// RetryClass is that of a PermanentError.
func (*CancelError) RetryClass() policy.Class { return policy.Permanent }

// RetryAfter returns After, for [policy.RetryAfter].
func (e *RetryAfterError) RetryAfter() time.Duration { return e.After }

// PermanentError is the verdict that no retry can help: the job is dead.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return text(e.Err, "permanent failure") }

// Unwrap returns the reason.
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryAfterError is the verdict that the attempt failed and that the next one
// should not start before After has passed.
type RetryAfterError struct {
	After time.Duration
	Err   error
}

func (e *RetryAfterError) Error() string {
	return text(e.Err, fmt.Sprintf("retry after %v", e.After))
}

// Unwrap returns the reason.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// UnavailableError is the verdict that the other side could not be reached.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return text(e.Err, "unavailable") }

// Unwrap returns the reason.
func (e *UnavailableError) Unwrap() error { return e.Err }

// HoldLaneError is the verdict that no job of the kind and queue should start before
// For has passed.
type HoldLaneError struct {
	For time.Duration
	Err error
}

func (e *HoldLaneError) Error() string { return text(e.Err, fmt.Sprintf("hold for %v", e.For)) }

// Unwrap returns the reason.
func (e *HoldLaneError) Unwrap() error { return e.Err }

// RetryClass is [policy.Unavailable].
func (*HoldLaneError) RetryClass() policy.Class { return policy.Unavailable }

// SnoozeError is the verdict that the job should come back later, and that
// this was no failure.
type SnoozeError struct {
	For time.Duration
	Err error
}

func (e *SnoozeError) Error() string { return text(e.Err, fmt.Sprintf("snooze for %v", e.For)) }

// Unwrap returns the reason.
func (e *SnoozeError) Unwrap() error { return e.Err }

// CancelError is the verdict that the job is pointless: finished as cancelled.
type CancelError struct{ Err error }

func (e *CancelError) Error() string { return text(e.Err, "cancelled by its handler") }

// Unwrap returns the reason.
func (e *CancelError) Unwrap() error { return e.Err }

// DecodeError says that the args or headers of a job did not decode. It is a
// failed attempt whose reason in the dead letters is decode.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "decode: " + text(e.Err, "malformed") }

// Unwrap returns the reason.
func (e *DecodeError) Unwrap() error { return e.Err }

// PolicyError is no verdict: it is an error of a handler that knows the delivery
// policy of its job.
type PolicyError struct {
	Policy policy.Document
	Err    error
}

func (e *PolicyError) Error() string { return text(e.Err, "failed") }

// Unwrap returns the reason.
func (e *PolicyError) Unwrap() error { return e.Err }

func text(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}
