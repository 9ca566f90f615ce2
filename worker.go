package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// WorkerOptions configure a [Worker]. Nil and the zero value mean defaults.
type WorkerOptions struct {
	// Queues are the queues to work for. Which of them a job is in makes no
	// difference to its turn. If empty, "default".
	Queues []string
	// Concurrency is how many handlers run at a time, at most 10,000. The args of
	// their jobs are in memory, and about 32 MiB of those that are next. If zero, 16.
	Concurrency int
	// Lease is how long a job stays with a worker that shows no sign of life,
	// at least 1 s. Workers show one every third of it. If zero, 30 s.
	LeaseDuration time.Duration
	// Timeout bounds each attempt for which neither the job nor its handler
	// sets one. If zero, none.
	Timeout time.Duration
	// Grace is how long handlers may go on by themselves when the worker stops.
	// It must be shorter than whoever stops the process waits before killing it:
	// Docker 10 s, Kubernetes 30 s, systemd 90 s. If zero, 8 s; if negative, not
	// at all.
	Grace time.Duration
	// StuckAfter is how long after its context ended a handler is reported as
	// stuck. If zero, 5 s.
	StuckAfter time.Duration
	// MaxCrashes is how many processes in a row a job may bring down before it
	// is dead. If zero, 3.
	MaxCrashes int
	// MaxSnoozes is how often a job may [Snooze]. If zero, 10,000.
	MaxSnoozes int
	// MaxRetryAfter is the longest delay that [RetryAfter], or an error that
	// comes with a hint, can ask for. If zero, 24 h.
	MaxRetryAfter time.Duration
	// Logger takes what nobody can be told otherwise. If nil, that of the queue.
	Logger *slog.Logger
}

const (
	defaultConcurrency   = 16
	mostConcurrency      = 10_000
	defaultLease         = 30 * time.Second
	minLease             = time.Second
	defaultGrace         = 8 * time.Second
	defaultStuckAfter    = 5 * time.Second
	defaultMaxCrashes    = 3
	defaultMaxSnoozes    = 10_000
	defaultMaxRetryAfter = 24 * time.Hour
)

// HandlerOptions are what is particular to one kind of job.
type HandlerOptions struct {
	// Policy is the delivery policy of the kind. Its throttle section limits
	// the rate at which jobs of the kind start, in all queues together: see
	// [QueueOptions]. If nil, or for a section that is absent, that of the
	// queue; likewise if that of the queue disables others.
	Policy policy.Delivery
	// Rules tell which errors of the handler are worth a retry. What they call
	// [policy.Permanent] makes the job dead at once, for what they call
	// [policy.Throttled] the document's policy for throttling holds, if it has
	// one. A verdict of this package goes before them. If nil, those of the queue.
	Rules policy.Rules
	// Budget is the retry budget of the kind: a retry that is due takes tokens
	// when it is about to start, and if there are too few the job goes back
	// with nothing used up, to come again when the refill by time has brought
	// some, or up to a minute later if many wait. Successes pay in. The workers
	// of a queue that give a kind the same figures share one budget. TimeoutCost
	// has no effect, and RetriesPerSecond must not be negative. See
	// [Queue.Budgets]. If nil, that of the queue.
	Budget *policy.BudgetOptions
	// Timeout bounds each attempt of a job that has no timeout of its own.
	// If zero, that of the worker.
	Timeout time.Duration
	// MaxCrashes is how many processes in a row a job of the kind may bring down
	// before it is dead. If zero, that of the worker.
	MaxCrashes int
}

// Worker runs jobs in this process: it takes those that are due from its
// queues and calls their handlers. It is safe for concurrent use.
type Worker struct {
	queue *Queue
	opts  WorkerOptions

	mu       sync.Mutex
	handlers map[string]engine.Handler
	engine   *engine.Engine // once Run or Shutdown was called
	err      error          // of the options
}

