package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// The errors of [Attempt].
var (
	// ErrFinished: the attempt has ended, or has completed its job already.
	ErrFinished = errors.New("errand: attempt has ended")
	// ErrNotCommitted is the failure of a handler that returned nil although the transaction in
	// which it had its job completed was not committed.
	ErrNotCommitted = errors.New("errand: the transaction that was to complete the job was not committed")
)

// Attempt is what a handler can do about its own attempt, beside returning. It is safe for
// concurrent use.
type Attempt struct {
	of *attempt

	mu        sync.Mutex
	calls     sync.WaitGroup // of Finish and CompleteTx
	tried     bool           // one was called
	open      bool           // one has ended the job, if its transaction is committed
	committed bool           // it is
	asked     bool           // the job was found to be cancelled
	ending    bool           // no job can follow any more
	follows   *follows       // if the job is done; nil: nothing
	keeps     *keeps         // with its end; nil: nothing
	over      bool           // the handler has returned
	placed    atomic.Bool    // a checkpoint may have been kept
}

// attemptContext is the context of a handler, which leads to the attempt. It is a part of the
// attempt, so that it costs no allocation.
type attemptContext struct {
	context.Context
	Attempt
}

type attemptKey struct{}

// completion is how an attempt ends before its handler returns.
type completion struct {
	loop *loop
	told bool // that the job is completed
	own  attemptContext
}

// Value implements [context.Context].
func (c *attemptContext) Value(key any) any {
	if key == (attemptKey{}) {
		return &c.Attempt
	}
	return c.Context.Value(key)
}

// AttemptOf returns the attempt of a handler's context; nil if it is that of none.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// Owner returns that of the Config.
func (a *Attempt) Owner() any { return a.of.cfg.Owner }

// begin begins a call that may complete the job.
func (a *Attempt) begin() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.committed {
		return ErrFinished
	}
	a.tried = true
	a.calls.Add(1)
	return nil
}

// Finish runs fn in a transaction of the store, and completes the job in it.
func (a *Attempt) Finish(ctx context.Context, store storage.TxEnqueuer, fn func(tx any) error) error {
	if err := a.begin(); err != nil {
		return err
	}
	defer a.calls.Done()
	was := a.isOpen()
	if AttemptOf(ctx) != a { // as that of a call with many jobs
		ctx = context.WithValue(ctx, attemptKey{}, a)
	}
	err := store.Tx(ctx, func(tx any) error {
		r, err := store.LookTx(ctx, tx, a.of.job.Lease)
		if err := errors.Join(err, a.refusal(r)); err != nil {
			return err
		}
		if err := fn(tx); err != nil {
			return err
		}
		return finish(ctx, store, tx, a)
	})
	if err != nil && !was && !errors.Is(err, storage.ErrUnknownOutcome) {
		a.reopen()
	}
	return a.caused(ctx, err)
}

// caused says of an error of a call that may complete the job why the context has ended.
func (a *Attempt) caused(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(a.of.ctx), ErrCancelled) {
		a.wasAsked()
	}
	return a.explained(ctx, err)
}

// explained says of an error why the context has ended.
func (a *Attempt) explained(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(a.of.ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// wasAsked notes that the job was found to be cancelled.
func (a *Attempt) wasAsked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = true
}

// CompleteTx completes jobs of one engine in a transaction of the application, or of the store. After an error, that of
// the first job which cannot be completed, the transaction cannot commit.
func CompleteTx(ctx context.Context, store storage.TxEnqueuer, tx any, all ...*Attempt) error {
	for _, a := range all {
		if err := a.begin(); err != nil {
			store.SpoilTx(tx, err)
			return err
		}
		defer a.calls.Done()
	}
	return finish(ctx, store, tx, all...)
}

// HeldTx returns why CompleteTx would be refused, if it would be.
func (a *Attempt) HeldTx(ctx context.Context, store storage.TxEnqueuer, tx any) error {
	if err := a.begin(); err != nil {
		return err
	}
	defer a.calls.Done()
	r, err := store.LookTx(ctx, tx, a.of.job.Lease)
	return errors.Join(err, a.refusal(r))
}

// finish completes jobs in a transaction.
func finish(ctx context.Context, store storage.TxEnqueuer, tx any, all ...*Attempt) error {
	cfg := all[0].of.cfg
	ends := make([]storage.Finish, len(all))
	for i, a := range all {
		ends[i] = storage.Finish{Lease: a.of.job.Lease, Outcome: storage.OutcomeDone}
		a.brings(&ends[i])
	}
	results, added, err := store.FinishTx(ctx, tx, cfg.Clock.Now(), ends, cfg.Retention, func(i int) { all[i].commit() })
	last := all[max(len(results)-1, 0)] // which has failed, if one has
	if len(results) > 0 {
		err = errors.Join(err, last.refusal(results[len(results)-1]))
	}
	if err != nil {
		for _, a := range all {
			a.undo()
		}
		return last.caused(ctx, err)
	}
	for i, a := range all {
		a.mu.Lock()
		a.open = true
		if a.follows != nil {
			a.follows.added = added[i]
		}
		a.mu.Unlock()
	}
	return nil
}

// refusal returns why a lease cannot be ended.
func (a *Attempt) refusal(r storage.ItemResult) error {
	if r == storage.Cancelling {
		a.wasAsked()
	}
	return Refused(r)
}

// Refused returns why something about a lease was refused, nil if it was not.
func Refused(r storage.ItemResult) error {
	switch r {
	case storage.Lost:
		return ErrLeaseLost
	case storage.Cancelling:
		return ErrCancelled
	case storage.Ended:
		return ErrFinished
	}
	return nil
}

// commit notes that the job is completed, and has the loop tell it.
func (a *Attempt) commit() {
	a.mu.Lock()
	first := !a.committed
	a.committed = true
	a.mu.Unlock()
	if first {
		a.of.loop.mail.post(func() { a.of.loop.complete(a.of) })
	}
}

// isCommitted reports whether the job is known to be completed.
func (a *Attempt) isCommitted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.committed
}

