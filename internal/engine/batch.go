package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// batchStep is how many jobs of batches one exchange leases of a source, unless one
// call takes more.
const batchStep = 1000

// Batch has many jobs of a queue and a handler run by one call of it. Each has a lease, an
// attempt and an outcome of its own; a runner, and what bounds how many handlers run,
// count the call.
type Batch struct {
	Max int // jobs of a call, at least 1
	// MaxBytes is how many bytes of args and headers a call takes, unless one job alone
	// has more. If zero, any number.
	MaxBytes int
	// Min and Wait are those of [storage.Want].
	Min  int
	Wait time.Duration
	// ByGroup has a call have jobs of one group only, or of none, and in order.
	ByGroup bool
	// Whole has no call made again in parts.
	Whole bool
	// Run runs the jobs of all items, and sets their errors. ctx ends when all must end.
	Run func(ctx context.Context, items []Item)
}

// Item is one job of a call.
type Item struct {
	Ctx context.Context // ends when the job must end
	Job *storage.Leased
	Err error // as a handler returns it
	// Shared: Err is that of the call, and not of this job alone.
	Shared bool
	// Stack is that of a panic of which Err is the text; else empty.
	Stack string
}

// batch is the attempts of one call, or of several that are made one after the other. It
// belongs to the loop as they do.
type batch struct {
	part          // of the call that runs or comes next; the first stands for all where the batch counts
	later  []part // the next one comes last
	held   int    // leases
	sizing *sizing
	ended  int // attempts of the call whose contexts the loop has cancelled
	ctx    context.Context
	cancel context.CancelCauseFunc
	took   time.Duration // the call
	done   bool          // a job of the call is done
	astray []string      // the kinds of which it was noted that it could not reach the other side
	waited bool          // for the news of a stop, in this call
	// ordered: its attempts are members of a group that runs in order. None may overtake
	// another.
	ordered bool
}

// batchKey leads from the context of a call to its batch.
type batchKey struct{}

// perCall returns how many jobs of s are about to run in one call.
func (s *source) perCall() int {
	if s.batch == nil {
		return 1
	}
	n := s.batch.Max
	if s.sizing.known() {
		n = min(n, s.sizing.passed)
	}
	if s.batch.MaxBytes > 0 && s.weight > 0 {
		n = max(min(n, s.batch.MaxBytes/s.weight), 1)
	}
	return n
}

// inStep returns for how many of n calls the jobs of s are leased by one exchange. If
// not even half of a batch may be one itself, the store is asked for one batch at a
// time, as no rest of them can be divided.
func (s *source) inStep(n int) int {
	switch {
	case s.batch == nil:
		return n
	case s.KeepsBack() && 2*s.Min > s.batch.Max && !s.batch.ByGroup:
		return min(n, 1)
	}
	return min(n, max(batchStep/s.perCall(), 1))
}

// admitMany makes batches of attempts.
func (l *loop) admitMany(all []*attempt, sent time.Time) {
	for len(all) > 0 {
		from := all[0].from
		var own, others []*attempt
		bytes := 0
		for _, a := range all {
			if a.from != from || a.job.Queue != all[0].job.Queue || from.batch.ByGroup && a.job.Group != all[0].job.Group {
				others = append(others, a)
				continue
			}
			own = append(own, a)
			bytes += a.job.Weight()
		}
		from.weight = bytes / len(own)
		if inOrder(own) {
			l.admitInOrder(own, sent)
			all = others
			continue
		}
		size := evenly(len(own), from.batch.Max)
		for len(own) > 0 {
			b := &batch{sizing: from.sizing}
			n := from.batch.fit(own[:min(size, b.takes(len(own)))])
			l.admitBatch(b, own[:n:n], sent)
			own = own[n:]
		}
		all = others
	}
}

// evenly returns how many of n jobs each call has, if it may have up to most.
func evenly(n, most int) int {
	calls := (n + most - 1) / most
	return (n + calls - 1) / calls
}

// fit returns how many of the first attempts one call takes.
func (b *Batch) fit(all []*attempt) int {
	bytes := 0
	for i, a := range all {
		if bytes += a.job.Weight(); b.MaxBytes > 0 && bytes > b.MaxBytes && i > 0 {
			return i
		}
	}
	return len(all)
}

// admitBatch has attempts wait for a runner together, unless their bounds leave no
// room: there may be more batches than were asked for, since jobs were heavier.
func (l *loop) admitBatch(b *batch, all []*attempt, sent time.Time) {
	if all[0].from.left() == 0 {
		for _, a := range all {
			l.giveBack(a, time.Time{})
		}
		return
	}
	b.all, b.ordered = all, inOrder(all)
	for _, a := range all {
		a.batch = b
		l.leases.hold(a, sent, l.cfg.LeaseDuration)
	}
	l.ready.waiting = append(l.ready.waiting, all[0])
}