// NewWorker makes a worker on q. It starts nothing. What is wrong with the
// options is what Run returns.
func NewWorker(q *Queue, o *WorkerOptions) *Worker {
	if q == nil {
		panic("errand: NewWorker: nil queue")
	}
	w := &Worker{queue: q, opts: *cmp.Or(o, &WorkerOptions{}), handlers: map[string]engine.Handler{}}
	w.opts.Queues = slices.Clone(w.opts.Queues)
	w.err = w.opts.validate()
	return w
}

// Handle registers fn as the handler of the jobs whose args are of type A; the
// kind is that of A's zero value, or of a new value if A is a pointer. Jobs of
// kinds without a handler are left alone for others.
//
// What fn returns decides: nil and the job is done, an error and it is retried
// by its policy; [Permanent], [RetryAfter], [Snooze] and [Cancel] say something
// more exact and may be wrapped. A panic and [runtime.Goexit] are errors. ctx
// ends when the attempt must: [context.Cause] tells why. A job may be run more
// than once: see the package documentation.
//
// Handle panics if fn is nil, if the kind is malformed or has a handler
// already, if another type that the queue has met has it, if JSON sees none of
// the fields of A, if the options do not hold, and after Run.
func Handle[A Args](w *Worker, fn func(ctx context.Context, job *Job[A]) error, o ...HandlerOptions) {
	kind := kindOf[A]()
	if fn == nil {
		panic(fmt.Sprintf("errand: Handle %q: nil handler", kind))
	}
	w.checkType(reflect.TypeFor[A]())
	w.register(kind, o, func(ctx context.Context, l *storage.Leased) error {
		job, err := decodeJob[A](l)
		if err != nil {
			return &engine.DecodeError{Err: err}
		}
		job.Phase = w.engine.Phase(l)
		return fn(ctx, job)
	})
}

func (w *Worker) checkType(t reflect.Type) {
	switch x := w.queue.types.of(t); {
	case checkName("kind", x.kind) != nil: // register says so
	case x.taken != nil:
		panic(fmt.Sprintf("errand: Handle %q: the kind must be of one type: %v has it, and %v", x.kind, x.taken, deref(t)))
	case x.hidden && !implements(reflect.PointerTo(deref(t)), slices.Concat(marshalers, unmarshalers)):
		panic(fmt.Sprintf("errand: Handle %q: %v %s", x.kind, t, hiddenLimit))
	}
}