// isOpen reports whether a transaction that completes the job may be open.
func (a *Attempt) isOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// wasTried reports whether a call that may complete the job was made.
func (a *Attempt) wasTried() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tried
}

// returned notes that the handler has returned, and finds out whether it has completed the job.
// The result is those who are to be told what becomes of the jobs that follow.
func (a *Attempt) returned() (told []func(dropped bool)) {
	a.mu.Lock()
	a.over = true
	tried := a.tried
	if a.follows != nil {
		told = a.follows.told
	}
	a.mu.Unlock()
	if !tried {
		return told
	}
	a.of.cancel(nil) // for a goroutine of the handler that is in Finish
	a.calls.Wait()
	store, ok := a.of.cfg.Store.(storage.TxEnqueuer)
	if !ok || !a.open && !a.asked || a.isCommitted() {
		return told
	}
	r, err := store.LookTx(context.Background(), nil, a.of.job.Lease)
	if err == nil && r == storage.Ended {
		a.commit()
	}
	a.asked = err == nil && r == storage.Cancelling // else its transaction may have been rolled back
	return told
}

// settleCompletion makes the verdict on a handler that has returned that of one which may have
// completed its job.
func (a *attempt) settleCompletion() {
	own := &a.own.Attempt
	if a.unread && !own.wasTried() { // it may start again
		return
	}
	if told := own.returned(); told != nil {
		defer a.tellFollowers(told)
	}
	switch {
	case !own.tried:
		return
	case own.isCommitted():
		if v := &a.verdict; v.kind != verdictDone {
			a.ignored = v.text
		}
		a.completed, a.verdict = true, verdict{kind: verdictDone}
		return
	case own.asked:
		a.verdict = verdict{kind: verdictCancelled, text: cmp.Or(a.verdict.text, ErrCancelled.Error())}
	case a.verdict.kind == verdictDone:
		a.judgeCaught(ErrNotCommitted)
	}
	a.open = a.open || own.open
}

// complete tells that the handler of an attempt has completed its job.
func (l *loop) complete(a *attempt) {
	ender := a.ender()
	a = a.last()
	if a.told {
		return
	}
	a.told = true
	done := outcome{Finish: storage.Finish{Lease: a.job.Lease, Outcome: storage.OutcomeDone}, job: a.job, timing: a.soFar()}
	var then map[int][]storage.Enqueued
	ender.mu.Lock()
	if of := ender.follows; of != nil {
		done.Then, then = of.then, map[int][]storage.Enqueued{0: of.added}
	}
	ender.mu.Unlock()
	l.taken([]outcome{done}, []storage.ItemResult{storage.Applied}, then, time.Now())
}

// ender returns what has completed the job of an attempt: the attempt, or that of an earlier call
// under the lease whose transaction was open when it ended.
func (a *attempt) ender() *Attempt {
	for o := a; o != nil; o = o.earlier {
		if o.own.isOpen() {
			return &o.own.Attempt
		}
	}
	return &a.own.Attempt
}

// isCompleted reports whether the job of an attempt is known to be completed, by it or in an earlier
// call under the lease.
func (a *attempt) isCompleted() bool {
	for o := a; o != nil; o = o.earlier {
		if o.own.isCommitted() {
			return true
		}
	}
	return false
}

// heedCompletion makes the verdict on an attempt of a batch that of one which has completed its job,
// if it is completed meanwhile, and reports whether it is.
func (a *attempt) heedCompletion() bool {
	if a.completed || !a.isCompleted() {
		return a.completed
	}
	if a.verdict.kind != verdictDone {
		a.ignored = a.verdict.text
	}
	a.completed, a.verdict = true, verdict{kind: verdictDone}
	return true
}

// endCompleted takes back an attempt that has completed its job.
func (l *loop) endCompleted(a *attempt) {
	l.complete(a)
	if a.ignored != "" {
		l.reports.job(slog.LevelWarn, ignoredAfter, a.job, a.ignored)
	}
	f := storage.Finish{Lease: a.job.Lease, Outcome: storage.OutcomeDone}
	l.learn(a, &f, time.Time{})
	l.countForKick(a, f.Outcome)
	drop(a.job, false)
}

// openTx is an attempt whose handler has returned, while the transaction in which it had its
// job completed may be open.
type openTx struct {
	*attempt
	slow *time.Timer
}

// slowTx is after which time it is logged that a transaction was left open.
const slowTx = time.Second

// leftOpen watches over an attempt whose transaction may be open; nil if it cannot be.
func (l *loop) leftOpen(a *attempt) *openTx {
	if !a.open {
		return nil
	}
	log, attrs := l.cfg.Logger, l.attrs(a)
	return &openTx{a, time.AfterFunc(slowTx, func() {
		log.Warn("errand: a handler has returned and left open the transaction that completes its job", attrs...)
	})}
}

// end ends the watch, if there is one.
func (o *openTx) end() {
	if o != nil {
		o.slow.Stop()
	}
}
