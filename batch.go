package errand

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// BatchOptions say how many jobs [HandleMany] and [HandleQueue] pass to one call.
type BatchOptions struct {
	// Max is how many jobs a call has at most, from 1 to 1,000.
	Max int
	// MaxBytes is how many bytes of args and headers the jobs of a call have together at
	// most. A larger job is in a call of its own. If zero, any number.
	MaxBytes int
	// Min is how many jobs of one queue and kind must be ready, up to Max, before any
	// of them is leased; it needs a Wait. If zero or 1, what is ready is leased at once.
	Min int
	// Wait limits Min: that long after the earliest job is due, the jobs are leased even if
	// fewer than Min are ready. It needs a Min above 1.
	Wait time.Duration
	// ByGroup is true if a call has jobs of one group only. If the jobs of a group run one
	// at a time, a call has the first and those blocked right behind it, in their order.
	// Once one of them is not done, the later ones that are not done go back as if fn had
	// not been called, and wait for it; what is done stays done. Only jobs that are ready
	// count for Min. Jobs without a group are in calls of their own. If false, a call has
	// the first of many groups.
	ByGroup bool
	// Whole is true if no call may be repeated in parts. All jobs of a call that fails with a
	// permanent error are dead then.
	Whole bool
}

// mostBatched is how many jobs a call has at most, so that no transaction takes long.
const mostBatched = 1000

// BatchError is what a handler of [HandleMany] or [HandleQueue] returns if not all its jobs end alike:
// under the ID of each job its verdict, as a handler of one job would return it. A job
// with no entry, or with nil, is done; so an empty BatchError is a success. IDs of other
// jobs have no effect.
//
// A BatchError may be wrapped. An error that wraps several, such as that of
// [errors.Join], is one for all jobs.
type BatchError map[ID]error

// Error returns the first of the errors, in the order of IDs, and how many more there are.
func (e BatchError) Error() string {
	var first ID
	n := 0
	for id, err := range e {
		if err == nil {
			continue
		}
		if n++; n == 1 || id.String() < first.String() {
			first = id
		}
	}
	if n == 0 {
		return "no job of the batch failed"
	}
	text := fmt.Sprintf("job %v: %v", first, e[first])
	if n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	return text
}

// batchVerdict returns the verdict of a job in what the handler of a batch returned, and whether
// that is about all jobs of the call.
func batchVerdict(err error, id ID) (shared bool, verdict error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if all, ok := e.(BatchError); ok { //nolint:errorlint // errors.As would find it in errors.Join
			return false, all[id]
		}
	}
	return err != nil, err
}

// HandleMany registers fn as the handler of the jobs whose args are of type A, as [Handle]
// does, but fn is called with many of them: one request can then do the work of
// hundreds. The jobs of a call are of one queue and one kind, in the order in which they
// would start.
//
// If fn returns nil, all jobs of the call are done. If it returns a [BatchError], each has
// its own verdict. If it returns another error, that is the verdict on each: an [Unavailable]
// costs none a retry. If it panics or runs out of time, all have failed. Each job keeps its own
// lease, attempt, retries and history, so that only what has failed is tried again. A job whose
// args do not decode fails alone, and is not passed to fn.
//
// A permanent error of a call of several jobs, by [Permanent] or by the rules of
// [HandlerOptions], does not say which of them is to blame. So the call is repeated in parts:
// fn is called with the first half of the jobs, then with the second, and so on, down to one
// job. Only a job that fails alone is dead. All these calls are one attempt of a job, and each
// has its own timeout and way through the middleware. A job is in no further call if it was
// completed, see [Job.Finish], or cancelled. What the failed call has said by [Job.Then] and
// [Job.SetResult] is dropped. If all parts of a call pass, it had too many jobs: calls have
// fewer for an hour. If fn must not get a job twice in an attempt, set [BatchOptions].Whole.
//
// A call counts as one for Concurrency; each job counts for the throttle of a policy. A
// call has the shortest timeout of its jobs. ctx ends when all of them must end. fn is
// not told that a single job was cancelled or has lost its lease. The verdict of a job
// that has lost its lease counts for nothing.
//
// fn is called with one job alone in three cases: the job is urgent, see [Queue.RunNow];
// a hold lets it through; or a call with it was under way when its process crashed, as it
// is not known which job is to blame.
//
// [Middleware] is called for each job, for all of them at the same time. When each has
// called next or has returned, fn is called once, with the jobs of those that called
// next. A context that middleware passes on does not reach fn. If middleware calls next
// again, fn is called with that job alone. While it calls next, it must not hold what the
// others need, such as a mutex.
//
// HandleMany panics where [Handle] does, and if the options are bad.
func HandleMany[A Args](w *Worker, fn func(ctx context.Context, jobs []*Job[A]) error, b BatchOptions, o ...HandlerOptions) {
	kind := w.kindOf(reflect.TypeFor[A]())
	if fn == nil {
		panic(fmt.Sprintf("errand: HandleMany %q: nil handler", kind))
	}
	if err := b.validate(); err != nil {
		panic(fmt.Sprintf("errand: HandleMany %q: %v", kind, err))
	}
	w.register(kind, o, batches(w, fn, &b))
}