// occupy counts the lease of an attempt for its bounds, or with -1 no longer; leases of
// a batch count together.
func (a *attempt) occupy(n int) {
	b := a.batch
	if b == nil {
		a.from.held(a.job.Queue, n)
		return
	}
	was := min(b.held, 1)
	b.held += n
	a.from.held(a.job.Queue, min(b.held, 1)-was)
}

// together returns the attempts of which a stands for the call.
func (a *attempt) together() []*attempt {
	if a.batch == nil {
		return []*attempt{a}
	}
	return slices.Clone(a.batch.all)
}

// members returns the attempts that a stands for.
func (a *attempt) members() []*attempt {
	all := a.together()
	if a.batch != nil {
		for _, p := range slices.Backward(a.batch.later) {
			all = append(all, p.all...)
		}
	}
	return all
}

// leads reports whether a stands for its call.
func (a *attempt) leads() bool { return a.batch == nil || a.batch.all[0] == a }

// leave takes an attempt that waits for a runner out of those that do. Another one of
// its batch takes its place.
func (l *loop) leave(a *attempt) {
	i := slices.Index(l.ready.waiting, a)
	if b := a.batch; b != nil {
		b.drop(a)
		if i >= 0 && b.next() {
			l.ready.waiting[i] = b.all[0]
			return
		}
	}
	if i >= 0 {
		l.ready.waiting = slices.Delete(l.ready.waiting, i, i+1)
	}
}

// startBatch hands the next call of a batch to a runner. It reports whether there is one.
func (l *loop) startBatch(b *batch, now time.Time) bool {
	for b.next() {
		b.cut()
		if l.payAll(b, now) {
			l.startCall(b, now)
			return true
		}
	}
	return false
}

// payAll pays for a call, but for retries for which the budget is empty. Jobs that an earlier call
// has completed meanwhile end. It reports whether any job is left.
func (l *loop) payAll(b *batch, now time.Time) bool {
	behind := false // one that goes back
	b.all = slices.DeleteFunc(b.all, func(a *attempt) bool {
		a.handler, _ = l.cfg.handler(a.job.Queue, a.job.Kind)
		if behind {
			l.leases.release(a)
			l.giveBack(a, time.Time{})
			return true
		}
		if a.heedCompletion() {
			l.concluded(a)
			return true
		}
		paid := l.pay(a, now)
		behind = b.ordered && !paid
		return !paid
	})
	if behind {
		l.giveBackLater(b)
	}
	return len(b.all) > 0
}

// startCall hands a call that was paid for to a runner. The shortest timeout of its jobs is
// that of the call.
func (l *loop) startCall(b *batch, now time.Time) {
	b.ended, b.done, b.astray = 0, false, nil
	var timeout time.Duration
	for _, a := range b.all {
		if t := l.timeoutOf(a); t > 0 && (timeout == 0 || t < timeout) {
			timeout = t
		}
	}
	b.ctx, b.cancel = context.WithCancelCause(context.WithValue(l.runners.ctx, batchKey{}, b))
	if timeout > 0 {
		cancel := b.cancel
		ctx, stop := context.WithTimeout(b.ctx, timeout)
		b.ctx, b.cancel = ctx, func(cause error) {
			cancel(cause)
			stop()
		}
		l.expectEnd(b.all[0], now.Add(timeout))
	}
	for _, a := range b.all {
		a.heeded, a.watched, a.timeout = l.ready.holds.heeded, l.ready.watched, timeout
		a.own.Context, a.cancel = context.WithCancelCause(b.ctx)
		a.ctx = &a.own
		l.leases.loseAt = sooner(l.leases.loseAt, a.safe)
	}
	l.runners.hand(b.all[0])
	for _, a := range b.all {
		a.running = true
	}
}

// cancelled notes that the context of one attempt has ended, and ends that of the call
// with the last one. It returns the attempt that stands for the call then, else nil.
func (b *batch) cancelled(cause error) *attempt {
	if b.ended++; b.ended < len(b.all) {
		return nil
	}
	b.cancel(cause)
	return b.all[0]
}

// repeated returns the outcome of an attempt. One without a call counts if there was a call before.
func (a *attempt) repeated(f storage.Finish) storage.Finish {
	if f.Outcome == storage.OutcomeReturned && a.again && !a.batch.ordered {
		f.Outcome = storage.OutcomeInterrupted
	}
	return f
}