func (w *Worker) register(kind string, o []HandlerOptions, run func(context.Context, *storage.Leased) error) {
	if err := checkName("kind", kind); err != nil {
		panic(err.Error())
	}
	h := engine.Handler{Run: run}
	switch len(o) {
	case 0:
	case 1:
		h.Timeout = o[0].Timeout
		if h.Timeout < 0 {
			panic(fmt.Sprintf("errand: Handle %q: timeout %v must not be negative", kind, h.Timeout))
		}
		h.MaxCrashes = o[0].MaxCrashes
		if h.MaxCrashes < 0 || h.MaxCrashes > math.MaxInt32 {
			panic(fmt.Sprintf("errand: Handle %q: max_crashes %d must be between 0 and %d", kind, h.MaxCrashes, math.MaxInt32))
		}
		var f faults
		h.Policy = f.override("policy", o[0].Policy)
		f.rules("rules", o[0].Rules)
		f.budget("budget", o[0].Budget)
		if err := f.err(); err != nil {
			panic(fmt.Sprintf("errand: Handle %q: %v", kind, err))
		}
		h.Rules = slices.Clone(o[0].Rules)
		h.Budget = w.queue.limits.budget(owner{kind: kind}, o[0].Budget)
		h.Throttle = w.queue.limits.throttle(owner{kind: kind}, h.Policy.Throttle)
		logDoubts(w.logger(), "kind "+kind, o[0].Policy)
	default:
		panic(fmt.Sprintf("errand: Handle %q: at most one HandlerOptions, not %d", kind, len(o)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine != nil {
		panic(fmt.Sprintf("errand: Handle %q: the worker has been run", kind))
	}
	if _, ok := w.handlers[kind]; ok {
		panic(fmt.Sprintf("errand: Handle %q: the kind has a handler already", kind))
	}
	w.handlers[kind] = h
}

// kindOf gives the kind of A. A pointer is given something to point to, as its
// Kind may look there.
func kindOf[A Args]() string {
	var a A
	switch t := reflect.TypeFor[A](); t.Kind() {
	case reflect.Pointer:
		a = reflect.New(t.Elem()).Interface().(A)
	case reflect.Interface:
		panic(fmt.Sprintf("errand: Handle: %v is an interface: the type of the args must be known", t))
	}
	return a.Kind()
}

func decodeJob[A Args](l *storage.Leased) (*Job[A], error) {
	job := &Job[A]{
		ID: l.ID, Queue: l.Queue, Kind: l.Kind, Priority: l.Priority,
		Attempt: l.Attempt, Retry: l.Retry, Crashes: l.Crashes, Snoozes: l.Snoozes,
		CreatedAt: l.CreatedAt, DueAt: l.DueAt,
	}
	if err := json.Unmarshal(l.Args, &job.Args); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	if l.Headers != nil {
		if err := json.Unmarshal(l.Headers, &job.Headers); err != nil {
			return nil, fmt.Errorf("headers: %w", err)
		}
	}
	return job, nil
}

// Run works until ctx ends or [Worker.Shutdown] is called. It then stops in
// this order: nothing is fetched any more, and what was not started goes back;
// handlers have Grace to end by themselves; their contexts are cancelled with
// cause [ErrShutdown], which makes interrupted jobs ready again and uses up
// nothing; outcomes are written; all that Run started has ended.
//
// The contexts of handlers have the values of ctx, but do not end with it.
//
// Run gives nil after such a stop, and an error that wraps [ErrStuck] if
// handlers have not ended StuckAfter they were cancelled: their jobs stay
// leased until they do, also beyond Run. It gives a [FieldError] for bad
// options, and the queue's error if that can no longer be used. A worker runs
// once.
func (w *Worker) Run(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	return w.get().Run(ctx)
}

// Shutdown has Run stop in the order described there, waits for that, and
// gives the same result. If ctx ends first the grace is over at once; Shutdown
// then still waits until Run has returned, which takes StuckAfter at most
// unless the disk keeps it longer. If Run was not called, a later Run returns
// at once. A handler that wants its own worker to stop calls it in a goroutine:
// else both wait for each other until the handler counts as stuck.
func (w *Worker) Shutdown(ctx context.Context) error { return w.get().Shutdown(ctx) }

// get gives the engine; from the first call on no handler can be registered.
func (w *Worker) get() *engine.Engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine == nil {
		w.engine = engine.New(w.config())
	}
	return w.engine
}

func (w *Worker) logger() *slog.Logger { return cmp.Or(w.opts.Logger, w.queue.opts.Logger) }

func (w *Worker) config() engine.Config {
	o, q := w.opts, w.queue.opts
	c := engine.Config{
		Store:         w.queue.store,
		Queues:        o.Queues,
		Handlers:      w.handlers,
		Concurrency:   cmp.Or(o.Concurrency, defaultConcurrency),
		Lease:         cmp.Or(o.LeaseDuration, defaultLease),
		Timeout:       o.Timeout,
		Grace:         max(cmp.Or(o.Grace, defaultGrace), 0),
		StuckAfter:    cmp.Or(o.StuckAfter, defaultStuckAfter),
		MaxCrashes:    cmp.Or(o.MaxCrashes, defaultMaxCrashes),
		MaxSnoozes:    cmp.Or(o.MaxSnoozes, defaultMaxSnoozes),
		MaxRetryAfter: cmp.Or(o.MaxRetryAfter, defaultMaxRetryAfter),
		Keep:          q.Retention,
		Policy:        q.Policy.Delivery(),
		Settings:      map[string]engine.QueueSettings{},
		Lanes:         &w.queue.lanes,
		Clock:         w.queue.clock,
		WaitForClock:  q.WaitForClock,
		Logger:        w.logger(),
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{defaultQueue}
	}
	for name := range q.Queues {
		c.Settings[name] = w.queue.settings(name)
	}
	for _, name := range c.Queues {
		c.Settings[name] = w.queue.settings(name)
	}
	return c
}
