package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// attempt is a leased job, from its lease to its outcome; mostly one run of the
// handler. Its fields belong to the loop, but for goroutine and result, which the
// runner writes before it hands the attempt back.
type attempt struct {
	cfg     *Config
	job     *storage.Leased
	handler Handler
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout time.Duration

	payment
	holding
	completion

	starting bool      // its start is being written
	written  bool      // its start was written
	running  bool      // a runner has it
	suspect  bool      // it is in the turnstile while it runs
	company  bool      // it shares the turnstile with others
	cause    error     // with which the loop cancelled the context
	overdue  time.Time // it is stuck if it still runs then; zero: its context has no end
	stuck    bool      // that it is stuck was logged

	goroutine atomic.Int64 // that runs the handler
	result
}

// holding is the lease of an attempt.
type holding struct {
	slot   int       // index in leases.held
	lost   bool      // it is lost: there is no outcome
	gone   bool      // it is not in leases.held any more
	safe   time.Time // it is held for certain until then
	leased time.Time // it was asked for
	again  bool      // its handler was called under the lease, in a call that has failed for good
	next   *attempt  // has the lease in its place, for another call; nil: none
	// earlier had the lease before, for a call in which a transaction may be open that completes
	// the job; nil: none.
	earlier *attempt
}

// payment is what an attempt was granted before it started.
type payment struct {
	from     *source        // whose bounds count the lease
	batch    *batch         // it is run in one call with others; nil: alone
	throttle *Throttle      // has granted it, and is refunded unless the handler is called; nil: none
	budget   *Budget        // nil: none
	cost     policy.Cost    // paid to budget
	group    *GroupThrottle // has granted its start and can be refunded; nil: none
	heeded   int64          // of holds, when a runner was granted
	watched  bool           // somebody is to be told of its start
	counts   time.Time      // it counts for the Concurrency until then; zero: until it ends
	apart    bool           // it does not count any more
	probing  *probing       // nil: no hold has let it through
}

// result is what the runner writes.
type result struct {
	verdict verdict
	timing
	noteErr   error  // of Marker.Ended or Stopping
	startErr  error  // of Marker.Started
	unread    bool   // the handler was not called, as holds of the lane have changed
	completed bool   // the handler has completed the job; the verdict says the same
	ignored   string // what it has returned all the same
	open      bool   // it may have: its transaction may be open
	shared    bool   // what the handler has returned is about all jobs of its call
	place     []byte // a checkpoint that was kept by a call that has failed for good; nil: none
	placeErr  error  // why it could not be read: another call would begin where this one did
}

// verdict is how an attempt ended: the judgement of what the handler returned and
// why its context ended.
type verdict struct {
	kind  verdictKind
	class policy.Class  // of a failure
	late  bool          // of a failure: for want of time
	after time.Duration // of a snooze; of a failure the floor for the delay
	hold  time.Duration // the lane is to be held; of class Unavailable
	local bool          // this machine has no network; of class Unavailable
	// spares: nothing is used up, as the worker is being stopped.
	spares bool
	// trouble is the error of the engine's own store that the attempt has met; nil: none. The
	// class is Unavailable then.
	trouble error
	// ownError: an interruption that was no error of the context.
	ownError bool
	// unauthorized: the other side refused the sender; of class Unavailable.
	unauthorized bool
	text         string
	stack        string
	policy       *policy.Document // of a failure: goes before that in effect; nil: none
	passes       bool             // see Passed
}

type verdictKind uint8

const (
	verdictDone        verdictKind = iota + 1
	verdictFailed                  // any error, a panic, a timeout
	verdictDecode                  // failed, as the args did not decode
	verdictSnoozed                 // no failure
	verdictCancelled               // by its handler or from outside
	verdictInterrupted             // by the worker, which had to stop or lost the lease
	verdictUnstarted               // the handler was not called
)

func (a *attempt) run(r *runners) {
	if a.batch != nil {
		a.batch.run(r)
		return
	}
	store := a.cfg.marker
	// Without the note a crash would look like an attempt that never began, and
	// a job that kills its process would do so for ever.
	now := a.cfg.Clock.Now()
	if err := store.Started(a.job.Lease, now); err != nil {
		a.verdict, a.startErr = verdict{kind: verdictUnstarted}, err
		a.cancel(nil)
		return
	}
	if a.company || r.excused() { // the loop may have excused handlers before the note
		a.noteErr = store.Stopping(a.job.Lease)
	}
	a.begin(now)
	defer a.handled()
	a.unread = !a.job.Urgent && r.holds.since(a.heeded, a.job.Queue, a.job.Kind)
	if a.unread || pastWindow(a.job, a.cfg.Clock) {
		a.verdict = verdict{kind: verdictUnstarted}
		return
	}
	a.tellStarted()
	a.call()
}

// handled ends the part of the runner in an attempt that has begun.
func (a *attempt) handled() {
	defer a.cancel(nil) // what the handler left behind should end too
	a.end()
	a.noteErr = cmp.Or(a.cfg.marker.Ended(a.job.Lease), a.noteErr)
	a.settleCompletion()
}

