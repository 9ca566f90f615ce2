package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"sync"
	"syscall"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// Worker runs jobs in this process: it takes due jobs from its queues and calls
// their handlers. It is safe for concurrent use.
type Worker struct {
	queue *Queue
	opts  WorkerOptions

	mu       sync.Mutex
	handlers map[string]engine.Handler
	queues   map[string]engine.Handler // of all kinds, by the name or prefix in opts.Queues
	onDead   map[string]*OnDead
	engine   *engine.Engine // nil until Run or Shutdown is called
	bulk     bulkEngine
	err      error // faults of the options
}

// NewWorker makes a worker on q. It starts nothing. Run returns the faults of the
// options.
func NewWorker(q *Queue, o *WorkerOptions) *Worker {
	if q == nil {
		panic("errand: NewWorker: nil queue")
	}
	w := &Worker{queue: q, opts: *cmp.Or(o, &WorkerOptions{}), handlers: map[string]engine.Handler{}, queues: map[string]engine.Handler{}, onDead: map[string]*OnDead{}}
	w.opts.Queues, w.opts.Middleware = slices.Clone(w.opts.Queues), slices.Clone(w.opts.Middleware)
	w.opts.Logger = q.loggers.of(cmp.Or(w.opts.Logger, q.opts.Logger))
	w.err = errors.Join(w.opts.validate(), w.unthrottled(), w.listed())
	return w
}

// Handle registers fn as the handler of the jobs whose args are of type A; the
// kind is that of A's zero value, or of a new value if A is a pointer. Jobs of
// kinds without a handler are left alone for others.
//
// If fn returns nil, the job is done. If it returns an error, the job is retried
// by its policy. [Permanent], [RetryAfter], [Unavailable], [Snooze] and [Cancel] are
// more exact verdicts, and may be wrapped. A panic and [runtime.Goexit] count as errors. ctx
// ends when the attempt must end; [context.Cause] returns why. A job may be run
// more than once: see the package documentation.
//
// Handle panics on misuse: a nil fn, a malformed kind, a kind that has a handler already
// or belongs to another type, a type A with fields that JSON does not see or with another
// tag errand than [Args] has, bad options, or a call after Run.
func Handle[A Args](w *Worker, fn func(ctx context.Context, job *Job[A]) error, o ...HandlerOptions) {
	kind := w.kindOf(reflect.TypeFor[A]())
	if fn == nil {
		panic(fmt.Sprintf("errand: Handle %q: nil handler", kind))
	}
	w.register(kind, o, handler(w, fn))
}

// handler returns what sets that which the engine calls for a leased job.
func handler[A Args](w *Worker, fn func(context.Context, *Job[A]) error) func(*engine.Handler, []Middleware) {
	return func(h *engine.Handler, all []Middleware) {
		h.Secret = secrets(reflect.TypeFor[A]())
		if len(all) > 0 {
			h.Run = w.wrapped(all, decoded(fn))
			return
		}
		h.Run = func(ctx context.Context, l *storage.Leased) error {
			job, err := decodeJob[A](l)
			if err != nil {
				return &engine.DecodeError{Err: err}
			}
			job.attempt = engine.AttemptOf(ctx)
			job.Phase = w.engine.Phase(l)
			return fn(ctx, job)
		}
	}
}

// kindOf returns the kind of a type of args, which must be fit for a handler.
func (w *Worker) kindOf(t reflect.Type) string {
	if t.Kind() == reflect.Interface {
		panic(fmt.Sprintf("errand: Handle: %v is an interface: the type of the args must be known", t))
	}
	if isRaw(t) {
		panic("errand: Handle: RawArgs are of many kinds: HandleRaw names one")
	}
	x := w.queue.types.of(t)
	switch {
	case checkName("kind", x.kind) != nil: // register says so
	case x.taken != nil:
		panic(fmt.Sprintf("errand: Handle %q: the kind must be of one type: %v has it, and %v", x.kind, x.taken, deref(t)))
	case x.hidden && !implements(reflect.PointerTo(deref(t)), slices.Concat(marshalers, unmarshalers)):
		panic(fmt.Sprintf("errand: Handle %q: %v %s", x.kind, t, hiddenLimit))
	case x.tags != nil:
		panic(fmt.Sprintf("errand: Handle %q: %v", x.kind, x.tags))
	}
	return x.kind
}

// register registers the handler of a kind.
func (w *Worker) register(kind string, all []HandlerOptions, set func(*engine.Handler, []Middleware)) {
	if err := checkName("kind", kind); err != nil {
		panic(err.Error())
	}
	o := single(kind, all)
	h := w.made(kind, &o, set)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustNotRun(kind)
	for i, name := range append([]string{kind}, o.Aliases...) {
		if _, ok := w.handlers[name]; ok {
			if i > 0 {
				kind += ", alias " + name
			}
			panic(fmt.Sprintf("errand: Handle %q: the kind has a handler already", kind))
		}
		if i > 0 {
			h.AliasOf = kind
		}
		mustBeFree(name)
		w.handlers[name] = h
		if o.OnDead != nil {
			w.onDead[name] = new(*o.OnDead)
			w.queue.notices.Store(o.OnDead.kind(), nil)
		}
	}
}