// run is [attempt.run] for the attempts of a batch.
func (b *batch) run(r *runners) {
	cfg := b.all[0].cfg
	live := make([]*attempt, 0, len(b.all))
	behind := false // one that is not called
	for _, a := range b.all {
		if behind {
			a.verdict = verdict{kind: verdictUnstarted}
			continue
		}
		now := cfg.Clock.Now()
		if err := cfg.marker.Started(a.job.Lease, now); err != nil {
			a.verdict, a.startErr = verdict{kind: verdictUnstarted}, err
			behind = b.ordered
			continue
		}
		if r.excused() {
			a.noteErr = cfg.marker.Stopping(a.job.Lease)
		}
		a.begin(now)
		live = append(live, a)
	}
	defer func() {
		defer b.cancel(nil)
		defer r.readPlaces(live)
		for _, a := range slices.Backward(live) {
			defer a.handled() // all of them, also if a function of AfterEnqueue ends the goroutine
		}
	}()
	if len(live) == 0 {
		return
	}
	held := r.holds.sinceOf(live[0].heeded, live)
	inTime := make([]*attempt, 0, len(live))
	for _, a := range live {
		if a.unread = held; held || !a.again && pastWindow(a.job, cfg.Clock) {
			a.verdict = verdict{kind: verdictUnstarted}
			held = held || b.ordered // those behind it
			continue
		}
		if !a.again {
			a.tellStarted()
		}
		inTime = append(inTime, a)
	}
	if len(inTime) > 0 {
		b.call(inTime)
	}
}

// call calls the handler and judges what it returns for each job. If it does not return,
// all have failed; the stack is kept once.
func (b *batch) call(live []*attempt) {
	items := make([]Item, len(live))
	for i, a := range live {
		items[i] = Item{Ctx: a.ctx, Job: a.job}
	}
	returned, began := false, time.Now()
	b.waited = false
	defer func() {
		b.took = time.Since(began)
		if returned {
			return
		}
		text, stack := "handler called runtime.Goexit", stack()
		r := recover()
		if r != nil {
			text = fmt.Sprintf("panic: %v", r)
		}
		for _, a := range live {
			a.verdict = a.judgePanic(text, stack, r)
			stack = ""
		}
	}()
	live[0].handler.Batch.Run(b.ctx, items)
	returned = true
	if b.ctx.Err() != nil {
		for _, a := range live {
			<-a.ctx.Done() // it ends a moment after that of the call
		}
	}
	for i, a := range live {
		a.shared = items[i].Shared
		if items[i].Stack != "" {
			a.verdict = a.judgePanic(items[i].Err.Error(), cut(items[i].Stack, maxStack), items[i].Err)
			continue
		}
		a.judgeCaught(items[i].Err)
	}
}

// judgeCaught is judge for an error whose methods may panic.
func (a *attempt) judgeCaught(err error) {
	defer func() {
		if r := recover(); r != nil {
			a.verdict = a.judgePanic(fmt.Sprintf("panic: %v", r), stack(), nil)
		}
	}()
	a.verdict = a.judge(err)
}

// endBatch takes the attempts of a call back. For the pace and the ramp of the lane they
// count as one, which is done if any is. Those that are done come first: the others did
// not fail one after the other then.
func (l *loop) endBatch(b *batch) {
	for _, a := range b.all {
		a.running = false
		a.heedCompletion()
	}
	all, again := b.all, l.refused(b)
	left := again // which come in the order of all
	ended := slices.DeleteFunc(slices.Clone(all), func(a *attempt) bool {
		goesOn := len(left) > 0 && left[0] == a
		if goesOn {
			left = left[1:]
		}
		return goesOn
	})
	behind := b.heedOrder(ended)
	one := all[0]
	var done, others []*attempt
	for _, a := range ended {
		if a.verdict.kind == verdictDone {
			done = append(done, a)
			continue
		}
		others = append(others, a)
		if one.verdict.kind == verdictUnstarted {
			one = a
		}
	}
	if b.done = len(done) > 0; b.done {
		one = done[0]
	}
	l.called(one)
	for _, a := range done {
		l.concluded(a)
	}
	for _, a := range others {
		l.concluded(a)
	}
	if behind {
		l.giveBackLater(b)
	}
	l.goOn(b, again)
}

// firstAstray reports whether a is the first attempt of its kind in its call that could not reach
// the other side.
func (a *attempt) firstAstray() bool {
	b := a.batch
	if b == nil {
		return true
	}
	if slices.Contains(b.astray, a.job.Kind) {
		return false
	}
	b.astray = append(b.astray, a.job.Kind)
	return true
}