// HandleQueue registers fn as the handler of the jobs of all kinds in a queue, also of kinds that
// nobody knows yet: for a program that passes jobs on. queue is one of [WorkerOptions].Queues, a
// name or a prefix. fn is called as that of [HandleMany] is, with args that are not decoded, see
// [HandleRaw]. The jobs of a call are of one queue. Their kinds may differ, and with ByGroup
// those of a group too; Min counts the jobs of each kind by itself. With a Max of 1, fn is called as a
// handler of [Handle] is, with one job.
//
// The handler has the queue for itself. A handler of a single kind is called for the other queues
// of the worker alone: a job in a queue that is passed on is never done here, whatever its kind. Run
// returns a [FieldError] if no queue is left to such a handler. Of the prefixes and names in Queues
// that fit a queue the longest counts, as with all workers.
//
// What holds for a whole queue is set in [QueueOptions] alone: HandleQueue panics if Policy, Rules,
// Budget, Concurrency, OpenJitter, OnDead or Aliases of the HandlerOptions are set. Gate may be set there or
// here, and is that of the queue. The policy of a job counts before that of the queue. [Settings] of kinds, holds and outages are those of
// each kind, as ever, and so are counts, statistics and events.
//
// HandleQueue panics where HandleMany does, and if the worker does not work for the queue.
func HandleQueue(w *Worker, queue string, fn func(ctx context.Context, jobs []*Job[RawArgs]) error, b BatchOptions, o ...HandlerOptions) {
	if fn == nil {
		panic(fmt.Sprintf("errand: HandleQueue %q: nil handler", queue))
	}
	if err := b.validate(); err != nil {
		panic(fmt.Sprintf("errand: HandleQueue %q: %v", queue, err))
	}
	set := batches(w, fn, &b)
	if b.Max == 1 {
		set = handler(w, (&many[RawArgs]{worker: w, fn: fn}).last)
	}
	w.registerQueue(queue, o, set)
}

// registerQueue is register for the handler of all kinds in a queue.
func (w *Worker) registerQueue(queue string, all []HandlerOptions, set func(*engine.Handler, []Middleware)) {
	o := single(queue, all)
	if !slices.Contains(w.named(), queue) || w.servesBulk() {
		panic(fmt.Sprintf("errand: HandleQueue %q: the worker does not work for it", queue))
	}
	if set := o.ofQueue(); set != "" {
		panic(fmt.Sprintf("errand: HandleQueue %q: %s must be set in QueueOptions", queue, set))
	}
	if o.Gate != nil && w.queue.opts.optionsOf(queue).Gate != nil {
		panic(fmt.Sprintf("errand: HandleQueue %q: gate must not be set here and in QueueOptions", queue))
	}
	h := w.made(queue, &o, set)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustNotRun(queue)
	if _, ok := w.queues[queue]; ok {
		panic(fmt.Sprintf("errand: HandleQueue %q: the queue has a handler already", queue))
	}
	w.queues[queue] = h
}

// batches returns what sets that which the engine calls for many leased jobs.
func batches[A Args](w *Worker, fn func(context.Context, []*Job[A]) error, b *BatchOptions) func(*engine.Handler, []Middleware) {
	m := &many[A]{worker: w, fn: fn}
	return func(h *engine.Handler, all []Middleware) {
		handler(w, m.last)(h, all)
		h.Batch = &engine.Batch{Max: b.Max, MaxBytes: b.MaxBytes, Min: b.Min, Wait: b.Wait, ByGroup: b.ByGroup, Whole: b.Whole, Run: m.run}
		if len(all) > 0 {
			way := h.Run
			h.Batch.Run = func(ctx context.Context, items []engine.Item) { m.gather(ctx, items, way) }
		}
	}
}

func (b *BatchOptions) validate() error {
	var f faults
	if b.Max < 1 || b.Max > mostBatched {
		f.field("max", b.Max, fmt.Sprintf("must be between 1 and %d", mostBatched))
	}
	if b.MaxBytes < 0 {
		f.field("max_bytes", b.MaxBytes, "must not be negative")
	}
	switch {
	case b.Min < 0 || b.Min > max(b.Max, 0):
		f.field("min", b.Min, "must be between 0 and max")
	case b.Min > 1 && b.Wait == 0:
		f.field("wait", b.Wait, "must be above zero with a min above 1")
	}
	if b.ByGroup && b.Max == 1 {
		f.field("max", b.Max, "must be above 1 with by_group")
	}
	switch {
	case b.Wait < 0:
		f.field("wait", b.Wait, "must not be negative")
	case b.Wait > 0 && b.Min <= 1:
		f.field("min", b.Min, "must be above 1 with a wait")
	}
	return f.err()
}