// leasedJob returns a job but for its args, headers and phase.
func leasedJob[A Args](l *storage.Leased) *Job[A] {
	return &Job[A]{
		ID: l.ID, Queue: l.Queue, Kind: l.Kind, Priority: l.Priority, Group: l.Group, Origin: l.Origin,
		Attempt: l.Attempt, Retry: l.Retry, Crashes: l.Crashes, Snoozes: l.Snoozes,
		CreatedAt: l.CreatedAt, DueAt: l.DueAt, Deadline: l.Deadline, checkpoint: l.Checkpoint,
	}
}

func decodeJob[A Args](l *storage.Leased) (*Job[A], error) {
	job := leasedJob[A](l)
	if err := json.Unmarshal(l.Args, &job.Args); err != nil {
		return nil, argsError[A](err)
	}
	if raw, ok := any(&job.Args).(*RawArgs); ok {
		raw.OfKind = l.Kind
	}
	if l.Headers != nil {
		if err := json.Unmarshal(l.Headers, &job.Headers); err != nil {
			return nil, fmt.Errorf("headers: %w", err)
		}
	}
	return job, nil
}

// Run works until ctx ends or [Worker.Shutdown] is called. It then stops in this
// order. It leases no more jobs, and returns those that were not started. Handlers
// have Grace to end by themselves. Then their contexts are cancelled with cause
// [ErrShutdown]. From the beginning of the stop on no error of a handler is a failure: the
// job was interrupted, and is ready again, with nothing used up. Outcomes are written. Run returns when all that it started has ended, unless a handler is
// stuck.
//
// The contexts of handlers have the values of ctx, but do not end with it.
//
// Run returns nil after such a stop. It returns an error that wraps [ErrStuck] if
// a handler is still running StuckAfter after its context was cancelled; the job
// stays leased until the handler ends, also after Run has returned. Run returns a
// [FieldError] for each fault of the options, and the queue's error if the queue
// can no longer be used. If a store passed to [New] lacks what handlers or queues need, Run
// returns [storage.ErrLacking] before it leases anything. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	if w.queue.opts.SQLite.ReadOnly {
		return fmt.Errorf("%w: a worker must write", ErrReadOnly)
	}
	if err := w.unused(); err != nil {
		return err
	}
	return w.run(ctx)
}

// Shutdown makes Run stop in the order described there, waits until Run has
// returned, and returns the same result. If ctx ends first the grace is over at
// once, and Run returns within about StuckAfter unless the disk is slow. If Run was
// not called, a later Run returns at once.
//
// A handler that wants its own worker to stop must call Shutdown in a goroutine.
// Otherwise both wait for each other until the handler counts as stuck.
func (w *Worker) Shutdown(ctx context.Context) error { return w.stop(ctx) }

// get returns the engine. After the first call no handler can be registered.
func (w *Worker) get() *engine.Engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine == nil {
		w.engine = engine.New(w.configOf())
	}
	return w.engine
}

func (w *Worker) config() engine.Config {
	o, q := w.opts, w.queue.opts
	c := engine.Config{
		Store:         w.queue.store,
		Owner:         w.queue,
		Handlers:      w.handlers,
		Concurrency:   cmp.Or(o.Concurrency, defaultConcurrency),
		LeaseDuration: cmp.Or(o.LeaseDuration, defaultLease),
		Timeout:       o.Timeout,
		Grace:         max(cmp.Or(o.Grace, defaultGrace), 0),
		StuckAfter:    cmp.Or(o.StuckAfter, defaultStuckAfter),
		MaxCrashes:    cmp.Or(o.MaxCrashes, defaultMaxCrashes),
		MaxSnoozes:    cmp.Or(o.MaxSnoozes, defaultMaxSnoozes),
		MaxRetryAfter: cmp.Or(o.MaxRetryAfter, defaultMaxRetryAfter),
		MaxDeaths:     defaultMaxDeaths,
		Retention:     storage.Retention{Default: q.Retention},
		Policy:        q.Policy.Delivery(),
		Settings:      map[string]engine.QueueSettings{},
		Lanes:         &w.queue.lanes,
		Events:        &w.queue.events,
		OnDeath:       w.onDeath(),
		Clock:         w.queue.clock,
		WaitForClock:  q.WaitForClock,
		LogEvery:      q.LogEvery,
		Logger:        o.Logger,
	}
	c.Queues = w.allQueues()
	c.QueueHandlers = w.queueHandlers(c.Queues)
	c.Lasting = w.lasting(c.Queues)
	for name := range q.Queues {
		c.Settings[name] = w.queue.settings(name)
	}
	for _, name := range c.Queues {
		c.Settings[name] = w.queue.settings(name)
	}
	if slices.ContainsFunc(c.Queues, isPrefix) {
		c.SettingsOf = w.queue.settingsOf()
	}
	return c
}

// StopSignals returns the signals that ask a program to stop: SIGINT, SIGTERM and SIGHUP, without
// those that it ignores, as nohup has it ignore SIGHUP. To pass an ignored signal to
// [signal.NotifyContext] would have the program heed it.
//
//	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
//
// The result is never empty, as that would stand for all signals: if all three are ignored, it is
// one that no program can receive.
func StopSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	if all = slices.DeleteFunc(all, signal.Ignored); len(all) == 0 {
		return []os.Signal{os.Kill}
	}
	return all
}
