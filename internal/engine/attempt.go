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

// attempt is a lease and what becomes of it. Its fields belong to the loop,
// but for the result, which the runner writes before it hands the attempt back.
type attempt struct {
	cfg     *Config
	job     *storage.Leased
	handler Handler
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout time.Duration

	payment

	slot    int       // index in loop.held
	running bool      // handed to a runner
	suspect bool      // holds the gate of suspects while it runs
	company bool      // with others
	lost    bool      // the lease is gone: no outcome
	gone    bool      // no longer in loop.held
	safe    time.Time // the lease is held for certain until then
	leased  time.Time // asked for
	cause   error     // that the loop cancelled the context with
	overdue time.Time // stuck if still running then; zero: not expected to end
	stuck   bool      // has been reported

	goroutine atomic.Int64 // that runs the handler
	result
}

// payment is what an attempt was granted before it started.
type payment struct {
	throttle *Throttle   // has granted it and can be refunded; nil: none
	budget   *Budget     // nil: none
	cost     policy.Cost // paid to budget
}

// result is what the runner writes.
type result struct {
	verdict  verdict
	took     time.Duration
	noteErr  error // of Store.Ended or Stopping
	startErr error // of Store.Started
}

// verdict is how an attempt ended, in our words: what the handler returned,
// seen in the light of why its context ended.
type verdict struct {
	kind  verdictKind
	class policy.Class  // of a failure
	after time.Duration // of a snooze; of a failure the floor for the delay
	text  string
	stack string
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

func (a *attempt) run(excused *atomic.Bool) {
	store := a.cfg.Store
	// Without the note a crash would look like an attempt that never began, and
	// a job that kills its process would do so for ever.
	if err := store.Started(a.job.Lease, a.cfg.Clock()); err != nil {
		a.verdict, a.startErr = verdict{kind: verdictUnstarted}, err
		a.cancel(nil)
		return
	}
	if a.company || excused.Load() { // if it is excused now, the loop came before the note
		a.noteErr = store.Stopping(a.job.Lease)
	}
	began := time.Now()
	defer func() {
		a.took = time.Since(began)
		a.noteErr = cmp.Or(store.Ended(a.job.Lease), a.noteErr)
		a.cancel(nil) // what the handler left behind should end too
	}()
	a.call()
}

// call calls the handler and judges what it returns. The judgement calls into
// the handler's error values and so runs under the same protection.
func (a *attempt) call() {
	returned := false
	defer func() {
		if returned {
			return
		}
		text := "handler called runtime.Goexit"
		if r := recover(); r != nil {
			text = fmt.Sprintf("panic: %v", r)
		}
		a.verdict = a.judgePanic(text, stack())
	}()
	err := a.handler.Run(a.ctx, a.job)
	a.verdict = a.judge(err)
	returned = true
}

// judge turns what a handler returned into a verdict.
func (a *attempt) judge(err error) verdict {
	if err == nil {
		return verdict{kind: verdictDone}
	}
	text := cut(err.Error(), maxError)
	cause := context.Cause(a.ctx)
	if errors.Is(cause, ErrCancelled) {
		return verdict{kind: verdictCancelled, text: text}
	}
	stopped := errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrLeaseLost)
	if stopped && errors.Is(err, context.Canceled) { // whatever the handler makes of it: it is our doing
		return verdict{kind: verdictInterrupted, text: text}
	}
	said := VerdictOf(err)
	switch v := said.(type) {
	case *PermanentError:
		return verdict{kind: verdictFailed, class: policy.Permanent, text: text}
	case *SnoozeError:
		return verdict{kind: verdictSnoozed, after: v.For, text: text}
	case *CancelError:
		return verdict{kind: verdictCancelled, text: text}
	case *DecodeError:
		return verdict{kind: verdictDecode, text: text}
	}
	switch {
	case stopped:
		return verdict{kind: verdictInterrupted, text: text}
	case errors.Is(cause, context.DeadlineExceeded):
		text = cut(fmt.Sprintf("timeout of %v exceeded: %s", a.timeout, text), maxError)
	}
	f := verdict{kind: verdictFailed, class: a.classify(err), text: text}
	if after, ok := said.(*RetryAfterError); ok {
		f.after = after.After
	} else {
		f.after, _ = policy.RetryAfter(err)
	}
	return f
}

// classify gives the class of an error by the rules. They may know an error
// whose cause is not what they think: where the handler asks for a retry, or
// where the error comes from the end of the attempt's own context, it is not
// Permanent.
func (a *attempt) classify(err error) policy.Class {
	class := a.cfg.rulesOf(a.job).Classify(err)
	if class != policy.Permanent {
		return class
	}
	var asked *RetryAfterError
	if errors.As(err, &asked) || a.ctx.Err() != nil && errors.Is(err, a.ctx.Err()) {
		return policy.Retryable
	}
	return class
}

// judgePanic is judge for a handler that did not return. That the worker was
// stopping excuses no panic: a handler that always does so would never fail.
func (a *attempt) judgePanic(text, stack string) verdict {
	v := verdict{kind: verdictFailed, text: cut(text, maxError), stack: stack}
	if errors.Is(context.Cause(a.ctx), ErrCancelled) {
		v.kind = verdictCancelled
	}
	return v
}

// stack returns the stack of the calling goroutine, up to maxStack, from the
// panic or Goexit on that ended its handler: what is above that is ours.
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

// allStacks gives the stacks of all goroutines by their number: the runtime
// gives that of another one in no other way.
func allStacks() map[int64][]byte {
	const most = 16 << 20
	b := make([]byte, 256<<10)
	n := runtime.Stack(b, true)
	for n == len(b) && n < most {
		b = make([]byte, 4*n)
		n = runtime.Stack(b, true)
	}
	stacks := map[int64][]byte{}
	for block := range bytes.SplitSeq(b[:n], []byte("\n\n")) {
		stacks[numberOf(block)] = block
	}
	return stacks
}

// goroutineID gives the number of the calling goroutine. It serves to find its
// stack again.
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