// many calls a handler of many jobs.
type many[A Args] struct {
	worker *Worker
	fn     func(context.Context, []*Job[A]) error
}

// last is the end of the way of one job. Beside others it waits for them.
func (m *many[A]) last(ctx context.Context, job *Job[A]) error {
	id := job.ID
	w, beside := ctx.Value(wayKey{}).(*way[A])
	if beside && w.arrive(job) {
		<-w.of.done
		if w.of.most <= w.n {
			return engine.ErrUntouched
		}
		shared, err := batchVerdict(w.of.err, id)
		w.shared.Store(shared)
		return err
	}
	if beside {
		w.shared.Store(false)
	}
	_, err := batchVerdict(m.fn(ctx, []*Job[A]{job}), id)
	return err
}

// run runs jobs without middleware.
func (m *many[A]) run(ctx context.Context, items []engine.Item) {
	jobs, live := make([]*Job[A], 0, len(items)), make([]*engine.Item, 0, len(items))
	ordered := engine.InOrder(items)
	for i := range items {
		if ordered && len(live) < i { // behind one that has failed
			items[i].Err = engine.ErrUntouched
			continue
		}
		job, err := decodeJob[A](items[i].Job)
		if err != nil {
			items[i].Err = &engine.DecodeError{Err: err}
			continue
		}
		job.attempt = engine.AttemptOf(items[i].Ctx)
		job.Phase = m.worker.engine.Phase(items[i].Job)
		jobs, live = append(jobs, job), append(live, &items[i])
	}
	if len(jobs) == 0 {
		return
	}
	err := m.fn(ctx, jobs)
	for _, i := range live {
		i.Shared, i.Err = batchVerdict(err, i.Job.ID)
	}
}

// gathering is one call of a handler of many jobs, for which their ways have come
// together.
type gathering[A Args] struct {
	mu   sync.Mutex
	away int       // ways that have not come to their end
	jobs []*Job[A] // of those that have; nil of the others
	all  chan struct{}
	done chan struct{} // closed when err is what the handler returned
	err  error
	most int // the handler is called with those before it
}

// way is that of one job through the middleware.
type way[A Args] struct {
	of   *gathering[A]
	n    int  // of gathering.jobs
	over bool // it has come to its end, or to nothing
	// shared: the last error that it met is that of the call.
	shared atomic.Bool
}

type wayKey struct{}

// arrive adds a job to the call, and reports whether it has: only once, and before the
// call.
func (w *way[A]) arrive(job *Job[A]) bool {
	g := w.of
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.over {
		return false
	}
	w.over = true
	g.jobs[w.n] = job
	if g.away--; g.away == 0 {
		close(g.all)
	}
	return true
}

// gather runs jobs, each of which goes through the middleware.
func (m *many[A]) gather(ctx context.Context, items []engine.Item, run func(context.Context, *storage.Leased) error) {
	g := &gathering[A]{
		away: len(items), most: len(items), jobs: make([]*Job[A], len(items)), all: make(chan struct{}), done: make(chan struct{}),
	}
	var ways sync.WaitGroup
	defer ways.Wait()
	defer close(g.done)
	for i := range items {
		ways.Go(func() {
			w := &way[A]{of: g, n: i}
			defer w.arrive(nil)
			defer func() { items[i].Shared = w.shared.Load() }()
			caught(&items[i], func(ctx context.Context) error { return run(context.WithValue(ctx, wayKey{}, w), items[i].Job) })
		})
	}
	g.err = errors.New("the handler has not returned")
	select {
	case <-g.all:
	case <-ctx.Done(): // some wait for what others have
		g.err = context.Cause(ctx)
		return
	}
	if i := slices.Index(g.jobs, nil); i >= 0 && engine.InOrder(items) {
		g.most = i
	}
	jobs := slices.DeleteFunc(g.jobs[:g.most], func(job *Job[A]) bool { return job == nil })
	if len(jobs) > 0 {
		g.err = m.fn(ctx, jobs)
	}
}

// caught sets the error of a job by what run returns, or by how it does not.
func caught(i *engine.Item, run func(context.Context) error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		i.Stack, i.Err = string(debug.Stack()), errors.New("middleware called runtime.Goexit")
		switch r := recover().(type) {
		case nil:
		case error: // which the engine asks where it comes from
			i.Err = fmt.Errorf("panic: %w", r)
		default:
			i.Err = fmt.Errorf("panic: %v", r)
		}
	}()
	i.Err = run(i.Ctx)
	returned = true
}