// call calls the handler and judges what it returns. The judgement calls methods
// of the handler's errors, so a panic of theirs is caught too.
func (a *attempt) call() {
	returned := false
	defer func() {
		if returned {
			return
		}
		text := "handler called runtime.Goexit"
		r := recover()
		if r != nil {
			text = fmt.Sprintf("panic: %v", r)
		}
		a.verdict = a.judgePanic(text, stack(), r)
	}()
	a.verdict = a.judge(a.handler.Run(a.ctx, a.job))
	returned = true
}

// judge turns what a handler returned into a verdict.
func (a *attempt) judge(err error) verdict {
	switch {
	case err == nil:
		return a.heedStop(verdict{kind: verdictDone}, nil)
	case errors.Is(err, ErrUntouched):
		return verdict{kind: verdictUnstarted}
	}
	v := a.judgeError(err)
	if own, ok := errors.AsType[*PolicyError](err); ok {
		v.policy = &own.Policy
	}
	_, v.passes = errors.AsType[*passedError](err)
	return a.heedStop(a.heedStore(v, err), err)
}

func (a *attempt) judgeError(err error) verdict {
	text := cut(err.Error(), maxError)
	cause := context.Cause(a.ctx)
	if errors.Is(cause, ErrCancelled) {
		return verdict{kind: verdictCancelled, text: text}
	}
	said := VerdictOf(err)
	switch v := said.(type) {
	case *PermanentError:
		return verdict{kind: verdictFailed, class: policy.Permanent, text: text}
	case *UnavailableError:
		return unavailable(err, text)
	case *HoldLaneError:
		return verdict{kind: verdictFailed, class: policy.Unavailable, hold: max(v.For, 1), text: text}
	case *SnoozeError:
		return verdict{kind: verdictSnoozed, after: v.For, text: text}
	case *CancelError:
		return verdict{kind: verdictCancelled, text: text}
	case *DecodeError:
		return verdict{kind: verdictDecode, text: text}
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		text = cut(fmt.Sprintf("timeout of %v exceeded: %s", a.timeout, text), maxError)
	}
	f := verdict{kind: verdictFailed, class: a.classify(err), text: text, late: a.late(err)}
	if f.class == policy.Unavailable {
		return unavailable(err, text)
	}
	if after, ok := said.(*RetryAfterError); ok {
		f.after = after.After
	} else {
		f.after, _ = policy.RetryAfter(err)
	}
	return f
}

// unavailable returns the verdict on an error of class Unavailable.
func unavailable(err error, text string) verdict {
	return verdict{
		kind: verdictFailed, class: policy.Unavailable, text: text,
		local: policy.IsLocal(err), unauthorized: policy.IsUnauthorized(err),
	}
}

// classify returns the class of an error by the rules. An error is neither
// Permanent nor Unavailable, whatever the rules say, if the handler asks for a retry
// or if the error comes from the end of the attempt's own context. But an error that
// says itself that it is Unavailable is believed then: who made it knows what the time
// was spent on.
func (a *attempt) classify(err error) policy.Class {
	class := a.cfg.rulesOf(a.job).Classify(err)
	if class != policy.Permanent && class != policy.Unavailable {
		return class
	}
	var asked *RetryAfterError
	if errors.As(err, &asked) {
		return policy.Retryable
	}
	if own := a.ctx.Err(); own != nil && errors.Is(err, own) {
		if said, ok := policy.ByMark(err); !ok || said != policy.Unavailable || class != said {
			return policy.Retryable
		}
	}
	return class
}

// judgePanic is judge for a handler that did not return; with is what it has panicked with, nil if
// with nothing.
func (a *attempt) judgePanic(text, stack string, with any) verdict {
	v := verdict{kind: verdictFailed, text: cut(text, maxError), stack: stack}
	if errors.Is(context.Cause(a.ctx), ErrCancelled) {
		v.kind = verdictCancelled
	}
	err, _ := with.(error)
	return a.heedPanic(v, err)
}

// stack returns the stack of the calling goroutine, up to maxStack, from the
// panic or Goexit on that ended its handler. Frames above are the engine's.
func stack() string {
	b := make([]byte, maxStack)
	s := string(b[:runtime.Stack(b, false)])
	header, frames, _ := strings.Cut(s, "\n")
	for _, top := range []string{"\npanic(", "\nruntime.Goexit("} {
		if i := strings.Index(frames, top); i >= 0 {
			return cut(header+frames[i:], maxStack)
		}
	}
	return cut(s, maxStack)
}

// goroutineID returns the number of the calling goroutine, to find its stack by.
func goroutineID() int64 {
	var b [64]byte
	return numberOf(b[:runtime.Stack(b[:], false)])
}

// numberOf reads the header of a stack, "goroutine 18 [running]:".
func numberOf(stack []byte) int64 {
	s, _, _ := bytes.Cut(bytes.TrimPrefix(stack, []byte("goroutine ")), []byte(" "))
	id, _ := strconv.ParseInt(string(s), 10, 64)
	return id
}
